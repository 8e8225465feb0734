"""Random kernels of work-items: lanes in lockstep against work-items one by one.

Where a simulation of single work-items sees a race between two barriers, the interpreter has to
report one; where it sees none, both have to compute the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tilewright.interpret import FaultKind, Findings, run
from tilewright.ir import parse_kernel, verify

ITEMS, SIZE = 6, 12


@dataclass
class Simulation:
    """What the work-items did since the barrier, and the memory they share."""

    s: list[int] = field(default_factory=lambda: list(range(SIZE)))
    r: list[int] = field(default_factory=lambda: [0] * ITEMS)
    accesses: list[tuple[int, int, bool]] = field(default_factory=list)
    raced: bool = False

    def barrier(self) -> None:
        for element in range(SIZE):
            here = [(item, writes) for item, e, writes in self.accesses if e == element]
            several = len({item for item, _ in here}) > 1
            self.raced = self.raced or (several and any(writes for _, writes in here))
        self.accesses.clear()

    def load(self, item: int, element: int) -> int:
        self.accesses.append((item, element, False))
        return self.s[element]

    def store(self, item: int, element: int, value: int) -> None:
        self.accesses.append((item, element, True))
        self.s[element] = value


@dataclass
class Step:
    """One statement, for work-items below ``most``, perhaps in a loop of ``times``."""

    kind: str
    factor: int
    shift: int
    most: int
    times: int

    def text(self) -> list[str]:
        place = f"s[(t * {self.factor} + k * {ITEMS} + {self.shift}) % {SIZE}]"
        body = {
            "store": f"{place} = r[0] + t * 10 + k",
            "load": f"r[0] = r[0] * 3 + {place}",
            "update": f"{place} = {place} + 1",
        }[self.kind]
        return [f"if t < {self.most}:", f"  for k in {self.times}:", f"    {body}"]

    def simulate(self, memory: Simulation, item: int) -> None:
        if item >= self.most:
            return
        for k in range(self.times):
            element = (item * self.factor + k * ITEMS + self.shift) % SIZE
            if self.kind == "store":
                memory.store(item, element, memory.r[item] + item * 10 + k)
            elif self.kind == "load":
                memory.r[item] = memory.r[item] * 3 + memory.load(item, element)
            else:
                memory.store(item, element, memory.load(item, element) + 1)


def draw(rng: random.Random) -> list[list[Step]]:
    """Statements between barriers. Factors of 1 and few work-items keep some free of races."""
    return [
        [
            Step(
                rng.choice(("store", "load", "load", "update")),
                rng.choice((1, 1, 1, 1, 5, 2)),
                rng.choice((0, 0, 0, 1, ITEMS)),
                rng.choice((ITEMS, ITEMS, 1, 3)),
                rng.choice((1, 1, 2)),
            )
            for _ in range(rng.randint(1, 2))
        ]
        for _ in range(rng.randint(1, 4))
    ]


@pytest.mark.parametrize("seed", range(10))
def test_lockstep_equals_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    races = 0
    for _ in range(12):
        phases = draw(rng)
        lines = [f"alloc s: s64[{SIZE}] workgroup", f"for i in {SIZE}:", "  s[i] = i"]
        body = ["alloc r: s64[1] private", "r[0] = 0"]
        for phase in phases:
            body += [line for step in phase for line in step.text()] + ["barrier()"]
        body += ["y[t] = r[0]"]
        lines += [f"workgroup for t in {ITEMS}:", *(f"  {line}" for line in body)]
        lines += [f"for i in {SIZE}:", "  z[i] = s[i]"]
        text = "\n".join(f"  {line}" for line in lines)
        kernel = parse_kernel(f"kernel k(out y: s64[{ITEMS}], out z: s64[{SIZE}]):\n{text}\n")
        verify(kernel)
        memory = {"y": np.zeros(ITEMS, np.int64), "z": np.zeros(SIZE, np.int64)}
        findings = Findings()
        run(kernel, memory, findings=findings)
        expected = Simulation()
        for phase in phases:
            for item in rng.sample(range(ITEMS), ITEMS):
                for step in phase:
                    step.simulate(expected, item)
            expected.barrier()
        assert {finding.kind for finding in findings} == (
            {FaultKind.RACE} if expected.raced else set()
        )
        if expected.raced:
            races += 1
            continue
        np.testing.assert_array_equal(memory["y"], expected.r)
        np.testing.assert_array_equal(memory["z"], expected.s)
    assert 0 < races < 12

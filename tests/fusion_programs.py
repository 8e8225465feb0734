"""Random members of work-items on a few arrays, as IR text: indices that go across, loops,
branches."""

from __future__ import annotations

import random

import tilewright as tw
from tilewright.ir.stmt import Kernel
from tilewright.schedule.fusion.members import Fusion, Member

ARRAYS = "wxyz"
GROUP, GROUPS, LENGTH = 4, 4, 64

INDICES = (
    *("g * 4 + i",) * 9,
    *("g * 4 + 3 - i", "g * 4 + i // 2", "g * 4", "i * 4 + g", "15 - g * 4 - i", "i", "g"),
    *("g * 8 + i * 2", "g * 8 + i * 2 + 1", "g * 4 + (i + 1) % 4", "g * 4 + i + 16"),
)
LOOPED = (
    "g * 16 + i * 4 + k",
    "g * 16 + i * 4 + 3 - k",
    "g * 16 + k * 4 + i",
    "k * 16 + g * 4 + i",
)
CONDITIONS = (
    *("i < 2", "not i < 2", "g * 4 + i < 13", "13 <= g * 4 + i", "g < 3", "g == 2", "i == 0"),
    *("0.0 < {m}[g * 4 + i]", "not 0.0 < {m}[g * 4 + i]"),
)


class _Writer:
    """Writes statements of work-items, who touch each array at the elements that ``usual`` says,
    and now and then at others."""

    def __init__(self, rng: random.Random, usual: dict[str, tuple[str, str]]) -> None:
        self.rng = rng
        self.usual = usual
        self.lines: list[str] = []
        self.names = 0

    def element(self, looped: bool) -> str:
        array = self.rng.choice(ARRAYS)
        index = self.usual[array][looped]
        if self.rng.random() < 0.1:
            index = self.rng.choice(LOOPED if looped else INDICES)
        return f"{array}[{index}]"

    def value(self, looped: bool) -> str:
        terms = [self.element(looped) for _ in range(2)]
        return self.rng.choice([terms[0], f"{terms[0]} * 0.5", " + ".join(terms), "1.0"])

    def store(self, depth: str, looped: bool) -> None:
        place = self.element(looped)
        if self.rng.random() < 0.3:
            self.names += 1
            self.lines.append(f"{depth}v{self.names}: f32 = {self.value(looped)}")
            self.lines.append(f"{depth}{place} = v{self.names} - 0.25")
        else:
            self.lines.append(f"{depth}{place} = {self.value(looped)}")

    def stmt(self, depth: str, looped: bool = False) -> None:
        kind = self.rng.random()
        if kind < 0.2 and len(depth) < 12:
            condition = self.rng.choice(CONDITIONS).format(m=self.rng.choice(ARRAYS))
            self.lines.append(f"{depth}if {condition}:")
            self.stmt(depth + "  ", looped)
            if self.rng.random() < 0.6:
                self.lines.append(f"{depth}else:")
                self.stmt(depth + "  ", looped)
        elif kind < 0.35 and not looped:
            self.lines.append(f"{depth}for k in 4:")
            self.stmt(depth + "  ", True)
        else:
            self.store(depth, looped)


def member_kernel(rng: random.Random, name: str, usual: dict[str, tuple[str, str]]) -> Kernel:
    """A kernel on all `ARRAYS`, of `GROUPS` workgroups of `GROUP` work-items, or of fewer."""
    writer = _Writer(rng, usual)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        writer.stmt("      ")
    params = ", ".join(f"inout {array}: f32[{LENGTH}]" for array in ARRAYS)
    groups = rng.choice([GROUPS, GROUPS, GROUPS, GROUPS - 1])
    head = f"kernel {name}({params}):\n  grid for g in {groups}:\n    workgroup for i in {GROUP}:\n"
    return tw.parse_kernel(head + "\n".join(writer.lines) + "\n")


def program(seed: int) -> Fusion:
    """A fusion of 2 to 4 members, with memory that is dead afterwards."""
    rng = random.Random(seed)
    usual = {array: (rng.choice(INDICES), rng.choice(LOOPED)) for array in ARRAYS}
    members = []
    for number in range(rng.choice([2, 2, 3, 4])):
        kernel = member_kernel(rng, f"member_{number}", usual)
        members.append(Member(kernel, {array: array for array in ARRAYS}))
    dead = {name: "any" for name in ARRAYS if rng.random() < 0.4}
    return Fusion(tuple(members), promote=dead, barriers=rng.random() < 0.8)

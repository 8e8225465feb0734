"""specialize_warps where the loop is run again and again: slots and phases count on."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from schedule_cases import shared, specialize_warps
from sweeps import in_turns
from tilewright import interpret
from tilewright.errors import ScheduleError
from tilewright.interpret import FaultKind, Findings
from tilewright.ir import Kernel, Swizzle, parse_kernel, to_text, verify
from tilewright.schedule import CopyUnit
from tilewright.schedule.loops.order_workgroups import order_workgroups

TEXT = """
kernel product(in a: f32[ROWS, DEPTH], in b: f32[DEPTH, COLUMNS], out c: f32[ROWS, COLUMNS]):
  grid for m_o in DOWN:
    grid for n_o in ACROSS:
      subgroup for s in 2:
        alloc acc: f32[16, 16] private
        compute init(m in 16, n in 16):
          acc[m, n] = 0.0
        for step in STEPS:
          compute main(m in 16, n in 16, k in 8):
            x = a[m + s * 16 + m_o * 32, k + step * 8 | m + s * 16 + m_o * 32 < ROWS]
            y = b[k + step * 8, n + n_o * 16]
            acc[m, n] add= x * y
        compute store(m in 16, n in 16):
          v = acc[m, n]
          c[m + s * 16 + m_o * 32, n + n_o * 16 | m + s * 16 + m_o * 32 < ROWS] = v
"""


def _shared(down: int = 3, across: int = 2, steps: int = 5) -> Kernel:
    sizes = {
        "ROWS": 32 * down - 10,
        "COLUMNS": 16 * across,
        "DEPTH": 8 * steps,
        "DOWN": down,
        "ACROSS": across,
        "STEPS": steps,
    }
    text = TEXT
    for name, size in sizes.items():
        text = re.sub(rf"\b{name}\b", str(size), text)
    return shared(
        parse_kernel(text),
        "main",
        ["x", "y"],
        "step",
        layout={"y": [("n", None), ("k", None), ("n", 8)]},
        swizzle={"x": Swizzle(1, 2, 3), "y": Swizzle(1, 2, 3)},
        by={"x": CopyUnit(), "y": CopyUnit({"n": 8})},
        shape="box",
    )


def _persistent(kernel: Kernel, workgroups: int, stages: int = 2) -> Kernel:
    kernel = specialize_warps(
        order_workgroups(kernel, ["m_o", "n_o"], workgroups=workgroups), "step", stages
    )
    verify(kernel)
    return kernel


def _wrong(kernel: Kernel, findings: Findings | None = None, depth: int | None = None) -> float:
    """How far the result is from that in float64, at most; of ``depth`` elements of the sum."""
    random = np.random.default_rng(0)
    a, b, c = (np.zeros(p.buffer.shape, np.float32) for p in kernel.params)
    a[:], b[:] = random.standard_normal(a.shape), random.standard_normal(b.shape)
    memory = {"a": a.ravel(), "b": b.ravel(), "c": c.ravel()}
    interpret.run(kernel, memory, findings=findings)
    result = memory["c"].reshape(c.shape)
    return float(np.abs(result - a[:, :depth].astype(np.float64) @ b[:depth]).max())


# Tiles down and across, steps of each, workgroups.
GRIDS = {
    "two rounds, tail": (3, 2, 5, 4),
    "three": (3, 2, 5, 2),
    "one workgroup": (3, 2, 4, 1),
    "one each": (3, 2, 5, 6),
    "one tile": (1, 1, 5, 3),
    "short": (5, 1, 2, 2),
}


@pytest.mark.parametrize(("name", "stages"), in_turns(2, GRIDS, [1, 2, 3, 4]))
def test_results(name: str, stages: int) -> None:
    down, across, steps, workgroups = GRIDS[name]
    assert _wrong(_persistent(_shared(down, across, steps), workgroups, stages)) < 1e-4


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_rounds_of_one_iteration(stages: int) -> None:
    text = to_text(order_workgroups(_shared(steps=2), ["m_o", "n_o"], workgroups=4))
    kernel = parse_kernel(text.replace("for step in 2:", "for step in 1:"))
    specialized = specialize_warps(kernel, "step", stages)
    verify(specialized)
    assert "for step" not in to_text(specialized)
    assert _wrong(specialized, depth=8) < 1e-4


def test_bands(golden: Callable[[str, str], None]) -> None:
    kernel = order_workgroups(_shared(), ["m_o", "n_o"], rows=2, workgroups=4)
    kernel = specialize_warps(kernel, "step", 3)
    verify(kernel)
    golden("specialize_persistent", to_text(kernel))
    assert _wrong(kernel) < 1e-4


def test_grids_that_are_in_no_order_of_workgroups() -> None:
    kernel = _shared()
    refused = {
        "'s' is no loop over workgroups": (["s"], 1, 2),
        "'step' is no grid loop directly inside 'm_o'": (["m_o", "step"], 2, None),
        "'m_o' is no grid loop directly inside 'm_o'": (["m_o"], 2, None),
    }
    for message, (loops, rows, workgroups) in refused.items():
        with pytest.raises(ScheduleError, match=f"order_workgroups: {message}"):
            order_workgroups(kernel, loops, rows=rows, workgroups=workgroups)
    grid = parse_kernel(
        """
        kernel fill(m: s64 in 1..9, out y: f32[m, m]):
          grid for m_o in m:
            grid for n_o in m:
              y[m_o, n_o] = 0.0
        """
    )
    for rows, workgroups in ((2, None), (1, 2)):
        with pytest.raises(ScheduleError, match="how many tiles there are is not constant"):
            order_workgroups(grid, ["m_o", "n_o"], rows=rows, workgroups=workgroups)
    assert order_workgroups(kernel, ["m_o", "n_o"]) is kernel


def test_loops_in_loops() -> None:
    """The batch of a workgroup inside of its turns: rounds are counted through both."""
    shared = to_text(_shared(across=1))
    inner = shared.index("      subgroup")
    head, nest = shared[:inner], shared[inner:]
    first, rest = nest.split("\n", 1)
    rest = "\n".join("    " + line for line in rest.splitlines())
    loops = "\n        for half in 2:\n          for again in 3:\n"
    kernel = parse_kernel(head + first + loops + rest + "\n")
    specialized = specialize_warps(kernel, "step", 3)
    verify(specialized)
    # Fifteen iterations are five phases of each of three slots.
    assert "((again * 5 + step) // 3 + half) % 2" in to_text(specialized)
    assert _wrong(specialized) < 1e-4


# What is planted, and what is found because of it.
FAULTS: dict[str, tuple[str, str, FaultKind]] = {
    "the phases of slots that were filled begin anew": (
        r"(&full.*), \(step \+ turn \* 5\) // 2 % 2\)",
        r"\1, step // 2 % 2)",
        FaultKind.EARLY_ACCESS,
    ),
    "the phases of slots that are empty begin anew": (
        r"(&empty.*), \(\(step \+ turn \* 5\) // 2 \+ 1\) % 2\)",
        r"\1, (step // 2 + 1) % 2)",
        FaultKind.DEADLOCK,
    ),
    "the last slot of a round stays full": (
        r"(wait_products\(0\)\n) *mbarrier_arrive\(.*\n",
        r"\1",
        FaultKind.DEADLOCK,
    ),
    "the last slot of a round is empty too early": (
        r"wait_products\(0\)\n( *)(mbarrier_arrive\(.*)\n",
        r"\2\n\1wait_products(0)\n",
        FaultKind.RACE,
    ),
    "slots begin anew": (
        r"full\[\(step \+ turn\) % 2\], \(step \+ turn",
        r"full[step % 2], (step + turn",
        FaultKind.DEADLOCK,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str) -> None:
    old, new, kind = FAULTS[name]
    text = to_text(_persistent(_shared(), 2))
    changed = re.sub(old, new, text)
    assert changed != text
    kernel, findings = parse_kernel(changed), Findings()
    verify(kernel)
    _wrong(kernel, findings)
    assert kind in {f.kind for f in findings}


def _turns(old: str, new: str) -> Kernel:
    """The persistent kernel before it is specialized, with a change."""
    text = to_text(order_workgroups(_shared(), ["m_o", "n_o"], workgroups=4))
    assert old in text
    return parse_kernel(text.replace(old, new))


CONDITION = "if group + turn * 4 < 6:"
REFUSED: dict[str, tuple[str, str, str]] = {
    "every other round": (
        CONDITION,
        "if turn % 2 == 0:",
        "specialize_warps: rounds are left out between others",
    ),
    "the first round": (
        CONDITION,
        "if 1 <= turn:",
        "specialize_warps: rounds are left out between others",
    ),
    "rounds of other lengths": (
        "for step in 5:",
        "for step in turn + 1:",
        "specialize_warps: rounds of 'step' differ in length",
    ),
    "each subgroup by itself": (
        CONDITION,
        "if turn + s < 2:",
        "it depends on the work-item",
    ),
    "as often as the subgroup says": (
        "for turn in 2:",
        "for turn in s + 1:",
        "it depends on the work-item",
    ),
    "memory": (
        CONDITION,
        "if b[0, 0] < 1.0:",
        "specialize_warps: what leads to the loop 'step' is read from memory",
    ),
    "other loops": (
        "for turn in 2:",
        "unrolled for turn in 2:",
        "the loop 'step' is not directly what a subgroup runs",
    ),
    "a barrier behind it": (
        "          compute store",
        "          barrier()\n          compute store",
        "the subgroups meet at `barrier()` outside of the loop",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    old, new, message = REFUSED[name]
    kernel = _turns(old, new)
    with pytest.raises(ScheduleError, match=re.escape(message)) as caught:
        specialize_warps(kernel, "step", 2)
    text = str(caught.value)
    assert message in text and caught.value.where and caught.value.cure


def test_two_rounds_that_end_together_are_counted() -> None:
    """A condition on a name for the number of the round, and two in one another."""
    kernel = _turns(CONDITION, "number = group + turn * 4\n        if number < 6 and turn < 7:")
    specialized = specialize_warps(kernel, "step", 3)
    verify(specialized)
    assert _wrong(specialized) < 1e-4

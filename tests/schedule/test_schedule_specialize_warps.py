"""staged tiles and specialize_warps: golden texts, results, planted faults, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from schedule_cases import shared, specialize_warps
from tilewright import interpret
from tilewright.errors import ScheduleError
from tilewright.interpret import FaultKind, Findings
from tilewright.ir import Kernel, Swizzle, parse_kernel, to_text, verify
from tilewright.schedule import CopyUnit
from tilewright.schedule.staging.stage import stage

TILED = """
kernel product(in a: f32[52, 40], in b: f32[40, 32], out c: f32[52, 32]):
  grid for m_o in 2:
    subgroup for s in 2:
      alloc acc: f32[16, 32] private
      compute init(m in 16, n in 32):
        acc[m, n] = 0.0
      for step in 5:
        compute main(m in 16, n in 32, k in 8):
          x = a[m + s * 16 + m_o * 32, k + step * 8 | m + s * 16 + m_o * 32 < 52]
          y = b[k + step * 8, n]
          acc[m, n] add= x * y
      compute store(m in 16, n in 32):
        v = acc[m, n]
        c[m + s * 16 + m_o * 32, n | m + s * 16 + m_o * 32 < 52] = v
"""
SWIZZLE = Swizzle(1, 2, 3)


def _shared(text: str = TILED, **options: Any) -> Kernel:
    values: dict[str, Any] = {
        "layout": {"y": [("n", None), ("k", None), ("n", 8)]},
        "swizzle": {"x": SWIZZLE, "y": SWIZZLE},
        "by": {"x": CopyUnit(), "y": CopyUnit({"n": 8})},
        "shape": "box",
        **options,
    }
    kernel = shared(parse_kernel(text), "main", ["x", "y"], "step", **values)
    verify(kernel)
    return kernel


def _specialized(stages: int = 2) -> Kernel:
    kernel = specialize_warps(_shared(), "step", stages)
    verify(kernel)
    return kernel


def _right(kernel: Kernel, findings: Findings | None = None) -> bool:
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((52, 40), (40, 32)))
    c = np.zeros(52 * 32, np.float32)
    interpret.run(kernel, {"a": a.ravel(), "b": b.ravel(), "c": c}, findings=findings)
    return np.array_equal(c.reshape(52, 32), a @ b)


def test_the_text(golden: Callable[[str, str], None]) -> None:
    golden("specialize_warps", to_text(_shared()) + "\n\n" + to_text(_specialized()))


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_results(stages: int) -> None:
    assert _right(parse_kernel(TILED)) and _right(_shared()) and _right(_specialized(stages))


def test_registers() -> None:
    """Each role begins with them, and computes the same."""
    kernel = specialize_warps(_shared(), "step", 2, registers=(40, 232))
    verify(kernel)
    text = to_text(kernel)
    assert "if w == 2:\n        give_registers(40)\n        for step" in text
    assert "else:\n        take_registers(232)\n        alloc acc" in text
    assert text.count("_registers(") == 2 and _right(kernel)


# What is planted, and what is found because of it.
FAULTS: dict[str, tuple[str, str, FaultKind]] = {
    "no wait for what is read": (
        r"mbarrier_wait\(&full.*",
        "wait_products(1)",
        FaultKind.EARLY_ACCESS,
    ),
    "no wait for an empty slot": (
        r"mbarrier_wait\(&empty.*",
        "wait_products(1)",
        FaultKind.MBARRIER,
    ),
    "nobody says that a slot is empty": (
        r"mbarrier_arrive\(.*",
        "wait_products(1)",
        FaultKind.DEADLOCK,
    ),
    "the parity of the subgroup that copies": (
        r"\(step // 2 \+ 1\) % 2",
        "step // 2 % 2",
        FaultKind.DEADLOCK,
    ),
    "the parity of the others": (
        r"(&full.*), step // 2 % 2\)",
        r"\1, (step // 2 + 1) % 2)",
        FaultKind.EARLY_ACCESS,
    ),
    "a slot is empty when its product is still under way": (
        r"if 1 <= step:\n( *)mbarrier_arrive\(&empty\[\(step \+ 1\) % 2\]",
        r"if 0 <= step:\n\1mbarrier_arrive(&empty[step % 2]",
        FaultKind.RACE,
    ),
    "products that nobody waits for": (r"wait_products\(1\)", "subgroup_barrier()", FaultKind.RACE),
    "sums that nobody waits for": (
        r"wait_products\(0\)",
        "subgroup_barrier()",
        FaultKind.EARLY_ACCESS,
    ),
    "bytes of one copy": (
        r"expect\(&full\[step % 2\], 2048\)",
        "expect(&full[step % 2], 1024)",
        FaultKind.EARLY_ACCESS,
    ),
    "a corner outside": (
        r"a\[m \+ m_o \* 32, k \+ step \* 8 \| m \+ m_o \* 32 < 52\]",
        "a[m + m_o * 32, k + step * 8]",
        FaultKind.OUT_OF_BOUNDS,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str) -> None:
    old, new, kind = FAULTS[name]
    text = to_text(_specialized())
    changed = re.sub(old, new, text)
    assert changed != text
    kernel, findings = parse_kernel(changed), Findings()
    verify(kernel)
    _right(kernel, findings)
    assert kind in {f.kind for f in findings}


def test_a_corner_inside_gives_other_values() -> None:
    text = to_text(_specialized())
    for old, new in (("b[k + step * 8, n", "b[k + 32 - step * 8, n"), ("a[m + m_o * 32,", "a[m,")):
        assert old in text and not _right(parse_kernel(text.replace(old, new)))


def _changed(*changes: tuple[str, str]) -> str:
    text = TILED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


Make = Callable[[], Kernel]
REFUSED: dict[str, tuple[Make, str]] = {
    "no stage": (lambda: specialize_warps(_shared(), "step", 0), "specialize_warps: stages is 0"),
    "registers that nobody gives": (
        lambda: specialize_warps(_shared(), "step", 2, registers=(232, 40)),
        "specialize_warps: 232 registers for what copies, 40 for the others",
    ),
    "no loop": (lambda: specialize_warps(_shared(), "k", 2), "there is no loop 'k'"),
    "no subgroups": (
        lambda: specialize_warps(parse_kernel(_changed(("subgroup for", "for"))), "step", 2),
        "no subgroups are around the loop 'step'",
    ),
    "nobody to share": (
        lambda: _shared(_changed(("subgroup for", "for"))),
        "stage: no work-items are around the loop 'step' with 'main'",
    ),
    "not shared": (
        lambda: specialize_warps(parse_kernel(TILED), "step", 2),
        "its body is not copies, a barrier, what reads them, and a barrier",
    ),
    "twice": (
        lambda: specialize_warps(_specialized(), "step", 2),
        "the loop 'step' is not directly what a subgroup runs",
    ),
    "a mask inside of the tensor": (
        lambda: specialize_warps(
            _shared(
                _changed(("m_o * 32 < 52]\n          y", "m_o * 32 < 52 and 3 <= k]\n          y"))
            ),
            "step",
            2,
        ),
        "its mask hides more than what is outside of the tensor: 3 <= k",
    ),
    "a large box": (
        lambda: specialize_warps(
            _shared(
                TILED.replace("a: f32[52, 40]", "a: f32[2400, 40]")
                .replace("c: f32[52,", "c: f32[2400,")
                .replace("m in 16", "m in 600")
                .replace("s * 16 + m_o * 32", "s * 600 + m_o * 1200")
                .replace(" | m + s * 600 + m_o * 1200 < 52", ""),
            ),
            "step",
            2,
        ),
        "a box of 1200 elements along a dim, more than 256",
    ),
    "many dims": (
        lambda: specialize_warps(
            _shared(
                TILED.replace("a: f32[52, 40]", "a: f32[2, 2, 2, 2, 52, 40]").replace(
                    "a[m", "a[0, 1, 0, 1, m"
                )
            ),
            "step",
            2,
        ),
        "the tensor has 6 dims, more than 5",
    ),
    "steps of nine": (
        lambda: specialize_warps(
            parse_kernel(to_text(_shared()).replace("b[k + step", "b[k * 9 + step")), "step", 2
        ),
        "it does not go along dim 0 step by step: by k * 9 + step * 8",
    ),
    "rows of the tensor": (
        lambda: specialize_warps(
            _shared(_changed(("a: f32[52, 40]", "a: f32[52, 41]"))), "step", 2
        ),
        "the tensor has rows of 164 bytes, no multiple of 16",
    ),
    "in blocks": (
        lambda: specialize_warps(
            _shared(_changed(("a: f32[52, 40]", "a: f32[52, 40] {1:5:416 0:52:8 1:8:1}"))),
            "step",
            2,
        ),
        "the tensor lies in blocks",
    ),
    "boxes of more than a row": (
        lambda: specialize_warps(_shared(by=CopyUnit()), "step", 2),
        "does not take it without gaps",
    ),
    "rows of another swizzle": (
        lambda: specialize_warps(_shared(swizzle={"x": Swizzle(2, 2, 3), "y": SWIZZLE}), "step", 2),
        "its rows have 8 elements, those of the swizzle 16",
    ),
    "it converts": (
        lambda: specialize_warps(
            parse_kernel(
                to_text(_shared()).replace("a_packed[m, k] = x", "a_packed[m, k] = x * 2.0")
            ),
            "step",
            2,
        ),
        "it computes on the way",
    ),
    "it adds up": (
        lambda: specialize_warps(
            parse_kernel(to_text(_shared()).replace("a_packed[m, k] = x", "a_packed[m, k] add= x")),
            "step",
            2,
        ),
        "it does not write all of 'a_packed'",
    ),
    "two dims of one": (
        lambda: specialize_warps(
            parse_kernel(to_text(_shared()).replace("b[k + step * 8, n +", "b[k + step * 8, k +")),
            "step",
            2,
        ),
        "2 dims of the tensor are 'k'",
    ),
    "a mask that stays": (
        lambda: specialize_warps(
            parse_kernel(
                to_text(_shared()).replace(
                    "a_packed[m + s * 16, k]", "a_packed[m + s * 16, k | k < n]"
                )
            ),
            "step",
            2,
        ),
        "'main' masks what it reads of copies",
    ),
    "another reader": (
        lambda: specialize_warps(
            parse_kernel(to_text(_shared()).replace("v = acc[m, n]", "v = a_packed[m, n % 8]")),
            "step",
            2,
        ),
        "'a_packed' is also used by `compute store",
    ),
    "no sum": (
        lambda: specialize_warps(
            parse_kernel(to_text(_shared()).replace("acc[m, n] add= x * y", "acc[m, n] = x * y")),
            "step",
            2,
        ),
        "'main' does not add up in private memory",
    ),
    "an operand that is not shared": (
        lambda: specialize_warps(
            stage(parse_kernel(TILED), "main", "x", "step", by=CopyUnit(), swizzle=SWIZZLE),
            "step",
            2,
        ),
        "'main' does not read copies only",
    ),
    "parts of copies": (
        lambda: specialize_warps(
            parse_kernel(
                to_text(_shared())
                .replace("x_pack(m in 32", "x_pack(m in 16")
                .replace("a[m + m_o", "a[m + s * 16 + m_o")
                .replace("a_packed[m, k] = x", "a_packed[m + s * 16, k] = x")
            ),
            "step",
            2,
        ),
        "subgroups make parts of the copy `compute x_pack",
    ),
    "a barrier elsewhere": (
        lambda: specialize_warps(
            parse_kernel(
                to_text(_shared()).replace(
                    "      compute store", "      barrier()\n      compute store"
                )
            ),
            "step",
            2,
        ),
        "the subgroups meet at `barrier()` outside of the loop",
    ),
    "work-items": (
        lambda: specialize_warps(
            parse_kernel(to_text(_shared()).replace("subgroup for", "workgroup for")), "step", 2
        ),
        "no subgroups are around the loop 'step'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(message)) as caught:
        make()
    assert caught.value.where and caught.value.cure

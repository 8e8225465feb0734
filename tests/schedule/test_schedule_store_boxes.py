"""stage_result: golden text, results, planted faults, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from schedule_cases import UNIT, shared, specialize_warps
from tilewright import interpret
from tilewright.errors import ScheduleError
from tilewright.interpret import FaultKind, Findings
from tilewright.ir import Kernel, Swizzle, parse_kernel, to_text, verify
from tilewright.schedule import CopyUnit, Threads
from tilewright.schedule.staging.stage_result import stage_result

# Workgroups take two of four tiles each; the last one is not whole along m and n.
TILED = """
kernel product(in a: f32[84, 24], in b: f32[24, 40], out c: f32[84, 40]):
  grid for m_o in 2:
    subgroup for s in 2:
      for turn in 2:
        alloc acc: f32[32, 32] private
        compute init(m in 32, n in 32):
          acc[m, n] = 0.0
        for step in 3:
          compute main(m in 32, n in 32, k in 8):
            x = a[m + s * 32 + m_o * 64, k + step * 8 | m + s * 32 + m_o * 64 < 84]
            y = b[k + step * 8, n + turn * 32 | n + turn * 32 < 40]
            acc[m, n] add= x * y
        compute store(m in 32, n in 32):
          v = acc[m, n]
          c[m + s * 32 + m_o * 64, n + turn * 32 | MASK] = v
""".replace("MASK", "m + s * 32 + m_o * 64 < 84 and n + turn * 32 < 40")
ONCE = """
kernel product(in a: f32[84, 24], in b: f32[24, 40], out c: f32[84, 40]):
  grid for m_o in 2:
    grid for turn in 2:
      subgroup for s in 2:
""" + "".join(TILED.splitlines(keepends=True)[5:])
MOVED = "c[(m + s * 32 + m_o * 64) // 4, (m + s * 32 + m_o * 64) % 4,"
OPTIONS: dict[str, Any] = {
    "layout": [("n", None), ("m", None), ("n", 8)],
    "swizzle": Swizzle(1, 2, 3),
    "by": CopyUnit({"n": 8}, UNIT.store),
}


def _stored(text: str = TILED, **options: Any) -> Kernel:
    kernel = stage_result(parse_kernel(text), "store", **{**OPTIONS, **options})
    verify(kernel)
    return kernel


def _specialized(text: str = TILED, stages: int = 2) -> Kernel:
    """Tiles that a subgroup of its own has copied, and that a unit stores."""
    kernel = stage_result(_shared(text), "store", **OPTIONS)
    kernel = specialize_warps(kernel, "step", stages)
    verify(kernel)
    return kernel


def _shared(text: str) -> Kernel:
    swizzle = Swizzle(1, 2, 3)
    return shared(
        parse_kernel(text),
        "main",
        ["x", "y"],
        "step",
        layout={"y": [("n", None), ("k", None), ("n", 8)]},
        swizzle={"x": swizzle, "y": swizzle},
        by={"x": CopyUnit(), "y": CopyUnit({"n": 8})},
        shape="box",
    )


def _right(kernel: Kernel, findings: Findings | None = None) -> bool:
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, shape) for shape in ((84, 24), (24, 40)))
    c = np.full(84 * 40, np.nan, np.float32)
    memory = {"a": a.astype(np.float32).ravel(), "b": b.astype(np.float32).ravel(), "c": c}
    interpret.run(kernel, memory, findings=findings)
    return np.array_equal(c.reshape(84, 40), a @ b)


def test_the_text(golden: Callable[[str, str], None]) -> None:
    golden("store_boxes", to_text(_stored()) + "\n\n" + to_text(_specialized()))


@pytest.mark.parametrize("text", [TILED, ONCE], ids=["rounds", "one tile"])
def test_results(text: str) -> None:
    assert _right(parse_kernel(text)) and _right(_stored(text))
    assert _right(_stored(text, layout=(), swizzle=None, by=CopyUnit({}, UNIT.store)))
    assert all(_right(_specialized(text, stages)) for stages in (1, 2, 3))


def test_a_part_that_is_written_once_is_free() -> None:
    text = to_text(_stored(ONCE))
    assert text.count("wait_stores(0)") == text.count("subgroup_barrier()") == 1
    assert to_text(_stored()).count("wait_stores(0)") == 2


# What is left out of the text (by its number from the top), and what is found because of it.
FAULTS: dict[str, tuple[str, int, FaultKind, str]] = {
    "no fence": ("fence_async()", 0, FaultKind.MISSING_FENCE, "of 'c_tile'"),
    "no wait before it is written again": (
        "wait_stores(0)",
        0,
        FaultKind.RACE,
        "what subgroup 0 started reads the element at offset 0 and subgroup 0 writes it",
    ),
    "no wait at the end": ("wait_stores(0)", 1, FaultKind.LOST_COPY, "is never waited for"),
    "nobody tells that it is free": ("subgroup_barrier()", 1, FaultKind.RACE, "'c_tile'"),
    "nobody tells that it is written": ("subgroup_barrier()", 2, FaultKind.RACE, "'c_tile'"),
    "no group": ("commit_stores()", 0, FaultKind.LOST_COPY, "is never committed"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str) -> None:
    line, number, kind, message = FAULTS[name]
    # The lanes of a subgroup write their parts, as they do in the end.
    text = re.sub(
        r"( *)compute store\(m in 32, n in 32\):\n *v = acc\[m, n\]\n *(c_tile\[.*\]) = v\n",
        r"\1lane for m in 32:\n\1  for n in 32:\n\1    \2 = acc[m, n]\n",
        to_text(_specialized()),
    )
    assert "lane for m" in text
    kernel, findings = parse_kernel(text), Findings()
    verify(kernel)
    assert _right(kernel, findings) and not list(findings)
    lines = text.splitlines()
    del lines[[i for i, other in enumerate(lines) if other.strip() == line][number]]
    kernel = parse_kernel("\n".join(lines))
    verify(kernel)
    _right(kernel, findings)
    assert any(f.kind is kind and message in str(f.fault) for f in findings), list(findings)


def _changed(*changes: tuple[str, str]) -> str:
    text = TILED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no subgroups": (
        _changed(("subgroup for", "for")),
        {},
        "no subgroups are around 'store'",
    ),
    "lanes": (
        _changed(("subgroup for s", "subgroup for t in 1:\n     lane for s")),
        {},
        "lanes run 'store', each for itself",
    ),
    "lanes inside": (
        _changed(("compute store(m in 32,", "lane for t in 2:\n         compute store(m in 32,")),
        {},
        "lanes run 'store', each for itself",
    ),
    "it adds up": (_changed(("] = v", "] add= v")), {}, "'store' does more than write its result"),
    "it is read": (
        _changed(("v = acc[m, n]\n", "v = acc[m, n]\n          u = c[m, n]\n"), ("= v", "= v + u")),
        {},
        "'c' is also touched otherwise",
    ),
    "twice": (
        TILED + TILED[TILED.index("        compute store") :],
        {},
        "'store' stands here more than once",
    ),
    "a mask inside of the tensor": (
        _changed(("n + turn * 32 < 40] = v", "n + turn * 32 < 36] = v")),
        {},
        "its mask hides more than what is outside of the tensor: n_o * 8 + n + turn * 32 < 36",
    ),
    "digits": (
        _changed(("c: f32[84, 40]", "c: f32[21, 4, 40]"), ("c[m + s * 32 + m_o * 64,", MOVED)),
        {},
        "it does not go along dim 0 step by step",
    ),
    "boxes of more than a row": (
        TILED,
        {"by": CopyUnit({}, UNIT.store)},
        "does not take it without gaps",
    ),
    "rows of another swizzle": (
        TILED,
        {"swizzle": Swizzle(2, 2, 3)},
        "its rows have 8 elements, those of the swizzle 16",
    ),
    "rows of no 16 bytes": (
        _changed(("40]", "42]")),
        {},
        "the tensor has rows of 168 bytes, no multiple of 16",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    text, options, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(message)) as refused:
        _stored(text, **options)
    assert str(refused.value).startswith("stage_result: ") and "store" in str(refused.value)


def test_what_only_another_way_takes_is_refused() -> None:
    kernel = parse_kernel(TILED)
    for values, text in (
        ({"by": CopyUnit()}, "the copy unit has no instruction[^$]*CopyUnit"),
        ({"by": CopyUnit({}, UNIT.store), "at": "turn"}, r"at does not go with by=CopyUnit"),
        ({"by": Threads(), "swizzle": Swizzle(1, 2, 3)}, r"swizzle does not go with by=Threads"),
        ({"row_padding": {"m": 1}}, "row_padding does not go with by=None"),
        ({}, "no loop is named in which 'store' accumulates[^$]*say `at` which"),
    ):
        with pytest.raises(ScheduleError, match=f"stage_result: {text}"):
            stage_result(kernel, "store", **values)  # type: ignore[arg-type]

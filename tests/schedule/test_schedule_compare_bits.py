"""Extremes of floats by those of their bits: before, after, special values, refusals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import dtype
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir.printer import to_text
from tilewright.ir.verify import verify
from tilewright.schedule.reductions.compare_bits import compare_bits

ROWS = """
kernel rows(in x: f32[8, 512], inout y: f32[8]):
  compute main(i in 8, k in 512):
    y[i] max= x[i, k]
"""
SPECIAL = [np.nan, np.inf, 1.5, 1e-45, 0.0]
TRIPLES = np.array(list(product([*SPECIAL, *np.negative(SPECIAL)], repeat=3)), np.float32)


def test_three_extremes_of_the_bits() -> None:
    after = compare_bits(tw.parse_kernel(ROWS), "main")
    value = "select(u32(4286578688) < most, most, select(s32(0) <= signed, u32(signed), least))"
    assert to_text(after).replace(value, "VALUE").splitlines()[1:] == (
        """\
  alloc main_signed: s32[8] private
  alloc main_least: u32[8] private
  alloc main_most: u32[8] private
  compute main_bits(i in 8):
    main_signed[i] = s32(-2147483648)
    main_least[i] = u32(4286578688)
    main_most[i] = u32(0)
  compute main(i in 8, k in 512):
    main_signed[i] max= bitcast(s32, x[i, k])
    main_least[i] min= bitcast(u32, x[i, k])
    main_most[i] max= bitcast(u32, x[i, k])
  compute main_value(i in 8):
    signed = main_signed[i]
    least = main_least[i]
    most = main_most[i]
    y[i] max= bitcast(f32, VALUE)""".splitlines()
    )


@pytest.mark.parametrize("how", ["max", "min"])
@pytest.mark.parametrize("stored", ["f32", "f16", "bf16", "f8_e4m3", "f8_e5m2"])
def test_nan_and_the_zeros_are_where_they_were(how: str, stored: str) -> None:
    rows = len(TRIPLES)
    value = "x" if stored == "f32" else "f32(x)"
    before = tw.parse_kernel(f"""
kernel rows(in x: {stored}[{rows}, 3], inout y: f32[{rows}]):
  compute main(i in {rows}, k in 3):
    x = x[i, k]
    y[i] {how}= {value}
""")
    after = compare_bits(before, "main")
    verify(after)
    assert f"bitcast({stored}" in to_text(after)
    with np.errstate(all="ignore"):
        x = TRIPLES.astype(dtype(stored).numpy).ravel()
    start = -np.inf if how == "max" else np.inf
    results = []
    for kernel in (before, after):
        memory = {"x": x, "y": np.full(rows, start, np.float32)}
        run(kernel, memory)
        results.append(memory["y"])
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(*map(np.signbit, (np.nan_to_num(result) for result in results)))


@pytest.mark.parametrize("how", ["max", "min"])
@pytest.mark.parametrize(
    ("type", "shape", "axis"),
    [("f32", "16x2100:16x1", 1), ("bf16", "16x2100:16x1", 1), ("f32", "2100x16:1x16", 0)],
)
def test_special_values_on_a_processor(how: str, type: str, shape: str, axis: int) -> None:
    kernel = tw.compile(tw.reduce(shape, algorithm=how, dtype=type), "x86:avx2")
    assert any(name.startswith("bits") for name in kernel.stages)
    rng = np.random.default_rng(0)
    x = -1 - rng.random((16, 2100), np.float32)
    x *= -1 if how == "min" else 1
    for row, value in enumerate([*SPECIAL, *np.negative(SPECIAL)]):
        x[row, rng.integers(0, 2100)] = value
    x = x.astype(dtype(type).numpy)
    x[-1] = 0 if how == "min" else -np.float32(0)
    x[-1, 1000] *= -1
    x = x if axis == 1 else np.ascontiguousarray(x.T)
    got = np.asarray(kernel(src=x)).astype(np.float32).ravel()
    wanted = getattr(x.astype(np.float32), how)(axis=axis)
    np.testing.assert_array_equal(got, wanted)
    assert np.signbit(got[-1]) == (how == "min")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("y[i] add= x[i, k]", "'main' finds no maximum or minimum of floats"),
        ("n[i] max= s32(x[i, k])", "'main' finds no maximum or minimum of floats"),
        ("t[i] max= tf32(x[i, k])", "tf32 has no bits of its own"),
        ("y[i | k < 4] max= x[i, k]", "the output is masked"),
    ],
)
def test_what_is_refused(line: str, what: str) -> None:
    text = ROWS.replace("y: f32[8]", "y: f32[8], inout n: s32[8], inout t: tf32[8]")
    kernel = tw.parse_kernel(text.replace("y[i] max= x[i, k]", line))
    with pytest.raises(ScheduleError, match=what):
        compare_bits(kernel, "main")

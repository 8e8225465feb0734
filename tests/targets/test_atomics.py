"""Atomic updates that tell the old value, exchanges, and shuffles: each target against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.dtypes import dtype
from tilewright.errors import InterpreterFault, VerificationError

TARGETS = ["interpreter", *DEVICES]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
CASES = [
    (type_, op)
    for type_ in ("s32", "u32", "s64", "f16", "bf16", "f32", "f64")
    for op in (*OPERATORS, "exchange")
    if not (dtype(type_).is_float and op in ("and", "or", "xor"))
]


def update(type_: str, op: str) -> str:
    return f"""
kernel update(in at: s64[128], in x: {type_}[128], inout y: {type_}[10], out z: {type_}[128]):
  grid for g in 4:
    workgroup for l in 32:
      alloc old: {type_}[1] private
      fetch_{op}(&old[0], &y[at[g * 32 + l]], x[g * 32 + l])
      z[g * 32 + l] = old[0]
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("type_", "op"), CASES)
def test_updates_tell_what_was_there(type_: str, op: str, target: str) -> None:
    g = np.random.default_rng(0)
    at, of = g.integers(0, 10, 128), dtype(type_).numpy
    most = 10 if type_ == "bf16" else 100  # sums are exact
    x, start = g.integers(0, most, 128).astype(of), g.integers(40, 60, 10).astype(of)
    y, z = start.copy(), np.empty(128, of)
    tw.compile(tw.parse_kernel(update(type_, op)), target)(at=at, x=x, y=y, z=z)
    for place in range(10):
        values, result = x[at == place], z[at == place]
        if op == "exchange":  # each value but the last is found by one
            wanted = sorted([*values, start[place]])
            assert sorted([*result, y[place]]) == wanted
            continue
        total = start[place]
        for value in values:
            total = OPERATORS[op](total, value)
        assert y[place] == total
        pairs = list(zip(values.tolist(), result.tolist(), strict=True))
        assert in_some_order(pairs, start[place].item(), OPERATORS[op])


def in_some_order(left: list[tuple[Any, Any]], now: Any, op: Callable[[Any, Any], Any]) -> bool:
    """Whether each of the pairs (given, found) in ``left`` can have found what the ones before
    left, the first one ``now``."""
    steps = {pair for pair in left if pair[1] == now}
    still = [pair for pair in steps if op(now, pair[0]) == now]
    if still:  # what changes nothing may always be first
        return in_some_order(without(left, still[0]), now, op)
    return not left or any(
        in_some_order(without(left, step), op(now, step[0]), op) for step in steps
    )


def without(pairs: list[tuple[Any, Any]], one: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    at = pairs.index(one)
    return pairs[:at] + pairs[at + 1 :]


def test_orders_of_updates() -> None:
    """What raises the greatest may come before or behind what does not, wherever it is listed."""
    assert in_some_order([(9, 5), (3, 5), (7, 9)], 5, max)
    assert in_some_order([(1, 1), (3, 1), (3, 2)], 1, lambda a, b: a ^ b)
    assert not in_some_order([(9, 5), (7, 5)], 5, max)


@pytest.mark.parametrize("type_", ["s32", "f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("target", TARGETS)
def test_one_work_item_wins_a_compare_exchange(type_: str, target: str) -> None:
    text = f"""
kernel first(inout y: {type_}[1], out z: {type_}[64]):
  grid for g in 2:
    workgroup for l in 32:
      alloc old: {type_}[1] private
      fetch_compare_exchange(&old[0], &y[0], {type_}(0), {type_}(g * 32 + l + 1))
      z[g * 32 + l] = old[0]
"""
    of = dtype(type_).numpy
    y, z = np.zeros(1, of), np.empty(64, of)
    tw.compile(tw.parse_kernel(text), target)(y=y, z=z)
    assert np.count_nonzero(z == 0) == 1
    assert z[int(y[0]) - 1] == 0
    assert np.count_nonzero(z == y[0]) == 63


SHUFFLE = """
kernel turned(in x: {0}[128], out z: {0}[128]):
  grid for g in 2:
    subgroup for s in 4:
      lane for l in 16:
        alloc o: {0}[1] private
        shuffle(&o[0], x[g * 64 + s * 16 + l], (l + 3) % {1})
        z[g * 64 + s * 16 + l] = o[0]
"""


@pytest.mark.parametrize("type_", ["s8", "u32", "s64", "bf16", "f32", "f64"])
@pytest.mark.parametrize("target", TARGETS)
def test_lanes_give_each_other_values(type_: str, target: str) -> None:
    x = np.random.default_rng(0).integers(0, 100, 128).astype(dtype(type_).numpy)
    z = np.empty_like(x)
    tw.compile(tw.parse_kernel(SHUFFLE.format(type_, 16)), target)(x=x, z=z)
    np.testing.assert_array_equal(z.reshape(-1, 16), np.roll(x.reshape(-1, 16), -3, 1))


def test_faults_of_shuffles() -> None:
    kernel = tw.compile(tw.parse_kernel(SHUFFLE.format("f32", 32)), "interpreter")
    with pytest.raises(InterpreterFault, match="a lane that the subgroup of 16 does not have"):
        kernel(x=np.zeros(128, np.float32))
    text = SHUFFLE.format("f32", 16).replace("subgroup for", "workgroup for")
    text = text.replace("lane for", "workgroup for")
    with pytest.raises(VerificationError, match="shuffle stands in no loop over lanes"):
        tw.compile(tw.parse_kernel(text), "interpreter")


@pytest.mark.parametrize(("type_", "op"), CASES)
def test_ptx(type_: str, op: str) -> None:
    text = tw.compile(tw.parse_kernel(update(type_, op)), "nvidia:sm_80").source("llvm")
    assert "atomicrmw" in text or "cmpxchg" in text


def test_ptx_of_shuffles_names_the_lanes_of_the_subgroup() -> None:
    text = tw.compile(tw.parse_kernel(SHUFFLE.format("f64", 16)), "nvidia:sm_80").source("llvm")
    assert text.count("@llvm.nvvm.shfl.sync.idx.i32(i32 %") == 2
    wide = SHUFFLE.format("f32", 64).replace("lane for l in 16", "lane for l in 64")
    wide = wide.replace("[128]", "[512]").replace("s * 16", "s * 64").replace("g * 64", "g * 256")
    with pytest.raises(tw.TilewrightError, match="a subgroup of 64 lanes"):
        tw.compile(tw.parse_kernel(wide), "nvidia:sm_80")

"""Expressions: interning, folding, types."""

from __future__ import annotations

import copy
import gc
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.conversions import convert
from tilewright.dtypes import (
    ALL,
    COMPUTED,
    bf16,
    boolean,
    f8_e4m3,
    f16,
    f32,
    f64,
    s8,
    s16,
    s32,
    s64,
    tf32,
    u8,
    u16,
    u32,
    u64,
)
from tilewright.ir import (
    Binary,
    Const,
    Load,
    all_of,
    binary,
    bitcast,
    buffer,
    cast,
    conjuncts,
    const,
    load,
    maximum,
    minimum,
    select,
    unary,
    var,
)
from tilewright.ir.interning import interned
from tilewright.ir.operators import BINARY, KINDS, UNARY, identity
from tilewright.ir.verify_computes import COMBINERS

i, j = var("i"), var("j")
x, y = var("x", f32), var("y", f32)


def test_equal_expressions_are_one_object() -> None:
    assert (i + 1) * j is (i + 1) * j
    assert select(i < j, x, y) is select(i < j, x, y)
    assert cast(f32, i) is cast(f32, i)
    assert i + j is not j + i


def test_one_name_of_two_types_is_two_variables() -> None:
    assert var("i") is not var("i", s32)


def test_constants_are_told_apart_by_type_and_bits() -> None:
    assert const(1) is not const(1, s32)
    assert const(True) is not const(1)
    assert const(0.0) is not const(-0.0)
    assert const(math.nan) is const(math.nan)


def test_loads_of_two_buffers_differ() -> None:
    a, b = buffer("a", f32, (4,)), buffer("a", f32, (4,))
    assert load(a, (i,)) is load(a, (i,))
    assert load(a, (i,)) is not load(b, (i,))
    assert load(a, (i,)) is not load(a, (i,), i < 2)


def test_the_truth_of_equality_is_identity() -> None:
    assert i + 1 == i + 1
    assert bool(i == j) is False
    assert bool(i != j) is True
    assert isinstance(i == j, Binary)


def test_other_expressions_have_no_truth_value() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(i < j)


def test_expressions_are_keys_of_dicts_and_sets() -> None:
    table = {i: 1, j: 2, x: 3, i + 1: 4}
    assert table[var("i")] == 1
    assert table[i + 1] == 4
    assert i + 2 not in table
    assert len({i, j, i, x, y}) == 4


def test_dead_nodes_leave_the_table() -> None:
    gc.disable()  # or others' nodes might leave it meanwhile
    try:
        before = len(interned)
        nodes = [var(f"temporary{n}") * 2 + n for n in range(100)]
        assert len(interned) >= before + 300
        del nodes
        assert len(interned) <= before
    finally:
        gc.enable()


def test_copied_and_pickled_expressions_are_the_same_nodes() -> None:
    a = buffer("a", f32, (4, 4))
    of_each_class = [
        *(const(2.5), const(-0.0), const(7, s32), i, x + 1.0, -x, select(i < j, x, y)),
        *(cast(s32, x), bitcast(s32, x), load(a, (i, j + 1), i < 3), load(a, (0, j))),
    ]
    for node in of_each_class:
        assert copy.copy(node) is node
        assert copy.deepcopy(node) is node
    again, b = pickle.loads(pickle.dumps((of_each_class, a)))
    for node, other in zip(of_each_class[:-2], again, strict=False):
        assert other is node
    # A buffer is an object with an identity, so its elements are those of the new one.
    assert again[-2:] == [load(b, (i, j + 1), i < 3), load(b, (0, j))]


def test_threads_get_the_same_nodes() -> None:
    """Every thread builds and drops the same expressions while the others do."""
    workers = 8
    start = Barrier(workers)

    def build(_: int) -> list[int]:
        start.wait()
        for _ in range(200):
            for n in range(20):
                assert var("t") * n + (n + 1) is var("t") * n + (n + 1)
        start.wait()
        kept.extend(nodes := [var("shared") * n + 1 for n in range(500)])
        return [id(node) for node in nodes]

    kept: list[object] = []
    with ThreadPoolExecutor(workers) as pool:
        result = list(pool.map(build, range(workers)))
    assert all(ids == result[0] for ids in result)


def test_the_operators_of_python() -> None:
    assert [str(e) for e in (i + j, i - 1, 2 * i, i // 3, i % 3, -i, x / y, 1 - i)] == [
        "i + j",
        "i - 1",
        "2 * i",
        "i // 3",
        "i % 3",
        "-i",
        "x / y",
        "1 - i",
    ]
    assert [str(e) for e in (i < j, i <= j, i > j, i >= j, (i < j) & (j < i), ~(i < j))] == [
        "i < j",
        "i <= j",
        "j < i",
        "j <= i",
        "i < j and j < i",
        "not i < j",
    ]
    assert str((i < j) | (i == 3)) == "i < j or i == 3"
    assert (str(minimum(i, 3)), str(maximum(2, i))) == ("min(i, 3)", "max(2, i)")
    assert (str(1 // i), str(5 % i), str(2.0 / x)) == ("1 // i", "5 % i", "2.0 / x")


@given(st.integers(-100, 100), st.integers(-10, 10))
def test_integer_division_is_floor(a: int, b: int) -> None:
    quotient, rest = const(a) // b, const(a) % b
    assert isinstance(quotient, Const)
    assert isinstance(rest, Const)
    if b == 0:
        assert (quotient.value, rest.value) == (0, 0)
    else:
        assert (quotient.value, rest.value) == (math.floor(a / b), a - b * math.floor(a / b))


def test_constants_fold_and_nothing_else_does() -> None:
    assert const(2) + 3 is const(5)
    assert (const(2) < 3) is const(True)
    assert -const(2.5) is const(-2.5)
    assert select(True, i, j) is i
    assert cast(s8, const(300)) is const(44, s8)
    assert cast(s64, i) is i
    assert isinstance(i + 0, Binary)
    assert isinstance(i * 1, Binary)
    assert isinstance(i - i, Binary)


@pytest.mark.parametrize("type_", [t for t in COMPUTED if t.is_integer], ids=str)
def test_integers_wrap(type_) -> None:
    highest = const(type_.highest, type_)
    assert (highest + const(1, type_)).value == type_.lowest


@pytest.mark.parametrize("type_", [t for t in ALL if t.is_float], ids=str)
def test_floats_round_to_their_type(type_) -> None:
    third = const(1.0, type_) / const(3.0, type_)
    assert third.value == float(convert(np.float64(1 / 3), f64, type_))


def test_conversions_of_constants() -> None:
    assert cast(s8, const(1e9)).value == 127
    assert cast(u8, const(-3.7)).value == 0
    assert cast(s32, const(-3.7)).value == -3
    assert cast(s64, const(math.nan)).value == 0
    assert cast(s64, const(math.inf)).value == 2**63 - 1
    assert cast(bf16, const(1.01)).value == 1.0078125
    assert cast(boolean, const(2)).value is True


def test_bits_of_integers() -> None:
    assert (const(12, u16) & const(10, u16)) is const(8, u16)
    assert (const(12, s8) | const(3, s8)) is const(15, s8)
    assert ~const(12, u8) is const(243, u8)
    assert ~const(12, s8) is const(-13, s8)
    assert (const(1, u32) ^ const(2**32 - 1, u32)) is const(2**32 - 2, u32)
    assert unary("clz", const(1, u16)) is const(15, u16)
    assert unary("clz", const(0, s32)) is const(32, s32)
    assert unary("clz", const(-1, s64)) is const(0, s64)
    assert unary("popcount", const(-1, s8)) is const(8, s8)


def test_shifts_beyond_the_width_leave_none_of_the_bits() -> None:
    assert (const(3, u8) << const(7, u8)) is const(128, u8)
    for amount in (8, 63, 64, 255):
        assert (const(255, u8) << const(amount, u8)) is const(0, u8)
        assert (const(255, u8) >> const(amount, u8)) is const(0, u8)
    # Amounts count without sign.
    for amount in (8, 127, -1, -128):
        assert (const(-3, s8) << const(amount, s8)) is const(0, s8)
        assert (const(-3, s8) >> const(amount, s8)) is const(-1, s8)
        assert (const(3, s8) >> const(amount, s8)) is const(0, s8)
    assert (const(-3, s8) >> const(1, s8)) is const(-2, s8)
    assert (const(2**64 - 1, u64) >> const(2**63, u64)) is const(0, u64)


def test_the_high_half_of_a_product() -> None:
    assert binary("mulhi", const(-128, s8), const(-128, s8)) is const(64, s8)
    assert binary("mulhi", const(-1, s32), const(1, s32)) is const(-1, s32)
    most = const(2**64 - 1, u64)
    assert binary("mulhi", most, most) is const(2**64 - 2, u64)


def test_integers_wrap_at_the_ends() -> None:
    least = const(s32.lowest, s32)
    assert least // const(-1, s32) is least
    assert least % const(-1, s32) is const(0, s32)
    assert unary("abs", least) is least
    assert -const(1, u64) is const(2**64 - 1, u64)
    assert const(7, u64) // const(0, u64) is const(0, u64)
    assert const(7, u64) % const(0, u64) is const(0, u64)


def test_bit_casts_of_constants() -> None:
    assert bitcast(u32, const(1.0)) is const(0x3F800000, u32)
    assert bitcast(f32, const(0x80000000, u32)) is const(-0.0)
    assert bitcast(s16, const(-2.0, bf16)) is const(0xC000 - 2**16, s16)
    assert bitcast(f8_e4m3, const(0x38, u8)) is const(1.0, f8_e4m3)
    assert bitcast(u64, const(-1)) is const(2**64 - 1, u64)
    assert bitcast(s64, i) is i
    # Constants know one NaN: the bits of another are kept as they are.
    assert bitcast(u32, const(math.nan)).type is u32
    other = bitcast(f32, const(0x7FC00001, u32))
    assert not isinstance(other, Const)
    assert str(other) == "bitcast(f32, u32(2143289345))"


def test_minimum_and_maximum_of_zeros() -> None:
    for op, wanted in (("min", -0.0), ("max", 0.0)):
        assert binary(op, const(0.0), const(-0.0)) is const(wanted)
        assert binary(op, const(-0.0), const(0.0)) is const(wanted)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_combining_with_the_identity_changes_nothing(combiner: str) -> None:
    """Of integers, all bits are the identity of "and", not 1."""
    values = [
        const(number != 0 if dtype is boolean else number, dtype)
        for dtype in COMPUTED
        if dtype.kind in KINDS[combiner]
        for number in (0, 1, 100)
    ]
    combined = [
        binary(combiner, const(identity(combiner, value.type), value.type), value)
        for value in values
    ]
    assert values and combined == values


@pytest.mark.parametrize("op", sorted(op for op in BINARY if "float" in KINDS[op]))
def test_every_binary_operator_folds_special_floats(op: str) -> None:
    values = (0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan)
    for a in values:
        for b in values:
            assert isinstance(binary(op, const(a), const(b)), Const)


@pytest.mark.parametrize("op", sorted(op for op in UNARY if "float" in KINDS[op]))
def test_every_unary_operator_folds_special_floats(op: str) -> None:
    for a in (0.0, -0.0, 1.5, -2.0, 1e30, math.inf, -math.inf, math.nan):
        assert isinstance(unary(op, const(a)), Const)


def test_numbers_take_the_type_of_the_other_side() -> None:
    h = var("h", f16)
    assert str(h + 1) == "h + f16(1.0)"
    assert str(2 * var("b", s8)) == "s8(2) * b"
    assert const(np.int64(3)) is const(3)
    assert const(np.float32(0.5)) is const(0.5)
    assert const(np.bool_(True)) is const(True)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: i + x, "add: operands of types s64 and f32; cast one of them"),
        (lambda: i == x, "eq: operands of types s64 and f32; cast one of them"),
        (lambda: x & y, "and: not defined on f32"),
        (lambda: x // y, "floordiv: not defined on f32"),
        (lambda: i / j, "div: not defined on s64"),
        (lambda: ~x, "not: not defined on f32"),
        (lambda: -(i < j), "neg: not defined on bool"),
        (lambda: (i < j) + (j < i), "add: not defined on bool"),
        (lambda: x << y, "shl: not defined on f32"),
        (lambda: unary("clz", i < j), "clz: not defined on bool"),
        (
            lambda: bitcast(f32, i),
            "bitcast: s64 has 64 bits, f32 has 32; cast it to a type of as many bits first",
        ),
        (lambda: bitcast(boolean, i), "bitcast: not defined on bool; cast it"),
        (lambda: bitcast(tf32, x), "bitcast: not defined on tf32; cast it"),
        (lambda: unary("exp", i), "exp: not defined on s64"),
        (lambda: select(i, x, y), "select: bool and two of one type, got s64, f32, f32"),
        (lambda: select(i < j, x, i), "select: bool and two of one type, got bool, f32, s64"),
    ],
)
def test_types_that_do_not_agree(build, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        build()
    assert str(caught.value) == message


def test_masks_of_many_conditions() -> None:
    conditions = (i < 3, const(True), j < 4, i < j)
    mask = all_of(conditions)
    assert str(mask) == "i < 3 and j < 4 and i < j"
    assert conjuncts(mask) == (i < 3, j < 4, i < j)
    assert all_of([const(True)]) is None
    assert conjuncts(None) == ()


def test_a_load_has_the_type_of_its_buffer() -> None:
    node = load(buffer("a", f64, (4, 4)), (i, 2), i < 3)
    assert isinstance(node, Load)
    assert node.type is f64
    assert node.index == (i, const(2))

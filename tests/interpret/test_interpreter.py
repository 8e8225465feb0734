"""The interpreter: what each statement, expression and cast means, and every fault it finds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import in_turns
from tilewright import dtypes, interpret
from tilewright.conversions import convert, reinterpret
from tilewright.dtypes import DType, bf16, boolean, f32, f64, s8, s32, s64, tf32, u8
from tilewright.errors import ArgumentError, InterpreterFault, UnsupportedError
from tilewright.interpret import computes, lanes
from tilewright.interpret.lockstep import Lockstep
from tilewright.interpret.memory import Memory
from tilewright.interpret.values import binary_values, unary_values
from tilewright.ir import expr as ir
from tilewright.ir import operators
from tilewright.ir.buffer import Buffer, Layout, LayoutBlock, Space, buffer, row_major
from tilewright.ir.functions import FUNCTIONS, Function, Parameter
from tilewright.ir.load import load
from tilewright.ir.parser import parse_kernel
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Operand,
    Param,
    Stmt,
    Store,
    View,
)
from tilewright.testing import data, reference

i, j, k = ir.var("i"), ir.var("j"), ir.var("k")


def vector(name: str, size: int, dtype: DType = f32) -> Buffer:
    return buffer(name, dtype, (size,))


def loop(var: ir.Var, extent: Any, *body: Stmt, kind: LoopKind = LoopKind.SERIAL) -> For:
    return For(var, ir.as_expr(extent), body[0] if len(body) == 1 else Block(body), kind)


def run(body: Stmt, out: Buffer, **inputs: tuple[Buffer, Any]) -> Any:
    """Runs ``body`` on ``inputs``; the contents of ``out`` (zero at first) as a logical array."""
    arrays = {name: interpret.pack(b, a) for name, (b, a) in inputs.items()}
    arrays[out.name] = np.zeros(out.layout.extent, out.dtype.numpy)
    params = [Param(b, "in") for b, _ in inputs.values()] + [Param(out, "inout")]
    interpret.run(Kernel("test", tuple(params), body), arrays)
    return interpret.unpack(out, arrays[out.name])


def faults(body: Stmt, *params: Param) -> str:
    """The text of the fault that ``body`` meets on zeroed arguments."""
    arrays = {p.name: np.zeros(p.buffer.layout.extent, p.dtype.numpy) for p in params}
    with pytest.raises(InterpreterFault) as caught:
        interpret.run(Kernel("test", params, body), arrays)
    assert caught.value.where and caught.value.why and caught.value.cure
    return str(caught.value)


# Casts.


def nearest(value: Fraction, dtype: DType) -> float:
    """``value`` rounded to nearest even by the definition of the format."""
    digits = 11 if dtype is tf32 else round(-math.log2(dtype.epsilon)) + 1
    info = np.finfo(np.float32) if dtype is tf32 else dtypes.ml_dtypes.finfo(dtype.numpy)
    exponent_min = int(math.log2(float(info.smallest_normal)))
    if value == 0:
        return 0.0
    exponent = math.frexp(float(value))[1] - 1
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, exponent_min) - digits + 1)
    rounded = round(value / step) * step  # Python rounds fractions to even
    highest = Fraction(float(info.max))
    if dtype is tf32:
        highest = (2 - Fraction(2) ** -10) * Fraction(2) ** 127
    if abs(rounded) > highest:
        over = math.nan if dtype.name == "f8_e4m3" else math.inf
        return math.copysign(over, value)
    return float(rounded)


def scalar_cast(value: Any, source: DType, target: DType) -> Any:
    if target is boolean:
        return value != 0
    if target.is_integer:
        if not source.is_float:
            return int(value) & (2**target.bits - 1)
        if math.isnan(value):
            return 0
        if math.isinf(value):
            value = math.copysign(2**70, value)
        return min(max(int(value), int(target.lowest)), int(target.highest))
    if source.is_float and not math.isfinite(value):
        # e4m3 has no infinity.
        return math.nan if target.name == "f8_e4m3" else value
    return nearest(Fraction(value), target)


def samples(dtype: DType, seed: int = 0) -> Any:
    """Values of ``dtype``: special ones, ties of every narrower type, and random bits."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 256, (400, dtype.bytes), np.uint8)
    if dtype is boolean:
        return np.array([False, True])
    drawn = bits.view(dtype.numpy).ravel()
    if not dtype.is_float:
        edges = [dtype.lowest, dtype.highest, 0, 1, 17, 19, 100, 127][: 4 if dtype.bits < 8 else 8]
        if dtype is s64:
            edges += [2**53 + 1, 2**62 + 2**54 + 1, -(2**62) - 2**54 - 1, 2**60 + 2**36 + 1]
        return np.concatenate([drawn, np.array(edges, dtype.numpy)])
    tiny = [1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-45, 1 + 2.0**-4 + 2.0**-50]
    ties = [1 + 2.0**-n for n in range(2, 25)] + [1 + 3 * 2.0**-n for n in range(2, 25)]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 464, 465, 65520, 3.39e38, 1e300, 5e-324, 1e-40]
    plain = [-1.5, 2.5, 127.5, 128, 255.9, -0.9, 2.0**31, 2.0**63, -(2.0**63), 1e30]
    with np.errstate(all="ignore"):
        known = np.array(special + plain + ties + tiny).astype(dtype.numpy)
        middle = generator.normal(0, 30, 200).astype(dtype.numpy)
    return np.concatenate([drawn, known, middle])


@pytest.mark.parametrize(("source", "target"), in_turns(4, dtypes.ALL, dtypes.ALL))
def test_cast(source: DType, target: DType) -> None:
    values = samples(source)
    if source is tf32:
        values = convert(values, f32, tf32)
    got = convert(values, source, target)
    assert got.dtype == target.numpy
    scalar = float if source.is_float else int
    for value, result in zip(values, got, strict=True):
        expected = value if source is target else scalar_cast(scalar(value), source, target)
        if target.is_integer and not source.is_float and source is not target:
            assert int(result) & (2**target.bits - 1) == expected, value
        else:
            np.testing.assert_array_equal(float(result), float(expected), err_msg=repr(value))


# Expressions.

NUMBERS = [0, 1, 2, 3, 5, 7, 127]


def of_types(ops: Iterable[str]) -> list[tuple[str, DType]]:
    """Operators, each on the types that it is for."""
    return [(op, t) for op in ops for t in dtypes.COMPUTED if t.kind in operators.KINDS[op]]


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, t) for op, t in of_types(operators.BINARY) if t is not boolean], ids=str
)
def test_binary_agrees_with_folding(op: str, dtype: DType) -> None:
    numbers = NUMBERS if dtype.kind == "uint" else NUMBERS + [-n for n in NUMBERS]
    if dtype.is_integer:
        ends = (dtype.lowest, dtype.highest, dtype.highest // 3)
        numbers = [*numbers, *(int(n) for n in ends)]
    result = np.array(numbers, dtype.numpy)
    with np.errstate(all="ignore"):
        got = binary_values(op, dtype, *(x.ravel() for x in np.meshgrid(result, result)))
    pairs = [(x, y) for y in numbers for x in numbers]
    assert len(pairs) > 9
    for (x, y), value in zip(pairs, got, strict=True):
        folded = ir.binary(op, ir.const(x, dtype), ir.const(y, dtype))
        assert isinstance(folded, ir.Const)
        np.testing.assert_array_equal(float(value), float(folded.value), err_msg=f"{x}, {y}")


@pytest.mark.parametrize(("op", "dtype"), of_types(operators.UNARY), ids=str)
def test_unary_agrees_with_folding(op: str, dtype: DType) -> None:
    numbers = np.array([0.5, 1, 2, 2.5, 7] if dtype.is_float else [0, 1, 5, 127, 128, -1, 2**62])
    values = convert(numbers, f64 if dtype.is_float else s64, dtype)
    with np.errstate(all="ignore"):
        got = unary_values(op, dtype, values)
    assert got.size == numbers.size
    for x, value in zip(values.tolist(), got, strict=True):
        folded = ir.unary(op, ir.const(x, dtype))
        assert isinstance(folded, ir.Const)
        np.testing.assert_array_equal(float(value), float(folded.value))


def test_minimum_keeps_nan() -> None:
    a = np.array([np.nan, 1, 2], np.float32)
    b = np.array([1, np.nan, 3], np.float32)
    np.testing.assert_array_equal(binary_values("min", f32, a, b), [np.nan, np.nan, 2])
    np.testing.assert_array_equal(binary_values("max", f32, a, b), [np.nan, np.nan, 3])


def test_of_the_zeros_the_negative_one_is_less() -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    for op, sign in (("min", True), ("max", False)):
        for pair in (zeros, zeros[::-1]):
            got = binary_values(op, f32, pair, pair[::-1])
            np.testing.assert_array_equal(np.signbit(got), [sign, sign])


@pytest.mark.parametrize(
    "source", [t for t in dtypes.COMPUTED if t not in (tf32, boolean)], ids=str
)
def test_bits_go_through_a_bit_cast(source: DType) -> None:
    others = [t for t in dtypes.COMPUTED if t.bits == source.bits and t is not tf32]
    assert source in others
    codes = np.random.default_rng(0).integers(0, 256, (300, source.bytes), np.uint8)
    values = codes.view(source.numpy).ravel()
    for other in others:
        back = reinterpret(reinterpret(values, source, other), other, source)
        assert back.dtype == values.dtype
        assert back.tobytes() == values.tobytes()


def test_index_arithmetic_wraps_like_s64() -> None:
    big = 2**62
    out = vector("out", 1, s64)
    value = ir.var("x") * 4 + 5
    body = Block((Let(ir.var("x"), ir.const(big)), Store(out, (ir.const(0),), value)))
    assert run(body, out)[0] == 5


def test_expression_kinds_in_lanes_and_in_serial() -> None:
    x, out = vector("x", 8), vector("out", 8)
    inside = (i >= 2) & (i < 6)
    shifted = load(x, (i - 2,), inside)
    value = ir.select(inside, shifted * 2.0, ir.cast(f32, i) + ir.unary("exp", shifted))
    values = np.arange(8, dtype=np.float32)
    expected = [1, 2, 0, 2, 4, 6, 7, 8]
    store = Store(out, (i,), value)
    np.testing.assert_array_equal(run(loop(i, 8, store), out, x=(x, values)), expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lockstep, "chunk", lambda *_: 1)
        serial = loop(i, 8, Call("prefetch", (View(x, (i + 100,)),)), store)
        np.testing.assert_array_equal(run(serial, out, x=(x, values)), expected)


def test_erf() -> None:
    x = np.linspace(-3, 3, 7)
    expected = [math.erf(v) for v in x]
    np.testing.assert_array_equal(unary_values("erf", f64, x), expected)


def test_tf32_products_round_to_ten_bits() -> None:
    a = np.array([1 + 2.0**-10], np.float32)
    assert binary_values("mul", tf32, a, a)[0] == 1 + 2.0**-9


# Statements.


def test_let_if_and_lanes() -> None:
    out = vector("out", 10, s64)
    y = ir.var("y")
    body = loop(
        i,
        10,
        Let(y, i * i),
        If(i < 4, Store(out, (i,), y), If(i < 7, Store(out, (i,), -y))),
    )
    expected = [0, 1, 4, 9, -16, -25, -36, 0, 0, 0]
    np.testing.assert_array_equal(run(body, out), expected)


def test_scalar_if_takes_one_branch() -> None:
    out = vector("out", 1, s64)
    zero = ir.const(0)
    condition = load(out, (zero,)) > 0
    bad = Store(out, (ir.const(5),), zero)
    assert run(If(condition, bad, Store(out, (zero,), ir.const(3))), out)[0] == 3
    assert run(If(condition, bad), out)[0] == 0


def test_ragged_loop_in_lanes() -> None:
    out = buffer("out", s64, (5, 5))
    body = loop(i, 5, loop(j, i + 1, Store(out, (i, j), i * 10 + j)))
    expected = np.tril(np.arange(5)[:, None] * 10 + np.arange(5))
    np.testing.assert_array_equal(run(body, out), expected)


@pytest.mark.parametrize("kind", LoopKind)
def test_every_kind_of_loop_runs(kind: LoopKind) -> None:
    out = vector("out", 6, s64)
    np.testing.assert_array_equal(run(loop(i, 6, Store(out, (i,), i), kind=kind), out), range(6))


def test_recurrence_stays_in_order() -> None:
    x, out = vector("x", 50), vector("out", 50)
    values = np.random.default_rng(0).normal(size=50).astype(np.float32)
    carry = ir.select(i > 0, load(out, (i - 1,), i > 0), 0.0)
    body = loop(i, 50, Store(out, (i,), carry + load(x, (i,))))
    expected = np.add.accumulate(values)
    np.testing.assert_array_equal(run(body, out, x=(x, values)), expected)


def test_reduction_in_loops_rounds_at_every_step() -> None:
    a, out = buffer("a", f32, (3, 40)), vector("out", 3)
    values = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    body = loop(i, 3, loop(k, 40, Store(out, (i,), load(out, (i,)) + load(a, (i, k)))))
    expected = np.add.accumulate(values, axis=1)[:, -1]
    np.testing.assert_array_equal(run(body, out, a=(a, values)), expected)


def test_allocated_memory_is_private_to_its_block() -> None:
    out = vector("out", 4, s64)
    temporary = buffer("t", s64, (2,), space=Space.PRIVATE)
    body = loop(
        i,
        4,
        Allocate(temporary),
        loop(j, 2, Store(temporary, (j,), i + j)),
        Store(out, (i,), load(temporary, (ir.const(1),)) * 2),
        kind=LoopKind.PARALLEL,
    )
    np.testing.assert_array_equal(run(body, out), [2, 4, 6, 8])


def test_unrolled_stores_share_lanes() -> None:
    out = buffer("out", s64, (2, 8))
    first, second = ir.const(0), ir.const(1)
    body = loop(
        j,
        8,
        Store(out, (first, j), j),
        Store(out, (second, j), load(out, (first, j)) + 1),
        kind=LoopKind.VECTOR,
    )
    np.testing.assert_array_equal(run(body, out), [range(8), range(1, 9)])


def test_unknown_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="does not know the function 'teleport'"):
        run(Call("teleport", ()), vector("out", 1))
    fill = Function("fill", (Parameter("place", "out"),), (), "Fills, but does not say so.")
    monkeypatch.setitem(FUNCTIONS, "fill", fill)
    out = vector("out", 1)
    with pytest.raises(UnsupportedError, match="does not know the function 'fill'"):
        run(Call("fill", (View(out, (ir.const(0),)),)), out)


# Lockstep: loops run as lanes exactly when the result is the serial one.


def sizes() -> st.SearchStrategy[int]:
    return st.integers(1, 5)


@settings(max_examples=150, deadline=None)
@given(sizes(), sizes(), *[st.integers(0, 4)] * 6, st.sampled_from([1, 2, 3, 100]))
def test_lockstep_equals_serial(
    rows: int, columns: int, a: int, b: int, c: int, d: int, e: int, part: int, modulus: int
) -> None:
    """Random affine stores and loads of one buffer, in lanes against one by one."""
    out = vector("out", 64, s64)
    target = (i * a + j * b) % modulus + part
    source = (i * c + j * d) % modulus + e
    body = loop(
        i,
        rows,
        loop(
            j,
            columns,
            Store(out, (target,), load(out, (source,)) * 3 + i * 7 + j + 1),
            If(j < part, Store(out, (target,), load(out, (target,)) + i)),
        ),
    )
    in_lanes = run(body, out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lockstep, "chunk", lambda *_: 1)
        np.testing.assert_array_equal(in_lanes, run(body, out))


@pytest.mark.parametrize("limit", [2**22, 40, 6])
def test_tiles_with_accumulators_of_their_own(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles run in lanes, each with its copy of the accumulator; reductions stay in order."""
    monkeypatch.setattr("tilewright.interpret.lockstep.POINT_LIMIT", limit)
    a, out = buffer("a", f32, (12, 30)), vector("out", 12)
    values = np.random.default_rng(0).normal(size=(12, 30)).astype(np.float32)
    accumulator = buffer("acc", f32, (4,), space=Space.PRIVATE)
    element = load(accumulator, (j,))
    body = loop(
        i,
        3,
        Allocate(accumulator),
        loop(j, 4, Store(accumulator, (j,), ir.const(0.0))),
        loop(
            k,
            30,
            loop(j, 4, Store(accumulator, (j,), element + load(a, (i * 4 + j, k)))),
        ),
        loop(j, 4, Store(out, (i * 4 + j,), element), kind=LoopKind.VECTOR),
        kind=LoopKind.PARALLEL,
    )
    expected = np.add.accumulate(values, axis=1)[:, -1]
    writes = []
    write = Memory.write
    monkeypatch.setattr(Memory, "write", lambda *args: writes.append(write(*args)))
    np.testing.assert_array_equal(run(body, out, a=(a, values)), expected)
    if limit == 2**22:
        assert len(writes) == 1 + 30 + 1  # all tiles at once


def test_chunked_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.interpret.lockstep.POINT_LIMIT", 12)
    out = buffer("out", s64, (10, 4))
    body = loop(i, 10, loop(j, 4, Store(out, (i, j), i * 4 + j)), kind=LoopKind.PARALLEL)
    np.testing.assert_array_equal(run(body, out), np.arange(40).reshape(10, 4))


def test_extents_may_depend_on_inner_loops() -> None:
    """A dim's extent depends on a loop that another dim of the same name is outside of."""
    out, scratch = buffer("out", s64, (3, 2, 10)), buffer("scratch", s64, (4,))
    point = ir.minimum(4, 10 - k * 4)
    index = (i, j // 4, k * 4 + j)
    body = loop(
        i,
        3,
        Allocate(scratch),
        loop(j, 4, Store(scratch, (j,), j + i)),
        # Here j has a constant extent, and below one that depends on k.
        loop(j, 10, Store(out, (i, ir.const(1), j), i + j)),
        loop(k, 3, loop(j, point, Store(out, index, load(scratch, (j,)) + k))),
        kind=LoopKind.PARALLEL,
    )
    first = [[i_ + p % 4 + p // 4 for p in range(10)] for i_ in range(3)]
    second = [[i_ + p for p in range(10)] for i_ in range(3)]
    np.testing.assert_array_equal(run(body, out)[:, 0], first)
    np.testing.assert_array_equal(run(body, out)[:, 1], second)


# Compute.


def compute(
    dims: dict[ir.Var, Any],
    out: View,
    body: ir.Expr,
    combiner: str | None = None,
    **operands: View,
) -> Compute:
    domain = tuple(Dim(var, ir.as_expr(extent)) for var, extent in dims.items())
    inputs = tuple(Operand(ir.var(n, v.buffer.dtype), v) for n, v in operands.items())
    return Compute.single("op", domain, out, inputs, body, combiner)


def operand(name: str, dtype: DType = f32) -> ir.Var:
    return ir.var(name, dtype)


@pytest.mark.parametrize("limit", [2**22, 30, 7])
def test_matmul_accumulates_in_float64_and_rounds_once(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computes, "POINT_LIMIT", limit)
    a, b = buffer("a", bf16, (4, 20)), buffer("b", bf16, (20, 5))
    out = buffer("out", f32, (4, 5))
    x, y = (data.reals(t.shape, bf16, seed=s) for s, t in enumerate((a, b)))
    body = ir.cast(f32, operand("x", bf16)) * ir.cast(f32, operand("y", bf16))
    op = compute(
        {i: 4, j: 5, k: 20}, View(out, (i, j)), body, "add", x=View(a, (i, k)), y=View(b, (k, j))
    )
    expected = reference.matmul(x, y).astype(np.float32)
    np.testing.assert_array_equal(run(op, out, a=(a, x), b=(b, y)), expected)


@pytest.mark.parametrize("combiner", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", [s8, u8, s32, s64], ids=str)
def test_integer_reductions_wrap(combiner: str, dtype: DType) -> None:
    x, out = buffer("x", dtype, (3, 50)), buffer("out", dtype, (3,))
    values = samples(dtype)[:150].reshape(3, 50)
    op = compute({i: 3, j: 50}, View(out, (i,)), operand("a", dtype), combiner, a=View(x, (i, j)))
    fold = {"add": sum, "mul": math.prod, "min": min, "max": max}[combiner]
    start = [] if combiner in ("add", "mul") else [0]
    total = [fold([*start, *row]) for row in values.astype(object)]
    if combiner == "mul":
        total = [0, 0, 0]  # the output starts at zero
    wrapped = np.array([t % 2**64 for t in total], np.uint64).astype(np.int64)
    expected = convert(wrapped, s64, dtype)
    np.testing.assert_array_equal(run(op, out, x=(x, values)), expected)


@pytest.mark.parametrize("combiner", ["and", "or", "add", "max", "min"])
def test_bool_reductions(combiner: str) -> None:
    x, out = buffer("x", boolean, (4, 2)), buffer("out", boolean, (4,))
    values = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.bool_)
    op = compute({i: 4, j: 2}, View(out, (i,)), operand("a", boolean), combiner, a=View(x, (i, j)))
    expected = [False] * 4 if combiner in ("and", "min") else [False, True, True, True]
    np.testing.assert_array_equal(run(op, out, x=(x, values)), expected)


def test_masks_of_operands_and_of_the_output() -> None:
    x, out = vector("x", 6), vector("out", 8)
    values = np.arange(1, 7, dtype=np.float32)
    source = View(x, (i + k - 1,), (i + k >= 1) & (i + k < 7))
    op = compute({i: 9, k: 3}, View(out, (i,), i < 7), operand("a"), "add", a=source)
    expected = [3, 6, 9, 12, 15, 11, 6, 0]
    np.testing.assert_array_equal(run(op, out, x=(x, values)), expected)


def test_output_mask_over_reduced_dims() -> None:
    out = vector("out", 3, s64)
    op = compute({i: 3, k: 4}, View(out, (i,), k < i), k + 1, "max")
    np.testing.assert_array_equal(run(op, out), [0, 1, 2])


@pytest.mark.parametrize("combiner", ["add", None])
def test_points_that_share_an_element(combiner: str | None) -> None:
    out = vector("out", 5, s64)
    op = compute({i: 8}, View(out, (i // 2,), i != 5), i, combiner)
    expected = [1, 5, 4, 13, 0] if combiner else [1, 3, 4, 7, 0]
    np.testing.assert_array_equal(run(op, out), expected)


def test_last_assignment_wins() -> None:
    out = vector("out", 2, s64)
    op = compute({i: 2, k: 5}, View(out, (i,), k < 4), i * 10 + k)
    np.testing.assert_array_equal(run(op, out), [3, 13])


def test_empty_domain_stores_nothing() -> None:
    out = vector("out", 2, s64)
    np.testing.assert_array_equal(run(compute({i: 2, k: 0}, View(out, (i,)), i + 1), out), [0, 0])


def test_tiled_compute_runs_in_lanes_with_ragged_tiles() -> None:
    x, out = vector("x", 10), vector("out", 10)
    values = np.arange(10, dtype=np.float32)
    place = i * 4 + j
    tile = compute(
        {j: ir.minimum(4, 10 - i * 4)},
        View(out, (place,)),
        operand("a") + 1.0,
        a=View(x, (place,)),
    )
    np.testing.assert_array_equal(run(loop(i, 3, tile), out, x=(x, values)), values + 1)


def test_a_combiner_must_combine() -> None:
    out = vector("out", 1, s64)
    with pytest.raises(UnsupportedError, match="'sub' of the op 'op' does not combine"):
        run(compute({i: 2}, View(out, (ir.const(0),)), i, "sub"), out)


def blocked(shape: tuple[int, ...], dim: int, size: int) -> Layout:
    """Plain dims with ``dim`` blocked by ``size`` innermost."""
    sizes = [-(-n // size) if d == dim else n for d, n in enumerate(shape)]
    blocks = [LayoutBlock(dim, size, 1)]
    stride = size
    for d in reversed(range(len(shape))):
        blocks.insert(0, LayoutBlock(d, sizes[d], stride))
        stride *= sizes[d]
    return Layout(tuple(blocks))


def convolution_kernel(dtype: DType, accumulator: DType) -> tuple[Kernel, dict[str, Any]]:
    """A strided, dilated, padded, grouped convolution with a blocked source."""
    n, g, oc, ic, h, w, kh, kw = 2, 2, 3, 5, 9, 7, 3, 2
    shape = (n, g * ic, h, w)
    src = buffer("src", dtype, shape, blocked(shape, 1, 4))
    weights = buffer("weights", dtype, (g, oc, ic, kh, kw))
    dst = buffer("dst", accumulator, (n, g * oc, 4, 3))
    b, gg, o, c, y, x, r, s = (ir.var(v) for v in ("b", "g", "o", "c", "y", "x", "r", "s"))
    row, column = y * 2 - 1 + r * 2, x * 3 - 2 + s
    inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
    product = ir.cast(accumulator, operand("p", dtype)) * ir.cast(accumulator, operand("q", dtype))
    op = compute(
        {b: n, gg: g, o: oc, y: 4, x: 3, c: ic, r: kh, s: kw},
        View(dst, (b, gg * oc + o, y, x)),
        product,
        "add",
        p=View(src, (b, gg * ic + c, row, column), inside),
        q=View(weights, (gg, o, c, r, s)),
    )
    params = (Param(src, "in"), Param(weights, "in"), Param(dst, "inout"))
    values = {
        "src": data.integers(src.shape, dtype, seed=1),
        "weights": data.integers(weights.shape, dtype, seed=2),
    }
    return Kernel("convolution", params, op), values


@pytest.mark.parametrize("limit", [2**22, 500])
@pytest.mark.parametrize(("dtype", "accumulator"), [(f32, f32), (bf16, f32), (s8, s32)])
def test_convolution(
    dtype: DType, accumulator: DType, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computes, "POINT_LIMIT", limit)
    kernel, values = convolution_kernel(dtype, accumulator)
    by_name = {p.name: p.buffer for p in kernel.params}
    arrays = {name: interpret.pack(by_name[name], array) for name, array in values.items()}
    arrays["dst"] = np.zeros(by_name["dst"].layout.extent, accumulator.numpy)
    interpret.run(kernel, arrays)
    expected = reference.convolution_forward(
        values["src"],
        values["weights"],
        stride=(2, 3),
        dilation=(1, 0),
        left=(1, 2),
        right=(1, 0),
        groups=2,
    )
    np.testing.assert_array_equal(interpret.unpack(by_name["dst"], arrays["dst"]), expected)


# Memory.


def test_pack_follows_the_layout_and_zeroes_padding() -> None:
    shape = (2, 5, 3)
    # Two levels of blocks of dim 1, as in ABc2b4b... with an offset and a gap.
    layout = Layout(
        (
            LayoutBlock(0, 2, 40),
            LayoutBlock(1, 1, 30),
            LayoutBlock(2, 3, 10),
            LayoutBlock(1, 2, 4),
            LayoutBlock(1, 4, 1),
        ),
        3,
    )
    buf = Buffer("x", s32, shape, layout)
    array = np.arange(1, 31, dtype=np.int32).reshape(shape)
    flat = interpret.pack(buf, array)
    assert flat.shape == (layout.extent,)
    for place in np.ndindex(shape):
        offset = layout.offset_of(tuple(ir.const(int(p)) for p in place))
        assert isinstance(offset, ir.Const)
        assert flat[int(offset.value)] == array[place]
    assert np.count_nonzero(flat) == array.size
    np.testing.assert_array_equal(interpret.unpack(buf, flat), array)


def test_access_follows_the_layout() -> None:
    shape = (3, 10)
    out = buffer("out", s64, shape, blocked(shape, 1, 4))
    body = loop(i, 3, loop(j, 10, Store(out, (i, j), i * 10 + j)))
    np.testing.assert_array_equal(run(body, out), np.arange(30).reshape(shape))


def test_empty_buffers() -> None:
    empty = buffer("x", f32, (2, 0))
    flat = interpret.pack(empty, np.zeros((2, 0), np.float32))
    assert interpret.unpack(empty, flat).shape == (2, 0)
    with pytest.raises(ArgumentError, match=r"has the shape \[2, 0\], the array \[2\]"):
        interpret.pack(empty, np.zeros(2))


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (None, "it is missing"),
        (np.zeros(3, np.float32), "but needs 4 elements in 1-D"),
        (np.zeros((2, 2), np.float32), "but needs 4 elements in 1-D"),
        (np.zeros(4), "it has the type float64, but needs float32"),
    ],
)
def test_arguments_must_fit(array: Any, text: str) -> None:
    kernel = Kernel("test", (Param(vector("x", 4), "in"),), Block(()))
    with pytest.raises(ArgumentError) as caught:
        interpret.run(kernel, {} if array is None else {"x": array})
    assert text in str(caught.value)


def test_outputs_must_be_writable() -> None:
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    with pytest.raises(ArgumentError, match="it is read-only"):
        interpret.run(Kernel("test", (Param(vector("x", 4), "out"),), Block(())), {"x": array})


# Faults.


def test_store_out_of_bounds_names_everything() -> None:
    x = buffer("x", f32, (4, 6))
    body = loop(i, 4, loop(j, 7, Store(x, (i, j), ir.cast(f32, i))))
    text = faults(body, Param(x, "inout"))
    assert "out of bounds: x[0, 6], where dim 1 holds 0 to 5" in text
    assert "x[i, j] = " in text
    assert "i=0, j=6" in text
    assert "cure: mask the access" in text


def test_load_out_of_bounds_in_serial() -> None:
    x = vector("x", 4, s64)
    index = load(x, (ir.const(0),)) - 1
    text = faults(Store(x, (ir.const(0),), load(x, (index,))), Param(x, "inout"))
    assert "out of bounds: x[-1], where dim 0 holds 0 to 3" in text


def test_padding_is_within_bounds() -> None:
    shape = (2, 5)
    x = buffer("x", f32, shape, blocked(shape, 1, 4))
    body = loop(j, 8, Store(x, (ir.const(1), j), ir.const(1.0)))
    interpret.run(
        Kernel("test", (Param(x, "out"),), body), {"x": np.zeros(x.layout.extent, np.float32)}
    )
    text = faults(loop(j, 9, Store(x, (ir.const(1), j), ir.const(1.0))), Param(x, "out"))
    assert "out of bounds: x[1, 8], where dim 1 holds 0 to 7" in text


def test_compute_out_of_bounds_names_the_point() -> None:
    x, out = vector("x", 4), vector("out", 4)
    op = compute({i: 3, k: 3}, View(out, (i,)), operand("a"), "add", a=View(x, (i + k,)))
    text = faults(loop(j, 2, op), Param(x, "in"), Param(out, "inout"))
    assert "out of bounds: x[4], where dim 0 holds 0 to 3" in text
    assert "i=2, k=2" in text
    assert "compute op" in text


def test_masked_lanes_touch_nothing() -> None:
    out = vector("out", 4, s64)
    body = loop(i, 6, If(i < 4, Store(out, (i,), load(out, (i,)) + i)))
    np.testing.assert_array_equal(run(body, out), range(4))


def test_uninitialized_read() -> None:
    out, temporary = vector("out", 4), vector("t", 4)
    body = Block(
        (
            Allocate(temporary),
            loop(i, 3, Store(temporary, (i,), ir.const(1.0))),
            loop(i, 4, Store(out, (i,), load(temporary, (i,)))),
        )
    )
    text = faults(body, Param(out, "out"))
    assert "uninitialized read of 't': nothing was stored at offset 3" in text
    assert "i=3" in text


def test_memory_is_fresh_in_each_iteration() -> None:
    out, temporary = vector("out", 4), vector("t", 1)
    zero = ir.const(0)
    first = If(i < 1, Store(temporary, (zero,), ir.const(1.0)))
    body = loop(i, 4, Allocate(temporary), first, Store(out, (i,), load(temporary, (zero,))))
    assert "i=1" in faults(body, Param(out, "out"))


def test_accumulating_in_a_fresh_output() -> None:
    out = vector("out", 4, s64)
    op = compute({i: 4, k: 2}, View(out, (i,)), k, "add")
    assert "uninitialized read of 'out'" in faults(op, Param(out, "out"))


def test_store_to_an_input() -> None:
    x = vector("x", 4, s64)
    text = faults(loop(i, 4, Store(x, (i,), i)), Param(x, "in"))
    assert "store to 'x', which is an input" in text
    assert "declare the parameter as 'inout'" in text


def test_buffer_without_memory() -> None:
    x, out = vector("x", 4), vector("out", 4)
    text = faults(Store(out, (ir.const(0),), load(x, (ir.const(0),))), Param(out, "out"))
    assert "'x' has no memory here" in text


def test_undefined_variable() -> None:
    out = vector("out", 4, s64)
    text = faults(Store(out, (ir.const(0),), ir.var("q") + 1), Param(out, "out"))
    assert "the variable 'q' (s64) has no value here" in text


def test_race_of_two_writes() -> None:
    out = vector("out", 4, s64)
    body = loop(i, 4, Store(out, (i // 2,), i), kind=LoopKind.PARALLEL)
    text = faults(body, Param(out, "out"))
    assert "data race on 'out': iteration i=0 writes the element at offset 0" in text
    assert "iteration i=1 writes it" in text
    assert "the parallel loop over 'i'" in text
    run(loop(i, 4, Store(out, (i // 2,), i)), out)  # a serial loop may


def test_race_between_lanes_of_a_vector() -> None:
    out = vector("out", 2, s64)
    index = (i // 2,)
    adds = Store(out, index, load(out, index) + i)
    text = faults(loop(i, 4, adds, kind=LoopKind.VECTOR), Param(out, "inout"))
    assert "data race on 'out'" in text and "the vector loop over 'i'" in text
    own = Store(out, (i,), load(out, (i,)) + i)
    assert run(loop(i, 2, own, kind=LoopKind.VECTOR), out).tolist() == [0, 1]


def test_race_of_a_read_after_a_write() -> None:
    out = vector("out", 5, s64)
    body = loop(i, 4, Store(out, (i + 1,), load(out, (i,))), kind=LoopKind.PARALLEL)
    text = faults(body, Param(out, "inout"))
    assert "iteration i=0 writes the element at offset 1 and iteration i=1 reads it" in text


def test_race_of_a_write_after_a_read() -> None:
    out = vector("out", 5, s64)
    body = loop(i, 4, Store(out, (i,), load(out, (i + 1,))), kind=LoopKind.PARALLEL)
    text = faults(body, Param(out, "inout"))
    assert "iteration i=0 reads the element at offset 1 and iteration i=1 writes it" in text


def test_race_with_the_first_of_several_readers() -> None:
    out = vector("out", 4, s64)
    last = load(out, (ir.const(3),))
    body = loop(i, 4, Store(out, (i,), last + i), kind=LoopKind.PARALLEL)
    text = faults(body, Param(out, "inout"))
    assert "iteration i=0 reads the element at offset 3 and iteration i=3 writes it" in text


def test_race_on_a_reduction() -> None:
    x, out = vector("x", 8), vector("out", 1)
    zero = ir.const(0)
    op = compute({j: 2}, View(out, (zero,)), operand("a"), "add", a=View(x, (k * 2 + j,)))
    text = faults(loop(k, 4, op, kind=LoopKind.PARALLEL), Param(x, "in"), Param(out, "inout"))
    assert "data race on 'out': iteration k=0 writes" in text


def test_race_between_chunks_of_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.interpret.lockstep.POINT_LIMIT", 4)
    out = vector("out", 8, s64)
    body = loop(i, 8, Store(out, (i % 4,), i), kind=LoopKind.PARALLEL)
    text = faults(body, Param(out, "out"))
    assert "iteration i=0 writes the element at offset 0 and iteration i=4 writes it" in text


def test_race_on_memory_shared_by_iterations() -> None:
    out, temporary = vector("out", 4, s64), vector("t", 1, s64)
    zero = ir.const(0)
    body = Block(
        (
            Allocate(temporary),
            loop(
                i,
                4,
                Store(temporary, (zero,), i),
                Store(out, (i,), load(temporary, (zero,))),
                kind=LoopKind.PARALLEL,
            ),
        )
    )
    assert "data race on 't'" in faults(body, Param(out, "out"))


def test_no_race_between_runs_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lockstep, "chunk", lambda *_: 1)
    out = vector("out", 4, s64)
    accumulate = Store(out, (i,), load(out, (i,)) + 1)
    shifted = Store(out, (3 - i,), load(out, (3 - i,)) + 1)
    body = loop(
        k,
        3,
        loop(i, 4, accumulate, kind=LoopKind.PARALLEL),
        loop(i, 4, shifted, kind=LoopKind.PARALLEL),
    )
    np.testing.assert_array_equal(run(body, out), [6] * 4)


def test_nested_parallel_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lockstep, "chunk", lambda *_: 1)
    out = buffer("out", s64, (3, 4))

    def body(index: ir.Expr) -> Stmt:
        store = Store(out, (index, j), load(out, (index, j)) + i)
        inner = loop(j, 4, store, kind=LoopKind.PARALLEL)
        return loop(i, 3, loop(k, 2, inner), kind=LoopKind.PARALLEL)

    np.testing.assert_array_equal(run(body(i), out), [[0] * 4, [2] * 4, [4] * 4])
    assert "data race on 'out': iteration i=0" in faults(body(i // 2), Param(out, "inout"))


def test_point_limit_bounds_lanes() -> None:
    assert lanes.POINT_LIMIT == 2**22
    assert row_major((2, 3)).extent == 6


def test_places_far_outside_are_faults() -> None:
    kernel = parse_kernel("""
kernel far(in a: f32[4, 4], out c: f32[4, 4]):
  for i in 4:
    for j in 4:
      c[4611686018427387904, j] = a[i, j]
""")
    arrays = {"a": np.zeros(16, np.float32), "c": np.zeros(16, np.float32)}
    with pytest.raises(InterpreterFault, match="out of bounds"):
        interpret.run(kernel, arrays)

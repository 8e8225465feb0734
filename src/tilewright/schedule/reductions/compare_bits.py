"""The greatest and the least of floats, found by comparing their bits as integers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.dtypes import DType, s8, s16, s32, s64, tf32, u8, u16, u32, u64
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.computes import mentioned
from tilewright.ir.expr import Cast, Const, Expr, Var, bitcast, cast, const, select, var
from tilewright.ir.stmt import Allocate, Compute, Dim, Kernel, Operand, Result, Stmt, View
from tilewright.schedule.queries.place import computes_named, expanded, fresh, taken_names
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform

_SIGNED = {dtype.bits: dtype for dtype in (s8, s16, s32, s64)}
_UNSIGNED = {dtype.bits: dtype for dtype in (u8, u16, u32, u64)}


@transform
@asks(compute=a_plain_compute)
def compare_bits(kernel: Kernel, compute: str) -> Kernel:
    """Finds the greatest (or least) of floats by three extremes of their bits.

        compute main(i in 8, k in 512): y[i] max= x    (x = src[i, k])
    ->  compare_bits("main")
        alloc main_signed: s32[8] private
        alloc main_least: u32[8] private
        alloc main_most: u32[8] private
        compute main_bits(i in 8):
          main_signed[i] = s32(-2147483648)
          main_least[i] = u32(4286578688)
          main_most[i] = u32(0)
        compute main(i in 8, k in 512):
          main_signed[i] max= bitcast(s32, x)
          main_least[i] min= bitcast(u32, x)
          main_most[i] max= bitcast(u32, x)
        compute main_value(i in 8):
          y[i] max= bitcast(f32, select(most > u32(4286578688), most,
                                        select(signed >= s32(0), u32(signed), least)))

    A maximum of floats looks for NaN and has -0.0 below 0.0, which takes processors five
    instructions; one of integers takes them one. Of positive floats, the bits are in order as
    integers, and NaN is above them; of negative ones in the reverse order, as unsigned ones above
    the positive. So the greatest as a signed integer is it if a value is positive, the least as an
    unsigned one if none is, and the greatest as an unsigned one is beyond infinity if a negative
    NaN is among them. What is only converted to a wider float is compared as it was before.
    """
    for stmt, place in computes_named(kernel, compute):
        _check(stmt, place.facts)
    names = frozenset(taken_names(kernel))
    return expanded(
        kernel, compute, lambda member, place: _Bits.of(member, place.facts, names).stmts()
    )


def _check(compute: Compute, facts: Facts) -> None:

    dtype = compute.out.buffer.dtype
    if compute.combiner not in ("max", "min") or not dtype.is_float:
        raise refusal(
            f"'{compute.name}' finds no maximum or minimum of floats",
            compute,
            "choose a compute with `max=` or `min=` of floats",
            why="other values are combined by one instruction, or not by comparing them",
        )
    if dtype is tf32:
        raise refusal(
            f"{dtype} has no bits of its own",
            compute,
            "choose a compute with results of another type",
            why="it lies in memory as f32",
        )
    if compute.out.mask is not None:
        raise refusal(
            "the output is masked",
            compute,
            "choose a compute without a mask",
            why="its bits would be elsewhere",
        )
    if not all(_longest(dim, facts) for dim in _kept(compute)):
        raise refusal(
            "an extent has no greatest value",
            compute,
            "tile it first",
            why="the bits are in registers, or beside the results on a stack",
        )


def _kept(compute: Compute) -> tuple[Dim, ...]:
    """The dims that the result has."""
    used = mentioned(compute, compute.out)
    return tuple(dim for dim in compute.dims if dim.var in used)


def _longest(dim: Dim, facts: Facts) -> int:
    """How long ``dim`` may be; 0 where that is open."""
    return facts.bounds(dim.extent)[1] or 0


@dataclass(frozen=True)
class _Bits:
    compute: Compute
    value: Expr
    kept: tuple[Dim, ...]
    whole: tuple[Dim, ...]
    buffers: tuple[Buffer, Buffer, Buffer]
    taken: frozenset[str]

    @staticmethod
    def of(compute: Compute, facts: Facts, taken: frozenset[str]) -> _Bits:
        """How the bits of the compute's values are called, and of what type they are."""
        value, kept = _unwidened(compute.body), _kept(compute)
        size = tuple(_longest(dim, facts) for dim in kept)
        whole = tuple(Dim(dim.var, const(n)) for dim, n in zip(kept, size, strict=True))
        bits = value.type.bits
        signed, unsigned = _SIGNED[bits], _UNSIGNED[bits]
        named = (("signed", signed), ("least", unsigned), ("most", unsigned))
        buffers = [
            buffer(f"{compute.name}_{name}", dtype, size, space=Space.PRIVATE)
            for name, dtype in named
        ]
        return _Bits(compute, value, kept, whole, (buffers[0], buffers[1], buffers[2]), taken)

    def stmts(self) -> tuple[Stmt, ...]:
        """What takes the place of the compute."""
        compute, dtype = self.compute, self.value.type
        signed, least, most = (memory.dtype for memory in self.buffers)
        # Of nothing at all, the least (or greatest) float is left.
        greatest = compute.combiner == "max"
        nothing = dtype.lowest if greatest else dtype.highest
        begin = (
            const(signed.lowest, signed),
            bitcast(least, const(nothing, dtype)),
            const(0, most),
        )
        index = tuple(dim.var for dim in self.kept)
        views = tuple(View(memory, index) for memory in self.buffers)
        values = tuple(bitcast(memory.dtype, self.value) for memory in self.buffers)
        start = tuple(Result((v,), (e,)) for v, e in zip(views, begin, strict=True))
        results = tuple(
            Result((v,), (e,), how)
            for v, e, how in zip(views, values, ("max", "min", "max"), strict=True)
        )
        names = ("signed", "least", "most")
        operands = tuple(
            Operand(var(fresh(name, self.taken), view.buffer.dtype), view)
            for name, view in zip(names, views, strict=True)
        )
        read = tuple(operand.var for operand in operands)
        expr = _greatest(dtype, *read) if greatest else _least(dtype, *read)
        return (
            *map(Allocate, self.buffers),
            Compute(f"{compute.name}_bits", self.whole, (), start),
            replace(compute, results=results),
            replace(
                compute, name=f"{compute.name}_value", dims=self.kept, operands=operands
            ).with_result(body=cast(compute.out.buffer.dtype, bitcast(dtype, expr))),
        )


def _unwidened(value: Expr) -> Expr:
    """``value`` before a conversion that keeps the order of floats and every one of them."""
    if isinstance(value, Cast) and _widens(value.a.type, value.type):
        return value.a
    return value


def _widens(source: DType, target: DType) -> bool:
    both = source.is_float and target.is_float and source is not tf32
    return both and source.bits < target.bits


def _greatest(dtype: DType, signed: Var, least: Var, most: Var) -> Expr:
    infinite = _bits(-dtype.highest, dtype)
    positive = select(signed >= const(0, signed.type), cast(most.type, signed), least)
    return select(most > infinite, most, positive)


def _least(dtype: DType, signed: Var, least: Var, most: Var) -> Expr:
    infinite = cast(signed.type, _bits(dtype.highest, dtype))
    sign = _bits(-0.0, dtype)
    return select(signed > infinite, cast(most.type, signed), select(most >= sign, most, least))


def _bits(value: float, dtype: DType) -> Const:
    expr = bitcast(_UNSIGNED[dtype.bits], const(value, dtype))
    assert isinstance(expr, Const)
    return expr

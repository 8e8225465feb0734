"""Multiply-adds: rounded once, by the machine's instruction where it has one, else by error-free
steps; or as the target is faster."""

from __future__ import annotations

from tilewright.dtypes import DType, f32, f64
from tilewright.errors import CompilationError
from tilewright.targets.llvm.arithmetic import Arithmetic
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.types import suffix
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer


def emit_fma(w: Writer, exact: bool, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``, as `Fma` says; of narrow floats that are not ``exact`` in f32. Raises
    `CompilationError` for exact f64 without an instruction."""
    dtype = a.dtype
    if not exact and dtype in (f32, f64):
        f = Arithmetic(w, dtype, a.lanes)
        return f.value(f.fma(a.text, b.text, c.text))
    if not exact:
        wide = (emit_cast(w, value, f32) for value in (a, b, c))
        return emit_cast(w, emit_fma(w, exact, *wide), dtype)
    if dtype in w.dialect.fuses:
        name = f"llvm.fma.{suffix(dtype, a.lanes)}"
        operands = f"{a.typed}, {b.typed}, {c.typed}"
        return Value(w.call(a.type, name, operands, ", ".join([a.type] * 3)), dtype, a.lanes)
    if dtype is f64:
        raise CompilationError(
            "this target has no fma of f64",
            why="a product of two f64 has more digits than any of its types",
            cure="write a * b + c, which rounds twice, or compile for a machine with FMA",
        )
    return _in_f64(w, dtype, *(emit_cast(w, value, f64) for value in (a, b, c)))


def _in_f64(w: Writer, dtype: DType, a: Value, b: Value, c: Value) -> Value:
    """In f64 products of narrower floats are exact; the sum, rounded to odd, knows what it lost
    (see `casts`)."""
    d = Arithmetic(w, f64, a.lanes)
    product = d.mul(a.text, b.text)
    total, lost = d.exact_sum(product, c.text)
    code = d.bits(total)
    even = d.compare_bits("eq", d.op("and", code, 1), 0)
    grows = d.compare_bits("eq", d.op("lshr", d.op("xor", code, d.bits(lost)), 63), 0)
    odd = d.select_bits(grows, d.op("add", code, 1), d.op("sub", code, 1))
    moved = d.select_bits(even, odd, code)
    result = d.floats(d.select_bits(d.compare("one", lost, 0.0), moved, code))
    return emit_cast(w, d.value(result), dtype)

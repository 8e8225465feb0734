"""Functions of floats: an instruction if there is one, else our code.

Functions of f32 and f64 are computed on all lanes at once (`exponentials`, `logarithms`, `powers`,
`trigonometry`), those of narrower floats in f32 and then rounded.
"""

from __future__ import annotations

from tilewright.dtypes import bf16, f32, f64
from tilewright.errors import CompilationError
from tilewright.ir.expr import Unary
from tilewright.targets.llvm import exponentials, logarithms, powers
from tilewright.targets.llvm.arithmetic import Arithmetic
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.remainders import emit_fmod
from tilewright.targets.llvm.trigonometry import emit_sine
from tilewright.targets.llvm.types import constant, splat, suffix
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

_INTRINSICS = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round": "rint",
}
_VECTOR = {
    "exp": exponentials.exp,
    "exp2": exponentials.exp2,
    "tanh": exponentials.tanh,
    "erf": exponentials.erf,
    "log": logarithms.log,
    "log1p": logarithms.log1p,
}


# For what is rounded to bf16 next.
_LESS_EXACT = {"exp": exponentials.exp_for_bf16}


def has_less_exact(expr: Unary) -> bool:
    """Whether there is `emit_less_exact` of it."""
    return expr.type is f32 and expr.op in _LESS_EXACT


def emit_less_exact(w: Writer, name: str, argument: Value) -> Value:
    """``name`` of f32 as bf16, as exact as that needs."""
    f = Arithmetic(w, f32, argument.lanes)
    return emit_cast(w, f.value(_LESS_EXACT[name](f, argument.text)), bf16)


def emit_function(w: Writer, name: str, arguments: tuple[Value, ...]) -> Value:
    """``name`` (a key of `ir.operators.UNARY`, ``pow`` or ``fmod``) of values of one type."""
    first = arguments[0]
    dtype, lanes = first.dtype, first.lanes
    if dtype not in (f32, f64):
        wide = tuple(emit_cast(w, a, f32) for a in arguments)
        return emit_cast(w, emit_function(w, name, wide), dtype)
    if name in _INTRINSICS:
        function = f"llvm.{_INTRINSICS[name]}.{suffix(dtype, lanes)}"
        return Value(w.call(first.type, function, first.typed, first.type), dtype, lanes)
    if name == "rsqrt":
        root = emit_function(w, "sqrt", arguments)
        one = splat(constant(1.0, dtype), dtype, lanes)
        return Value(w.assign(f"fdiv {root.type} {one}, {root.text}"), dtype, lanes)
    if name == "fmod":
        return emit_fmod(w, *arguments)
    if name in ("sin", "cos"):
        return emit_sine(w, name, first)
    f = Arithmetic(w, dtype, lanes)
    if name == "pow":
        return f.value(powers.power(f, first.text, arguments[1].text))
    if name not in _VECTOR:
        raise CompilationError(f"no code for the function {name!r}")
    return f.value(_VECTOR[name](f, first.text))

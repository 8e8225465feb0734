"""Functions of floats: an instruction where there is one, otherwise the C library lane by lane."""

from __future__ import annotations

from tilewright.dtypes import f32, f64
from tilewright.errors import CompilationError
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.types import constant, llvm_type, scalar_type, splat, suffix
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

_INTRINSICS = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round": "rint",
}
_LIBRARY = {
    "exp": "exp",
    "exp2": "exp2",
    "log": "log",
    "log1p": "log1p",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
    "erf": "erf",
    "pow": "pow",
}


def emit_function(w: Writer, name: str, arguments: tuple[Value, ...]) -> Value:
    """``name`` (a key of `ir.expr.UNARY`, or ``pow``) of values of one type."""
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
    if name in _LIBRARY:
        return _by_lanes(w, _LIBRARY[name] + ("f" if dtype is f32 else ""), arguments)
    raise CompilationError(f"no code for the function {name!r}")


def _by_lanes(w: Writer, function: str, arguments: tuple[Value, ...]) -> Value:
    first = arguments[0]
    scalar = scalar_type(first.dtype)
    types = ", ".join([scalar] * len(arguments))
    if first.lanes == 1:
        text = ", ".join(a.typed for a in arguments)
        return Value(w.call(scalar, function, text, types), first.dtype)
    type_ = llvm_type(first.dtype, first.lanes)
    result = "poison"
    for lane in range(first.lanes):
        parts = [w.assign(f"extractelement {a.typed}, i64 {lane}") for a in arguments]
        text = ", ".join(f"{scalar} {part}" for part in parts)
        one = w.call(scalar, function, text, types)
        result = w.assign(f"insertelement {type_} {result}, {scalar} {one}, i64 {lane}")
    return Value(result, first.dtype, first.lanes)

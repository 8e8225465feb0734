"""Values of expressions, for all lanes of a frame at once.

Every operation rounds to its type: narrow floats compute in f32, functions such as ``exp`` in f64,
so that the interpreter and constant folding agree. Indices (s64) of a serial program stay Python
ints, which is several times faster than numpy's scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tilewright.conversions import convert, reinterpret
from tilewright.dtypes import DType, boolean, f32, f64, s64
from tilewright.errors import InterpreterFault
from tilewright.interpret.findings import FaultKind
from tilewright.interpret.lanes import (
    Frame,
    Identity,
    Site,
    anywhere,
    both,
    fault,
    first_lane,
)
from tilewright.interpret.memory import Memory
from tilewright.ir.arguments import scalar_arguments
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Bitcast, Cast, Const, Expr, Fma, Select, Unary, Var
from tilewright.ir.load import Load
from tilewright.ir.operators import BINARY, FLOAT_FUNCTIONS, UNARY, fused
from tilewright.ir.stmt import Kernel, Stmt
from tilewright.ir.visit import children, postorder

_TAKES_A: dict[str, Callable[[Any, Any], Any]] = {"min": np.less, "max": np.greater}
_NUMPY_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,  # gives 0 for a zero divisor, as the IR has it
    "mod": np.remainder,
    # Amounts are unsigned. By the type's width or more: no bit is left.
    "shl": np.left_shift,
    "shr": np.right_shift,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_NUMPY_IN_F64: dict[str, Callable[[Any, Any], Any]] = {"pow": np.power, "fmod": np.fmod}


def binary_values(op: str, type: DType, a: Any, b: Any) -> Any:
    """``a op b``, both of ``type``, rounded to the type of the result."""
    if isinstance(a, int) and isinstance(b, int):
        return _python_value(BINARY[op](a, b, type.bits), type)
    if op in _TAKES_A:
        return _extreme(op, type, a, b)
    if op == "mulhi":
        return _multiply_high(np.asarray(a, type.numpy), np.asarray(b, type.numpy))
    if op in _NUMPY_IN_F64:
        result = _NUMPY_IN_F64[op](convert(a, type, f64), convert(b, type, f64))
        return convert(result, f64, type)
    result = _NUMPY_BINARY[op](_widen(a, type), _widen(b, type))
    return result if result.dtype == np.bool_ else _narrow(result, type)


def unary_values(op: str, type: DType, a: Any) -> Any:
    """``op(a)``, rounded to ``type``."""
    if isinstance(a, int):
        return _python_value(UNARY[op](a, type.bits), type)
    if op == "not":
        return np.invert(a)
    if op in ("clz", "popcount"):
        return _COUNTS[op](np.asarray(a, type.numpy))
    if op in ("neg", "abs"):
        return np.negative(a) if op == "neg" else np.abs(a)
    return convert(FLOAT_FUNCTIONS[op](convert(a, type, f64)), f64, type)


def fma_values(type: DType, a: Any, b: Any, c: Any, exact: bool = True) -> Any:
    """``a * b + c`` of ``type``, computed exactly and rounded once; or rounded twice."""
    if not exact:
        return binary_values("add", type, binary_values("mul", type, a, b), c)
    wide = (convert(argument, type, f64) for argument in (a, b, c))
    result = _fused(*wide, type.bits)
    return convert(np.asarray(result, np.float64), f64, type)


_fused = np.frompyfunc(lambda a, b, c, bits: fused(float(a), float(b), float(c), bits), 4, 1)


def _extreme(op: str, type: DType, a: Any, b: Any) -> Any:
    """The lesser or greater; NaN where one of them is; of the zeros, -0.0 is the lesser."""
    if not type.is_float:
        return np.where(_TAKES_A[op](a, b), a, b)
    wide_a, wide_b = _widen(a, type), _widen(b, type)
    # A NaN in a stays; one in b compares false and is taken.
    takes_a = _TAKES_A[op](wide_a, wide_b) | (wide_a != wide_a)
    takes_a |= (wide_a == wide_b) & (np.signbit(wide_a) == (op == "min"))
    return np.where(takes_a, a, b)


def _multiply_high(a: Any, b: Any) -> Any:
    """The upper half of a product of twice as many bits."""
    bits, type_ = a.dtype.itemsize * 8, a.dtype
    if bits < 64:
        wide = np.int64 if type_.kind == "i" else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(type_)
    x, y = a.view(np.uint64), b.view(np.uint64)
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    x_high, x_low, y_high, y_low = x >> half, x & low, y >> half, y & low
    middle = x_high * y_low + ((x_low * y_low) >> half)
    carried = (middle & low) + x_low * y_high
    result = x_high * y_high + (middle >> half) + (carried >> half)
    if type_.kind == "i":
        # A negative factor counted as 2**64 more.
        result = result - np.where(a < 0, y, 0) - np.where(b < 0, x, 0)
    return result.view(type_)


def _unsigned(a: Any) -> Any:
    return a.view(f"u{a.dtype.itemsize}")


def _leading_zeros(a: Any) -> Any:
    bits = _unsigned(a)
    width = a.dtype.itemsize * 8
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < width:
            bits = bits | (bits >> bits.dtype.type(shift))
    return (width - np.bitwise_count(bits)).astype(a.dtype)


_COUNTS: dict[str, Callable[[Any], Any]] = {
    "clz": _leading_zeros,
    "popcount": lambda a: np.bitwise_count(_unsigned(a)).astype(a.dtype),
}


def _widen(a: Any, type: DType) -> Any:
    """The operand to compute on: f32 for narrower floats, integers for bools."""
    if type is boolean:
        return np.asarray(a, np.int8)
    if type.is_float and type is not f64 and type is not f32:
        return np.asarray(a).astype(np.float32)
    return a


def _narrow(result: Any, type: DType) -> Any:
    if type is boolean:
        return result != 0
    if type.is_float and type is not f64:
        return convert(result, f32, type)
    return result


def _python_value(value: Any, type: DType) -> Any:
    """A Python int wrapped to s64, or a bool."""
    if isinstance(value, bool) or type is boolean:
        return bool(value)
    if -(2**63) <= value < 2**63:
        return value
    return (value + 2**63) % 2**64 - 2**63


# Evaluates one node, by the values of all nodes before it, the lanes, and the statement.
_Operation = Callable[[list[Any], Frame, Stmt], Any]


class _Step(NamedTuple):
    """One node of an expression: its operation, and the slots that are not used after it."""

    operation: _Operation
    dead: tuple[int, ...]


def _divisions(expr: Expr) -> set[Expr]:
    """The integer divisions in ``expr`` that are evaluated unconditionally."""
    divisions: set[Expr] = set()
    stack = [expr]
    while stack:
        match stack.pop():
            case Select(condition=condition):
                stack.append(condition)
            case Load(mask=None) as node:
                stack += node.index
            case Load():
                pass
            case Binary(op="and" | "or", a=first) as node if node.type is boolean:
                stack.append(first)
            case node:
                if isinstance(node, Binary) and node.op in ("floordiv", "mod"):
                    divisions.add(node)
                stack += children(node)
    return divisions


def _by_zero(bad: Any, site: Site) -> InterpreterFault:
    return fault(
        "division by zero",
        site,
        first_lane(np.broadcast_to(bad, site.frame.shape)),
        why="of integers it has no result; here it gives 0, on other machines the program may end",
        cure="divide where the divisor is not 0 only",
    )


def _binary(node: Binary, first: int, second: int) -> _Operation:
    op, type_ = node.op, node.a.type
    logic = type_ is boolean and op in ("and", "or", "xor")
    exact = (type_.is_integer and type_ is not boolean) or type_ is f32 or type_ is f64
    plain = _NUMPY_BINARY.get(op) if logic or exact else None
    if plain is None:
        return lambda slots, frame, stmt: binary_values(op, type_, slots[first], slots[second])
    function = plain

    def run(slots: list[Any], frame: Frame, stmt: Stmt) -> Any:
        # As `binary_values`, for types in which numpy computes as the IR does.
        a, b = slots[first], slots[second]
        if isinstance(a, int) and isinstance(b, int):
            return _python_value(BINARY[op](a, b, type_.bits), type_)
        return function(a, b)

    return run


def _select(condition: int, then: int, otherwise: int) -> _Operation:
    def run(slots: list[Any], frame: Frame, stmt: Stmt) -> Any:
        chosen = slots[condition]
        if isinstance(chosen, np.ndarray) and chosen.ndim:
            return np.where(chosen, slots[then], slots[otherwise])
        return slots[then if chosen else otherwise]

    return run


class Evaluator:
    """Evaluates expressions, which it translates to steps once."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._programs: dict[Expr, list[_Step]] = {}
        self._constants: dict[Expr, Any] = {}

    def evaluate(self, expr: Expr, frame: Frame, stmt: Stmt) -> Any:
        """The value of ``expr`` per lane: a scalar, or an array as `Frame` describes it."""
        if type(expr) is Var:
            return self._variable(expr, frame, stmt)
        if type(expr) is Const:
            return self._constant(expr)
        steps = self._programs.get(expr)
        if steps is None:
            steps = self._programs[expr] = self._steps(expr)
        slots: list[Any] = []
        for operation, dead in steps:
            slots.append(operation(slots, frame, stmt))
            for slot in dead:
                slots[slot] = None
        return slots[-1]

    def _steps(self, expr: Expr) -> list[_Step]:
        order = postorder(expr)
        slot = {node: position for position, node in enumerate(order)}
        watched = _divisions(expr) if self._memory.findings.divisions else ()
        last_use: dict[int, int] = {}
        for position, node in enumerate(order):
            for part in children(node):
                last_use[slot[part]] = position
        dead: dict[int, list[int]] = {}
        for used, position in last_use.items():
            dead.setdefault(position, []).append(used)
        steps = []
        for position, node in enumerate(order):
            args = [slot[part] for part in children(node)]
            operation = self._operation(node, args)
            if node in watched:
                operation = self._watched(operation, args[1])
            steps.append(_Step(operation, tuple(dead.get(position, ()))))
        return steps

    def _watched(self, operation: _Operation, divisor: int) -> _Operation:
        """``operation``, which reports zeros in the slot ``divisor``."""

        def run(slots: list[Any], frame: Frame, stmt: Stmt) -> Any:
            bad = both(frame.mask, np.equal(slots[divisor], 0))
            if anywhere(bad):
                site = Site(stmt, frame)
                self._memory.findings.report(
                    FaultKind.DIVISION, stmt, site.count(bad), lambda: _by_zero(bad, site)
                )
            return operation(slots, frame, stmt)

        return run

    def _operation(self, node: Expr, args: list[int]) -> _Operation:
        """The operation of ``node``, whose arguments are in the slots ``args``."""
        match node:
            case Var():
                return lambda slots, frame, stmt: self._variable(node, frame, stmt)
            case Const():
                value = self._constant(node)
                return lambda slots, frame, stmt: value
            case Binary():
                return _binary(node, *args)
            case Unary():
                op, type_, (a,) = node.op, node.type, args
                return lambda slots, frame, stmt: unary_values(op, type_, slots[a])
            case Select():
                return _select(*args)
            case Fma():
                kind, (x, y, z), exact = node.type, args, node.exact
                return lambda slots, frame, stmt: fma_values(
                    kind, slots[x], slots[y], slots[z], exact
                )
            case Cast():
                source, target, (a,) = node.a.type, node.type, args
                return lambda slots, frame, stmt: convert(slots[a], source, target)
            case Bitcast():
                source, target, (a,) = node.a.type, node.type, args
                return lambda slots, frame, stmt: reinterpret(slots[a], source, target)
            case Load():
                return self._load(node, args)
            case _:
                raise TypeError(f"no evaluation for {type(node).__name__}")

    def _load(self, node: Load, args: list[int]) -> _Operation:
        rank, masked = len(node.index), node.mask is not None

        def run(slots: list[Any], frame: Frame, stmt: Stmt) -> Any:
            mask = slots[args[rank]] if masked else None
            index = [slots[i] for i in args[:rank]]
            return self._memory.load(node.buffer, index, mask, Site(stmt, frame))

        return run

    def _variable(self, var: Var, frame: Frame, stmt: Stmt) -> Any:
        value = frame.values.get(var)
        if value is None:
            raise fault(
                f"the variable {var.name!r} ({var.type}) has no value here",
                Site(stmt, frame),
                (),
                why="no loop, let or operand around the statement defines it",
                cure="define it in a block around the statement",
            )
        return value

    def _constant(self, node: Const) -> Any:
        if node.type is s64 or node.type is boolean:
            return node.value
        value = self._constants.get(node)
        if value is None:
            value = self._constants[node] = _number(node.value, node.type)
        return value


def scalar_values(
    kernel: Kernel, arguments: Mapping[str, Any]
) -> dict[Var | Buffer | Identity, Any]:
    """The values of the scalar parameters of ``kernel`` in ``arguments``, as a `Frame` has them.

    `ArgumentError` for one that is missing, or breaks a promise of the parameter.
    """
    numbers = scalar_arguments(kernel, arguments)
    return {param.var: _number(numbers[param.name], param.dtype) for param in kernel.scalars}


def _number(value: Any, type: DType) -> Any:
    """A Python number as a value of ``type``."""
    if type is s64 or type is boolean:
        return value
    if type.kind == "uint":
        return np.asarray(value, type.numpy)[()]
    return convert(np.asarray(value), f64 if type.is_float else s64, type)[()]

"""Expressions to LLVM values.

A value known while the text is written (a constant, an unrolled variable) stays a Python number, so
that masks and indices of unrolled code fold away. Scalars become vectors only where a vector is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from tilewright.conversions import reinterpreted, represented
from tilewright.dtypes import (
    DType,
    bf16,
    boolean,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    s16,
    s32,
    s64,
    tf32,
    u64,
)
from tilewright.errors import CompilationError
from tilewright.ir import intervals
from tilewright.ir.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Fma,
    Select,
    Unary,
    Var,
    cast,
    const,
)
from tilewright.ir.intervals import EVERYTHING, Interval
from tilewright.ir.load import Load
from tilewright.ir.operators import BINARY, COMPARISONS, UNARY
from tilewright.ir.visit import reads_memory
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.contraction import NOTHING
from tilewright.targets.llvm.fused import emit_fma
from tilewright.targets.llvm.indices import (
    as_index,
    compared_type,
    fitted,
    index_type,
    overflow_flags,
    range_of,
)
from tilewright.targets.llvm.integers import (
    emit_bits,
    emit_count,
    emit_division,
    emit_implied,
    emit_multiply_high,
    emit_shift,
)
from tilewright.targets.llvm.lane_values import lane_values_of
from tilewright.targets.llvm.math import emit_function, emit_less_exact, has_less_exact
from tilewright.targets.llvm.min_max import emit_float_min_max, emit_integer_min_max
from tilewright.targets.llvm.plan import Loads
from tilewright.targets.llvm.tables import few_bits, look_up
from tilewright.targets.llvm.types import constant, llvm_type, scalar_type, splat, suffix
from tilewright.targets.llvm.values import Number, Result, Value
from tilewright.targets.llvm.writer import Writer

# Types that are stored, but not computed with.
_NARROW = (tf32, bf16, f16, f8_e4m3, f8_e5m2)

_INDICES = frozenset({s32, s64})

LoadEmitter = Callable[[Load, Loads], Value]
Converter = Callable[[Writer, Value, DType, int], Value]

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_OVERFLOWING = ("add", "sub", "mul")
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "xor": "xor"}
_ORDERED = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}
_LOGICAL = {"and": "and", "or": "or"}
_SHIFTS = ("shl", "shr")


class Expressions:
    """Evaluates expressions at the writer's position.

    ``variables`` binds variables to numbers or values. Results are kept per scope (a basic
    block and those it dominates): `push` and `pop` delimit one.
    """

    def __init__(self, w: Writer, emit_load: LoadEmitter) -> None:
        self.w = w
        self.variables: dict[Var, Result] = {}
        self._emit_load = emit_load
        self._values: dict[Expr, Result] = {}
        # conversions of values: splats, and indices in the other width
        self._converted: dict[tuple[str, str], str] = {}
        # sizes of both at the beginning of each scope; later entries end with the scope
        self._scopes: list[tuple[int, int]] = []
        self._loads: Loads = {}
        # of the expressions that read memory, in the one that is evaluated
        self._read: dict[Expr, Result] = {}
        self._contracted = NOTHING

    def push(self) -> None:
        self._scopes.append((len(self._values), len(self._converted)))

    def pop(self) -> None:
        values, converted = self._scopes.pop()
        while len(self._values) > values:
            self._values.popitem()
        while len(self._converted) > converted:
            self._converted.popitem()

    @contextmanager
    def bound(self, variable: Var, value: Result) -> Iterator[None]:
        """``variable`` has another value in the ``with`` block; results for it are dropped."""
        before, values, read = self.variables[variable], self._values, self._read
        self.variables[variable], self._values, self._read = value, {}, {}
        yield
        self.variables[variable], self._values, self._read = before, values, read

    def evaluate(self, expr: Expr, loads: Loads, contracted: frozenset[Expr] = NOTHING) -> Result:
        """The value of ``expr``; ``loads`` has the address of every load in it. A product and the
        sum of it that are ``contracted`` may become one operation, which rounds once."""
        outer = self._loads, self._read, self._contracted
        self._loads, self._read, self._contracted = loads, {}, contracted
        try:
            return self._visit(expr)
        finally:
            self._loads, self._read, self._contracted = outer

    def value(self, result: Result, dtype: DType, lanes: int = 1) -> Value:
        """``result`` as an LLVM value of ``lanes`` lanes; an index as ``dtype``."""
        if not isinstance(result, Value):
            text = splat(constant(result, dtype), dtype, lanes)
            return Value(text, dtype, lanes, range_of(result) if dtype.is_integer else EVERYTHING)
        if dtype is not result.dtype and {dtype, result.dtype} <= _INDICES:
            result = self._convert(result, dtype, result.lanes, _resized)
        if result.lanes == lanes:
            return result
        return self._convert(result, result.dtype, lanes, _splat)

    def _convert(self, value: Value, dtype: DType, lanes: int, make: Converter) -> Value:
        """``value`` as converted by ``make``, once per scope."""
        key = (value.text, llvm_type(dtype, lanes))
        if (text := self._converted.get(key)) is not None:
            return Value(text, dtype, lanes, value.range)
        converted = make(self.w, value, dtype, lanes)
        self._converted[key] = converted.text
        return converted

    def _visit(self, expr: Expr) -> Result:
        if isinstance(expr, Const):
            constant_value: Number = expr.value
            return constant_value
        if isinstance(expr, Var):
            if expr not in self.variables:
                raise CompilationError(f"the variable {expr.name!r} is not in scope")
            return self.variables[expr]
        # What reads memory is kept within an expression: a store after it may change the value.
        values = self._read if reads_memory(expr) else self._values
        kept = values.get(expr)
        if kept is None:
            kept = values[expr] = self._compute(expr)
        return kept

    def _compute(self, expr: Expr) -> Result:
        match expr:
            case Load():
                return self._emit_load(expr, self._loads)
            case Binary():
                return self._binary(expr)
            case Unary():
                return self._unary(expr)
            case Select():
                return self._select(expr)
            case Fma():
                parts = map(self._visit, (expr.a, expr.b, expr.c))
                return emit_fma(self.w, expr.exact, *self._operands(expr.type, *parts))
            case Cast():
                if (looked_up := self._looked_up(expr)) is not None:
                    return looked_up
                if expr.type is bf16 and isinstance(expr.a, Unary) and has_less_exact(expr.a):
                    argument = self._operands(f32, self._visit(expr.a.a))
                    return emit_less_exact(self.w, expr.a.op, *argument)
                inner = self._visit(expr.a)
                if not isinstance(inner, Value):
                    folded = cast(expr.type, const(inner, expr.a.type))
                    assert isinstance(folded, Const)
                    number: Number = folded.value
                    return number
                return self._cast(inner, expr)
            case Bitcast():
                return self._bitcast(expr)
            case _:
                raise CompilationError(f"cannot lower the expression {expr!r}")

    def _looked_up(self, expr: Cast) -> Value | None:
        """``expr`` on vectors as a table in a register, if it depends on few enough bits."""
        if not self.w.dialect.permute_words:
            return None
        field = few_bits(expr, self.variables)
        number = None if field is None else self._visit(field.number)
        if field is None or not isinstance(number, Value) or number.lanes == 1:
            return None
        return look_up(self.w, field, number)

    def _cast(self, inner: Value, expr: Cast) -> Value:
        source = expr.a.type
        if expr.type is not s64 or source.is_float:
            return emit_cast(self.w, inner, expr.type)
        if source is u64:
            return emit_cast(self.w, inner, s64)
        range_ = (int(source.lowest), int(source.highest))
        converted = emit_cast(self.w, inner, index_type(self.w, range_))
        return Value(converted.text, converted.dtype, converted.lanes, range_)

    def _bitcast(self, expr: Bitcast) -> Result:
        inner, source = self._visit(expr.a), expr.a.type
        if not isinstance(inner, Value):
            number: Number = reinterpreted(inner, source, expr.type)
            if number == number:
                return number  # unless a NaN, whose bits a number does not keep
        lanes = inner.lanes if isinstance(inner, Value) else 1
        return emit_bits(self.w, self.value(inner, source, lanes), expr.type)

    def _operands(self, dtype: DType, *results: Result) -> list[Value]:
        return [self.value(result, dtype, _lanes(*results)) for result in results]

    def _binary(self, expr: Binary) -> Result:
        left = self._visit(expr.a)
        # A condition that is already decided does not evaluate the other side.
        is_condition = expr.type is boolean
        if is_condition and not isinstance(left, Value):
            if expr.op == "and":
                return self._visit(expr.b) if left else False
            if expr.op == "or":
                return True if left else self._visit(expr.b)
        right = self._visit(expr.b)
        if is_condition and not isinstance(right, Value):
            if expr.op == "and":
                return left if right else False
            if expr.op == "or":
                return True if right else left
        dtype = expr.a.type
        if not isinstance(left, Value) and not isinstance(right, Value):
            number: Number = represented(BINARY[expr.op](left, right, dtype.bits), expr.type)
            return number
        value = self._operation(expr, left, right)
        if value.lanes == 1:
            return value
        return value._replace(lane_values=lane_values_of(expr, (left, right), value.lanes))

    def _operation(self, expr: Binary, left: Result, right: Result) -> Value:
        dtype = expr.a.type
        if dtype is s64:
            return self._index(expr, left, right)
        a, b = self._operands(dtype, left, right)
        native = dtype in self.w.dialect.computes and expr.op not in ("pow", "fmod")
        if native or dtype not in _NARROW:
            return Value(self._binary_text(expr, dtype, a, b, right), expr.type, a.lanes)
        # Most processors do not compute with these; LLVM would call library functions to narrow.
        a, b = (emit_cast(self.w, value, f32) for value in (a, b))
        text = self._binary_text(expr, f32, a, b, right)
        if expr.type is boolean:
            return Value(text, boolean, a.lanes)
        return emit_cast(self.w, Value(text, f32, a.lanes), dtype)

    def _index(self, expr: Binary, left: Result, right: Result) -> Value:
        """An operation on indices, in the type that operands and result fit in."""
        ranges = [range_of(left), range_of(right)]
        if expr.op in ("add", "sub") and isinstance(left, Value) and ranges[1] == (0, 0):
            return left
        if expr.op in COMPARISONS:
            dtype = compared_type(self.w, _lanes(left, right), *ranges)
            a, b = self._operands(dtype, left, right)
            return Value(self._binary_text(expr, dtype, a, b, right), boolean, a.lanes)
        ranges.append(_result_range(expr.op, *ranges))
        dtype = index_type(self.w, *ranges)
        if expr.op == "mulhi" or (expr.op in _SHIFTS and not _is_amount(right, dtype)):
            dtype = s64  # the result depends on the width
        a, b = self._operands(dtype, left, right)
        if expr.op in _INTEGER and dtype is not s64:
            flags = overflow_flags(*ranges) if expr.op in _OVERFLOWING else ""
            text = self.w.assign(f"{_INTEGER[expr.op]} {flags}{a.typed}, {b.text}")
        else:
            text = self._binary_text(expr, dtype, a, b, right)
        return fitted(self.w, Value(text, dtype, a.lanes, ranges[-1]))

    def total(self, steps: Sequence[tuple[Value, int]]) -> Value | None:
        """The sum of indices, each times a number, in a type narrower than s64; None where it does
        not fit. Kept, because elements at equal distances share it."""
        ranges = [intervals.scale(value.range, factor) for value, factor in steps]
        sums = list(accumulate(ranges, intervals.add))
        dtype = index_type(self.w, *ranges, *sums)
        if dtype is s64:
            return None
        key = (" ".join(f"{factor}*{value.text}" for value, factor in steps), "")
        if (text := self._converted.get(key)) is not None:
            return Value(text, dtype, 1, sums[-1])
        total: Value | None = None
        for (value, factor), range_, whole in zip(steps, ranges, sums, strict=True):
            flags = overflow_flags(value.range, (factor, factor), range_)
            product = self.w.assign(f"mul {flags}{self.value(value, dtype).typed}, {factor}")
            if total is not None:
                flags = overflow_flags(total.range, range_, whole)
                product = self.w.assign(f"add {flags}{total.typed}, {product}")
            total = Value(product, dtype, 1, whole)
        assert total is not None
        self._converted[key] = total.text
        return total

    def _binary_text(self, expr: Binary, dtype: DType, a: Value, b: Value, right: Result) -> str:
        op, w = expr.op, self.w
        if op in _ORDERED:
            if dtype is boolean and op in ("lt", "le"):
                return emit_implied(w, op, a, b)
            if dtype.is_float:
                return w.assign(f"fcmp {_ORDERED[op]} {a.typed}, {b.text}")
            sign = "u" if dtype.kind in ("uint", "bool") else "s"
            how = op if op in ("eq", "ne") else sign + op
            return w.assign(f"icmp {how} {a.typed}, {b.text}")
        if op in _LOGICAL:
            return w.assign(f"{_LOGICAL[op]} {a.typed}, {b.text}")
        if op in ("min", "max"):
            if not dtype.is_float:
                return emit_integer_min_max(w, op, a, b)
            return emit_float_min_max(w, op, a, b, right)
        if op in ("pow", "fmod"):
            return emit_function(w, op, (a, b)).text
        if dtype.is_float:
            flag = "contract " if expr in self._contracted else ""
            return w.assign(f"{_FLOAT[op]} {flag}{a.typed}, {b.text}")
        if op in _INTEGER:
            return w.assign(f"{_INTEGER[op]} {a.typed}, {b.text}")
        if op in _SHIFTS:
            return emit_shift(w, op, a, b, right)
        if op == "mulhi":
            return emit_multiply_high(w, a, b)
        return emit_division(w, op, a, b, right)

    def _unary(self, expr: Unary) -> Result:
        inner = self._visit(expr.a)
        if not isinstance(inner, Value):
            number: Number = represented(UNARY[expr.op](inner, expr.type.bits), expr.type)
            return number
        w, dtype, range_ = self.w, expr.type, EVERYTHING
        if expr.op in intervals.COUNTS:
            return self._count(expr.op, self.value(inner, dtype, inner.lanes))
        if dtype is s64:
            range_ = intervals.UNARY[expr.op](inner.range)
            dtype = index_type(w, inner.range, range_)
            inner = self.value(inner, dtype, inner.lanes)
        match expr.op:
            case "neg" if dtype.is_float and scalar_type(dtype) in ("i8", "i16"):
                sign = splat(str(1 << (dtype.bits - 1)), dtype, inner.lanes)
                text = w.assign(f"xor {inner.typed}, {sign}")
            case "neg" if dtype.is_float:
                text = w.assign(f"fneg {inner.typed}")
            case "neg":
                zero = self.value(0, dtype, inner.lanes)
                text = w.assign(f"sub {zero.typed}, {inner.text}")
            case "not":
                ones = self.value(True if dtype is boolean else -1, dtype, inner.lanes)
                text = w.assign(f"xor {inner.typed}, {ones.text}")
                flags = lane_values_of(expr, (inner,), inner.lanes)
                return Value(text, dtype, inner.lanes, range_, flags)
            case "abs" if dtype.kind == "uint":
                text = inner.text
            case "abs" if not dtype.is_float:
                name = f"llvm.abs.{suffix(dtype, inner.lanes)}"
                text = w.call(inner.type, name, f"{inner.typed}, i1 false", f"{inner.type}, i1")
            case _:
                return emit_function(w, expr.op, (inner,))
        return Value(text, dtype, inner.lanes, range_)

    def _count(self, op: str, inner: Value) -> Value:
        text = emit_count(self.w, op, inner)
        if inner.dtype is not s64:
            return Value(text, inner.dtype, inner.lanes)
        range_ = intervals.COUNTS[op](inner.range, s64.bits)
        return fitted(self.w, Value(text, s64, inner.lanes, range_))

    def _select(self, expr: Select) -> Result:
        condition = self._visit(expr.condition)
        if not isinstance(condition, Value):
            return self._visit(expr.a if condition else expr.b)
        return self.chosen(condition, self._visit(expr.a), self._visit(expr.b), expr.type)

    def chosen(self, condition: Value, first: Result, second: Result, dtype: DType) -> Value:
        """``first`` where ``condition`` holds, otherwise ``second``, both of ``dtype``."""
        lanes = max(
            condition.lanes, *(r.lanes if isinstance(r, Value) else 1 for r in (first, second))
        )
        range_ = EVERYTHING
        if dtype is s64:
            range_ = intervals.union(range_of(first), range_of(second))
            dtype = index_type(self.w, range_)
        a, b = (self.value(r, dtype, lanes) for r in (first, second))
        if dtype is not f16:
            text = self.w.assign(f"select {condition.typed}, {a.typed}, {b.typed}")
            return Value(text, dtype, lanes, range_)
        # As integers: LLVM would widen and narrow 16-bit floats.
        short = llvm_type(s16, lanes)
        x, y = (self.w.assign(f"bitcast {value.typed} to {short}") for value in (a, b))
        text = self.w.assign(f"select {condition.typed}, {short} {x}, {short} {y}")
        return Value(self.w.assign(f"bitcast {short} {text} to {a.type}"), dtype, lanes)


def _lanes(*results: Result) -> int:
    """The number of lanes of an operation on ``results``."""
    return max(result.lanes if isinstance(result, Value) else 1 for result in results)


def _result_range(op: str, a: Interval, b: Interval) -> Interval:
    """The range of an operation's result; a shift to the left may drop bits."""
    if op == "mulhi":
        return EVERYTHING
    result = intervals.BINARY[op](a, b)
    if op == "shl" and not intervals.is_within(result, (int(s64.lowest), int(s64.highest))):
        return EVERYTHING
    return result


def _is_amount(right: Result, dtype: DType) -> bool:
    """Whether it is known to be less than the number of bits of ``dtype``."""
    return not isinstance(right, Value) and 0 <= right < dtype.bits


def _resized(w: Writer, value: Value, dtype: DType, lanes: int) -> Value:
    del lanes
    return as_index(w, value, dtype)


def _splat(w: Writer, value: Value, dtype: DType, lanes: int) -> Value:
    type_ = llvm_type(dtype, lanes)
    first = w.assign(f"insertelement {type_} poison, {value.typed}, i64 0")
    text = w.assign(
        f"shufflevector {type_} {first}, {type_} poison, <{lanes} x i32> zeroinitializer"
    )
    return Value(text, dtype, lanes, value.range)

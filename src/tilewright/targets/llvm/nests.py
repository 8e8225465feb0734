"""Perfect loop nests whose iterations are numbered, with the outermost loop slowest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilewright.dtypes import DType
from tilewright.errors import CompilationError
from tilewright.facts.scope import Facts
from tilewright.ir.expr import Const, Expr, const, maximum
from tilewright.ir.stmt import For, LoopKind
from tilewright.ir.visit import variables
from tilewright.simplify import simplify
from tilewright.targets.llvm.indices import fitted, range_of
from tilewright.targets.llvm.plan import ForPlan, Plan
from tilewright.targets.llvm.statements import Statements
from tilewright.targets.llvm.values import Value


def nest(plan: Plan, kinds: tuple[LoopKind, ...]) -> list[ForPlan]:
    """The nested loops of ``kinds`` that begin with ``plan``; empty if it is another statement."""
    loops: list[ForPlan] = []
    plans = [plan]
    while len(plans) == 1 and isinstance(plans[0], ForPlan) and plans[0].stmt.kind in kinds:
        loops.append(plans[0])
        plans = plans[0].body
    return loops


def extent_of(loop: ForPlan) -> int:
    """The loop's constant extent. Raises `CompilationError` if it is not constant."""
    stmt = loop.stmt
    if not isinstance(stmt.extent, Const):
        raise CompilationError(
            f"the {stmt.kind.value} loop over {stmt.var.name!r} has an extent that is not constant"
        )
    return max(int(stmt.extent.value), 0)


def iterations(loops: list[ForPlan]) -> int:
    """The number of iterations of the innermost body."""
    count = 1
    for loop in loops:
        count *= extent_of(loop)
    return count


def count_of(loops: Sequence[For], facts: Facts) -> int | Expr:
    """The number of iterations of the innermost body: a number if known now."""
    total: Expr = const(1)
    inside = {loop.var for loop in loops}
    for loop in loops:
        if not inside.isdisjoint(variables(loop.extent)):
            raise CompilationError(
                f"the extent of the {loop.kind.value} loop over {loop.var.name!r} depends on the "
                f"loops around: {loop.extent!r}",
                why="they are launched together, as one range of numbers",
                cure="take the greatest extent, and leave out iterations by an `if`",
                span=loop.span,
            )
        total = total * maximum(loop.extent, 0)
    total = simplify(total, facts)
    return int(total.value) if isinstance(total, Const) else total


def bind_digits(statements: Statements, loops: list[ForPlan], number: str, dtype: DType) -> None:
    """Binds each loop's variable to its digit of the iteration's ``number``, of type ``dtype``."""
    bind_all(statements, loops, digits_of(statements, loops, number, dtype))


def bind_all(statements: Statements, loops: list[ForPlan], digits: Iterable[int | Value]) -> None:
    """Binds the loops' variables to ``digits``."""
    for loop, value in zip(loops, digits, strict=True):
        statements.bind(loop.stmt.var, value, loop.scope)


def is_open(loops: list[ForPlan]) -> bool:
    """Whether some extent is known only at the call."""
    return not all(isinstance(loop.stmt.extent, Const) for loop in loops)


def digits_of(
    statements: Statements, loops: list[ForPlan], number: str, dtype: DType
) -> Iterable[int | Value]:
    """The value of each loop's variable at the iteration's ``number``, of type ``dtype``."""
    digits = _runtime_digits if is_open(loops) else _constant_digits
    return digits(statements, loops, number, dtype)


def _constant_digits(
    statements: Statements, loops: list[ForPlan], number: str, dtype: DType
) -> Iterator[int | Value]:
    """The digits of ``number`` for constant extents, each written when it is asked for."""
    w = statements.w
    remaining = iterations(loops)
    index = Value(number, dtype)
    if remaining > 1:
        index = fitted(w, Value(number, dtype, 1, (0, remaining - 1)))
    for position, loop in enumerate(loops):
        extent = extent_of(loop)
        remaining //= max(extent, 1)
        value: int | Value = 0
        if extent > 1:
            digit = index.text if remaining == 1 else w.assign(f"udiv {index.typed}, {remaining}")
            if position > 0:
                digit = w.assign(f"urem {index.type} {digit}, {extent}")
            value = Value(digit, index.dtype, 1, (0, extent - 1))
        yield value


def _runtime_digits(
    statements: Statements, loops: list[ForPlan], number: str, dtype: DType
) -> list[int | Value]:
    """The digits of ``number`` where some extent is known only at the call, from the fastest loop
    outwards. No extent is 0, as there is an iteration."""
    w, exprs = statements.w, statements.exprs
    quotient = Value(number, dtype, 1, (0, None))
    digits: list[int | Value] = []
    for loop in reversed(loops):
        extent = exprs.evaluate(loop.stmt.extent, loop.loads)
        most = range_of(extent)[1]
        range_ = (0, None if most is None else max(most - 1, 0))
        if loop is loops[0]:
            digits.append(fitted(w, quotient._replace(range=range_)))
        elif extent == 1:
            digits.append(0)
        else:
            divisor = exprs.value(extent, dtype).text
            digit = w.assign(f"urem {quotient.typed}, {divisor}")
            digits.append(fitted(w, Value(digit, dtype, 1, range_)))
            quotient = quotient._replace(text=w.assign(f"udiv {quotient.typed}, {divisor}"))
    return digits[::-1]

"""Perfect nests of loops whose iterations are numbered, the outermost loop slowest."""

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
    """The loops of ``kinds`` from ``plan`` on inwards; none where it is something else."""
    found: list[ForPlan] = []
    plans = [plan]
    while len(plans) == 1 and isinstance(plans[0], ForPlan) and plans[0].stmt.kind in kinds:
        found.append(plans[0])
        plans = plans[0].body
    return found


def extent_of(loop: ForPlan) -> int:
    """The extent, which is constant."""
    stmt = loop.stmt
    if not isinstance(stmt.extent, Const):
        raise CompilationError(
            f"the {stmt.kind.value} loop over {stmt.var.name!r} has an extent that is not constant"
        )
    return max(int(stmt.extent.value), 0)


def iterations(loops: list[ForPlan]) -> int:
    """How often the innermost body runs."""
    count = 1
    for loop in loops:
        count *= extent_of(loop)
    return count


def count_of(loops: Sequence[For], facts: Facts) -> int | Expr:
    """How often the innermost body runs: a number where it is known now."""
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
    """Whether some extent is known at the call only."""
    return not all(isinstance(loop.stmt.extent, Const) for loop in loops)


def digits_of(
    statements: Statements, loops: list[ForPlan], number: str, dtype: DType
) -> Iterable[int | Value]:
    """What each loop's variable is at the iteration's ``number``, of type ``dtype``."""
    known = _open_digits if is_open(loops) else _known_digits
    return known(statements, loops, number, dtype)


def _known_digits(
    statements: Statements, loops: list[ForPlan], number: str, dtype: DType
) -> Iterator[int | Value]:
    """The digits of ``number`` where all extents are known, each written when it is asked for."""
    w = statements.w
    rest = iterations(loops)
    index = Value(number, dtype)
    if rest > 1:
        index = fitted(w, Value(number, dtype, 1, (0, rest - 1)))
    for position, loop in enumerate(loops):
        extent = extent_of(loop)
        rest //= max(extent, 1)
        value: int | Value = 0
        if extent > 1:
            digit = index.text if rest == 1 else w.assign(f"udiv {index.typed}, {rest}")
            if position > 0:
                digit = w.assign(f"urem {index.type} {digit}, {extent}")
            value = Value(digit, index.dtype, 1, (0, extent - 1))
        yield value


def _open_digits(
    statements: Statements, loops: list[ForPlan], number: str, dtype: DType
) -> list[int | Value]:
    """The digits of ``number`` where some extent is known at the call: from the fastest loop
    outwards. Where there is an iteration, no extent is 0."""
    w, exprs = statements.w, statements.exprs
    rest = Value(number, dtype, 1, (0, None))
    digits: list[int | Value] = []
    for loop in reversed(loops):
        extent = exprs.evaluate(loop.stmt.extent, loop.loads)
        most = range_of(extent)[1]
        range_ = (0, None if most is None else max(most - 1, 0))
        if loop is loops[0]:
            digits.append(fitted(w, rest._replace(range=range_)))
        elif extent == 1:
            digits.append(0)
        else:
            divisor = exprs.value(extent, dtype).text
            digit = w.assign(f"urem {rest.typed}, {divisor}")
            digits.append(fitted(w, Value(digit, dtype, 1, range_)))
            rest = rest._replace(text=w.assign(f"udiv {rest.typed}, {divisor}"))
    return digits[::-1]

"""Perfect nests of loops whose iterations are numbered, the outermost loop slowest."""

from __future__ import annotations

from tilewright.dtypes import DType
from tilewright.errors import CompilationError
from tilewright.ir.expr import Const
from tilewright.ir.stmt import LoopKind
from tilewright.targets.llvm.indices import fitted
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


def bind_digits(statements: Statements, loops: list[ForPlan], number: str, dtype: DType) -> None:
    """Binds each loop's variable to its digit of the iteration's ``number``, of type ``dtype``."""
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
        statements.bind(loop.stmt.var, value, loop.scope)

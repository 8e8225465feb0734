"""Well-formedness under divergence: loops that work-items or lanes run unequally often.

Work-items meet at barriers: a loop around one runs equally often in all that meet there. The lanes
of a vector loop may leave a loop at different times, but no transform makes them do so.

A value diverges by its *sources*: the loops over lanes, work-items and workgroups on which it
depends, through lets and through memory that is allocated inside these loops. `Sources` follows the
verifier through a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.functions import FUNCTIONS, Group, Synchronize
from tilewright.ir.printer import headline, to_text
from tilewright.ir.scope import Scope
from tilewright.ir.stmt import Allocate, Call, Compute, For, If, Let, LoopKind, Stmt, While
from tilewright.ir.verify_groups import Defect
from tilewright.ir.visit import loads_in, nested, variables, walk_stmts

_APART = frozenset(
    {LoopKind.VECTOR, LoopKind.WORKGROUP, LoopKind.SUBGROUP, LoopKind.LANE, LoopKind.CLUSTER}
)
# The loops whose iterations meet at a barrier of each group. Lanes of different subgroups need not
# come to a subgroup's barrier on the same path.
_AT_BARRIER = {
    Group.SUBGROUP: frozenset({LoopKind.WORKGROUP, LoopKind.LANE}),
    Group.WORKGROUP: frozenset({LoopKind.WORKGROUP, LoopKind.SUBGROUP, LoopKind.LANE}),
    Group.CLUSTER: _APART - {LoopKind.VECTOR},
}

Loops = frozenset[For]
_NONE: Loops = frozenset()


class Sources:
    """The loops over lanes, work-items and workgroups on which values depend, at one place."""

    def __init__(self) -> None:
        self._variables: Scope[Loops] = Scope()
        self._buffers: dict[Buffer, Loops] = {}
        self._around: Loops = _NONE  # the loops around
        self._control: Loops = _NONE  # those that decide whether this place is reached

    def of(self, expr: Expr) -> Loops:
        """The loops on which the value of ``expr`` depends."""
        loops = _NONE
        if self._around:
            for variable in variables(expr):
                loops |= self._variables.get(variable.name) or _NONE
            for load in loads_in(expr):
                loops |= self._buffers.get(load.buffer, _NONE)
        return loops

    def let(self, variable: Var, value: Expr) -> None:
        """Defines ``variable`` with that value."""
        self._variables.define(variable.name, self.of(value))

    def allocate(self, buffer: Buffer) -> None:
        """Notes that each iteration of the loops around has its own ``buffer``."""
        self._buffers[buffer] = self._around

    @contextmanager
    def inside(self, stmt: For | While | If) -> Iterator[None]:
        """Moves the place inside of ``stmt``, and back at the end."""
        around, control = self._around, self._control
        self._control |= self.of(stmt.extent if isinstance(stmt, For) else stmt.condition)
        with self._variables.nested():
            if isinstance(stmt, For):
                # A loop that lanes leave at different times is no source: those inside are at
                # the same iteration.
                source: Loops = frozenset({stmt}) if stmt.kind in _APART else _NONE
                self._around |= source
                self._variables.define(stmt.var.name, source)
            yield
        self._around, self._control = around, control

    def repeats(self, stmt: For | While) -> Loops:
        """The loops on which it depends how often ``stmt`` runs. For a `While`, also those that
        decide whether it is reached: it may not end where no work-item runs it."""
        if isinstance(stmt, For):
            return self.of(stmt.extent)
        return self.of(stmt.condition) | self._control


def repetition_defect(stmt: For | While, sources: Sources) -> Defect | None:
    """The defect of a loop around a barrier whose number of iterations differs."""
    loops = sources.repeats(stmt)
    return _around_barrier(stmt, loops) if loops else None


def _leaving_defect(stmt: For | While, sources: Sources) -> Defect | None:
    """The defect of a loop whose number of iterations differs by lane of a vector loop."""
    for loop in sources.repeats(stmt):
        if loop.kind is LoopKind.VECTOR:
            return _by_lane(stmt, loop)
    return None


def extent_defect(compute: Compute, sources: Sources) -> Defect | None:
    """The defect of a structured op whose extents differ by lane of a vector loop."""
    for dim in compute.dims:
        for loop in sources.of(dim.extent):
            if loop.kind is LoopKind.VECTOR:
                return Defect(
                    f"the extent of {dim.var.name}, `{to_text(dim.extent)}`, differs by lane of "
                    f"`{headline(loop)}`",
                    "take the greatest extent, and mask what is beyond a lane's own",
                    "the lanes of a vector loop run as one",
                )
    return None


def vector_defect(loop: For) -> tuple[Stmt, Defect] | None:
    """A statement whose number of iterations differs by lane of the vector ``loop``, and why that
    is a defect."""
    inside = walk_stmts(loop.body)
    if not any(_is_open(stmt) for stmt in inside):
        return None
    return _first_leaving(loop, Sources())


def _is_open(stmt: Stmt) -> bool:
    """Whether the number of iterations of ``stmt`` is known at run time only."""
    match stmt:
        case For():
            return not isinstance(stmt.extent, Const)
        case Compute():
            return not all(isinstance(dim.extent, Const) for dim in stmt.dims)
        case _:
            return isinstance(stmt, While)


def _first_leaving(stmt: Stmt, sources: Sources) -> tuple[Stmt, Defect] | None:
    defect = None
    match stmt:
        case Let():
            sources.let(stmt.var, stmt.value)
        case Allocate():
            sources.allocate(stmt.buffer)
        case Compute():
            defect = extent_defect(stmt, sources)
        case For() | While():
            defect = _leaving_defect(stmt, sources)
        case _:
            pass
    if defect is not None:
        return stmt, defect
    if not isinstance(stmt, For | While | If):
        return next(filter(None, (_first_leaving(part, sources) for part in nested(stmt))), None)
    with sources.inside(stmt):
        return next(filter(None, (_first_leaving(part, sources) for part in nested(stmt))), None)


def _by_lane(stmt: For | While, loop: For) -> Defect:
    if isinstance(stmt, For):
        return Defect(
            f"the extent `{to_text(stmt.extent)}` differs by lane of `{headline(loop)}`",
            "take the greatest extent, and put what a lane does beyond its own into an `if`; or "
            "make the outer loop serial",
            "the lanes of a vector loop run as one",
        )
    return Defect(
        f"the condition `{to_text(stmt.condition)}` differs by lane of `{headline(loop)}`",
        "make the outer loop serial, or let all lanes go on until the last one is done, with an "
        "`if` around what each does",
        "the lanes of a vector loop run as one",
    )


def _around_barrier(stmt: For | While, loops: Loops) -> Defect | None:
    kinds = {loop.kind for loop in loops}
    for call in _calls(stmt.body):
        for effect in FUNCTIONS[call.function].effects:
            if isinstance(effect, Synchronize) and not kinds.isdisjoint(_AT_BARRIER[effect.group]):
                return Defect(
                    f"{call.function} stands in a loop whose iterations differ by work-item: "
                    f"`{headline(stmt)}`",
                    "let the number of iterations depend on what they share: a loop variable "
                    f"outside of theirs, or memory of the {effect.group.value}",
                    f"all work-items of the {effect.group.value} meet at each of its barriers",
                )
    return None


def _calls(stmt: Stmt) -> list[Call]:
    return [s for s in walk_stmts(stmt) if isinstance(s, Call) and s.function in FUNCTIONS]

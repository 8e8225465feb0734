"""Where a statement stands: what encloses it, and finding and rewriting it there.

Transforms address computes by name and loops by their variable's name. A name stands for *every*
compute or loop that bears it: the pieces that `partition` makes keep the names of what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeGuard

from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import addressing, complication
from tilewright.ir.expr import Const, Expr, Var, unary
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Stmt,
    View,
    While,
)
from tilewright.ir.visit import block, nested, rewrite_stmts, walk_stmts, with_nested
from tilewright.schedule.queries.refusal import refusal

# What one enters on the way to a statement: a condition is that of an `If`.
Step = For | While | Let | Allocate | Expr


class Place:
    """What encloses a statement, innermost last. Facts are gathered when they are asked for."""

    __slots__ = ("_facts", "_names", "entered", "outer")
    outer: Place | None
    entered: Step | None

    def __init__(self, outer: Place | None = None, entered: Step | None = None) -> None:
        self.outer = outer
        self.entered = entered
        self._facts: Facts | None = None
        self._names: frozenset[str] | None = None

    @property
    def facts(self) -> Facts:
        """What holds here: the ranges of loop variables, the values of lets, the conditions."""
        if self._facts is None:
            facts_here = self.outer.facts if self.outer is not None else Facts.empty()
            match self.entered:
                case For() as loop:
                    facts_here = facts_here.loop(loop.var, loop.extent)
                case Let() as let:
                    facts_here = facts_here.bind(let.var, let.value)
                case Expr() as condition:
                    facts_here = facts_here.assume(condition)
                case While() as loop:
                    facts_here = facts_here.assume(loop.condition)
                case _:
                    pass
            self._facts = facts_here
        return self._facts

    @property
    def names(self) -> frozenset[str]:
        """The names of the variables in scope."""
        if self._names is None:
            if self.outer is not None:
                names = self.outer.names
            else:
                names = frozenset(promise[0].name for promise in Facts.empty().promised)
            if isinstance(self.entered, For | Let):
                names |= {self.entered.var.name}
            self._names = names
        return self._names

    @property
    def steps(self) -> tuple[Step, ...]:
        """The loops, lets, allocations and conditions on the way here, outermost first."""
        steps: list[Step] = []
        place: Place | None = self
        while place is not None:
            if place.entered is not None:
                steps.append(place.entered)
            place = place.outer
        return tuple(reversed(steps))

    @property
    def loops(self) -> tuple[For, ...]:
        """The enclosing loops, outermost first."""
        return tuple(step for step in self.steps if isinstance(step, For))

    @property
    def allocated(self) -> tuple[Buffer, ...]:
        """The buffers that are allocated around here."""
        return tuple(step.buffer for step in self.steps if isinstance(step, Allocate))

    def inside(self, step: Step) -> Place:
        """The place within a loop or under a condition, or after a let or an allocation."""
        return Place(self, step)

    def within(self, stmt: Stmt) -> tuple[Place, ...]:
        """The place of each statement directly inside ``stmt`` (as `visit.nested` orders them)."""
        match stmt:
            case Block():
                return tuple(place for place, _ in self.along(stmt))
            case For() | While():
                return (self.inside(stmt),)
            case If():
                then = self.inside(stmt.condition)
                if stmt.orelse is None:
                    return (then,)
                return (then, self.inside(unary("not", stmt.condition)))
            case _:
                return ()

    def along(self, stmt: Block) -> Iterator[tuple[Place, Stmt]]:
        """The statements of a block, each with its place."""
        place = self
        for part in stmt.body:
            yield place, part
            if isinstance(part, Let | Allocate):
                place = place.inside(part)

    def facts_with(self, dims: Iterable[Dim]) -> Facts:
        """What holds here for every point of an iteration domain."""
        facts = self.facts
        for dim in dims:
            facts = facts.loop(dim.var, dim.extent)
        return facts


def walk_placed(stmt: Stmt, place: Place) -> Iterator[tuple[Stmt, Place]]:
    """Every statement with its place, outer before inner, in program order; an opaque nest is one
    statement."""
    stack = [(stmt, place)]
    while stack:
        node, here = stack.pop()
        yield node, here
        if isinstance(node, Opaque) or not nested(node):
            continue
        inside = tuple(zip(nested(node), here.within(node), strict=True))
        stack.extend(reversed(inside))


def rewrite_placed(stmt: Stmt, place: Place, change: Callable[[Stmt, Place], Stmt | None]) -> Stmt:
    """Top-down: what ``change`` returns takes the statement's place and is not entered.

    Where it returns None, the statements inside are visited; those of an opaque nest are not.
    """
    changed = change(stmt, place)
    if changed is not None:
        return changed
    if isinstance(stmt, Opaque):
        return stmt
    parts = nested(stmt)
    if not parts:
        return stmt
    new = tuple(
        rewrite_placed(part, inner, change)
        for part, inner in zip(parts, place.within(stmt), strict=True)
    )
    return with_nested(stmt, new)


def fresh(name: str, taken: Iterable[str]) -> str:
    """``name``, or the first of ``name2``, ``name3``, ... that is not taken."""
    used = frozenset(taken)
    if name not in used:
        return name
    count = 2
    while f"{name}{count}" in used:
        count += 1
    return f"{name}{count}"


def claim(name: str, taken: set[str]) -> str:
    """`fresh`, and ``taken`` from then on."""
    name = fresh(name, taken)
    taken.add(name)
    return name


def bound_names(stmt: Stmt) -> frozenset[str]:
    """The names of all variables that something inside ``stmt`` binds."""
    names: set[str] = set()
    for node in walk_stmts(stmt):
        if isinstance(node, For | Let):
            names.add(node.var.name)
        elif isinstance(node, Compute):
            names.update(dim.var.name for dim in node.dims)
            names.update(operand.var.name for operand in node.operands)
    return frozenset(names)


def taken_names(kernel: Kernel) -> frozenset[str]:
    """The names of all variables of ``kernel``: its scalar parameters, and what its body binds."""
    return bound_names(kernel.body) | {param.name for param in kernel.scalars}


def loop_nest(loops: Iterable[tuple[Var, Expr]], body: Stmt) -> Stmt:
    """Serial loops around ``body``, outermost first."""
    for variable, extent in reversed(tuple(loops)):
        body = For(variable, extent, body)
    return body


def around(loops: Sequence[For], body: Stmt) -> Stmt:
    """``body`` in the ``loops``, outermost first, in the place of what these have inside."""
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body


def perfect_nest(stmt: Stmt, kinds: Collection[LoopKind]) -> tuple[tuple[For, ...], Stmt]:
    """The loops of these kinds from ``stmt`` on that stand directly in one another, outermost
    first, and what is in them."""
    loops: list[For] = []
    while isinstance(stmt, For) and stmt.kind in kinds:
        loops.append(stmt)
        inside = sequence(stmt.body)
        stmt = inside[0] if len(inside) == 1 else stmt.body
    return tuple(loops), stmt


def size_of(range_: Dim | For) -> int:
    """The extent of a dim or a loop of which it is known to be constant."""
    assert isinstance(range_.extent, Const)
    return int(range_.extent.value)


def names_in(kernel: Kernel) -> tuple[set[str], set[str]]:
    """The names of a kernel's buffers, and of its computes."""
    buffers, computes = {p.name for p in kernel.arrays}, set[str]()
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Allocate):
            buffers.add(stmt.buffer.name)
        elif isinstance(stmt, Compute):
            computes.add(stmt.name)
    return buffers, computes


def views_of(compute: Compute) -> tuple[View, ...]:
    """The outputs' views, then those of the operands."""
    return (*compute.outputs, *(operand.view for operand in compute.operands))


def dim_of(compute: Compute, name: str) -> Dim:
    """The dim called ``name``; refuses when there is none."""
    for dim in compute.dims:
        if dim.var.name == name:
            return dim
    raise refusal(
        f"the compute '{compute.name}' has no dim '{name}'",
        compute,
        "choose one of " + ", ".join(dim.var.name for dim in compute.dims),
    )


def plain(compute: Compute) -> Compute:
    """``compute``; refuses one that has more than the transform knows about."""
    beyond = complication(compute)
    if beyond is not None:
        raise refusal(
            f"the compute '{compute.name}' has {beyond}",
            compute,
            "tile it, and lower it to loops (`lower_computes`)",
            why="it takes computes of one result, combined by a named operator or assigned, at "
            "places that their dims say, in any order",
        )
    return compute


def unordered(compute: Compute) -> Compute:
    """``compute``, of any number of results and any combiner; refuses one with ordered dims, or
    places that are loaded."""
    return plain(compute) if compute.is_ordered or addressing(compute) else compute


def computes_named(
    kernel: Kernel, name: str, any_kind: bool = False
) -> list[tuple[Compute, Place]]:
    """The computes called ``name``, at least one; `plain` ones, if not of ``any_kind``."""
    matching: list[tuple[Compute, Place]] = []
    others: dict[str, None] = {}
    for stmt, place in walk_placed(kernel.body, Place()):
        if isinstance(stmt, Compute):
            others[stmt.name] = None
            if stmt.name == name:
                matching.append((stmt if any_kind else plain(stmt), place))
    if not matching:
        _check_opaque(kernel, lambda stmt: holds(stmt, name), f"the compute '{name}'")
        none = "none is left: schedule earlier"
        raise _missing(kernel, f"there is no compute '{name}'", others, none)
    return matching


def loops_named(kernel: Kernel, name: str, any_kind: bool = True) -> list[tuple[For, Place]]:
    """The loops over a variable called ``name``, at least one; around `plain` computes, if not of
    ``any_kind``."""
    matching: list[tuple[For, Place]] = []
    others: dict[str, None] = {}
    for stmt, place in walk_placed(kernel.body, Place()):
        if isinstance(stmt, For):
            others[stmt.var.name] = None
            if stmt.var.name == name:
                matching.append((stmt, place))
                for inner in () if any_kind else walk_stmts(stmt.body):
                    if isinstance(inner, Compute):
                        plain(inner)
    if not matching:
        _check_opaque(kernel, lambda stmt: holds_loop(stmt, name), f"the loop '{name}'")
        none = "tile a compute first"
        raise _missing(kernel, f"there is no loop '{name}'", others, none)
    return matching


def _missing(kernel: Kernel, what: str, others: Iterable[str], none: str) -> ScheduleError:
    """The error for a name that is not there; ``none``: the cure where there are no ``others``."""
    names = ", ".join(others)
    cure = f"choose one of {names}" if names else none
    return refusal(what, kernel, cure)


def _check_opaque(kernel: Kernel, held: Callable[[Stmt], bool], what: str) -> None:
    """Refuses what is not found because an opaque nest has it."""
    for nest in walk_stmts(kernel.body):
        if isinstance(nest, Opaque) and held(nest.body):
            raise refusal(
                f"{what} is inside of the opaque nest '{nest.name}'",
                nest,
                "open the nest first (`ir.opaque.opened`), or choose what is outside of it",
                why="schedules leave what is in it as it is",
            )


def is_called(stmt: Stmt, compute: str) -> TypeGuard[Compute]:
    """Whether ``stmt`` itself is a compute of that name."""
    return isinstance(stmt, Compute) and stmt.name == compute


def placed_computes(stmt: Stmt, place: Place, name: str) -> list[tuple[Compute, Place]]:
    """The computes of that name in ``stmt``, which stands at ``place``, each with its own place."""
    return [(part, here) for part, here in walk_placed(stmt, place) if is_called(part, name)]


def holds(stmt: Stmt, compute: str) -> bool:
    """Whether a compute of that name stands in ``stmt``."""
    return any(is_called(s, compute) for s in walk_stmts(stmt))


def loops_around(kernel: Kernel, compute: str) -> list[For]:
    """The loops around a compute, outermost first; around several by that name, in program
    order."""
    stmts = walk_stmts(kernel.body)
    return [stmt for stmt in stmts if isinstance(stmt, For) and holds(stmt.body, compute)]


def serial_loops(kernel: Kernel, compute: str) -> list[str]:
    """The names of the serial loops around a compute, outermost first."""
    loops = loops_around(kernel, compute)
    return [loop.var.name for loop in loops if loop.kind is LoopKind.SERIAL]


def holds_loop(stmt: Stmt, loop: str) -> bool:
    """Whether a loop of that name stands in ``stmt``."""
    return any(isinstance(s, For) and s.var.name == loop for s in walk_stmts(stmt))


def sequence(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements of a block, or the statement alone."""
    return stmt.body if isinstance(stmt, Block) else (stmt,)


def expanded(
    kernel: Kernel, compute: str, made: Callable[[Compute, Place], Iterable[Stmt]]
) -> Kernel:
    """``kernel`` with what is ``made`` of each compute of that name in its place, in its own block:
    those beside it may share loops with that."""

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        here = sequence(stmt)
        if not any(is_called(part, compute) for part in here):
            return None
        parts = (made(part, place) if is_called(part, compute) else (part,) for part in here)
        return block(*chain.from_iterable(parts))

    return rewrite_kernel(kernel, change)


def rewrite_kernel(kernel: Kernel, change: Callable[[Stmt, Place], Stmt | None]) -> Kernel:
    """``kernel`` after `rewrite_placed`; the same object where nothing changes."""
    body = rewrite_placed(kernel.body, Place(), change)
    return kernel if body is kernel.body else replace(kernel, body=body)


def rewrite_computes(
    kernel: Kernel, names: Collection[str], change: Callable[[Compute, Place], Stmt]
) -> Kernel:
    """``kernel`` with what ``change`` gives in the place of each compute of these names."""
    return rewrite_kernel(
        kernel,
        lambda s, place: change(s, place) if isinstance(s, Compute) and s.name in names else None,
    )


def rewrite_loops(
    kernel: Kernel, names: Collection[str], change: Callable[[For, Place], Stmt | None]
) -> Kernel:
    """``kernel`` with what ``change`` gives in the place of each loop of these names; None: the
    loop stays, and what is in it is visited."""
    return rewrite_kernel(
        kernel,
        lambda s, place: change(s, place) if isinstance(s, For) and s.var.name in names else None,
    )


def prepend(stmts: Iterable[Stmt], body: Stmt) -> Stmt:
    """``stmts`` and then ``body``, as one block whose declarations reach to its end."""
    return block(*stmts, *sequence(body))


def excerpt(kernel: Kernel, compute: str) -> Kernel:
    """``kernel`` without anything that runs before or after ``compute``: quicker to transform.

    It computes something else, and is no transform: what comes of it is never compiled.
    """

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Block):
            return stmt
        kept = [s for s in stmt.body if isinstance(s, Allocate | Let) or holds(s, compute)]
        return replace(stmt, body=tuple(kept)) if kept else stmt

    return replace(kernel, body=rewrite_stmts(kernel.body, change))

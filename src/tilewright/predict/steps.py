"""The operations and accesses of one step, and on which loops each depends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.dtypes import f32
from tilewright.ir.buffer import Buffer
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Binary, Const, Expr, Var
from tilewright.ir.load import Load
from tilewright.ir.stmt import Call, Compute, Let, Store, View
from tilewright.ir.visit import children, loads_in, substitute, variables, walk
from tilewright.machines.machine import Machine
from tilewright.predict.kinds import conversions, executed, is_converted, operation
from tilewright.predict.nest import Step

Lanes = Mapping[Var, float]
# Variables of loops, and buffers.
Dependence = frozenset[object]
NOTHING: Dependence = frozenset()


@dataclass(frozen=True)
class Operation:
    """So much work of a kind for each vector of elements of ``width`` bytes, done anew where one of
    ``uses`` changes. An ``instruction`` has vectors of its own."""

    kind: str
    weight: float
    width: int
    uses: Dependence
    instruction: bool = False


@dataclass(frozen=True, eq=False)
class Access:
    """A way in which a step reaches a buffer. ``lanes`` are the extents of the loops that make
    vectors, ``masked``: only some of the lanes."""

    buffer: Buffer
    index: tuple[Expr, ...]
    lanes: Lanes
    uses: Dependence
    writes: bool
    masked: bool = False
    streamed: bool = False

    @cached_property
    def _offset(self) -> Expr:
        """The place in memory, in elements."""
        return self.buffer.layout.offset_of(self.index)

    @cached_property
    def start(self) -> int:
        """The place in memory, in elements, of the first point of all loops."""
        return self._place({})

    @cached_property
    def steps(self) -> Mapping[Var, int | None]:
        """How far the place moves, in elements, along each loop that it depends on; None where that
        differs from one iteration to the next."""
        loaded = frozenset[Var]().union(*map(variables, loads_in(self._offset)))
        return {v: None if v in loaded else self._step(v) for v in variables(self._offset)}

    @cached_property
    def moved_by(self) -> frozenset[Var]:
        """The loops that it depends on."""
        return frozenset(self.steps).union(*map(variables, self.index))

    def _step(self, variable: Var) -> int | None:
        first = self._place({variable: 1}) - self.start
        last = math.ceil(self.lanes.get(variable, 1)) - 1
        even = last < 2 or self._place({variable: last}) - self.start == first * last
        return first if even else None

    def _place(self, values: Mapping[Var, int]) -> int:
        everywhere = {v: values.get(v, 0) for v in variables(self._offset)}
        return int(evaluate(self._offset, everywhere, lambda buffer, index: 0))

    @property
    def key(self) -> tuple[int, tuple[Expr, ...]]:
        """Equal for accesses to the same elements."""
        return id(self.buffer), self.index


class Uses:
    """On which loops and buffers expressions depend: their variables and what they load. Variables
    that lets name stand for what is in them."""

    def __init__(self) -> None:
        self._named: dict[Var, Dependence] = {}
        self._known: dict[Expr, Dependence] = {}

    def of(self, *exprs: Expr) -> Dependence:
        """What the expressions depend on."""
        if len(exprs) == 1:
            return self._of(exprs[0])
        return NOTHING.union(*map(self._of, exprs))

    def _of(self, expr: Expr) -> Dependence:
        uses = self._known.get(expr)
        if uses is None:
            if isinstance(expr, Var):
                return self._named.get(expr, frozenset((expr,)))
            uses = NOTHING.union(*map(self._of, children(expr)))
            if isinstance(expr, Load):
                uses |= {expr.buffer}
            self._known[expr] = uses
        return uses

    def name(self, let: Let) -> None:
        """Notes what ``let`` depends on."""
        self._named[let.var] = self.of(let.value)
        self._known.clear()


def values_of(step: Step) -> tuple[Expr, ...]:
    """The expressions that a step computes, conditions on lanes included."""
    match step.stmt:
        case Store(value=value) | Let(value=value):
            return (value, *step.conditions)
        case Compute() as compute if compute.instruction is None:
            return (*(v for result in compute.results for v in result.values), *step.conditions)
        case Call() as call:
            return tuple(arg for arg in call.args if isinstance(arg, Expr))
        case _:
            return ()


def used_by(step: Step) -> Iterator[Expr]:
    """All expressions of a step: what it computes, and its addresses."""
    yield from values_of(step)
    yield from _indices(step.stmt)


def operations(step: Step, uses: Uses, machine: Machine) -> Iterator[Operation]:
    """What a step computes."""
    seen: set[int] = set()
    for value in values_of(step):
        for node in _computed(value):
            if id(node) in seen:
                continue
            seen.add(id(node))
            kind, weight = operation(node)
            if weight:
                width = max([node.type.bytes, *(part.type.bytes for part in children(node))])
                converted = is_converted(node, machine)
                width = f32.bytes if converted else width
                yield Operation(kind, weight, width, uses.of(node))
                for kind, weight in conversions(node) if converted else ():
                    yield Operation(kind, weight, width, uses.of(node))
    stmt = step.stmt
    if isinstance(stmt, Compute):
        # A combiner by name is one operation more, an instruction is all of them.
        everything = uses.of(*_indices(stmt)) | {dim.var for dim in stmt.dims}
        if stmt.instruction is None:
            number = sum(result.combiner is not None for result in stmt.results)
            width = stmt.outputs[0].buffer.dtype.bytes
            yield Operation("simple", float(number), width, everything)
        else:
            kind, weight = executed(machine.instruction(stmt.instruction), machine.vector_bytes)
            width = stmt.outputs[0].buffer.dtype.bytes
            if kind == "transpose":
                # Rows that nothing writes are not made.
                rows = machine.instruction(stmt.instruction).sizes["n"]
                weight *= min(1.0, math.prod(step.dims.values()) / rows**2)
            yield Operation(kind, weight, width, everything, instruction=True)
    elif isinstance(stmt, Call):
        yield Operation("scalar", 1.0, 8, NOTHING)
    for index in _indices(stmt):
        yield from _addresses(index, uses)


def _computed(value: Expr) -> Iterator[Expr]:
    """The nodes of ``value`` that are computed for it; those of addresses are not."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if id(node) in seen or isinstance(node, Const | Var):
            continue
        seen.add(id(node))
        if not isinstance(node, Load):
            yield node
            stack.extend(children(node))
        elif node.mask is not None:
            stack.append(node.mask)


def _indices(stmt: Store | Let | Compute | Call) -> Iterator[Expr]:
    match stmt:
        case Store(index=index):
            yield from index
        case Compute():
            for view in (*stmt.outputs, *(operand.view for operand in stmt.operands)):
                yield from view.index
        case Call():
            for arg in stmt.args:
                if isinstance(arg, View):
                    yield from arg.index
        case _:
            pass


def _addresses(index: Expr, uses: Uses) -> Iterator[Operation]:
    """Quotients and remainders in an address, which advance no pointer."""
    for node in walk(index):
        if isinstance(node, Binary) and node.op in ("floordiv", "mod"):
            yield Operation("scalar", operation(node)[1], 8, uses.of(node))


def accesses(step: Step, lanes: Lanes, uses: Uses) -> Iterator[Access]:
    """The memory that a step reaches, reads first."""
    masked = bool(step.conditions)

    def access(buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None, writes: bool) -> Access:
        places = tuple(substitute(expr, step.names) for expr in index)
        partly = masked and writes
        if mask is not None and any(v in lanes for v in variables(mask)):
            partly = True
        streamed = isinstance(step.stmt, Store) and step.stmt.stream and writes
        return Access(buffer, places, lanes, uses.of(*index), writes, partly, streamed)

    for value in values_of(step):
        for load in loads_in(value):
            yield access(load.buffer, load.index, load.mask, False)
    for index in _indices(step.stmt):
        for load in loads_in(index):
            yield access(load.buffer, load.index, load.mask, False)
    match step.stmt:
        case Store() as store:
            yield access(store.buffer, store.index, None, True)
        case Compute() as compute:
            for operand in compute.operands:
                view = operand.view
                yield access(view.buffer, view.index, view.mask, False)
            for result in compute.results:
                for view in result.views:
                    if result.combiner is not None:
                        yield access(view.buffer, view.index, view.mask, False)
                    yield access(view.buffer, view.index, view.mask, True)
        case Call() as call:
            for arg in call.args:
                if isinstance(arg, View):
                    yield access(arg.buffer, arg.index, arg.mask, True)
        case _:
            pass

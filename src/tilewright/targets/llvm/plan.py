"""A kernel with every address resolved, before any text is written.

An address is an affine function of the variables in scope. Each variable plays a part: an
*unrolled* one is a number while the text is written, a *lane* is a position in a vector, and a
*scoped* one (a loop's or a let's) advances a pointer. So that the inner loops hold no index
arithmetic, every scope lists the pointers that its variable advances: ``(buffer, terms)``, where
the terms are those of the variables down to this scope, outermost first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tilewright.errors import CompilationError
from tilewright.facts.affine import Affine, affine, flattened
from tilewright.facts.products import products
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, Var, binary, const
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    For,
    If,
    Let,
    LoopKind,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.visit import loads_in, reads_memory, variables
from tilewright.layout.fragments import registers
from tilewright.simplify import simplify
from tilewright.targets.llvm.strides import by_variable, moved_by, stride_of
from tilewright.targets.llvm.varying import Varying

Terms = tuple[tuple[Expr, int], ...]


@dataclass(slots=True)
class Address:
    """Element offset = constant + sum of coefficient * variable, sorted by the variable's part.
    A stride known only at run time stands in a product with its variable in ``scoped`` (`strides`).

    In distributed shared memory the offset is relative to the memory of one workgroup of the
    cluster: of workgroup ``peer``, or of the accessing workgroup (None).
    """

    buffer: Buffer
    constant: int
    unrolled: Terms
    lanes: Terms
    scoped: Terms
    loose: Terms  # atoms other than variables, computed where they are used
    peer: Expr | None = None

    def lane_coefficient(self, lane: Var) -> int:
        for variable, coefficient in self.lanes:
            if variable is lane:
                return coefficient
        return 0


Loads = dict[int, Address]  # by id of the Load expression


@dataclass(slots=True)
class Scope:
    """The pointers that the variable of a loop or let advances."""

    pointers: dict[tuple[int, Terms], Buffer] = field(default_factory=dict)
    # Divisors of the distances that run-time strides advance pointers by, in elements.
    multiples: dict[tuple[int, Terms], int] = field(default_factory=dict)


@dataclass(slots=True)
class ForPlan:
    stmt: For
    body: list[Plan]
    scope: Scope
    loads: Loads
    stored: frozenset[Buffer]


@dataclass(slots=True)
class WhilePlan:
    stmt: While
    body: list[Plan]
    loads: Loads
    stored: frozenset[Buffer]


@dataclass(slots=True)
class IfPlan:
    stmt: If
    then: list[Plan]
    orelse: list[Plan]
    loads: Loads
    stored: frozenset[Buffer]


@dataclass(slots=True)
class LetPlan:
    stmt: Let
    scope: Scope
    loads: Loads


@dataclass(slots=True)
class AllocatePlan:
    stmt: Allocate


@dataclass(slots=True)
class StorePlan:
    stmt: Store
    address: Address
    loads: Loads


@dataclass(slots=True)
class ComputePlan:
    """A structured op that is one machine instruction. ``signal`` is the mbarrier that it arrives
    at, ``facts`` hold for its domain."""

    stmt: Compute
    out: Address
    operands: tuple[Address, ...]
    facts: Facts
    signal: Address | None = None


@dataclass(slots=True)
class CallPlan:
    stmt: Call
    addresses: tuple[Address | None, ...]
    loads: Loads


Plan = ForPlan | WhilePlan | IfPlan | LetPlan | AllocatePlan | StorePlan | ComputePlan | CallPlan


@dataclass(slots=True)
class _Variable:
    part: str  # "unrolled", "lane" or "scoped"
    level: int
    scope: Scope | None


class Planner:
    """Builds the plan of a statement. ``memory_only`` collects the private buffers that cannot be
    held in registers because an index is known only at run time. ``everywhere`` are facts about the
    function's inputs.

    With ``lanes``, subgroups of so many lanes run it. A private buffer that is allocated outside
    the loops over lanes is ``spread``: each lane holds a part, and addresses are within the part.
    """

    def __init__(self, lanes: int = 0, everywhere: Facts | None = None) -> None:
        self.memory_only: set[Buffer] = set()
        self.spread: set[Buffer] = set()
        self._lanes = lanes
        self._lane: Var | None = None  # variable of the enclosing loop over lanes
        self._rank: Var | None = None  # variable of the loop over the workgroups of a cluster
        self._variables: dict[Expr, _Variable] = {}
        self._varying = Varying()
        self._vectors: frozenset[Var] = frozenset()  # variables of the enclosing vector loops
        self._levels = 0  # grows inwards: a variable comes after those that it may depend on
        # Facts that do not come from enclosing conditions: a lane's part is addressed by the
        # lane's number, which a condition may have made zero.
        self._everywhere = everywhere if everywhere is not None else Facts.empty()
        # Whether strides may be known only at run time: the kernel has scalar parameters.
        self._symbolic = bool(Facts.empty().promised)

    def plan(self, stmt: Stmt, facts: Facts) -> list[Plan]:
        """The plan of ``stmt`` where ``facts`` hold."""
        plans: list[Plan] = []
        outside, varying = self._everywhere, self._varying
        for node in stmt.body if isinstance(stmt, Block) else (stmt,):
            if isinstance(node, Block):
                plans.extend(self.plan(node, facts))
                continue
            plans.append(self._plan_one(node, facts))
            if isinstance(node, Let):
                facts = facts.bind(node.var, node.value)
                self._everywhere = self._everywhere.bind(node.var, node.value)
        self._everywhere, self._varying = outside, varying
        return plans

    def _plan_one(self, node: Stmt, facts: Facts) -> Plan:
        match node:
            case For():
                return self._plan_for(node, facts)
            case While():
                loads = self._loads((node.condition,), facts)
                body = self.plan(node.body, facts.assume(node.condition))
                return WhilePlan(node, body, loads, _stored(body))
            case If():
                then = self.plan(node.then, facts.assume(node.condition))
                orelse = self.plan(node.orelse, facts) if node.orelse is not None else []
                stored = _stored(then) | _stored(orelse)
                return IfPlan(node, then, orelse, self._loads((node.condition,), facts), stored)
            case Let():
                loads = self._loads((node.value,), facts)
                scope = Scope()
                self._varying = self._varying.after(node, self._vectors)
                if not self._varying.has_loaded(node.var):  # a loaded one differs by lane
                    self.define(node.var, "scoped", scope)
                return LetPlan(node, scope, loads)
            case Allocate():
                private = node.buffer.space is Space.PRIVATE
                if private and self._lanes and self._lane is None:
                    self.spread.add(node.buffer)
                return AllocatePlan(node)
            case Store():
                address = self.address(node.buffer, node.index, facts)
                loads = self._loads((node.value, *node.index), facts, (address,))
                return StorePlan(node, address, loads)
            case Compute():
                return self._plan_compute(node, facts)
            case Call():
                return self._plan_call(node, facts)
            case _:
                raise CompilationError(f"cannot lower a {type(node).__name__} statement")

    def _plan_for(self, node: For, facts: Facts) -> ForPlan:
        loads = self._loads((node.extent,), facts)
        scope = Scope()
        if node.kind is LoopKind.VECTOR:
            self._vectors |= {node.var}
        part = {LoopKind.UNROLLED: "unrolled", LoopKind.VECTOR: "lane"}.get(node.kind, "scoped")
        self.define(node.var, part, scope)
        lanes = self._lanes and node.kind is LoopKind.LANE
        if lanes:
            self._lane = node.var
        if node.kind is LoopKind.CLUSTER:
            self._rank = node.var
        outside, self._everywhere = self._everywhere, self._everywhere.loop(node.var, node.extent)
        body = self.plan(node.body, facts.loop(node.var, node.extent))
        self._everywhere = outside
        if lanes:
            self._lane = None
        del self._variables[node.var]
        self._vectors -= {node.var}
        return ForPlan(node, body, scope, loads, _stored(body))

    def _plan_compute(self, node: Compute, facts: Facts) -> ComputePlan:
        if node.instruction is None:
            raise CompilationError(
                f"the structured op {node.name!r} has not been lowered",
                cure="lower it to loops, or match it with an instruction, before the target",
            )
        outside = self._everywhere
        for dim in node.dims:
            self.define(dim.var, "lane", Scope())
            facts = facts.loop(dim.var, dim.extent)
            self._everywhere = self._everywhere.loop(dim.var, dim.extent)
        signal = None
        if isinstance(node.completion, View):
            signal = self.address(node.completion.buffer, node.completion.index, facts)
        out = self.address(node.out.buffer, node.out.index, facts)
        operands = tuple(self.address(o.view.buffer, o.view.index, facts) for o in node.operands)
        for dim in node.dims:
            del self._variables[dim.var]
        self._everywhere = outside
        return ComputePlan(node, out, operands, facts, signal)

    def _plan_call(self, node: Call, facts: Facts) -> CallPlan:
        addresses = tuple(
            self.address(a.buffer, a.index, facts) if isinstance(a, View) else None
            for a in node.args
        )
        exprs: list[Expr] = []
        for arg in node.args:
            if isinstance(arg, Expr):
                exprs.append(arg)
            else:
                exprs += arg.index if arg.mask is None else (*arg.index, arg.mask)
        return CallPlan(node, addresses, self._loads(exprs, facts, addresses))

    def define(self, variable: Var, part: str, scope: Scope) -> None:
        """Give ``variable`` a part in the addresses that are planned from here on."""
        self._levels += 1
        self._variables[variable] = _Variable(part, self._levels, scope)

    def _loads(
        self, exprs: Iterable[Expr], facts: Facts, addresses: Iterable[Address | None] = ()
    ) -> Loads:
        """The addresses of the loads in ``exprs``, of the loads in their addresses, and of those
        in ``addresses``: a simplified address has other loads than its expressions."""
        loads: Loads = {}
        pending = list(addresses)
        for expr in exprs:
            pending += self._add_loads(expr, facts, loads)
        while pending:
            address = pending.pop()
            if address is not None:
                for atom, _ in address.loose:
                    pending += self._add_loads(atom, facts, loads)
        return loads

    def _add_loads(self, expr: Expr, facts: Facts, loads: Loads) -> list[Address]:
        """Adds the addresses of the loads in ``expr`` to ``loads``, and gives the new ones."""
        added: list[Address] = []
        for node in loads_in(expr):
            if id(node) not in loads:
                loads[id(node)] = self.address(node.buffer, node.index, facts)
                added.append(loads[id(node)])
        return added

    def _is_own_part(self, workgroup: Expr, facts: Facts) -> bool:
        """Whether ``workgroup`` is the accessing one's rank in the cluster."""
        rank = self._rank
        return rank is not None and facts.prove(binary("eq", workgroup, rank)) is True

    def address(self, buffer: Buffer, index: tuple[Expr, ...], facts: Facts) -> Address:
        """The address of an element, its terms sorted by their variable's part."""
        index, peer = self._varying.index(index), None
        if buffer.space is Space.CLUSTER:
            workgroup = simplify(index[0], facts)
            peer = None if self._is_own_part(workgroup, facts) else workgroup
            index = (const(0), *index[1:])
        if buffer in self.spread:
            facts = self._everywhere
        offset = affine(simplify(buffer.layout.offset_of(index), facts))
        if not all(isinstance(atom, Var) for atom in offset.terms):
            # Digits of one number may be neighbours in memory: the number itself is simpler.
            flat = affine(simplify(flattened(offset.to_expr(), facts.wide).to_expr(), facts))
            if _loose(flat) < _loose(offset):
                offset = flat
        parts: dict[str, list[tuple[Expr, int]]] = {
            part: [] for part in ("unrolled", "lane", "scoped", "loose")
        }
        terms = dict(offset.terms)
        if self._symbolic and buffer not in self.spread:
            offset = products(offset)
            moving, terms = self._by_variable(offset)
            parts["scoped"] += moving.items()
        if buffer in self.spread:
            self._drop_lane(buffer, terms)
        for atom, coefficient in terms.items():
            variable = self._variables.get(atom) if isinstance(atom, Var) else None
            parts[variable.part if variable else "loose"].append((atom, coefficient))
        scoped = sorted(parts["scoped"], key=lambda term: self._level(term[0]))
        address = Address(
            buffer,
            offset.constant,
            tuple(parts["unrolled"]),
            tuple(parts["lane"]),
            tuple(scoped),
            tuple(parts["loose"]),
            peer,
        )
        self._register(address)
        return address

    def _by_variable(self, offset: Affine) -> tuple[dict[Expr, int], dict[Expr, int]]:
        """The terms of an offset, a sum of products: strides may be run-time values (`strides`)."""
        levels = {
            variable: info.level
            for variable, info in self._variables.items()
            if info.part == "scoped"
        }
        return by_variable(offset, levels)

    def _drop_lane(self, buffer: Buffer, terms: dict[Expr, int]) -> None:
        """Drops the lane from an offset: the rest is within the part that the lane holds."""
        lane = self._lane
        if lane is None:
            return
        hidden = any(lane in variables(atom) for atom in terms if atom is not lane)
        if hidden or terms.pop(lane, 0) != registers(buffer.layout, self._lanes):
            raise CompilationError(
                f"a lane accesses what another one holds of {buffer.name!r}",
                why="a lane has access to its own registers only",
                cure="divide the compute as the buffer is held (`on_lanes`), or share the values "
                "in workgroup memory",
            )

    def _level(self, atom: Expr) -> int:
        return self._variables[moved_by(atom)].level

    def _register(self, address: Address) -> None:
        """Adds the address's pointers to the scopes whose variables advance them."""
        if address.buffer.space is Space.PRIVATE and (address.scoped or address.loose):
            if not address.scoped and all(self._is_static(atom) for atom, _ in address.loose):
                return
            self.memory_only.add(address.buffer)
        for count in range(1, len(address.scoped) + 1):
            terms = address.scoped[:count]
            scope = self._variables[moved_by(terms[-1][0])].scope
            assert scope is not None
            scope.pointers[id(address.buffer), terms] = address.buffer
            atom, coefficient = terms[-1]
            stride = stride_of(atom)
            if stride is not None:
                multiple = coefficient * self._everywhere.divisor(stride)
                scope.multiples[id(address.buffer), terms] = multiple

    def _is_static(self, atom: Expr) -> bool:
        """Whether ``atom`` is a number while the text is written, or one for each lane: fragments
        that lanes of a subgroup hold are accessed whole, from their first element on."""
        return all(
            (info := self._variables.get(v)) is not None and info.part in ("unrolled", "lane")
            for v in variables(atom)
        ) and not reads_memory(atom)


def _loose(form: Affine) -> int:
    """How many terms are computed where they are used."""
    return sum(not isinstance(atom, Var) for atom in form.terms)


def _stored(plans: list[Plan]) -> frozenset[Buffer]:
    """The private buffers that the plans store to, without those allocated among them."""
    stored: set[Buffer] = set()
    allocated = {plan.stmt.buffer for plan in plans if isinstance(plan, AllocatePlan)}
    for plan in plans:
        match plan:
            case StorePlan():
                stored.add(plan.address.buffer)
            case ComputePlan():
                stored.add(plan.out.buffer)
            case ForPlan() | WhilePlan() | IfPlan():
                stored |= plan.stored
            case _:
                pass
    return frozenset(b for b in stored - allocated if b.space is Space.PRIVATE)


def walk_plans(plans: list[Plan]) -> Iterator[Plan]:
    """The plans and all plans inside them."""
    for plan in plans:
        yield plan
        match plan:
            case ForPlan() | WhilePlan():
                yield from walk_plans(plan.body)
            case IfPlan():
                yield from walk_plans(plan.then)
                yield from walk_plans(plan.orelse)
            case _:
                pass

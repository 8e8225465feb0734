"""A kernel to an LLVM module of launches: functions that a device runs on workgroups, one after the
other.

At the top of the kernel, and inside the host's control (`host`), each perfect nest of ``grid``
loops is a launch. Its iterations, flattened with the outermost loop slowest, are the workgroups; or
clusters of them, if allocations of cluster memory, lets, and one ``cluster`` loop follow. Inside
may stand allocations of workgroup memory and lets, then one perfect nest of thread loops
(``workgroup``, ``subgroup``, ``lane``): its iterations, flattened, are the work-items. Where that
nest ends with subgroups, loops over their lanes may stand anywhere inside: the statements outside
these loops are carried out by a subgroup as one. Other statements in a row are a launch of one
work-item. Buffers that are allocated at the top live across launches: they are workspaces.

Each function takes the kernel's arguments in order, memory by a pointer and scalars by value, then
pointers to the workspaces, then the host's values that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tilewright.dtypes import DType
from tilewright.errors import CompilationError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import SHARED, Buffer, Space, workgroup_bytes
from tilewright.ir.expr import Expr, Var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, For, Kernel, LoopKind, Stmt
from tilewright.ir.uses import buffers_in
from tilewright.ir.verify_groups import THREADS, lanes_inside
from tilewright.ir.visit import block, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.runtime.steps import ForStep, IfStep, LetStep, ReadStep, WhileStep
from tilewright.runtime.steps import launches as launches_of
from tilewright.simplify import simplify
from tilewright.targets.llvm.calls import EmitCall
from tilewright.targets.llvm.computes import Units
from tilewright.targets.llvm.dialect import Dialect
from tilewright.targets.llvm.functions import lines_of, write_function
from tilewright.targets.llvm.host import HostScope, Node, Part, result_of, split_host
from tilewright.targets.llvm.indices import fitted
from tilewright.targets.llvm.inputs import (
    Argument,
    Input,
    amount,
    arguments_of,
    inputs_of,
)
from tilewright.targets.llvm.module import DeviceStep, Launch, Module
from tilewright.targets.llvm.nests import bind_digits, count_of, iterations, nest
from tilewright.targets.llvm.plan import (
    AllocatePlan,
    ForPlan,
    LetPlan,
    Plan,
    walk_plans,
)
from tilewright.targets.llvm.statements import Statements
from tilewright.targets.llvm.subgroups import WorkgroupShape, waiting_lanes
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer


@dataclass(frozen=True)
class Form:
    """A target's form of a launch.

    ``calls`` are its functions with effects. ``attributes`` gives those of a parameter by its
    access ("in", "out", "inout"). ``identity`` emits the number, of type ``number``, of the
    workgroup ("group"), or of the work-item in it ("local"). ``header`` is the function's header
    for a machine, a name, parameters, and the shape of workgroups. ``units`` carry out ops that are
    not of single work-items; ``uniform`` tells the device that a value is the same in all lanes of
    a subgroup. ``clusters``: there are clusters of workgroups with consecutive numbers.
    ``map_type`` declares the parameter for a `LaunchMap`. ``alone_on_stack``: memory of a workgroup
    of one work-item is on its stack.
    """

    triple: str
    dialect: Dialect
    calls: Mapping[str, EmitCall]
    attributes: Callable[[str], str]
    identity: Callable[[Writer, str], str]
    number: DType
    header: Callable[[Machine, str, str, WorkgroupShape], str]
    units: Units | None = None
    uniform: Callable[[Writer, Value], Value] | None = None
    clusters: bool = False
    map_type: str = ""
    alone_on_stack: bool = False


def write_launches(kernel: Kernel, machine: Machine, form: Form) -> Module:
    """The module that runs ``kernel``, which is lowered: loops, stores and instructions.

    Raises `CompilationError`, also for workgroups that ``machine`` has no room for.
    """
    nodes, workspaces = split_host(kernel, _is_launch, reads=True)
    _place_shared(nodes, workspaces)
    lowering = _Lowering(kernel, workspaces, machine, form)
    steps = lowering.steps(nodes, HostScope(Facts.of(kernel)))
    lines = [f'target triple = "{form.triple}"', *lowering.lines]
    text = "\n".join([*lines, *lowering.declarations.values(), ""])
    sizes = tuple(amount(b.span_bytes) for b in workspaces)
    launches = tuple(lowering.launches)
    in_turn = steps == tuple(range(len(launches)))
    return Module(text, kernel.name, sizes, launches, () if in_turn else steps)


def _place_shared(nodes: Sequence[Node], workspaces: list[Buffer]) -> None:
    """Moves a workgroup's (or cluster's) memory into its launch if no grid loop is around: there is
    one workgroup. Buffers that live across launches are in global memory, once for all."""
    parts = list(launches_of(nodes))
    for buffer in [buffer for buffer in workspaces if buffer.space in SHARED]:
        users = [part for part in parts if buffer in buffers_in(part.body)]
        if len(users) == 1 and _ends_with(users[0].body, (LoopKind.CLUSTER, *THREADS)):
            workspaces.remove(buffer)
            users[0].body = block(Allocate(buffer), users[0].body)
    for buffer in workspaces:
        if buffer.space is Space.CLUSTER:
            raise CompilationError(
                f"the cluster's memory {buffer.name!r} is allocated outside the launch",
                why="a workgroup's memory ends with the workgroup",
                cure="allocate it inside the grid loops, once for each launch",
            )


class _Lowering:
    """Writes the launches of one kernel, and what the host does with them."""

    def __init__(
        self, kernel: Kernel, workspaces: list[Buffer], machine: Machine, form: Form
    ) -> None:
        self.name, self.machine, self.form = kernel.name, machine, form
        self.workspaces = workspaces
        self.arguments: list[Argument] = [*arguments_of(kernel), *workspaces]
        self.access = {p.buffer: p.access for p in kernel.arrays}
        self.access |= dict.fromkeys(workspaces, "inout")
        self.declarations: dict[str, str] = {}
        self.lines: list[str] = []
        self.launches: list[Launch] = []

    # The host's side.

    def steps(self, nodes: Sequence[Node], scope: HostScope) -> tuple[DeviceStep, ...]:
        """The device's steps for ``nodes``."""
        steps: list[DeviceStep] = []
        for node in nodes:
            match node:
                case Part():
                    launch = self._launch(node, scope)
                    steps += [] if launch is None else [launch]
                case LetStep():
                    steps.append(LetStep(node.var, to_text(node.value)))
                case ReadStep():
                    steps.append(self._read(node, scope))
                case ForStep():
                    extent = to_text(simplify(node.extent, scope.facts))
                    body = self.steps(node.body, scope.inside(node))
                    steps.append(ForStep(node.var, extent, body))
                case WhileStep():
                    before = self.steps(node.before, scope)
                    inside = scope.after(*node.before).where(node.condition)
                    body = self.steps(node.body, inside)
                    steps.append(WhileStep(before, to_text(node.condition), body))
                case IfStep():
                    then = self.steps(node.then, scope.where(node.condition))
                    orelse = self.steps(node.orelse, scope.where(node.condition, False))
                    steps.append(IfStep(to_text(node.condition), then, orelse))
            scope = scope.after(node)
        return tuple(steps)

    def _read(self, node: ReadStep[Part], scope: HostScope) -> ReadStep[int]:
        launch = self._launch(node.launch, scope)
        assert launch is not None
        result = self.workspaces.index(result_of(node.launch).buffer)
        self.launches[launch] = replace(self.launches[launch], result=result)
        return ReadStep(node.var, launch)

    def _launch(self, part: Part, scope: HostScope) -> int | None:
        """The number of the launch of ``part``; None where it has no workgroups."""
        entry = f"{self.name}_{len(self.launches)}"
        launch, lines = self._function(entry, part.body, scope)
        if launch.groups == 0 or not launch.items:
            return None
        _check_room(launch, part.body, self.machine)
        self.lines += lines
        self.launches.append(launch)
        return len(self.launches) - 1

    # Functions.

    def _function(self, entry: str, part: Stmt, scope: HostScope) -> tuple[Launch, list[str]]:
        """The launch of ``part`` and its text."""
        form, lanes = self.form, lanes_of(part)
        instructions = {i.name: i for i in self.machine.instructions}
        values = scope.used(part)
        memory, sizes = write_function(
            part,
            scope.facts,
            self.arguments,
            inputs_of(self.arguments, values),
            lambda: Writer(self.declarations, form.dialect, entry),
            lambda memory, planner: Statements(
                memory, instructions, form.calls, form.units, planner.spread
            ),
            lambda statements, plans: _write(statements, plans, form, lanes, scope.facts),
            lanes,
        )
        parameters = ", ".join(self._parameters(values, len(memory.maps)))
        shape = WorkgroupShape(sizes.items, sizes.cluster, waiting_lanes(part, self.machine))
        header = form.header(self.machine, entry, parameters, shape)
        groups = amount(sizes.groups)
        named = tuple(value.name for value in values)
        maps = tuple(memory.maps)
        shared = memory.shared.bytes
        launch = Launch(entry, groups, sizes.items, shared, sizes.cluster, maps, named)
        return launch, [*memory.w.globals, *lines_of(header, memory.w)]

    def _parameters(self, values: Sequence[Var], maps: int) -> list[str]:
        """The declared parameters of a launch's function."""
        form = self.form
        type_ = f"ptr addrspace({form.dialect.arguments})"
        parameters = [
            f"{type_} {form.attributes(self.access[a])} %a{i}"
            if isinstance(a, Buffer)
            else Input(a, f"%a{i}").declared
            for i, a in enumerate(self.arguments)
        ]
        parameters += [Input(value, f"%h{i}").declared for i, value in enumerate(values)]
        return [*parameters, *(f"{self.form.map_type} %map{i}" for i in range(maps))]


def _is_launch(node: Stmt) -> bool:
    """Whether ``node`` runs on work-items. A single workgroup has no grid loop: its memory and the
    loops over work-items stand in a block."""
    first = isinstance(node, For) and node.kind in (LoopKind.GRID, LoopKind.CLUSTER)
    return first or _ends_with(node, THREADS)


def _ends_with(part: Stmt, kinds: Container[LoopKind]) -> bool:
    last = part.body[-1] if isinstance(part, Block) and part.body else part
    return isinstance(last, For) and last.kind in kinds


def lanes_of(part: Stmt) -> int:
    """The lanes of subgroups that act as one in ``part``; 0: there are no such subgroups."""
    for stmt in walk_stmts(part):
        if isinstance(stmt, For) and stmt.kind is LoopKind.SUBGROUP:
            inner: Stmt = stmt.body
            while isinstance(inner, For) and inner.kind is LoopKind.SUBGROUP:
                inner = inner.body
            if isinstance(inner, For) and inner.kind is LoopKind.LANE:
                return 0  # one perfect nest: each lane runs by itself
            return lanes_inside(inner)
    return 0


class _Sizes(NamedTuple):
    """Number of workgroups of a launch, of work-items in each, and of workgroups in a cluster."""

    groups: int | Expr
    items: int
    cluster: int


def _write(
    statements: Statements, plans: list[Plan], form: Form, lanes: int, facts: Facts
) -> _Sizes:
    """Writes the body of a launch's function, which one work-item runs."""
    plans, groups, cluster = _write_groups(statements, plans, form, facts)
    threads = nest(plans[-1], THREADS) if plans else []
    items = iterations(threads) * max(1, lanes)
    body = threads[-1].body if threads else plans
    _check_body(body, (LoopKind.LANE,) if lanes else ())
    if items == 1 and form.alone_on_stack:
        statements.w.dialect = replace(statements.w.dialect, workgroup=None)
    if not threads:
        statements.emit(body)
        return _Sizes(groups, items, cluster)
    _check_threads(plans[:-1], threads)
    statements.emit(plans[:-1])
    number = form.identity(statements.w, "local") if items > 1 else "0"
    statements.memory.width = iterations([t for t in threads if t.stmt.kind is LoopKind.LANE])
    if lanes:
        number = _by_lanes(statements, Value(number, form.number, 1, (0, items - 1)), lanes, form)
    bind_digits(statements, threads, number, form.number)
    statements.emit(body)
    return _Sizes(groups, items, cluster)


def _write_groups(
    statements: Statements, plans: list[Plan], form: Form, facts: Facts
) -> tuple[list[Plan], int | Expr, int]:
    """Binds the variables of grid and cluster loops; gives the plans inside them, and the numbers
    of workgroups in all and in a cluster."""
    grid = nest(plans[0], (LoopKind.GRID,)) if len(plans) == 1 else []
    if grid:
        plans = grid[-1].body
    clusters = nest(plans[-1], (LoopKind.CLUSTER,)) if plans and form.clusters else []
    size = iterations(clusters)
    groups, w = count_of([loop.stmt for loop in grid], facts) * size, statements.w
    alone = isinstance(groups, int) and groups <= 1
    number = "0" if alone else form.identity(w, "group")
    if not clusters:
        bind_digits(statements, grid, number, form.number)
        return plans, groups, 1
    type_ = Value(number, form.number).type
    bind_digits(statements, grid, w.assign(f"udiv {type_} {number}, {size}"), form.number)
    before = plans[:-1]
    _check_before(before, "cluster", clusters[0], SHARED)
    statements.emit(before)
    rank = w.assign(f"urem {type_} {number}, {size}")
    bind_digits(statements, clusters, rank, form.number)
    return clusters[-1].body, groups, size


def _by_lanes(statements: Statements, item: Value, lanes: int, form: Form) -> str:
    """Binds the lane's number; gives the number of its subgroup."""
    w = statements.w
    lane = w.assign(f"urem {item.typed}, {lanes}")
    statements.memory.lane = fitted(w, Value(lane, item.dtype, 1, (0, lanes - 1)))
    most = item.range[1] or 0
    number = w.assign(f"udiv {item.typed}, {lanes}")
    subgroup = Value(number, item.dtype, 1, (0, most // lanes))
    subgroup = form.uniform(w, subgroup) if form.uniform is not None else subgroup
    statements.memory.subgroup, statements.memory.team = subgroup, lanes
    return subgroup.text


def _check_body(plans: list[Plan], allowed: tuple[LoopKind, ...]) -> None:
    """Refuses thread loops in the body of a work-item, except of the ``allowed`` kinds."""
    for plan in walk_plans(plans):
        if isinstance(plan, ForPlan) and plan.stmt.kind in THREADS:
            if plan.stmt.kind in allowed:
                continue
            kind, name = plan.stmt.kind.value, plan.stmt.var.name
            raise CompilationError(
                f"the {kind} loop over {name!r} is inside the body of one work-item",
                why="a launch is one perfect nest of grid loops, and one of thread loops, with "
                "which the workgroup's statements end",
                cure="move the loop out, or make it serial",
            )


def _check_threads(before: list[Plan], threads: list[ForPlan]) -> None:
    """Work-items share buffers that are allocated around their loops, and none inside."""
    name = threads[0].stmt.var.name
    _check_before(before, "thread", threads[0], (Space.WORKGROUP,))
    for plan in walk_plans(threads[-1].body):
        if isinstance(plan, AllocatePlan) and plan.stmt.buffer.space is Space.WORKGROUP:
            raise CompilationError(
                f"the workgroup memory {plan.stmt.buffer.name!r} is allocated inside the "
                f"thread loop over {name!r}",
                cure="allocate it before the loop",
            )


def _check_before(before: list[Plan], kind: str, loop: ForPlan, spaces: Container[Space]) -> None:
    """Only allocations in ``spaces`` and lets may stand before a loop over workgroups or items."""
    name = loop.stmt.var.name
    for plan in before:
        if isinstance(plan, AllocatePlan) and plan.stmt.buffer.space not in spaces:
            raise CompilationError(
                f"{plan.stmt.buffer.name!r} is allocated around the {kind} loop over {name!r}",
                why="its work-items share only memory of the workgroup",
                cure="allocate it inside the loop, or in workgroup memory",
            )
        if not isinstance(plan, AllocatePlan | LetPlan):
            raise CompilationError(
                f"statements before the {kind} loop over {name!r} would run once per work-item",
                cure="move them into the loop, under a condition, or into a launch of their own",
            )


def _check_room(launch: Launch, body: Stmt, machine: Machine) -> None:
    """Raises `CompilationError` for a launch that is too large for ``machine``."""
    limits = machine.hierarchy
    if limits.groups and isinstance(launch.groups, int) and launch.groups > limits.groups:
        raise CompilationError(
            f"a launch has {launch.groups} workgroups",
            where=launch.entry,
            why=f"{machine.name} takes at most {limits.groups}",
            cure="choose larger tiles",
        )
    if launch.cluster > limits.cluster:
        raise CompilationError(
            f"a cluster has {launch.cluster} workgroups",
            where=launch.entry,
            why=f"{machine.name} has clusters of at most {limits.cluster}",
            cure="choose a smaller cluster",
        )
    if launch.items > limits.workgroup:
        raise CompilationError(
            f"a workgroup has {launch.items} work-items",
            where=launch.entry,
            why=f"{machine.name} has at most {limits.workgroup}",
            cure="choose smaller thread loops",
        )
    if launch.shared > limits.shared:
        shared = [
            s for s in walk_stmts(body) if isinstance(s, Allocate) and s.buffer.space in SHARED
        ]
        largest = max(
            shared, key=lambda allocation: workgroup_bytes(allocation.buffer), default=None
        )
        raise CompilationError(
            f"a workgroup shares {launch.shared} bytes",
            where=launch.entry,
            span=None if largest is None else largest.span,
            why=f"{machine.name} has {limits.shared}",
            cure="choose smaller tiles, or fewer of them at a time",
        )

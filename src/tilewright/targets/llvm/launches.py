"""A kernel to an LLVM module of launches: functions that a device runs on workgroups, one after the
other.

At the top of the kernel, each perfect nest of ``grid`` loops is a launch. Its iterations, flattened
with the outermost loop slowest, are the workgroups; or clusters of them, where allocations of a
cluster's memory and values, and one ``cluster`` loop follow. Inside may stand allocations of
workgroup memory and values, then one perfect nest of thread loops (``workgroup``, ``subgroup``,
``lane``): its iterations, flattened, are the work-items. Where that nest ends with subgroups, loops
over their lanes may stand anywhere inside: what is outside of these a subgroup does as one. Other
statements in a row are a launch of one work-item, in which grid loops run one iteration after the
other. What is allocated at the top lives across launches: a workspace.

Each function takes pointers to the kernel's arguments, in order, and then to the workspaces.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.dtypes import DType
from tilewright.errors import CompilationError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import SHARED, Buffer, Space
from tilewright.ir.stmt import Allocate, Block, For, Kernel, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS, lanes_inside
from tilewright.ir.visit import block, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.machines.tensor_map import MAP_ALIGNMENT, MAP_BYTES
from tilewright.schedule.access import buffers_in
from tilewright.targets.llvm.calls import EmitCall
from tilewright.targets.llvm.computes import Units
from tilewright.targets.llvm.dialect import Dialect
from tilewright.targets.llvm.indices import fitted
from tilewright.targets.llvm.memory import Memory, NotInRegisters
from tilewright.targets.llvm.module import Launch, Module
from tilewright.targets.llvm.nests import bind_digits, iterations, nest
from tilewright.targets.llvm.plan import (
    AllocatePlan,
    ForPlan,
    LetPlan,
    Plan,
    Planner,
    walk_plans,
)
from tilewright.targets.llvm.statements import Statements
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

# What tells a device's copy unit of a tensor: a parameter that is no pointer, but has an address.
MAP = f'ptr byval([{MAP_BYTES} x i8]) align {MAP_ALIGNMENT} "nvvm.grid_constant"'


@dataclass(frozen=True)
class Form:
    """How a target spells a launch.

    ``calls`` are the functions with effects that it has. ``attributes`` gives those of a parameter
    by its access ("in", "out", "inout"). ``identity`` writes what gives the number, of type
    ``number``, of this workgroup ("group"), or of this work-item in it ("local"). ``header`` begins
    the function for a machine, of a name, with these parameters, for so many work-items in a
    workgroup, and workgroups in a cluster. ``units`` are what carries out ops beside single
    work-items; ``uniform`` makes of a value which is the same in all lanes of a subgroup that it
    surely is. ``clusters``: whether there are any, of workgroups that are neighbours by number.
    """

    triple: str
    dialect: Dialect
    calls: Mapping[str, EmitCall]
    attributes: Callable[[str], str]
    identity: Callable[[Writer, str], str]
    number: DType
    header: Callable[[Machine, str, str, int, int], str]
    units: Units | None = None
    uniform: Callable[[Writer, Value], Value] | None = None
    clusters: bool = False


def write_launches(kernel: Kernel, machine: Machine, form: Form) -> Module:
    """The module that runs ``kernel``, which is lowered: loops, stores and instructions.

    Raises `CompilationError`, also for workgroups that ``machine`` has no room for.
    """
    parts, workspaces = _split(kernel)
    _check_workspaces(workspaces)
    arguments = [(p.buffer, p.access) for p in kernel.arrays]
    arguments += [(buffer, "inout") for buffer in workspaces]
    declarations: dict[str, str] = {}
    launches: list[Launch] = []
    text = [f'target triple = "{form.triple}"']
    for part in parts:
        entry = f"{kernel.name}_{len(launches)}"
        launch, lines = _function(entry, part, arguments, declarations, machine, form)
        if launch.groups and launch.items:
            _check_room(launch, machine)
            text += lines
            launches.append(launch)
    text += [*declarations.values(), ""]
    sizes = tuple(b.bytes for b in workspaces)
    return Module("\n".join(text), kernel.name, sizes, tuple(launches))


def _split(kernel: Kernel) -> tuple[list[Stmt], list[Buffer]]:
    """The body of each launch, and the buffers that live across them: the workspaces."""
    statements = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
    parts: list[Stmt] = []
    serial: list[Stmt] = []
    workspaces: list[Buffer] = []

    def flush() -> None:
        if serial:
            parts.append(block(*serial))
            serial.clear()

    for node in statements:
        if isinstance(node, Allocate):
            workspaces.append(node.buffer)
        elif _is_launch(node):
            flush()
            parts.append(node)
        else:
            serial.append(node)
    flush()
    for buffer in [each for each in workspaces if each.space in SHARED]:
        users = [i for i, part in enumerate(parts) if buffer in buffers_in(part)]
        # A workgroup (or a cluster) alone has no grid loop around its memory.
        if len(users) == 1 and _ends_with(parts[users[0]], (LoopKind.CLUSTER, *THREADS)):
            workspaces.remove(buffer)
            parts[users[0]] = block(Allocate(buffer), parts[users[0]])
    return parts, workspaces


def _check_workspaces(workspaces: list[Buffer]) -> None:
    """What lives across launches is in global memory, which all workgroups have once."""
    for buffer in workspaces:
        if buffer.space is Space.CLUSTER:
            raise CompilationError(
                f"the cluster's memory {buffer.name!r} is allocated outside of the launch",
                why="its parts go with the workgroups that have them",
                cure="allocate it inside of the grid loops, once for each launch",
            )


def _is_launch(node: Stmt) -> bool:
    """Whether ``node`` runs on work-items of its own; where there is but one workgroup, its memory
    and their loops stand in a block."""
    first = isinstance(node, For) and node.kind in (LoopKind.GRID, LoopKind.CLUSTER)
    return first or _ends_with(node, THREADS)


def _ends_with(part: Stmt, kinds: Container[LoopKind]) -> bool:
    last = part.body[-1] if isinstance(part, Block) else part
    return isinstance(last, For) and last.kind in kinds


def _function(
    entry: str,
    part: Stmt,
    arguments: list[tuple[Buffer, str]],
    declarations: dict[str, str],
    machine: Machine,
    form: Form,
) -> tuple[Launch, list[str]]:
    """The launch of ``part`` and its text, written again until all registers hold."""
    memory_only: set[Buffer] = set()
    instructions = {i.name: i for i in machine.instructions}
    lanes = lanes_of(part)
    while True:
        planner = Planner(lanes)
        plans = planner.plan(part, Facts.empty())
        writer = Writer(declarations, form.dialect, entry)
        memory = Memory(writer, memory_only | planner.memory_only)
        memory.arguments = [buffer for buffer, _ in arguments]
        for position, (buffer, _) in enumerate(arguments):
            memory.root(buffer, f"%a{position}", form.dialect.arguments)
        try:
            statements = Statements(memory, instructions, form.calls, form.units, planner.spread)
            sizes = _write(statements, plans, form, lanes)
        except NotInRegisters as signal:
            memory_only.add(signal.buffer)
            continue
        type_ = f"ptr addrspace({form.dialect.arguments})"
        parameters = ", ".join(
            f"{type_} {form.attributes(access)} %a{i}" for i, (_, access) in enumerate(arguments)
        )
        parameters += "".join(f", {MAP} %map{i}" for i in range(len(memory.maps)))
        header = form.header(machine, entry, parameters, sizes.items, sizes.cluster)
        lines = [header, "entry:", *writer.allocas, *writer.lines, "  ret void", "}"]
        maps = tuple(memory.maps)
        launch = Launch(entry, *sizes[:2], memory.shared_bytes, sizes.cluster, maps)
        return launch, [*writer.globals, *lines]


def lanes_of(part: Stmt) -> int:
    """How many lanes the subgroups of ``part`` have that act as one; 0: there are none."""
    for stmt in walk_stmts(part):
        if isinstance(stmt, For) and stmt.kind is LoopKind.SUBGROUP:
            inner: Stmt = stmt.body
            while isinstance(inner, For) and inner.kind is LoopKind.SUBGROUP:
                inner = inner.body
            if isinstance(inner, For) and inner.kind is LoopKind.LANE:
                return 0  # One perfect nest: each lane acts for itself.
            return lanes_inside(inner)
    return 0


class _Sizes(NamedTuple):
    """How many workgroups a launch has, work-items in each, and workgroups in a cluster."""

    groups: int
    items: int
    cluster: int


def _write(statements: Statements, plans: list[Plan], form: Form, lanes: int) -> _Sizes:
    """Writes what one work-item runs."""
    plans, groups, cluster = _write_groups(statements, plans, form)
    threads = nest(plans[-1], THREADS) if plans else []
    items = iterations(threads) * max(1, lanes)
    body = threads[-1].body if threads else plans
    _check_body(body, (LoopKind.LANE,) if lanes else ())
    if not threads:
        statements.emit(body)
        return _Sizes(groups, items, cluster)
    _check_threads(plans[:-1], threads)
    statements.emit(plans[:-1])
    number = form.identity(statements.w, "local") if items > 1 else "0"
    if lanes:
        number = _by_lanes(statements, Value(number, form.number, 1, (0, items - 1)), lanes, form)
    bind_digits(statements, threads, number, form.number)
    statements.emit(body)
    return _Sizes(groups, items, cluster)


def _write_groups(
    statements: Statements, plans: list[Plan], form: Form
) -> tuple[list[Plan], int, int]:
    """Says which workgroup this is; what it runs, how many there are, and in each cluster."""
    grid = nest(plans[0], (LoopKind.GRID,)) if len(plans) == 1 else []
    if grid:
        plans = grid[-1].body
    clusters = nest(plans[-1], (LoopKind.CLUSTER,)) if plans and form.clusters else []
    size = iterations(clusters)
    groups, w = iterations(grid) * size, statements.w
    number = form.identity(w, "group") if groups > 1 else "0"
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
    """Says which lane this is; gives the number of its subgroup."""
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
    """What one work-item runs has no more work-items in it, but loops of the ``allowed`` kinds."""
    for plan in walk_plans(plans):
        if isinstance(plan, ForPlan) and plan.stmt.kind in THREADS:
            if plan.stmt.kind in allowed:
                continue
            kind, name = plan.stmt.kind.value, plan.stmt.var.name
            raise CompilationError(
                f"the {kind} loop over {name!r} is inside of what one work-item runs",
                why="a launch is one perfect nest of grid loops, and one of thread loops, with "
                "which the workgroup's statements end",
                cure="move the loop out, or make it serial",
            )


def _check_threads(before: list[Plan], threads: list[ForPlan]) -> None:
    """Work-items share what is allocated around their loops, and nothing inside of them."""
    name = threads[0].stmt.var.name
    _check_before(before, "thread", threads[0], (Space.WORKGROUP,))
    for plan in walk_plans(threads[-1].body):
        if isinstance(plan, AllocatePlan) and plan.stmt.buffer.space is Space.WORKGROUP:
            raise CompilationError(
                f"the workgroup memory {plan.stmt.buffer.name!r} is allocated inside of the "
                f"thread loop over {name!r}",
                cure="allocate it before the loop",
            )


def _check_before(before: list[Plan], kind: str, loop: ForPlan, spaces: Container[Space]) -> None:
    """Before a loop over workgroups or work-items, memory that they share and values are made."""
    name = loop.stmt.var.name
    for plan in before:
        if isinstance(plan, AllocatePlan) and plan.stmt.buffer.space not in spaces:
            raise CompilationError(
                f"{plan.stmt.buffer.name!r} is allocated around the {kind} loop over {name!r}",
                why="its work-items share only memory of the workgroup",
                cure="allocate it inside of the loop, or in workgroup memory",
            )
        if not isinstance(plan, AllocatePlan | LetPlan):
            raise CompilationError(
                f"statements before the {kind} loop over {name!r} would run once per work-item",
                cure="move them into the loop, under a condition, or into a launch of their own",
            )


def _check_room(launch: Launch, machine: Machine) -> None:
    """Whether a workgroup of ``machine`` can be as large."""
    most = machine.hierarchy
    assert most is not None
    if most.groups and launch.groups > most.groups:
        raise CompilationError(
            f"a launch has {launch.groups} workgroups",
            where=launch.entry,
            why=f"{machine.name} takes at most {most.groups}",
            cure="choose larger tiles",
        )
    if launch.cluster > most.cluster:
        raise CompilationError(
            f"a cluster has {launch.cluster} workgroups",
            where=launch.entry,
            why=f"{machine.name} has clusters of at most {most.cluster}",
            cure="choose a smaller cluster",
        )
    if launch.items > most.workgroup:
        raise CompilationError(
            f"a workgroup has {launch.items} work-items",
            where=launch.entry,
            why=f"{machine.name} has at most {most.workgroup}",
            cure="choose smaller thread loops",
        )
    if launch.shared > most.shared:
        raise CompilationError(
            f"a workgroup shares {launch.shared} bytes",
            where=launch.entry,
            why=f"{machine.name} has {most.shared}",
            cure="choose smaller tiles, or fewer of them at a time",
        )

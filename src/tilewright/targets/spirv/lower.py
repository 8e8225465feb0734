"""A kernel to LLVM IR for SPIR-V: functions that a device runs on workgroups, one after the other.

At the top of the kernel, each perfect nest of ``grid`` loops is a launch. Its iterations, flattened
with the outermost loop slowest, are the workgroups. Inside of it may stand allocations of workgroup
memory and values, then one perfect nest of thread loops (``workgroup``, ``subgroup``, ``lane``):
its iterations, flattened, are the work-items. Other statements in a row are a launch of one
work-item, in which grid loops run one iteration after the other. What is allocated at the top lives
across launches: a workspace.

Each function takes pointers to the kernel's arguments, in order, and then to the workspaces.
Workgroup memory is a variable of the module.
"""

from __future__ import annotations

from tilewright.errors import CompilationError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.stmt import Allocate, Block, For, Kernel, LoopKind, Stmt
from tilewright.ir.visit import block
from tilewright.machines.machine import Machine
from tilewright.targets.llvm.calls import emit_atomic_add, emit_nothing
from tilewright.targets.llvm.dialect import Dialect
from tilewright.targets.llvm.memory import Memory, NotInRegisters
from tilewright.targets.llvm.module import Launch, Module
from tilewright.targets.llvm.nests import bind_digits, iterations, nest
from tilewright.targets.llvm.plan import (
    AllocatePlan,
    CallPlan,
    ForPlan,
    LetPlan,
    Plan,
    Planner,
    walk_plans,
)
from tilewright.targets.llvm.statements import Statements
from tilewright.targets.llvm.writer import Writer

TRIPLE = "spirv64-unknown-unknown"

# Address spaces of LLVM's SPIR-V target.
_CROSS_WORKGROUP, _WORKGROUP = 1, 3
_THREADS = (LoopKind.WORKGROUP, LoopKind.SUBGROUP, LoopKind.LANE)


def _builtin(function: str, arguments: int) -> str:
    """OpenCL's function of so many doubles, mangled as in C++."""
    return f"_Z{len(function)}{function}{'d' * arguments}"


DIALECT = Dialect(
    arguments=_CROSS_WORKGROUP,
    workgroup=_WORKGROUP,
    masked_memory=False,
    nan_extremes=False,
    defines_halves=False,
    serial=(LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.GRID),
    most_lanes=16,
    library=_builtin,
)


def _emit_barrier(memory: Memory, plan: CallPlan) -> None:
    del plan
    # CLK_LOCAL_MEM_FENCE and CLK_GLOBAL_MEM_FENCE.
    memory.w.call_void("_Z7barrierj", "i32 3", "i32", "convergent")


def _emit_subgroup_barrier(memory: Memory, plan: CallPlan) -> None:
    del plan
    # Execution and memory of the subgroup; sequentially consistent on workgroup and global memory.
    memory.w.call_void(
        "_Z22__spirv_ControlBarrierjjj", "i32 3, i32 3, i32 784", "i32, i32, i32", "convergent"
    )


_CALLS = {
    "prefetch": emit_nothing,
    "barrier": _emit_barrier,
    "subgroup_barrier": _emit_subgroup_barrier,
    "atomic_add": emit_atomic_add,
}


def lower_launches(kernel: Kernel, machine: Machine) -> Module:
    """The module that runs ``kernel``, which is lowered: loops, stores and instructions.

    Raises `CompilationError`, also for workgroups that ``machine`` has no room for.
    """
    parts, workspaces = _split(kernel)
    buffers = [p.buffer for p in kernel.params] + workspaces
    declarations: dict[str, str] = {}
    launches: list[Launch] = []
    text = [f'target triple = "{TRIPLE}"']
    for part in parts:
        entry = f"{kernel.name}_{len(launches)}"
        launch, lines = _function(entry, part, buffers, declarations, machine)
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
    return parts, workspaces


def _is_launch(node: Stmt) -> bool:
    """Whether ``node`` runs on work-items of its own; where there is but one workgroup, its memory
    and their loops stand in a block."""
    if isinstance(node, Block):
        return any(isinstance(s, For) and s.kind in _THREADS for s in node.body)
    return isinstance(node, For) and node.kind in (LoopKind.GRID, *_THREADS)


def _function(
    entry: str,
    part: Stmt,
    buffers: list[Buffer],
    declarations: dict[str, str],
    machine: Machine,
) -> tuple[Launch, list[str]]:
    """The launch of ``part`` and its text, written again until all registers hold."""
    memory_only: set[Buffer] = set()
    instructions = {i.name: i for i in machine.instructions}
    while True:
        planner = Planner()
        plans = planner.plan(part, Facts.empty())
        writer = Writer(declarations, DIALECT, entry)
        memory = Memory(writer, memory_only | planner.memory_only)
        for position, buffer in enumerate(buffers):
            memory.root(buffer, f"%a{position}", DIALECT.arguments)
        try:
            groups, items = _write(Statements(memory, instructions, _CALLS), plans)
        except NotInRegisters as signal:
            memory_only.add(signal.buffer)
            continue
        type_ = f"ptr addrspace({DIALECT.arguments}) noalias"
        parameters = ", ".join(f"{type_} %a{i}" for i in range(len(buffers)))
        size = f"!reqd_work_group_size !{{i32 {items}, i32 1, i32 1}}"
        # These are all the vectors there are: a device that makes lanes of work-items beside them
        # takes up to ten times as long to compile the kernel.
        hint = f"!vec_type_hint !{{<{machine.vector_bytes // 4} x float> undef, i32 0}}"
        header = f"define spir_kernel void @{entry}({parameters}) nounwind {size} {hint} {{"
        lines = [header, "entry:", *writer.allocas, *writer.lines, "  ret void", "}"]
        shared = sum(buffer.bytes for buffer in memory.shared)
        return Launch(entry, groups, items, shared), [*writer.globals, *lines]


def _write(statements: Statements, plans: list[Plan]) -> tuple[int, int]:
    """Writes what one work-item runs; how many groups there are, and work-items in each."""
    grid = nest(plans[0], (LoopKind.GRID,)) if len(plans) == 1 else []
    if grid:
        plans = grid[-1].body
    threads = nest(plans[-1], _THREADS) if plans else []
    groups, items = iterations(grid), iterations(threads)
    if groups > 1:
        bind_digits(statements, grid, _identity(statements.w, "group"))
    else:
        bind_digits(statements, grid, "0")
    body = threads[-1].body if threads else plans
    _check_body(body)
    if not threads:
        statements.emit(body)
        return groups, items
    _check_threads(plans[:-1], threads)
    statements.emit(plans[:-1])
    bind_digits(statements, threads, _identity(statements.w, "local") if items > 1 else "0")
    statements.emit(body)
    return groups, items


def _identity(w: Writer, kind: str) -> str:
    """The number of this workgroup, or of this work-item in it."""
    return w.call("i64", f"_Z12get_{kind}_idj", "i32 0", "i32")


def _check_body(plans: list[Plan]) -> None:
    """What one work-item runs has no more work-items in it."""
    for plan in walk_plans(plans):
        if isinstance(plan, ForPlan) and plan.stmt.kind in _THREADS:
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
    for plan in before:
        if isinstance(plan, AllocatePlan) and plan.stmt.buffer.space is not Space.WORKGROUP:
            raise CompilationError(
                f"{plan.stmt.buffer.name!r} is allocated around the thread loop over {name!r}",
                why="its work-items share only memory of the workgroup",
                cure="allocate it inside of the loop, or in workgroup memory",
            )
        if not isinstance(plan, AllocatePlan | LetPlan):
            raise CompilationError(
                f"statements before the thread loop over {name!r} would run once per work-item",
                cure="move them into the loop, under a condition, or into a launch of their own",
            )
    for plan in walk_plans(threads[-1].body):
        if isinstance(plan, AllocatePlan) and plan.stmt.buffer.space is Space.WORKGROUP:
            raise CompilationError(
                f"the workgroup memory {plan.stmt.buffer.name!r} is allocated inside of the "
                f"thread loop over {name!r}",
                cure="allocate it before the loop",
            )


def _check_room(launch: Launch, machine: Machine) -> None:
    """Whether a workgroup of ``machine`` can be as large."""
    most = machine.hierarchy
    assert most is not None
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

"""A kernel to an LLVM module: its functions and its ABI.

The entry is ``void NAME(ptr args, ptr parallel, ptr pool, i64 threads)``. ``args`` points to the
argument pointers in the kernel's order, then one for each workspace that the kernel needs.
``parallel`` is called as ``parallel(pool, phase, args, threads)`` for every parallel phase and must
run ``phase(args, thread, threads)`` for each thread; with one thread it is not called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.dtypes import s64
from tilewright.errors import CompilationError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Allocate, Block, For, Kernel, LoopKind, Stmt
from tilewright.ir.visit import block
from tilewright.machines.instruction import Instruction
from tilewright.machines.tensor_map import TensorMap
from tilewright.targets.llvm.calls import emit_prefetch
from tilewright.targets.llvm.masked import ZEROS
from tilewright.targets.llvm.memory import Memory, NotInRegisters
from tilewright.targets.llvm.nests import bind_digits, nest
from tilewright.targets.llvm.plan import Plan, Planner
from tilewright.targets.llvm.statements import Statements
from tilewright.targets.llvm.writer import Writer

_CALLS = {"prefetch": emit_prefetch}


@dataclass(frozen=True)
class Launch:
    """A function that a device runs, on ``groups`` workgroups of ``items`` work-items each.

    The work-items of a group share ``shared`` bytes. The function takes the kernel's arguments in
    order, then the workspaces, then its ``maps``, each as the value that the driver makes of it.
    ``cluster`` neighbouring workgroups run at the same time and reach each other's shared memory.
    """

    entry: str
    groups: int
    items: int
    shared: int
    cluster: int = 1
    maps: tuple[TensorMap, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The launch as JSON holds it."""
        return {**asdict(self), "maps": [each.as_json() for each in self.maps]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Launch:
        """What `as_json` made. Raises `KeyError`, `TypeError` or an error of this project."""
        maps = tuple(TensorMap.from_json(each) for each in data["maps"])
        return Launch(**{**data, "maps": maps})


@dataclass(frozen=True)
class Module:
    """LLVM IR text, the entry's name, and the bytes of each workspace the kernel needs.

    Where a device runs the kernel, ``launches`` are what it runs, one after the other.
    """

    text: str
    entry: str
    workspaces: tuple[int, ...]
    launches: tuple[Launch, ...] = ()


@dataclass(frozen=True)
class _Phase:
    """A part of the kernel between two joins: ``iterations`` run on any thread, in any order."""

    body: Stmt
    iterations: int
    parallel: tuple[For, ...]


def lower_module(kernel: Kernel, instructions: Mapping[str, Instruction]) -> Module:
    """The module that runs ``kernel``, which is lowered: loops, stores and ``instructions``."""
    phases, workspaces = _split(kernel)
    buffers = [p.buffer for p in kernel.arrays] + workspaces
    declarations: dict[str, str] = {}
    functions: list[str] = []
    for number, phase in enumerate(phases):
        functions.append(
            _range_function(f"phase{number}", phase, buffers, declarations, instructions)
        )
        functions.append(_phase_function(f"phase{number}", phase, buffers))
    functions.append(_entry_function(kernel.name, phases))
    text = "\n".join([ZEROS, *functions, *declarations.values(), ""])
    return Module(text, kernel.name, tuple(b.bytes for b in workspaces))


def _split(kernel: Kernel) -> tuple[list[_Phase], list[Buffer]]:
    """The kernel's phases, and the buffers that live across them: the workspaces."""
    statements = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
    phases: list[_Phase] = []
    serial: list[Stmt] = []
    workspaces: list[Buffer] = []

    def flush() -> None:
        if serial:
            phases.append(_Phase(block(*serial), 1, ()))
            serial.clear()

    for node in statements:
        if isinstance(node, Allocate):
            workspaces.append(node.buffer)
        elif isinstance(node, For) and node.kind is LoopKind.PARALLEL:
            flush()
            phases.append(_parallel_phase(node))
        else:
            serial.append(node)
    flush()
    return phases, workspaces


def _parallel_phase(node: For) -> _Phase:
    """Perfectly nested parallel loops become one range."""
    loops: list[For] = []
    iterations = 1
    body: Stmt = node
    while isinstance(body, For) and body.kind is LoopKind.PARALLEL:
        if not isinstance(body.extent, Const):
            raise CompilationError(
                f"the parallel loop over {body.var.name!r} has an extent that is not constant"
            )
        loops.append(body)
        iterations *= int(body.extent.value)
        body = body.body
    return _Phase(node, iterations, tuple(loops))


def _range_function(
    name: str,
    phase: _Phase,
    buffers: list[Buffer],
    declarations: dict[str, str],
    instructions: Mapping[str, Instruction],
) -> str:
    """``NAME.range(buffers..., i64 low, i64 high)``, written again until all registers hold."""
    memory_only: set[Buffer] = set()
    while True:
        planner = Planner()
        plans = planner.plan(phase.body, Facts.empty())
        writer = Writer(declarations)
        memory = Memory(writer, memory_only | planner.memory_only)
        for position, buffer in enumerate(buffers):
            memory.root(buffer, f"%a{position}", 0)
        try:
            _write_range(Statements(memory, instructions, _CALLS), phase, plans)
        except NotInRegisters as signal:
            memory_only.add(signal.buffer)
            continue
        parameters = ", ".join(f"ptr noalias %a{i}" for i in range(len(buffers)))
        header = f"define internal void @{name}.range({parameters}, i64 %low, i64 %high) #0 {{"
        lines = [header, "entry:", *writer.allocas, *writer.lines, "  ret void", "}"]
        return "\n".join(lines)


def _write_range(statements: Statements, phase: _Phase, plans: list[Plan]) -> None:
    if not phase.parallel:
        statements.emit(plans)
        return
    w, memory = statements.w, statements.memory
    head, after = w.label("range"), w.label("done")
    w.branch(w.assign("icmp slt i64 %low, %high"), head, after)
    w.start(head)
    index, line = w.name("i"), w.reserve()
    memory.exprs.push()
    loops = nest(plans[0], (LoopKind.PARALLEL,))
    bind_digits(statements, loops, index, s64)
    statements.emit(loops[-1].body)
    memory.exprs.pop()
    following = w.assign(f"add nsw i64 {index}, 1")
    w.fill(line, f"  {index} = phi i64 [%low, %entry], [{following}, %{w.block}]")
    w.branch(w.assign(f"icmp slt i64 {following}, %high"), head, after)
    w.start(after)


def _phase_function(name: str, phase: _Phase, buffers: list[Buffer]) -> str:
    """``NAME(args, thread, threads)``: this thread's share, as even as it goes."""
    lines = [f"define internal void @{name}(ptr %args, i64 %thread, i64 %threads) #0 {{"]
    for position in range(len(buffers)):
        lines.append(f"  %s{position} = getelementptr ptr, ptr %args, i64 {position}")
        lines.append(f"  %a{position} = load ptr, ptr %s{position}")
    arguments = ", ".join(f"ptr %a{i}" for i in range(len(buffers)))
    lines += [
        f"  %first = mul i64 %thread, {phase.iterations}",
        "  %next = add i64 %thread, 1",
        f"  %last = mul i64 %next, {phase.iterations}",
        "  %low = udiv i64 %first, %threads",
        "  %high = udiv i64 %last, %threads",
        f"  call void @{name}.range({arguments}, i64 %low, i64 %high)",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _entry_function(name: str, phases: list[_Phase]) -> str:
    header = f"define void @{name}(ptr %args, ptr %parallel, ptr %pool, i64 %threads) #0 {{"
    lines = [header]
    for number, phase in enumerate(phases):
        if phase.iterations <= 1:
            lines.append(f"  call void @phase{number}(ptr %args, i64 0, i64 1)")
            continue
        n = number
        lines += [
            f"  %many{n} = icmp slt i64 %threads, {phase.iterations}",
            f"  %count{n} = select i1 %many{n}, i64 %threads, i64 {phase.iterations}",
            f"  %alone{n} = icmp sle i64 %count{n}, 1",
            f"  br i1 %alone{n}, label %serial{n}, label %fork{n}",
            f"serial{n}:",
            f"  call void @phase{n}(ptr %args, i64 0, i64 1)",
            f"  br label %join{n}",
            f"fork{n}:",
            f"  call void %parallel(ptr %pool, ptr @phase{n}, ptr %args, i64 %count{n})",
            f"  br label %join{n}",
            f"join{n}:",
        ]
    lines += ["  ret void", "}", 'attributes #0 = { nounwind "prefer-vector-width"="512" }']
    return "\n".join(lines)

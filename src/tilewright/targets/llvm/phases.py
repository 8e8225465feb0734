"""A kernel to an LLVM module for a CPU: phases that threads run, and the function that runs them.

At the top of a kernel, and inside the host's control, each perfect nest of ``parallel`` loops is a
phase: its iterations, flattened, run on any thread, in any order. Other statements in a row are a
phase of one iteration. `entry` describes how the module is called.

A phase with non-temporal stores is written several times: such stores need aligned vectors, and
the alignment of arguments is known only at the call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tilewright.dtypes import s64
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.stmt import For, Kernel, Let, LoopKind, Stmt, Store
from tilewright.ir.visit import walk_stmts
from tilewright.machines.instruction import Instruction
from tilewright.runtime.steps import ForStep, IfStep, LetStep, WhileStep
from tilewright.targets.llvm.atomics import ATOMICS
from tilewright.targets.llvm.calls import EmitCall, emit_prefetch
from tilewright.targets.llvm.computes import Units
from tilewright.targets.llvm.dialect import PLAIN, Dialect
from tilewright.targets.llvm.entry import Entry
from tilewright.targets.llvm.functions import NOWHERE, lines_of, write_function
from tilewright.targets.llvm.host import HostScope, Node, Part, split_host
from tilewright.targets.llvm.indices import fitted
from tilewright.targets.llvm.inputs import (
    Argument,
    Input,
    amount,
    arguments_of,
    carrier_type,
    inputs_of,
)
from tilewright.targets.llvm.masked import ZEROS, in_memory
from tilewright.targets.llvm.module import Module
from tilewright.targets.llvm.nests import bind_all, bind_digits, count_of, digits_of, is_open, nest
from tilewright.targets.llvm.past_caches import STREAMED
from tilewright.targets.llvm.plan import ForPlan, LetPlan, Plan
from tilewright.targets.llvm.statements import Statements
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

T = TypeVar("T")

_CALLS: Mapping[str, EmitCall] = {
    "prefetch": emit_prefetch(1),
    "prefetch_second": emit_prefetch(2),
    **ATOMICS,
}


def write_phases(
    kernel: Kernel,
    instructions: Mapping[str, Instruction],
    dialect: Dialect = PLAIN,
    units: Units | None = None,
) -> Module:
    """The module that runs ``kernel``, which is lowered: loops, stores and ``instructions``, those
    of ``units`` among them."""
    nodes, workspaces = split_host(kernel, _is_parallel, reads=False)
    framed = not all(map(_is_plain, nodes))
    lowering = _Lowering(kernel, workspaces, instructions, framed, dialect, units)
    lowering.nodes(nodes, HostScope(Facts.of(kernel)))
    functions = (*lowering.functions, lowering.entry.text())
    text = "\n".join([ZEROS, *functions, *lowering.declarations.values(), ""])
    return Module(text, kernel.name, tuple(amount(b.span_bytes) for b in workspaces))


def _is_parallel(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL


def _is_plain(node: Node) -> bool:
    """Whether ``node`` is a phase with a constant number of iterations."""
    if not isinstance(node, Part):
        return False
    return isinstance(count_of(_loops(node), Facts.empty()), int)


def _loops(part: Part) -> list[For]:
    """The loops of a phase: perfectly nested parallel ones are one range."""
    loops: list[For] = []
    body = part.body
    while part.launched and isinstance(body, For) and body.kind is LoopKind.PARALLEL:
        loops.append(body)
        body = body.body
    return loops


@dataclass(frozen=True)
class _Phase:
    """The parts from which the functions of a phase are written."""

    name: str
    body: Stmt
    loops: Sequence[For]
    scope: HostScope
    values: Sequence[Var]


class _Lowering:
    """Writes the functions of one kernel."""

    def __init__(
        self,
        kernel: Kernel,
        workspaces: Sequence[Buffer],
        instructions: Mapping[str, Instruction],
        framed: bool,
        dialect: Dialect,
        units: Units | None,
    ) -> None:
        self.arguments: list[Argument] = [*arguments_of(kernel), *workspaces]
        self.instructions, self.dialect, self.units = instructions, dialect, units
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self._ranges: dict[str, str] = {}
        self.entry = Entry(kernel.name, len(self.arguments), framed)
        self._slots: dict[Var, int] = {}
        self._phases = 0
        self._expressions = 0

    # The host's side.

    def nodes(self, nodes: Sequence[Node], scope: HostScope) -> None:
        """What the host does, one after the other."""
        for node in nodes:
            match node:
                case Part():
                    self._part(node, scope)
                case LetStep():
                    value = self._value(node.value, scope)
                    self.entry.keep(self._slot(node.var), carrier_type(node.var.type), value)
                case ForStep():
                    extent = self._value(node.extent, scope)
                    with self.entry.counting(self._slot(node.var), extent):
                        self.nodes(node.body, scope.inside(node))
                case WhileStep():
                    with self.entry.repeating() as after:
                        self.entry.leave(self._value(node.condition, scope), after)
                        self.nodes(node.body, scope.where(node.condition))
                case IfStep():
                    condition = self._value(node.condition, scope)
                    with self.entry.choosing(condition) as labels:
                        self.nodes(node.then, scope.where(node.condition))
                        self.entry.otherwise(labels)
                        self.nodes(node.orelse, scope.where(node.condition, False))
            scope = scope.after(node)

    def _slot(self, variable: Var) -> int:
        self._slots[variable] = self.entry.slot()
        return self._slots[variable]

    def _value(self, value: Expr, scope: HostScope) -> str:
        """The entry's value of an expression, computed by a separate function."""
        name = f"host{self._expressions}"
        self._expressions += 1
        self.functions.append(self._expression(name, value, scope))
        return self.entry.evaluate(name, carrier_type(value.type))

    def _part(self, part: Part, scope: HostScope) -> None:
        number, loops = self._phases, _loops(part)
        self._phases += 1
        phase = _Phase(f"phase{number}", part.body, loops, scope, scope.used(part.body))
        count = count_of(loops, scope.facts)
        nontemporal = self._nontemporal(part.body)
        plain = self._written_once(phase, "range")
        variants: dict[int, str] = {}
        if nontemporal:
            # Widest first: vectors that are wider than the addresses' alignment are split.
            for align in sorted({STREAMED, self.dialect.vector_bytes}, reverse=True):
                aligned = dict.fromkeys(nontemporal, align)
                variants[align] = self._written_once(phase, f"stream{align}", aligned)
        if isinstance(count, int):
            self.functions.append(self._share(phase, plain, f"{count}", nontemporal, variants))
            self.entry.phase(number, count)
            return
        slot = self.entry.slot()
        value = self._value(count, scope)
        self.entry.keep(slot, "i64", value)
        self.functions.append(self._share(phase, plain, "%total", nontemporal, variants, slot))
        self.entry.phase(number, value)

    def _written_once(
        self, phase: _Phase, suffix: str, aligned: Mapping[Buffer, int] = NOWHERE
    ) -> str:
        """The name of the phase's function (`_range`) of this suffix, or of an equal one: two
        branches may differ only in non-temporal stores, and a greater alignment may not give wider
        stores."""
        name = f"{phase.name}.{suffix}"
        function = self._range(phase, name, aligned)
        equal = self._ranges.setdefault(function.partition("(")[2], name)
        if equal == name:
            self.functions.append(function)
        return equal

    def _nontemporal(self, part: Stmt) -> set[Buffer]:
        """The arguments to which ``part`` has non-temporal stores."""
        if not self.dialect.stream_fence:
            return set()
        stores = (stmt for stmt in walk_stmts(part) if isinstance(stmt, Store) and stmt.stream)
        return {stmt.buffer for stmt in stores} & {
            a for a in self.arguments if isinstance(a, Buffer)
        }

    # Functions.

    def _typed(self, values: Sequence[Var], attributes: str = "") -> list[str]:
        """The arguments and ``values`` as a function's parameters."""
        typed = [
            f"ptr{attributes} %a{i}" if isinstance(a, Buffer) else Input(a, f"%a{i}").declared
            for i, a in enumerate(self.arguments)
        ]
        return typed + [Input(value, f"%h{i}").declared for i, value in enumerate(values)]

    def _slots_read(self, values: Sequence[Var]) -> list[str]:
        """Reads the arguments and ``values`` from their slots."""
        lines: list[str] = []
        for i, argument in enumerate(self.arguments):
            type_ = "ptr" if isinstance(argument, Buffer) else carrier_type(argument.type)
            lines.append(f"  %s{i} = getelementptr ptr, ptr %args, i64 {i}")
            lines.append(f"  %a{i} = load {type_}, ptr %s{i}")
        for i, value in enumerate(values):
            lines.append(f"  %t{i} = getelementptr ptr, ptr %args, i64 {self._slots[value]}")
            lines.append(f"  %h{i} = load {carrier_type(value.type)}, ptr %t{i}")
        return lines

    def _range(self, phase: _Phase, name: str, aligned: Mapping[Buffer, int]) -> str:
        """``NAME(arguments..., i64 low, i64 high)``. The arguments in ``aligned`` are multiples of
        these numbers, and stores to them may be non-temporal."""
        parameters = ", ".join(self._typed(phase.values, " noalias"))
        header = f"define internal void @{name}({parameters}, i64 %low, i64 %high) #0 {{"
        w, _ = self._written(
            phase.body,
            phase.scope,
            phase.values,
            lambda statements, plans: _write_range(statements, bool(phase.loops), plans),
            aligned,
        )
        if aligned:
            w.call_void(self.dialect.stream_fence, "", "")
        return "\n".join(lines_of(header, w))

    def _written(
        self,
        part: Stmt,
        scope: HostScope,
        values: Sequence[Var],
        write: Callable[[Statements, list[Plan]], T],
        aligned: Mapping[Buffer, int] = NOWHERE,
    ) -> tuple[Writer, T]:
        memory, result = write_function(
            part,
            scope.facts,
            self.arguments,
            inputs_of(self.arguments, values),
            lambda: Writer(self.declarations, self.dialect),
            lambda memory, _planner: Statements(memory, self.instructions, _CALLS, self.units),
            write,
            aligned=aligned,
        )
        return memory.w, result

    def _share(
        self,
        phase: _Phase,
        plain: str,
        count: str,
        nontemporal: Collection[Buffer],
        variants: Mapping[int, str],
        slot: int = 0,
    ) -> str:
        """``NAME(args, thread, threads)``: this thread's share, as even as possible, by the first
        of ``variants`` for which all ``nontemporal`` arguments are aligned, or else ``plain``."""
        lines = [f"define internal void @{phase.name}(ptr %args, i64 %thread, i64 %threads) #0 {{"]
        lines += self._slots_read(phase.values)
        if slot:
            lines.append(f"  %counted = getelementptr ptr, ptr %args, i64 {slot}")
            lines.append(f"  {count} = load i64, ptr %counted")
        arguments = ", ".join(self._typed(phase.values))
        lines += [
            f"  %first = mul i64 %thread, {count}",
            "  %next = add i64 %thread, 1",
            f"  %last = mul i64 %next, {count}",
            "  %low = udiv i64 %first, %threads",
            "  %high = udiv i64 %last, %threads",
        ]
        if variants:
            address_bits = "0"
            for i, argument in enumerate(self.arguments):
                if argument in nontemporal:
                    lines.append(f"  %n{i} = ptrtoint ptr %a{i} to i64")
                    lines.append(f"  %o{i} = or i64 %n{i}, {address_bits}")
                    address_bits = f"%o{i}"
            for alignment, function in variants.items():
                lines += [
                    f"  %odd{alignment} = and i64 {address_bits}, {alignment - 1}",
                    f"  %aligned{alignment} = icmp eq i64 %odd{alignment}, 0",
                    f"  br i1 %aligned{alignment}, label %stream{alignment}, label %not{alignment}",
                    f"stream{alignment}:",
                    f"  call void @{function}({arguments}, i64 %low, i64 %high)",
                    "  ret void",
                    f"not{alignment}:",
                ]
        lines += [
            f"  call void @{plain}({arguments}, i64 %low, i64 %high)",
            "  ret void",
            "}",
        ]
        return "\n".join(lines)

    def _expression(self, name: str, value: Expr, scope: HostScope) -> str:
        """``NAME(args)`` gives ``value`` in its type in memory."""
        result = var("host.value", value.type)
        let = Let(result, value)
        values = scope.used(let)

        def write(statements: Statements, plans: list[Plan]) -> Value:
            (plan,) = plans
            assert isinstance(plan, LetPlan)
            exprs = statements.exprs
            result_value = exprs.value(exprs.evaluate(value, plan.loads), value.type)
            return in_memory(statements.w, result_value)

        w, result_value = self._written(let, scope, values, write)
        type_ = carrier_type(value.type)
        lines = [f"define internal {type_} @{name}(ptr %args) #0 {{", "entry:"]
        lines += [*w.allocas, *self._slots_read(values), *w.lines]
        return "\n".join([*lines, f"  ret {type_} {result_value.text}", "}"])


def _write_range(statements: Statements, parallel: bool, plans: list[Plan]) -> None:
    if not parallel:
        statements.emit(plans)
        return
    w, memory = statements.w, statements.memory
    loops = nest(plans[0], (LoopKind.PARALLEL,))
    for loop in loops:  # evaluated before the loop, so that iterations reuse the extents
        statements.exprs.evaluate(loop.stmt.extent, loop.loads)
    if is_open(loops[1:]):
        _write_rows(statements, loops)
        return
    before, head, after = w.block, w.label("range"), w.label("done")
    w.branch(w.assign("icmp slt i64 %low, %high"), head, after)
    w.start(head)
    index, line = w.name("i"), w.reserve()
    memory.exprs.push()
    bind_digits(statements, loops, index, s64)
    statements.emit(loops[-1].body)
    memory.exprs.pop()
    following = w.assign(f"add nsw i64 {index}, 1")
    w.fill(line, f"  {index} = phi i64 [%low, %{before}], [{following}, %{w.block}]")
    w.branch(w.assign(f"icmp slt i64 {following}, %high"), head, after)
    w.start(after)


def _write_rows(statements: Statements, loops: list[ForPlan]) -> None:
    """The range as rows of the last loop, the first and last of which may be shorter: the digits of
    an iteration's number are divisions by extents that the call passes, which would take as long as
    short iterations."""
    w, exprs, last = statements.w, statements.exprs, loops[-1]
    before, rows, after = w.block, w.label("rows"), w.label("done")
    w.branch(w.assign("icmp slt i64 %low, %high"), rows, after)
    w.start(rows)
    number, number_line = w.name("i"), w.reserve()
    exprs.push()
    *outer, first = digits_of(statements, loops, number, s64)
    bind_all(statements, loops[:-1], outer)
    start = exprs.value(first, s64)
    extent = exprs.value(exprs.evaluate(last.stmt.extent, last.loads), s64)
    remaining = w.assign(f"sub nsw i64 %high, {number}")
    stop = w.assign(f"add nsw i64 {start.text}, {remaining}")
    short = w.assign(f"icmp slt i64 {stop}, {extent.text}")
    stop = w.assign(f"select i1 {short}, i64 {stop}, {extent.typed}")
    row, head, row_end = w.block, w.label("range"), w.label("behind")
    w.jump(head)
    w.start(head)
    index, line = w.name("i"), w.reserve()
    exprs.push()
    bind_all(statements, [last], [fitted(w, start._replace(text=index))])
    statements.emit(last.body)
    exprs.pop()
    following = w.assign(f"add nsw i64 {index}, 1")
    w.fill(line, f"  {index} = phi i64 [{start.text}, %{row}], [{following}, %{w.block}]")
    w.branch(w.assign(f"icmp slt i64 {following}, {stop}"), head, row_end)
    w.start(row_end)
    exprs.pop()
    done = w.assign(f"sub nsw i64 {stop}, {start.text}")
    following = w.assign(f"add nsw i64 {number}, {done}")
    w.fill(number_line, f"  {number} = phi i64 [%low, %{before}], [{following}, %{row_end}]")
    w.branch(w.assign(f"icmp slt i64 {following}, %high"), rows, after)
    w.start(after)

"""Held launches as one kernel: what is asked of `recipes.fusing`, and what runs it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from tilewright.engine.signature import Signature
from tilewright.errors import FusionError
from tilewright.ir.renaming import fresh
from tilewright.lang.exact import exact
from tilewright.newest import Newest
from tilewright.queues.buffers import Accessor, Buffer
from tilewright.queues.calls import packing
from tilewright.queues.checking import checked
from tilewright.queues.events import Arguments, Work
from tilewright.queues.fused_code import FusedCode, FusedParts, Part
from tilewright.queues.graph import Touched
from tilewright.queues.planning import (
    Launched,
    Plan,
    Where,
    array_of,
    no_results,
    work_of,
)
from tilewright.queues.spans import READ, WRITE, Span
from tilewright.recipes.fusing import FusionReport
from tilewright.runtime.arrays import describe
from tilewright.schedule.fusion.members import NONE, Number


class Options(NamedTuple):
    """How a list is fused: the scope of each promoted buffer; whether barriers stand between
    kernels, numbers become part of the code, what is not proved is believed; whether the fused
    kernel runs beside the others, to be compared; and whether it is an error that the kernels do
    not become one."""

    promote: tuple[tuple[Buffer, str], ...] = ()
    barriers: bool = True
    constants: bool = False
    trust: bool = False
    check: bool = False
    require: bool = False

    @property
    def flags(self) -> tuple[bool, ...]:
        """What decides what runs, beside scopes."""
        return self.barriers, self.constants, self.trust, self.check


class Command(Protocol):
    """What fusing asks of a command: what it runs, on which arguments."""

    @property
    def name(self) -> str: ...
    @property
    def plan(self) -> Any: ...
    @property
    def arguments(self) -> Arguments: ...
    @property
    def work(self) -> Work | None: ...


class FusedPlan(NamedTuple):
    """What runs in place of the list, and the memory that it touches."""

    work: Work
    touched: Sequence[Touched]
    report: FusionReport


class _Memory(NamedTuple):
    """Memory of a list: what it is called in the fused kernel, the caller's argument, what the list
    as a whole does with it, and which member takes it first, as which parameter."""

    name: str
    argument: Any
    touched: Touched
    first: tuple[int, str]


class _Template(NamedTuple):
    """What lists of one pattern become: the fused ``parts``, of which arrays are ``packed``; the
    ``memory`` (what it is called, where it is found, the access), of which the code has ``taken``
    some; and the ``numbers`` that it takes, and where these are found. Each `id` in the pattern
    stays that one's of the ``kernels``."""

    parts: FusedParts
    packed: tuple[str, ...]
    memory: Sequence[tuple[str, tuple[int, str], int]]
    taken: set[str]
    numbers: Sequence[tuple[str, tuple[int, str]]]
    kernels: Sequence[Any]


def not_fused(names: Sequence[str], reason: str) -> FusionReport:
    """The report of a list whose kernels ran one by one."""
    return FusionReport(False, reason, tuple(names), {})


class Fusions:
    """Makes fused kernels, and keeps them: lists of the same kernels, whose arguments are the same
    to each other, find theirs, wherever their memory lies; and lists that come again on the same
    buffers find all that there is to be done."""

    def __init__(self, where: Where) -> None:
        self._where = where
        # With the plans of the list, so that each `id` stays that one's. They hold no arrays.
        self._plans: Newest[tuple[Any, ...], tuple[list[Plan], FusedPlan]] = Newest(64)
        self._templates: Newest[Hashable, _Template] = Newest(64)
        self._code = FusedCode(where)

    def plan(
        self, commands: Sequence[Command], options: Options, pattern: Hashable | None = None
    ) -> FusedPlan:
        """Held launches as one; ``pattern`` is what `pattern_of` says of them, if it was asked.
        Raises `FusionError` where they do not become one."""
        plans: list[Plan] = [command.plan for command in commands]
        plan = self.kept(plans, options)
        if plan is None:
            plan = self._plan(commands, options, pattern)
            # Plans on arrays that are no buffers do not come again, and may hold them.
            buffers = all(span.__class__ is Span for span, _ in plan.touched)
            if buffers and not options.check and all(plan_.lasts for plan_ in plans):
                self._plans[_key(plans, options)] = plans, plan
        return plan

    def kept(self, plans: Sequence[Plan], options: Options) -> FusedPlan | None:
        """The same for launches planned so, if they were there before."""
        kept = self._plans.get(_key(plans, options))
        return None if kept is None else kept[1]

    def _plan(
        self, commands: Sequence[Command], options: Options, pattern: Hashable | None
    ) -> FusedPlan:
        members: list[Launched] = []
        for command in commands:
            plan: Plan = command.plan
            if isinstance(plan.launched, str):
                raise FusionError(
                    f"{command.name} is not fused", why=plan.launched, cure="submit it by itself"
                )
            members.append(plan.launched)
        passed: list[Any] = [command.arguments for command in commands]
        if pattern is None:
            pattern = pattern_of(members, passed, options)
        template = self._templates.get(pattern)
        if template is None:
            template = self._templates[pattern] = self._template(members, passed, options)
        touched: list[Touched] = []
        arguments: dict[str, Any] = {}
        for name, (n, parameter), access in template.memory:
            position, (span, _) = members[n].arrays[parameter]
            touched.append((span, access))
            if name in template.taken:
                arguments[name] = passed[n][position]
        memory = {*arguments}
        for name, (n, parameter) in template.numbers:
            arguments[name] = members[n].numbers[parameter]
        code = template.parts.code(template.packed)
        if code.packed:
            work = packing(code, arguments, code.packed, self._where)
        else:
            arrays = {n: array_of(argument, self._where, n) for n, argument in arguments.items()}
            work = work_of(code, code.passed(arrays, no_results), self._where)
        if options.check:
            written = {
                name: array_of(arguments[name], self._where, name)
                for name, _, access in template.memory
                if name in memory and access & WRITE
            }
            parts_alone = [command.work for command in commands if command.work is not None]
            work = checked(work, parts_alone, written)
        return FusedPlan(work, touched, template.parts.fused.report)

    def _template(
        self, members: Sequence[Launched], passed: Sequence[Any], options: Options
    ) -> _Template:
        memory = _memories(members, passed)
        parts, numbers = self._parts(members, memory, passed, options)
        packed = _packable(members, memory)
        signature = parts.code(packed).signature
        wanted = {param.name for param in signature.scalars} & {*numbers}
        places: dict[str, tuple[int, str]] = {}
        for n, (_, arguments) in enumerate(parts.parts):
            for parameter, name in arguments.items():
                if isinstance(name, str) and name in wanted:
                    places.setdefault(name, (n, parameter))
        return _Template(
            parts,
            packed,
            [(memory_.name, memory_.first, memory_.touched[1]) for memory_ in memory.values()],
            {param.name for param in signature.arguments},
            [*places.items()],
            [member.kernel for member in members],
        )

    def _parts(
        self,
        members: Sequence[Launched],
        memory: Mapping[Any, _Memory],
        passed: Sequence[Any],
        options: Options,
    ) -> tuple[FusedParts, Mapping[str, Number]]:
        """What becomes of a list, whose members are ``passed`` arguments, and the numbers that it
        takes. Sizes of ranges and arrays become part of the code where more is proved then. Raises
        `FusionError` where it does not become one kernel."""
        promote = _promote(memory, options)
        wanted = sum(scope != NONE for scope in promote.values())
        best: tuple[FusedParts, Mapping[str, Number]] | None = None
        for sized in (True,) if _reshaped(members, passed) else (False, True):
            parts, numbers = _numbered(members, memory, passed, options.constants, sized)
            fused_parts = self._code.of(parts, promote, options.barriers, options.trust)
            if best is None or fused_parts.fits(numbers) > best[0].fits(best[1]):
                best = fused_parts, numbers
            if fused_parts.fits(numbers) == wanted:
                break
        assert best is not None
        if best[0].fits(best[1]) < 0:
            raise FusionError(fused_parts.fused.report.reason)
        return best


def _key(plans: Sequence[Plan], options: Options) -> tuple[Any, ...]:
    scopes = tuple([(buffer.identity, scope) for buffer, scope in options.promote])
    return (*map(id, plans), scopes, options.flags)


def pattern_of(
    members: Sequence[Launched], passed: Sequence[Any], options: Options
) -> tuple[Hashable, ...]:
    """What tells a list, whose members are ``passed`` arguments, from others, without addresses:
    sizes, shapes and scopes of buffers count, other numbers only as far as they are the same,
    unless they become part of the code; and whether packed arrays may be kept."""
    values: dict[Any, int] = {}
    places: dict[Any, int] = {}
    parts: list[Hashable] = []
    for member, call_values in zip(members, passed, strict=True):
        touched = [
            (places.setdefault(span, len(places)), access, *_seen(call_values[position], name))
            for name, (position, (span, access)) in member.arrays.items()
        ]
        numbers = [
            exact(value)
            if options.constants or value.__class__ is int
            else (values.setdefault(exact(value), len(values)),)
            for value in member.numbers.values()
        ]
        packs = [
            (name, getattr(member.arrays[name][1][0], "shared", True)) for name in member.packs
        ]
        parts.append((id(member.kernel), tuple(touched), tuple(numbers), tuple(packs)))
    scopes = tuple([(places.get(buffer.span), scope) for buffer, scope in options.promote])
    ends = sorted(map(_bytes, places))
    # Memory that is partly other memory: such kernels do not become one.
    overlap = any(start < end for (_, end), (start, _) in pairwise(ends))
    return *parts, scopes, options.flags, overlap


def _seen(argument: Any, name: str) -> tuple[Any, ...]:
    """The shape of an array, and the scope that its buffer was made with."""
    held = argument.buffer if argument.__class__ is Accessor else argument
    return shape_of(held, name), getattr(held, "promote", None)


def _memories(members: Sequence[Launched], passed: Sequence[Any]) -> dict[Any, _Memory]:
    """The memory of the list, by span or bytes; ``passed`` are the arguments of each. Raises
    `FusionError` where some overlaps other."""
    memory: dict[Any, _Memory] = {}
    names: set[str] = {scalar.name for member in members for scalar in member.kernel.scalars}
    for n, (member, arguments) in enumerate(zip(members, passed, strict=True)):
        for parameter, (position, (span, access)) in member.arrays.items():
            before = memory.get(span)
            if before is not None:
                # What the first command discards is not needed, whatever later ones read.
                whole = before.touched[1] | (access & WRITE)
                if not before.touched[1] & WRITE:
                    whole |= access & READ
                memory[span] = before._replace(touched=(span, whole))
                continue
            name = fresh(parameter, names)
            touched = span, access
            memory[span] = _Memory(name, arguments[position], touched, (n, parameter))
    intervals = sorted((*_bytes(span), value.name) for span, value in memory.items())
    for (_, end, name), (start, last, other) in pairwise(intervals):
        if start < end and start < last:
            raise FusionError(
                f"{name} and {other} share some of their memory",
                why="a fused kernel takes arrays that are the same, or have nothing in common",
                cure="submit the kernels one by one",
            )
    return memory


def _reshaped(members: Sequence[Launched], passed: Sequence[Any]) -> bool:
    """Whether some memory has other sizes for another kernel: they do not go with the memory."""
    shapes: dict[Any, tuple[int, ...]] = {}
    return any(
        shapes.setdefault(span, shape := shape_of(arguments[position], name)) != shape
        for member, arguments in zip(members, passed, strict=True)
        for name, (position, (span, _)) in member.arrays.items()
        if span.__class__ is tuple
    )


def _packable(members: Sequence[Launched], memory: Mapping[Any, _Memory]) -> tuple[str, ...]:
    """The names of memory that kernels take packed, and that is packed once: buffers that only
    commands write, and none of these kernels."""
    names: dict[str, None] = {}
    for member in members:
        for name in member.packs:
            span, _ = member.arrays[name][1]
            held = memory[span]
            if isinstance(span, Span) and not span.shared and not held.touched[1] & WRITE:
                names[held.name] = None
    return tuple(names)


def _bytes(span: Span | tuple[int, int]) -> tuple[int, int]:
    return span if isinstance(span, tuple) else (span.start, span.end)


def _numbered(
    members: Sequence[Launched],
    memory: Mapping[Any, _Memory],
    passed: Sequence[Any],
    constants: bool,
    sized: bool,
) -> tuple[list[Part], dict[str, Number]]:
    """The kernels with their arguments in the fused kernel, and the numbers that this takes: none
    with ``constants``, no sizes of ranges and arrays where they are ``sized``."""
    numbers: dict[str, Number] = {}
    parts: list[Part] = []
    taken = {memory_.name for memory_ in memory.values()}
    for member, values in zip(members, passed, strict=True):
        arguments: dict[str, str | Number] = {
            name: memory[span].name for name, (_, (span, _)) in member.arrays.items()
        }
        for name, places in Signature(member.kernel.params).sizes.items() if sized else ():
            array, dim = places[0]
            arguments[name] = shape_of(values[member.arrays[array][0]], array)[dim]
        for name, value in member.numbers.items():
            if constants or (sized and (name in member.ranges or name in member.gaps)):
                arguments[name] = value
                continue
            first, count = name, 2
            if name in member.gaps:  # that of the memory, whatever parameter it is
                array, dim = member.gaps[name]
                first = f"{arguments[array]}_gap_{dim}"
            called = first
            # Numbers of one name and one value are one number.
            while called in taken or exact(numbers.get(called, value)) != exact(value):
                called, count = f"{first}_{count}", count + 1
            arguments[name] = called
            numbers[called] = value
        parts.append((member.kernel, arguments))
    return parts, numbers


def shape_of(argument: Any, name: str) -> tuple[int, ...]:
    """The shape of an array, or of what an accessor is of."""
    argument = argument.buffer if argument.__class__ is Accessor else argument
    return argument.shape if argument.__class__ is Buffer else describe(argument, name).shape


def _promote(memory: Mapping[Any, _Memory], options: Options) -> dict[str, str]:
    """The scopes of promoted memory, by its name: those of the options before those that buffers
    were made with. Raises `FusionError` for what is none."""
    promote: dict[str, str] = {}
    for buffer, scope in options.promote:
        if buffer.span not in memory:
            raise FusionError(
                "a buffer is promoted that no kernel of the fusion takes",
                cure="leave it out of promote",
            )
        promote[memory[buffer.span].name] = scope
    for memory_ in memory.values():
        argument = memory_.argument
        held = argument.buffer if isinstance(argument, Accessor) else argument
        if isinstance(held, Buffer) and held.promote is not None:
            promote.setdefault(memory_.name, held.promote)
    return promote


def replaced(argument: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """``argument``, or what takes its place."""
    for old, new in pairs:
        if argument is old:
            return new
        if isinstance(argument, Accessor) and argument.buffer is old and isinstance(new, Buffer):
            return Accessor(new, argument.access)
    return argument

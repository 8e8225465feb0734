"""From what is submitted, with its arguments, to what runs, and the memory that it touches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.dtypes import DType
from tilewright.engine import CompiledKernel
from tilewright.engine.placing import Call as Placed
from tilewright.engine.signature import ArrayForm
from tilewright.errors import ArgumentError, PlacementError, UnsupportedError, short
from tilewright.ir.stmt import Kernel
from tilewright.lang.exact import exact
from tilewright.lang.kernel import KernelFunction
from tilewright.lang.launch import Launch, Ready
from tilewright.lang.records import new_records, report
from tilewright.queues.buffers import Accessor, Buffer
from tilewright.queues.events import Work
from tilewright.queues.graph import Touched
from tilewright.queues.late import (
    held_weakly,
    lacks_memory,
    stand_in,
    when_it_runs,
)
from tilewright.queues.refusals import closed_buffer, of_device
from tilewright.queues.spans import READ, WRITE
from tilewright.runtime.arrays import describe
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target

ACCESSES: Mapping[str, int] = {"in": READ, "out": WRITE, "inout": READ | WRITE}
# Arguments by which a plan is found again, beside buffers, floats and ranges.
_PLAIN = (bool, float, str)


class Launched(NamedTuple):
    """A command as a fusion takes it: the kernel, its numbers by parameter, and of its arrays the
    memory that is touched, and which argument it is: its place, or its name (plans are kept, and
    hold no arrays). ``ranges`` are the numbers that are sizes of its range, ``gaps`` those between
    elements (of which array, of which dim), ``packs`` the arrays that it takes packed by itself."""

    kernel: Kernel
    numbers: Mapping[str, bool | int | float]
    arrays: Mapping[str, tuple[int | str, Touched]]
    ranges: tuple[str, ...] = ()
    gaps: Mapping[str, tuple[str, int]] = {}
    packs: tuple[str, ...] = ()


class Plan(NamedTuple):
    """What a command is called and runs, and the memory that it touches; ``unchanged``, if any,
    says whether what a kernel takes from outside is as it was, ``lasts`` whether the same arguments
    ask for it again; buffers of the same forms do for ``call``, if any. ``launched`` is
    what a fusion takes of it, or why it takes nothing."""

    name: str
    work: Work
    touched: Sequence[Touched]
    unchanged: Callable[[], bool] | None = None
    results: Mapping[str, Buffer] = {}
    lasts: bool = True
    launched: Launched | str = "it is no kernel"
    call: Call | None = None


class Call(NamedTuple):
    """A call that was checked, all of whose results are new: their ``forms``, what it does with all
    arrays by parameter, and those that are ``loose``: packed when it runs."""

    kernel: CompiledKernel
    forms: Mapping[str, ArrayForm]
    accesses: Mapping[str, int]
    loose: Sequence[str]


class Where(NamedTuple):
    """Where the kernels of a queue run: the ``device`` is the target's family."""

    target: Target
    device: str
    threads: int


def key_of(arguments: Sequence[Any]) -> tuple[Any, ...] | None:
    """What tells these arguments from others, without holding memory; None for arrays that are no
    buffers, whose memory may change."""
    parts: list[Any] = []
    for argument in arguments:
        kind = argument.__class__
        if kind is Buffer:
            parts.append(argument.identity)
        elif kind is int or argument is None:
            parts.append(argument)
        elif kind is float and argument:
            parts.append((kind, argument))
        elif kind in _PLAIN or isinstance(argument, np.generic | DType):
            parts.append(exact(argument))
        elif kind is tuple:
            for size in argument:
                if size.__class__ is not int:
                    return None
            parts.append(argument)
        elif kind is Accessor:
            parts.append((kind, argument.buffer.identity, argument.access))
        else:
            return None
    return tuple(parts)


# Arguments.


def array_of(argument: Any, where: Where, name: str, later: bool = False) -> Any:
    """The array, or number, that ``argument`` stands for on the device of a queue. ``later``: a
    buffer that has no memory gets none, but an array that stands for it."""
    buffer = argument.buffer if argument.__class__ is Accessor else argument
    if buffer.__class__ is not Buffer:
        return argument
    if buffer.span.closed:
        raise closed_buffer(name)
    if buffer.device != where.device:
        raise of_device(name, buffer.device, where.device)
    return stand_in(buffer) if later else buffer.array


def touching(argument: Any, access: int, name: str, array: Any = None) -> Touched:
    """The memory behind ``argument``, and what a command does with it: ``access``, or what its
    accessor says. Raises `ArgumentError` where that forbids it."""
    if argument.__class__ is Accessor:
        buffer, said = argument
        if access & WRITE and not said & WRITE:
            raise ArgumentError(
                f"{name} is passed to be read, and is written",
                where=name,
                cure="pass the buffer itself, or its write(), read_write() or discard()",
            )
        if said == WRITE and not access & WRITE:
            raise ArgumentError(
                f"{name} is passed to be discarded, and is read",
                where=name,
                cure="pass the buffer itself, or its read()",
            )
        # An accessor may say more than a command does, and that it needs nothing of what is there.
        return buffer.span, said | (access if said != WRITE else 0)
    if argument.__class__ is Buffer:
        return argument.span, access
    return describe(argument if array is None else array, name).span, access


# Kernels in Python.


def plan_launch(
    function: KernelFunction, launch: Launch, where: Where, later: bool = False
) -> Plan:
    """The launch of a function with `@tw.kernel`. ``later``: buffers get memory when it runs.
    Raises what `KernelFunction.launch` does."""
    names = tuple(function.parameters)
    named = (*names, *map(str, range(len(names), len(launch.arguments))))
    later = later and lacks_memory(launch.arguments)
    values = [
        array_of(argument, where, name, later)
        for argument, name in zip(launch.arguments, named, strict=False)
    ]
    here, copies = launch._replace(arguments=values), False
    try:
        ready, passed, pointers = _fitting(function, here)
    except PlacementError as error:
        placed = function.launches.placed(here, error)
        here, copies = placed.launch, bool(placed.copies)
        ready, passed, pointers = _fitting(function, here)
    _, code, specialized, _ = ready
    arguments = dict(zip(names, launch.arguments, strict=True))
    touched = {
        param.name: touching(arguments[param.name], ACCESSES[param.access], param.name)
        for param in specialized.kernel.arrays
        if param.name in arguments
    }
    for name, place in ready.decided.choice.places:
        if place.same:  # its accessor has to allow what the code does with that one
            touching(arguments[name], touched[place.same][1], name)
    unchanged = function.unchanged(specialized) if specialized.captured else None
    if not math.prod(ready.decided.sizes):
        work: Work = nothing
    elif copies:
        work = _on_copies(function, launch, where)
    elif later:
        bare = launch._replace(arguments=())
        work = when_it_runs(
            launch.arguments,
            lambda them: plan_launch(function, bare._replace(arguments=them), where).work,
        )
    elif specialized.records is not None:
        work = _recorded(function, ready, here, launch.arguments, where)
    else:
        work = work_of(code, pointers, where)
    launched: Launched | str = "it prints, or asserts"
    if copies:
        launched = "some of its arrays are copied: they run backwards, or lie between others"
    elif specialized.records is None:
        parameters = {param.name for param in specialized.kernel.arrays}
        numbers = {n: number_of(value) for n, value in passed.items() if n not in parameters}
        arrays = {name: (names.index(name), value) for name, value in touched.items()}
        gaps = {name: (array, dim) for array, dim, name in specialized.gaps}
        launched = Launched(specialized.kernel, numbers, arrays, specialized.sizes, gaps)
    # Who has tunables asks a database, whose rows may be new.
    lasts = not function.tunables
    return Plan(function.name, work, [*touched.values()], unchanged, lasts=lasts, launched=launched)


def _fitting(
    function: KernelFunction, launch: Launch
) -> tuple[Ready, dict[str, Any], list[Any] | Placed]:
    """The launch, compiled, with its arguments by name, and as the code takes them. Raises what
    `KernelFunction.launch` does where they do not fit."""
    ready = function.launches.ready(launch)
    passed = function.launches.passed(ready.specialized, ready.decided, launch)
    name = ready.specialized.records
    records = {} if name is None else {name: new_records()}
    return ready, passed, ready.code.passed({**passed, **records}, no_results)


def _on_copies(function: KernelFunction, launch: Launch, where: Where) -> Work:
    """As `KernelFunction.launch` runs it: some arrays are copied, and copied back."""
    held, bare = held_weakly(launch.arguments), launch._replace(arguments=())

    def work(threads: int) -> None:
        values = [array_of(argument, where, "an argument") for argument in held()]
        function.launches.run(bare._replace(arguments=values))

    return work


def number_of(value: Any) -> bool | int | float:
    """``value`` as Python has it, of which text can be made."""
    number: bool | int | float = value.item() if isinstance(value, np.generic) else value
    return number


def _recorded(
    function: KernelFunction, ready: Ready, launch: Launch, arguments: Sequence[Any], where: Where
) -> Work:
    """The ``launch``, on ``arguments``, of a kernel that prints or asserts."""
    _, code, specialized, _ = ready
    assert specialized.records is not None
    name, held, bare = specialized.records, held_weakly(arguments), launch._replace(arguments=())

    def work(threads: int) -> None:
        values = [array_of(argument, where, "an argument") for argument in held()]
        here = bare._replace(arguments=values)
        passed, records = function.launches.passed(specialized, ready.decided, here), new_records()
        arguments = code.passed({**passed, name: records}, no_results)
        work_of(code, arguments, where)(threads)
        report(records, specialized.messages, len(ready.decided.sizes))

    return work


def nothing(threads: int) -> None:
    """A launch of no work-items."""


def no_results(name: str, form: ArrayForm) -> Any:
    """Where all arrays of a call are passed."""
    raise AssertionError(f"{name}: launches pass all arrays")


def work_of(code: CompiledKernel, arguments: list[Any] | Placed, where: Where) -> Work:
    """Runs ``code`` on what it was passed."""
    if isinstance(arguments, Placed):
        return _on_device(code, arguments)
    run = code.code.run
    if where.target.divides_threads:

        def work(threads: int) -> None:
            run(arguments, threads)

    else:
        all_threads = code.threads

        def work(threads: int) -> None:
            run(arguments, all_threads)

    return work


def _on_device(code: CompiledKernel, call: Placed) -> Work:
    """The same on a device with memory of its own: on a stream, for which the worker waits."""
    program = code.code.device
    assert program is not None
    run, pointers, placement = program.run_placed, call.pointers, call.placement

    def work(threads: int) -> None:
        run(pointers, placement)

    return work


def queue_target(name: str) -> Target:
    """The target ``name``, whose kernels queues run. Raises what `find_target` does, and
    `UnsupportedError` for one that queues cannot run."""
    target = find_target(name)
    if not target.runs_here:
        raise UnsupportedError(
            f"kernels for {short(name)} do not run here",
            cure="make a queue of a target that runs on this machine",
        )
    first = find_target(name.partition(":")[0])
    if first.space is not target.space:
        raise UnsupportedError(
            f"queues run on {first.place.removeprefix('runs on ')}",
            why=f"kernels for {short(name)} run on another device of this machine",
            cure=f"make a queue of {first.name!r}",
        )
    return target

"""From a kernel, or what gives one, to code that can be called, through the caches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.config import MAX_THREADS, settings
from tilewright.engine.choosing import Chosen, forget_choices, take_chosen
from tilewright.engine.disk_cache import content_key, open_disk_cache
from tilewright.engine.entry import (
    PackedForm,
    Part,
    read_entry,
    read_refusal,
    write_entry,
    write_refusal,
)
from tilewright.engine.fitting import Fitting, PackCode
from tilewright.engine.generator import generator_identity
from tilewright.engine.kept import KeptSteps
from tilewright.engine.kernel import CompiledKernel, Made
from tilewright.engine.numbers import Numbers
from tilewright.engine.program import Code
from tilewright.engine.request import Request, request_of
from tilewright.engine.scheduling import Schedule
from tilewright.engine.signature import ArrayForm
from tilewright.engine.trace import Trace
from tilewright.errors import (
    ArgumentError,
    CompilationError,
    ScheduleError,
    TilewrightError,
    short,
)
from tilewright.facts import Facts, starting_from
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.newest import Newest
from tilewright.recipes import choose
from tilewright.recipes.config import Config, OwnSchedule
from tilewright.recipes.given import GivenConfig, read_config
from tilewright.recipes.users import registered_identity
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.llvm.module import Module
from tilewright.targets.program import Abi, Parameter, Scalar, abi_of, parameters_of
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target

if TYPE_CHECKING:
    from tilewright.engine.winners import Winner

_memory: Newest[str, Made] = Newest(512)
# What the text of a module became: many schedules of a kernel pack its operands by the same code,
# and some differ in nothing else.
_codes: Newest[str, bytes] = Newest(64)


def compile_kernel(
    what: object,
    target: str | None = None,
    threads: int | None = None,
    config: GivenConfig | Mapping[str, Any] | str | None = None,
    trace: Trace | None = None,
    constant: Sequence[str] = (),
    schedule: KernelSchedule | str | None = None,
) -> CompiledKernel:
    """Compiles ``what``, a kernel, what gives one, or a schedule of one, for ``target`` (default:
    the schedule's, or x86), or takes the code from memory or disk.

    ``threads`` run the kernel (default: all); ``config`` overrides the model's choice, all of it or
    some (``{"tile": {"oc": 32}}``, or the text ``"tile={'oc': 32}"``), ``schedule``
    (one, or the text of one) the recipes; ``constant`` names arrays that may be packed before it
    runs; with a ``trace``, which is then filled, the
    caches are not asked. Raises `ArgumentError`, `VerificationError`, `UnsupportedError`,
    `ScheduleError`, `DeviceError`.
    """
    start = time.perf_counter()
    threads = checked_threads(threads)
    if trace is not None and not isinstance(trace, Trace):
        raise ArgumentError(f"{short(trace)} is no trace", cure="pass a Trace, or leave it out")
    if isinstance(what, Schedule):
        prior = what
        schedule = prior if schedule is None else schedule
        what, target = prior.what, prior.target if target is None else target
        # None that are given: those of the schedule.
        constant = prior.constant if isinstance(constant, tuple) and not constant else constant
    where = find_target("x86" if target is None else target)
    request = request_of(what, constant)
    winner = None
    if schedule is not None:
        config = _own(schedule, config, where)
    elif config is not None:
        config = read_config(config)
    else:
        winner = _winner(request, where, threads)
        config = None if winner is None else winner.config
    key = _key(request, where, config)
    try:
        compiled, kept = (None, "") if trace is not None else _kept(key, request, where)
        cached = compiled is not None
        if compiled is None:
            with starting_from(Facts.empty()):
                compiled = _build(request, where, config, key, trace)
        if winner is not None:
            winner.check(compiled.steps)
    except TilewrightError as error:
        if winner is None:
            raise
        winner.set_aside(error)
        return compile_kernel(what, target, threads, trace=trace, constant=constant)
    _memory[key] = compiled
    seconds = time.perf_counter() - start
    if cached and settings().debug:
        Trace().took(f"from the cache {kept}", seconds)
    chosen_here = config is None or winner is not None
    origin = _origin(winner, request, where, threads) if chosen_here else "the caller"
    return CompiledKernel(request, where, compiled, threads, seconds, cached, origin)


def kept_kernel(
    what: object, target: str, threads: int, constant: Sequence[str] = ()
) -> CompiledKernel | None:
    """What `compile_kernel` gives, if it is in memory or on disk; None where it has to be made, or
    is refused."""
    start = time.perf_counter()
    where, request = find_target(target), request_of(what, constant)
    winner = _winner(request, where, threads)
    key = _key(request, where, None if winner is None else winner.config)
    compiled: Made | None = None
    with suppress(CompilationError, ScheduleError):
        cached, _ = _kept(key, request, where)
        if winner is not None and cached is not None:
            winner.check(cached.steps)
        compiled = cached
    if compiled is None:
        return None
    _memory[key] = compiled
    origin = _origin(winner, request, where, threads)
    return CompiledKernel(
        request, where, compiled, threads, time.perf_counter() - start, True, origin
    )


def _winner(request: Request, target: Target, threads: int) -> Winner | None:
    """What the database has, where there is one."""
    database = settings().database
    if database is None or not target.schedules:
        return None
    from tilewright.engine.winners import Asked, winner

    return winner(database, Asked.of(request, target, threads))


def _origin(winner: Winner | None, request: Request, target: Target, threads: int) -> str:
    """Who chose the config, where no caller did, and what of the database does not count."""
    database = settings().database
    if database is None or not target.schedules:
        return "the recipes"
    from tilewright.engine.winners import Asked, origin_of

    return origin_of(winner, "the recipes", database, Asked.of(request, target, threads))


def checked_threads(threads: int | None) -> int:
    """How many threads run a kernel. Raises `ArgumentError` for what is no such number."""
    threads = settings().threads if threads is None else threads
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise ArgumentError(
            f"threads is {short(threads)}", cure=f"pass a whole number from 1 to {MAX_THREADS}"
        )
    return threads


def _key(request: Request, target: Target, config: object) -> str:
    """What tells the code from all other code: without a config, predicted times decide."""
    decides = repr(target.machine.costs) if config is None and target.schedules else ""
    parts = (
        *(generator_identity(), request.identity, target.identity),
        *(repr(config), decides, registered_identity()),
    )
    return content_key(*(part.encode() for part in parts))


def _kept(key: str, request: Request, target: Target) -> tuple[Made | None, str]:
    """What the caches have, and which of them. Raises `CompilationError` for what was refused."""
    cached = _memory.get(key)
    if cached is not None:
        return cached, "in memory"
    return _from_disk(key, request, target), "on disk"


def _own(schedule: object, config: object, target: Target) -> OwnSchedule:
    """What replays ``schedule``, which is given instead of a config."""
    if config is not None:
        raise ArgumentError(
            "a config and a schedule are given",
            why="a config says how a recipe schedules, a schedule is what comes of it",
            cure="leave one of them out",
        )
    if not isinstance(schedule, KernelSchedule | str):
        raise ArgumentError(
            f"{short(schedule)} is no schedule",
            cure="pass a tw.Schedule, or the text of one",
        )
    if not target.schedules:
        raise ArgumentError(
            f"a schedule is given for {target.name}",
            why="it runs kernels as they are",
            cure="compile for the machine that the schedule is for",
        )
    return OwnSchedule(schedule if isinstance(schedule, str) else schedule.text())


def forget() -> None:
    """Drops the kernels that are kept in memory; those in use live on."""
    _memory.clear()
    _codes.clear()
    forget_choices()


def _build(
    request: Request,
    target: Target,
    asked_config: GivenConfig | None,
    key: str,
    asked: Trace | None,
) -> Made:
    """Schedules, lowers and assembles, and leaves the result on disk. Where a trace is asked for,
    each part of that is done.

    What users send may be what no compiler has met: where one ends its process, that is another."""
    trace = Trace() if asked is None else asked
    apart = isinstance(request.what, Kernel)
    if apart:
        target.begin_apart()
    # Who looks at each part wants to see the choice, too.
    chooses = asked_config is None and asked is None and not settings().debug
    chosen = take_chosen(request, target.machine) if chooses and target.schedules else None
    if chosen is None:
        chosen = _scheduled(request, target, asked_config, trace)
    with _remembered(key if apart else None):
        memory = Newest[str, bytes](1) if asked is not None else _codes
        codes = _machine_codes(list(chosen.kernels.values()), target, trace, apart, memory)
    passed = {parameter.name: parameter for parameter in parameters_of(request.signature().params)}
    parts = {
        name: Part(
            binary,
            _called_as(abi_of(kernel, module), passed),
            _packed_form(kernel) if name else None,
        )
        for (name, kernel), (binary, module) in zip(chosen.kernels.items(), codes, strict=True)
    }
    if apart and target.runs_here:
        with _remembered(key):
            for part in parts.values():
                target.build_apart(part.binary, part.abi)
    open_disk_cache().put(key, *write_entry(key, chosen.config, parts, chosen.steps))
    return _load(request, target, chosen.config, parts, chosen.steps)


def _scheduled(
    request: Request, target: Target, values: GivenConfig | None, trace: Trace
) -> Chosen:
    """What comes of the config that is given, or of the one that recipes prefer."""
    with trace.part("schedule"), trace.rewrites():
        start = request.start()
        if not target.schedules:
            config, scheduled = choose.unscheduled(start)
        elif values is None:
            config, scheduled = choose.choose(start, target.machine)
        else:
            config, scheduled = choose.schedule_given(start, target.machine, values)
    trace.stages(scheduled.log.entries)
    return Chosen.of(config, scheduled)


@contextmanager
def _remembered(key: str | None) -> Iterator[None]:
    """What is refused inside is not tried again: the entry for ``key`` says so."""
    try:
        yield
    except CompilationError as error:
        # One with a place in a text was found before any compiler ran, and is found again.
        if key is not None and error.span is None:
            open_disk_cache().put(key, b"", write_refusal(error))
        raise


def _called_as(abi: Abi, passed: Mapping[str, Parameter | Scalar]) -> Abi:
    """``abi`` with arrays in the shapes in which they are passed: a schedule may have given the
    same memory others."""
    return replace(
        abi, parameters=tuple(passed.get(parameter.name, parameter) for parameter in abi.parameters)
    )


def _machine_codes(
    kernels: Sequence[Kernel],
    target: Target,
    trace: Trace,
    apart: bool,
    memory: Newest[str, bytes],
) -> list[tuple[bytes, Module]]:
    """The code of each kernel, and the module that it was made of."""
    codes: list[tuple[bytes, Module]] = []
    with ExitStack() as stack:
        pool: ThreadPoolExecutor | None = None
        if target.assembles_aside and len(kernels) > 1:
            pool = stack.enter_context(ThreadPoolExecutor(len(kernels)))
        begun: list[tuple[Module, Callable[[], tuple[bytes, float]]]] = []
        for kernel in kernels:
            kernel = trace.passes(kernel) if target.schedules else kernel
            trace.kernel(kernel)
            with trace.part("lower"), trace.rewrites():
                module = target.lower(kernel)
            work = partial(_assembled, target, module, kernel.name, apart, memory)
            begun.append((module, pool.submit(work).result if pool is not None else work))
        for module, finish in begun:
            binary, seconds = finish()
            trace.took("assemble", seconds)
            trace.code(partial(target.assembly, module))
            codes.append((binary, module))
    return codes


def _assembled(
    target: Target, module: Module, name: str, apart: bool, memory: Newest[str, bytes]
) -> tuple[bytes, float]:
    """The binary, which may be in ``memory``, and the seconds that it took."""
    start = time.perf_counter()
    key = content_key(target.identity.encode(), module.text.encode())
    try:
        code = memory.get(key)
        if code is None:
            code = memory[key] = target.assemble(module, apart)
        return code, time.perf_counter() - start
    except CompilationError as error:
        cure = f"{error.cure}; or compile for another target"
        what = f"{name}: {error.what}"
        raise CompilationError(what, where=error.where, why=error.why, cure=cure) from error


def _packed_form(pack: Kernel) -> PackedForm:
    """What a kernel that packs makes."""
    buffers = [array.buffer for array in pack.arrays if array.access != "in"]
    extents = [(buffer.dtype, buffer.layout.extent) for buffer in buffers]
    # Kernels of any name may pack alike.
    text = to_text(replace(pack, name="pack"))
    forms = tuple(ArrayForm(dtype, (extent,), (1,), extent) for dtype, extent in extents)
    return PackedForm(forms, content_key(text.encode()))


def _from_disk(key: str, request: Request, target: Target) -> Made | None:
    entry = open_disk_cache().get(key)
    entry_parts = None if entry is None else read_entry(entry, request)
    if entry_parts is None:
        refused = None if entry is None else read_refusal(entry)
        if refused is not None:
            raise refused
        return None
    try:
        return _load(request, target, *entry_parts)
    except TilewrightError:
        # The code cannot be loaded: that which is compiled now can, or says why not.
        return None


def _load(
    request: Request, target: Target, config: Config, parts: Mapping[str, Part], steps: KeptSteps
) -> Made:
    codes = {name: Code(target, part.binary, part.abi) for name, part in parts.items()}
    packs = {
        name: PackCode(codes[name], part.packed.forms, part.packed.key)
        for name, part in parts.items()
        if part.packed is not None
    }
    code = codes[""]
    signature = request.signature()
    compiled = Made(config, code, packs, signature, steps)
    if signature.scalars or signature.constants:
        constants = request.start().kernel.constants
        numbers = Numbers(signature, packs, code, target.name, request.name, constants)
        return replace(compiled, numbers=numbers)
    return replace(compiled, fitting=Fitting(signature, signature.forms, packs, code, target.name))

"""Measuring what a machine's rates are fitted to: many kernels, by several configs each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tilewright.bench.benchmark import make_arrays
from tilewright.bench.timed_records import TimedRecord, append, read_records
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.errors import TilewrightError
from tilewright.ir.printer import to_text
from tilewright.machines.machine import Machine
from tilewright.measure.rounds import measure
from tilewright.recipes import choose
from tilewright.recipes.config import Config
from tilewright.recipes.start import Start
from tilewright.targets.x86.assemble import host_cpu
from tilewright.testing.case import Case
from tilewright.testing.timed_cases import TimedCase

# What nobody would choose is not waited for: the longest time of a call, in seconds, but for
# defaults, and how many times as long as the default.
_LONGEST, _WORST = 0.1, 30.0
# The part of other configs that are near the default, and how often one is drawn for each.
_NEAR, _TRIES = 0.7, 4

Alone = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Prepared:
    """A case, and its kernels by the texts of their schedules: that of its default first."""

    case: TimedCase
    kernels: Mapping[str, CompiledKernel]


def collect(
    cases: Iterable[TimedCase],
    target: str,
    threads: int,
    file: Path,
    *,
    others: int = 2,
    seconds: float = 0.1,
    batch: int = 50,
    alone: Alone = nullcontext,
    progress: Callable[[str], object] = print,
) -> Iterator[TimedRecord]:
    """Times ``cases`` by their default and up to ``others`` more configs each, on ``threads``.

    What ``file`` has is not measured again, and what is measured is added to it, problem by
    problem. ``batch`` cases are compiled at a time, and then measured inside of ``alone``, for
    about ``seconds`` for each kernel. ``progress`` gets a line for each batch. A case that is
    refused is passed over.
    """
    done = {record.run for record in read_records(file)}
    left = (case for case in cases if (case.name, target, threads) not in done)
    start, count = time.perf_counter(), 0
    while prepared := list(_prepared(left, target, threads, others, batch)):
        with alone():
            for task in prepared:
                records = timed(task, seconds)
                append(file, records)
                count += len(records)
                yield from records
        progress(
            f"{count} kernels in {time.perf_counter() - start:.0f} s, of {len(prepared)} problems "
            f"the last time: {records[0].problem} took {1e6 * records[0].seconds:.1f} us"
        )


def _prepared(
    cases: Iterator[TimedCase], target: str, threads: int, others: int, number: int
) -> Iterator[Prepared]:
    """The next so many cases, compiled, without those that are refused."""
    for case in islice(cases, number):
        try:
            yield prepare(case, target, threads, others)
        except TilewrightError:
            continue


def prepare(case: TimedCase, target: str, threads: int, others: int) -> Prepared:
    """Compiles a case by its default and up to ``others`` more configs that schedule it otherwise,
    the same for the same case.

    Raises what compiling the default does.
    """
    what = case.what
    default = compile_kernel(what, target, threads)
    rng, machine = random.Random(case.name), default.target.machine
    kernels = {to_text(default.schedule.kernel): default}
    for config in _others(default.start, machine, default.config, others, rng):
        try:
            kernel = compile_kernel(what, target, threads, config)
        except TilewrightError:
            continue  # not legal
        kernels.setdefault(to_text(kernel.schedule.kernel), kernel)
    return Prepared(case, kernels)


def _others(
    start: Start, machine: Machine, default: Config, number: int, rng: random.Random
) -> Iterator[Config]:
    """At most ``number`` configs of the recipes' space, good and bad, other than ``default`` and
    each once: most are near it."""
    space = choose.space_of(start, machine)
    passed = {default}
    for _ in range(_TRIES * number):
        near = rng.random() < _NEAR
        config = space.mutated(default, rng) if near else space.drawn(rng)
        if config not in passed:
            passed.add(config)
            yield config
        if len(passed) > number:
            return


def timed(prepared: Prepared, seconds: float) -> list[TimedRecord]:
    """The kernels timed in turn, warm, for about ``seconds`` each. Configs that take very much
    longer than the default are left out."""
    texts, kernels = list(prepared.kernels), list(prepared.kernels.values())
    calls = [kernel.bind(**arrays) for kernel, arrays in _with_arrays(prepared)]
    first = [_call_seconds(call) for call in calls]
    longest = min(_LONGEST, _WORST * first[0])
    chosen = [n for n, taken in enumerate(first) if n == 0 or taken <= longest]
    sides = {str(n): calls[n] for n in chosen}
    threads = kernels[0].threads
    measured = measure(sides, seconds=seconds, threads=threads, apart=False)
    times = measured.times
    case, target = prepared.case, kernels[0].target
    return [
        TimedRecord(
            kind=case.kind,
            problem=case.name,
            target=target.name,
            processor=host_cpu(),
            threads=threads,
            config=repr(kernels[n].config),
            default=n == 0,
            seconds=times[str(n)].median,
            best=times[str(n)].best,
            error=times[str(n)].error,
            text=texts[n],
            numbers=dict(case.numbers),
            noise=measured.noise,
        )
        for n in chosen
    ]


def _with_arrays(prepared: Prepared) -> Iterator[tuple[CompiledKernel, dict[str, Any]]]:
    """The kernels with the arguments of a call: the same arrays where none is packed."""
    shared: dict[str, Any] | None = None
    for kernel in prepared.kernels.values():
        if kernel.packed or shared is None:
            arrays = _arrays(prepared.case, kernel)
            shared = shared if kernel.packed else arrays
        yield kernel, arrays if kernel.packed or shared is None else shared


def _arrays(timed: TimedCase, kernel: CompiledKernel) -> dict[str, Any]:
    case = timed.case
    return make_arrays(kernel) if isinstance(case, Case) else case.call(kernel)


def _call_seconds(call: Callable[[], object]) -> float:
    """Seconds of a second call: the first one meets memory that it never saw."""
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

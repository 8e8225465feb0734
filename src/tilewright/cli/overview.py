"""Why a kernel is as fast as it is: the head of its page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from tilewright.bench.benchmark import make_arrays
from tilewright.bench.floor import Floor, floor_of
from tilewright.cli.cases import AnyCase
from tilewright.engine import CompiledKernel
from tilewright.engine.cost import Cost
from tilewright.engine.hot_loop import hot_loop
from tilewright.engine.overview import Bar, Overview
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.measure.rounds import Measured, measure
from tilewright.recipes import choose
from tilewright.recipes.recipe import AnyCandidate, table
from tilewright.testing.kernel_case import KernelCase

# Seconds of timing a call; candidates shown in each group.
_SECONDS, _CANDIDATES = 0.3, 5
# Remarks: on times so much greater than predicted, and on a smaller part of the roofline.
_MISJUDGED, _CLOSE = 2.0, 0.8


def overview_of(kernel: CompiledKernel, case: AnyCase) -> Overview:
    """Times a call, if it can run here, and compares it with the prediction and the roofline."""
    cost = _cost(kernel)
    groups = choose.candidates(kernel.start, kernel.target.machine, kernel.config)
    times, why_no_time = _measured(kernel, case)
    floor, why_no_floor = _floor(kernel, cost)
    predicted = _predicted([candidates[0] for _, candidates in groups.values()])
    seconds = None if times is None else times.times["ours"].median
    noise = "" if times is None or not times.noise else f"noisy: {times.noise[0]}"
    bars = [
        Bar("measured", seconds, why_no_time or noise or f"a call, threads={kernel.threads}"),
        Bar("predicted", predicted, "by the model that chose the config, on all cores"),
        Bar("roofline", None if floor is None else floor.seconds, why_no_floor or _source(floor)),
    ]
    lines = [
        line
        for _, candidates in groups.values()
        if any(candidate.prediction for candidate in candidates)
        for line in table(candidates[:_CANDIDATES])
    ]
    verdict = list(_verdict(kernel, seconds, predicted, floor, cost))
    return Overview(verdict, bars, lines, hot_loop(_assembly(kernel)))


def _source(floor: Floor | None) -> str:
    return "" if floor is None else f"by {floor.level or 'arithmetic'} ({floor.source})"


def _verdict(
    kernel: CompiledKernel,
    seconds: float | None,
    predicted: float | None,
    floor: Floor | None,
    cost: Cost | None,
) -> Iterator[str]:
    """The bound, then hints at improvements."""
    if floor is None:
        yield "How fast it could be is not known."
    else:
        limit = floor.level or "arithmetic"
        time = seconds if seconds is not None else predicted
        if time is None:
            yield f"The least is limited by {limit}."
        else:
            part = floor.seconds / time
            suffix = "" if seconds is not None else ", as predicted"
            excess = "" if part >= _CLOSE else f"; {1 / part:.1f} times as long as the least"
            yield f"{part:.0%} of what {limit} allows{suffix}{excess}."
    # The model predicts for all cores.
    all_cores = kernel.threads == kernel.target.machine.cores
    if all_cores and seconds is not None and predicted is not None:
        times = seconds / predicted
        if times > _MISJUDGED:
            yield f"It takes {times:.1f} times what the model predicts."
    if cost is not None and cost.spills:
        yield f"{cost.spills} spills: the register tile is too large, or other values live on."
    instruction = kernel.instruction
    if instruction:
        yield f"Instruction: {instruction}."
    yield from (f"{note}." for note in islice(kernel.schedule.log.notes, 3))


def _measured(kernel: CompiledKernel, case: AnyCase) -> tuple[Measured | None, str]:
    """The times of a call, or why there are none."""
    if not kernel.target.on_processor:
        return None, f"not measured: {kernel.target.place}"
    if isinstance(case, KernelCase):
        # It may do anything: showing a kernel must not run it.
        return None, "not measured: tilewright bench kernel runs it"
    try:
        call = kernel.bind(**make_arrays(kernel))
    except TilewrightError as error:
        return None, f"not measured: {error.what}"
    return measure({"ours": call}, seconds=_SECONDS, threads=kernel.threads), ""


def _floor(kernel: CompiledKernel, cost: Cost | None) -> tuple[Floor | None, str]:
    try:
        if cost is None:
            raise UnsupportedError("there is no assembly")
        return floor_of(kernel, cost), ""
    except UnsupportedError as error:
        return None, error.what


def _predicted(chosen: list[AnyCandidate]) -> float | None:
    """The predicted seconds of all groups, if all are predicted."""
    if not all(candidate.prediction for candidate in chosen):
        return None
    return math.fsum(candidate.prediction.seconds for candidate in chosen)


def _cost(kernel: CompiledKernel) -> Cost | None:
    try:
        return kernel.cost()
    except UnsupportedError:
        return None


def _assembly(kernel: CompiledKernel) -> str:
    try:
        return with_remarks(kernel)
    except UnsupportedError:
        return ""


def with_remarks(kernel: CompiledKernel) -> str:
    """The assembly with the compiler's remarks, such as spills. Raises `UnsupportedError` if the
    target has no assembly."""
    return kernel.target.assembly(kernel.module, remarks=True)

"""All that a scheduled kernel does, as numbers: what costs are multiplied with.

Code is divided in *bodies* (straight-line code), and these are in *phases*: what runs while lines
of one working set move. Numbers are those of the thread that has the most to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.facts.usual import typical
from tilewright.ir.buffer import Space
from tilewright.ir.operators import SOFTWARE
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.predict.bodies import Body, bodies_of
from tilewright.predict.lines import held, lines_of
from tilewright.predict.nest import FLAT, Nest, nest_of
from tilewright.predict.traffic import PARALLEL, Moved, Traffic, shares

# Kinds of work, by what does it: they go on at the same time.
ARITHMETIC = (
    "multiply-add", "dot", "tile", "simple", "divide", "widen", "narrow", "shuffle", "transpose",
    "scalar",
    *sorted(SOFTWARE),
)  # fmt: skip
ACCESSES = ("load", "load masked", "store", "store masked", "split", "gather", "scatter")
WAITS = (
    "waits multiply-add", "waits dot", "waits tile", "waits float", "waits minimum",
    "waits converted", "waits divide", "waits simple", "waits memory",
)  # fmt: skip
LOOPS = ("turns", "starts")
MOVES = tuple(
    f"{level}{how}"
    for level in ("L2", "L3", "memory")
    for how in ("", " apart", " scattered", " written")
)
STREAMED = "memory streamed"
CALLS = ("calls", "regions", "starts of threads")
KINDS = (*ARITHMETIC, *ACCESSES, *WAITS, *LOOPS, *MOVES, STREAMED, *CALLS)
COLUMN = {kind: column for column, kind in enumerate(KINDS)}


@dataclass(frozen=True, eq=False)
class Work:
    """``bodies`` and ``phases`` have a row each and a column for each of `KINDS`: bodies what they
    compute, phases the lines that move. ``phase_of`` has the phase of each body. ``overheads`` are
    those of the call."""

    bodies: NDArray[np.float64]
    phase_of: NDArray[np.int64]
    phases: NDArray[np.float64]
    overheads: NDArray[np.float64]


def work_of(kernel: Kernel, machine: Machine, threads: int, warm: bool = True) -> Work:
    """What ``kernel``, as it is scheduled, does on so many threads. ``warm``: what it reads is in
    the caches, as far as it has room there."""
    root = nest_of(typical(kernel))
    lines = lines_of(root, machine)
    registers = held(root, lines, machine)
    traffic = Traffic(lines, registers, shares(root, threads), machine)
    bodies = bodies_of(lines, registers, machine)
    times = _executions(root, threads)
    phases: dict[Nest, int] = {}
    numbers = [phases.setdefault(traffic.phase_of(body.nest, root), len(phases)) for body in bodies]
    rows = np.zeros((len(bodies), len(KINDS)))
    for row, body in zip(rows, bodies, strict=True):
        _fill(row, body, times)
    moves = np.zeros((len(phases), len(KINDS)))
    by_nest = {body.nest: number for body, number in zip(bodies, numbers, strict=True)}
    for moved in traffic.moved(root, warm):
        for kind, number in _moves(moved, machine, threads):
            moves[by_nest[moved.nest], COLUMN[kind]] += number
    return Work(rows, np.array(numbers, np.int64), moves, _overheads(root, threads))


def _fill(row: NDArray[np.float64], body: Body, times: Mapping[Nest, float]) -> None:
    for kind, number in body.counts.items():
        row[COLUMN[kind]] = number * times[body.nest]
    if body.nest.kind not in FLAT and body.nest.var is not None:
        row[COLUMN["turns"]] = times[body.nest]
        row[COLUMN["starts"]] = times[body.nest] / max(body.nest.extent, 1.0)


def _moves(moved: Moved, machine: Machine, threads: int) -> Iterator[tuple[str, float]]:
    """The lines that one thread moves, by kind."""
    levels = len(machine.caches)
    level = ("L2", "L3", "memory")[moved.level + 3 - levels]
    shared = moved.level == levels - 1
    lines = moved.lines / (threads if shared else 1)
    access = moved.box.access
    if access.streamed and shared:
        yield STREAMED, lines
        return
    if access.buffer.space is Space.PRIVATE and shared:
        return
    yield f"{level} {moved.box.how}".strip(), lines
    if moved.box.written:
        yield f"{level} written", lines


def _executions(root: Nest, threads: int) -> dict[Nest, float]:
    """How often the code in each nest runs on the thread that has the most to do."""
    times_of: dict[Nest, float] = {}

    def visit(nest: Nest, times: float, parallel: bool) -> None:
        if nest.kind in PARALLEL and not parallel:
            parallel = True
            iterations = max(1.0, _iterations(nest))
            times *= math.ceil(iterations / threads) / iterations
        times_of[nest] = times * nest.turns
        for part in nest.nests:
            visit(part, times_of[nest], parallel)

    visit(root, 1.0, False)
    return times_of


def _iterations(nest: Nest) -> float:
    """Iterations of a parallel loop and of those directly inside, which are shared out as one."""
    (inner,) = nest.parts if len(nest.parts) == 1 else (None,)
    if isinstance(inner, Nest) and inner.kind in PARALLEL:
        return nest.extent * _iterations(inner)
    return nest.extent


def _overheads(root: Nest, threads: int) -> NDArray[np.float64]:
    """Starts of threads: once a parallel loop, if there is anything to share."""
    regions = _regions(root, 1.0)
    counts = {"calls": 1.0, "regions": regions, "starts of threads": regions * (threads > 1)}
    row = np.zeros(len(KINDS))
    for kind, number in counts.items():
        row[COLUMN[kind]] = number
    return row


def _regions(nest: Nest, times: float) -> float:
    if nest.kind in PARALLEL:
        return times if _iterations(nest) > 1 else 0.0
    return sum(_regions(part, times * nest.turns) for part in nest.nests)

"""Where what the steps of a program leave to each other lies: one arena, planned beforehand.

Each buffer lives from the first step that touches it to the last; where that is inside of a loop
around which it is allocated, through all of the loop. Buffers that live at the same time lie apart,
others may share memory. To pack them well is bin packing in two dims; greedy by size comes close
(Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020), and of a few
such orders the best is taken.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.cutting import Cut, GraphStep
from tilewright.graph.launches import Launch
from tilewright.ir.buffer import Buffer
from tilewright.runtime.steps import IfStep, WhileStep

ALIGNMENT = 64
# Orders that are tried by chance, where those by rule leave more than this beside the live set.
_TRIES, _ENOUGH = 64, 1.02


@dataclass(frozen=True)
class Live:
    """Memory of ``size`` bytes that is needed from step ``first`` to step ``last``."""

    what: Hashable
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """``bytes`` in all, and where each thing lies; ``live`` is what the step with the most needs
    at once, which no plan can be below."""

    bytes: int
    offsets: Mapping[Hashable, int]
    live: int


def lifetimes(cut: Cut) -> list[Live]:
    """Of each buffer between the steps of ``cut``, when it has to be there: steps are counted by
    launches, in the order of the text."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for buffer, first, last in _spans(cut.steps, _Clock(iter(cut.loops))):
        span = spans.get(buffer, (first, last))
        spans[buffer] = min(first, span[0]), max(last, span[1])
    return [Live(buffer, buffer.bytes, *spans[buffer]) for buffer in cut.between]


@dataclass
class _Clock:
    loops: Iterator[frozenset[Buffer]]
    now: int = -1


def _spans(steps: Sequence[GraphStep], clock: _Clock) -> Iterator[tuple[Buffer, int, int]]:
    for step in steps:
        match step:
            case Launch():
                clock.now += 1
                yield from ((buffer, clock.now, clock.now) for buffer in step.buffers)
            case WhileStep():
                start, inside = clock.now + 1, next(clock.loops, frozenset())
                for buffer, first, last in [*_spans((*step.before, *step.body), clock)]:
                    yield (buffer, first, last) if buffer in inside else (buffer, start, clock.now)
            case IfStep():
                yield from _spans((*step.then, *step.orelse), clock)


def plan(things: Sequence[Live]) -> Arena:
    """Places for ``things``, each at a multiple of 64 bytes."""
    if not things:
        return Arena(0, {}, 0)
    table = _Table(things)
    rules: tuple[NDArray[np.int64], ...] = (
        np.lexsort((table.first, -table.size)),
        np.lexsort((-table.size, -(table.last - table.first))),
        np.lexsort((-table.size, table.first)),
        np.lexsort((-table.size * (table.last - table.first + 1),)),
    )
    best, offsets = min((table.placed(order) for order in rules), key=lambda placed: placed[0])
    live = table.most_live()
    rng = random.Random(0)
    order = list(map(int, rules[0]))
    for _ in range(_TRIES if len(things) <= 512 else 0):
        if best <= live * _ENOUGH:
            break
        tried = list(order)
        for _ in range(rng.randint(1, 4)):
            one, other = rng.randrange(len(tried)), rng.randrange(len(tried))
            tried.insert(other, tried.pop(one))
        size, tried_offsets = table.placed(np.array(tried))
        if size <= best:
            order = tried
            best, offsets = size, tried_offsets
    places = {thing.what: int(at) for thing, at in zip(things, offsets, strict=True)}
    return Arena(int(best), places, live)


class _Table:
    """Things as arrays: all are compared with all."""

    def __init__(self, things: Sequence[Live]) -> None:
        sizes = np.array([thing.size for thing in things], np.int64)
        self.size = -(-np.maximum(sizes, 1) // ALIGNMENT) * ALIGNMENT
        self.first = np.array([thing.first for thing in things], np.int64)
        self.last = np.array([thing.last for thing in things], np.int64)

    def most_live(self) -> int:
        """The bytes that are needed at once at some step."""
        change = np.zeros(int(self.last.max()) + 2, np.int64)
        np.add.at(change, self.first, self.size)
        np.add.at(change, self.last + 1, -self.size)
        return int(change.cumsum().max())

    def placed(self, order: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
        """The bytes and the places where each in turn goes into the lowest gap that holds it."""
        offsets = np.full(len(order), -1, np.int64)
        for n in order:
            beside = (offsets >= 0) & (self.first <= self.last[n]) & (self.first[n] <= self.last)
            taken = np.flatnonzero(beside)
            taken = taken[np.argsort(offsets[taken], kind="stable")]
            starts = offsets[taken]
            ends = np.maximum.accumulate(starts + self.size[taken]) if len(taken) else starts
            # A gap is before a thing that is placed, after all before that.
            before = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(taken)]
            fits = np.flatnonzero(starts - before >= self.size[n])
            if len(fits):
                offsets[n] = before[fits[0]]
            else:
                offsets[n] = ends[-1] if len(ends) else 0
        return int((offsets + self.size).max()), offsets

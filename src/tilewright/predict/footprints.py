"""The memory that loops reach: of each access a box of indices, and how many cache lines it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.facts.usual import usual
from tilewright.ir.expr import Binary, Bitcast, Cast, Const, Expr, Select, Unary, Var
from tilewright.ir.load import Load
from tilewright.ir.visit import loads_in, variables
from tilewright.predict.steps import Access

# Runs with less than this between them are fetched as one; and those of so many lines, whatever
# comes in between.
_NEAR_BYTES = 960
_RUN_LINES = 16.0
# So many runs in turn are fetched ahead; from so many on, each is in a page of its own that the
# processor has to look up again.
_STREAMS = 12.0, 40.0
# Integers so far apart are still a run, whose elements share lines.
_NEAR = 8


@dataclass(frozen=True)
class Range:
    """Integers that an index takes: the first, how many, and how far the last is from the first.
    They come in runs of ``run`` integers, from the first to the last of which it is ``reach``."""

    start: float
    count: float
    span: float
    run: float = 1
    reach: float = 1


@dataclass(frozen=True)
class Runs:
    """Runs of neighbours of so many ``bytes``, which begin at multiples of ``distance`` bytes (0:
    there is one), and come from so many ``streams`` in turn."""

    bytes: float
    streams: float
    distance: int

    def crowding(self, way: int, line: int) -> float:
        """How many times as much of a cache they take as of one without sets: runs that begin a
        whole ``way`` apart share sets."""
        if not self.distance:
            return 1.0
        return max(1.0, math.gcd(self.distance, way) / max(self.bytes, line))


@dataclass(eq=False)
class Box:
    """What an access reaches: a range in each dim of its buffer, in so many cache ``lines``.
    ``how``: "" where they are neighbours, "apart" where they come from several places in turn,
    "scattered" where from many. ``written``: some of it. ``places``: how many lines are reached, in
    any order, where indices are loaded."""

    access: Access
    ranges: tuple[Range, ...]
    lines: float
    how: str
    written: bool
    places: float
    runs: Runs

    def meets(self, other: Box, line: int) -> bool:
        """Whether half of the smaller one is in the other, or in the same lines of so many bytes:
        columns beside others are."""
        parts = self.access.buffer.layout.parts
        last = min(parts, key=lambda part: usual(part.stride), default=None)
        for dim, (a, b) in enumerate(zip(self.ranges, other.ranges, strict=True)):
            both = min(a.start + a.span, b.start + b.span) - max(a.start, b.start) + 1
            least = min(a.span, b.span) + 1
            if last is not None and dim == last.dim and usual(last.stride) == 1:
                near = line / 2 / self.access.buffer.dtype.bytes
                both += near if least <= near else 0
            if both < least / 2:
                return False
        return True


def box_of(access: Access, loops: Mapping[Var, float], line: int) -> Box:
    """What ``access`` reaches in ``loops`` (their extents, outermost first), all others at 0."""
    done: dict[Expr, Range] = {}
    ranges = tuple(_range(index, loops, done) for index in access.index)
    sizes = map(usual, access.buffer.sizes)
    ranges = tuple(_within(range_, size) for range_, size in zip(ranges, sizes, strict=True))
    lines, runs = _lines(access, ranges, line), _runs(access, loops, line)
    loaded = _loaded(access)
    places = math.prod(size for v, size in loops.items() if v in loaded) if loaded else 0.0
    if places:
        # Each place is a run of its own.
        rest = {v: size for v, size in loops.items() if v not in loaded}
        places *= box_of(access, rest, line).lines if len(rest) < len(loops) else lines
    few, many = _STREAMS
    streams = max(places, runs.streams)
    how = "scattered" if streams > many else "apart" if streams > few else ""
    return Box(access, ranges, lines, how, access.writes, places, runs)


def _loaded(access: Access) -> frozenset[Var]:
    """The loops that say where in memory an index is loaded from."""
    loads = (load for index in access.index for load in loads_in(index))
    return frozenset[Var]().union(*map(variables, loads))


def _runs(access: Access, loops: Mapping[Var, float], line: int) -> Runs:
    """The runs that ``loops`` reach, the innermost loops first. Where a loop fills what is between
    the runs of another, these are one."""
    width = access.buffer.dtype.bytes
    run = 1.0
    jumps: list[tuple[float, float, float]] = []  # step, iterations, streams
    lanes: list[Var] = [v for v in loops if v in access.lanes]
    lanes.sort(key=lambda v: abs(access.steps.get(v) or math.inf))
    for variable in (*lanes, *(v for v in reversed([*loops]) if v not in access.lanes)):
        step, turns = access.steps.get(variable, 0), loops[variable]
        if step == 0 or turns <= 1:
            continue
        size = math.inf if step is None else abs(step)
        apart = (size - run) * width >= _NEAR_BYTES and run * width < _RUN_LINES * line
        jumps.append((size, turns, turns if apart else 1.0))
        for jump in sorted(jumps):
            # What is between them is less than a line, so all lines are reached.
            if (jump[0] - run) * width < line:
                run += jump[0] * (jump[1] - 1)
                jumps.remove(jump)
    distance = math.gcd(*(1 if math.isinf(size) else int(size) * width for size, _, _ in jumps))
    return Runs(run * width, math.prod(streams for _, _, streams in jumps), distance)


def joined(boxes: Sequence[Box], line: int) -> list[Box]:
    """``boxes`` without those that are in others, or in their lines of so many bytes."""
    kept: list[Box] = []
    for box in sorted(boxes, key=lambda box: -math.prod(range_.count for range_ in box.ranges)):
        for other in kept:
            if other.access.buffer is box.access.buffer and other.meets(box, line):
                other.written = other.written or box.written
                break
        else:
            kept.append(box)
    return kept


def _within(range_: Range, size: int) -> Range:
    least = max(size - 1, 0)
    run, reach = min(range_.run, size), min(range_.reach, size)
    return Range(range_.start, min(range_.count, size), min(range_.span, least), run, reach)


def _range(expr: Expr, loops: Mapping[Var, float], done: dict[Expr, Range]) -> Range:
    """The integers that ``expr`` takes."""
    range_ = done.get(expr)
    if range_ is None:
        range_ = done[expr] = _range_of(expr, loops, done)
    return range_


def _range_of(expr: Expr, loops: Mapping[Var, float], done: dict[Expr, Range]) -> Range:
    match expr:
        case Const():
            return Range(int(expr.value), 1, 0)
        case Var():
            extent = max(loops.get(expr, 1.0), 1.0)
            return Range(0, extent, extent - 1, extent, extent)
        case Binary():
            return _of_two(expr.op, _range(expr.a, loops, done), _range(expr.b, loops, done))
        case Cast() | Bitcast() | Unary():
            inner = _range(expr.a, loops, done)
            negative = isinstance(expr, Unary) and expr.op == "neg"
            return replace(inner, start=-inner.start - inner.span) if negative else inner
        case Select():
            return _wider(_range(expr.a, loops, done), _range(expr.b, loops, done))
        case Load():
            # Any element: as many as there are places to load from.
            places = math.prod(_range(index, loops, done).count for index in expr.index)
            return Range(0, places, math.inf if places > 1 else 0)
        case _:
            return Range(0, 1, 0)


def _of_two(op: str, a: Range, b: Range) -> Range:
    if op in ("add", "sub"):
        start = a.start + b.start if op == "add" else a.start - b.start - b.span
        span = a.span + b.span
        count = min(a.count * b.count, span + 1)
        if count == span + 1:
            return Range(start, count, span, count, count)
        reach = a.reach + b.reach - 1
        return Range(start, count, span, min(a.run * b.run, reach), reach)
    if op == "mul":
        factor, other = (a, b) if a.count == 1 else (b, a)
        return _times(other, factor.start) if factor.count == 1 else _product(a, b)
    if op == "floordiv" and b.count == 1 and b.start > 0:
        span = a.span / b.start if math.isinf(a.span) else a.span // b.start
        count = min(a.count, span + 1)
        return Range(a.start // b.start, count, span, count, count)
    if op == "mod" and b.count == 1 and b.start > 0:
        if a.span < b.start:
            return replace(a, start=a.start % b.start)
        run, reach = min(a.run, b.start), min(a.reach, b.start)
        return Range(0, min(a.count, b.start), b.start - 1, run, reach)
    return _wider(a, b)


def _times(range_: Range, factor: float) -> Range:
    if factor == 0:
        return Range(0, 1, 0)
    start = min(range_.start * factor, (range_.start + range_.span) * factor)
    start = 0 if math.isinf(range_.span) else start
    span = range_.span * abs(factor)
    if abs(factor) > _NEAR:
        return Range(start, range_.count, span)
    return Range(start, range_.count, span, range_.run, (range_.reach - 1) * abs(factor) + 1)


def _product(a: Range, b: Range) -> Range:
    return Range(a.start * b.start, a.count * b.count, a.span * b.span)


def _wider(a: Range, b: Range) -> Range:
    return a if a.count >= b.count else b


def _lines(access: Access, ranges: Sequence[Range], line: int) -> float:
    """Cache lines of a box."""
    width = access.buffer.dtype.bytes
    left = list(ranges)
    run, runs, reach, dense = 1.0, 1.0, 0.0, True
    for block in sorted(access.buffer.layout.parts, key=lambda block: usual(block.stride)):
        size, stride = usual(block.size), usual(block.stride)
        range_ = left[block.dim]
        taken = min(range_.count, size)
        near = dense and stride == run and (run == 1 or range_.run == range_.reach)
        run *= min(range_.reach, size) if near else 1.0
        runs *= taken / (min(range_.run, taken) if near else 1.0)
        dense = near and min(range_.run, taken) == size
        reach += min(range_.span, size - 1) * stride
        over = max(1.0, math.ceil(range_.count / size))
        left[block.dim] = Range(0, over, range_.span // size if size else 0, over, over)
    bytes_ = run * width
    lines = bytes_ / line if bytes_ % line == 0 else 1 + (bytes_ - 1) / line
    most = 1 + reach * width / line
    return min(runs * lines, most)

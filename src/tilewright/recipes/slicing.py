"""The reduction of a contraction on a CPU in slices, which are added up afterwards, in order: where
the result has fewer tiles than there are threads, or a tile reads more than a cache holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, prod
from operator import truediv

from tilewright.layout.roles import MAIN
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.contraction_shape import Shape
from tilewright.recipes.model import Estimate
from tilewright.recipes.roles import extents, find_compute, named_after
from tilewright.schedule.schedule import KernelSchedule

# Of a cache, what factors have, and who else has a part of the last one.
_ROOM, _OTHERS = 0.75, 4
# What slices have to take less of, to be worth their memory.
_WORTH = 0.75
_NEAR = 1.05
_MOST = 256


def counter(dim: str) -> str:
    """The dim that counts the slices of ``dim``."""
    return named_after(dim, "slice")


def sliced(s: KernelSchedule, slices: Mapping[str, int], storage: tuple[str, ...]) -> str:
    """Each slice of the reduction by itself, in memory in the order ``storage``; gives the compute
    that stores them."""
    ((dim, parts),) = slices.items()
    size = extents(find_compute(s.kernel, MAIN))[dim]
    s.pad(MAIN, {dim: ceil(size / parts) * parts})
    factored = s.rfactor(MAIN, dim, parts, counter(dim), private=True, storage=storage)
    store: str = factored["store"]
    return store


def in_slices(
    config: ContractionConfig, shape: Shape, estimate: Estimate, machine: Machine
) -> Iterator[tuple[ContractionConfig, Estimate]]:
    """``config`` in slices and as it is, with what they take, where slices take less."""
    nests = _Nests(config, shape, estimate, machine)
    whole = nests.estimate(1)
    if whole.seconds * _WORTH <= max(nests.busy().values()):
        return
    tried = [(dim, parts, nests.estimate(parts)) for dim, parts in nests.choices()]
    least = min((guess.seconds for _, _, guess in tried), default=whole.seconds)
    if least > whole.seconds * _WORTH:
        return
    # Of those that take as long, the most: they need the least of caches that others use, too.
    near = [entry for entry in tried if entry[2].seconds <= least * _NEAR]
    dim, parts, best = max(near, key=lambda entry: entry[1])
    yield replace(config, slices={dim: parts}), best
    yield config, whole


@dataclass(frozen=True)
class _Nests:
    """The loops over tiles of ``config``, in each slice."""

    config: ContractionConfig
    shape: Shape
    found: Estimate
    machine: Machine

    def choices(self) -> Iterator[tuple[str, int]]:
        """Reduced dims, the outermost first, in so many slices of whole steps."""
        for dim in self.config.reduce_order:
            size, step = self.shape.sizes[dim], self.config.step.get(dim, 1)
            most = min(size // step, _MOST)
            divisors = [n for n in range(2, most + 1) if size % n == 0]
            whole = [n for n in divisors if size // n % step == 0]
            # Otherwise the last slice is shorter.
            powers = [2**n for n in range(1, most.bit_length())] if not divisors else []
            for parts in whole or divisors or powers:
                yield dim, parts

    def estimate(self, parts: int) -> Estimate:
        """What ``parts`` slices take: with the cores that have work, what their caches do not hold,
        and what adds up."""
        cores, core = self.machine.cores, self.machine.core
        last = self.machine.caches[-1] / _OTHERS
        pieces = parts * prod(self._trips(dim) for dim in self.config.order)
        idle = ceil(pieces / cores) * cores / pieces
        limits, adding = self.busy(), 0.0
        if parts > 1:
            fresh = 4 * parts * prod(self.shape.sizes[dim] for dim in self.shape.roles.kept)
            # Threads begin and end once more for the part that adds up.
            adding = core.launch + 2 * fresh / (core.fresh[fresh > last] * cores)
        for name, seconds in limits.items():
            limits[name] = adding + seconds * idle
        for level, name in enumerate(("second cache", "last cache")):
            far = self._far(parts, self.machine.caches[level])
            limits[name] = adding + sum(map(truediv, far, self._rates(level))) * idle / cores
        if sum(factor.bytes for factor in self._factors(1)) > last:
            # One core may have all that memory delivers.
            limits["memory"] = adding + sum(self._far(parts, last)) / core.memory
        return replace(self.found, limits=limits)

    def busy(self) -> dict[str, float]:
        """What limits cores that all have work, and what it takes in caches."""
        return {name: time for name, time in self.found.limits.items() if name != "memory"}

    def _trips(self, dim: str) -> int:
        return ceil(self.shape.sizes[dim] / self.config.tile.get(dim, 1))

    def _rates(self, level: int) -> list[float]:
        """Bytes a second of each factor that a core reads from beyond a cache."""
        core = self.machine.core
        return [
            (core.near if factor.lies_together(self.config) else core.scattered)[level]
            for factor in self._factors(1)
        ]

    def _factors(self, parts: int) -> tuple[_Factor, _Factor]:
        shape = self.shape
        # Where positions are reduced, taps move A by a few lines.
        line = self.machine.core.line
        near = shape.windowed if shape.positions else frozenset()
        a = {**shape.a, **dict.fromkeys(near, 0)}
        read = [
            min(whole, element * prod(shape.sizes[dim] for dim, step in steps.items() if step != 0))
            for whole, element, steps in (
                (shape.bytes_a, shape.element_a, a),
                (shape.bytes_b, shape.element_b, shape.b),
            )
        ]
        return (
            _Factor(a, read[0] / parts, shape.element_a, False, line),
            _Factor(shape.b, read[1] / parts, shape.element_b, self.config.pack_b, line),
        )

    def _far(self, parts: int, cache: float) -> list[float]:
        """Bytes of each factor that come from beyond a cache, in all slices: of what loops inside
        of one have read, nothing comes again as long as there is room for all."""
        room = _ROOM * cache
        factors = self._factors(parts)
        moved = [factor.lines(self.config, self.shape) for factor in factors]
        touched = [factor.held(self.config, self.shape) for factor in factors]
        for dim in reversed(self.config.order):
            trips, fits = self._trips(dim), sum(touched) <= room
            for place, factor in enumerate(factors):
                moves = factor.steps.get(dim) != 0
                if moves or not fits:
                    moved[place] *= trips
                if moves:
                    touched[place] = min(factor.bytes, touched[place] * trips)
            if sum(touched) <= room:
                moved = [min(pair) for pair in zip(moved, touched, strict=True)]
        return [parts * bytes_moved for bytes_moved in moved]


@dataclass(frozen=True)
class _Factor:
    """One of the two: how far each dim moves it (in elements), the bytes of it that a slice reads,
    those of an element, whether it is packed in the order of reading, and the bytes of a line."""

    steps: Mapping[str, int | None]
    bytes: float
    element: int
    packed: bool
    line: int

    def lines(self, config: ContractionConfig, shape: Shape) -> float:
        """Bytes that a register tile reads: whole lines of a cache."""
        share = 1.0
        for dim in config.order:
            step = self.steps.get(dim)
            if step == 0:
                continue
            size = config.tile.get(dim, 1)
            if step == 1 and not self.packed:
                size = max(size, self.line // self.element)
            share *= min(1.0, size / shape.sizes[dim])
        return self.bytes * share

    def held(self, config: ContractionConfig, shape: Shape) -> float:
        """Bytes of a cache that these take: lines at distances of powers of two share sets."""
        lines = self.lines(config, shape)
        if self.lies_together(config):
            return lines
        apart = self._distance()
        return min(self.bytes, lines * max(1, (apart & -apart) // self.line))

    def lies_together(self, config: ContractionConfig) -> bool:
        """Whether a tile reads line after line."""
        if self.packed or not config.reduce_order:
            return True
        along = any(self.steps.get(dim) == 1 for dim in config.order)
        return not along or self._distance() < self.line

    def _distance(self) -> int:
        """Bytes from one run of neighbours to the next."""
        steps = [step for step in self.steps.values() if step is not None and step > 1]
        return self.element * min(steps, default=1)

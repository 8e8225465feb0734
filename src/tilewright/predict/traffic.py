"""Cache lines that move between the levels of memory.

Where all that an iteration of a loop reaches stays in a cache, the loop reads each line of what it
reaches once; otherwise each iteration begins anew. A working set about as large as a cache is
between the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.stmt import LoopKind
from tilewright.machines.machine import Machine
from tilewright.predict.footprints import Box, box_of, joined
from tilewright.predict.lines import Line, is_flat
from tilewright.predict.nest import Nest
from tilewright.predict.steps import Access

# Parts of a cache up to which a working set stays in it, and from which on nothing of it does.
_STAYS, _LEAVES = 0.6, 1.2

# Ways of the second cache.
_WAYS = 16

PARALLEL = (LoopKind.PARALLEL, LoopKind.GRID)


@dataclass(frozen=True)
class Moved:
    """``lines`` that come from beyond a ``level`` of the caches, for the code in ``nest``."""

    nest: Nest
    level: int
    box: Box
    lines: float


class Traffic:
    """What a kernel moves; ``shares`` are the extents of parallel loops for one thread."""

    def __init__(
        self,
        lines: Sequence[Line],
        held: Mapping[Buffer, float],
        shares: Mapping[Nest, float],
        machine: Machine,
    ) -> None:
        self._machine = machine
        self._shares = shares
        self._reached: dict[Nest, list[tuple[Line, Access]]] = defaultdict(list)
        for line in lines:
            for access in line.accesses:
                if held.get(access.buffer, 0.0) < 1.0:
                    for nest in line.path:
                        self._reached[nest].append((line, access))
        self._known: dict[tuple[Nest, bool, bool], list[tuple[Line, Box]]] = {}
        self._reaches: dict[tuple[int, tuple[tuple[Var, float], ...]], Box] = {}

    def moved(self, root: Nest, warm: bool) -> list[Moved]:
        """All that moves. ``warm``: what stayed in the caches since the call before is there."""
        traffic: list[Moved] = []
        levels = len(self._machine.caches)
        for level, size in enumerate(self._machine.caches):
            alone = level < levels - 1
            stays = self._fits(root, size, alone, whole=True) if warm else 0.0
            if stays < 1.0:
                self._visit(root, level, 1.0 - stays, traffic)
        return traffic

    def phase_of(self, body: Nest, root: Nest) -> Nest:
        """The outermost nest around ``body`` of which all that an iteration reaches stays in the
        second cache: what runs while that is filled."""
        second = self._machine.caches[min(1, len(self._machine.caches) - 1)]
        nest = root
        while nest is not body and self._fits(nest, second, True, whole=False) < 0.5:
            nest = next(part for part in nest.nests if part is body or self._holds(part, body))
        return nest

    def _holds(self, nest: Nest, body: Nest) -> bool:
        return any(part is body or self._holds(part, body) for part in nest.nests)

    def _visit(self, nest: Nest, level: int, times: float, traffic: list[Moved]) -> None:
        size, alone = self._machine.caches[level], level < len(self._machine.caches) - 1
        stays = self._fits(nest, size, alone, whole=False)
        if stays:
            for line, box in self._boxes(nest, alone, whole=True):
                lines = max(box.lines, _missed(box, size, self._machine.core.line))
                traffic.append(Moved(line.body, level, box, lines * times * stays))
        if stays == 1.0:
            return
        extent = self._shares.get(nest, nest.turns) if alone else nest.turns
        again = times * (1.0 - stays) * extent
        for part in nest.nests:
            if self._reached[part] and not is_flat(part):
                self._visit(part, level, again, traffic)
        for line, box in self._boxes(nest, alone, whole=False):
            if line.body is nest:
                traffic.append(Moved(nest, level, box, box.lines * again))

    def _fits(self, nest: Nest, size: int, alone: bool, whole: bool) -> float:
        """Which part of what ``nest`` (of a loop an iteration, or the ``whole``) reaches stays in a
        cache of so many bytes."""
        core, way = self._machine.core, self._way(size)
        bytes_ = core.line * sum(
            box.lines * box.runs.crowding(way, core.line)
            for _, box in self._boxes(nest, alone, whole)
        )
        return min(1.0, max(0.0, (_LEAVES - bytes_ / size) / (_LEAVES - _STAYS)))

    def _way(self, size: int) -> int:
        """Bytes after which lines share a set of a cache of so many bytes; 1 where addresses are
        hashed, as in the last one."""
        caches = self._machine.caches
        if size == caches[-1] and len(caches) > 1:
            return 1
        return self._machine.core.way if size == caches[0] else size // _WAYS

    def _boxes(self, nest: Nest, alone: bool, whole: bool) -> list[tuple[Line, Box]]:
        """What ``nest`` reaches, with the first step that does; ``alone``: one thread."""
        key = (nest, alone, whole)
        if key not in self._known:
            self._known[key] = self._joined(nest, alone, whole)
        return self._known[key]

    def _joined(self, nest: Nest, alone: bool, whole: bool) -> list[tuple[Line, Box]]:
        line_of: dict[int, Line] = {}
        boxes: list[Box] = []
        seen: set[object] = set()
        for line, access in self._reached[nest]:
            inside = line.path[line.path.index(nest) + (not whole) :]
            loops: dict[Var, float] = {}
            for part in inside:
                if part.var is not None:
                    loops[part.var] = self._extent(part, alone)
            loops = {**loops, **line.lanes}
            key = (access.key, access.writes, tuple(loops.items()))
            if key not in seen:
                seen.add(key)
                box = self._box(access, loops)
                line_of[id(box)] = line
                boxes.append(box)
        return [(line_of[id(box)], box) for box in joined(boxes, self._machine.core.line)]

    def _box(self, access: Access, loops: Mapping[Var, float]) -> Box:
        """What ``access`` reaches, worked out once for loops that differ in what does not move
        it."""
        moving = tuple(item for item in loops.items() if item[0] in access.moved_by)
        box = self._reaches.get((id(access), moving))
        if box is None:
            box = box_of(access, dict(moving), self._machine.core.line)
            self._reaches[id(access), moving] = box
        return replace(box)  # Boxes that are joined change.

    def _extent(self, nest: Nest, alone: bool) -> float:
        return self._shares.get(nest, nest.extent) if alone else nest.extent


def _missed(box: Box, size: int, line: int) -> float:
    """Lines of places in any order that are not in a cache of so many bytes."""
    return box.places * max(0.0, 1.0 - size / max(box.lines * line, 1.0))


def shares(root: Nest, threads: int) -> dict[Nest, float]:
    """The extents of parallel loops for the thread that has the most to do."""
    idle: dict[Nest, float] = {}

    def visit(nest: Nest, left: float) -> None:
        if nest.kind in PARALLEL and left > 1:
            idle[nest] = max(1.0, nest.extent / left)
            left = max(1.0, left / max(nest.extent, 1.0))
        for part in nest.nests:
            visit(part, left)

    visit(root, float(threads))
    return idle

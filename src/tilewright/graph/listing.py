"""A program in words: its kernels, and what runs on what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.errors import TilewrightError
from tilewright.graph.boundaries import Boundary, boundaries
from tilewright.graph.cutting import Cut, Group
from tilewright.graph.launches import Launch
from tilewright.graph.memory import Arena
from tilewright.graph.parts import packable
from tilewright.graph.predicting import Deciding, Decision
from tilewright.ir.printer import to_text
from tilewright.machines.machine import Machine
from tilewright.predict.time import predicted
from tilewright.recipes.choose import Tried, alternatives, best_of, cut_for, predicted_by_default
from tilewright.recipes.config import TiledConfig
from tilewright.recipes.start import Start
from tilewright.recipes.tiled import in_tiles
from tilewright.runtime.steps import launches, steps_in_words
from tilewright.tables import aligned


def kernels_text(cut: Cut) -> str:
    """The kernels of ``cut``, each with what the graph calls what it does, as comments."""
    of: dict[int, list[Launch]] = {}
    for launch in launches(cut.steps):
        of.setdefault(launch.kernel, []).append(launch)
    parts: list[str] = []
    for number, kernel in enumerate(cut.kernels):
        lines = [f"# kernel {number}, launched as"]
        lines += [f"#   {title(launch)}" for launch in of.get(number, ())]
        parts.append("\n".join([*lines, to_text(kernel)]))
    return "\n\n".join(parts)


@dataclass(frozen=True)
class ListedGroup:
    """A launch, by its number: its kernel, what of the graph it ``computes``, and its seconds, as
    ``predicted``, with the ``limit`` on them, and as ``measured``. None: there is no prediction, or
    it did not run."""

    group: int
    kernel: str
    predicted: float | None
    limit: str
    measured: float | None
    computes: tuple[str, ...]


@dataclass(frozen=True)
class Way:
    """How the products of a group may run (``how``), and the seconds that are ``predicted``."""

    group: int
    predicted: float | None
    how: str


@dataclass(frozen=True)
class Groups:
    """The launches of a graph; what passes have decided; of groups of several products, how these
    may run; and what each boundary costs in memory, and why it is there."""

    groups: tuple[ListedGroup, ...]
    decisions: tuple[Decision, ...]
    ways: tuple[Way, ...]
    boundaries: tuple[Boundary, ...]

    def __str__(self) -> str:
        measured = any(group.measured is not None for group in self.groups)
        head = ("group", "kernel", "predicted us", *(["measured us"] if measured else ()), "by")
        rows = [(*head, "what it computes")]
        for group in self.groups:
            times = [group.predicted, *([group.measured] if measured else ())]
            words = (str(group.group), group.kernel, *map(_microseconds, times), group.limit)
            rows.append((*words, _named(group.computes)))
        lines = aligned(rows, right=(2, 3) if measured else (2,))
        decided = [(decision.how, decision.what, decision.why) for decision in self.decisions]
        ways = [(str(way.group), _microseconds(way.predicted), way.how) for way in self.ways]
        apart = [
            (str(b.producer), str(b.consumer), f"{b.bytes / 1024:.1f}", b.buffer, b.why)
            for b in self.boundaries
        ]
        for head, rows, right in (
            (("decided", "of", "why"), decided, ()),
            (("group", "predicted us", "how its products may run"), ways, (1,)),
            (("from", "to", "KiB", "buffer", "why they are apart"), apart, (2,)),
        ):
            lines += ["", *aligned([head, *rows], right)] if rows else []
        return "\n".join(lines)


def listed(
    cut: Cut,
    groups: Sequence[Group],
    machine: Machine,
    deciding: Deciding | None,
    constant: Sequence[str] = (),
    measured: Mapping[int, float] = MappingProxyType({}),
) -> Groups:
    """The ``groups`` of ``cut``, whose arguments ``constant`` may be packed, with the times that
    are predicted for their kernels, and the seconds that were ``measured`` of launches."""
    starts = [
        Start(kernel, kernel, constant=names)
        for kernel, names in zip(cut.kernels, packable(cut, constant), strict=True)
    ]
    ways = [_ways(start, machine) if in_tiles(start.kernel) else [] for start in starts]
    times = [
        predicted(best_of(tried).schedule.kernel, machine)
        if tried
        else predicted_by_default(start, machine)
        for start, tried in zip(starts, ways, strict=True)
    ]
    rows: list[ListedGroup] = []
    several: list[Way] = []
    for number, launch in enumerate(launches(cut.steps)):
        time, name = times[launch.kernel], f"{cut.kernels[launch.kernel].name} {launch.kernel}"
        seconds, limit = (None, "") if time is None else (time.seconds, time.limit)
        took = measured.get(number)
        rows.append(ListedGroup(number, name, seconds, limit, took, launch.computes))
        for way in ways[launch.kernel]:
            how = way.config.short() if isinstance(way.config, TiledConfig) else "one by one"
            several.append(Way(number, None if way.time is None else way.time.seconds, how))
    decisions = () if deciding is None else tuple(deciding.decisions)
    apart = tuple(boundaries(cut.graph, groups, deciding is not None))
    return Groups(tuple(rows), decisions, tuple(several), apart)


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"


def _ways(start: Start, machine: Machine) -> list[Tried]:
    with suppress(TilewrightError):
        return alternatives(start, machine, cut_for(start, machine))
    return []


def program_text(cut: Cut, arena: Arena) -> str:
    """The steps of ``cut``: each kernel by its number, with the buffers that it gets; and where
    those between steps lie in ``arena``."""
    places = {launch: n for n, launch in enumerate(launches(cut.steps))}
    lines = [f"arena of {arena.bytes} bytes; at most {arena.live} live at once"]
    for buffer in cut.between:
        lines.append(f"  {arena.offsets[buffer]:>10} {buffer!r}")

    updated = [param.name for param in cut.graph.arrays if param.access == "inout"]
    lines += [f"  argument {name} is updated in place" for name in updated]

    def launched(launch: Launch) -> str:
        kernel = cut.kernels[launch.kernel]
        names = ", ".join(buffer.name for buffer in launch.buffers)
        line = f"{places[launch]}: {kernel.name} {launch.kernel} ({names})"
        return f"{line}  # {title(launch)}"

    lines += steps_in_words(cut.steps, launched, lambda flag: flag.name)
    return "\n".join(lines)


def title(launch: Launch) -> str:
    """What the graph calls what a launch does."""
    return _named(launch.computes)


def _named(computes: Sequence[str]) -> str:
    return ", ".join(computes) or "a condition"

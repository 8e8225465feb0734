"""A program in words: its kernels, and what runs on what."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tilewright.errors import TilewrightError
from tilewright.graph.boundaries import boundaries
from tilewright.graph.cutting import Cut, Group
from tilewright.graph.launches import Launch
from tilewright.graph.memory import Arena
from tilewright.graph.parts import packable
from tilewright.graph.predicting import Deciding
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


def groups_text(
    cut: Cut, groups: Sequence[Group], machine: Machine, deciding: Deciding | None
) -> str:
    """The launches of ``cut`` with the times that are predicted for their kernels; of those of
    several products, for these one by one and in tiles; what passes have decided; and what each
    boundary between ``groups`` costs in memory, and why it is there."""
    constant = packable(cut, ())
    starts = [
        Start(kernel, kernel, constant=names)
        for kernel, names in zip(cut.kernels, constant, strict=True)
    ]
    ways = [_ways(start, machine) if in_tiles(start.kernel) else [] for start in starts]
    times = [
        predicted(best_of(tried).schedule.kernel, machine)
        if tried
        else predicted_by_default(start, machine)
        for start, tried in zip(starts, ways, strict=True)
    ]
    rows = [("group", "kernel", "predicted us", "by", "what it computes")]
    for number, launch in enumerate(launches(cut.steps)):
        time, name = times[launch.kernel], cut.kernels[launch.kernel].name
        microseconds, limit = (
            ("", "") if time is None else (f"{time.seconds * 1e6:.1f}", time.limit)
        )
        rows.append((str(number), f"{name} {launch.kernel}", microseconds, limit, title(launch)))
    lines = aligned(rows, right=(2,))
    if deciding is not None and deciding.decisions:
        decided = [(decision.how, decision.what, decision.why) for decision in deciding.decisions]
        lines += ["", *aligned([("decided", "of", "why"), *decided])]
    several = [("group", "predicted us", "how its products may run")]
    for number, launch in enumerate(launches(cut.steps)):
        for way in ways[launch.kernel]:
            seconds = "" if way.time is None else f"{way.time.seconds * 1e6:.1f}"
            how = way.config.short() if isinstance(way.config, TiledConfig) else "one by one"
            several.append((str(number), seconds, how))
    if len(several) > 1:
        lines += ["", *aligned(several, right=(1,))]
    apart = [("from", "to", "KiB", "buffer", "why they are apart")]
    for boundary in boundaries(cut.graph, groups, deciding is not None):
        size = f"{boundary.buffer.bytes / 1024:.1f}"
        apart.append(
            (
                str(boundary.producer),
                str(boundary.consumer),
                size,
                boundary.buffer.name,
                boundary.why,
            )
        )
    return "\n".join([*lines, "", *aligned(apart, right=(2,))] if len(apart) > 1 else lines)


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
    return ", ".join(launch.computes) or "a condition"

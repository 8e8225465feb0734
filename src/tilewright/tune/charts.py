"""Charts of times as inline SVG, in the colours of the page that they stand in."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.engine.overview import duration

# Pixels: of a chart, and of its margins at the left, the right, the top and the bottom.
_WIDTH, _HEIGHT = 460, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 40
_STEPS = (1, 2, 5)
# Ticks of an axis; of more, every other one is left out.
_MOST_TICKS = 6


@dataclass(frozen=True)
class Dot:
    """A point of a chart: ``x`` and ``y``, what it is in words, where it links to, and its kind:
    ``dot``, ``best``, ``default`` or ``failed`` (``y`` of None: it has no time)."""

    x: float
    y: float | None
    title: str
    link: str = ""
    kind: str = "dot"


@dataclass(frozen=True)
class _Axis:
    """Numbers from ``low`` to ``high`` as pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = True

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float, logarithmic: bool) -> _Axis:
        """The axis on which ``values`` fit, with some room around them."""
        low, high = min(values), max(values)
        if logarithmic:
            room = max(1.15, (high / low) ** 0.05)
            return cls(low / room, high * room, start, end)
        return cls(low, high + 0.03 * (high - low) + 0.5, start, end, False)

    def at(self, value: float) -> float:
        """Where ``value`` is."""
        if self.logarithmic:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers on it."""
        if not self.logarithmic:
            size = next(
                step * 10**power
                for power in range(10)
                for step in _STEPS
                if (self.high - self.low) / (step * 10**power) <= _MOST_TICKS
            )
            first = math.ceil(self.low / size)
            return [size * n for n in range(first, math.floor(self.high / size) + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        within = [step * 10.0**power for power in powers for step in _STEPS]
        within = [value for value in within if self.low <= value <= self.high]
        if len(within) < 2:
            # Less than a step: the ends themselves.
            return [self.low * (self.high / self.low) ** part for part in (0.15, 0.5, 0.85)]
        return within[:: math.ceil(len(within) / _MOST_TICKS)]


def over_trials(dots: Sequence[Dot]) -> str:
    """Times (``y``, seconds) by the number of the trial (``x``), a line for the best so far, and
    marks at the bottom for those that have no time."""
    times = [dot.y for dot in dots if dot.y]
    if not times:
        return ""
    across = _Axis.of([0.0, *(dot.x for dot in dots)], _LEFT, _WIDTH - _RIGHT, False)
    up = _Axis.of(times, _HEIGHT - _BOTTOM, _TOP, True)
    parts = [*_frame(across, up, "trial", [f"{tick:g}" for tick in across.ticks()])]
    best, line = math.inf, ""
    for dot in dots:
        if dot.y and dot.y < best:
            # A step: what was the best until then, was so up to this trial.
            line += (
                f"H{across.at(dot.x):.1f}V{up.at(dot.y):.1f}" if line else _start(across, up, dot)
            )
            best = dot.y
    parts.append(f'<path class="line" d="{line}H{across.at(across.high):.1f}"/>')
    parts += (_mark(dot, across.at(dot.x), up.at(dot.y) if dot.y else up.start) for dot in dots)
    return _svg("time of a call over trials, and the best so far", parts)


def scatter(dots: Sequence[Dot]) -> str:
    """Measured times (``y``) by predicted ones (``x``), both seconds, and a line where they are
    equal, if that is in sight; "" where nothing was predicted."""
    dots = [dot for dot in dots if dot.x and dot.y]
    if not dots:
        return ""
    across = _Axis.of([dot.x for dot in dots], _LEFT, _WIDTH - _RIGHT, True)
    up = _Axis.of([dot.y or dot.x for dot in dots], _HEIGHT - _BOTTOM, _TOP, True)
    parts = [*_frame(across, up, "predicted", [duration(tick) for tick in across.ticks()])]
    ends = (max(across.low, up.low), min(across.high, up.high))
    if ends[0] < ends[1]:
        line = "L".join(f"{across.at(value):.1f},{up.at(value):.1f}" for value in ends)
        parts.append(f'<path class="equal" d="M{line}"/>')
    parts += (_mark(dot, across.at(dot.x), up.at(dot.y or dot.x)) for dot in dots)
    return _svg("measured time of a call by the predicted one", parts)


def _start(across: _Axis, up: _Axis, dot: Dot) -> str:
    return f"M{across.at(dot.x):.1f},{up.at(dot.y or 0.0):.1f}"


def _frame(across: _Axis, up: _Axis, name: str, labels: Sequence[str]) -> Iterator[str]:
    """The axes with their ticks; that of times goes up."""
    for tick in up.ticks():
        y = up.at(tick)
        yield f'<path class="grid" d="M{across.start},{y:.1f}H{across.end}"/>'
        text = html.escape(duration(tick))
        yield f'<text x="{across.start - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    for tick, label in zip(across.ticks(), labels, strict=True):
        x = across.at(tick)
        yield f'<path class="grid" d="M{x:.1f},{up.start}V{up.end}"/>'
        yield f'<text x="{x:.1f}" y="{up.start + 15}" text-anchor="middle">{label}</text>'
    middle = (across.start + across.end) / 2
    yield f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{html.escape(name)}</text>'


def _mark(dot: Dot, x: float, y: float) -> str:
    title = f"<title>{html.escape(dot.title)}</title>"
    if dot.y is None:
        shape = f'<path class="failed" d="M{x - 3:.1f},{y - 3:.1f}l6,6m0,-6l-6,6">{title}</path>'
    else:
        radius = 3 if dot.kind == "dot" else 5
        shape = (
            f'<circle class="{dot.kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{title}</circle>'
        )
    return f'<a href="{html.escape(dot.link)}">{shape}</a>' if dot.link else shape


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{html.escape(title)}">\n' + "\n".join(parts) + "\n</svg>"
    )


STYLE = """
.chart { width: 460px; max-width: 100%; font: 11px system-ui, sans-serif }
.chart text { fill: var(--dim) }
.chart path { fill: none; stroke: var(--line) }
.chart .line { stroke: #4a86c5; stroke-width: 2 } .chart .equal { stroke: var(--dim);
  stroke-dasharray: 4 4 }
.chart circle { fill: #4a86c5; fill-opacity: .5 }
.chart .best { fill: #2a9d4a; fill-opacity: 1 } .chart .default { fill: #d08a1d; fill-opacity: 1 }
.chart .failed { stroke: light-dark(#c00, #ff7a70); stroke-width: 1.5 }
"""

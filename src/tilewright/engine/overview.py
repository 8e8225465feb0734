"""The first screen of a page: why a kernel is as fast as it is."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.engine.hot_loop import is_spill


@dataclass(frozen=True)
class Bar:
    """A time of a call in seconds, and what it is; ``note`` says more. ``seconds`` of None: it is
    not known, and the note says why."""

    label: str
    seconds: float | None
    note: str = ""


@dataclass(frozen=True)
class Overview:
    """What is said of a kernel before all else: the ``verdict``, a sentence a line; times, of which
    the longest fills its bar; what the config was chosen from; and the ``loop`` with most of the
    work, as lines of assembly."""

    verdict: Sequence[str]
    bars: Sequence[Bar]
    candidates: Sequence[str] = ()
    loop: Sequence[str] = ()

    def html(self) -> str:
        """The part of a page."""
        return "\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield "".join(f"<p>{html.escape(line)}</p>" for line in self.verdict)
        longest = max((bar.seconds for bar in self.bars if bar.seconds), default=0.0)
        yield '<div class="bars">'
        for bar in self.bars:
            said = "unknown" if bar.seconds is None else duration(bar.seconds)
            part = bar.seconds / longest if bar.seconds and longest else 0.0
            yield (
                f"<b>{html.escape(bar.label)}</b><span>{said}</span>"
                f'<div class="bar"><i style="width: {100 * part:.1f}%"></i></div>'
                f"<small>{html.escape(bar.note)}</small>"
            )
        yield "</div>"
        if self.candidates:
            yield '<h3>Candidates, as predicted <a href="#config">all of the config</a></h3>'
            yield f"<pre>{html.escape(chr(10).join(self.candidates))}</pre>"
        if self.loop:
            yield '<h3>The hot loop <a href="#assembly">all of the assembly</a></h3>'
            yield "<pre>" + "\n".join(map(_line, self.loop)) + "</pre>"


def duration(seconds: float) -> str:
    """Seconds in the unit that has a few digits before the point."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _line(line: str) -> str:
    text = html.escape(line)
    return f'<span class="spill">{text}</span>' if is_spill(line) else text


STYLE = """
.sheet { padding: 0 1em 1em; max-width: 80em }
.sheet p:first-child { font-size: 1.3em; font-weight: 600 }
.sheet p { margin: .4em 0 }
.sheet h3 { font-size: 13px; margin: 1.4em 0 .4em } .sheet h3 a { font-weight: 400 }
.sheet pre { font: 12px/1.45 ui-monospace, monospace; margin: 0; white-space: pre-wrap;
  overflow-wrap: anywhere; tab-size: 8 }
.bars { display: grid; grid-template-columns: max-content max-content minmax(6em, 20em) 1fr;
  gap: .3em 1em; align-items: center; margin: 1em 0 }
.bars span { text-align: right; font-variant-numeric: tabular-nums }
.bar { background: var(--line); height: .9em } .bar i { display: block; height: 100%;
  background: #4a86c5 }
.bars small { color: var(--dim); overflow-wrap: anywhere }
.spill { color: light-dark(#c00, #ff7a70); font-weight: 600 }
"""

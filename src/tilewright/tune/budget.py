"""How long a search goes on."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from tilewright.errors import ArgumentError, short

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_FORM = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(s|m|h|trials?)")
_CURE = 'write a time or a number of trials, such as "90s", "10m", "2h" or "200 trials"'


@dataclass(frozen=True)
class Budget:
    """So many ``seconds``, or so many ``trials`` of each subject; None: without end."""

    seconds: float | None = None
    trials: int | None = None

    @classmethod
    def parse(cls, text: object, where: str = "budget") -> Budget:
        """The budget that ``text`` says: ``"90s"``, ``"10m"``, ``"2h"``, ``"200 trials"``. Raises
        `ArgumentError` for anything else, and for one of nothing."""
        match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise ArgumentError(f"{short(text)} is no budget", where=where, cure=_CURE)
        number, unit = match.groups()
        if float(number) == 0:
            why = "nothing can be tried in no time" if unit in _UNITS else "nothing would be tried"
            raise ArgumentError(f"the budget is {text}", where=where, why=why, cure=_CURE)
        if unit in _UNITS:
            return cls(seconds=float(number) * _UNITS[unit])
        if "." in number:
            raise ArgumentError(f"{short(text)} is no budget", where=where, cure=_CURE)
        return cls(trials=int(number))

    def __str__(self) -> str:
        if self.trials is not None:
            return f"{self.trials} trials"
        return "no end" if self.seconds is None else f"{self.seconds:g}s"


class Clock:
    """The time of a search, which begins now."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._start

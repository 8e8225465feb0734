"""A row of the tuner's database: one config of one kernel, what it was measured under, and how long
it took, or why it does not do."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from statistics import median
from typing import Any, get_type_hints

from tilewright.engine.disk_cache import content_key
from tilewright.engine.entry import conforms
from tilewright.errors import DatabaseError, short

# Kernel Tuner's words (the schema of its T4 files): why a config does not do, or that it does.
OUTCOMES = ("correct", "compile", "runtime", "timeout", "correctness", "constraints")
# Of a row, uncompressed: a record of a schedule has at most half a million characters.
_MOST_BYTES = 2**22


def brief(text: str) -> str:
    """A key for ``text``, which may be long."""
    return content_key(text.encode())[:16]


def now() -> str:
    """The time in UTC, as rows have it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Row:
    """A config that was tried.

    ``kernel`` is the key of what was asked for, ``title`` its name, ``problem`` what the command
    line takes for it, or the kernel's text, ``symbols`` the range of its sizes ("" where they are
    known). ``target``, ``features`` (all that code for it depends on), ``generator`` (of the code)
    and ``threads`` say where it ran. ``config`` is a text, as is ``schedule``, the record of what
    came of it. ``outcome`` is one of `OUTCOMES`, ``why`` says more. ``times`` are seconds a call,
    ``compile_seconds`` and ``predicted`` seconds. ``conditions`` are what else was noted (JSON
    values). ``form`` and ``sizes`` are what rows of other sizes are compared by. ``stamp`` is when,
    in UTC. ``number`` is that of a row that is stored.

    Raises `DatabaseError` for values of other types, or that make no sense.
    """

    kernel: str
    title: str
    target: str
    features: str
    generator: str
    threads: int
    config: str
    outcome: str
    problem: str = ""
    symbols: str = ""
    schedule: str = ""
    why: str = ""
    times: tuple[float, ...] = ()
    compile_seconds: float = 0.0
    predicted: float | None = None
    conditions: dict[str, Any] = field(default_factory=dict)
    form: str = ""
    sizes: tuple[int, ...] = ()
    stamp: str = field(default_factory=now)
    number: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, fits in _CHECKS.items():
            if not fits(getattr(self, name)):
                raise _wrong(name, getattr(self, name), "it is of another type")
        if self.outcome not in OUTCOMES:
            raise _wrong("outcome", self.outcome, f"it is none of {', '.join(OUTCOMES)}")
        seconds = (*self.times, self.compile_seconds, self.predicted or 0.0)
        if not all(math.isfinite(time) and time >= 0 for time in seconds):
            raise _wrong("times", self.times, "times are finite, and not negative")
        if min(self.sizes, default=1) < 1:
            raise _wrong("sizes", self.sizes, "sizes are 1 or more")
        if self.outcome == "correct" and not self.times:
            raise _wrong("times", self.times, "what is correct was measured")

    @property
    def seconds(self) -> float | None:
        """The median of the times."""
        return median(self.times) if self.times else None

    @property
    def key(self) -> str:
        """What tells the row from others: a newer one with the same key takes its place."""
        parts = (
            *(self.kernel, self.symbols, self.target, self.features, self.generator),
            *(str(self.threads), self.config),
        )
        return content_key(*(part.encode() for part in parts))

    def as_json(self) -> dict[str, Any]:
        """The row as JSON's values, by the names of the fields."""
        return {
            part.name: getattr(self, part.name) for part in fields(self) if part.name in _CHECKS
        }


def from_json(data: object, number: int | None = None) -> Row:
    """The row that `Row.as_json` gave, with its ``number``. Raises `DatabaseError` for anything
    else."""
    if not isinstance(data, Mapping) or not set(data) <= set(_CHECKS):
        raise DatabaseError(
            f"{short(data)} is no row", why="rows have the fields " + ", ".join(_CHECKS)
        )
    values = dict(data)
    for name, value in data.items():
        if isinstance(value, list):
            values[name] = tuple(map(_number, value)) if name == "times" else tuple(value)
        elif name in ("compile_seconds", "predicted"):
            values[name] = _number(value)
    try:
        return Row(**values, number=number)
    except TypeError as error:  # a field without a default is missing
        raise DatabaseError("a row lacks fields", why=str(error).partition(" ")[2]) from error


def pack(row: Row) -> tuple[bytes, str]:
    """The row as it is stored, and the seal of that. Raises `DatabaseError` for conditions that
    JSON has no words for."""
    try:
        text = json.dumps(row.as_json(), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _wrong("conditions", row.conditions, str(error)) from error
    data = zlib.compress(text.encode(), 6)
    return data, hashlib.sha256(data).hexdigest()


def unpack(number: int, seconds: object, data: object, seal: object) -> Row | None:
    """The row that `pack` gave, which took so many ``seconds``; None where that is damaged."""
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != seal:
        return None
    stream = zlib.decompressobj()
    try:
        row = from_json(json.loads(stream.decompress(data, _MOST_BYTES)), number)
    except (zlib.error, ValueError, RecursionError, DatabaseError):
        return None
    return row if row.seconds == seconds else None


def _number(value: object) -> object:
    """A whole number of JSON as the number that it is; anything else as it is."""
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def _wrong(name: str, value: object, why: str) -> DatabaseError:
    return DatabaseError(f"a row's {name} is {short(value)}", why=why)


_CHECKS = {name: conforms(hint) for name, hint in get_type_hints(Row).items() if name != "number"}

"""What a database of tuning has for launches: the values of tunables that were fastest."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from tilewright.engine.compile import checked_threads
from tilewright.engine.disk_cache import content_key
from tilewright.errors import ScheduleError, TilewrightError
from tilewright.lang.annotations import ArrayType
from tilewright.lang.tunables import Chosen, in_words, is_plain
from tilewright.newest import Newest
from tilewright.recipes.config import Config
from tilewright.recipes.parts.forms import Form
from tilewright.targets.registry import find_target

if TYPE_CHECKING:
    from tilewright.engine.winners import Asked, Winner

_MOST = 256
# Where values come from that nobody chose.
FIRST = "the first of those declared"


def _is_chosen(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and is_plain(entry) for name, entry in value.items()
    )


class LaunchConfig(Config):
    """What a launch of a kernel in Python chooses: the values of ``tunables``, by their names."""

    tunables: Annotated[Mapping[str, Any], Form("a dict of values by their names", _is_chosen)]

    def short(self) -> str:
        return in_words(self.tunables)


def shapes_of(parameters: Mapping[str, Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What of a launch's arguments decides how fast it is: shapes of arrays, and whole numbers."""
    said: list[Any] = []
    for annotation, value in zip(parameters.values(), arguments, strict=True):
        if isinstance(annotation, ArrayType):
            said.append(tuple(map(int, getattr(value, "shape", ()))))
        elif isinstance(value, int | np.integer):
            said.append(int(value))
    return tuple(said)


@dataclass(frozen=True)
class Remembered:
    """What a search of this process found, and left in no database that is named: the fastest
    values of ``tunables``, and in words where they come from."""

    tunables: Chosen
    origin: str


def values_of(winner: Winner | Remembered) -> Chosen:
    """The values of tunables that a search found. Raises `ScheduleError` for a row that is of
    something else."""
    if isinstance(winner, Remembered):
        return winner.tunables
    if not isinstance(winner.config, LaunchConfig):
        raise ScheduleError(f"{winner.config!r} is no launch", cure="write LaunchConfig(...)")
    return winner.config.tunables


class TunedLaunches:
    """What databases said of the launches of one function, asked once."""

    def __init__(self) -> None:
        self._asked: Newest[Hashable, Asked] = Newest(_MOST)
        self._winners: Newest[tuple[Path, Asked], Winner | None] = Newest(_MOST)
        self._remembered: Newest[Asked, Remembered] = Newest(_MOST)

    def asked(
        self, launch: tuple[Any, Any, str, int | None], identity: Callable[[], Sequence[Any]]
    ) -> Asked:
        """What rows are of that are about a launch: what it decides, the shapes of its arguments,
        its target and threads, of a function that ``identity`` says all about."""
        # Who names no database loads no SQLite.
        from tilewright.engine.winners import Asked

        asked = self._asked.get(launch)
        if asked is None:
            decided, shapes, target, threads = launch
            parts = (*identity(), decided.sizes, decided.start, shapes)
            key = content_key(*(str(part).encode() for part in parts))
            asked = Asked.at(key, find_target(target), checked_threads(threads))
            self._asked[launch] = asked
        return asked

    def winner(self, database: Path | None, asked: Asked) -> Winner | Remembered | None:
        """The fastest row of the ``database``; without one, what is remembered."""
        from tilewright.engine.winners import winner

        if database is not None and (database, asked) not in self._winners:
            self._winners[database, asked] = winner(database, asked)
        stored = None if database is None else self._winners[database, asked]
        return self._remembered.get(asked) if stored is None else stored

    def origin(self, database: Path, asked: Asked) -> str:
        """Where the first values come from, where the ``database`` has no others, and why."""
        from tilewright.engine.winners import origin_of

        return origin_of(None, FIRST, database, asked)

    @property
    def remembers(self) -> bool:
        """Whether a search of this process found something."""
        return bool(self._remembered)

    def remember(self, asked: Asked, remembered: Remembered) -> None:
        """Takes what a search found for a launch."""
        self._remembered[asked] = remembered

    def set_aside(self, winner: Winner | Remembered, error: TilewrightError) -> None:
        """Leaves out what was refused."""
        if isinstance(winner, Remembered):
            self._remembered.clear()
        else:
            winner.set_aside(error)
            self.forget()

    def forget(self) -> None:
        """Asks databases again."""
        self._winners.clear()

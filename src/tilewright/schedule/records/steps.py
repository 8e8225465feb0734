"""Steps of a schedule: calls of transforms as data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from tilewright.schedule.staging.copiers import CopyUnit


@dataclass(frozen=True, eq=False)
class Step:
    """One call of a transform, whose arguments are data: names, numbers, instructions and the
    like."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @staticmethod
    def of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Step:
        """The step with copies of the arguments: who called may go on to change his."""
        return Step(name, tuple([_copied(each) for each in args]), _copied(kwargs))

    @property
    def key(self) -> Hashable:
        """What is the same for steps with the same name and arguments, in the same order."""
        return self.name, _key(self.args), _key(self.kwargs)


def _copied(value: Any) -> Any:
    """``value`` as it is now; sets in order, as they would print differently every time."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {_copied(key): _copied(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple([_copied(each) for each in value])
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, Set):
        return tuple(sorted(value))
    return value


def _key(value: Any) -> Hashable:
    """``value`` (a copy) for a dictionary; with its type, as numbers equal those of other types."""
    if isinstance(value, Mapping):
        return dict, tuple([(_key(key), _key(each)) for key, each in value.items()])
    if isinstance(value, tuple | list):
        return type(value), tuple([_key(each) for each in value])
    if isinstance(value, CopyUnit):
        return CopyUnit, _key(vars(value))
    return type(value), value

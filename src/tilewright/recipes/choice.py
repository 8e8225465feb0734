"""What may be chosen for a kernel, one choice after the other: what a recipe's space is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.recipes.config import Config

Chosen = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """A field of a config, ``name``, and the ``values`` that it may have, in order: beside those of
    the choices before it, by name. ``after`` names the choices that this depends on.
    """

    name: str
    values: Callable[[Chosen], Sequence[Any]]
    after: tuple[str, ...] = ()


def one_of(name: str, *values: Any) -> Choice:
    """A choice that depends on no other."""
    return Choice(name, lambda chosen: values)


def listed(configs: Sequence[Config]) -> tuple[Choice, ...]:
    """The choices that span a list of configs of one type, and nothing else: a field, then the next
    beside it, in their order. Of an empty list, one without values."""
    if not configs:
        return (one_of("none"),)
    names = configs[0].names()

    def choice(place: int) -> Choice:
        before = names[:place]

        def values(chosen: Chosen) -> list[Any]:
            left = configs
            for name in before:
                left = [each for each in left if getattr(each, name) == chosen[name]]
            return different(getattr(each, names[place]) for each in left)

        return Choice(names[place], values, tuple(before))

    return tuple(map(choice, range(len(names))))


def different(values: Any) -> list[Any]:
    """``values`` without those that came before; they need no hash."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found

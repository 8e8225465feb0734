"""What may be chosen for a kernel, one choice after the other: what a recipe's space is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.machines.machine import Machine
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


def around(config: Config, **values: Sequence[Any]) -> tuple[Choice, ...]:
    """The choices of ``config``, each of which may be as it is there; those that are named may have
    these ``values``, too."""
    return tuple(
        one_of(name, *different([getattr(config, name), *values.get(name, ())]))
        for name in config.names()
    )


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
                left = [config for config in left if getattr(config, name) == chosen[name]]
            return different(getattr(config, names[place]) for config in left)

        return Choice(names[place], values, tuple(before))

    return tuple(map(choice, range(len(names))))


def sizes_around(size: int, factors: Sequence[float] = (0.5, 2)) -> list[int]:
    """``size`` times ``factors``, at least 1."""
    return different(max(1, int(size * factor)) for factor in factors)


def vectors_around(vector: int, machine: Machine) -> list[int]:
    """Half as many elements, and twice as many, as far as the machine has vectors of so many."""
    most = max(vector, machine.vector_bytes // machine.narrowest)
    return [size for size in sizes_around(vector) if size <= most]


def different(values: Iterable[Any]) -> list[Any]:
    """``values`` without those that came before; they need no hash."""
    values_seen: list[Any] = []
    for value in values:
        if value not in values_seen:
            values_seen.append(value)
    return values_seen

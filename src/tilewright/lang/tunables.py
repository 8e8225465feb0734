"""Tunables: numbers of a kernel that are known when it is compiled, and that each launch chooses
among declared ones."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from tilewright.calls import checked_call
from tilewright.errors import ArgumentError, Span, one_of, short

# The values of tunables by their names.
Chosen = Mapping[str, Any]


@dataclass(frozen=True)
class Tunable:
    """A constant of kernels with one of ``values``, of which the first is the author's guess."""

    name: str
    values: tuple[Any, ...]

    @property
    def first(self) -> Any:
        """What is taken where nothing else is said."""
        return self.values[0]

    def among(self, value: Any, where: str) -> Any:
        """The declared value that equals ``value``. Raises `ArgumentError` where there is none."""
        if isinstance(value, np.generic):
            value = value.item()
        if is_plain(value) and value in self.values:
            return self.values[self.values.index(value)]
        raise ArgumentError(
            f"{self.name} is {short(value)}",
            where=where,
            why="that is none of the values that tw.tunable declares",
            cure="choose one of " + ", ".join(map(repr, self.values)),
        )

    def __repr__(self) -> str:
        return f"tw.tunable({self.name!r}, {self.values!r})"

    def _no_number(self, *_: object) -> NoReturn:
        raise ArgumentError(
            f"the tunable {self.name} is computed with outside of a kernel",
            where=self.name,
            why="each launch chooses its value",
            cure="pass a function of the values: "
            f"f.launch(lambda chosen: n // chosen[{self.name!r}], ...)",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _no_number
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _no_number
    __lt__ = __le__ = __gt__ = __ge__ = __index__ = __int__ = __float__ = _no_number


@checked_call
def tunable(name: str, values: tuple[Any, ...]) -> Any:
    """A constant of kernels in Python whose value is chosen among ``values``: numbers,
    texts, None, or tuples of these, the first of which is taken where nothing else is said.

    Bound to a name outside of a function it is a number that the function knows, as any other; as
    the default of a parameter of `tw.constant` it is one that launches do not pass; as ``local``
    or ``subgroup`` of `kernel`, or in the range and the local size of a launch, a size. Launches
    choose it by ``tunables={name: value}``. Raises `ArgumentError`.
    """
    where = "tw.tunable"
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(
            f"a tunable is called {short(name)}", where=where, cure="give a name such as TILE"
        )
    if not isinstance(values, tuple | list) or not values:
        raise ArgumentError(
            f"the values of {name} are {short(values)}",
            where=where,
            cure="give a tuple of one or more, such as (8, 16, 32)",
        )
    for number, value in enumerate(values):
        if not is_plain(value):
            raise ArgumentError(
                f"a value of {name} is {short(value)}",
                where=where,
                cure="give finite numbers, texts, None, or tuples of these",
            )
        if value in values[:number]:
            raise ArgumentError(
                f"{short(value)} is a value of {name} twice",
                where=where,
                why="1, 1.0 and True are equal",
                cure="give it once",
            )
    return Tunable(name, tuple(values))


def is_plain(value: object) -> bool:
    """Whether ``value`` may be one of a tunable: it prints, and is read, as what it is."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


def tunables_in(
    tree: ast.AST, outside: Mapping[str, Any], visited: frozenset[int] = frozenset()
) -> Iterator[Tunable]:
    """The tunables that a function with this ``tree`` takes from ``outside``, of modules, too, and
    those of functions that it calls."""
    for node in ast.walk(tree):
        value = _outside_value(node, outside)
        inner = getattr(value, "function", None)
        if isinstance(value, Tunable):
            yield value
        elif hasattr(value, "inline") and inner is not None and id(value) not in visited:
            yield from value.defaults.values()
            yield from tunables_in(inner.source.tree, inner.outside, visited | {id(value)})


def _outside_value(node: ast.AST, outside: Mapping[str, Any]) -> Any:
    """The value of a name, or of a module's attribute; None for anything else."""
    if isinstance(node, ast.Name):
        return outside.get(node.id)
    if isinstance(node, ast.Attribute):
        module = _outside_value(node.value, outside)
        return getattr(module, node.attr, None) if isinstance(module, ModuleType) else None
    return None


def tunables_of_sizes(sizes: object) -> Iterator[Tunable]:
    """The tunables in a range or in a local size."""
    for size in sizes if isinstance(sizes, tuple | list) else (sizes,):
        if isinstance(size, Tunable):
            yield size


def sizes_with(sizes: Any, chosen: Chosen, where: str) -> Any:
    """A range or a local size with the values of its tunables; of a function, what it gives for
    them. Raises `ArgumentError` where that function fails."""
    if callable(sizes):
        try:
            sizes = sizes(chosen)
        except Exception as error:
            raise ArgumentError(
                f"the function of its sizes fails: {type(error).__name__}: {short(str(error))}",
                where=where,
                why=f"it is called with {dict(chosen)}" if chosen else "there are no tunables",
                cure="pass a size, a tuple of sizes, or a function of the tunables' values",
            ) from error
    if isinstance(sizes, Tunable):
        return chosen[sizes.name]
    if isinstance(sizes, tuple | list):
        return tuple(chosen[size.name] if isinstance(size, Tunable) else size for size in sizes)
    return sizes


def choose(tunables: Mapping[str, Tunable], wanted: object, where: str) -> dict[str, Any]:
    """The values of ``tunables``: those that are ``wanted`` by their names, the first of the
    others. Raises `ArgumentError` for names and values that are not declared."""
    chosen = {name: value.first for name, value in tunables.items()}
    if wanted is None:
        return chosen
    if not isinstance(wanted, Mapping):
        raise ArgumentError(
            f"tunables is {short(wanted)}",
            where=where,
            cure='give a dict of values by their names, such as {"TILE": 16}',
        )
    for name, value in wanted.items():
        if name not in tunables:
            raise ArgumentError(
                f"there is no tunable {short(name)}",
                where=where,
                cure=one_of(name, tunables)
                if tunables
                else "declare it by tw.tunable, or leave it out",
            )
        chosen[name] = tunables[name].among(value, where)
    return chosen


def in_words(chosen: Chosen) -> str:
    """Values of tunables in a line; "" for none."""
    return ", ".join(f"{name}={value!r}" for name, value in chosen.items())


def twice(name: str, where: Span | str) -> ArgumentError:
    """The error about two tunables of one name."""
    return ArgumentError(
        f"{name} is the name of two tunables",
        where=where,
        why="a launch chooses one value for a name",
        cure="give one of them another name, or declare it once and use it in both places",
    )

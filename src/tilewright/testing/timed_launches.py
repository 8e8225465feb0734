"""Launches of kernels in Python that are timed: the numbers of a call."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.lang.kernel import KernelFunction
from tilewright.testing.launched import (
    TILE,
    decay,
    group_sums,
    indexed,
    product,
    row_sums,
    stencil,
    transposed,
    triad,
)

Numbers = dict[str, int | float]


@dataclass(frozen=True)
class Launch:
    """A kernel, and the numbers of a launch, by the names of its parameters, for about so many
    elements of its greatest array."""

    function: KernelFunction
    numbers: Callable[[int, random.Random], Mapping[str, int | float]]


def _rectangle(elements: int, rng: random.Random, multiple: int = 1) -> tuple[int, int]:
    """Two sizes of about so many elements, multiples of ``multiple``."""
    rows = max(1, round(elements ** rng.uniform(0.3, 0.7)))
    parts = (max(1, size // multiple) for size in (rows, elements // rows))
    rows, columns = (multiple * part for part in parts)
    return rows, columns


def _line(names: str, **others: float) -> Callable[[int, random.Random], Numbers]:
    return lambda n, rng: dict.fromkeys(names.split(), n) | others


def _stencil(elements: int, rng: random.Random) -> Numbers:
    rows, columns = _rectangle(elements, rng)
    image: Numbers = {"x_0": rows + 2, "x_1": columns + 2, "y_0": rows, "y_1": columns}
    return image | {"global_0": rows, "global_1": columns}


def _row_sums(elements: int, rng: random.Random) -> Numbers:
    rows, columns = _rectangle(elements, rng)
    return {"n": columns, "x_0": rows, "x_1": columns, "y_0": rows, "global_0": rows}


def _product(elements: int, rng: random.Random) -> Numbers:
    # So many multiplications: each is a step of a loop.
    m, rest = _rectangle(elements, rng)
    n = max(1, round(rest ** rng.uniform(0.3, 0.7)))
    k = max(1, rest // n)
    sizes: Numbers = {"a_0": m, "a_1": k, "b_0": k, "b_1": n, "c_0": m, "c_1": n}
    return {"n": k, **sizes, "global_0": m, "global_1": n}


def _transposed(elements: int, rng: random.Random) -> Numbers:
    rows, columns = _rectangle(elements, rng, TILE)
    image: Numbers = {"x_0": rows, "x_1": columns, "y_0": columns, "y_1": rows}
    return image | {"global_0": rows, "global_1": columns}


def _group_sums(elements: int, rng: random.Random) -> Numbers:
    groups = max(1, elements // 64)
    return {"x_0": 64 * groups, "sums_0": groups, "global_0": 64 * groups}


LAUNCHES = (
    Launch(triad, _line("x_0 y_0 z_0 global_0", a=0.5)),
    Launch(decay, _line("x_0 y_0 global_0")),
    Launch(indexed, _line("x_0 places_0 y_0 global_0")),
    Launch(stencil, _stencil),
    Launch(row_sums, _row_sums),
    Launch(product, _product),
    Launch(transposed, _transposed),
    Launch(group_sums, _group_sums),
)

"""A kernel of the suite: how it is launched, and what numpy makes of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CASES: list[Case] = []


@dataclass(frozen=True)
class Case:
    """``arguments`` makes the arguments from random numbers; ``wanted`` gives what arrays are
    afterwards, by their places. ``locals`` are local sizes to launch with."""

    kernel: Any
    range: tuple[int, ...]
    locals: Sequence[tuple[int, ...] | None]
    arguments: Callable[[np.random.Generator], list[Any]]
    wanted: Callable[..., dict[int, Any]]
    tolerance: float = 0.0

    @property
    def name(self) -> str:
        return str(self.kernel.name)


def case(
    kernel: Any,
    range_: int | tuple[int, ...],
    locals_: Sequence[int | tuple[int, ...] | None],
    arguments: Callable[[np.random.Generator], list[Any]],
    wanted: Callable[..., dict[int, Any]],
    tolerance: float = 0.0,
) -> None:
    """Adds a kernel to the suite."""
    sizes = (range_,) if isinstance(range_, int) else range_
    local = [(size,) if isinstance(size, int) else size for size in locals_]
    CASES.append(Case(kernel, sizes, local, arguments, wanted, tolerance))


def floats(g: np.random.Generator, *shape: int) -> Any:
    """Random f32."""
    return g.standard_normal(shape).astype(np.float32)


def whole(g: np.random.Generator, *shape: int, most: int = 100) -> Any:
    """Random whole numbers as s32."""
    return g.integers(0, most, shape).astype(np.int32)

"""Pieces of kernels' texts: dims, indices, numbers, conversions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.dtypes import DType
from tilewright.problems.numbers import held
from tilewright.problems.problem import Shape


@dataclass(frozen=True, slots=True)
class Domain:
    """The points of a tensor: one dim ``d0``, ``d1``, ... for each of its own. Where computes have
    dims of one name, a schedule may run them in one loop."""

    shape: Shape

    def dims(self, *without: int, ordered: int | None = None) -> str:
        """``d0 in 4, d2 in 7``: the dims that loops run over, but for some; one may be ordered."""
        dims = [
            f"{'ordered ' if i == ordered else ''}d{i} in {size}"
            for i, size in enumerate(self.shape)
            if i not in without
        ]
        return ", ".join(dims) or "once in 1"

    def at(self, changed: Mapping[int, str] = MappingProxyType({})) -> str:
        """``d0, d1``: the index of a point, with other expressions for some dims."""
        return ", ".join(changed.get(i, f"d{i}") for i in range(len(self.shape)))

    def kept(self, *axes: int) -> str:
        """The index of a tensor whose ``axes`` have size 1."""
        return self.at(dict.fromkeys(axes, "0"))

    def sizes(self, *axes: int) -> str:
        """The shape, with 1 for ``axes``."""
        return ", ".join(str(1 if i in axes else n) for i, n in enumerate(self.shape))


def number(value: float, type: DType) -> str:
    """A constant of ``type``. Raises `UnsupportedError` for one that is too great for it."""
    return f"{type}({held(value, type)!r})"


def stored(value: str, held: DType, type: DType) -> str:
    """``value``, which is of the type ``held``, as a result of ``type``: rounded to nearest even
    and saturated."""
    if held is type:
        return value
    if type.is_float:
        return f"{type}({value})"
    if held.is_float:
        return f"{type}(round({value}))"
    low, high = max(held.lowest, type.lowest), min(held.highest, type.highest)
    if low > held.lowest:
        value = f"max({value}, {held}({int(low)}))"
    if high < held.highest:
        value = f"min({value}, {held}({int(high)}))"
    return f"{type}({value})"


def statements(text: str) -> str:
    """``text`` without the indentation that it has in its record."""
    lines = [line for line in text.splitlines() if line.strip()]
    least = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[least:] for line in lines)

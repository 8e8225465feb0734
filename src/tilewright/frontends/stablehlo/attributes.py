"""Attributes of operations as values, and how translators read them.

Numbers, truth values, strings, lists and dicts are Python's; of the others, each has a class here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Symbol:
    """``@name``: a function, or what a custom call calls."""

    name: str


@dataclass(frozen=True)
class Word:
    """A name that means itself: ``LT`` of ``#stablehlo<comparison_direction LT>``."""

    text: str


@dataclass(frozen=True)
class Record:
    """``#stablehlo.gather<offset_dims = [1], ...>``: named fields."""

    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Convolved:
    """``[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]``: what each dim of input, kernel and output is."""

    input: tuple[str, ...]
    kernel: tuple[str, ...]
    output: tuple[str, ...]


@dataclass(frozen=True)
class Foreign:
    """An attribute of another dialect, which nothing here reads."""

    text: str


@dataclass(frozen=True)
class Paired:
    """``[0] x [1]``: dims of the left and of the right operand."""

    left: tuple[Any, ...]
    right: tuple[Any, ...]

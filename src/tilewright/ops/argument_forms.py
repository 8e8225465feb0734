"""The forms in which users give what an op is made of, each with its check.

A problem is a descriptor, an object, or a shape; element types are one, or one for each tensor;
layouts are tags, strides or `Layout` objects. Everything else is refused here, where the name of
the argument is known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tilewright.dtypes import DType
from tilewright.dtypes import dtype as dtype_of
from tilewright.errors import LayoutError, ProblemError, short
from tilewright.ir.buffer import Layout
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Direction, Problem, Shape, parse_direction, parse_types
from tilewright.problems.window import WindowProblem

_DIRECTIONS = {"FWD": "FWD_D", "BWD_DATA": "BWD_D", "BWD_WEIGHTS": "BWD_W"}
P = TypeVar("P", bound=Problem)
W = TypeVar("W", bound=WindowProblem)


def problem_of(
    value: object, kind: type[P], shapes: Callable[[Shape], tuple[Shape, ...]] | None = None
) -> P:
    """The problem that a descriptor or an object says; a shape, too, where ``shapes`` says which
    shapes it stands for. Raises `ProblemError`."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        return kind.parse(value)
    if shapes is not None and isinstance(value, tuple | list):
        return kind(*shapes(_shape(value)))
    forms = "a descriptor" if shapes is None else "a descriptor or a shape"
    raise ProblemError(
        f"{short(value)} is no problem for {kind.driver}",
        where="the first argument",
        cure=f"give {forms}, or a {kind.__name__}",
    )


def window_problem_of(value: object, kind: type[W], sizes: Mapping[str, int]) -> W:
    """The problem that a descriptor, an object, or else sizes by keyword say. Raises
    `ProblemError`."""
    if value is None:
        return kind.from_sizes(**sizes)
    if sizes:
        raise ProblemError(
            f"both a problem and sizes are given: {', '.join(sizes)}",
            cure="write the sizes into the descriptor, or leave it out",
        )
    return problem_of(value, kind)


def direction_of(value: object) -> Direction:
    """A direction, by our names or benchdnn's."""
    if isinstance(value, Direction):
        return value
    if not isinstance(value, str):
        raise ProblemError(
            f"{short(value)} is no direction",
            where="direction",
            cure="write fwd, bwd_data or bwd_weights",
        )
    return parse_direction(_DIRECTIONS.get(value.upper(), value))


def types_of(value: Any, tensors: tuple[str, ...]) -> dict[str, DType]:
    """The type of each tensor. Raises `ProblemError` when there are too many or too few, and
    `UnsupportedError` for what is no type."""
    if isinstance(value, str):
        return dict(zip(tensors, parse_types(value, tensors), strict=True))
    if isinstance(value, Mapping):
        if set(value) != set(tensors):
            raise ProblemError(
                f"types are given for {', '.join(map(str, value)) or 'no tensor'}",
                where="dtype",
                cure="give one for each of " + ", ".join(tensors),
            )
        return {tensor: dtype_of(value[tensor]) for tensor in tensors}
    if not isinstance(value, Sequence):
        return dict.fromkeys(tensors, dtype_of(value))
    if len(value) != len(tensors):
        raise ProblemError(
            f"{len(value)} types are given for {len(tensors)} tensors",
            where="dtype",
            cure="give one, or one for each of " + ", ".join(tensors),
        )
    return dict(zip(tensors, map(dtype_of, value), strict=True))


def layouts_of(**specs: object) -> dict[str, LayoutSpec]:
    """The layouts that were given, by the tensor's name. Raises `LayoutError` for what is none."""
    return {name: _layout(name, value) for name, value in specs.items() if value is not None}


def shared_layouts(**specs: object) -> dict[str, LayoutSpec]:
    """`layouts_of`, where the tag of one of source and result is the other's, too."""
    layouts = layouts_of(**specs)
    source = "src0" if "src0" in specs else "src"
    for name, other in ((source, "dst"), ("dst", source)):
        if name not in layouts and isinstance(layouts.get(other), str):
            layouts[name] = layouts[other]
    return layouts


def _layout(name: str, value: object) -> LayoutSpec:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Layout):
        return value
    strides = _integers(value)
    if strides is None:
        raise LayoutError(
            f"{short(value)} is no layout",
            where=name,
            cure="give a tag such as nhwc, or a tuple of strides in elements, which are integers",
        )
    longest = max(strides, key=abs, default=0)
    if longest.bit_length() > 200:  # more than an error can print
        raise LayoutError(
            f"a stride is {short(longest)}",
            where=name,
            why="it is too large: offsets are 64-bit",
            cure="give strides in elements",
        )
    return strides


def _shape(value: tuple[object, ...] | list[object]) -> Shape:
    sizes = _integers(value)
    if sizes is None:
        raise ProblemError(
            f"{short(value)} is no shape",
            where="the first argument",
            cure="give a tuple of integers, such as (8, 16)",
        )
    return sizes


def _integers(value: object) -> tuple[int, ...] | None:
    """The integers of a tuple or list, numpy's included; None for anything else."""
    if not isinstance(value, tuple | list):
        return None
    numbers = []
    for number in value:
        if isinstance(number, bool):
            return None
        try:
            numbers.append(operator.index(number))
        except TypeError:
            return None
    return tuple(numbers)

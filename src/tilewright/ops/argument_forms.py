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
    given: object, kind: type[P], shapes: Callable[[Shape], tuple[Shape, ...]] | None = None
) -> P:
    """The problem that a descriptor or an object says; a shape, too, where ``shapes`` says which
    shapes it stands for. Raises `ProblemError`."""
    if isinstance(given, kind):
        return given
    if isinstance(given, str):
        return kind.parse(given)
    if shapes is not None and isinstance(given, tuple | list):
        return kind(*shapes(_shape(given)))
    forms = "a descriptor" if shapes is None else "a descriptor or a shape"
    raise ProblemError(
        f"{short(given)} is no problem for {kind.driver}",
        where="the first argument",
        cure=f"give {forms}, or a {kind.__name__}",
    )


def window_problem_of(given: object, kind: type[W], sizes: Mapping[str, int]) -> W:
    """The problem that a descriptor, an object, or else sizes by keyword say. Raises
    `ProblemError`."""
    if given is None:
        return kind.from_sizes(**sizes)
    if sizes:
        raise ProblemError(
            f"both a problem and sizes are given: {', '.join(sizes)}",
            cure="write the sizes into the descriptor, or leave it out",
        )
    return problem_of(given, kind)


def direction_of(given: object) -> Direction:
    """A direction, by our names or benchdnn's."""
    if isinstance(given, Direction):
        return given
    if not isinstance(given, str):
        raise ProblemError(
            f"{short(given)} is no direction",
            where="direction",
            cure="write fwd, bwd_data or bwd_weights",
        )
    return parse_direction(_DIRECTIONS.get(given.upper(), given))


def types_of(given: Any, tensors: tuple[str, ...]) -> dict[str, DType]:
    """The type of each tensor. Raises `ProblemError` when there are too many or too few, and
    `UnsupportedError` for what is no type."""
    if isinstance(given, str):
        return dict(zip(tensors, parse_types(given, tensors), strict=True))
    if isinstance(given, Mapping):
        if set(given) != set(tensors):
            raise ProblemError(
                f"types are given for {', '.join(map(str, given)) or 'no tensor'}",
                where="dtype",
                cure="give one for each of " + ", ".join(tensors),
            )
        return {tensor: dtype_of(given[tensor]) for tensor in tensors}
    if not isinstance(given, Sequence):
        return dict.fromkeys(tensors, dtype_of(given))
    if len(given) != len(tensors):
        raise ProblemError(
            f"{len(given)} types are given for {len(tensors)} tensors",
            where="dtype",
            cure="give one, or one for each of " + ", ".join(tensors),
        )
    return dict(zip(tensors, map(dtype_of, given), strict=True))


def layouts_of(**given: object) -> dict[str, LayoutSpec]:
    """The layouts that were given, by the tensor's name. Raises `LayoutError` for what is none."""
    return {name: _layout(name, each) for name, each in given.items() if each is not None}


def shared_layouts(**given: object) -> dict[str, LayoutSpec]:
    """`layouts_of`, where the tag of one of source and result is the other's, too."""
    found = layouts_of(**given)
    source = "src0" if "src0" in given else "src"
    for name, other in ((source, "dst"), ("dst", source)):
        if name not in found and isinstance(found.get(other), str):
            found[name] = found[other]
    return found


def _layout(name: str, given: object) -> LayoutSpec:
    if isinstance(given, str):
        return str(given)
    if isinstance(given, Layout):
        return given
    strides = _integers(given)
    if strides is None:
        raise LayoutError(
            f"{short(given)} is no layout",
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


def _shape(given: tuple[object, ...] | list[object]) -> Shape:
    sizes = _integers(given)
    if sizes is None:
        raise ProblemError(
            f"{short(given)} is no shape",
            where="the first argument",
            cure="give a tuple of integers, such as (8, 16)",
        )
    return sizes


def _integers(given: object) -> tuple[int, ...] | None:
    """The integers of a tuple or list, numpy's included; None for anything else."""
    if not isinstance(given, tuple | list):
        return None
    found = []
    for each in given:
        if isinstance(each, bool):
            return None
        try:
            found.append(operator.index(each))
        except TypeError:
            return None
    return tuple(found)

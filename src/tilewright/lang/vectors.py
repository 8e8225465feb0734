"""Vectors of a work-item: a few numbers of one type that are computed with together.

A vector is its elements: operators and functions of numbers apply to each, and lanes share none.
Loads and stores of neighbours in memory access them one by one.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from tilewright.ir.expr import Expr
from tilewright.ir.load import load
from tilewright.lang.builtin import Site, builtin
from tilewright.lang.values import Array, Vector, described, is_literal

# More elements are an array's: `tw.private`.
_MOST = 64
_OPERATORS = ("add", "mul", "min", "max", "and", "or", "xor")


@builtin
def vector(site: Site, *values: Any) -> Vector:
    """A vector of ``values``, numbers, in their common type: ``tw.vector(x, y, 0.0)``.

    Operators (``+``, ``<``, ``-v``), conversions (``tw.f32(v)``), `where` and the functions of
    numbers take vectors element by element, and numbers beside them for each. ``v[i]`` is an
    element, ``v[1:3]`` a shorter vector, by literals; ``len(v)`` is its length. Names
    that hold vectors are assigned anew in loops and branches as names of numbers are.
    """
    if not 1 <= len(values) <= _MOST:
        raise site.refuse(
            f"a vector of {len(values)}", cure=f"give 1 to {_MOST} numbers, or take tw.private"
        )
    for value in values:
        site.number(value)
    if all(map(is_literal, values)):
        floats = any(isinstance(value, float) for value in values)
        return Vector(tuple(float(value) if floats else value for value in values))
    common = None
    for value in sorted(values, key=is_literal):
        common = value if common is None else site.arithmetic.common(common, value, "tw.vector")[0]
    dtype = site.arithmetic.type_of(common)
    return Vector(tuple(site.let("element", site.arithmetic.convert(v, dtype)) for v in values))


@builtin
def load_vector(site: Site, array: Any, index: Any, length: Any) -> Vector:
    """``length`` neighbours along the last dim of ``array``, from ``index`` on: a number, or a
    tuple of one for each dim."""
    source, place = _place(site, array, index)
    count = site.static_integer(length, "length", 1, _MOST)
    guard = None if source.private else site.scope.guard
    return Vector(
        tuple(
            site.let("element", load(source.buffer, _moved(place, n), guard)) for n in range(count)
        )
    )


@builtin
def store_vector(site: Site, array: Any, index: Any, value: Any) -> None:
    """Stores a vector as neighbours along the last dim of ``array``, from ``index`` on."""
    target, place = _place(site, array, index)
    what = f"an element of {target.buffer.name}"
    converted = [
        site.arithmetic.kept(part, target.dtype, what) for part in _vector(site, value).parts
    ]
    site.translation.written(site, target)
    for n, element in enumerate(converted):
        site.emitter.store(target.buffer, _moved(place, n), element)


@builtin
def vector_reduce(site: Site, value: Any, operator: Any) -> Any:
    """The elements of a vector combined by ``"add"``, ``"mul"``, ``"min"``, ``"max"``, ``"and"``,
    ``"or"`` or ``"xor"``, from the first to the last."""
    op = site.one_of(operator, "operator", _OPERATORS)
    return reduce(lambda a, b: site.arithmetic.binary(op, a, b), _vector(site, value).parts)


def _vector(site: Site, value: Any) -> Vector:
    if not isinstance(value, Vector):
        raise site.refuse(
            f"tw.{site.name} of {described(value)}", cure="make a vector: tw.vector(x, y)"
        )
    return value


def _place(site: Site, array: Any, index: Any) -> tuple[Array, tuple[Expr, ...]]:
    source = site.array(array)
    values = list(index) if isinstance(index, tuple) else [index]
    place = site.scope.place(source, values, site.node)
    return source, tuple(site.emitter.let("at", part) for part in place)


def _moved(place: tuple[Expr, ...], by: int) -> tuple[Expr, ...]:
    return (*place[:-1], place[-1] + by) if by else place

"""Scalars with which a kernel is verified and checked, unless the user sets them.

For a kernel in text, random ones that keep its parameters' promises. For a function with
`@tw.kernel`, whose parameters promise nothing, consistent ones: see `range_numbers`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tilewright.ir.arguments import Scalar
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Allocate, Compute, For, Kernel, ScalarParam
from tilewright.ir.visit import variables, walk_stmts
from tilewright.testing.influences import Decided, deciding, divisors
from tilewright.testing.launch_nest import launch_nest
from tilewright.testing.range_numbers import range_numbers

# Exact in all types, and in products of a few.
_FACTORS = (0.5, 2.0, -1.0, 4.0, 0.25)
# The greatest random size, by the number of sizes.
_GREATEST = {1: 2000, 2: 200, 3: 60}
_GREATEST_OF_MANY = 16


def draw_numbers(kernel: Kernel, arrays: Mapping[str, Scalar], seed: int) -> dict[str, Scalar]:
    """A value for each scalar parameter of ``kernel``: that of ``arrays``, or a random one that
    keeps the parameter's promise. (Verification ensures that all arrays have a shape.)"""
    rng = random.Random(seed)
    numbers = dict(arrays)
    nest = launch_nest(kernel)
    if nest is not None:
        numbers |= range_numbers(kernel, nest, numbers, seed)
    free = [scalar for scalar in kernel.scalars if scalar.name not in numbers]
    sizes, places = _sizes(kernel), deciding(kernel, *Decided)
    divided = divisors(kernel)
    greatest = _GREATEST.get(sum(scalar.var in sizes for scalar in free), _GREATEST_OF_MANY)
    for param in free:
        if param.var in sizes:
            numbers[param.name] = _size(param, rng, greatest)
        else:
            numbers[param.name] = _value(param, rng, param.var in places, param.var in divided)
    return {scalar.name: numbers[scalar.name] for scalar in kernel.scalars}


def _size(param: ScalarParam, rng: random.Random, greatest: int) -> int:
    """A size, or a number on which a size depends: at least 1, if its promise allows it."""
    by = param.divisor
    low = max(1, param.low or 1)
    high = greatest if param.high is None else param.high
    low = min(low, high)  # the promise may be 0 or less
    return _multiple(low, max(low, min(high, greatest)), by, rng)


def _value(param: ScalarParam, rng: random.Random, places: bool, divides: bool) -> Scalar:
    """A number that is no size; at the limits of its type, too, if no places depend on it."""
    if param.dtype.kind == "bool":
        return rng.random() < 0.5
    if param.dtype.is_float:
        return rng.choice(_FACTORS)
    least, greatest = int(param.dtype.lowest), int(param.dtype.highest)
    low = param.low if param.low is not None else min(max(-9, least), param.high or 0)
    high = param.high if param.high is not None else max(9, low)
    if not places and rng.random() < 0.5:
        free = (param.low is None, least), (param.high is None, greatest)
        limits = [limit // param.divisor * param.divisor for open_, limit in free if open_]
        if limits:
            return rng.choice(limits)
    value = _multiple(low, high, param.divisor, rng)
    return 1 if divides and value == 0 and low <= 1 <= high and param.divisor == 1 else value


def _multiple(low: int, high: int, by: int, rng: random.Random) -> int:
    """A multiple of ``by`` from ``low`` to ``high``, the ends more often."""
    first = -(-low // by)
    last = max(first, high // by)
    return by * rng.choice((first, last, rng.randint(first, last), rng.randint(first, last)))


def _sizes(kernel: Kernel) -> set[Var]:
    """The parameters on which the amount of memory or work depends."""
    sizes: set[Var] = set()
    for param in kernel.arrays:
        sizes |= param.buffer.symbols
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case Allocate():
                sizes |= stmt.buffer.symbols
            case For():
                sizes |= variables(stmt.extent)
            case Compute():
                sizes = sizes.union(*(variables(dim.extent) for dim in stmt.dims))
    return sizes

"""The numbers that a kernel is verified and checked with, where nobody sets them.

Of a kernel in text, random ones that keep what its parameters promise. Of a function with
`@tw.kernel`, whose parameters promise nothing, numbers that go together: see `range_numbers`.
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
# The greatest size that is drawn, by how many sizes there are.
_GREATEST = {1: 2000, 2: 200, 3: 60}
_GREATEST_OF_MANY = 16


def draw_numbers(kernel: Kernel, given: Mapping[str, Scalar], seed: int) -> dict[str, Scalar]:
    """A number for each scalar parameter of ``kernel``: that of ``given``, or a random one that
    keeps what the parameter promises. (So all arrays have a shape: verified kernels see to it.)"""
    rng = random.Random(seed)
    found = dict(given)
    nest = launch_nest(kernel)
    if nest is not None:
        found |= range_numbers(kernel, nest, found, seed)
    free = [each for each in kernel.scalars if each.name not in found]
    sizes, places = _sizes(kernel), deciding(kernel, *Decided)
    divided = divisors(kernel)
    greatest = _GREATEST.get(sum(each.var in sizes for each in free), _GREATEST_OF_MANY)
    for param in free:
        if param.var in sizes:
            found[param.name] = _size(param, rng, greatest)
        else:
            found[param.name] = _value(param, rng, param.var in places, param.var in divided)
    return {each.name: found[each.name] for each in kernel.scalars}


def _size(param: ScalarParam, rng: random.Random, greatest: int) -> int:
    """A size, or a number on which a size depends: 1 or more, where it may be."""
    by = param.divisor
    low = max(1, param.low or 1)
    high = greatest if param.high is None else param.high
    low = min(low, high)  # a size that is 0, or less than 0, by its promise
    return _multiple(low, max(low, min(high, greatest)), by, rng)


def _value(param: ScalarParam, rng: random.Random, places: bool, divides: bool) -> Scalar:
    """A number that is no size. Of one that decides no places, the limits of its type, too."""
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
    found = _multiple(low, high, param.divisor, rng)
    return 1 if divides and found == 0 and low <= 1 <= high and param.divisor == 1 else found


def _multiple(low: int, high: int, by: int, rng: random.Random) -> int:
    """A multiple of ``by`` from ``low`` to ``high``, the ends more often."""
    first = -(-low // by)
    last = max(first, high // by)
    return by * rng.choice((first, last, rng.randint(first, last), rng.randint(first, last)))


def _sizes(kernel: Kernel) -> set[Var]:
    """The parameters on which depends how much memory or work there is."""
    found: set[Var] = set()
    for param in kernel.arrays:
        found |= param.buffer.symbols
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case Allocate():
                found |= stmt.buffer.symbols
            case For():
                found |= variables(stmt.extent)
            case Compute():
                found = found.union(*(variables(dim.extent) for dim in stmt.dims))
    return found

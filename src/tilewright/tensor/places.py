"""Places in tensors: the variables that stand for them, and what an element at a place is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tilewright.ir.expr import Binary, Cast, Const, Expr, Var, const, select, var
from tilewright.ir.load import Load, load
from tilewright.ir.visit import rewrite_loads, walk

Shape = tuple[int, ...]


@cache
def axis(number: int) -> Var:
    """The variable that stands for a place along dim ``number`` in every tensor's ``value``."""
    return var(f"d{number}")


def axes(rank: int) -> tuple[Var, ...]:
    """The variables of all dims of a tensor of ``rank``."""
    return tuple(map(axis, range(rank)))


def linear_index(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The number of a place in ``shape``, counted row by row."""
    place: Expr = const(0)
    for along, size in zip(index, shape, strict=True):
        if size > 1:
            place = place * size + along
    return place


def is_factor(value: Expr) -> bool:
    """`Tensor.is_factor` of an element."""
    while isinstance(value, Cast):
        value = value.a
    if not isinstance(value, Load):
        return False
    parts = (*value.index, *(() if value.mask is None else (value.mask,)))
    return not any(isinstance(n, Load) or divides(n) for part in parts for n in walk(part))


def divides(node: Expr) -> bool:
    """Whether it is a quotient or what a division leaves."""
    return isinstance(node, Binary) and node.op in ("floordiv", "mod")


def guarded(value: Expr, inside: Expr, outside: Expr) -> Expr:
    """``value`` where ``inside`` holds, else ``outside``, with no load where it does not."""

    def masked(node: Load) -> Expr:
        mask = inside if node.mask is None else node.mask & inside
        return load(node.buffer, node.index, mask)

    if isinstance(inside, Const):
        return value if inside.value else outside
    value = rewrite_loads(value, masked)
    if isinstance(value, Load) and is_zero(outside):
        return value
    return select(inside, value, outside)


def is_zero(value: Expr) -> bool:
    """Whether it is what masked loads give: 0, and not the negative zero."""
    return isinstance(value, Const) and not value.value and not str(value.value).startswith("-")

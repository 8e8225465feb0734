"""Tensors of a graph: what an op of a front end takes and gives, before any memory is asked for.

A tensor says what its element at each place is: an expression of the place, whose loads say where
in which buffers it lies. So reshapes, transposes, slices and broadcasts are other expressions, and
cost nothing until something computes with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import prod
from typing import TYPE_CHECKING

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Cast, Const, Expr, ExprLike, Var, as_expr, const, select, var
from tilewright.ir.load import Load, load
from tilewright.ir.visit import reads_memory, rewrite_loads, substitute, walk

if TYPE_CHECKING:
    from tilewright.tensor.builder import Builder

Shape = tuple[int, ...]
# What the element of a tensor is made of at most, before it is put into memory.
_MOST = 64


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


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Tensor:
    """A value of ``shape``: ``value`` is its element at the place `axes` (s64) stand for.

    The loads in it are within their buffers for every place in the shape, or masked.
    """

    builder: Builder
    shape: Shape
    value: Expr

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.value.type

    @property
    def rank(self) -> int:
        """How many dims there are."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """How many elements there are."""
        return prod(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{list(self.shape)}: {self.value})"

    def at(self, *index: ExprLike) -> Expr:
        """The element at a place, one index (s64) for each dim; as it is, not simplified."""
        if len(index) != self.rank:
            raise TypeError(f"{self.rank} indices expected, {len(index)} given")
        return substitute(self.value, dict(zip(axes(self.rank), map(as_expr, index), strict=True)))

    def viewed(self, shape: Sequence[int], index: Sequence[ExprLike]) -> Tensor:
        """The tensor of ``shape`` whose element is the one of this at ``index``, which must be in
        it: expressions of the new tensor's `axes`."""
        return self.builder.tensor(shape, self.settled().at(*index))

    def within(
        self, shape: Sequence[int], index: Sequence[ExprLike], inside: Expr, outside: Expr
    ) -> Tensor:
        """`viewed` where ``inside`` holds, ``outside`` elsewhere, where no memory is touched."""
        return self.builder.tensor(shape, guarded(self.settled().at(*index), inside, outside))

    def settled(self) -> Tensor:
        """The tensor in memory where its element is made of so many parts that more views of it
        would compute too much at each place; otherwise itself."""
        parts = len(list(islice(walk(self.value), _MOST + 1)))
        return self if parts <= _MOST else self.builder.materialize(self)

    @property
    def constant(self) -> Const | None:
        """The one value of all elements, where it is known."""
        return self.value if isinstance(self.value, Const) else None

    @property
    def buffer(self) -> Buffer | None:
        """The buffer that it is all of, element by element; None where there is none."""
        value = self.value
        if not isinstance(value, Load) or value.mask is not None:
            return None
        if value.buffer.sizes != self.shape:
            return None
        for number, (index, size) in enumerate(zip(value.index, self.shape, strict=True)):
            if index is not axis(number) and not (size == 1 and isinstance(index, Const)):
                return None
        return value.buffer

    @property
    def is_computed(self) -> bool:
        """Whether its elements are computed from places alone: nothing is loaded for them."""
        return not reads_memory(self.value)

    @property
    def is_factor(self) -> bool:
        """Whether contractions take it as it is: one load, perhaps converted, whose place is a sum
        of multiples of dims, and 0 where it is masked."""
        return is_factor(self.value)


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

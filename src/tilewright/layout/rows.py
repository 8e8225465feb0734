"""Matrices in workgroup memory as matrix units take them: in swizzled rows.

Rows of 128, 64 or 32 bytes lie one after another, and the runs of 16 bytes in them change places by
the number of the row (a `Swizzle`). The rows of one period of the swizzle make a block, which
begins where a period begins. Larger matrices are blocks at even distances, of whole periods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tilewright.facts.affine import Affine, affine
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import SHARED, Layout, Swizzle
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Const, Expr, Var, const
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import View
from tilewright.ir.visit import reads_memory, substitute, variables
from tilewright.simplify import simplify


@dataclass(frozen=True)
class Rows:
    """Rows of ``length`` elements along the dim ``along``, one after another along ``across``."""

    along: str
    across: str
    length: int
    swizzle: Swizzle

    @property
    def block(self) -> int:
        """Rows in a block."""
        return self.swizzle.period // self.length


@dataclass(frozen=True)
class RowPlacement:
    """The place of a matrix in ``rows``, in elements: ``first`` is the offset of its first element
    (in the first row of a block); ``along`` and ``across`` are the distances from one block to the
    next along the rows and across them (0 for one block)."""

    rows: Rows
    first: Expr
    along: int
    across: int


def place_rows(
    rows: Rows, view: View, dims: Mapping[str, tuple[Var, int]], facts: Facts
) -> RowPlacement | str:
    """The place of the matrix of ``view`` in ``rows``; or why it has none.

    ``dims`` gives the variable of the view and the extent for each dim of the rows.
    """
    buffer = view.buffer
    if buffer.space not in SHARED:
        return f"it is in {buffer.space.value} memory, not in workgroup memory"
    if buffer.layout.swizzle != rows.swizzle:
        return f"it is swizzled by {buffer.layout.swizzle}, not by {rows.swizzle}"
    plain = Layout(buffer.layout.blocks, buffer.layout.offset)
    offset = simplify(plain.offset_of(view.index), facts)
    distances: dict[str, int] = {}
    for name, size, step in ((rows.along, rows.length, 1), (rows.across, rows.block, rows.length)):
        variable, extent = dims[name]
        distance = _block_distance(
            offset, variable, (extent, size, step), rows.swizzle.period, facts
        )
        if isinstance(distance, str):
            return distance
        distances[name] = distance
    first = substitute(offset, {variable: const(0) for variable, _ in dims.values()})
    first = simplify(first, facts)
    reason = _wrong_start(rows, first, dims[rows.along][1], facts)
    if reason is not None:
        return reason
    return RowPlacement(rows, first, distances[rows.along], distances[rows.across])


def growth(offset: Expr, dim: Var, value: int, facts: Facts) -> int | None:
    """The growth of ``offset`` from ``dim = 0`` to ``dim = value``; None if that varies."""
    total = 0
    for atom, coefficient in affine(offset).terms.items():
        if dim not in variables(atom):
            continue
        change = _atom_growth(atom, dim, value, facts)
        if change is None:
            return None
        total += coefficient * change
    return total


def _atom_growth(atom: Expr, dim: Var, value: int, facts: Facts) -> int | None:
    if atom is dim:
        return value
    if len(variables(atom)) == 1 and not reads_memory(atom):
        return _value(atom, dim, value) - _value(atom, dim, 0)
    grown = substitute(atom, {dim: const(value)}) - substitute(atom, {dim: const(0)})
    simple = simplify(grown, facts)
    return int(simple.value) if isinstance(simple, Const) else None


@lru_cache(maxsize=1 << 12)
def _value(expr: Expr, variable: Var, value: int) -> int:
    """The value of ``expr`` with its one variable. Cached: each of an instruction's many matrices
    needs the same few digits of the same elements."""
    return int(evaluate(expr, {variable: value}))


def _block_distance(
    offset: Expr, dim: Var, form: tuple[int, int, int], period: int, facts: Facts
) -> int | str:
    """The distance of blocks along ``dim``, or what is wrong with it. ``form``: the extent of the
    dim, the size of a block along it, and the step from one element to the next."""
    extent, size, step = form
    distance = growth(offset, dim, size, facts) if extent > size else 0
    for value in range(extent):
        expected = value % size * step + (value // size * distance if distance else 0)
        if value == size and (distance is None or distance % period):
            return f"blocks along '{dim.name}' are no multiple of {period} elements apart"
        if growth(offset, dim, value, facts) != expected:
            return (
                f"before it is swizzled, the offset {to_text(offset)} has to grow by {expected} "
                f"from {dim.name} = 0 to {dim.name} = {value}"
            )
    return distance or 0


def _wrong_start(rows: Rows, first: Expr, extent: int, facts: Facts) -> str | None:
    form = affine(first)
    # Without whole periods: the place inside of the first row of a block.
    part = {atom: c for atom, c in form.terms.items() if c % rows.swizzle.period}
    inside = Affine(part, form.constant % rows.swizzle.period).to_expr()
    least, most = facts.bounds(inside)
    ends = None if most is None else most + min(extent, rows.length)
    fits = least is not None and least >= 0 and ends is not None and ends <= rows.length
    if fits and facts.divisible(inside, rows.swizzle.run):
        return None
    return (
        f"it begins at {to_text(first)}: not in the first of {rows.block} rows, at a multiple of "
        f"{rows.swizzle.run} elements"
    )

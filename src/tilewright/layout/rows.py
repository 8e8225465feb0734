"""Rows: matrices in workgroup memory as units that multiply them take them.

Rows of 128, 64 or 32 bytes lie behind one another, and the runs of 16 bytes in them change places
by the number of the row (a `Swizzle`). As many rows as the pattern has make a block: one period of
the swizzle, where it begins. Larger matrices are blocks at even distances, of whole periods.
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
    """Rows of ``length`` elements along the dim ``along``, one behind another along ``across``."""

    along: str
    across: str
    length: int
    swizzle: Swizzle

    @property
    def block(self) -> int:
        """How many rows make a block."""
        return self.swizzle.period // self.length


@dataclass(frozen=True)
class Placed:
    """Where a matrix lies as ``rows``, in elements: ``first`` from the buffer's beginning to its
    first element (in the first row of a block), and from a block to the next one along the rows and
    across them (0: there is one)."""

    rows: Rows
    first: Expr
    along: int
    across: int


def place_rows(
    rows: Rows, view: View, dims: Mapping[str, tuple[Var, int]], facts: Facts
) -> Placed | str:
    """Where the matrix of ``view`` lies as ``rows``; or why it does not.

    ``dims``: by the dims of the rows, the variables of the view, and how far each goes.
    """
    buffer = view.buffer
    if buffer.space not in SHARED:
        return f"it is in {buffer.space.value} memory, not in workgroup memory"
    if buffer.layout.swizzle != rows.swizzle:
        return f"it is swizzled by {buffer.layout.swizzle}, not by {rows.swizzle}"
    plain = Layout(buffer.layout.blocks, buffer.layout.offset)
    offset = simplify(plain.offset_of(view.index), facts)
    far: dict[str, int] = {}
    for name, size, step in ((rows.along, rows.length, 1), (rows.across, rows.block, rows.length)):
        variable, extent = dims[name]
        found = _blocks(offset, variable, (extent, size, step), rows.swizzle.period, facts)
        if isinstance(found, str):
            return found
        far[name] = found
    first = substitute(offset, {variable: const(0) for variable, _ in dims.values()})
    first = simplify(first, facts)
    reason = _wrong_start(rows, first, dims[rows.along][1], facts)
    if reason is not None:
        return reason
    return Placed(rows, first, far[rows.along], far[rows.across])


def shift(offset: Expr, dim: Var, value: int, facts: Facts) -> int | None:
    """How much ``offset`` grows from ``dim = 0`` to ``dim = value``; None if that varies."""
    total = 0
    for atom, coefficient in affine(offset).terms.items():
        if dim not in variables(atom):
            continue
        moved = _difference(atom, dim, value, facts)
        if moved is None:
            return None
        total += coefficient * moved
    return total


def _difference(atom: Expr, dim: Var, value: int, facts: Facts) -> int | None:
    if atom is dim:
        return value
    if len(variables(atom)) == 1 and not reads_memory(atom):
        return _value(atom, dim, value) - _value(atom, dim, 0)
    grown = substitute(atom, {dim: const(value)}) - substitute(atom, {dim: const(0)})
    simple = simplify(grown, facts)
    return int(simple.value) if isinstance(simple, Const) else None


@lru_cache(maxsize=1 << 12)
def _value(expr: Expr, variable: Var, value: int) -> int:
    """``expr``, of one variable. Remembered: each of an instruction's many matrices asks for the
    same few digits of the same elements."""
    return int(evaluate(expr, {variable: value}))


def _blocks(
    offset: Expr, dim: Var, form: tuple[int, int, int], period: int, facts: Facts
) -> int | str:
    """How far apart blocks lie along ``dim``; or what is wrong with it. ``form``: how far the dim
    goes, and of a block, its size and the step along the dim."""
    extent, size, step = form
    far = shift(offset, dim, size, facts) if extent > size else 0
    for value in range(extent):
        expected = value % size * step + (value // size * far if far else 0)
        if value == size and (far is None or far % period):
            return f"blocks along '{dim.name}' are no multiple of {period} elements apart"
        if shift(offset, dim, value, facts) != expected:
            return (
                f"before it is swizzled, the offset {to_text(offset)} has to grow by {expected} "
                f"from {dim.name} = 0 to {dim.name} = {value}"
            )
    return far or 0


def _wrong_start(rows: Rows, first: Expr, extent: int, facts: Facts) -> str | None:
    form = affine(first)
    # What is left of whole periods: how far inside of the first row of a block.
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

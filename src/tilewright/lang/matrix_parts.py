"""Joint matrices under translation: their elements, and those that belong to a work-item.

Elements are dealt to the lanes in row-major order, one to each in turn: slice i of all lanes is a
run of consecutive elements. Here they lie in local memory, and a lane accesses its own. An
operation on all of them is a structured op, which schedules see as an op of all lanes on the
matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.dtypes import DType
from tilewright.ir import expr as ir
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.load import load
from tilewright.ir.stmt import Block, Dim, If
from tilewright.lang.boxes import emit_box
from tilewright.lang.builtin import Site
from tilewright.lang.emitter import plus, times

if TYPE_CHECKING:
    from tilewright.lang.scope import Scope

# Methods of matrices, by name.
METHODS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix of ``group``, whose ``lanes`` hold it; ``lane`` is the present one. ``memory`` has
    the matrices of all groups of a workgroup, this one's at ``group_at``; empty for a single
    group."""

    use: str
    rows: int
    cols: int
    dtype: DType
    layout: str
    group: str
    lanes: int
    lane: Expr
    group_at: tuple[Expr, ...]
    memory: Buffer

    in_words = "a joint matrix"

    @property
    def elements(self) -> int:
        return self.rows * self.cols

    @property
    def length(self) -> int:
        """Elements of a lane's slice."""
        return -(-self.elements // self.lanes)

    def method(self, scope: Scope, name: str) -> Any:
        """The value of an attribute: a property, or a method."""
        if name in ("rows", "cols", "dtype", "length", "use", "group"):
            return getattr(self, name)
        if name in METHODS:
            return _Method(self, name)
        raise scope.refuse(
            f"a joint matrix has no {name}",
            cure="it has " + ", ".join(METHODS) + ", and rows, cols, dtype, length, use, group",
        )


@dataclass(frozen=True, eq=False)
class _Method:
    """A method of a matrix."""

    matrix: Matrix
    name: str

    def in_kernel(self, site: Site) -> Any:
        """The result of a call."""
        site.called(f"joint_matrix.{self.name}")
        args, keywords = site.arguments()
        try:
            return METHODS[self.name](site, self.matrix, *args, **keywords)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise
            raise site.refuse(
                f"{self.name}: arguments that do not fit", cure=f"see tw.joint_matrix: {error}"
            ) from None


@dataclass(frozen=True)
class LaneElements:
    """The elements of a lane: the ``dims`` that number them, the row and the column of one, and the
    condition that it exists (None: always)."""

    dims: tuple[Dim, ...]
    row: Expr
    col: Expr
    inside: Expr | None = None


def dealt(site: Site, matrix: Matrix) -> LaneElements:
    """The elements of the present lane."""
    lanes, cols = matrix.lanes, matrix.cols
    if cols % lanes == 0:
        row, part = (ir.var(site.emitter.fresh(name)) for name in ("row", "part"))
        dims = (Dim(row, ir.const(matrix.rows)), Dim(part, ir.const(cols // lanes)))
        col = plus(part * lanes if cols > lanes else ir.const(0), matrix.lane)
        return LaneElements(dims[: 1 + (cols > lanes)], row, col)
    index = ir.var(site.emitter.fresh("slice"))
    place = plus(times(index, lanes), matrix.lane)
    inside = place < matrix.elements if matrix.elements % lanes else None
    slices = (Dim(index, ir.const(matrix.length)),)
    return LaneElements(slices, *coordinates(matrix, index, place), inside)


def for_own_elements(
    site: Site, matrix: Matrix, name: str, act: Callable[[Expr, Expr], None]
) -> None:
    """Runs ``act`` on the row and the column of each of the lane's elements."""
    elements = dealt(site, matrix)
    with site.emitter.inside() as stmts:
        act(elements.row, elements.col)
    if elements.inside is not None:
        stmts = [If(elements.inside, Block(tuple(stmts)), None, site.emitter.span)]
    emit_box(site.emitter, f"{matrix.memory.name}_{name}", elements.dims, stmts)
    site.translation.joint(matrix.group)


def for_own_element(
    site: Site, matrix: Matrix, index: Expr, act: Callable[[Expr, Expr], None]
) -> None:
    """Runs ``act`` on the lane's element ``index``, where it exists."""
    place = site.emitter.let("element", plus(times(index, matrix.lanes), matrix.lane))
    with site.emitter.inside() as stmts:
        act(*coordinates(matrix, index, place))
    if matrix.elements % matrix.lanes:
        site.emitter.if_(place < matrix.elements, stmts, [], site.emitter.span)
    else:
        site.emitter.block += stmts


def coordinates(matrix: Matrix, index: Expr, place: Expr) -> tuple[Expr, Expr]:
    """The row and the column of a work-item's element ``index``, which is number ``place`` of the
    matrix. Where the lanes are whole rows, no division is needed."""
    lanes, cols = matrix.lanes, matrix.cols
    if lanes % cols == 0:
        return plus(times(index, lanes // cols), matrix.lane // cols), matrix.lane % cols
    return place // cols, place % cols


def place_of(matrix: Matrix, row: Expr, col: Expr) -> tuple[Expr, ...]:
    """The index of an element in the memory that holds it."""
    return (*matrix.group_at, row, col)


def element_value(matrix: Matrix, row: Expr, col: Expr) -> Expr:
    """The value of an element, in the matrix's own type."""
    return ir.cast(matrix.dtype, load(matrix.memory, place_of(matrix, row, col)))


def put_element(site: Site, matrix: Matrix, row: Expr, col: Expr, value: Any) -> None:
    """Stores an element: rounded to the matrix's type, in the type of the memory."""
    converted = site.arithmetic.kept(site.number(value), matrix.dtype, "an element of the matrix")
    place = place_of(matrix, row, col)
    site.emitter.store(matrix.memory, place, ir.cast(matrix.memory.dtype, converted))

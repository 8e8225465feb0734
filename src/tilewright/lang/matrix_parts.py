"""A joint matrix where a kernel is translated: its elements, and the work-item's own among them.

Elements are dealt to the lanes in row-major order, one to each in turn: slice i of all lanes is a
run of consecutive elements. Here they lie in local memory, in that order, in the type that products
are added up in; a lane touches its own. So a matrix is plain code on every target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.dtypes import DType
from tilewright.ir import expr as ir
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.lang.builtin import Site
from tilewright.lang.emitter import element, plus, times

if TYPE_CHECKING:
    from tilewright.lang.scope import Scope

# What matrices do, by name.
METHODS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix of ``group``, whose ``lanes`` hold it; ``lane`` is this one, ``memory`` has all
    elements of those of the workgroup, this group's from ``start`` on."""

    use: str
    rows: int
    cols: int
    dtype: DType
    layout: str
    group: str
    lanes: int
    lane: Expr
    start: Expr
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
        """What an attribute stands for: a property, or a function of the matrix."""
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
    """A function of a matrix."""

    matrix: Matrix
    name: str

    def in_kernel(self, site: Site) -> Any:
        """What a call gives."""
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


def own(site: Site, matrix: Matrix, act: Callable[[Expr, Expr, Expr], None]) -> None:
    """``act`` on each of the lane's elements: its place in memory, its row and column."""
    lanes, cols = matrix.lanes, matrix.cols
    if cols % lanes == 0:
        with loop(site, matrix.rows, "row") as row, loop(site, cols // lanes, "part") as part:
            col = plus(times(part, lanes), matrix.lane)
            act(place_of(matrix, plus(times(row, cols), col)), row, col)
        return
    with loop(site, matrix.length, "slice") as index:
        one_of_own(site, matrix, index, act)


def one_of_own(
    site: Site, matrix: Matrix, index: Expr, act: Callable[[Expr, Expr, Expr], None]
) -> None:
    """``act`` on the lane's element ``index``, where there is one."""
    place = site.emitter.let("element", plus(times(index, matrix.lanes), matrix.lane))
    with site.emitter.inside() as stmts:
        row, col = coordinates(matrix, index, place)
        act(place_of(matrix, place), row, col)
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


def place_of(matrix: Matrix, place: Expr) -> Expr:
    """Where element ``place`` of the matrix lies in the memory that holds it."""
    return plus(matrix.start, place)


@contextmanager
def loop(site: Site, count: int, name: str) -> Iterator[Expr]:
    """A loop of the kernel around what is emitted meanwhile; gives its counter."""
    if count == 1:
        yield ir.const(0)
        return
    counter = ir.var(site.emitter.fresh(name))
    with site.emitter.inside() as stmts:
        yield counter
    site.emitter.for_(counter, ir.const(count), stmts, site.emitter.span)


def taken(matrix: Matrix, place: Expr) -> Expr:
    """An element, in the matrix's own type."""
    return ir.cast(matrix.dtype, element(matrix.memory, place))


def put(site: Site, matrix: Matrix, place: Expr, value: Any) -> None:
    """Stores an element: in the matrix's type, which the memory holds."""
    kept = site.arithmetic.kept(site.number(value), matrix.dtype, "an element of the matrix")
    site.emitter.store(matrix.memory, (place,), ir.cast(matrix.memory.dtype, kept))

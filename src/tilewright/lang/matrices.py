"""Joint matrices: matrices that a subgroup or a workgroup holds together, and their operations.

A product reads elements of other lanes, between two barriers; all other operations use a lane's
own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dtypes import DType, s32
from tilewright.ir import expr as ir
from tilewright.ir.expr import Expr
from tilewright.ir.load import load
from tilewright.ir.stmt import Call, Compute, Dim, Operand, Result, View
from tilewright.lang.builtin import Site, builtin
from tilewright.lang.emitter import plus, times
from tilewright.lang.matrix_parts import (
    METHODS,
    Matrix,
    coordinates,
    dealt,
    element_value,
    for_own_element,
    for_own_elements,
    place_of,
    put_element,
)
from tilewright.lang.matrix_types import MOST_ELEMENTS, MOST_SIDE, combinations, summed_in
from tilewright.lang.values import Array, Lambda

USES = ("a", "b", "accumulator")
LAYOUTS = ("row", "col", "packed")


@builtin
def joint_matrix(
    site: Site,
    use: Any,
    rows: Any,
    cols: Any,
    dtype: Any,
    layout: Any = "row",
    group: Any = "subgroup",
) -> Matrix:
    """A matrix that a subgroup (or the workgroup: ``group``) holds together, uninitialized.

    ``use`` is ``"a"``, ``"b"`` or ``"accumulator"``; sizes are any, known when the kernel is
    compiled. ``layout`` is how ``load`` and ``store`` take arrays unless they say: ``"row"``,
    ``"col"`` (transposed: ``(row, col)`` lies at ``[col, row]``), or ``"packed"`` (pairs of rows of
    16 bits side by side, fours of 8).

    - ``fill(value)``; ``load(array, (row, col))``, ``store(array, (row, col))``, with ``layout=``
      and ``checked=True``: outside of the array, 0 is loaded and nothing stored; ``prefetch``.
    - ``mad(a, b)`` adds the product; `tw.matrix_combinations` has the types. ``copy(other)``
      converts.
    - ``apply(lambda value: ...)``, with ``(value, row, col)``, or over two matrices of one size:
      ``apply(lambda value, other: ..., matrix)``.
    - ``length``, ``get(i)``, ``set(i, value)``, ``coordinates(i)``: the work-item's own elements,
      element i of all lanes being consecutive in row-major order. The last may be missing: ``get``
      gives 0 there, ``set`` drops, and ``coordinates`` are outside.

    All work-items of the group call each of these together.
    """
    word = site.one_of(use, "use", USES)
    sizes = (
        site.static_integer(rows, "rows", 1, MOST_SIDE),
        site.static_integer(cols, "cols", 1, MOST_SIDE),
    )
    if sizes[0] * sizes[1] > MOST_ELEMENTS:
        raise site.refuse(
            f"a joint matrix of {sizes[0]} by {sizes[1]}",
            cure=f"take several: each has at most {MOST_ELEMENTS} elements",
        )
    type_ = site.element_type(dtype)
    _check_type(site, word, type_)
    order = site.one_of(layout, "layout", LAYOUTS)
    where = site.one_of(group, "group", ("subgroup", "workgroup"))
    translation = site.translation
    translation.require_local(site)
    group_at: tuple[Expr, ...] = ()
    shape: tuple[int, ...] = sizes
    if where == "subgroup":
        lanes, lane = translation.require_subgroup(site), translation.identities.lane
        if translation.shape.items > lanes:
            group_at = (translation.identities.linear_subgroup(),)
            shape = (translation.shape.items // lanes, *sizes)
    else:
        lanes, lane = (
            translation.shape.items,
            site.emitter.let("item", translation.identities.linear()),
        )
    stored_type = summed_in(type_) if word == "accumulator" else type_
    memory = site.emitter.local(translation.memory_name(site, "matrix"), stored_type, shape)
    return Matrix(word, *sizes, type_, order, where, lanes, lane, group_at, memory)


def _check_type(site: Site, use: str, dtype: DType) -> None:
    types = [
        (combination.a, combination.b, combination.accumulator)[USES.index(use)]
        for combination in combinations()
    ]
    if dtype not in types:
        names = ", ".join(dict.fromkeys(t.name for t in types))
        raise site.refuse(f"a joint matrix {use!r} of {dtype}", cure=f"it may be of {names}")


def _fill(site: Site, matrix: Matrix, value: Any) -> None:
    number = site.let("value", site.number(value))
    for_own_elements(
        site, matrix, "fill", lambda row, col: put_element(site, matrix, row, col, number)
    )


def _meet(site: Site, *matrices: Matrix) -> None:
    """A barrier of the groups that hold the matrices."""
    if any(m.group == "workgroup" for m in matrices):
        site.emitter.call("barrier")
    else:
        site.translation.meet_in_subgroup(site)


# Memory.


def _corner(site: Site, array: Any, at: Any) -> tuple[Array, Expr, Expr]:
    target = site.array(array)
    if target.rank != 2 or not isinstance(at, tuple) or len(at) != 2:
        raise site.refuse(
            f"tw.{site.name} of an array with {target.rank} dims",
            "a matrix lies in an array with two",
            "give an array of rank 2, and the row and the column where the matrix begins",
        )
    row, col = (site.scope.to_index(site.number(number)) for number in at)
    return target, site.emitter.let("top", row), site.emitter.let("left", col)


def _places(
    site: Site, matrix: Matrix, layout: Any, corner: tuple[Expr, Expr]
) -> Callable[[Expr, Expr], tuple[Expr, Expr]]:
    """The index in an array of an element of the matrix, by its row and column."""
    order = site.one_of(matrix.layout if layout is None else layout, "layout", LAYOUTS)
    top, left = corner
    together = 32 // matrix.dtype.bits
    if order == "packed" and (matrix.use != "b" or together < 2):
        raise site.refuse(
            f"a packed matrix {matrix.use!r} of {matrix.dtype}",
            "rows of b are packed, of 8 or 16 bits",
            'load it with layout="row"',
        )

    def place(row: Expr, col: Expr) -> tuple[Expr, Expr]:
        r, c = plus(row, top), plus(col, left)
        if order == "row":
            return r, c
        if order == "col":
            return c, r
        return r // together, c * together + r % together

    return place


def _inside(array: Array, place: tuple[Expr, Expr]) -> Expr:
    inside = None
    for index, size in zip(place, array.sizes, strict=True):
        in_dim = (index >= 0) & (index < size)
        inside = in_dim if inside is None else inside & in_dim
    assert inside is not None
    return inside


def _load(
    site: Site, matrix: Matrix, array: Any, at: Any, layout: Any = None, checked: Any = False
) -> None:
    source, *corner = _corner(site, array, at)
    index_of = _places(site, matrix, layout, (corner[0], corner[1]))
    guarded = site.flag(checked, "checked")
    if source.dtype.is_float != matrix.dtype.is_float or (
        source.dtype.is_integer and source.dtype is not matrix.dtype
    ):
        raise site.refuse(
            f"a load of {source.dtype} into a joint matrix of {matrix.dtype}",
            cure=f"load from an array of {matrix.dtype}",
        )

    def act(row: Expr, col: Expr) -> None:
        index = index_of(row, col)
        mask = _inside(source, index) if guarded else None
        value = ir.cast(matrix.dtype, load(source.buffer, index, mask))
        put_element(site, matrix, row, col, value)

    for_own_elements(site, matrix, "load", act)


def _store(
    site: Site, matrix: Matrix, array: Any, at: Any, layout: Any = None, checked: Any = False
) -> None:
    target, *corner = _corner(site, array, at)
    index_of = _places(site, matrix, layout, (corner[0], corner[1]))
    guarded = site.flag(checked, "checked")
    site.translation.written(site, target)

    def act(row: Expr, col: Expr) -> None:
        index = index_of(row, col)
        what = f"an element of {target.buffer.name}"
        value = site.arithmetic.kept(element_value(matrix, row, col), target.dtype, what)
        with site.emitter.inside() as stmts:
            site.emitter.store(target.buffer, index, value)
        if guarded:
            site.emitter.if_(_inside(target, index), stmts, [], site.emitter.span)
        else:
            site.emitter.block += stmts

    for_own_elements(site, matrix, "store", act)


def _prefetch(site: Site, matrix: Matrix, array: Any, at: Any, layout: Any = None) -> None:
    source, *corner = _corner(site, array, at)
    index_of = _places(site, matrix, layout, (corner[0], corner[1]))

    def act(row: Expr, col: Expr) -> None:
        site.emitter.emit(Call("prefetch", (View(source.buffer, index_of(row, col)),)))

    for_own_elements(site, matrix, "prefetch", act)


# Arithmetic.


def _other(site: Site, matrix: Matrix, other: Any) -> Matrix:
    if not isinstance(other, Matrix) or (other.rows, other.cols, other.group) != (
        matrix.rows,
        matrix.cols,
        matrix.group,
    ):
        raise site.refuse(
            f"tw.{site.name} with a value that is no matrix of the same size and group",
            cure=f"take a joint matrix of {matrix.rows} by {matrix.cols}, of the {matrix.group}",
        )
    return other


def _copy(site: Site, matrix: Matrix, other: Any) -> None:
    source = _other(site, matrix, other)

    def act(row: Expr, col: Expr) -> None:
        value = ir.cast(matrix.dtype, element_value(source, row, col))
        put_element(site, matrix, row, col, value)

    for_own_elements(site, matrix, "copy", act)


def _apply(site: Site, matrix: Matrix, function: Any, *others: Any) -> None:
    matrices = [matrix, *(_other(site, matrix, other) for other in others)]
    count = _parameters(function)
    if count not in (len(matrices), len(matrices) + 2):
        raise site.refuse(
            f"apply with a function of {count} values",
            cure="let it take the value of each matrix, and perhaps the row and the column",
        )

    def act(row: Expr, col: Expr) -> None:
        values = [site.let("value", element_value(source, row, col)) for source in matrices]
        if count > len(matrices):
            values += [_number(site, "row", row), _number(site, "col", col)]
        put_element(site, matrix, row, col, _called(site, function, values))

    for_own_elements(site, matrix, "apply", act)


def _number(site: Site, name: str, wide: Expr) -> Expr:
    narrow = site.emitter.let(name, ir.cast(s32, wide))
    site.emitter.means(narrow, wide)
    return narrow


def _parameters(function: Any) -> int:
    if isinstance(function, Lambda):
        return len(function.tree.args.args)
    translated = getattr(function, "function", None)
    return len(translated.source.tree.args.args) if translated is not None else -1


def _called(site: Site, function: Any, values: Sequence[Any]) -> Any:
    if isinstance(function, Lambda):
        return site.translation.call_lambda(function, list(values), site.scope)
    tree: ast.FunctionDef = function.function.source.tree
    names = [parameter.arg for parameter in tree.args.args]
    return site.translation.call(function, site.scope, dict(zip(names, values, strict=True)))


def _mad(site: Site, matrix: Matrix, a: Any, b: Any) -> None:
    if not isinstance(a, Matrix) or not isinstance(b, Matrix):
        raise site.refuse("mad of what is no joint matrix", cure="give matrices a and b")
    uses = (matrix.use, a.use, b.use)
    if uses != ("accumulator", "a", "b"):
        raise site.refuse(
            f"mad of a matrix {uses[1]!r} and one {uses[2]!r} into one {uses[0]!r}",
            cure="write accumulator.mad(a, b)",
        )
    if (a.rows, a.cols, b.cols) != (matrix.rows, b.rows, matrix.cols):
        raise site.refuse(
            f"mad of {a.rows} by {a.cols} and {b.rows} by {b.cols} into "
            f"{matrix.rows} by {matrix.cols}",
            cure="let sizes agree: rows by depth, depth by columns, rows by columns",
        )
    if {a.group, b.group} != {matrix.group}:
        raise site.refuse("mad of matrices of different groups", cure="let one group hold all")
    types = (a.dtype, b.dtype, matrix.dtype)
    if types not in [
        (combination.a, combination.b, combination.accumulator) for combination in combinations()
    ]:
        raise site.refuse(
            f"mad of {a.dtype} by {b.dtype} into {matrix.dtype}",
            cure="; ".join(str(combination) for combination in combinations()),
        )
    _meet(site, matrix, a, b)
    _product(site, matrix, a, b)
    _meet(site, matrix, a, b)


def _product(site: Site, matrix: Matrix, a: Matrix, b: Matrix) -> None:
    """Adds the products to the elements of the lane."""
    emitter, stored_type = site.emitter, matrix.memory.dtype
    elements, k = dealt(site, matrix), ir.var(emitter.fresh("k"))
    factors = tuple(
        Operand(
            ir.var(emitter.fresh(factor.use), factor.memory.dtype),
            View(factor.memory, place_of(factor, *place), elements.inside),
        )
        for factor, place in ((a, (elements.row, k)), (b, (k, elements.col)))
    )
    product = ir.cast(stored_type, factors[0].var) * ir.cast(stored_type, factors[1].var)
    total = View(matrix.memory, place_of(matrix, elements.row, elements.col), elements.inside)
    name = emitter.fresh(f"{matrix.memory.name}_mad")
    dims = (*elements.dims, Dim(k, ir.const(a.cols)))
    result = Result((total,), (product,), "add")
    emitter.emit(Compute(name, dims, factors, (result,), span=emitter.span))
    site.translation.joint(matrix.group)
    if stored_type is not matrix.dtype:
        for_own_elements(
            *(site, matrix, "round"),
            lambda row, col: put_element(site, matrix, row, col, element_value(matrix, row, col)),
        )


# Slices.


def _index(site: Site, index: Any) -> Expr:
    position: Expr = site.scope.to_index(site.number(index, "the index"))
    return position


def _slice(site: Site, matrix: Matrix, index: Any) -> Any:
    where = _index(site, index)
    number = site.emitter.let("element", plus(times(where, matrix.lanes), matrix.lane))
    inside = number < matrix.elements if matrix.elements % matrix.lanes else None
    place = place_of(matrix, *coordinates(matrix, where, number))
    return site.let("value", ir.cast(matrix.dtype, load(matrix.memory, place, inside)))


def _set_slice(site: Site, matrix: Matrix, index: Any, value: Any) -> None:
    number = site.let("value", site.number(value))
    where = _index(site, index)
    for_own_element(
        site, matrix, where, lambda row, col: put_element(site, matrix, row, col, number)
    )


def _coordinates_of(site: Site, matrix: Matrix, index: Any) -> tuple[Any, Any]:
    where = _index(site, index)
    place = plus(times(where, matrix.lanes), matrix.lane)
    row, col = coordinates(matrix, where, place)
    return _number(site, "row", row), _number(site, "col", col)


METHODS |= {
    "fill": _fill,
    "load": _load,
    "store": _store,
    "prefetch": _prefetch,
    "mad": _mad,
    "copy": _copy,
    "apply": _apply,
    "get": _slice,
    "set": _set_slice,
    "coordinates": _coordinates_of,
}

"""Fusing two dims of the iteration domain into one, by fusing the tensor dims that they index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from tilewright.errors import ScheduleError
from tilewright.facts.affine import Affine, affine, difference
from tilewright.ir.buffer import Block as LayoutBlock
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.expr import Const, Expr, Var, all_of, conjuncts, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Compute, Dim, Kernel, Param, Stmt, View
from tilewright.ir.visit import map_compute, substitute, variables, walk_stmts
from tilewright.schedule.access import accesses, readdress
from tilewright.schedule.place import Place, dim_of, plain, rewrite_placed, taken_names
from tilewright.schedule.transform import transform
from tilewright.simplify import simplify, simplify_kernel


@transform
def fuse_dims(
    kernel: Kernel, outer: str, inner: str, name: str, computes: Sequence[str] | None = None
) -> Kernel:
    """Makes one dim ``name`` of two in every compute that has both (or in those named).

        compute f(oh in 7, ow in 7): dst[oc, oh, ow] = src[oh, ow]
    ->  fuse_dims("oh", "ow", "m")
        compute f(m in 49): dst[oc, m] = src[m]

    The dims of the buffers that they index fuse too: a parameter has the same memory and another
    shape, and every other access to it is rewritten. The outer one's step must be the whole of the
    inner one. Each fused index has to depend on ``outer * extent(inner) + inner`` alone:

        src[n, ow*2 + kw - 3, ic | 0 <= ow*2 + kw - 3 and ow*2 + kw - 3 < 224]  (nhwc, 3 channels)
    ->  fuse_dims("kw", "ic", "k")
        src[n, ow*6 + k - 9 | 0 <= ow*6 + k - 9 and ow*6 + k - 9 < 672]
    """
    if outer == inner:
        raise _refusal(
            f"'{outer}' is named twice", f"kernel {kernel.name}", "one dim is none", "name two dims"
        )
    # Masks that always hold would stand in the way, so they go first.
    kernel = simplify_kernel(kernel)
    chosen = [
        stmt
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Compute)
        and {outer, inner} <= {d.var.name for d in stmt.dims}
        and (computes is None or stmt.name in computes)
    ]
    if not chosen:
        raise ScheduleError(
            f"fuse_dims: no compute has the dims '{outer}' and '{inner}'",
            where=f"kernel {kernel.name}",
            cure="fuse before the dims are tiled away",
        )
    if name in taken_names(kernel) - {outer, inner}:
        raise ScheduleError(
            f"fuse_dims: the name '{name}' is taken",
            where=f"kernel {kernel.name}",
            cure="choose another name",
        )
    names = {stmt.name for stmt in chosen}
    pairs: dict[Buffer, tuple[int, int]] = {}
    for compute in chosen:
        plain(compute, "fuse_dims")
        for view in (compute.out, *(o.view for o in compute.operands)):
            _note_pair(compute, view, outer, inner, pairs)
    for old, (p, q) in pairs.items():
        kernel = _merge_tensor_dims(kernel, old, p, q)

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Compute) or stmt.name not in names:
            return None
        if not {outer, inner} <= {d.var.name for d in stmt.dims}:
            return stmt
        return _fuse_in_compute(stmt, outer, inner, name)

    return replace(kernel, body=rewrite_placed(kernel.body, Place(), change))


def _refusal(what: str, where: Stmt | str, why: str, cure: str) -> ScheduleError:
    place = where if isinstance(where, str) else headline(where)
    return ScheduleError(f"fuse_dims: {what}", where=place, why=why, cure=cure)


def _note_pair(
    compute: Compute, view: View, outer: str, inner: str, pairs: dict[Buffer, tuple[int, int]]
) -> None:
    """Remembers which two tensor dims of the view's buffer the dims index, if they are two."""
    outer_var, inner_var = dim_of(compute, outer, "").var, dim_of(compute, inner, "").var
    with_outer = [i for i, e in enumerate(view.index) if outer_var in variables(e)]
    with_inner = [i for i, e in enumerate(view.index) if inner_var in variables(e)]
    if not with_outer and not with_inner:
        return
    if len(with_outer) != 1 or len(with_inner) != 1:
        raise _refusal(
            f"'{view.buffer.name}' is not indexed by '{outer}' and '{inner}' in one dim each",
            compute,
            f"it is reached at {to_text(view)}",
            "fuse other dims, or promote this operand by dims first",
        )
    pair = (with_outer[0], with_inner[0])
    if pair[0] == pair[1]:
        return
    known = pairs.setdefault(view.buffer, pair)
    if known != pair:
        raise _refusal(
            f"'{outer}' and '{inner}' index other dims of '{view.buffer.name}' elsewhere",
            compute,
            "a buffer has one shape",
            "name the computes to fuse in `computes`",
        )


def merged_layout(old: Buffer, p: int, q: int) -> Layout | None:
    """The layout after dim ``q`` was fused into ``p``; None where the fused dim has no one step, or
    sizes are symbolic.

    Element (i, j) of the two dims becomes i * shape[q] + j. Dim q keeps the number p.
    """
    if old.symbols:
        return None
    blocks_p = [b for b in old.layout.blocks if b.dim == p]
    blocks_q = [b for b in old.layout.blocks if b.dim == q]
    if old.layout.padded_shape(len(old.shape))[q] != old.shape[q]:
        return None
    number = {d: d - (d > q) for d in range(len(old.shape)) if d != q}
    number[q] = number[p]
    # Each digit of the fused dim, most significant first, and which old block ends it.
    digits: list[tuple[LayoutBlock, LayoutBlock]] = []
    for block in (*blocks_p, *blocks_q):
        last = digits[-1][0] if digits else None
        if last is not None and (block.size == 1 or last.stride == block.size * block.stride):
            stride = last.stride if block.size == 1 else block.stride
            digits[-1] = (LayoutBlock(number[p], last.size * block.size, stride), block)
        elif last is not None and last.size == 1:
            digits[-1] = (LayoutBlock(number[p], block.size, block.stride), block)
        else:
            digits.append((LayoutBlock(number[p], block.size, block.stride), block))
    if len(digits) > max(len(blocks_p), len(blocks_q), 1):
        return None
    return replace(old.layout, parts=_in_place(old, p, q, number, digits))


def _in_place(
    old: Buffer,
    p: int,
    q: int,
    number: dict[int, int],
    digits: list[tuple[LayoutBlock, LayoutBlock]],
) -> tuple[LayoutBlock, ...]:
    """The blocks of the other dims, and the digits where their last old block was.

    The digits have to stay in order; where the old places are not, all go to the first.
    """
    places = [old.layout.blocks.index(last) for _, last in digits]
    if places != sorted(places):
        places = [min(places)] * len(places)
    blocks: list[LayoutBlock] = []
    for i, block in enumerate(old.layout.blocks):
        blocks += [digit for (digit, _), place in zip(digits, places, strict=True) if place == i]
        if block.dim not in (p, q):
            blocks.append(LayoutBlock(number[block.dim], block.size, block.stride))
    return tuple(blocks)


@transform
def fuse_tensor_dims(kernel: Kernel, name: str) -> Kernel:
    """Makes one dim of several of the parameter ``name`` whose indices are digits of one number.

        compute f(m in 56): dst[m] = src[m // 28, m // 7 % 4, m % 7]
    ->  fuse_tensor_dims("src")
        compute f(m in 56): dst[m] = src[m]

    The parameter has the same memory and another shape. What does not lie behind one another in
    memory, or is not read so everywhere, stays as it is.
    """
    kernel = simplify_kernel(kernel)
    if name not in {param.name for param in kernel.arrays}:
        raise ScheduleError(
            f"fuse_tensor_dims: there is no parameter '{name}'",
            where=f"kernel {kernel.name}",
            cure="choose one of " + ", ".join(param.name for param in kernel.arrays),
        )
    while True:
        (old,) = (param.buffer for param in kernel.arrays if param.name == name)
        pairs = permutations(range(old.rank), 2)
        pair = next((each for each in pairs if _are_digits(kernel, old, *each)), None)
        if pair is None:
            return kernel
        kernel = simplify_kernel(_merge_tensor_dims(kernel, old, *pair))


def _are_digits(kernel: Kernel, old: Buffer, p: int, q: int) -> bool:
    """Whether every access to ``old`` has digits of one number as its indices ``p`` and ``q``."""
    if merged_layout(old, p, q) is None:
        return False
    for access in accesses(kernel.body, Place()):
        if access.view.buffer is not old:
            continue
        first, second = access.view.index[p], access.view.index[q]
        fused = affine(simplify(first * old.shape[q] + second, access.place.facts))
        digits = {atom for atom in affine(second).terms if not isinstance(atom, Var)}
        if not digits or digits & fused.terms.keys():
            return False
    return True


def _merge_tensor_dims(kernel: Kernel, old: Buffer, p: int, q: int) -> Kernel:
    layout = merged_layout(old, p, q)
    if layout is None:
        raise _refusal(
            f"the dims {p} and {q} of '{old.name}' do not fuse",
            to_text(old),
            f"in memory, a step of dim {p} is not the whole of dim {q}",
            "promote the operand into a layout in which they are neighbours",
        )
    size = old.shape[q]
    shape = tuple(s * size if d == p else s for d, s in enumerate(old.shape) if d != q)
    new = Buffer(old.name, old.dtype, shape, layout, old.space)

    def view(access: View) -> View:
        fused = access.index[p] * size + access.index[q]
        index = tuple(fused if d == p else e for d, e in enumerate(access.index) if d != q)
        return View(new, index, access.mask)

    params = tuple(
        Param(new, param.access) if isinstance(param, Param) and param.buffer is old else param
        for param in kernel.params
    )
    return replace(kernel, params=params, body=readdress(kernel.body, old, view))


@dataclass(frozen=True)
class _Pair:
    """The two dims and what stands for them: ``fused == outer * size + inner``."""

    outer: Var
    inner: Var
    fused: Var
    size: int


def _fuse_in_compute(compute: Compute, outer: str, inner: str, name: str) -> Compute:
    outer_dim, inner_dim = dim_of(compute, outer, ""), dim_of(compute, inner, "")
    if not isinstance(inner_dim.extent, Const):
        raise _refusal(
            f"the extent of '{inner}' is not constant",
            compute,
            "the outer dim's step would vary",
            "fuse before tiling",
        )
    size = int(inner_dim.extent.value)
    pair = _Pair(outer_dim.var, inner_dim.var, var(name), size)
    changed = map_compute(compute, lambda view: _fuse_in_view(compute, view, pair))
    dims = tuple(
        Dim(pair.fused, d.extent * size) if d is outer_dim else d
        for d in compute.dims
        if d is not inner_dim
    )
    values: dict[Var, Expr] = {pair.outer: pair.fused // size, pair.inner: pair.fused % size}
    return replace(changed, dims=dims).with_result(body=substitute(compute.body, values))


def _fuse_in_view(compute: Compute, view: View, pair: _Pair) -> View:
    index = tuple(_fused_index(compute, view, e, pair) for e in view.index)
    conditions = [_fused_condition(compute, view, c, pair) for c in conjuncts(view.mask)]
    return View(view.buffer, index, all_of(conditions))


def _depends(form: Affine, pair: _Pair) -> bool:
    """Whether an atom of ``form`` other than the two variables hides one of them."""
    own = {pair.outer, pair.inner}
    return any(variables(atom) & own for atom in form.terms if atom not in own)


def _fused_index(compute: Compute, view: View, index: Expr, pair: _Pair) -> Expr:
    if not variables(index) & {pair.outer, pair.inner}:
        return index
    form = affine(index)
    step, inner_step = form.terms.get(pair.outer, 0), form.terms.get(pair.inner, 0)
    if step != inner_step * pair.size or _depends(form, pair):
        raise _refusal(
            f"'{pair.outer.name}' and '{pair.inner.name}' do not fuse in '{view.buffer.name}'",
            compute,
            f"the index {to_text(index)} would need {inner_step * pair.size} as the factor of "
            f"'{pair.outer.name}'",
            "fuse other dims: a stride, a dilation or a halo keeps these apart",
        )
    return _replaced(form, pair, inner_step)


def _replaced(form: Affine, pair: _Pair, step: int) -> Expr:
    """``form`` with its two variables gone and ``step`` times the fused one added."""
    terms = {a: c for a, c in form.terms.items() if a not in (pair.outer, pair.inner)}
    return Affine({**terms, pair.fused: step}, form.constant).to_expr()


def _fused_condition(compute: Compute, view: View, condition: Expr, pair: _Pair) -> Expr:
    """The same condition on the fused dim.

    With ``fused = outer * n + inner`` and ``0 <= inner < n``, an integer ``x`` is not negative
    exactly when ``x * n + r`` is not, for any ``0 <= r < n``. For ``x = outer + rest``, taking
    ``inner`` as r gives ``fused + rest * n >= 0``; for ``x = rest - outer``, ``n - 1 - inner`` as r
    gives ``rest * n + n - 1 - fused >= 0``.
    """
    if not variables(condition) & {pair.outer, pair.inner}:
        return condition
    form = difference(condition)
    if form is not None and not _depends(form, pair):
        step, inner_step = form.terms.get(pair.outer, 0), form.terms.get(pair.inner, 0)
        if step == inner_step * pair.size:
            return const(0) <= _replaced(form, pair, inner_step)
        if inner_step == 0 and abs(step) == 1:
            scaled = form.scaled(pair.size).shifted(0 if step > 0 else pair.size - 1)
            return const(0) <= _replaced(scaled, pair, step)
    raise _refusal(
        f"'{pair.outer.name}' and '{pair.inner.name}' do not fuse in the mask of "
        f"'{view.buffer.name}'",
        compute,
        f"{to_text(condition)} is no bound on the fused dim",
        "fuse other dims, or promote the operand so that it has no mask",
    )

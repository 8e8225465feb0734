"""Several dims of the iteration domain as one, with the dims of buffers that they index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeGuard

from tilewright.errors import ScheduleError
from tilewright.facts.affine import Affine, affine, difference
from tilewright.ir.buffer import Buffer, Layout, LayoutBlock, Part, part, product, row_major
from tilewright.ir.expr import Const, Expr, Var, all_of, conjuncts, const, var
from tilewright.ir.opaque import buffers_touched
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Compute, Dim, Kernel, Opaque, Param, Stmt, View
from tilewright.ir.visit import (
    map_compute,
    map_exprs,
    rewrite_stmts,
    substitute,
    variables,
    walk_stmts,
)
from tilewright.schedule.access import readdress
from tilewright.schedule.asks import asks, new_name
from tilewright.schedule.digits import digits_of
from tilewright.schedule.place import dim_of, plain, views_of
from tilewright.schedule.transform import transform
from tilewright.simplify import simplify_kernel


@transform
@asks(name=new_name("dims"))
def fuse_dims(
    kernel: Kernel,
    dims: Sequence[str],
    name: str,
    computes: Sequence[str] | None = None,
    *,
    digits: bool = False,
    tensors: Sequence[str] = (),
) -> Kernel:
    """Makes one dim ``name`` of several, the first the outermost, in every compute that has them
    all (or in those named).

        compute f(oh in 7, ow in 7): dst[oc, oh, ow] = src[oh, ow]
    ->  fuse_dims(["oh", "ow"], "m")
        compute f(m in 49): dst[oc, m] = src[m]

    The dims of the buffers that they index fuse, too: a parameter has the same memory and another
    shape, a buffer of the kernel's own may be laid out anew, and every other access is rewritten.
    Each index has to depend on the number of the fused dim alone, and each mask on that number or
    on its quotient by the inner extents:

        src[n, ow*2 + kw - 3, ic | 0 <= ow*2 + kw - 3 and ow*2 + kw - 3 < 224]  (nhwc, 3 channels)
    ->  fuse_dims(["kw", "ic"], "k")
        src[n, ow*6 + k - 9 | 0 <= ow*6 + k - 9 and ow*6 + k - 9 < 672]

    With ``digits``, views may do with the dims what they like, as division takes them apart again:

        compute f(mb in 2, oh in 7, ow in 7): dst[mb, oc, oh, ow] = src[mb, oh*2, ow*2]
    ->  fuse_dims(["mb", "oh", "ow"], "m", digits=True)
        compute f(m in 98):
          dst[m // 49, oc, m // 7 % 7, m % 7] = src[m // 49, m // 7 % 7 * 2, m % 7 * 2]

    Then what the kernel allocates has one dim for them where it can, and so have the parameters
    called ``tensors``.
    """
    if len(dims) < 2 or len(set(dims)) < len(dims):
        raise _refusal("one dim is none to fuse", kernel, "name two or more, each once")
    for each in set(tensors) - {param.name for param in kernel.arrays}:
        known = ", ".join(param.name for param in kernel.arrays)
        raise _refusal(f"there is no parameter '{each}'", kernel, f"choose one of {known}")
    if not digits:  # Masks that always hold would stand in the way, so they go first.
        kernel = simplify_kernel(kernel)
    chosen = [
        plain(stmt, "fuse_dims")
        for stmt in walk_stmts(kernel.body)
        if _has_all(stmt, dims) and (computes is None or stmt.name in computes)
    ]
    given = {param.buffer for param in kernel.arrays}
    fusion = _Fusion(tuple(dims), _sizes(kernel, chosen, dims), var(name), digits, given)
    kept = _kept(kernel, tensors) if digits else set[Buffer]()
    for buffer in dict.fromkeys(view.buffer for each in chosen for view in views_of(each)):
        if buffer not in kept:
            kernel = fusion.in_memory(kernel, chosen, buffer)
    names = {each.name for each in chosen}

    def change(stmt: Stmt) -> Stmt:
        return fusion.in_compute(stmt) if _has_all(stmt, dims) and stmt.name in names else stmt

    return replace(kernel, body=rewrite_stmts(kernel.body, change))


def _refusal(what: str, where: Kernel | Stmt, cure: str, why: str | None = None) -> ScheduleError:
    place = f"kernel {where.name}" if isinstance(where, Kernel) else headline(where)
    return ScheduleError(f"fuse_dims: {what}", where=place, why=why, cure=cure)


def _has_all(stmt: Stmt, dims: Sequence[str]) -> TypeGuard[Compute]:
    return isinstance(stmt, Compute) and {d.var.name for d in stmt.dims}.issuperset(dims)


def _kept(kernel: Kernel, tensors: Sequence[str]) -> set[Buffer]:
    """The parameters but for those called ``tensors``, and what opaque nests reach."""
    nests = (stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Opaque))
    reached = {buffer for nest in nests for buffer in buffers_touched(nest)}
    return reached | {param.buffer for param in kernel.arrays if param.name not in tensors}


def _sizes(kernel: Kernel, computes: Sequence[Compute], dims: Sequence[str]) -> tuple[int, ...]:
    """The extents of the dims but for the first: constants that all computes share."""
    if not computes:
        raise _refusal(
            "no compute has the dims " + ", ".join(dims), kernel, "fuse them before they are tiled"
        )
    found: set[tuple[int, ...]] = set()
    for compute in computes:
        if compute.instruction is not None:
            raise _refusal("an instruction has the dims", compute, "fuse before tensorizing")
        extents = [dim_of(compute, each, "fuse_dims").extent for each in dims[1:]]
        if not all(isinstance(extent, Const) for extent in extents):
            raise _refusal("an inner extent is not constant", compute, "fuse before tiling")
        found.add(tuple(int(extent.value) for extent in extents if isinstance(extent, Const)))
    if len(found) != 1:
        raise _refusal("the extents differ", computes[-1], "rename the dims of one")
    return found.pop()


@dataclass(frozen=True)
class _Fusion:
    """The dims that become ``whole``, and the extents of those inside the first. ``given`` are the
    kernel's parameters."""

    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    whole: Var
    digits: bool
    given: Collection[Buffer]

    def __str__(self) -> str:
        return " and ".join(f"'{dim}'" for dim in self.dims)

    def own(self, compute: Compute) -> tuple[Var, ...]:
        """The variables of the dims in ``compute``."""
        return tuple(dim_of(compute, name, "fuse_dims").var for name in self.dims)

    # Memory.

    def in_memory(self, kernel: Kernel, computes: Sequence[Compute], old: Buffer) -> Kernel:
        """``kernel`` with one dim of ``old`` for those that ``computes`` index by the dims; where
        these may stay digits, for as many neighbours as have one."""
        if not self.digits:
            return self._in_one(kernel, computes, old)
        for count in range(len(self.dims), 1, -1):
            for first in range(len(self.dims) - count + 1):
                last = first + count
                part = replace(self, dims=self.dims[first:last], sizes=self.sizes[first : last - 1])
                try:
                    changed = part._in_one(kernel, computes, old)
                except ScheduleError:
                    continue
                if changed is not kernel:
                    return changed
        return kernel

    def _in_one(self, kernel: Kernel, computes: Sequence[Compute], old: Buffer) -> Kernel:
        """`in_memory` for all dims together, or a refusal."""
        places = self._places(computes, old)
        new = _with_one_dim(old, places, anew=self.digits and old not in self.given)
        self._check_steps(computes, old, places)
        if len(places) < 2:
            return kernel

        def view(access: View) -> View:
            one = _number(access, places)
            index = [one if d == places[0] else e for d, e in enumerate(access.index)]
            kept = (e for d, e in enumerate(index) if d not in places[1:])
            return View(new, tuple(kept), access.mask)

        params = tuple(
            Param(new, param.access) if isinstance(param, Param) and param.buffer is old else param
            for param in kernel.params
        )
        return replace(kernel, params=params, body=readdress(kernel.body, old, view))

    def _places(self, computes: Sequence[Compute], old: Buffer) -> tuple[int, ...]:
        """The dims of ``old`` that the dims index, each once; none where they index no dim."""
        found: dict[tuple[int, ...], None] = {}
        for compute, view in _views(computes, old):
            places = [
                [place for place, index in enumerate(view.index) if own in variables(index)]
                for own in self.own(compute)
            ]
            if not any(places):
                continue
            found[tuple(place for each in places for place in each)] = None
            if any(len(each) != 1 for each in places) or len(found) > 1:
                raise _refusal(
                    f"'{old.name}' is not indexed by {self} in one dim each, the same everywhere",
                    compute,
                    "fuse other dims, stage this operand by its dims first, or name computes to "
                    "fuse in `computes`",
                    f"it is reached at {to_text(view)}",
                )
        return tuple(dict.fromkeys(place for places in found for place in places))

    def _check_steps(
        self, computes: Sequence[Compute], old: Buffer, places: tuple[int, ...]
    ) -> None:
        """Refuses where the number that the ``places`` make depends on more than the whole."""
        for compute, view in _views(computes, old) if places else ():
            number = _number(view, places)
            if self._step(affine(number), self.own(compute), len(self.dims)) is None:
                raise _refusal(
                    f"{self} do not fuse in '{old.name}'",
                    compute,
                    "fuse other dims: a stride, a dilation or a halo keeps these apart",
                    f"the index {to_text(number)} depends on more than their number",
                )

    # Computes.

    def in_compute(self, compute: Compute) -> Compute:
        """``compute`` with one dim."""
        own = self.own(compute)
        first = dim_of(compute, self.dims[0], "fuse_dims")
        one = Dim(self.whole, first.extent * prod(self.sizes))
        dims = tuple(
            one if d is first else d for d in compute.dims if d is first or d.var not in own
        )
        values = dict(zip(own, digits_of(self.whole, (1, *self.sizes)), strict=True))
        if not self.digits:
            compute = map_compute(compute, lambda view: self._in_view(compute, view, own))
        changed = map_exprs(replace(compute, dims=()), lambda expr: substitute(expr, values))
        assert isinstance(changed, Compute)
        return replace(changed, dims=dims)

    def _in_view(self, compute: Compute, view: View, own: tuple[Var, ...]) -> View:
        """``view`` with its index and its mask on the number of the fused dim."""
        conditions: list[Expr] = []
        for condition in conjuncts(view.mask):
            number = self._condition(condition, own)
            if number is None:
                raise _refusal(
                    f"{self} do not fuse in the mask of '{view.buffer.name}'",
                    compute,
                    "fuse other dims, or stage the operand so that it has no mask",
                    f"{to_text(condition)} is no bound on the fused dim",
                )
            conditions.append(number)
        index = tuple(self._index(each, own) for each in view.index)
        return View(view.buffer, index, all_of(conditions))

    def _index(self, index: Expr, own: tuple[Var, ...]) -> Expr:
        if variables(index).isdisjoint(own):
            return index
        form = affine(index)
        return self._replaced(form, own, form.terms[own[-1]])

    def _condition(self, condition: Expr, own: tuple[Var, ...]) -> Expr | None:
        """The same condition on the whole, or on its quotient by inner extents; None for others.

        An integer ``x`` is not negative exactly when ``x * n + r`` is not, for any ``0 <= r < n``.
        With ``whole = outer * n + inner`` and ``0 <= inner < n``, taking ``inner`` as r for ``x =
        rest + outer`` gives ``rest * n + whole >= 0``; for ``x = rest - outer``, ``n - 1 - inner``
        as r gives ``rest * n + n - 1 - whole >= 0``.
        """
        if variables(condition).isdisjoint(own):
            return condition
        form = difference(condition)
        if form is None:
            return None
        for depth in range(len(own), 0, -1):
            step = self._step(form, own, depth)
            by = prod(self.sizes[depth - 1 :])
            if step is not None and (by == 1 or abs(step) == 1):
                scaled = form.scaled(by).shifted(by - 1 if step < 0 else 0)
                return const(0) <= self._replaced(scaled, own, step)
        return None

    def _step(self, form: Affine, own: tuple[Var, ...], depth: int) -> int | None:
        """By which multiple of their number ``form`` depends on the first ``depth`` dims; None
        where it depends on more."""
        steps = [form.terms.get(each, 0) for each in own]
        outer = zip(steps, steps[1:depth], self.sizes, strict=False)
        if any(steps[depth:]) or any(step != inner * size for step, inner, size in outer):
            return None
        if any(atom not in own and not variables(atom).isdisjoint(own) for atom in form.terms):
            return None
        return steps[depth - 1]

    def _replaced(self, form: Affine, own: tuple[Var, ...], step: int) -> Expr:
        """``form`` with ``step`` times the whole for the dims."""
        rest = {atom: each for atom, each in form.terms.items() if atom not in own}
        return Affine({**rest, self.whole: step} if step else rest, form.constant).to_expr()


def _views(computes: Sequence[Compute], buffer: Buffer) -> Iterator[tuple[Compute, View]]:
    for compute in computes:
        for view in views_of(compute):
            if view.buffer is buffer:
                yield compute, view


def _number(view: View, places: tuple[int, ...]) -> Expr:
    """The number of which the index of ``view`` has the digits in ``places``."""
    number = view.index[places[0]]
    for place in places[1:]:
        number = number * view.buffer.sizes[place] + view.index[place]
    return number


def _with_one_dim(old: Buffer, places: tuple[int, ...], anew: bool) -> Buffer:
    """``old`` with one dim for those in ``places``, in the place of the first: in the same memory,
    or, where the kernel may lay it out ``anew``, row-major."""
    new = old
    while len(places) > 1:
        *_, p, q = places
        layout = None if anew else _merged_layout(new, p, q)
        if layout is None and not anew:
            raise ScheduleError(
                f"fuse_dims: the dims {p} and {q} of '{old.name}' do not fuse",
                where=to_text(new),
                why=f"in memory, a step of dim {p} is not the whole of dim {q}",
                cure="stage the operand in a layout in which they are neighbours",
            )
        sizes = tuple(
            product(size, new.sizes[q]) if d == p else size
            for d, size in enumerate(new.sizes)
            if d != q
        )
        new = Buffer(old.name, old.dtype, sizes, layout or row_major(sizes), old.space)
        places = tuple(d - (d > q) for d in places[:-1])
    return new


def _merged_layout(old: Buffer, p: int, q: int) -> Layout | None:
    """The layout after dim ``q`` was fused into ``p``; None where the fused dim has no one step, or
    where these two are not laid out by numbers.

    Element (i, j) of the two dims becomes i * shape[q] + j. Dim q keeps the number p.
    """
    parts = [each for each in old.layout.parts if each.dim in (p, q)]
    known = [each for each in parts if isinstance(each, LayoutBlock)]
    blocks_p = [b for b in known if b.dim == p]
    blocks_q = [b for b in known if b.dim == q]
    if len(known) < len(parts) or prod(b.size for b in blocks_q) != old.sizes[q]:
        return None
    number = {d: d - (d > q) for d in range(old.rank) if d != q}
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
) -> tuple[Part, ...]:
    """The blocks of the other dims, and the digits where their last old block was.

    The digits have to stay in order; where the old places are not, all go to the first.
    """
    places = [old.layout.parts.index(last) for _, last in digits]
    if places != sorted(places):
        places = [min(places)] * len(places)
    blocks: list[Part] = []
    for i, block in enumerate(old.layout.parts):
        blocks += [digit for (digit, _), place in zip(digits, places, strict=True) if place == i]
        if block.dim not in (p, q):
            blocks.append(part(number[block.dim], block.size, block.stride))
    return tuple(blocks)

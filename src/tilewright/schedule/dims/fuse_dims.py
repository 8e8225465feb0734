"""Several dims of the iteration domain as one, with the dims of buffers that they index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from tilewright.errors import ScheduleError
from tilewright.facts.affine import Affine, affine, difference
from tilewright.facts.products import products
from tilewright.ir.buffer import Buffer, Size, as_size, product
from tilewright.ir.expr import Expr, Var, all_of, as_expr, conjuncts, const, var
from tilewright.ir.opaque import buffers_touched
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Compute, Dim, Kernel, Opaque, Param, Stmt, View
from tilewright.ir.visit import map_compute, rewrite_stmts, variables, walk_stmts
from tilewright.schedule.queries.access import over_dims, readdress
from tilewright.schedule.queries.digits import digits_of
from tilewright.schedule.queries.merged_dims import with_one_dim
from tilewright.schedule.queries.place import dim_of, unordered, views_of
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import asks, new_name
from tilewright.schedule.records.transform import transform
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
    called ``tensors``. The extents of inner dims are numbers, or, without ``digits``, sizes that a
    call passes.
    """
    if len(dims) < 2 or len(set(dims)) < len(dims):
        raise refusal("one dim is none to fuse", kernel, "name two or more, each once")
    for tensor in set(tensors) - {param.name for param in kernel.arrays}:
        choices = ", ".join(param.name for param in kernel.arrays)
        raise refusal(f"there is no parameter '{tensor}'", kernel, f"choose one of {choices}")
    if not digits:  # Masks that always hold would stand in the way, so they go first.
        kernel = simplify_kernel(kernel)
    chosen = [
        unordered(stmt)
        for stmt in walk_stmts(kernel.body)
        if _has_all(stmt, dims) and (computes is None or stmt.name in computes)
    ]
    buffers = {param.buffer for param in kernel.arrays}
    sizes = _sizes(kernel, chosen, dims, digits)
    fusion = _Fusion(tuple(dims), sizes, var(name), digits, buffers)
    kept = _kept(kernel, tensors) if digits else set[Buffer]()
    for buffer in dict.fromkeys(view.buffer for compute in chosen for view in views_of(compute)):
        if buffer not in kept:
            kernel = fusion.in_memory(kernel, chosen, buffer)
    names = {compute.name for compute in chosen}

    def change(stmt: Stmt) -> Stmt:
        return fusion.in_compute(stmt) if _has_all(stmt, dims) and stmt.name in names else stmt

    return replace(kernel, body=rewrite_stmts(kernel.body, change))


def _has_all(stmt: Stmt, dims: Sequence[str]) -> TypeGuard[Compute]:
    return isinstance(stmt, Compute) and {d.var.name for d in stmt.dims}.issuperset(dims)


def _kept(kernel: Kernel, tensors: Sequence[str]) -> set[Buffer]:
    """The parameters but for those called ``tensors``, and what opaque nests reach."""
    nests = (stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Opaque))
    reached = {buffer for nest in nests for buffer in buffers_touched(nest)}
    return reached | {param.buffer for param in kernel.arrays if param.name not in tensors}


def _sizes(
    kernel: Kernel, computes: Sequence[Compute], dims: Sequence[str], digits: bool
) -> tuple[Size, ...]:
    """The extents of the dims but for the first, which all computes share: constants, or, where
    these are not to be ``digits``, what a call passes."""
    if not computes:
        raise refusal(
            "no compute has the dims " + ", ".join(dims), kernel, "fuse them before they are tiled"
        )
    passed = frozenset[Var]() if digits else {scalar.var for scalar in kernel.scalars}
    shapes: set[tuple[Size, ...]] = set()
    for compute in computes:
        if compute.instruction is not None:
            raise refusal("an instruction has the dims", compute, "fuse before tensorizing")
        extents = tuple(as_size(dim_of(compute, dim).extent) for dim in dims[1:])
        if not all(variables(as_expr(extent)) <= passed for extent in extents):
            raise refusal("an inner extent is not constant", compute, "fuse before tiling")
        shapes.add(extents)
    if len(shapes) != 1:
        raise refusal("the extents differ", computes[-1], "rename the dims of one")
    return shapes.pop()


@dataclass(frozen=True)
class _Fusion:
    """The dims that become ``whole``, and the extents of those inside the first. ``given`` are the
    kernel's parameters."""

    dims: tuple[str, ...]
    sizes: tuple[Size, ...]
    whole: Var
    digits: bool
    given: Collection[Buffer]

    def __str__(self) -> str:
        return " and ".join(f"'{dim}'" for dim in self.dims)

    def own(self, compute: Compute) -> tuple[Var, ...]:
        """The variables of the dims in ``compute``."""
        return tuple(dim_of(compute, name).var for name in self.dims)

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
        new = with_one_dim(old, places, anew=self.digits and old not in self.given)
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
        digit_places: dict[tuple[int, ...], None] = {}
        for compute, view in _views(computes, old):
            places = [
                [place for place, index in enumerate(view.index) if variable in variables(index)]
                for variable in self.own(compute)
            ]
            if not any(places):
                continue
            digit_places[tuple(place for digit in places for place in digit)] = None
            if any(len(digit) != 1 for digit in places) or len(digit_places) > 1:
                raise refusal(
                    f"'{old.name}' is not indexed by {self} in one dim each, the same everywhere",
                    compute,
                    "fuse other dims, stage this operand by its dims first, or name computes to "
                    "fuse in `computes`",
                    why=f"it is reached at {to_text(view)}",
                )
        return tuple(dict.fromkeys(place for places in digit_places for place in places))

    def _check_steps(
        self, computes: Sequence[Compute], old: Buffer, places: tuple[int, ...]
    ) -> None:
        """Refuses where the number that the ``places`` make depends on more than the whole."""
        for compute, view in _views(computes, old) if places else ():
            number = _number(view, places)
            if self._parts(affine(number), self.own(compute), len(self.dims)) is None:
                raise refusal(
                    f"{self} do not fuse in '{old.name}'",
                    compute,
                    "fuse other dims: a stride, a dilation or a halo keeps these apart",
                    why=f"the index {to_text(number)} depends on more than their number",
                )

    # Computes.

    def in_compute(self, compute: Compute) -> Compute:
        """``compute`` with one dim."""
        vars_ = self.own(compute)
        first = dim_of(compute, self.dims[0])
        one = Dim(self.whole, first.extent * _product(self.sizes))
        dims = [one if d is first else d for d in compute.dims if d is first or d.var not in vars_]
        values = dict(zip(vars_, digits_of(self.whole, (1, *self.sizes)), strict=True))
        if not self.digits:
            compute = map_compute(compute, lambda view: self._in_view(compute, view, vars_))
        return over_dims(compute, dims, values)

    def _in_view(self, compute: Compute, view: View, fused_vars: tuple[Var, ...]) -> View:
        """``view`` with its index and its mask on the number of the fused dim."""
        conditions: list[Expr] = []
        for condition in conjuncts(view.mask):
            number = self._condition(condition, fused_vars)
            if number is None:
                raise refusal(
                    f"{self} do not fuse in the mask of '{view.buffer.name}'",
                    compute,
                    "fuse other dims, or stage the operand so that it has no mask",
                    why=f"{to_text(condition)} is no bound on the fused dim",
                )
            conditions.append(number)
        index = tuple(self._index(expr, fused_vars) for expr in view.index)
        return View(view.buffer, index, all_of(conditions))

    def _index(self, index: Expr, fused_vars: tuple[Var, ...]) -> Expr:
        if variables(index).isdisjoint(fused_vars):
            return index
        parts = self._parts(affine(index), fused_vars, len(fused_vars))
        assert parts is not None  # `_check_steps` has looked
        return self._joined(*parts)

    def _condition(self, condition: Expr, fused_vars: tuple[Var, ...]) -> Expr | None:
        """The same condition on the whole, or on its quotient by inner extents; None for others.

        An integer ``x`` is not negative exactly when ``x * n + r`` is not, for any ``0 <= r < n``.
        With ``whole = outer * n + inner`` and ``0 <= inner < n``, taking ``inner`` as r for ``x =
        rest + outer`` gives ``rest * n + whole >= 0``; for ``x = rest - outer``, ``n - 1 - inner``
        as r gives ``rest * n + n - 1 - whole >= 0``.
        """
        if variables(condition).isdisjoint(fused_vars):
            return condition
        form = difference(condition)
        if form is None:
            return None
        for depth in range(len(fused_vars), 0, -1):
            parts = self._parts(form, fused_vars, depth)
            by = _product(self.sizes[depth - 1 :])
            if parts is None or not isinstance(by, int):
                continue
            step, rest = parts
            if by == 1 or abs(step) == 1:
                return const(0) <= self._joined(
                    step, rest.scaled(by).shifted(by - 1 if step < 0 else 0)
                )
        return None

    def _parts(
        self, form: Affine, fused_vars: tuple[Var, ...], depth: int
    ) -> tuple[int, Affine] | None:
        """By which multiple of their number ``form`` depends on the first ``depth`` dims, and what
        is beside that; None where it depends on more."""
        number: Expr = fused_vars[0]
        for size, inner in zip(self.sizes, fused_vars[1:depth], strict=False):
            number = number * size + inner
        form = products(form)
        step = form.terms.get(fused_vars[depth - 1], 0)
        rest = form.plus(products(affine(number)), -step)
        if any(not variables(atom).isdisjoint(fused_vars) for atom in rest.terms):
            return None
        return step, rest

    def _joined(self, step: int, rest: Affine) -> Expr:
        """``step`` times the whole, and ``rest``."""
        return rest.plus(affine(self.whole), step).to_expr()


def _product(sizes: Sequence[Size]) -> Size:
    result: Size = 1
    for size in sizes:
        result = product(result, size)
    return result


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

"""What is staged of an operand: the copy of what a part of the kernel reads, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from tilewright.dtypes import DType
from tilewright.facts.affine import Affine, affine, difference
from tilewright.ir.buffer import Buffer, Size, Space, Swizzle, as_size
from tilewright.ir.expr import Cast, Const, Expr, Var, all_of, as_expr, cast, conjuncts, const, var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Allocate, Compute, Dim, For, Kernel, Let, Operand, Stmt, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import rewrite, rewrite_stmts, substitute, variables
from tilewright.schedule.queries.access import buffers_written
from tilewright.schedule.queries.place import (
    Place,
    claim,
    fresh,
    names_in,
    placed_computes,
    prepend,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import BlockList, blocked_layout
from tilewright.schedule.records.transform import give

# The box of the tensor that is read, or the dims of the compute that reads it.
Shape = Literal["box", "dims"]


@dataclass(frozen=True)
class _Copy:
    """What is copied: the dims of the new buffer, from where, and how the compute reaches it."""

    names: tuple[str, ...]
    sizes: tuple[Size, ...]
    dims: tuple[Var, ...]
    source: View
    index: tuple[Expr, ...]
    kept: tuple[Expr, ...]  # conditions that stay with the compute


class Staging:
    """One operand to stage: the arguments, and the names that all places share."""

    def __init__(
        self,
        kernel: Kernel,
        compute: str,
        operand: str,
        shape: Shape,
        space: Space,
        layout: BlockList,
        row_padding: Mapping[str, int],
        swizzle: Swizzle | None,
        dtype: DType | None,
        name: str | None,
    ) -> None:
        self.compute, self.operand, self.shape = compute, operand, shape
        self.space, self.layout, self.row_padding = space, layout, row_padding
        self.swizzle, self.dtype, self.name = swizzle, dtype, name
        self.buffers, self.computes = names_in(kernel)

    def on_body(self, body: Stmt, place: Place) -> Stmt:
        """``body`` after the copy of what its one compute reads."""
        buffer, pack, body = self.split(body, place)
        return prepend((Allocate(buffer), pack), body)

    def split(
        self, body: Stmt, place: Place, shared: Sequence[For] = ()
    ) -> tuple[Buffer, Compute, Stmt]:
        """The new buffer, the copy, and ``body`` reading that.

        The copy holds what all iterations of the ``shared`` loops around ``body`` read.
        """
        matching = placed_computes(body, place, self.compute)
        if len(matching) != 1:
            raise refusal(
                f"'{self.compute}' stands {len(matching)} times in the part to stage for",
                "; ".join(headline(stmt) for stmt, _ in matching),
                "stage at a loop around one of them, or before partitioning",
                why="each has its own footprint",
            )
        compute, here = matching[0]
        operand = self._operand(compute)
        self._check(body, compute, operand, place, here)
        steps = here.steps[len(place.steps) :]
        loops = (*shared, *(s for s in steps if isinstance(s, For)))
        inner = [*(Dim(loop.var, loop.extent) for loop in loops), *compute.dims]
        names = place.names | {operand.var.name}
        make = _as_box if self.shape == "box" else _by_dims
        # Of what a call passes, memory of all may be as long as that.
        passed = Place().names if self.space is Space.GLOBAL else frozenset[str]()
        copy = make(compute, operand.view, inner, here, names, passed)
        buffer, pack = self._pack(operand, copy)
        new = _reading(compute, operand, View(buffer, copy.index, all_of(copy.kept)))
        return buffer, pack, rewrite_stmts(body, lambda node: new if node is compute else node)

    def _operand(self, compute: Compute) -> Operand:
        for operand in compute.operands:
            if operand.var.name == self.operand:
                return operand
        raise refusal(
            f"the compute '{compute.name}' has no operand '{self.operand}'",
            compute,
            "choose one of " + ", ".join(o.var.name for o in compute.operands),
        )

    def _check(
        self, body: Stmt, compute: Compute, operand: Operand, place: Place, here: Place
    ) -> None:
        source = operand.view.buffer
        steps = here.steps[len(place.steps) :]
        inside = any(isinstance(s, Allocate) and s.buffer is source for s in steps)
        if inside or source in buffers_written(body):
            raise refusal(
                f"'{source.name}' is written where it would be copied",
                compute,
                "stage at a loop further inside, behind the writing",
                why="the copy would be older than what the compute has to read",
            )
        lets = {s.var for s in steps if isinstance(s, Let)}
        view = operand.view
        if view_variables(view) & lets:
            raise refusal(
                f"the view of '{self.operand}' depends on a let inside",
                to_text(view),
                "stage before trimming, or at a loop further inside",
                why="its value is not known where the copy would stand",
            )

    def _pack(self, operand: Operand, copy: _Copy) -> tuple[Buffer, Compute]:
        old = operand.view.buffer
        stem = old.name if old.name.endswith("_packed") else f"{old.name}_packed"
        shape, layout = blocked_layout(
            copy.names, copy.sizes, self.layout, self.row_padding, self.swizzle
        )
        dtype = self.dtype or old.dtype
        buffer = Buffer(self.name or fresh(stem, self.buffers), dtype, shape, layout, self.space)
        # Dims that grew to whole blocks: beyond the old size, the copy gets zeros.
        padding = [
            dim < as_expr(size)
            for dim, size, padded in zip(copy.dims, copy.sizes, shape, strict=True)
            if padded is not size and padded != size
        ]
        source = replace(copy.source, mask=all_of((*padding, *conjuncts(copy.source.mask))))
        pack = Compute.single(
            fresh(f"{self.operand}_pack", self.computes),
            tuple(Dim(d, as_expr(size)) for d, size in zip(copy.dims, shape, strict=True)),
            View(buffer, copy.dims),
            (Operand(operand.var, source),),
            cast(dtype, operand.var),
        )
        give("copy", "compute", pack.name)
        give("buffer", "buffer", buffer.name)
        return buffer, pack


def _reading(compute: Compute, operand: Operand, view: View) -> Compute:
    """``compute`` with the operand at ``view``, whose type may be another."""
    old, dtype = operand.var, view.buffer.dtype
    new = var(old.name, dtype)
    operands = tuple(Operand(new, view) if o is operand else o for o in compute.operands)
    if old.type is dtype:
        return replace(compute, operands=operands)

    def change(node: Expr) -> Expr:
        # The conversion that the body did to the old element now starts from the new one.
        return cast(node.type, new) if isinstance(node, Cast) and node.a is old else node

    body = rewrite(compute.body, change)
    return replace(compute, operands=operands).with_result(
        body=substitute(body, {old: cast(old.type, new)})
    )


def _by_dims(
    compute: Compute,
    view: View,
    inner: list[Dim],
    here: Place,
    taken: frozenset[str],
    passed: frozenset[str],
) -> _Copy:
    """A copy indexed by the dims and loops inside that the view depends on. Those whose extents are
    made of what is ``passed`` are as long as that, the others as they are at most."""
    mentioned = view_variables(view)
    used = [d for d in inner if d.var in mentioned]
    # A tensor that does not vary inside still is one element.
    used = used or [Dim(var(fresh("unit", taken)), const(1))]
    sizes = tuple(
        as_size(d.extent)
        if {v.name for v in variables(d.extent)} <= passed
        else _longest(compute, d, here)
        for d in used
    )
    conditions: list[Expr] = []
    inner_vars = {d.var for d in inner}
    for dim, size in zip(used, sizes, strict=True):
        if dim.extent is as_expr(size):
            continue
        if variables(dim.extent) & inner_vars - {d.var for d in used}:
            raise refusal(
                f"the extent of '{dim.var.name}' varies with other loops than the view",
                compute,
                "stage at a loop further inside, or before tiling",
            )
        conditions.append(dim.var < dim.extent)
    mask = all_of((*conditions, *conjuncts(view.mask)))
    dims = tuple(d.var for d in used)
    index = tuple(d if d in inner_vars else const(0) for d in dims)
    return _Copy(
        tuple(d.name for d in dims), sizes, dims, View(view.buffer, view.index, mask), index, ()
    )


def _longest(compute: Compute, dim: Dim, here: Place) -> int:
    longest = here.facts.bounds(dim.extent)[1]
    if longest is None:
        raise refusal(
            f"'{dim.var.name}' has no greatest extent",
            compute,
            "tile it, so that its extent is bounded",
        )
    return longest


def _as_box(
    compute: Compute,
    view: View,
    inner: list[Dim],
    here: Place,
    taken: frozenset[str],
    passed: frozenset[str],
) -> _Copy:
    """A copy of the box of the tensor that is read; see `_by_dims` about what is ``passed``."""
    inner_vars = [d.var for d in inner]
    whole = {d.var: d.extent for d in inner if {v.name for v in variables(d.extent)} <= passed}
    sides = [_side(compute, view, i, e, inner_vars, whole, here) for i, e in enumerate(view.index)]
    kept_dims = [i for i, (_, size, _) in enumerate(sides) if size != 1] or [len(sides) - 1]
    names = _names(compute, [sides[i][0] for i in kept_dims], taken)
    dims = tuple(var(name) for name in names)
    at: list[Expr] = []
    for i, (form, _, least) in enumerate(sides):
        start = _outer_part(form, inner_vars).shifted(least).to_expr()
        at.append(start + dims[kept_dims.index(i)] if i in kept_dims else start)
    conditions: list[Expr] = []
    for position, size in zip(at, view.buffer.sizes, strict=True):
        conditions += [const(0) <= position, position < as_expr(size)]
    kept: list[Expr] = []
    for condition in conjuncts(view.mask):
        moved = _moved(condition, [form for form, _, _ in sides], at, inner_vars)
        (kept if moved is None else conditions).append(condition if moved is None else moved)
    index = tuple(
        _inner_part(form, inner_vars).shifted(-least).to_expr()
        for form, _, least in (sides[i] for i in kept_dims)
    )
    source = View(view.buffer, tuple(at), all_of(conditions))
    return _Copy(names, tuple(sides[i][1] for i in kept_dims), dims, source, index, tuple(kept))


def _side(
    compute: Compute,
    view: View,
    dim: int,
    index: Expr,
    inner: list[Var],
    whole: Mapping[Var, Expr],
    here: Place,
) -> tuple[Affine, Size, int]:
    """One tensor dim: its index, how many steps it takes inside, and the least inner part; where
    that is one of the dims in ``whole``, as many as that has."""
    form = affine(index)
    alone = _inner_part(form, inner)
    # A loop times a size that a call passes is a term of its own, which varies inside.
    hidden = [a for a in form.terms if a not in inner and variables(a) & set(inner)]
    for variable, extent in whole.items():
        if not hidden and not isinstance(extent, Const) and alone == Affine({variable: 1}):
            return form, as_size(extent), 0
    facts = here.facts_with(compute.dims)
    passed = None if hidden else _passed(alone, whole)
    if passed is not None:
        return form, passed, 0
    least, greatest = facts.bounds(alone.to_expr())
    if hidden or least is None or greatest is None:
        raise refusal(
            f"what is read of dim {dim} of '{view.buffer.name}' is no box",
            compute,
            'stage it with shape="dims"',
            why=f"its index {to_text(index)} is not linear in the loops inside, or not bounded",
        )
    return form, greatest - least + 1, least


def _passed(index: Affine, whole: Mapping[Var, Expr]) -> Expr | None:
    """How many steps ``index`` takes, where it adds up dims in ``whole`` and a call passes how long
    one of them is; None where it does not, or a dim without elements could make that negative."""
    last = Affine({})
    for dim, step in index.terms.items():
        if not isinstance(dim, Var) or dim not in whole or step < 0:
            return None
        last = last.plus(affine(whole[dim]).shifted(-1), step)
    size = last.shifted(1).to_expr()
    low = Place().facts.bounds(size)[0]
    return None if isinstance(size, Const) or low is None or low < 0 else size


def _inner_part(form: Affine, inner: list[Var]) -> Affine:
    return Affine({a: c for a, c in form.terms.items() if a in inner})


def _outer_part(form: Affine, inner: list[Var]) -> Affine:
    return Affine({a: c for a, c in form.terms.items() if a not in inner}, form.constant)


def _names(compute: Compute, forms: list[Affine], outside: frozenset[str]) -> tuple[str, ...]:
    """A name for each dim of the copy, from the variables that index it."""
    vars_ = [d.var for d in compute.dims]
    taken = set(outside)
    names: list[str] = []
    for form in forms:
        parts = [v.name for v in vars_ if v in form.terms]
        parts = parts or [a.name for a in form.terms if isinstance(a, Var)]
        parts = [p for p in parts if p not in outside] or ["unit"]
        names.append(claim("_".join(parts), taken))
    return tuple(names)


def _moved(condition: Expr, forms: list[Affine], at: list[Expr], inner: list[Var]) -> Expr | None:
    """The condition at the copy; None where it is not one on a single tensor dim."""
    if not variables(condition) & set(inner):
        return condition
    form = difference(condition)
    if form is None:
        return None
    varying = _inner_part(form, inner)
    if any(variables(a) & set(inner) for a in form.terms if a not in inner):
        return None
    for index, position in zip(forms, at, strict=True):
        part = _inner_part(index, inner)
        first = next(iter(part.terms), None)
        if first is None or first not in varying.terms:
            continue
        # As many times the condition as make it one on whole steps of the index.
        step, per_step = varying.terms[first], part.terms[first]
        times = abs(per_step) // gcd(step, per_step)
        factor = step * times // per_step
        if part.scaled(factor) == varying.scaled(times):
            moved = form.scaled(times).plus(index, -factor)
            return const(0) <= moved.to_expr() + position * factor
    return None

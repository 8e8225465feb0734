"""Boxes: the copies of tiles that a unit makes by itself, from a tensor to workgroup memory.

The unit is told a box of the tensor: a corner, and how far it goes along each dim. It writes the
elements one after the other, those of the tensor's innermost dim first, swizzled or not, and zeros
for those outside of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.facts.affine import Affine, affine, difference
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import SHARED, Layout, Space
from tilewright.ir.expr import Const, Expr, Var, conjuncts, const
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Compute, View
from tilewright.ir.visit import substitute, variables
from tilewright.layout.rows import growth
from tilewright.simplify import simplify

# Bytes of which steps of the tensor, and the box along its innermost dim, are multiples.
_UNIT = 16
# Dims of a tensor, and elements of a box along one, at most.
MOST_DIMS, MOST_BOX = 5, 256


@dataclass(frozen=True)
class Box:
    """A copy of a box. By the tensor's dims, innermost first: ``order`` (which dim of the source's
    buffer each is), ``sizes`` of the box in elements, and ``corner``, the index of its first
    element (which may be outside of the tensor). ``first`` is the offset in the destination, in
    elements, where the box begins."""

    order: tuple[int, ...]
    sizes: tuple[int, ...]
    corner: tuple[Expr, ...]
    first: Expr


def box_of(compute: Compute, facts: Facts) -> Box | str:
    """What ``compute`` is as a copy of a box; or why it is none. ``facts`` hold around it."""
    sizes = sizes_of(compute)
    if isinstance(sizes, str):
        return sizes
    for dim in compute.dims:
        facts = facts.loop(dim.var, dim.extent)
    source, out = compute.operands[0].view, compute.out
    along = _along(source, sizes)
    if isinstance(along, str):
        return along
    reason = _too_large(along, sizes)
    if reason is not None:
        return reason
    hidden = next(hidden_inside(source, facts), None)
    if hidden is not None:
        return f"its mask hides more than what is outside of the tensor: {to_text(hidden)}"
    steps = steps_of(source.buffer.layout, len(source.index))
    if isinstance(steps, str):
        return steps
    # Dims of one element have no neighbours: they are outermost.
    order = sorted(
        range(len(steps)), key=lambda d: (steps[d] == 0, steps[d], sizes.get(along[d], 1))
    )
    reason = wrong_steps(source, [steps[d] for d in order])
    if reason is not None:
        return reason
    first = first_of(out, [along[d] for d in order], sizes, facts)
    if isinstance(first, str):
        return first
    origin = {dim.var: const(0) for dim in compute.dims}
    corner = [substitute(index, origin) for index in source.index]
    return Box(
        tuple(order),
        tuple(sizes.get(along[d], 1) for d in order),
        tuple(simplify(corner[d], facts) for d in order),
        first,
    )


_Along = list[Var | None]


def sizes_of(compute: Compute) -> dict[Var | None, int] | str:
    """The extents of a copy from global to workgroup memory; or why ``compute`` is none."""
    if len(compute.operands) != 1 or compute.body is not compute.operands[0].var:
        return "it computes on the way"
    source, out = compute.operands[0].view.buffer, compute.out
    if compute.combiner is not None or out.mask is not None:
        return f"it does not write all of '{out.buffer.name}'"
    if source.space is not Space.GLOBAL or out.buffer.space not in SHARED:
        return "it does not go from global to workgroup memory"
    sizes: dict[Var | None, int] = {}
    for dim in compute.dims:
        if not isinstance(dim.extent, Const):
            return f"its extent along '{dim.var.name}' is not constant"
        sizes[dim.var] = int(dim.extent.value)
    return sizes


def _along(source: View, sizes: dict[Var | None, int]) -> _Along | str:
    """By the tensor's dims, which of the copy's goes along it."""
    along: _Along = []
    for number, index in enumerate(source.index):
        used = [v for v in variables(index) if v in sizes]
        if not used:
            along.append(None)
            continue
        rest = affine(index - used[0]).terms
        if len(used) > 1 or any(used[0] in variables(atom) for atom in rest):
            return f"it does not go along dim {number} step by step: by {to_text(index)}"
        along.append(used[0])
    counts = {v: sum(var is v for var in along) for v in sizes if v is not None}
    for variable, count in counts.items():
        # A dim of one element may go along none: such as one of two rows, of which a workgroup of
        # a cluster copies one.
        if count != 1 and (count or sizes[variable] != 1):
            return f"{count} dims of the tensor are '{variable.name}'"
    return along


def _too_large(along: _Along, sizes: Mapping[Var | None, int]) -> str | None:
    if len(along) > MOST_DIMS:
        return f"the tensor has {len(along)} dims, more than {MOST_DIMS}"
    longest = max(sizes.values(), default=1)
    if longest > MOST_BOX:
        return f"a box of {longest} elements along a dim, more than {MOST_BOX}"
    return None


def hidden_inside(source: View, facts: Facts) -> Iterator[Expr]:
    """The conditions of its mask that may hide what is inside of the tensor."""
    outside = set()
    for index, extent in zip(source.index, source.buffer.shape, strict=True):
        inside = facts.expanded(affine(index))
        outside |= {_tight(inside), _tight(affine(const(extent - 1)).plus(inside, -1))}
    for condition in conjuncts(source.mask):
        form = difference(condition)
        if form is not None and _tight(facts.expanded(form)) in outside:
            continue
        if facts.prove(condition) is not True:
            yield condition


def _tight(form: Affine) -> Affine:
    """The smallest form that is negative where ``form`` is."""
    return form.divided(form.content) if form.content > 1 else form


def steps_of(layout: Layout, rank: int) -> list[int] | str:
    """Elements between neighbours along each dim of the tensor; 0 where there are none."""
    steps = [0] * rank
    for block in layout.blocks:
        if block.size == 1:
            continue
        if steps[block.dim] or layout.swizzle is not None:
            return "the tensor lies in blocks"
        steps[block.dim] = block.stride
    return steps


def wrong_steps(source: View, steps: Sequence[int]) -> str | None:
    """What is wrong with such ``steps``, the innermost dim's first."""
    lengths = [step for step in steps if step]
    size = source.buffer.dtype.bytes
    if not lengths or lengths[0] != 1:
        return "no dim of the tensor has its elements side by side"
    for step in lengths[1:]:
        if step * size % _UNIT:
            return f"the tensor has rows of {step * size} bytes, no multiple of {_UNIT}"
    return None


def first_of(
    out: View, order: Sequence[Var | None], sizes: Mapping[Var | None, int], facts: Facts
) -> Expr | str:
    """Where the box begins in the destination, in which it lies without gaps."""
    layout = out.buffer.layout
    offset = simplify(Layout(layout.blocks, layout.offset).offset_of(out.index), facts)
    size = out.buffer.dtype.bytes
    step, inner = 1, True
    for dim in order:
        if dim is None:
            continue
        for value in range(sizes[dim]):
            if growth(offset, dim, value, facts) != value * step:
                return (
                    f"'{out.buffer.name}' does not take it without gaps: before it is swizzled, "
                    f"{to_text(offset)} has to grow by {step} along '{dim.name}'"
                )
        step *= sizes[dim]
        if inner:
            reason = _wrong_row(layout, step, size)
            if reason is not None:
                return reason
        inner = False
    first = simplify(substitute(offset, {v: const(0) for v in sizes if v is not None}), facts)
    period = layout.swizzle.period if layout.swizzle is not None else 8 * _UNIT // size
    if not facts.divisible(first, period):
        return f"it begins at {to_text(first)}, which is no multiple of {period} elements"
    return first


def _wrong_row(layout: Layout, row: int, size: int) -> str | None:
    """What is wrong with rows of so many elements of ``size`` bytes."""
    if row * size % _UNIT:
        return f"its rows have {row * size} bytes, no multiple of {_UNIT}"
    if layout.swizzle is not None and row != layout.swizzle.room:
        return f"its rows have {row} elements, those of the swizzle {layout.swizzle.room}"
    return None

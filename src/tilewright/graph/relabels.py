"""Copies that only give memory another shape: the steps of a program go without them.

    compute flat(i in n, j in m, c in 64):       # x[n, m, 64] row-major, flat[n * m, 64], too
      x = x[i, j, c]
      flat[i * m + j, c] = x

Who reads `flat` afterwards gets the memory of `x`. The IR has no two shapes for one buffer, so that
graphs say it as a copy; the other way would be to divide places by sizes that calls pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graph.launches import Launch
from tilewright.ir.buffer import Buffer, Size, product, row_major
from tilewright.ir.expr import Var
from tilewright.ir.sizes import Sizes
from tilewright.ir.stmt import Compute, Stmt
from tilewright.runtime.steps import HostStep

Steps = tuple[HostStep[Launch, Buffer], ...]


def relabeled(stmt: Stmt) -> tuple[Buffer, Buffer] | None:
    """What ``stmt`` copies, and where, if each element keeps its place in memory, all of them are
    copied, and calls pass some of the sizes."""
    if not isinstance(stmt, Compute) or len(stmt.outputs) != 1 or len(stmt.operands) != 1:
        return None
    (target,), (operand,), source = stmt.outputs, stmt.operands, stmt.operands[0].view
    plain = target.mask is None and source.mask is None and stmt.results[0].combiner is None
    if not plain or stmt.results[0].values[0] is not operand.var or stmt.is_ordered:
        return None
    if not source.buffer.symbols or source.buffer.dtype is not target.buffer.dtype:
        return None
    extents = {dim.var: dim.extent for dim in stmt.dims}
    read = [(i, s) for i, s in zip(source.index, source.buffer.sizes, strict=True) if s != 1]
    every = len(read) == len(extents) and all(
        isinstance(index, Var) and index in extents and _same(extents[index], size)
        for index, size in read
    )
    buffers = (source.buffer, target.buffer)
    dense = all(buffer.layout == row_major(buffer.sizes) for buffer in buffers)
    if not every or not dense or not _same(*map(_elements, buffers)):
        return None
    places = (view.buffer.layout.offset_of(view.index) for view in (source, target))
    return buffers if _same(*places) else None


def _elements(buffer: Buffer) -> Size:
    elements: Size = 1
    for size in buffer.sizes:
        elements = product(elements, size)
    return elements


def _same(a: Size, b: Size) -> bool:
    return Sizes(()).equal(a, b)


def without_relabels(
    steps: Steps,
    pairs: Mapping[int, tuple[Buffer, Buffer]],
    between: Sequence[Buffer],
    writes: Mapping[int, frozenset[Buffer]],
) -> Steps:
    """``steps`` without those launches (by identity) that ``pairs`` say to copy one buffer to
    another, with one in the place of both. ``writes`` says what each launch writes, ``between`` are
    the buffers that are no arguments. What is written later stays apart."""
    inside = set(between)
    top = [step for step in steps if isinstance(step, Launch)]
    if len(top) != len(steps):
        return steps  # what loops write later is not looked for
    place: dict[Buffer, Buffer] = {}
    gone: set[int] = set()
    for number, step in enumerate(top):
        pair = pairs.get(id(step))
        if pair is None:
            continue
        source, target = (place.get(buffer, buffer) for buffer in pair)
        old, new = (source, target) if target in inside else (target, source)
        # An argument may hold what a step before still reads.
        before = frozenset[Buffer]().union(*(launch.buffers for launch in top[:number]))
        after = frozenset[Buffer]().union(*(writes[id(launch)] for launch in top[number + 1 :]))
        if new not in inside or pair[0] in after or pair[1] in after or pair[1] in before:
            continue
        gone.add(id(step))
        place = {b: old if root is new else root for b, root in place.items()} | {new: old}
    kept: list[HostStep[Launch, Buffer]] = []
    for step in top:
        if id(step) not in gone:
            kept.append(step.on(tuple(place.get(buffer, buffer) for buffer in step.buffers)))
    return tuple(kept)

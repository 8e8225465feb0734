"""How much room between the rows of shared tiles keeps their accesses out of one bank.

Counted, not derived: what the lanes of a subgroup read and write of a tile, with each padding.
Source for how wide accesses take turns: NVIDIA, CUDA C++ Best Practices Guide, "Shared Memory".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.ir.buffer import Layout, Space
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.stmt import Compute, For, Kernel, LoopKind, View
from tilewright.ir.visit import variables, walk_stmts
from tilewright.machines.machine import Hierarchy
from tilewright.recipes.roles import MAIN, find_compute

# Bytes that one lane accesses at once: at most, and with all lanes of a subgroup at the same time.
_WIDEST, _NARROW = 16, 4
# Paddings that are tried, in elements.
_MOST = 16


def paddings(kernel: Kernel, hierarchy: Hierarchy, lanes: str, vector: int) -> dict[str, int]:
    """Per operand of the main compute in ``kernel``, whose tiles are shared: the least padding of
    those with the fewest conflicts; operands that need none are left out.

    ``lanes`` is the dim along which work-items read ``vector`` elements at once: there, rows stay
    aligned to these.
    """
    main = find_compute(kernel, MAIN)
    items = _items(kernel)
    writers = {
        s.out.buffer: s
        for s in walk_stmts(kernel.body)
        if isinstance(s, Compute) and s.out.buffer.space is Space.WORKGROUP
    }
    found: dict[str, int] = {}
    for operand in main.operands[:2]:
        copy = writers.get(operand.view.buffer)
        if copy is None:
            continue
        wide = lanes in {v.name for index in operand.view.index for v in variables(index)}
        width = vector if wide else 1
        best = min(
            range(0, _MOST + 1, width),
            key=lambda p, c=copy, v=operand.view, w=width: (  # type: ignore[misc]
                _turns(_padded(c.out, p), c, 1, items, hierarchy)
                + _turns(_padded(v, p), main, w, items, hierarchy),
                p,
            ),
        )
        if best:
            found[operand.var.name] = best
    return found


def _items(kernel: Kernel) -> list[tuple[Var, int]]:
    """The loops over work-items and their extents, outermost first."""
    return [
        (stmt.var, int(stmt.extent.value))
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, For)
        and stmt.kind is LoopKind.WORKGROUP
        and isinstance(stmt.extent, Const)
    ]


def _padded(view: View, padding: int) -> View:
    """``view`` with longer steps of the outermost dim, the reduced one."""
    first, *rest = view.buffer.layout.blocks
    layout = Layout((replace(first, stride=first.stride + padding), *rest))
    return replace(view, buffer=replace(view.buffer, layout=layout))


def _turns(
    view: View,
    compute: Compute,
    width: int,
    items: Sequence[tuple[Var, int]],
    hierarchy: Hierarchy,
) -> int:
    """Turns that the banks take to serve the first subgroup, over those of one access."""
    size = view.buffer.dtype.bytes
    offset = view.buffer.layout.offset_of(view.index)
    free = {dim.var: 0 for dim in compute.dims}
    starts = [
        int(_value(offset, {**free, **numbers})) * size
        for numbers in _lanes(items, hierarchy.subgroup)
    ]
    together = max(1, hierarchy.subgroup // max(1, min(width * size, _WIDEST) // _NARROW))
    turns = 0
    for first in range(0, len(starts), together):
        banks: dict[int, set[int]] = {}
        for start in starts[first : first + together]:
            for word in range(
                start // hierarchy.bank, (start + width * size - 1) // hierarchy.bank + 1
            ):
                banks.setdefault(word % hierarchy.banks, set()).add(word)
        turns += max(len(words) for words in banks.values())
    return turns


def _lanes(items: Sequence[tuple[Var, int]], subgroup: int) -> list[dict[Var, int]]:
    """The numbers of the work-items of the first subgroup along each loop."""
    total = 1
    for _, extent in items:
        total *= extent
    result: list[dict[Var, int]] = []
    for lane in range(min(subgroup, total)):
        numbers: dict[Var, int] = {}
        rest = lane
        for variable, extent in reversed(items):
            numbers[variable] = rest % extent
            rest //= extent
        result.append(numbers)
    return result


def _value(expr: Expr, known: Mapping[Var, int]) -> int:
    """``expr`` where everything that is not known is 0: it moves all lanes alike."""
    return int(evaluate(expr, {v: known.get(v, 0) for v in variables(expr)}))

"""How much room between the rows of shared tiles keeps their accesses out of one bank.

Counted, not derived: what the lanes of a subgroup read and write of a tile, with each padding.
Source for how wide accesses take turns: NVIDIA, CUDA C++ Best Practices Guide, "Shared Memory".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Layout, Space
from tilewright.ir.expr import BINARY, UNARY, Binary, Const, Expr, Select, Unary, Var
from tilewright.ir.stmt import Compute, For, Kernel, LoopKind, View
from tilewright.ir.visit import children, variables, walk_stmts
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
        numbers = _lanes(items, hierarchy.subgroup)
        accesses = (
            _access(copy.out, 1, numbers),
            _access(operand.view, width, numbers),
        )
        best = min(
            range(0, _MOST + 1, width),
            key=lambda padding, both=accesses: (  # type: ignore[misc]
                sum(access.turns(padding, hierarchy) for access in both),
                padding,
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


@dataclass(frozen=True)
class _Access:
    """What the lanes of a subgroup access at once: where each begins, in elements, in which row of
    the tile, and how many elements it takes of ``size`` bytes."""

    starts: tuple[int, ...]
    rows: tuple[int, ...]
    width: int
    size: int

    def turns(self, padding: int, hierarchy: Hierarchy) -> int:
        """Turns that the banks take to serve them, where rows are ``padding`` longer."""
        taken = self.width * self.size
        together = max(1, hierarchy.subgroup // max(1, min(taken, _WIDEST) // _NARROW))
        begins = [
            (start + padding * row) * self.size
            for start, row in zip(self.starts, self.rows, strict=True)
        ]
        turns = 0
        for first in range(0, len(begins), together):
            banks: dict[int, set[int]] = {}
            for begin in begins[first : first + together]:
                last = (begin + taken - 1) // hierarchy.bank
                for word in range(begin // hierarchy.bank, last + 1):
                    banks.setdefault(word % hierarchy.banks, set()).add(word)
            turns += max(len(words) for words in banks.values())
        return turns


def _access(view: View, width: int, numbers: Mapping[Var, list[int]]) -> _Access:
    """How the lanes with ``numbers`` reach ``view``, at the first point of its compute's dims."""
    layout = view.buffer.layout
    first, *rest = layout.blocks
    # The outermost block is that of the reduced dim: its steps are the rows.
    longer = Layout((replace(first, stride=first.stride + 1), *rest), layout.offset)
    starts, ends = (_values(each.offset_of(view.index), numbers) for each in (layout, longer))
    rows = tuple(end - start for start, end in zip(starts, ends, strict=True))
    return _Access(tuple(starts), rows, width, view.buffer.dtype.bytes)


def _lanes(items: Sequence[tuple[Var, int]], subgroup: int) -> dict[Var, list[int]]:
    """The numbers of the work-items of the first subgroup along each loop."""
    rest = list(range(min(subgroup, math.prod(extent for _, extent in items))))
    numbers: dict[Var, list[int]] = {}
    for variable, extent in reversed(items):
        numbers[variable] = [number % extent for number in rest]
        rest = [number // extent for number in rest]
    return numbers


def _values(expr: Expr, numbers: Mapping[Var, list[int]]) -> list[int]:
    """``expr``, an index, per lane; what is not in ``numbers`` is 0: it moves all lanes alike."""
    lanes = len(next(iter(numbers.values())))
    done: dict[Expr, list[int]] = {v: numbers.get(v, [0] * lanes) for v in variables(expr)}

    def values(node: Expr) -> list[int]:
        found = done.get(node)
        if found is None:
            parts = map(values, children(node))
            match node:
                case Const():
                    found = [int(node.value)] * lanes
                case Binary():
                    found = list(map(BINARY[node.op], *parts))
                case Unary():
                    found = list(map(UNARY[node.op], *parts))
                case Select():
                    found = [a if chosen else b for chosen, a, b in zip(*parts, strict=True)]
                case _:
                    raise TypeError(f"no index of a tile has a {type(node).__name__}")
            done[node] = found
        return found

    return values(expr)

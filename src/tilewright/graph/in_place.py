"""Results that go where an operand was that is not needed any more.

    compute relu(i in 64):                      compute relu(i in 64):
      v = sums[i]          # for the last time    v = sums[i]
      h[i] = max(v, 0.0)                  ->      sums[i] = max(v, 0.0)
    compute next(i in 64):                      compute next(i in 64):
      ... h[63 - i] ...                           ... sums[63 - i] ...

Legal where each element of the result is written once, from the same element of the operand at
most. A copy of what is not needed any more goes.

So does what updates an argument in the end, where nothing reads the old one after the first write:

    compute new(i in 64):                       compute new(i in 64):
      v = w[i]                                    v = w[i]
      t[i] = v * 0.5                      ->      w[i] = v * 0.5
    compute update(i in 64):
      w[i] = t[i]
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from tilewright.graph.passes.values import writes_of
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Compute, Operand, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import loads_in, replace_buffer
from tilewright.schedule.queries.flow import whole


class Run:
    """Groups of statements that run one after the other, and what no other code touches."""

    def __init__(self, groups: Sequence[Sequence[Stmt]], local: Set[Buffer]) -> None:
        self._groups = [list(group) for group in groups]
        self._local = local
        self._touched = [set[Buffer]().union(*map(buffers_in, group)) for group in groups]
        self._first: dict[Buffer, int] = {}
        self._last: dict[Buffer, int] = {}
        for n, touched in enumerate(self._touched):
            for buffer in touched:
                self._first.setdefault(buffer, n)
                self._last[buffer] = n

    def in_place(self) -> list[list[Stmt]]:
        """The groups where results go into operands; empty ones are those that only copied."""
        for n in range(len(self._groups)):
            self._return(n)
        for n in range(len(self._groups)):
            for old, new in self._pairs(n):
                if self._last[old] == n and _may_replace(self._groups[n], old, new):
                    self._merge(n, old, new)
                    break
        return self._groups

    def _pairs(self, n: int) -> list[tuple[Buffer, Buffer]]:
        """Buffers that group ``n`` touches last, each with one that it touches first and that may
        lie in the same memory."""
        fitting = self._touched[n] & self._local
        olds = [b for b in fitting if self._last[b] == n and self._first[b] < n]
        news = [b for b in fitting if self._first[b] == n and self._last[b] > n]
        # No order of a set: names and sizes tell.
        pairs = [(old, new) for old in olds for new in news if _alike(old, new)]
        return sorted(pairs, key=lambda pair: (pair[0].name, pair[1].name))

    def _return(self, n: int) -> None:
        """Where group ``n`` copies what is local to a buffer that is not, and whose old contents
        are not needed any more since the former was made, it is made there."""
        copied = _copied(self._groups[n])
        if copied is None:
            return
        new, old = copied
        if new not in self._local or old in self._local or not _alike(old, new):
            return
        first = self._first[new]
        between = any(old in self._touched[k] for k in range(first + 1, n))
        last = max(self._last[new], self._last[old])
        later = [self._groups[k] for k in range(n + 1, last + 1)]
        if first == n or between or any({old, new} & _all_written(group) for group in later):
            return
        group = self._groups[first]
        if old not in self._touched[first] or _may_replace(group, old, new):
            self._merge(first, old, new)

    def _merge(self, n: int, old: Buffer, new: Buffer) -> None:
        """``old`` in the place of ``new``, from group ``n`` on."""
        for k in range(n, self._last[new] + 1):
            if new in self._touched[k]:
                changed = [replace_buffer(stmt, new, old) for stmt in self._groups[k]]
                self._groups[k] = [stmt for stmt in changed if not _is_nothing(stmt, old)]
                self._touched[k] = (self._touched[k] - {new}) | {old}
        self._last[old] = max(self._last[old], self._last[new])


def _alike(one: Buffer, other: Buffer) -> bool:
    same = one.dtype is other.dtype and one.sizes == other.sizes
    return same and one.layout == other.layout and one.space is other.space


def _may_replace(group: Sequence[Stmt], old: Buffer, new: Buffer) -> bool:
    """Whether ``group``, the last that reads ``old``, may write to it instead of ``new``."""
    computes = [stmt for stmt in group if isinstance(stmt, Compute)]
    if len(computes) != len(group) or any(old in _written(compute) for compute in computes):
        return False
    writers = [compute for compute in computes if new in _written(compute)]
    readers = [compute for compute in computes if old in buffers_in(compute)]
    # Where others read it, too, what is fused would have to keep them apart.
    if len(writers) != 1 or readers != writers:
        return False
    (compute,) = writers
    view = _only_view(compute, new)
    if view is None or any(b is new for b in _read(compute)):
        return False
    reads = [operand.view for operand in compute.operands if operand.view.buffer is old]
    loaded = [load for r in compute.results for v in r.values for load in loads_in(v)]
    if any(load.buffer is old for load in loaded):
        return False
    return all(read.index == view.index and read.mask is None for read in reads)


def _only_view(compute: Compute, buffer: Buffer) -> View | None:
    """How ``compute`` writes ``buffer``, if it writes each element once."""
    views = [
        view
        for result in compute.results
        for view in result.views
        if view.buffer is buffer and result.combiner is None
    ]
    if len(views) != 1 or compute.is_ordered:
        return None
    order: tuple[Var, ...] | None = whole(compute, views[0])
    return views[0] if order is not None and len(order) == len(compute.dims) else None


def _copied(group: Sequence[Stmt]) -> tuple[Buffer, Buffer] | None:
    """What all of a group copies, and where, element by element."""
    compute = group[0] if len(group) == 1 else None
    if not isinstance(compute, Compute):
        return None
    if len(compute.outputs) != 1 or len(compute.operands) != 1:
        return None
    (target,), (operand,) = compute.outputs, compute.operands
    source = operand.view
    view = _only_view(compute, target.buffer)
    plain = view is not None and view.mask is None and source.mask is None
    if not plain or source.buffer is target.buffer or not _is_moved(compute, operand):
        return None
    return source.buffer, target.buffer


def _is_moved(compute: Compute, operand: Operand) -> bool:
    """Whether ``compute`` writes the elements of its one operand as they are, where they were."""
    index, target = operand.view.index, compute.outputs[0].index
    if len(index) != len(target):
        return False
    places = zip(index, target, strict=True)
    return compute.results[0].values[0] is operand.var and all(a is b for a, b in places)


def _all_written(group: Sequence[Stmt]) -> frozenset[Buffer]:
    return frozenset[Buffer]().union(*map(writes_of, group))


def _written(compute: Compute) -> set[Buffer]:
    return {view.buffer for view in compute.outputs}


def _read(compute: Compute) -> list[Buffer]:
    return [operand.view.buffer for operand in compute.operands]


def _is_nothing(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether ``stmt`` copies each element of ``buffer`` to itself."""
    if not isinstance(stmt, Compute) or len(stmt.outputs) != 1 or len(stmt.operands) != 1:
        return False
    (view,), (operand,) = stmt.outputs, stmt.operands
    return view.buffer is buffer and operand.view.buffer is buffer and _is_moved(stmt, operand)

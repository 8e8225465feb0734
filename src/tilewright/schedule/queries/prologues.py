"""Prologues of contractions: elementwise computes whose results the factors alone read.

    compute dequantized(i, j): t[i, j] = f32(q[i, j]) * s[j]
    compute product(m, n, k): y[m, n] add= x[m, k] * t[k, n]

Together with their contraction, they can be computed where a factor is copied (`inline`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.stmt import Allocate, Compute, Dim, Operand, Stmt, View
from tilewright.ir.visit import map_view, replace_buffer, substitute
from tilewright.schedule.queries.flow import Items, whole
from tilewright.schedule.queries.place import claim, fresh


@dataclass(frozen=True, eq=False)
class Prologue:
    """The item that makes what the item ``reader`` reads, of the contraction's ``factor``."""

    item: int
    reader: int
    factor: int
    compute: Compute


def prologues(
    items: Items,
    local: Collection[Buffer],
    main: int,
    may_join: Callable[[Set[int]], bool],
) -> list[Prologue]:
    """Those of the contraction ``main``, each after its reader; ``local`` are the buffers that
    nothing else sees, and ``may_join`` says of items whether they can run with the contraction."""
    result: list[Prologue] = []
    compute = items[main].simple
    assert compute is not None
    for factor, operand in enumerate(compute.operands[:2]):
        if [o.view.buffer for o in compute.operands].count(operand.view.buffer) > 1:
            continue  # Two factors that read the same are no two copies.
        left = [(main, operand.view.buffer)]
        while left:
            reader, held = left.pop(0)
            maker = _made(items, local, reader, held)
            members = {prologue.item for prologue in result}
            if maker is None or not may_join(members | {maker[0]}):
                continue
            result.append(Prologue(maker[0], reader, factor, maker[1]))
            left += [(maker[0], b) for b in dict.fromkeys(o.view.buffer for o in maker[1].operands)]
    return result


def _made(
    items: Items, local: Collection[Buffer], reader: int, held: Buffer
) -> tuple[int, Compute] | None:
    """The one item that fills ``held``, each element once, for the ``reader`` alone."""
    users = items.touching(held) if held in local else ()
    if len(users) != 2 or users[1] != reader:
        return None
    compute = items[users[0]].simple
    if compute is None or compute.combiner is not None or compute.out.buffer is not held:
        return None
    order = whole(compute, compute.out)
    if order is None or len(order) != len(compute.dims) or held in items[users[0]].reads:
        return None
    return users[0], compute


def with_prologues(
    stmts: Sequence[Stmt], computed_before: Sequence[Prologue], turned: bool
) -> tuple[Stmt, ...]:
    """``stmts``, of a contraction, after what makes its factors; ``turned``: these are in the
    other order than when it was ``computed_before``."""
    main = next(s for s in stmts if isinstance(s, Compute) and s.combiner is not None)
    renamed: dict[int, Compute] = {}
    for prologue in computed_before:
        reader = renamed.get(prologue.reader, main)
        factor = main.operands[1 - prologue.factor if turned else prologue.factor]
        operands = (factor,) if reader is main else reader.operands
        view = next(o.view for o in operands if o.view.buffer is prologue.compute.out.buffer)
        name = fresh(f"{factor.var.name}_prologue", (compute.name for compute in renamed.values()))
        renamed[prologue.item] = _called(prologue.compute, name, reader, view)
    first: list[Stmt] = []
    for compute in reversed(renamed.values()):
        first += [Allocate(compute.out.buffer), compute]
    stmts = (*first, *stmts)
    taken = [s.buffer.name for s in stmts if isinstance(s, Allocate)]
    for old in [compute.out.buffer for compute in renamed.values()]:
        name = old.name if taken.count(old.name) == 1 else fresh(old.name, taken)
        new = replace(old, name=name, space=Space.GLOBAL)
        taken.append(name)
        stmts = tuple(replace_buffer(stmt, old, new) for stmt in stmts)
    return stmts


def _called(compute: Compute, name: str, reader: Compute, view: View) -> Compute:
    """``compute`` by another name, with its dims called as those of its ``reader`` by which this
    reads its result at ``view``, so that what becomes of these becomes of its own."""
    new = dict(_dims(compute, reader, view))
    dims = tuple(Dim(new[d.var], d.extent) for d in compute.dims)
    taken = {d.var.name for d in dims}
    values: dict[Var, Expr] = dict(new)
    operands: list[Operand] = []
    for operand in compute.operands:
        moved = _moved(operand.view, new)
        variable = var(claim(operand.var.name, taken), operand.var.type)
        operands.append(Operand(variable, moved))
        values[operand.var] = variable
    changed = replace(compute, name=name, dims=dims, operands=tuple(operands))
    return changed.with_result(_moved(compute.out, new), substitute(compute.body, values))


def _dims(compute: Compute, reader: Compute, view: View) -> Iterator[tuple[Var, Var]]:
    """What each dim of ``compute`` is called."""
    extents = {d.var: d.extent for d in compute.dims}
    others = {d.var: d.extent for d in reader.dims}
    taken = {v.name for v in others}
    used: set[Var] = set()
    for expr, index in zip(compute.out.index, view.index, strict=True):
        if not isinstance(expr, Var):
            continue  # the one place of a dim of one element
        same = isinstance(index, Var) and others.get(index) is extents[expr] and index not in used
        new = index if same and isinstance(index, Var) else var(fresh("p", taken))
        used.add(new)
        taken.add(new.name)
        yield expr, new


def _moved(view: View, values: dict[Var, Var]) -> View:
    return map_view(view, lambda expr: substitute(expr, values))

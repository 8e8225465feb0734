"""What only moves elements is read through: reshapes, transposes, slices, pads, numbers; and what
integers of 8 bits stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from tilewright.facts import Facts
from tilewright.graph.passes.loaded import loaded, with_loads
from tilewright.graph.passes.values import Values, with_blocks
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Cast, Const, Expr, Select, Var, const
from tilewright.ir.load import Load
from tilewright.ir.stmt import Block, Compute, For, Kernel, Stmt
from tilewright.ir.visit import loads_in, reads_memory, substitute, walk
from tilewright.schedule.queries.flow import whole
from tilewright.simplify import simplify, simplify_stmt
from tilewright.tensor.elementwise import is_cheap, is_exact
from tilewright.tensor.places import divides, guarded, is_factor

# An element that takes more parts than this is not computed again where it is read.
_MOST = 48
# Nor is one that is made of an integer of 8 bits and takes more than this, its place included.
_FEW = 16


@dataclass(frozen=True, slots=True)
class _Move:
    """What a buffer holds: ``element`` at the place that ``dims`` say (None: along a dim of size
    1)."""

    dims: tuple[Var | None, ...]
    element: Expr

    def at(self, node: Load, facts: Facts) -> Expr:
        """What ``node`` loads of the buffer."""
        places = {d: i for d, i in zip(self.dims, node.index, strict=True) if d is not None}
        value = substitute(self.element, places)
        if node.mask is not None:
            value = guarded(value, node.mask, const(0, node.type))
        return simplify(value, facts)


def forward_views(kernel: Kernel) -> Kernel:
    """Computes read elements where they come from, instead of copies of them.

        compute t(i, j): t[i, j] = x[j, i]
        compute y(i, j): y[i, j] = exp(t[i, j])
    ->  compute t(i, j): t[i, j] = x[j, i]
        compute y(i, j): y[i, j] = exp(x[j, i])

    Sums of products take only places that are sums of multiples of their dims, and 0 outside of a
    mask; what divides for its places, or has other numbers outside, stays a copy for them.
    `drop_dead` leaves out the copies that are no longer read.
    """
    values = Values.of(kernel)
    stmts = _forwarded(values, {}, Facts.of(kernel))
    return kernel if stmts is values.stmts else replace(kernel, body=Block(stmts))


def _forwarded(
    values: Values, moves_before: Mapping[Buffer, _Move], facts: Facts
) -> tuple[Stmt, ...]:
    """The statements of a block, where ``moves_before`` is what buffers outside hold; the same
    object when nothing changed."""
    moves = dict(moves_before)
    stmts = list(values.stmts)
    for n, stmt in enumerate(stmts):
        if not isinstance(stmt, Compute):
            inner = facts.loop(stmt.var, stmt.extent) if isinstance(stmt, For) else facts
            stmts[n] = with_blocks(stmt, partial(_forwarded_inside, values, n, dict(moves), inner))
            continue
        if stmt.instruction is not None or stmt.completion is not None:
            continue
        stmts[n] = new = _read_through(stmt, moves, facts)
        buffer = new.outputs[0].buffer
        if values.made.get(buffer) == (n,):
            move = _move(new, values)
            if move is not None:
                moves[buffer] = move
    same = all(a is b for a, b in zip(stmts, values.stmts, strict=True))
    return values.stmts if same else tuple(stmts)


def _forwarded_inside(
    values: Values,
    position: int,
    moves: Mapping[Buffer, _Move],
    facts: Facts,
    stmts: tuple[Stmt, ...],
) -> tuple[Stmt, ...]:
    return _forwarded(values.inside(position, stmts), moves, facts)


def _read_through(compute: Compute, moves: Mapping[Buffer, _Move], facts: Facts) -> Compute:
    """``compute`` with what it reads of copies read where it comes from, where it takes that; what
    becomes simpler by it is."""
    if not any(operand.view.buffer in moves for operand in compute.operands):
        return compute
    outside = facts
    for dim in compute.dims:
        facts = facts.loop(dim.var, dim.extent)
    buffers = {view.buffer for view in compute.outputs}
    reduces = compute.is_ordered or any(result.combiner is not None for result in compute.results)
    multiplies = reduces and len(compute.operands) > 1

    def through(node: Load) -> Expr:
        move = moves.get(node.buffer)
        if move is None or any(load.buffer in buffers for load in loads_in(move.element)):
            return node
        value = move.at(node, facts)
        if multiplies and not is_factor(value):
            return node
        if reduces and any(map(divides, walk(value))) and not any(map(divides, walk(node))):
            return node
        return value if len(list(islice(walk(value), _MOST + 1))) <= _MOST else node

    new = with_loads(compute, through)
    if new is compute:
        return compute
    simpler = simplify_stmt(new, outside)
    return simpler if isinstance(simpler, Compute) else new


def _move(compute: Compute, values: Values) -> _Move | None:
    """What all of a buffer holds, where ``compute`` moves elements of values there, or numbers."""
    if len(compute.outputs) != 1 or compute.results[0].combiner is not None or compute.is_ordered:
        return None
    dims = _places(compute)
    (result,) = loaded(compute)
    element = result.values[0]
    if dims is None or not (_only_moves(element) or _is_dequantized(element)):
        return None
    if not all(values.is_value(load.buffer) for load in loads_in(element)):
        return None
    return _Move(dims, element)


def _is_dequantized(value: Expr) -> bool:
    """Whether ``value`` is made of one integer of 8 bits and numbers by sums and products: who
    reads that reads less memory, and computes these again."""
    if len(list(islice(walk(value), _FEW + 1))) > _FEW or not _adds_and_multiplies(value):
        return False
    loads = list(loads_in(value))
    narrow = all(load.type.is_integer and load.type.bits == 8 for load in loads)
    return len(loads) == 1 and narrow and value.type.bits > 8 and _only_moves(loads[0])


def _adds_and_multiplies(value: Expr) -> bool:
    match value:
        case Load() | Const():
            return True
        case Cast():
            return _adds_and_multiplies(value.a)
        case Binary(op="add" | "sub" | "mul"):
            return _adds_and_multiplies(value.a) and _adds_and_multiplies(value.b)
        case _:
            return False


def _places(compute: Compute) -> tuple[Var | None, ...] | None:
    """The dims that index the result, where they give each of its elements once."""
    order = whole(compute, compute.out)
    if order is None or len(order) != len(compute.dims):
        return None
    return tuple(index if isinstance(index, Var) else None for index in compute.out.index)


def _only_moves(value: Expr) -> bool:
    """Whether ``value`` is a load or a number, or one of several by its place."""
    match value:
        case Load():
            return not any(map(reads_memory, value.index)) and (
                value.mask is None or not reads_memory(value.mask)
            )
        case Select():
            choice = not reads_memory(value.condition)
            return choice and _only_moves(value.a) and _only_moves(value.b)
        case Cast() if reads_memory(value):
            return is_exact(value.a.type, value.type) and _only_moves(value.a)
        case _:
            return not reads_memory(value) and is_cheap(value)

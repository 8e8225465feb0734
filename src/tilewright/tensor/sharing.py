"""Values that use parts of themselves again and again: such parts get computes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.expr import Expr
from tilewright.ir.load import Load
from tilewright.ir.visit import children, rebuild
from tilewright.tensor.tensor import Tensor

# Written as text, a compute's value repeats what it shares; up to so many parts, that may be.
_LONGEST = 160
# What is used again is worth memory from so many parts on.
_LEAST = 10


def share(tensors: Sequence[Tensor], name: str) -> tuple[Tensor, ...]:
    """``tensors`` of one shape, with what they use more than once in memory, where they would be
    very long otherwise: a polynomial of a polynomial is as long as the product of both.

    y = (x * x + 1) * (x * x + 1) * ...
    ->  part = x * x + 1; y = part * part * ...
    """
    builder, shape = tensors[0].builder, tensors[0].shape

    def in_memory(part: Expr) -> Expr:
        return builder.materialize(builder.tensor(shape, part), f"{name}_part").value

    roots = [tensor.value for tensor in tensors]
    exprs = named_parts(roots, in_memory)
    if exprs == roots:
        return tuple(tensors)
    return tuple(builder.tensor(shape, expr) for expr in exprs)


def named_parts(roots: Sequence[Expr], name: Callable[[Expr], Expr]) -> list[Expr]:
    """Expressions, in which ``name`` stands for what they use more than once, where they would be
    very long otherwise."""
    if sum(_lengths(roots).values()) <= _LONGEST:
        return list(roots)
    ends = set(roots)
    uses: dict[Expr, int] = {}
    order: list[Expr] = []
    for node in _bottom_up(roots):
        order.append(node)
        for part in _parts(node):
            uses[part] = uses.get(part, 0) + 1
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
    changed: dict[Expr, Expr] = {}
    length: dict[Expr, int] = {}
    for node in order:
        parts = _parts(node)
        new = rebuild(node, tuple(changed[part] for part in parts)) if parts else node
        size = 1 + sum(length[part] for part in parts)
        if uses[node] > 1 and size >= _LEAST and node not in ends:
            new, size = name(new), 1
        changed[node], length[node] = new, size
    return [changed[root] for root in roots]


def _parts(node: Expr) -> tuple[Expr, ...]:
    return () if isinstance(node, Load) else children(node)


def _bottom_up(roots: Sequence[Expr]) -> list[Expr]:
    """All distinct parts, those of a node in front of it."""
    order: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if node in order:
            continue
        if done:
            order[node] = None
            continue
        stack.append((node, True))
        stack += [(part, False) for part in reversed(_parts(node)) if part not in order]
    return list(order)


def _lengths(roots: Sequence[Expr]) -> dict[Expr, int]:
    """How many parts the text of each root has."""
    length: dict[Expr, int] = {}
    for node in _bottom_up(roots):
        length[node] = 1 + sum(length[part] for part in _parts(node))
    return {root: length[root] for root in roots}

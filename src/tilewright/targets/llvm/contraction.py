"""Which products may be added without being rounded first: those that a statement accumulates.

    sum[i] = sum[i] + a * b

The order in which a reduction adds up is free, and so is how often its terms round: this is what it
becomes where no instruction of its own carries it out, and machines add products in one operation.
Everywhere else a product rounds, and so does the sum that takes it.
"""

from __future__ import annotations

from operator import is_

from tilewright.ir.expr import Binary, Expr, Load
from tilewright.ir.stmt import Store

NOTHING: frozenset[Expr] = frozenset()


def accumulation(store: Store) -> frozenset[Expr]:
    """The sums, and the products that they take, of a statement that adds to the element that it
    stores to; nothing of any other."""
    if not (isinstance(store.value, Binary) and store.value.type.is_float):
        return NOTHING
    found: set[Expr] = set()
    accumulates = False
    stack: list[Expr] = [store.value]
    while stack:
        node = stack.pop()
        if isinstance(node, Load):
            accumulates |= node.buffer is store.buffer and all(map(is_, node.index, store.index))
        elif isinstance(node, Binary) and node.op in ("add", "sub", "mul") and node not in found:
            found.add(node)
            if node.op != "mul":
                stack += [node.a, node.b]
    return frozenset(found) if accumulates else NOTHING

"""Products that may be added without rounding first: those that a statement accumulates.

    sum[i] = sum[i] + a * b

The order of a reduction's sum is free, and so is the rounding of its terms: machines add products
in one operation. Such a statement is what a reduction becomes where no instruction of its own
carries it out. Everywhere else a product rounds, and so does the sum that takes it.
"""

from __future__ import annotations

from operator import is_

from tilewright.ir.expr import Binary, Expr
from tilewright.ir.load import Load
from tilewright.ir.stmt import Store

NOTHING: frozenset[Expr] = frozenset()


def accumulation(store: Store) -> frozenset[Expr]:
    """The sums, and the products in them, of a statement that adds to the element that it stores
    to; empty for any other."""
    if not (isinstance(store.value, Binary) and store.value.type.is_float):
        return NOTHING
    terms: set[Expr] = set()
    accumulates = False
    stack: list[Expr] = [store.value]
    while stack:
        node = stack.pop()
        if isinstance(node, Load):
            accumulates |= node.buffer is store.buffer and all(map(is_, node.index, store.index))
        elif isinstance(node, Binary) and node.op in ("add", "sub", "mul") and node not in terms:
            terms.add(node)
            if node.op != "mul":
                stack += [node.a, node.b]
    return frozenset(terms) if accumulates else NOTHING

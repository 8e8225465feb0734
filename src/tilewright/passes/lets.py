"""Lets that are not needed: unused ones, those of another name or a constant, those used once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.dtypes import s64
from tilewright.facts import affine
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.stmt import Block, Compute, For, Kernel, Let, Opaque, Stmt, While
from tilewright.ir.visit import (
    block,
    direct_exprs,
    map_kernel,
    nested,
    reads_memory,
    substitute_stmt,
    variables,
    walk_stmts,
    with_nested,
)


def reduce_lets(kernel: Kernel) -> Kernel:
    """Removes lets that are not worth a name.

        low = max(1 - oh, 0)
        kh_lo = low
        unused = oh * 3
        row = oh * 2 - 1
        once = min(oh, 3)
        for kh in once - kh_lo:
          dst[oh] = src[kh + kh_lo + row]
    ->  low = max(1 - oh, 0)
        for kh in min(oh, 3) - low:
          dst[oh] = src[kh + low + oh * 2 - 1]

    A sum of multiples of variables is no work where it is an index, so its name goes. Other values
    move to their only use if no loop lies in between; loads stay where they are. Nothing moves into
    an opaque nest.
    """
    return map_kernel(kernel, _reduced)


def _reduced(stmt: Stmt) -> Stmt:
    """Inside out: without a let, those that it used may be unused, too."""
    parts = tuple(_reduced(part) for part in nested(stmt))
    stmt = with_nested(stmt, parts)
    if not isinstance(stmt, Block):
        return stmt
    body = list(stmt.body)
    position = len(body)
    while position > 0:
        position -= 1
        let = body[position]
        if isinstance(let, Let):
            rest = _without_name(let, body[position + 1 :])
            if rest is not None:
                body[position:] = rest
    if len(body) == len(stmt.body):
        return stmt
    return block(*body)


def _without_name(let: Let, rest: list[Stmt]) -> list[Stmt] | None:
    """The statements after ``let``, without its name; None where the let stays."""
    use = _Use(0, False)
    for stmt in rest:
        use = use.plus(_use(stmt, let.var))
    if use.count == 0:
        return rest
    stays = use.count > 1 or use.in_loop or reads_memory(let.value)
    if use.in_nest or (stays and not _is_free(let.value)):
        return None
    # A name of the value that is bound again inside has another meaning there.
    if variables(let.value) & _bound(rest):
        return None
    return [substitute_stmt(stmt, {let.var: let.value}) for stmt in rest]


def _is_free(value: Expr) -> bool:
    """Whether a value costs nothing at its uses: a name, a constant, or an affine index."""
    if isinstance(value, Var | Const):
        return True
    return value.type is s64 and all(isinstance(atom, Var) for atom in affine(value).terms)


@dataclass(frozen=True, slots=True)
class _Use:
    count: int
    in_loop: bool
    in_nest: bool = False

    def plus(self, other: _Use) -> _Use:
        return _Use(
            self.count + other.count,
            self.in_loop or other.in_loop,
            self.in_nest or other.in_nest,
        )


def _use(stmt: Stmt, name: Var) -> _Use:
    """The number of statements that use ``name``; whether one is in a loop, or an opaque nest."""
    counts = Counter[bool]()
    in_nest = False
    stack = [(stmt, False)]
    while stack:
        node, in_loop = stack.pop()
        if any(name in variables(expr) for expr in direct_exprs(node)):
            counts[in_loop or isinstance(node, Compute | While)] += 1
        if isinstance(node, Opaque) and not in_nest:
            in_nest = _use(node.body, name).count > 0
        # An extent is evaluated once, a condition and the body as often as the loop runs.
        stack += [(part, in_loop or isinstance(node, For | While)) for part in nested(node)]
    return _Use(counts.total(), counts[True] > 0, in_nest)


def _bound(stmts: list[Stmt]) -> set[Var]:
    """The variables that statements inside bind."""
    names: set[Var] = set()
    for stmt in stmts:
        for node in walk_stmts(stmt):
            if isinstance(node, For | Let):
                names.add(node.var)
            elif isinstance(node, Compute):
                names.update(dim.var for dim in node.dims)
                names.update(operand.var for operand in node.operands)
    return names

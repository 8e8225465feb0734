"""A report of the memory accesses of lanes: contiguous, strided, gathered, and so on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Call, For, If, Kernel, Let, LoopKind, Stmt, Store, View, While
from tilewright.ir.visit import direct_exprs, loads_in, nested, walk_stmts
from tilewright.passes.spmd.strides import Strides
from tilewright.passes.spmd.varying import Varying

# Kinds of accesses, the cheapest first.
_WAYS = ("uniform", "consecutive", "evenly spaced", "gathered", "scattered", "one by one")


def access_report(kernel: Kernel) -> list[str]:
    """Lines that list the memory that vector loops of ``kernel`` access, by kind: one element for
    all lanes (uniform), neighbours (consecutive), elements at a distance, or separate ones
    (gathered, scattered; atomic updates one by one); and whether under masks."""
    by_kind: dict[tuple[str, bool], dict[str, None]] = {}
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, For) and stmt.kind is LoopKind.VECTOR:
            varying = Varying([stmt.var], stmt.body)
            accesses = _Accesses(Strides(stmt.var, varying))
            for way, masked, buffer in accesses.of(stmt.body, False):
                by_kind.setdefault((way, masked), {})[buffer.name] = None
    lines = []
    for way in _WAYS:
        for masked in (False, True):
            names = by_kind.get((way, masked))
            if names:
                lines.append(f"{way}{', masked' * masked}: {', '.join(names)}")
    return lines


class _Accesses:
    def __init__(self, strides: Strides) -> None:
        self._strides = strides
        self._varying = strides.varying

    def of(self, stmt: Stmt, masked: bool) -> Iterator[tuple[str, bool, Buffer]]:
        """The accesses in ``stmt``, in lanes that are ``masked`` or not."""
        for expr in direct_exprs(stmt):
            for node in loads_in(expr):
                if node.buffer.space is not Space.PRIVATE:
                    yield self._way(node.index, "gathered"), masked, node.buffer
        match stmt:
            case Let():
                self._strides.name(stmt)
            case Store() if stmt.buffer.space is not Space.PRIVATE:
                yield self._way(stmt.index, "scattered"), masked, stmt.buffer
            case Call():
                for arg in stmt.args:
                    if isinstance(arg, View) and arg.buffer.space is not Space.PRIVATE:
                        yield "one by one", masked, arg.buffer
            case If() | While():
                masked = masked or self._varying.of(stmt.condition)
            case For():
                masked = masked or self._varying.of(stmt.extent)
            case _:
                pass
        for part in nested(stmt):
            yield from self.of(part, masked)

    def _way(self, index: Sequence[Expr], apart: str) -> str:
        if not self._varying.any_of(index):
            return "uniform"
        steps = [self._strides.of(part) for part in index]
        if None in steps:
            return apart
        last = len(steps) - 1
        near = all(step is not None and step[1] == (at == last) for at, step in enumerate(steps))
        return "consecutive" if near else "evenly spaced"

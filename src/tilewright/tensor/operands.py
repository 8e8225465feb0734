"""Values with loads, as the operands and values of a compute."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.load import Load
from tilewright.ir.stmt import Operand, Result, View
from tilewright.ir.visit import children, reads_memory, rebuild


class Operands:
    """Loads become operands, in the order in which they are met; equal ones are one.

        y[d0] = x[s64(ids[d0])] * 2.0
    ->  ids = ids[d0]
        x = x[s64(ids)]
        y[d0] = x * 2.0
    """

    def __init__(self, taken: Set[str]) -> None:
        self.found: list[Operand] = []
        self._done: dict[Expr, Expr] = {}
        self._taken = set(taken)

    def expr(self, root: Expr) -> Expr:
        """``root`` with variables in place of what it loads."""
        if not reads_memory(root):
            return root
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self._done:
                stack.pop()
                continue
            parts = children(node)
            missing = [part for part in parts if part not in self._done and reads_memory(part)]
            if missing:
                stack += reversed(missing)
                continue
            changed = tuple(self._done.get(part, part) for part in parts)
            self._done[node] = (
                self._operand(node, changed) if isinstance(node, Load) else rebuild(node, changed)
            )
            stack.pop()
        return self._done[root]

    def result(self, result: Result) -> Result:
        """``result`` with variables in place of what its values and places load."""
        values = tuple(map(self.expr, result.values))
        return replace(result, views=tuple(map(self._view, result.views)), values=values)

    def _view(self, view: View) -> View:
        mask = None if view.mask is None else self.expr(view.mask)
        return View(view.buffer, tuple(map(self.expr, view.index)), mask)

    def _operand(self, node: Load, parts: Sequence[Expr]) -> Var:
        rank = len(node.index)
        view = View(node.buffer, tuple(parts[:rank]), None if node.mask is None else parts[rank])
        name, number = node.buffer.name, 2
        while name in self._taken:
            name, number = f"{node.buffer.name}_{number}", number + 1
        self._taken.add(name)
        element = var(name, node.type)
        self.found.append(Operand(element, view))
        return element

"""Lets that differ by the lane of a vector loop, replaced by their values in indices.

    vector for l in 16:
      i = o * 16 + l
      dst[i] = src[i // 8]

Addresses are terms of the lane's variable, so an index gets the value in place of such a name. A
value that each lane has loaded keeps its name, as memory may have changed since: an index with it
has a value for each lane.
"""

from __future__ import annotations

from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Let
from tilewright.ir.visit import reads_memory, substitute, variables


class Varying:
    """The lets in scope whose value differs by lane: ``values`` in terms of the lane's variable and
    of names that do not differ, and the ``loaded`` ones."""

    def __init__(
        self, values: dict[Var, Expr] | None = None, loaded: frozenset[Var] = frozenset()
    ) -> None:
        self._values = values or {}
        self._loaded = loaded

    def after(self, let: Let, lanes: frozenset[Var]) -> Varying:
        """The lets in scope after ``let``; ``lanes`` are the enclosing vector loops' variables."""
        if not lanes:
            return self
        value = substitute(let.value, self._values)
        if variables(value).isdisjoint(lanes | self._loaded):
            return self
        if reads_memory(value):
            return Varying(self._values, self._loaded | {let.var})
        return Varying({**self._values, let.var: value}, self._loaded)

    def has_loaded(self, name: Var) -> bool:
        """Whether each lane has loaded ``name``."""
        return name in self._loaded

    def index(self, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """``index`` with values in place of the names."""
        if not self._values:
            return index
        return tuple(substitute(component, self._values) for component in index)

"""Names for what differs by lane of a vector loop, where they stand in an index.

    vector for l in 16:
      i = o * 16 + l
      dst[i] = src[i // 8]

Addresses are found by the lane's variable: an index has what such a name stands for. What each lane
has loaded keeps its name, as memory may have changed since: an index by it is one for each lane.
"""

from __future__ import annotations

from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Let
from tilewright.ir.visit import reads_memory, substitute, variables


class Varying:
    """The lets in scope whose value differs by lane: those of ``values`` in terms of variables that
    do not, of the lane, and of what was ``loaded``."""

    def __init__(
        self, values: dict[Var, Expr] | None = None, loaded: frozenset[Var] = frozenset()
    ) -> None:
        self._values = values or {}
        self._loaded = loaded

    def behind(self, let: Let, lanes: frozenset[Var]) -> Varying:
        """Where ``let`` holds, too; ``lanes`` are the variables of the vector loops around."""
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
        """``index`` without the names of ``values``."""
        if not self._values:
            return index
        return tuple(substitute(each, self._values) for each in index)

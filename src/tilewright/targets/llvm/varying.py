"""Names for what differs by lane of a vector loop, where they stand in an index.

    vector for l in 16:
      i = o * 16 + l
      dst[i] = src[i // 8]

Addresses are found by the lane's variable: an index has what such a name stands for.
"""

from __future__ import annotations

from tilewright.errors import CompilationError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Let
from tilewright.ir.visit import reads_memory, substitute, variables


class Varying:
    """The lets in scope whose value differs by lane, each in terms of variables that are none."""

    def __init__(self, values: dict[Var, Expr] | None = None) -> None:
        self._values = values or {}

    def behind(self, let: Let, lanes: frozenset[Var]) -> Varying:
        """Where ``let`` holds, too; ``lanes`` are the variables of the vector loops around."""
        if not lanes:
            return self
        value = substitute(let.value, self._values)
        if variables(value).isdisjoint(lanes):
            return self
        return Varying({**self._values, let.var: value})

    def index(self, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """``index`` without these names; refuses those of what was loaded, as memory may have
        changed since."""
        if not self._values:
            return index
        for each in index:
            for name in variables(each) & self._values.keys():
                if reads_memory(self._values[name]):
                    raise CompilationError(
                        f"an index is {name.name!r}, which each lane has loaded",
                        where=to_text(each),
                        cure="write the load in the index, or let the loop be serial",
                    )
        return tuple(substitute(each, self._values) for each in index)

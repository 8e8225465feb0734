"""What front ends give: a graph with what is known beside its kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Compute, Kernel, Opaque, ScalarParam
from tilewright.ir.visit import walk_stmts

# Computes from which on a kernel is a program of several: each group of these is compiled by
# itself, which takes less long than one kernel of all.
SEVERAL = 16


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph, to be compiled as a program: its ``kernel``, and the names of inputs whose contents
    stay the same (``constant``), so that they may be packed before it runs.

    Where calls pass sizes, ``scalars`` say what these may be. ``kernel`` may promise more; it is
    right where what was ``decided`` comes out the same. For others, ``closing`` gives the graph in
    which sizes are these numbers, by their names: those that it leaves are open in it."""

    kernel: Kernel
    constant: tuple[str, ...] = ()
    scalars: tuple[ScalarParam, ...] = field(default=(), kw_only=True)
    decided: Mapping[Expr, bool] = field(default_factory=dict, kw_only=True)
    closing: Callable[[Mapping[str, int]], Graph] | None = field(default=None, kw_only=True)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a call passes, but for results."""
        arrays = [array for array in self.kernel.arrays if array.digest is None]
        return tuple(array.name for array in arrays if array.access != "out")

    @property
    def outputs(self) -> tuple[str, ...]:
        """What it writes."""
        return tuple(array.name for array in self.kernel.arrays if array.access != "in")

    @property
    def constants(self) -> Mapping[str, NDArray[Any]]:
        """The arrays that lie beside it, flat, by the hash of their contents."""
        return self.kernel.constants


def is_graph(what: object) -> bool:
    """Whether ``what`` is compiled as a program of several kernels: a `Graph`, or a kernel of more
    than 16 computes that takes no numbers."""
    if isinstance(what, Graph):
        return True
    if not isinstance(what, Kernel) or what.scalars:
        return False
    counted = (Compute, Opaque)
    return sum(isinstance(stmt, counted) for stmt in walk_stmts(what.body)) > SEVERAL

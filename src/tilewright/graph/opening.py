"""Graphs that front ends read with open sizes: one that is right for all of them, where that can
be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tilewright.errors import ProblemError, UnsupportedError, VerificationError
from tilewright.graph.graph import Graph
from tilewright.ir.open_sizes import OpenSizes, for_all_sizes, promising
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import ScalarParam

G = TypeVar("G", bound=Graph)
# About how great sizes are: what nothing promised decides comes out as for these.
_USUAL = 100


def opened(
    sizes: Sequence[ScalarParam],
    numbers: Mapping[str, int],
    read: Callable[[OpenSizes, Mapping[str, int]], G],
    cure: Callable[[Sequence[str]], str],
) -> G:
    """The graph that ``read`` gives for what stands for its ``sizes``, by their names. Those in
    ``numbers`` are these, and the others are open. Raises `UnsupportedError` with the ``cure``
    where the graph needs them as numbers."""
    allowed = [param for param in sizes if param.name not in numbers]
    hints = {promising(param): max(_USUAL, param.low or 0) for param in allowed}

    def build(example: int) -> tuple[G, OpenSizes]:
        now = OpenSizes.of_example(hints, example)
        return read(now, {**numbers, **{p.name: now.size(p.var) for p in now.scalars}}), now

    if not allowed:
        return build(0)[0]
    try:
        graph, decided = for_all_sizes(build, lambda graph: to_text(graph.kernel))
    except (ProblemError, UnsupportedError, VerificationError) as error:
        usual = cure([param.name for param in allowed])
        raise UnsupportedError(
            f"{error.what} where sizes are open",
            where=error.where,
            why=error.why,
            span=error.span,
            cure=usual if not isinstance(error, UnsupportedError) else error.cure or usual,
        ) from error

    def closing(more: Mapping[str, int]) -> G:
        return opened(sizes, {**numbers, **more}, read, cure)

    return replace(graph, scalars=tuple(allowed), decided=decided, closing=closing)

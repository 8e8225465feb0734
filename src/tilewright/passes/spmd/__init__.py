"""Kernels of work-items (grids, workgroups, lanes) for machines that have threads and vectors only.

In reading order: `nests` (the loops over work-items, and names), `varying` (divergence), `names`
(names for values of private memory), `together` (computes of all work-items as one), `regions` and
`split` (pieces between barriers), `shuffles` and `agreement` (values that lanes of a subgroup
exchange, and agree on), `strides` (indices by lane), `trips` (trip counts that differ by lane),
`whole` (vectors without masks), `vectors` (work-items as lanes), `widths` (the number of lanes),
`selections` (branches as selects, for work-items that are no lanes), `runs` (their loops over
neighbouring elements as vectors), `report` (the accesses of lanes); `subgroups` (for machines whose
subgroups multiply matrices: pieces between computes of all lanes).

Each stage is a kernel that prints, verifies and runs.
"""

from collections.abc import Iterator

from tilewright.ir.stmt import Kernel
from tilewright.passes.spmd.names import name_values
from tilewright.passes.spmd.nests import places_items
from tilewright.passes.spmd.report import access_report
from tilewright.passes.spmd.runs import vectorize_runs
from tilewright.passes.spmd.selections import select_branches
from tilewright.passes.spmd.split import split_at_barriers
from tilewright.passes.spmd.subgroups import split_at_matrices
from tilewright.passes.spmd.together import joinable
from tilewright.passes.spmd.vectors import vectorize_items
from tilewright.passes.spmd.widths import predicted_width

__all__ = [
    "access_report",
    "joinable",
    "name_values",
    "places_items",
    "predicted_width",
    "select_branches",
    "split_at_barriers",
    "split_at_matrices",
    "stages",
    "vectorize_items",
]


def stages(kernel: Kernel, width: int, register: int) -> Iterator[tuple[str, Kernel]]:
    """The stages from ``kernel`` to one of threads and vectors of ``width`` lanes, by name.
    Vectors of neighbouring elements have ``register`` bytes."""
    kernel = name_values(kernel)
    yield "named", kernel
    kernel = split_at_barriers(kernel)
    yield "split", kernel
    if width == 1:
        kernel = select_branches(kernel)
        yield "selected", kernel
    kernel = vectorize_items(kernel, width)
    yield "vectors", kernel
    if width == 1:
        yield "runs", vectorize_runs(kernel, register)

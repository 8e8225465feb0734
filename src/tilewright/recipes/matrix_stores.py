"""Results that lanes hold together, stored to shared memory as the matrices that they are made of.

Of what a subgroup has accumulated, each lane has pairs. Where the machine stores matrices, lanes
finish them in registers first (`schedule.finish`), and what is left, a copy to shared memory, is
carried out by an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilewright.ir.buffer import Space
from tilewright.ir.stmt import Compute, Kernel
from tilewright.machines.instruction import Instruction
from tilewright.recipes.mma import Mma
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents, find_compute
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule


def finished(s: KernelSchedule, root: str, mma: Mma) -> list[str]:
    """What ``root`` stores is finished in registers, if the machine stores matrices of it: where
    lanes hold one matrix, and no operand is added up in memory. Gives the compute that does so."""
    store = find_compute(s.kernel, root)
    held = [o for o in store.operands if o.view.buffer.space is Space.PRIVATE]
    fitting = [each for each in _stores(mma) if _fits(store, each, mma)]
    if store.combiner is not None or store.instruction or len(held) != 1 or not fitting:
        return []
    finish = s.finish(root)["finish"]
    stored = fitting[0].operands[0].name
    copies = [compute for compute in computes_in(s.kernel) if compute.name == root]
    for made in dict.fromkeys(o.view.buffer.name for copy in copies for o in copy.operands):
        s.hold(root, made, fitting[0], stored, _dims(fitting[0], mma))
    return [finish]


def reads_rows(kernel: Kernel, root: str, mma: Mma) -> bool:
    """Whether ``root`` reads matrices besides what lanes hold, which neighbours in memory would
    better read for all: such as a residual."""
    store = find_compute(kernel, root)
    others = [o.view for o in store.operands if o.view.buffer.space is not Space.PRIVATE]
    apart = [strides(store, view) for view in others]
    return any(all(each.get(mma.dims[own], 0) != 0 for own in ("m", "n")) for each in apart)


def is_stored(kernel: Kernel, compute: str, mma: Mma) -> bool:
    """Whether `stored_as_matrices` has found an instruction for ``compute``."""
    name = find_compute(kernel, compute).instruction
    return any(each.name == name for each in _stores(mma))


def stored_as_matrices(s: KernelSchedule, copies: Sequence[str], mma: Mma) -> None:
    """Those of the ``copies`` from registers to shared memory that are rows of whole matrices there
    are carried out by instructions."""
    for name in copies:
        any(s.attempt(partial(s.tensorize, name, each, _dims(each, mma))) for each in _stores(mma))


def _stores(mma: Mma) -> list[Instruction]:
    """The instructions by which its subgroups store matrices, the largest first."""
    stores = (i for i in mma.machine.instructions if i.stores and i.lanes == mma.lanes)
    return sorted(stores, key=lambda each: -each.flops)


def _fits(store: Compute, instruction: Instruction, mma: Mma) -> bool:
    """Whether ``store`` goes through whole matrices, of the type of the instruction's."""
    if store.out.buffer.dtype is not instruction.out.dtype:
        return False
    sizes, dims = extents(store), _dims(instruction, mma)
    return all(
        dim in sizes and sizes[dim] % instruction.sizes[own] == 0 for own, dim in dims.items()
    )


def _dims(instruction: Instruction, mma: Mma) -> dict[str, str]:
    return {own: mma.dims[own] for own in instruction.sizes}

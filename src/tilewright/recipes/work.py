"""What a contraction has to do, whatever its config: what a model counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.phases import PHASE, taken
from tilewright.recipes.roles import MAIN, RESULT, Roles, extents, find_compute, roles
from tilewright.schedule.runs import runs_along


@dataclass(frozen=True)
class Operand:
    """A or B: its name in the op's body, the bytes of an element, those of the tensor, the dims
    that it depends on by their roles, and whether it lies contiguous along one of them."""

    name: str
    bytes: int
    tensor: int
    dims: tuple[str, ...]
    runs: bool


@dataclass(frozen=True)
class Work:
    """What has to be done, whatever the config: the dims' sizes and roles, the operands, bytes of
    an element of the sum (``total``) and of the result, the products per core and cycle at best
    (``peak``), and how many tensors the epilogue reads (``read``). Of the products and of a
    workgroup's steps, those that count are the part ``taken``."""

    sizes: dict[str, int]
    parts: Roles
    operands: tuple[Operand, Operand]
    total: int
    result: int
    peak: int
    read: int
    taken: float = 1.0

    @property
    def products(self) -> float:
        return math.prod(self.sizes.values()) * self.taken

    @property
    def results(self) -> int:
        return math.prod(self.sizes[d] for d in self.parts.kept)


def work_of(kernel: Kernel, machine: Machine) -> Work:
    """The work of a contraction, whose dims were combined."""
    main, out = find_compute(kernel, MAIN), find_compute(kernel, RESULT)
    parts = roles(main)
    # All phases read the same of A.
    a, b = (
        Operand(
            o.var.name,
            o.var.type.bytes,
            o.view.buffer.bytes,
            tuple(d for d in dims + parts.k + parts.batch if d not in same),
            any(runs_along(main, o.view, dim) for dim in extents(main)),
        )
        for o, dims, same in zip(main.operands[:2], (parts.m, parts.n), ((PHASE,), ()), strict=True)
    )
    total = main.out.buffer.dtype
    peak = 1
    if machine.rates is not None:
        peak = machine.rates.peak(main.operands[0].var.type, total)
    result = out.out.buffer.dtype.bytes
    read = len(out.operands) - 1
    return Work(extents(main), parts, (a, b), total.bytes, result, peak, read, taken(main))

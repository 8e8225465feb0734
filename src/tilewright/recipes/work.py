"""What a contraction has to do, found out from the kernel."""

from __future__ import annotations

from tilewright.ir.stmt import Kernel
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.machine import Machine
from tilewright.recipes.parts.work import Operand, Work
from tilewright.recipes.phases import PHASE, taken
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.schedule.queries.runs import runs_along


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

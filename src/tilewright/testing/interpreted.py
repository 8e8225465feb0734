"""A scheduled kernel in the interpreter, called like a compiled one: for targets without a device.

It is what the target gets, behind all passes; what the target makes of it is not run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.engine.signature import argument_form
from tilewright.interpret import run
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.ops.op import Argument, Op
from tilewright.passes import run as run_passes
from tilewright.recipes import choose
from tilewright.recipes.config import Config
from tilewright.recipes.start import Start


class InterpretedKernel:
    """Has the interface of `engine.CompiledKernel`, as far as `verify` needs it."""

    def __init__(self, op: Op, machine: Machine, config: Config | None = None) -> None:
        """Schedules ``op`` for ``machine``, by default as the model chooses.

        Raises `UnsupportedError` and `ScheduleError`.
        """
        self.op = op.resolved()
        if config is None:
            _, scheduled = choose.choose(Start.of(self.op), machine)
        else:
            scheduled = choose.schedule(Start.of(self.op), machine, config)
        self.packed = tuple(scheduled.packs)
        self._machine = machine
        self._kernel = run_passes(scheduled.kernel)
        self._packs = {name: run_passes(pack) for name, pack in scheduled.packs.items()}

    def pack(self, name: str, array: Any) -> Any:
        """``array`` in the order in which the kernel reads it, as flat memory."""
        pack = self._packs[name]
        packed = pack.arrays[-1]
        result = np.zeros(packed.buffer.layout.extent, packed.dtype.numpy)
        self._run(pack, {name: _flat(self.op.argument(name), array), packed.name: result})
        return result

    def __call__(self, *, out: Any = None, **arrays: Any) -> Any:
        """Runs the kernel, which writes to ``out``; its faults are errors."""
        results = [a.name for a in self.op.arguments if a.access != "in"]
        given = arrays | (out if isinstance(out, dict) else {results[0]: out})
        memory = {}
        for argument in self.op.arguments:
            array = given[argument.name]
            if argument.name in self._packs:
                memory[self._packs[argument.name].arrays[-1].name] = array
            else:
                memory[argument.name] = _flat(argument, array)
        self._run(self._kernel, memory)
        return out

    def _run(self, kernel: Kernel, memory: dict[str, Any]) -> None:
        machine = self._machine
        run(kernel, memory, hierarchy=machine.hierarchy, instructions=machine.instructions)


def _flat(argument: Argument, array: Any) -> Any:
    """The memory behind an array of the argument's form, from element 0 on."""
    return argument_form(argument).flat(array)

"""A scheduled kernel in the interpreter, called like a compiled one: for targets without a device.

It is the kernel after all passes, as the target gets it; the target's code is not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.engine.request import request_of
from tilewright.engine.signature import form_of
from tilewright.interpret import run
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.passes import run as run_passes
from tilewright.recipes import choose
from tilewright.recipes.given import GivenConfig


class InterpretedKernel:
    """The part of `engine.CompiledKernel`'s interface that `verify` uses."""

    def __init__(
        self,
        what: object,
        machine: Machine,
        config: GivenConfig | None = None,
        constant: Sequence[str] = (),
    ) -> None:
        """Schedules ``what``, an op or a kernel, for ``machine``, by default as the model chooses;
        ``constant`` names arrays that may be packed.

        Raises the errors of `engine.compile.compile_kernel`, except those of devices.
        """
        request = request_of(what, constant)
        self._signature = request.signature()
        start = request.start()
        if config is None:
            _, scheduled = choose.choose(start, machine)
        else:
            _, scheduled = choose.schedule_given(start, machine, config)
        self.packed = tuple(scheduled.packed)
        self._machine = machine
        self._kernel = run_passes(scheduled.kernel)
        self._packs = {name: run_passes(pack) for name, pack in scheduled.packed.items()}

    def pack(self, name: str, array: Any) -> Any:
        """The packed forms of ``array``, by their names in the kernel, as flat memory."""
        pack = self._packs[name]
        packed = {
            param.name: np.zeros(param.buffer.layout.extent, param.dtype.numpy)
            for param in pack.arrays[1:]
        }
        flat = self._signature.forms[name].flat(array)
        self._run(pack, {name: flat, **packed})
        return packed

    def __call__(self, *, out: Any = None, **arguments: Any) -> Any:
        """Runs the kernel, which writes to ``out``; its faults are errors. Scalars are passed by
        name, like arrays."""
        results = self._signature.results
        values = arguments | (out if isinstance(out, dict) else dict.fromkeys(results[:1], out))
        numbers = {scalar.name: values[scalar.name] for scalar in self._signature.scalars}
        memory = dict(numbers)
        for param in self._signature.at(numbers):
            array = values[param.name]
            if param.name in self._packs:
                memory |= array
            else:
                form = form_of(param.buffer.shape, param.dtype, param.buffer.layout)
                memory[param.name] = form.flat(array)
        self.on_memory(memory)
        return out

    def on_memory(self, memory: dict[str, Any]) -> None:
        """Runs the kernel on flat memory, by the parameters' names."""
        self._run(self._kernel, memory)

    def _run(self, kernel: Kernel, memory: dict[str, Any]) -> None:
        machine = self._machine
        run(kernel, memory, hierarchy=machine.hierarchy, instructions=machine.instructions)

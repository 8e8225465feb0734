"""A graph, cut into kernels that are scheduled for a machine, run in the interpreter."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tilewright.engine.signature import Signature, form_of
from tilewright.errors import UnsupportedError
from tilewright.graph.cutting import cut_graph
from tilewright.graph.graph import Graph
from tilewright.graph.launches import Launch
from tilewright.graph.open_program import closed
from tilewright.graph.passes.pipeline import optimized
from tilewright.graph.predicting import Deciding, chains_by
from tilewright.ir.buffer import Buffer
from tilewright.machines.machine import Machine
from tilewright.runtime.steps import run_steps
from tilewright.testing.interpreted import InterpretedKernel

# Beyond this, a loop counts as endless.
_MOST_REPEATS = 5_000


class InterpretedGraph:
    """The part of `engine.CompiledKernel`'s interface that `verify` uses; nothing is packed."""

    packed: tuple[str, ...] = ()

    def __init__(self, graph: Graph, machine: Machine) -> None:
        """Raises the errors of `graph.compiling.compile_graph`, except those of devices."""
        self._signature = Signature(graph.kernel.params)
        deciding = Deciding.on(machine)
        self._cut = cut_graph(
            optimized(graph.kernel, deciding=deciding), chains_by(deciding), deciding
        )
        self._kernels = [InterpretedKernel(kernel, machine) for kernel in self._cut.kernels]

    def pack(self, name: str, array: Any) -> Any:
        """Returns ``array``: there is no packing."""
        return array

    def __call__(self, *, out: Any = None, **arguments: Any) -> Any:
        """Runs all steps. They write to ``out``; faults in them raise errors."""
        results = self._signature.results
        arrays = arguments | (out if isinstance(out, dict) else dict.fromkeys(results[:1], out))
        numbers = {scalar.name: arrays[scalar.name] for scalar in self._signature.scalars}
        cut = closed(self._cut, numbers) if numbers else self._cut
        memory: dict[Buffer, Any] = {}
        for param in cut.graph.arrays:
            if param.digest is not None:
                memory[param.buffer] = cut.graph.constants[param.digest]
                continue
            form = form_of(param.buffer.shape, param.dtype, param.buffer.layout)
            memory[param.buffer] = form.flat(arrays[param.name])
        for buffer in cut.between:
            raw = np.full(buffer.layout.extent * buffer.dtype.bytes, 0xFF, np.uint8)
            memory[buffer] = raw.view(buffer.dtype.numpy)
        evaluations: Counter[Buffer] = Counter()

        def holds(flag: Buffer) -> bool:
            evaluations[flag] += 1
            if evaluations[flag] > _MOST_REPEATS:
                raise UnsupportedError(
                    f"a loop repeats more than {_MOST_REPEATS} times",
                    why="the interpreter would take too long",
                )
            return bool(memory[flag][0])

        run_steps(cut.steps, lambda step: self._launch(step, memory), holds)
        return out

    def _launch(self, step: Launch, memory: dict[Buffer, Any]) -> None:
        params = self._cut.kernels[step.kernel].params
        names = [param.name for param in params]
        arrays = (*step.numbers, *(memory[buffer] for buffer in step.buffers))
        self._kernels[step.kernel].on_memory(dict(zip(names, arrays, strict=True)))

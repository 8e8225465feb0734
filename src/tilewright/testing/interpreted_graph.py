"""A graph in the interpreter as a target runs it: cut, each kernel scheduled for a machine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tilewright.engine.signature import Signature, form_of
from tilewright.errors import UnsupportedError
from tilewright.graph.cutting import Launch, cut_graph
from tilewright.graph.graph import Graph
from tilewright.graph.passes.pipeline import optimized
from tilewright.ir.buffer import Buffer
from tilewright.machines.machine import Machine
from tilewright.runtime.steps import run_steps
from tilewright.testing.interpreted import InterpretedKernel

# Nobody knows of a longer loop whether it ends.
_MOST_REPEATS = 5_000


class InterpretedGraph:
    """The part of `engine.CompiledKernel`'s interface that `verify` uses; nothing is packed."""

    packed: tuple[str, ...] = ()

    def __init__(self, graph: Graph, machine: Machine) -> None:
        """Raises the errors of `graph.program.compile_graph`, except those of devices."""
        self._signature = Signature(graph.kernel.params)
        self._cut = cut_graph(optimized(graph.kernel))
        self._kernels = [InterpretedKernel(each, machine) for each in self._cut.kernels]

    def pack(self, name: str, array: Any) -> Any:
        """``array``: there is no packing."""
        return array

    def __call__(self, *, out: Any = None, **arguments: Any) -> Any:
        """Runs all steps, which write to ``out``; their faults are errors."""
        results = self._signature.results
        given = arguments | (out if isinstance(out, dict) else dict.fromkeys(results[:1], out))
        memory: dict[Buffer, Any] = {}
        for param in self._signature.arguments:
            form = form_of(param.buffer.shape, param.dtype, param.buffer.layout)
            memory[param.buffer] = form.flat(given[param.name])
        for param in self._cut.graph.arrays:
            if param.digest is not None:
                memory[param.buffer] = self._cut.graph.constants[param.digest]
        for each in self._cut.between:
            raw = np.full(each.layout.extent * each.dtype.bytes, 0xFF, np.uint8)
            memory[each] = raw.view(each.dtype.numpy)
        asked: Counter[Buffer] = Counter()

        def holds(flag: Buffer) -> bool:
            asked[flag] += 1
            if asked[flag] > _MOST_REPEATS:
                raise UnsupportedError(
                    f"a loop repeats more than {_MOST_REPEATS} times",
                    why="the interpreter would take too long",
                )
            return bool(memory[flag][0])

        run_steps(self._cut.steps, lambda step: self._launch(step, memory), holds)
        return out

    def _launch(self, step: Launch, memory: dict[Buffer, Any]) -> None:
        params = self._cut.kernels[step.kernel].arrays
        names = [param.name for param in params]
        given = (memory[each] for each in step.buffers)
        self._kernels[step.kernel].on_memory(dict(zip(names, given, strict=True)))

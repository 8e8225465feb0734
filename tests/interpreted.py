"""A stand-in for compiled kernels: the naive kernel, run by the interpreter."""

from __future__ import annotations

from typing import Any

from tilewright.engine.signature import argument_form
from tilewright.interpret import run
from tilewright.ops.op import Argument, Op


class Interpreted:
    """Has the interface of `engine.CompiledKernel`, as far as `verify` needs it."""

    packed: tuple[str, ...] = ()

    def __init__(self, op: Op) -> None:
        self.op = op.resolved()
        self._kernel = self.op.kernel()

    def pack(self, name: str, array: Any) -> Any:
        """Nothing to do: the array itself."""
        return array

    def __call__(self, *, out: Any, **arrays: Any) -> Any:
        results = [a.name for a in self.op.arguments if a.access != "in"]
        values = arrays | (out if isinstance(out, dict) else {results[0]: out})
        memory = {a.name: flat(a, values[a.name]) for a in self.op.arguments}
        run(self._kernel, memory)
        return out


def flat(argument: Argument, array: Any) -> Any:
    """The flat memory behind an array of the argument's form, from element 0 on."""
    return argument_form(argument).flat(array)

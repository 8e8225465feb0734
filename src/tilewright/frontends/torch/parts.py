"""A part of a PyTorch graph as a program of ours."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from tilewright.frontends.torch.forms import Form
from tilewright.frontends.torch.translate import Translation
from tilewright.graph.builder import Builder
from tilewright.graph.program import compile_graph
from tilewright.ir.stmt import Kernel


@dataclass(frozen=True)
class Options:
    """How programs are compiled: as `tilewright.compile` takes it."""

    target: str = "x86"
    threads: int | None = None
    strict: bool = False
    """Whether what is not native is an error."""


@dataclass(frozen=True)
class Translated:
    """A graph as a kernel. ``inputs`` and ``outputs`` say how tensors are passed: None for what is
    no tensor, or is not used. An output without elements has no name."""

    kernel: Kernel
    inputs: tuple[tuple[str, Form] | None, ...]
    outputs: tuple[tuple[str, Form] | None, ...]


def translated(graph: Graph, name: str) -> Translated:
    """The kernel of a graph of known shapes, all of whose ops are in the table.

    Raises `RefusedOpError` for those that are not.
    """
    builder = Builder(name)
    translation = Translation(builder)
    inputs: list[tuple[str, Form] | None] = []
    outputs: list[tuple[str, Form] | None] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            inputs.append(_input(builder, translation, node))
        elif node.op == "call_function":
            translation.run(node)
        elif node.op == "output":
            given = node.args[0]
            each_of = given if isinstance(given, tuple | list) else (given,)
            outputs = [_output(builder, translation, n, i) for i, n in enumerate(each_of)]
    return Translated(builder.kernel(), tuple(inputs), tuple(outputs))


def _input(builder: Builder, translation: Translation, node: Node) -> tuple[str, Form] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        translation.values[node] = value
        return None
    if not node.users:
        return None
    form = Form.of(value)
    if 0 in form.sizes:
        translation.values[node] = builder.splat(0, form.type, form.sizes)
        return None
    translation.values[node] = form.input(builder, node.name)
    return node.name, form


def _output(
    builder: Builder, translation: Translation, node: Any, number: int
) -> tuple[str, Form] | None:
    if not isinstance(node, Node):
        return None
    value = node.meta["val"]
    form = Form.of(value)
    if form.repeated:
        form = Form.row_major(value.dtype, form.sizes)
    if 0 in form.sizes:
        return "", form
    name = f"result{number}"
    form.output(builder, name, translation.values[node])
    return name, form


class Part:
    """A compiled part: called with tensors in the order of the graph's inputs, it gives new ones.

    ``fixed`` are the inputs that are parameters: they are packed when first seen, and again when
    they have changed, as their version and their place in memory tell.
    """

    def __init__(self, what: Translated, fixed: Collection[int], options: Options) -> None:
        self.kernel = what.kernel
        self._inputs, self._outputs = what.inputs, what.outputs
        names = {each[0]: n for n, each in enumerate(what.inputs) if each is not None}
        constant = tuple(name for name, n in names.items() if n in fixed)
        self.compiled = compile_graph(
            what.kernel, options.target, options.threads, constant=constant
        )
        packed = set(self.compiled.packed)
        self._packed = {n: _Kept() for name, n in names.items() if name in packed}

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """The results for these tensors."""
        arrays: dict[str, Any] = {}
        for n, given in enumerate(self._inputs):
            if given is not None:
                name, form = given
                kept = self._packed.get(n)
                tensor = tensors[n].detach()
                if kept is None:
                    arrays[name] = form.array(tensor)
                else:
                    arrays[name] = kept.packed(self.compiled, name, form, tensor)
        results: list[Any] = []
        for made in self._outputs:
            if made is None:
                results.append(None)
                continue
            name, form = made
            tensor, array = form.result()
            results.append(tensor)
            if name:
                arrays[name] = array
        self.compiled(**arrays)
        return tuple(results)


class _Kept:
    """A packed parameter, and what it was packed from.

    Versions count changes in place, but those through ``.data``, which PyTorch counts apart: who
    changes a parameter so has to call the module's own methods, or compile again.
    """

    def __init__(self) -> None:
        self._seen: tuple[Any, ...] | None = None
        # While it is held, no other tensor gets its place in memory.
        self._source: torch.Tensor | None = None
        self._array: Any = None

    def packed(self, compiled: Any, name: str, form: Form, tensor: torch.Tensor) -> Any:
        """The parameter as the program takes it; packed now, if it is not as it was."""
        # Tensors of inference mode count no versions: each call packs them.
        version = None if tensor.is_inference() else tensor._version
        seen = (tensor.data_ptr(), version, tensor.stride())
        if version is None or seen != self._seen:
            self._array = compiled.pack(name, form.array(tensor))
            self._seen, self._source = seen, tensor
        return self._array

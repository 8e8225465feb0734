"""Programs of `torch.export` as graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from tilewright.dtypes import dtype
from tilewright.errors import ArgumentError, UnsupportedError
from tilewright.frontends.torch.decompositions import decompositions
from tilewright.frontends.torch.shapes import is_symbolic
from tilewright.frontends.torch.translate import Translation
from tilewright.graph.builder import Builder, identifier
from tilewright.graph.graph import Graph
from tilewright.graph.tensor import Tensor
from tilewright.problems.numbers import short

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_UPDATES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
# What a tensor's type, sizes and device are: PyTorch has looked at that when it exported.
_SAYS_TYPES = torch.ops.aten._assert_tensor_metadata.default
# Keywords of calls of compiled kernels.
_KEYWORDS = ("out", "stream")


def from_torch(exported: ExportedProgram) -> Graph:
    """The graph of ``torch.export.export(model, arguments)``.

    Parameters and buffers are constants of it; a buffer that the program updates is an argument,
    which it reads and writes. Inputs are called as the model calls them, results ``output0``,
    ``output1``, ... All arrays are row-major. Raises `ArgumentError` for what is no exported
    program, `UnsupportedError` for one of unknown sizes, or with an op that is not native, and says
    where in the model that is.
    """
    if not isinstance(exported, ExportedProgram):
        raise ArgumentError(
            f"{short(exported)} is no exported program",
            cure="pass what torch.export.export(model, arguments) gives",
        )
    lowered = exported.run_decompositions(decompositions())
    if is_symbolic(lowered.graph_module):
        raise UnsupportedError(
            "the exported program has sizes that are not known",
            where="dynamic_shapes",
            cure="export it without dynamic_shapes, once for each size",
        )
    return _Reading(lowered).graph()


def array_of(tensor: torch.Tensor) -> Any:
    """The elements of a tensor as a numpy array, of the same bits."""
    type_ = dtype(tensor.dtype)
    plain = tensor.detach().contiguous()
    if type_.bits == 1:
        return plain.numpy()
    bits = plain.reshape(-1).view(torch.uint8).numpy()
    return bits.view(type_.numpy).reshape(tuple(plain.shape)).copy()


class _Reading:
    """Goes through an exported program once."""

    def __init__(self, exported: ExportedProgram) -> None:
        self._exported = exported
        name = identifier(type(exported.graph_module).__name__) or "exported"
        self._builder = Builder("exported" if name == "GraphModule" else name)
        self._translation = Translation(self._builder)
        self._state = {**exported.state_dict, **exported.constants}
        self._inputs: dict[str, Tensor] = {}

    def graph(self) -> Graph:
        """The graph."""
        signature = self._exported.graph_signature
        specs = {each.arg.name: each for each in signature.input_specs}
        updated = {each.target for each in signature.output_specs if each.kind in _UPDATES}
        for node in self._exported.graph.nodes:
            if node.op == "placeholder":
                self._input(node, specs[node.name], updated)
            elif node.op == "call_function" and node.target is not _SAYS_TYPES:
                self._translation.run(node)
            elif node.op == "output":
                self._results(node, signature.output_specs)
        return Graph(self._builder.kernel())

    def _input(self, node: Node, spec: Any, updated: set[str]) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            self._translation.values[node] = value
            return
        shape = tuple(map(int, value.shape))
        if spec.kind in _WEIGHTS and spec.target not in updated:
            tensor = self._state[spec.target]
            made = self._builder.constant(array_of(tensor), identifier(node.name))
        elif spec.kind in _WEIGHTS or spec.kind is InputKind.USER_INPUT:
            name = node.name + "_" * (node.name in _KEYWORDS)
            made = self._builder.input(name, dtype(value.dtype), shape)
            self._inputs[spec.target or node.name] = made
        else:
            raise UnsupportedError(
                f"the exported program takes a {spec.kind.name.lower()}", where=node.name
            )
        self._translation.values[node] = made

    def _results(self, node: Node, specs: Any) -> None:
        given = node.args[0]
        assert isinstance(given, tuple | list)
        number = 0
        for each, spec in zip(given, specs, strict=True):
            if spec.kind in _UPDATES:
                target = self._inputs[spec.target]
                self._builder.update(target, self._translation.values[each])
            elif isinstance(each, Node) and isinstance(each.meta["val"], torch.Tensor):
                self._builder.output(f"output{number}", self._translation.values[each])
                number += 1

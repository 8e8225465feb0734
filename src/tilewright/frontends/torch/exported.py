"""Programs of `torch.export` as graphs."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
)
from torch.fx import Node

from tilewright.dtypes import dtype
from tilewright.errors import ArgumentError, UnsupportedError, short
from tilewright.frontends.torch.aten.promotion import torch_type
from tilewright.frontends.torch.complexes import Complex
from tilewright.frontends.torch.decompositions import decompositions
from tilewright.frontends.torch.open_sizes import (
    Symbol,
    open_sizes_now,
    shape_of,
    size_of,
    symbols_of,
    translating,
)
from tilewright.frontends.torch.shapes import is_symbolic
from tilewright.frontends.torch.translate import Translation
from tilewright.graph.graph import Graph
from tilewright.ir.open_sizes import OpenSizes, for_all_sizes
from tilewright.ir.printer import to_text
from tilewright.tensor.names import identifier
from tilewright.tensor.tensor import Builder, Tensor

# What the inputs of a program are that belong to the model, and its results that change inputs.
WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
UPDATES = (
    OutputKind.PARAMETER_MUTATION,
    OutputKind.BUFFER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
)
# What a tensor's type, sizes and device are, and what sizes are: PyTorch has looked at that when it
# exported, and calls look at sizes.
_PROMISES = (
    torch.ops.aten._assert_tensor_metadata.default,
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
)
# Keywords of calls of compiled kernels.
_KEYWORDS = ("out", "stream")


def from_torch(exported: ExportedProgram) -> Graph:
    """The graph of ``torch.export.export(model, arguments)``.

    Parameters and buffers are constants of it; one that the program updates is an argument,
    which it reads and writes. Inputs are called as the model calls them, results ``output0``,
    ``output1``, ... All arrays are row-major. Raises `ArgumentError` for what is no exported
    program, `UnsupportedError` for one with an op that is not native, and says where in the model
    that is. Sizes that are open in the program are numbers of the graph, which shapes tell.
    """
    if not isinstance(exported, ExportedProgram):
        raise ArgumentError(
            f"{short(exported)} is no exported program",
            cure="pass what torch.export.export(model, arguments) gives",
        )
    lowered = exported.run_decompositions(decompositions())
    symbols = symbols_of(lowered.graph_module, lowered.range_constraints)
    if not is_symbolic(lowered.graph_module):
        return _Reading(lowered).graph()
    return _opened(lowered, symbols)


def _opened(lowered: ExportedProgram, symbols: Sequence[Symbol]) -> Graph:
    """The graph where those of ``symbols`` are open that have no number."""

    def build(example: int) -> tuple[Graph, OpenSizes]:
        with translating(symbols, example) as sizes:
            return _Reading(lowered).graph(), sizes

    if all(symbol.number is not None for symbol in symbols):
        return build(0)[0]
    try:
        graph, decided = for_all_sizes(build, lambda graph: to_text(graph.kernel))
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{error.what} where sizes are open",
            where=error.where or "dynamic_shapes",
            why=error.why,
            span=error.span,
            cure="export it without dynamic_shapes, once for each size",
        ) from error

    def closing(numbers: Mapping[str, int]) -> Graph:
        closed = [replace(s, number=numbers.get(s.param.name, s.number)) for s in symbols]
        return _opened(lowered, closed)

    allowed = tuple(symbol.allowed for symbol in symbols if symbol.number is None)
    return replace(graph, scalars=allowed, decided=decided, closing=closing)


def load_exported(path: Path) -> ExportedProgram:
    """The program that ``torch.export.save`` wrote: by somebody trusted, as PyTorch may run code
    that the file holds. Raises `ArgumentError` for a file that is none.
    """
    why = "it is no archive of torch.export.save" if path.exists() else "there is no such file"
    try:
        if zipfile.is_zipfile(path):
            return torch.export.load(path)
    except Exception as error:  # of any kind, for a file that is something else
        why = str(error).strip()[:500]
    raise ArgumentError(
        f"{path} cannot be read as an exported program",
        why=why,
        cure="write it by torch.export.save(torch.export.export(model, arguments), path)",
    )


def array_of(tensor: torch.Tensor) -> Any:
    """The elements of a tensor as a numpy array of its own, of the same bits."""
    return _elements(tensor).copy()


def _elements(tensor: torch.Tensor) -> Any:
    """The same in the tensor's memory, where they lie there in order."""
    type_ = dtype(tensor.dtype)
    plain = tensor.detach().contiguous()
    if type_.bits == 1:
        return plain.numpy()
    bits = plain.reshape(-1).view(torch.uint8).numpy()
    return bits.view(type_.numpy).reshape(tuple(plain.shape))


def tensor_of(array: NDArray[Any]) -> torch.Tensor:
    """A tensor with the elements of a numpy array, of the same bits."""
    if array.dtype == np.bool_:
        return torch.from_numpy(array.copy())
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    # (`from_numpy` gives what is empty a step of 0, and then there is no other view of it.)
    return torch.tensor(bits).view(torch_type(dtype(array.dtype))).reshape(array.shape)


def input_name(node: str) -> str:
    """What an input of a program is called in its graph, by the name of its node."""
    return node + "_" * (node in _KEYWORDS)


def updated_input(signature: ExportGraphSignature, result: OutputSpec) -> str:
    """The node of the input that a ``result`` of `UPDATES` changes."""
    if result.kind is OutputKind.USER_INPUT_MUTATION:
        assert result.target is not None
        return str(result.target)
    # Parameters and buffers are meant by their names in the model, which inputs may have, too.
    specs = signature.input_specs
    return str(next(spec.arg.name for spec in specs if spec.target == result.target))


def state_of(exported: ExportedProgram) -> dict[str, Any]:
    """Parameters, buffers and constants by the name by which inputs mean them."""
    return {**exported.state_dict, **exported.constants}


class _Reading:
    """Goes through an exported program once."""

    def __init__(self, exported: ExportedProgram) -> None:
        self._exported = exported
        name = identifier(type(exported.graph_module).__name__) or "exported"
        named = "exported" if name == "GraphModule" else name
        self._builder = Builder(named, open_sizes_now())
        self._translation = Translation(self._builder)
        self._state = state_of(exported)
        self._inputs: dict[str, Tensor] = {}

    def graph(self) -> Graph:
        """The graph."""
        signature = self._exported.graph_signature
        specs = {input_spec.arg.name: input_spec for input_spec in signature.input_specs}
        updated = {
            updated_input(signature, output_spec)
            for output_spec in signature.output_specs
            if output_spec.kind in UPDATES
        }
        for node in self._exported.graph.nodes:
            if node.op == "placeholder":
                self._input(node, specs[node.name], updated)
            elif isinstance(node.meta.get("val"), torch.SymInt):
                self._translation.values[node] = size_of(node.meta["val"])
            elif node.op == "call_function" and node.target not in _PROMISES:
                self._translation.run(node)
            elif node.op == "output":
                self._results(node, signature)
        return Graph(self._translation.kernel())

    def _input(self, node: Node, spec: Any, updated: set[str]) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            is_size = isinstance(value, torch.SymInt)
            self._translation.values[node] = size_of(value) if is_size else value
            return
        shape = shape_of(value)
        if spec.kind in WEIGHTS and node.name not in updated:
            tensor = self._constant(node, self._state[spec.target])
        elif spec.kind in WEIGHTS or spec.kind is InputKind.USER_INPUT:
            _check_real(node)
            tensor = self._builder.input(input_name(node.name), dtype(value.dtype), shape)
            self._inputs[node.name] = tensor
        else:
            raise UnsupportedError(
                f"the exported program takes a {spec.kind.name.lower()}", where=node.name
            )
        self._translation.values[node] = tensor

    def _constant(self, node: Node, tensor: torch.Tensor) -> Tensor | Complex:
        name = identifier(node.name)
        if not tensor.is_complex():
            return self._builder.constant(_elements(tensor), name)
        pairs = _elements(torch.view_as_real(tensor.resolve_conj()))
        return Complex.of_pairs(self._builder.constant(pairs, name))

    def _results(self, node: Node, signature: ExportGraphSignature) -> None:
        outputs = node.args[0]
        assert isinstance(outputs, tuple | list)
        number = 0
        for output, spec in zip(outputs, signature.output_specs, strict=True):
            if spec.kind in UPDATES:
                target = self._inputs[updated_input(signature, spec)]
                self._builder.update(target, self._translation.values[output])
            elif isinstance(output, Node) and isinstance(output.meta["val"], torch.Tensor):
                _check_real(output)
                self._builder.output(f"output{number}", self._translation.values[output])
                number += 1


def _check_real(node: Node) -> None:
    """Raises `UnsupportedError` for an argument or a result of complex numbers."""
    if node.meta["val"].dtype.is_complex:
        raise UnsupportedError(
            f"the exported program takes or gives {node.meta['val'].dtype}",
            where=node.name,
            why="arrays hold real numbers",
            cure="let it take or give torch.view_as_real of that",
        )

"""A graph of PyTorch's (FX, of ATen ops) as a graph of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Node

import tilewright.frontends.torch.aten.arithmetic
import tilewright.frontends.torch.aten.attention
import tilewright.frontends.torch.aten.complexes
import tilewright.frontends.torch.aten.conversions
import tilewright.frontends.torch.aten.creation
import tilewright.frontends.torch.aten.functions
import tilewright.frontends.torch.aten.gradients
import tilewright.frontends.torch.aten.norms
import tilewright.frontends.torch.aten.places
import tilewright.frontends.torch.aten.pooling
import tilewright.frontends.torch.aten.products
import tilewright.frontends.torch.aten.quantized
import tilewright.frontends.torch.aten.resampling
import tilewright.frontends.torch.aten.shapes
import tilewright.frontends.torch.aten.sorting
import tilewright.frontends.torch.aten.sums  # noqa: F401  # they fill the table
from tilewright.dtypes import dtype
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.frontends.torch.aten.conversions import CONVERSIONS
from tilewright.frontends.torch.checks import Checks
from tilewright.frontends.torch.complexes import PARTS, Complex
from tilewright.frontends.torch.open_sizes import shape_of
from tilewright.frontends.torch.spans import span_of
from tilewright.frontends.torch.table import Place, handler_of, name_of
from tilewright.graph.passes.keep_precision import keep_precision
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Kernel
from tilewright.ir.visit import loads_in
from tilewright.tensor.tensor import Builder


def results_of(node: Node) -> tuple[Any, ...]:
    """What PyTorch says that the node gives: fake tensors, or other values."""
    value = node.meta.get("val")
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def reason_of(error: TilewrightError) -> str:
    """An error in a line: what, and why where it says that."""
    return error.what if error.why is None else f"{error.what}: {error.why}"


def element_type(tensor: torch.Tensor) -> Any:
    """Our type of a tensor's elements, or of their parts. Raises `UnsupportedError`."""
    if tensor.dtype is torch.complex32:
        raise UnsupportedError(f"{tensor.dtype} elements are PyTorch's")
    return dtype(PARTS.get(tensor.dtype, tensor.dtype))


def _has_complex(node: Node) -> bool:
    values = (result for source in (node, *node.all_input_nodes) for result in results_of(source))
    return any(isinstance(value, torch.Tensor) and value.dtype.is_complex for value in values)


class RefusedOpError(UnsupportedError):
    """An op that cannot be translated: ``node``, and why."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(
            f"{node.target} is not native",
            where=f"node {node.name}",
            why=why,
            span=span_of(node),
            cure="torch.compile leaves it to PyTorch; replace it in what is exported",
        )
        self.node = node


class Translation:
    """Translates nodes in order; ``values`` has what became of each. ``checks`` are told what has
    to hold of data."""

    def __init__(self, builder: Builder, checks: Checks | None = None) -> None:
        self.builder, self.checks = builder, checks
        self.values: dict[Node, Any] = {}
        self._converted: set[Buffer] = set()

    def run(self, node: Node) -> None:
        """Builds what a node computes. Raises `RefusedOpError`."""
        if node.target is getitem:
            source, index = node.args
            assert isinstance(source, Node)
            self.values[node] = self.values[source][index]
            return
        handler = handler_of(node.target, _has_complex(node))
        if handler is None:
            raise RefusedOpError(node, "there is no such op in the table")
        try:
            self.values[node] = self._built(node, handler)
        except TilewrightError as error:
            raise RefusedOpError(node, reason_of(error)) from error
        if name_of(node.target) in CONVERSIONS and not isinstance(self.values[node], Complex):
            self._converted |= {load.buffer for load in loads_in(self.values[node].value)}

    def kernel(self) -> Kernel:
        """What was built. Values of 16 bits that only the next op reads are not rounded, but where
        the program converts them itself."""
        return keep_precision(self.builder.kernel(), self._converted)

    def _built(self, node: Node, handler: Any) -> Any:
        results = results_of(node)
        for result in results:
            if isinstance(result, torch.Tensor):
                element_type(result)
        used = _used(node, len(results))
        at = Place(self.builder, name_of(node.target), results, used, node, self.checks)
        args, kwargs = self._resolved(node.args), self._resolved(node.kwargs)
        with self.builder.at(node.name, span_of(node)):
            outputs = handler(at, *args, **kwargs)
        _check(results, at.used, outputs if isinstance(outputs, tuple) else (outputs,))
        return outputs

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self.values[value]
        if isinstance(value, Mapping):
            return {name: self._resolved(entry) for name, entry in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return (
                type(value)(map(self._resolved, value))
                if isinstance(value, tuple)
                else [*map(self._resolved, value)]
            )
        return value


def _used(node: Node, count: int) -> frozenset[int]:
    """Which of the results of a node have users."""
    if not isinstance(node.meta.get("val"), tuple | list):
        return frozenset({0})
    if any(user.target is not getitem for user in node.users):
        return frozenset(range(count))
    return frozenset(int(str(user.args[1])) for user in node.users)


def _check(results: Sequence[Any], used: frozenset[int], tensors: Sequence[Any]) -> None:
    """What was built is what PyTorch says that comes: otherwise it is no translation."""
    for n, (said, tensor) in enumerate(zip(results, tensors, strict=False)):
        if n not in used or not isinstance(said, torch.Tensor):
            continue
        shape = shape_of(said)
        if isinstance(tensor, Complex) != said.dtype.is_complex:
            raise UnsupportedError(f"its result came out as no tensor of {said.dtype}")
        if tensor.shape != shape or tensor.dtype is not element_type(said):
            raise UnsupportedError(
                f"its result came out as {tensor.dtype}{list(tensor.shape)}, not "
                f"{said.dtype}{list(shape)}"
            )

"""Which ops are native: a graph in parts that are programs, and islands that PyTorch runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tilewright.errors import UnsupportedError
from tilewright.frontends.torch.forms import Form
from tilewright.frontends.torch.open_sizes import (
    Symbol,
    open_sizes_now,
    size_of,
    translating,
    unknown,
)
from tilewright.frontends.torch.parts import Options
from tilewright.frontends.torch.replacing import Parts, said, straight
from tilewright.frontends.torch.reports import GraphReport
from tilewright.frontends.torch.translate import (
    RefusedOpError,
    Translation,
    element_type,
    results_of,
)
from tilewright.frontends.torch.views import is_view
from tilewright.ir.expr import Expr
from tilewright.tensor.tensor import Builder


def compiled_by_parts(
    gm: GraphModule, fixed: Collection[int], options: Options, report: GraphReport
) -> Callable[..., Any]:
    """What runs ``gm``, of known shapes: natively as far as that goes.

    ``fixed`` are the inputs that are parameters, ``report`` is told what stays with PyTorch. Raises
    `UnsupportedError` where that is strict, and something does.
    """
    reasons = _refusals(gm)
    _count(gm, reasons, report)
    if options.strict and reasons:
        raise _strict(report)
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    parameters = {inputs[n].name for n in fixed if n < len(inputs)}
    parts = Parts(parameters, options, report)
    parts.replace(gm, _native(gm, reasons))
    return straight(gm) or gm


def opened_by_parts(
    gm: GraphModule, symbols: Sequence[Symbol], options: Options, report: GraphReport
) -> tuple[Callable[..., Any], Mapping[Expr, bool]]:
    """What runs ``gm`` for all sizes that ``symbols`` stand for, and what has to hold of these.

    Raises the errors of what cannot be native without numbers for sizes.
    """
    tried = GraphReport(report.name)
    with translating(symbols, 0):
        reasons = _refusals(gm)
    _count(gm, reasons, tried)
    if reasons:
        raise _strict(tried)
    parts = Parts((), options, tried, symbols)
    parts.replace(gm, _native(gm, reasons))
    report.add(tried)
    return gm, parts.decided


def _native(gm: GraphModule, reasons: Mapping[Node, str]) -> list[list[Node]]:
    """The parts of a graph whose ops are native."""
    partitioner = CapabilityBasedPartitioner(
        gm, _Support(reasons), allows_single_node_partition=True
    )
    return [list(part.nodes) for part in partitioner.propose_partitions()]


class _Support(OperatorSupportBase):
    """Tells the partitioner what is native."""

    def __init__(self, reasons: Mapping[Node, str]) -> None:
        self._reasons = reasons

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        if node.op != "call_function" or _is_size(node):
            return False
        if node.target is getitem:
            source = node.args[0]
            return isinstance(source, Node) and self.is_node_supported(submodules, source)
        return node not in self._reasons


def _refusals(gm: GraphModule) -> dict[Node, str]:
    """Why nodes cannot be native: each is translated by itself, on inputs of the same forms."""
    reasons: dict[Node, str] = {}
    refusals: dict[Any, str | None] = {}
    for node in gm.graph.nodes:
        if node.op not in ("call_function", "call_module", "call_method"):
            continue
        if node.op != "call_function":
            reasons[node] = f"it is a {node.op} of the graph"
            continue
        if node.target is getitem or _is_size(node):
            continue
        values = (other.meta.get("val") for other in (node, *node.all_input_nodes))
        why = next(filter(None, map(unknown, values)), None)
        if why is not None:
            reasons[node] = why
            continue
        key = _key(node)
        if key not in refusals:
            refusals[key] = _refusal(node)
        why = refusals[key]
        if why is not None:
            reasons[node] = why
    return reasons


def _is_size(node: Node) -> bool:
    """Whether it computes a size, as calls do in Python."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)


def _key(node: Node) -> Any:
    """What a translation of the node depends on."""

    def form(value: Any) -> Any:
        if not isinstance(value, Node):
            return repr(value)
        computed = value.op != "placeholder" and not is_view(value)
        return computed, *(
            (v.dtype, str(tuple(v.shape)), str(v.stride()), v.device.type)
            if isinstance(v, torch.Tensor)
            else repr(v)
            for v in results_of(value)
        )

    flat = [form(argument) for argument in _flat((node.args, node.kwargs))]
    return (str(node.target), str(torch.fx.node.map_arg(node.args, lambda n: "")), *flat)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = [(name, entry) for name, entry in value.items()]
    if isinstance(value, tuple | list):
        return [leaf for entry in value for leaf in _flat(entry)]
    return [value]


def _refusal(node: Node) -> str | None:
    builder = Builder("op", open_sizes_now())
    translation = Translation(builder)
    try:
        for source in node.all_input_nodes:
            _stand_in(builder, translation, source)
        translation.run(node)
    except RefusedOpError as error:
        return error.why
    except Exception as error:  # a defect of ours, too, must not stop a model
        return said(error)
    return None


def _stand_in(builder: Builder, translation: Translation, source: Node) -> None:
    """Inputs for what another node gives."""
    arguments: list[Any] = []
    for n, value in enumerate(results_of(source)):
        if isinstance(value, torch.Tensor):
            if value.device.type != "cpu":
                raise UnsupportedError(f"it is on {value.device}")
            element_type(value)
            arguments.append(Form.of(value).input(builder, f"{source.name}_{n}"))
        else:
            arguments.append(size_of(value) if isinstance(value, torch.SymInt) else value)
    several = isinstance(source.meta.get("val"), tuple | list)
    translation.values[source] = tuple(arguments) if several else arguments[0]


def _count(gm: GraphModule, reasons: Mapping[Node, str], report: GraphReport) -> None:
    for node in gm.graph.nodes:
        if node in reasons:
            report.refused[(str(node.target), reasons[node])] += 1
        elif node.op == "call_function" and node.target is not getitem and not _is_size(node):
            report.native += 1


def _strict(report: GraphReport) -> UnsupportedError:
    first = report.islands[0]
    return UnsupportedError(
        f"{first.op} is not native",
        where=f"graph {report.name}",
        why=first.why,
        cure='leave options={"strict": True} out: PyTorch runs such ops then',
    )

"""Programs in the place of parts of a PyTorch graph; smaller ones where one does not compile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from tilewright.errors import TilewrightError
from tilewright.frontends.torch.open_parts import OpenPart
from tilewright.frontends.torch.open_sizes import Symbol
from tilewright.frontends.torch.parts import Options, Part, translated
from tilewright.frontends.torch.reports import GraphReport
from tilewright.frontends.torch.translate import reason_of, results_of
from tilewright.frontends.torch.views import is_view, only_views, separate_views
from tilewright.graph.program import GraphProgram
from tilewright.ir.expr import Expr

_PREFIX = "tilewright_"


def said(error: Exception) -> str:
    """Why something stays with PyTorch, in a line."""
    if isinstance(error, TilewrightError):
        return reason_of(error)
    return f"a defect of tilewright's, please report it: {type(error).__name__}: {error}"


class Parts:
    """Makes programs of parts of a graph; ``parameters`` are the names of its inputs that stay the
    same from call to call, ``report`` is told what became of each part. Where there are
    ``symbols``, parts are programs of open sizes: what these have ``decided`` about them has to
    hold in each call, and what cannot be so raises an error."""

    def __init__(
        self,
        parameters: Collection[str],
        options: Options,
        report: GraphReport,
        symbols: Sequence[Symbol] = (),
    ) -> None:
        self._parameters, self._options, self._report = parameters, options, report
        self._symbols = symbols
        self.decided: dict[Expr, bool] = {}

    def replace(self, gm: GraphModule, parts: Sequence[list[Node]]) -> None:
        """Puts programs in the places of ``parts`` of ``gm``, between which there is no cycle."""
        separate_views(gm.graph, parts)
        kept = [dict.fromkeys(part) for part in parts if not only_views(part)]
        fuse_by_partitions(gm, kept, prefix=_PREFIX)
        for node in list(gm.graph.nodes):
            if node.op == "call_module" and str(node.target).startswith(_PREFIX):
                self._make_native(gm, node)
        gm.recompile()

    def _make_native(self, gm: GraphModule, node: Node) -> None:
        name = str(node.target)
        inner = getattr(gm, name)
        outputs = next(n for n in inner.graph.nodes if n.op == "output")
        if all(map(_is_empty, outputs.all_input_nodes)):
            return
        inputs = [
            placeholder for placeholder in inner.graph.nodes if placeholder.op == "placeholder"
        ]
        fixed = [n for n, placeholder in enumerate(inputs) if placeholder.name in self._parameters]
        try:
            part = self._part(inner.graph, name, fixed)
        except Exception as error:  # a defect of ours, too, must not stop a model
            if self._options.strict or self._symbols:
                raise
            self._divide(inner, error)
            return
        report = self._report
        report.programs += 1
        if isinstance(part.compiled, GraphProgram):
            report.arena += part.compiled.arena.bytes
            report.live += part.compiled.arena.live
        setattr(gm, name, _Native(part, not isinstance(outputs.args[0], tuple | list)))

    def _part(self, graph: Graph, name: str, fixed: Collection[int]) -> Part | OpenPart:
        options = self._options
        if not self._symbols:
            return Part.of(translated(graph, name, options.checks), fixed, options)
        part = OpenPart(graph, name, options, self._symbols)
        self.decided |= part.decided
        return part

    def _divide(self, inner: GraphModule, error: Exception) -> None:
        """Tries the halves of a part that does not compile; one op alone stays with PyTorch."""
        nodes = [node for node in inner.graph.nodes if node.op == "call_function"]
        ops = [node for node in nodes if not is_view(node) and node.target is not getitem]
        if len(ops) > 1:
            self.replace(inner, _halves(nodes, ops[len(ops) // 2]))
            return
        self._report.native -= len(ops)
        for refused_op in ops:
            why = f"it does not compile: {said(error)}"
            self._report.refused[(str(refused_op.target), why)] += 1


def _is_empty(node: Node) -> bool:
    """Whether what it gives has no elements."""
    tensors = [result for result in results_of(node) if isinstance(result, torch.Tensor)]
    return bool(tensors) and all(tensor.numel() == 0 for tensor in tensors)


def _halves(nodes: Sequence[Node], middle: Node) -> tuple[list[Node], list[Node]]:
    """Those before ``middle`` and the rest; results of an op that has several stay with it."""
    first = list(nodes[: nodes.index(middle)])
    rest: list[Node] = []
    for node in nodes[len(first) :]:
        its = node.target is getitem and not is_view(node) and node.args[0] in first
        (first if its else rest).append(node)
    return first, rest


class _Native(torch.nn.Module):
    """A part as a module, in the place of PyTorch's."""

    def __init__(self, part: Part | OpenPart, single: bool) -> None:
        super().__init__()
        self.part, self.single = part, single

    def forward(self, *tensors: Any) -> Any:
        results = self.part(*tensors)
        return results[0] if self.single else results


def straight(gm: GraphModule) -> Callable[..., Any] | None:
    """What ``gm`` does, where that is to call one program, without what modules do around it."""
    nodes = list(gm.graph.nodes)
    inputs = {node: n for n, node in enumerate(n for n in nodes if n.op == "placeholder")}
    calls = [node for node in nodes if node not in inputs and node.target is not getitem]
    if len(calls) != 2 or calls[0].op != "call_module" or calls[1].op != "output":
        return None
    call, native = calls[0], getattr(gm, str(calls[0].target))
    values = calls[1].args[0]
    if not isinstance(native, _Native) or not isinstance(values, tuple | list):
        return None
    results = {node: node.args[1] for node in nodes if node.target is getitem}
    results |= {call: 0} if native.single else {}
    if not all(map(inputs.__contains__, call.args)) or not all(map(results.__contains__, values)):
        return None
    part, passed = native.part, [inputs[argument] for argument in call.args]
    wanted = [results[value] for value in values]

    def run(*tensors: Any) -> tuple[Any, ...]:
        computed = part(*[tensors[n] for n in passed])
        return tuple([computed[n] for n in wanted])

    return run

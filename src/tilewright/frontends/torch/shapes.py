"""Graphs of unknown sizes: for each set of sizes that is met, a graph of known ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from tilewright.newest import Newest

# So many programs are kept of a graph: of all lengths that texts usually have. One that is dropped
# is compiled again in each call where sizes go round, so this is no limit to work at.
_LIMIT = 4096


def is_symbolic(gm: GraphModule) -> bool:
    """Whether some value of the graph has a size that is not known."""
    return any(has_symbols(node.meta.get("val")) for node in gm.graph.nodes)


def has_symbols(value: Any) -> bool:
    """Whether a value, or a size of it, is not known."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    if isinstance(value, torch.Tensor):
        sizes = (*value.shape, *value.stride(), value.storage_offset())
        return any(isinstance(size, torch.SymInt) for size in sizes)
    return isinstance(value, tuple | list) and any(map(has_symbols, value))


class BySizes:
    """Runs a graph of unknown sizes; ``compiled`` makes what runs one of known sizes."""

    def __init__(
        self, gm: GraphModule, compiled: Callable[[GraphModule], Callable[..., Any]]
    ) -> None:
        self._gm, self._compiled = gm, compiled
        self._known: Newest[Any, Callable[..., Any]] = Newest(_LIMIT)

    def __call__(self, *values: Any) -> Any:
        key = tuple(
            (tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else value
            for value in values
        )
        program = self._known.get(key)
        if program is None:
            program = self._known[key] = self._compiled(with_sizes(self._gm, values))
        return program(*values)


def with_sizes(gm: GraphModule, values: Sequence[Any]) -> GraphModule:
    """``gm`` for arguments of the sizes of ``values``: numbers in it are constants."""
    result = copied(gm)
    # Sizes that depend on data stay symbols; which they were in ``gm`` does not matter.
    for node in result.graph.nodes:
        node.meta.pop("unbacked_bindings", None)
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fake = [
        mode.from_tensor(argument.detach(), static_shapes=True)
        if isinstance(argument, torch.Tensor)
        else argument
        for argument in values
    ]
    FakeTensorProp(result, mode).propagate_dont_convert_inputs(*fake)
    for node in reversed(list(result.graph.nodes)):
        value = node.meta.get("val")
        if isinstance(value, int | float | bool) and node.op != "output":
            for user in list(node.users):
                user.args = _replaced(user.args, node, value)
                user.kwargs = _replaced(user.kwargs, node, value)
            if node.op != "placeholder":
                result.graph.erase_node(node)
    result.recompile()
    return result


def copied(gm: GraphModule) -> GraphModule:
    """``gm`` with a graph of its own."""
    copy = Graph()
    values: dict[Node, Node] = {}
    output = copy.graph_copy(gm.graph, values)
    copy.output(output)
    return GraphModule(gm, copy)


def _replaced(argument: Any, node: Node, value: Any) -> Any:
    return torch.fx.node.map_arg(argument, lambda other: value if other is node else other)

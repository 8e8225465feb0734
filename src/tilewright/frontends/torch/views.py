"""Views of PyTorch's: which ops are views, and those that leave a part of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node


def is_view(node: Node) -> bool:
    """Whether PyTorch touches no element for it: its result shares memory with its argument."""
    if node.op != "call_function":
        return False
    if node.target is getitem:
        source = node.args[0]
        return isinstance(source, Node) and is_view(source)
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    # The schema of `_unsafe_view` does not say that it shares memory, as it does.
    return target.is_view or target is torch.ops.aten._unsafe_view.default


def only_views(nodes: Iterable[Node]) -> bool:
    """Whether PyTorch does all of it without touching an element."""
    return all(map(is_view, nodes))


def separate_views(graph: Graph, parts: Sequence[list[Node]]) -> None:
    """Makes views that leave a part anew where they are used: in the part that uses them, or
    outside of all, where PyTorch makes them.

    So a part gives whole tensors only, and their views share memory as they do in PyTorch. A part
    loses the views that it does not use itself.
    """
    owners = {node: n for n, part in enumerate(parts) for node in part}
    copies: dict[tuple[Node, int | None], Node] = {}

    def copy(node: Node, owner: int | None) -> Node:
        if not is_view(node) or node not in owners or owners[node] == owner:
            return node
        if (node, owner) not in copies:
            with graph.inserting_after(node):
                anew = graph.node_copy(node, lambda source: copy(source, owner))
            copies[node, owner] = anew
            if owner is not None:
                parts[owner].append(anew)
        return copies[node, owner]

    views = [node for node in graph.nodes if node in owners and is_view(node)]
    for node in views:
        for user in list(node.users):
            anew = copy(node, owners.get(user))
            if anew is not node:
                user.replace_input_with(node, anew)
    for node in reversed(views):
        if not node.users:
            parts[owners[node]].remove(node)
            graph.erase_node(node)

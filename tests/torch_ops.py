"""Each op of core ATen against PyTorch, which `graph_coverage` counts: native and right, an island
that stays with PyTorch, or wrong."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.utils import _pytree as pytree

from tilewright.errors import TilewrightError
from tilewright.frontends.torch.islands import compiled_by_parts
from tilewright.frontends.torch.parts import Options
from tilewright.frontends.torch.reports import GraphReport
from torch_samples import SAMPLES, Sample


@cache
def core_ops() -> dict[str, Any]:
    """The ops of core ATen, by name and overload."""
    result: dict[str, Any] = {}
    for packet in map(lambda name: getattr(torch.ops.aten, name), dir(torch.ops.aten)):
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            op = getattr(packet, overload)
            if torch.Tag.core in op.tags and not overload.endswith("out"):
                result[str(op).removeprefix("aten.")] = op
    return result


def graph_of(op: Any, sample: Sample) -> tuple[GraphModule, list[torch.Tensor]]:
    """A graph that calls an op, and the tensors that it is given."""
    graph, mode = Graph(), FakeTensorMode()
    leaves, spec = pytree.tree_flatten(sample)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    nodes = []
    for number, tensor in enumerate(tensors):
        node = graph.placeholder(f"x{number}")
        node.meta["val"] = mode.from_tensor(tensor)
        nodes.append(node)
    left = iter(nodes)
    value = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(value, spec)
    call = graph.call_function(op, args, kwargs)
    fake = iter([node.meta["val"] for node in nodes])
    values = [next(fake) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    fake_args, fake_kwargs = pytree.tree_unflatten(values, spec)
    with mode:
        call.meta["val"] = op(*fake_args, **fake_kwargs)
    results = call.meta["val"]
    if isinstance(results, tuple | list):
        parts = []
        for number, result in enumerate(results):
            if isinstance(result, torch.Tensor):
                part = graph.call_function(operator.getitem, (call, number))
                part.meta["val"] = result
                parts.append(part)
        graph.output(tuple(parts))
    else:
        graph.output((call,))
    return GraphModule({}, graph), tensors


def outcome(op: Any, sample: Sample, target: str = "x86") -> tuple[str, str]:
    """``native``, ``island`` or ``wrong``; and why."""
    args, kwargs = sample
    try:
        expected = op(*args, **kwargs)
    except NotImplementedError:  # of this type
        return "native", ""
    wanted = list(expected) if isinstance(expected, tuple | list) else [expected]
    wanted = [value for value in wanted if isinstance(value, torch.Tensor)]
    if not wanted:
        return "island", "it gives a number"
    try:
        gm, tensors = graph_of(op, sample)
    except Exception as error:  # how many results there are depends on data
        return "island", f"its shape is not known: {type(error).__name__}"
    try:
        run = compiled_by_parts(gm, (), Options(target, strict=True), GraphReport("op"))
        result = run(*tensors)
    except TilewrightError as error:
        return "island", error.why or error.what
    for a, b in zip(result, wanted, strict=True):
        narrow = a.dtype in (torch.bfloat16, torch.float16)
        tolerance = 2e-2 if narrow else 1e-4
        try:
            torch.testing.assert_close(
                a, b, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            return "wrong", str(error).splitlines()[0]
    return "native", ""


def judged(packet: str, seed: int = 0, target: str = "x86") -> tuple[str, str]:
    """What all samples of all overloads of an op come to: the worst of them. An island is
    ``refused``."""
    torch.manual_seed(seed)
    order = ["wrong", "island", "native"]
    results: list[tuple[str, str]] = []
    for name, op in core_ops().items():
        if name.split(".")[0] == packet:
            results += [outcome(op, sample, target) for sample in SAMPLES.get(name, list)()]
            if name not in SAMPLES:
                results.append(("island", "no tensors, or random numbers"))
    status, why = min(results, key=lambda result: order.index(result[0]))
    return {"native": "right", "island": "refused"}.get(status, status), why

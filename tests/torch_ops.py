"""Each op of core ATen against PyTorch: `python tests/torch_ops.py [--seed N] [NAME ...]`.

The last lines count what is native and right, what stays with PyTorch (with the reason), and what
is wrong, of which there has to be none.
"""

from __future__ import annotations

import argparse
import operator
import sys
from collections import Counter
from collections.abc import Sequence
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


def core_ops() -> dict[str, Any]:
    """The ops of core ATen, by name and overload."""
    found: dict[str, Any] = {}
    for packet in map(lambda name: getattr(torch.ops.aten, name), dir(torch.ops.aten)):
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            op = getattr(packet, overload)
            if torch.Tag.core in op.tags and not overload.endswith("out"):
                found[str(op).removeprefix("aten.")] = op
    return found


def graph_of(op: Any, sample: Sample) -> tuple[GraphModule, list[torch.Tensor]]:
    """A graph that calls an op, and the tensors that it is given."""
    graph, mode = Graph(), FakeTensorMode()
    leaves, spec = pytree.tree_flatten(sample)
    tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
    nodes = []
    for number, each in enumerate(tensors):
        node = graph.placeholder(f"x{number}")
        node.meta["val"] = mode.from_tensor(each)
        nodes.append(node)
    left = iter(nodes)
    given = [next(left) if isinstance(each, torch.Tensor) else each for each in leaves]
    args, kwargs = pytree.tree_unflatten(given, spec)
    call = graph.call_function(op, args, kwargs)
    fake = iter([node.meta["val"] for node in nodes])
    values = [next(fake) if isinstance(each, torch.Tensor) else each for each in leaves]
    fake_args, fake_kwargs = pytree.tree_unflatten(values, spec)
    with mode:
        call.meta["val"] = op(*fake_args, **fake_kwargs)
    results = call.meta["val"]
    if isinstance(results, tuple | list):
        parts = []
        for number, each in enumerate(results):
            if isinstance(each, torch.Tensor):
                part = graph.call_function(operator.getitem, (call, number))
                part.meta["val"] = each
                parts.append(part)
        graph.output(tuple(parts))
    else:
        graph.output((call,))
    return GraphModule({}, graph), tensors


def outcome(op: Any, sample: Sample) -> tuple[str, str]:
    """``native``, ``island`` or ``wrong``; and why."""
    args, kwargs = sample
    try:
        expected = op(*args, **kwargs)
    except NotImplementedError:  # of this type
        return "native", ""
    wanted = list(expected) if isinstance(expected, tuple | list) else [expected]
    wanted = [each for each in wanted if isinstance(each, torch.Tensor)]
    if not wanted:
        return "island", "it gives a number"
    try:
        gm, tensors = graph_of(op, sample)
    except Exception as error:  # how many results there are depends on data
        return "island", f"its shape is not known: {type(error).__name__}"
    try:
        run = compiled_by_parts(gm, (), Options(strict=True), GraphReport("op"))
        found = run(*tensors)
    except TilewrightError as error:
        return "island", error.why or error.what
    for a, b in zip(found, wanted, strict=True):
        narrow = a.dtype in (torch.bfloat16, torch.float16)
        tolerance = 2e-2 if narrow else 1e-4
        try:
            torch.testing.assert_close(
                a, b, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            return "wrong", str(error).splitlines()[0]
    return "native", ""


def checked(name: str, op: Any) -> tuple[str, str]:
    """What all samples of an op come to: the worst of them."""
    order = ["wrong", "island", "native"]
    results = [outcome(op, sample) for sample in SAMPLES[name]()]
    return min(results, key=lambda each: order.index(each[0]))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    torch.manual_seed(asked.seed)
    counts: Counter[str] = Counter()
    packets: dict[str, str] = {}
    order = ["wrong", "island", "native"]
    for name, op in core_ops().items():
        if asked.names and not any(name.startswith(each) for each in asked.names):
            continue
        if name not in SAMPLES:
            result, why = "island", "no tensors, or random numbers"
        else:
            result, why = checked(name, op)
        counts[result] += 1
        packet = name.split(".")[0]
        packets[packet] = min(packets.get(packet, result), result, key=order.index)
        print(f"{result:7} {name}" + (f": {why}" if why else ""), flush=True)
    print(", ".join(f"{counts[each]} {each}" for each in reversed(order)))
    names = Counter(packets.values())
    print(
        "by name: " + ", ".join(f"{names[each]} {each}" for each in ("native", "island", "wrong"))
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

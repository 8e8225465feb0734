"""Branches and loops: unrolled where they are known, otherwise those of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx

from tilewright.errors import UnsupportedError
from tilewright.frontends.onnx.scopes import Scope
from tilewright.frontends.onnx.table import depends
from tilewright.frontends.onnx.values import attribute_of
from tilewright.ir.expr import StandIn, const
from tilewright.tensor.control import if_, while_
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.known import is_open
from tilewright.tensor.tensor import Builder, Tensor
from tilewright.tensor.views import index_in_dim, reshape, stack

_ARMS = ("then_branch", "else_branch")
# Bodies that are unrolled are built once for each step.
_STEPS = 256


class Reader(Protocol):
    """What reads nodes."""

    builder: Builder
    versions: dict[str, int]

    def tensor(self, name: str, scope: Scope) -> Tensor:
        """A value as a tensor."""

    def value(self, name: str, scope: Scope) -> Any:
        """What is known of a value, or else its tensor."""

    def inside(
        self, body: onnx.GraphProto, scope: Scope, values: Sequence[Any], depth: int
    ) -> Scope:
        """The values inside of a body for these arguments."""


def branch(reader: Reader, node: onnx.NodeProto, scope: Scope, depth: int) -> None:
    """The arm of an If whose condition is known; both, where data decides."""
    condition = scope.known.get(node.input[0])
    arms = {attribute.name: attribute.g for attribute in node.attribute}
    if condition is not None:
        arm = arms[_ARMS[0 if condition.reshape(-1)[0] else 1]]
        inner = reader.inside(arm, scope, (), depth)
        for inner_output, outer in zip(arm.output, node.output, strict=True):
            scope.take(inner, inner_output.name, outer)
        return

    def tensors(name: str) -> list[Tensor]:
        inner = reader.inside(arms[name], scope, (), depth)
        return [reader.tensor(output.name, inner) for output in arms[name].output]

    test = reshape(reader.tensor(node.input[0], scope), ())
    scope.put(node.output, if_(test, lambda: tensors(_ARMS[0]), lambda: tensors(_ARMS[1])))


def loop(reader: Reader, node: onnx.NodeProto, scope: Scope, depth: int) -> None:
    """A Loop whose number of iterations is known, one after the other."""
    body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    limit, test, *names = [*node.input, "", ""][: max(2, len(node.input))]
    if not limit and not test:
        raise UnsupportedError("a Loop with neither a count nor a condition")
    count, go_on = scope.known.get(limit), scope.known.get(test)
    rows: list[list[Tensor]] = [[] for _ in node.output[len(names) :]]
    if rows and count is not None and is_open(count):
        _bounded(count.reshape(-1)[0])
    values = [name for name in (limit, test) if name]
    unknown = next((n for n in values if n not in scope.known or is_open(scope.known[n])), None)
    if unknown is not None and rows:
        depends(unknown)
    if unknown is not None:
        _while(reader, node, scope, depth)
        return
    states = [reader.value(name, scope) for name in names]
    steps = None if count is None else int(count.reshape(-1)[0])
    step = 0
    while (steps is None or step < steps) and (go_on is None or bool(go_on.reshape(-1)[0])):
        _bounded(step)
        values = [np.asarray(step, np.int64), np.asarray(go_on is None or go_on, bool), *states]
        inner = reader.inside(body, scope, values, depth)
        go_on = inner.known.get(body.output[0].name)
        if go_on is None and not rows and not step:
            # What this turn emitted is used by nothing.
            _while(reader, node, scope, depth)
            return
        if go_on is None:
            raise UnsupportedError("how often a Loop runs depends on data")
        states = [reader.value(output.name, inner) for output in body.output[1 : 1 + len(states)]]
        for row, output in zip(rows, body.output[1 + len(states) :], strict=True):
            row.append(reader.tensor(output.name, inner))
        step += 1
    scope.put(node.output, [*states, *(_stacked(row, 0) for row in rows)])


def _while(reader: Reader, node: onnx.NodeProto, scope: Scope, depth: int) -> None:
    """A Loop whose number of iterations depends on data: one of the graph."""
    body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    limit, test, *names = [*node.input, "", ""][: max(2, len(node.input))]
    states = [reader.tensor(name, scope) for name in names]
    builder = reader.builder
    most = reshape(reader.tensor(limit, scope), ()) if limit else None
    first = reshape(reader.tensor(test, scope), ()) if test else builder.splat(True, "bool")

    def more(carried: Sequence[Tensor]) -> Tensor:
        step, go_on = carried[:2]
        if most is None:
            return go_on
        return elementwise(lambda s, m, g: (s < m) & g, step, most, go_on)

    def turn(carried: Sequence[Tensor]) -> list[Tensor]:
        inner = reader.inside(body, scope, carried, depth)
        go_on, *new = (reader.tensor(output.name, inner) for output in body.output)
        after = elementwise(lambda s: s + const(1), carried[0])
        return [after, reshape(go_on, ()), *new]

    tensors = while_([builder.splat(0, "s64"), first, *states], more, turn, builder)
    scope.put(node.output, tensors[2:])


def scan(reader: Reader, node: onnx.NodeProto, scope: Scope, depth: int) -> None:
    """A Scan, step by step."""
    attributes = {attribute.name: attribute_of(attribute) for attribute in node.attribute}
    if reader.versions.get("", 1) < 9:
        raise UnsupportedError("a Scan of before version 9")
    body, count = attributes["body"], attributes["num_scan_inputs"]
    states = [reader.value(name, scope) for name in node.input[: len(node.input) - count]]
    sources = [reader.tensor(name, scope) for name in node.input[len(node.input) - count :]]
    dims = [
        n % x.rank
        for n, x in zip(attributes.get("scan_input_axes", [0] * count), sources, strict=True)
    ]
    turned = attributes.get("scan_input_directions", [0] * count)
    steps = sources[0].shape[dims[0]]
    rows: list[list[Tensor]] = [[] for _ in node.output[len(states) :]]
    for step in range(_bounded(steps)):
        parts = [
            index_in_dim(x, n, steps - 1 - step if back else step)
            for x, n, back in zip(sources, dims, turned, strict=True)
        ]
        inner = reader.inside(body, scope, [*states, *parts], depth)
        outputs = [reader.value(output.name, inner) for output in body.output]
        states = outputs[: len(states)]
        for row, output in zip(rows, body.output[len(states) :], strict=True):
            row.append(reader.tensor(output.name, inner))
    axes = attributes.get("scan_output_axes", [0] * len(rows))
    back = attributes.get("scan_output_directions", [0] * len(rows))
    tensors = [_stacked(r[::-1] if b else r, n) for r, n, b in zip(rows, axes, back, strict=True)]
    scope.put(node.output, [*states, *tensors])


CONTROL: Mapping[str, Callable[[Reader, onnx.NodeProto, Scope, int], None]] = {
    "If": branch,
    "Scan": scan,
    "Loop": loop,
}


def _bounded(steps: int) -> int:
    if isinstance(steps, StandIn):
        raise UnsupportedError("how often a loop is unrolled is a size that calls pass")
    if steps > _STEPS:
        raise UnsupportedError(f"a loop of {steps} steps", cure=f"{_STEPS} are unrolled at most")
    return steps


def _stacked(rows: Sequence[Tensor], axis: int) -> Tensor:
    if not rows:
        raise UnsupportedError("a loop that does not run once")
    return stack(rows, axis % (rows[0].rank + 1))

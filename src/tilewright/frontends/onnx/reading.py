"""A model as a graph, node by node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tilewright.frontends.onnx.elements
import tilewright.frontends.onnx.moving
import tilewright.frontends.onnx.multiplying
import tilewright.frontends.onnx.reducing
import tilewright.frontends.onnx.windows  # noqa: F401  # they fill the table
from tilewright.errors import ArgumentError, TilewrightError, UnsupportedError
from tilewright.frontends.onnx.bodies import body_of, usual_attributes
from tilewright.frontends.onnx.folding import folded
from tilewright.frontends.onnx.table import TABLE, Place
from tilewright.frontends.onnx.values import array_of, attribute_of, shape_of, type_of
from tilewright.graph.builder import Builder, identifier
from tilewright.graph.graph import Graph
from tilewright.graph.tensor import Tensor
from tilewright.graph.views import concatenate, reshape, slice_
from tilewright.problems.numbers import short

_DEPTH = 32


def from_onnx(model: Any, known: Mapping[str, Any] | None = None) -> Graph:
    """The graph of an ONNX model: a path, or what ``onnx.load`` gives.

    Initializers are constants of it. ``known`` are contents of inputs on which shapes depend, by
    their names; calls do not pass these. Raises `ArgumentError` for what is no model or an
    ill-formed one, and `UnsupportedError` for what is not there, and says which node it is.
    """
    given = _loaded(model)
    try:
        onnx.checker.check_model(given)
        given = onnx.shape_inference.infer_shapes(given)
    except Exception as error:  # the package's own, of several kinds
        raise ArgumentError(
            "the model is ill-formed", why=str(error).strip()[:500], cure="export it again"
        ) from error
    return _Reading(given, dict(known or {})).graph()


def _loaded(model: Any) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    if not isinstance(model, str | os.PathLike):
        raise ArgumentError(
            f"{short(model)} is no ONNX model", cure="pass a path, or what onnx.load gives"
        )
    try:
        return onnx.load(Path(model))
    except Exception as error:  # a file that is not there, or is something else
        raise ArgumentError(
            f"{os.fspath(model)} cannot be read as a model", why=str(error).strip()[:500]
        ) from error


class _Scope:
    """Values by name: tensors of the graph, and contents where they are known."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.known: dict[str, np.ndarray[Any, Any]] = {}
        self.shapes: dict[str, tuple[int, ...] | None] = {}


class _Reading:
    """Goes through a model once."""

    def __init__(self, model: onnx.ModelProto, known: dict[str, Any]) -> None:
        self._model = model
        self._builder = Builder(identifier(model.graph.name) or "model")
        self._versions = {each.domain: each.version for each in model.opset_import}
        self._functions = {(f.domain, f.name): f for f in model.functions}
        self._given = known

    def graph(self) -> Graph:
        """The graph."""
        top, scope = self._model.graph, _Scope()
        for info in (*top.value_info, *top.output):
            scope.shapes[info.name] = shape_of(info)
        for tensor in top.initializer:
            scope.known[tensor.name] = array_of(tensor)
        if top.sparse_initializer:
            raise UnsupportedError("the model has sparse initializers")
        taken: set[str] = set()
        for info in top.input:
            if info.name not in scope.known:
                self._input(info, scope, taken)
        self._nodes(top.node, scope, 0)
        for info in top.output:
            name = _fresh(identifier(info.name) or "result", taken)
            self._builder.output(name, self._tensor(info.name, scope))
        return Graph(self._builder.kernel())

    def _input(self, info: onnx.ValueInfoProto, scope: _Scope, taken: set[str]) -> None:
        if info.name in self._given:
            scope.known[info.name] = np.asarray(self._given[info.name])
            return
        if not info.type.HasField("tensor_type"):
            kind = info.type.WhichOneof("value")
            raise UnsupportedError(f"the input {info.name!r} is a {kind}", where=info.name)
        shape = shape_of(info)
        if shape is None:
            raise UnsupportedError(
                f"the input {info.name!r} has sizes that are not known",
                where=info.name,
                cure="export the model with fixed sizes",
            )
        name = _fresh(identifier(info.name) or "input", taken)
        type_ = type_of(info.type.tensor_type.elem_type)
        scope.tensors[info.name] = self._builder.input(name, type_, shape)

    def _tensor(self, name: str, scope: _Scope) -> Tensor:
        found = scope.tensors.get(name)
        if found is None:
            if name not in scope.known:
                raise UnsupportedError(f"nothing computes {name!r}", where=name)
            array = scope.known[name]
            type_of(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
            found = scope.tensors[name] = self._builder.constant(array, identifier(name) or None)
        return found

    def _nodes(self, nodes: Sequence[onnx.NodeProto], scope: _Scope, depth: int) -> None:
        for node in nodes:
            try:
                self._node(node, scope, depth)
            except TilewrightError as error:
                if error.where is not None or isinstance(error, ArgumentError):
                    raise
                raise UnsupportedError(
                    error.what,
                    where=f"node {node.name or '/'.join(node.output)} ({node.op_type})",
                    why=error.why,
                    cure=error.cure,
                ) from error

    def _node(self, node: onnx.NodeProto, scope: _Scope, depth: int) -> None:
        known = [scope.known.get(name) if name else None for name in node.input]
        if all(
            value is not None or not name for value, name in zip(known, node.input, strict=True)
        ):
            results = folded(node, known, self._versions)
            if results is not None:
                scope.known |= dict(zip(node.output, results, strict=False))
                return
        if node.op_type in ("Shape", "Size") and not node.domain:
            shape = self._tensor(node.input[0], scope).shape
            start, end = (0, len(shape))
            given = {each.name: each.i for each in node.attribute}
            start, end, _ = slice(given.get("start"), given.get("end")).indices(len(shape))
            size = np.prod(shape, dtype=np.int64)
            found = np.array(shape[start:end], np.int64) if node.op_type == "Shape" else size
            scope.known[node.output[0]] = np.asarray(found)
            return
        if node.op_type == "Identity" and known[0] is not None:
            scope.known[node.output[0]] = known[0]
            return
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            scope.known[node.output[0]] = array_of(node.attribute[0].t)
            return
        if node.op_type in _CONTROL and not node.domain:
            _CONTROL[node.op_type](self, node, scope, depth)
            return
        handler = TABLE.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if handler is None:
            self._by_body(node, scope, depth)
            return
        place = Place(
            self._builder,
            node.op_type,
            self._versions.get("", 1),
            {each.name: attribute_of(each) for each in node.attribute},
            tuple(node.input),
            known,
            [scope.shapes.get(name) for name in node.output],
        )
        inputs = [self._tensor(name, scope) if name else None for name in node.input]
        with self._builder.at(identifier(node.name or node.op_type)):
            made = handler(place, *inputs)
        for name, tensor in zip(node.output, _listed(made), strict=False):
            if name:
                scope.tensors[name] = tensor

    def _branch(self, node: onnx.NodeProto, scope: _Scope, depth: int) -> None:
        """The arm of an If whose condition is known."""
        condition = scope.known.get(node.input[0])
        if condition is None:
            raise UnsupportedError("the condition of an If depends on data")
        name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
        arm = next(each.g for each in node.attribute if each.name == name)
        inner = self._inside(arm, scope, (), depth)
        for made, outer in zip(arm.output, node.output, strict=True):
            _pass_on(inner, made.name, scope, outer)

    def _inside(
        self, body: onnx.GraphProto, scope: _Scope, given: Sequence[Any], depth: int
    ) -> _Scope:
        """The values inside of a body, which sees those around it; ``given`` are its arguments."""
        inner = _Scope()
        inner.tensors, inner.known = dict(scope.tensors), dict(scope.known)
        for info in body.value_info:
            inner.shapes[info.name] = shape_of(info)
        for tensor in body.initializer:
            inner.known[tensor.name] = array_of(tensor)
        for info, value in zip(body.input, given, strict=True):
            inner.known.pop(info.name, None)
            inner.tensors.pop(info.name, None)
            if isinstance(value, Tensor):
                inner.tensors[info.name] = value
            else:
                inner.known[info.name] = value
        for node in body.node:
            for name in node.output:
                inner.known.pop(name, None)
                inner.tensors.pop(name, None)
        self._nodes(body.node, inner, depth + 1)
        return inner

    def _value(self, scope: _Scope, name: str) -> Any:
        return scope.known[name] if name in scope.known else self._tensor(name, scope)

    def _scan(self, node: onnx.NodeProto, scope: _Scope, depth: int) -> None:
        """A Scan, step by step."""
        given = {each.name: attribute_of(each) for each in node.attribute}
        body, count = given["body"], given["num_scan_inputs"]
        states = [self._value(scope, name) for name in node.input[: len(node.input) - count]]
        sources = [self._tensor(name, scope) for name in node.input[len(node.input) - count :]]
        if self._versions.get("", 1) < 9:
            raise UnsupportedError("a Scan of before version 9")
        dims = [
            n % x.rank
            for n, x in zip(given.get("scan_input_axes", [0] * count), sources, strict=True)
        ]
        turned = given.get("scan_input_directions", [0] * count)
        steps = sources[0].shape[dims[0]]
        rows: list[list[Tensor]] = [[] for _ in node.output[len(states) :]]
        for step in range(_bounded(steps)):
            parts = [
                _row(x, n, steps - 1 - step if back else step)
                for x, n, back in zip(sources, dims, turned, strict=True)
            ]
            inner = self._inside(body, scope, [*states, *parts], depth)
            found = [self._value(inner, each.name) for each in body.output]
            states = found[: len(states)]
            for row, each in zip(rows, body.output[len(states) :], strict=True):
                row.append(self._tensor(each.name, inner))
        axes = given.get("scan_output_axes", [0] * len(rows))
        back = given.get("scan_output_directions", [0] * len(rows))
        made = [_stacked(r[::-1] if b else r, n) for r, n, b in zip(rows, axes, back, strict=True)]
        _hand_out(scope, node.output, [*states, *made])

    def _loop(self, node: onnx.NodeProto, scope: _Scope, depth: int) -> None:
        """A Loop whose number of iterations is known, one after the other."""
        body = next(each.g for each in node.attribute if each.name == "body")
        count = scope.known.get(node.input[0]) if node.input[0] else None
        go_on: Any = (
            scope.known.get(node.input[1]) if len(node.input) > 1 and node.input[1] else True
        )
        if count is None or go_on is None:
            raise UnsupportedError("how often a Loop runs depends on data")
        states = [self._value(scope, name) for name in node.input[2:]]
        rows: list[list[Tensor]] = [[] for _ in node.output[len(states) :]]
        for step in range(_bounded(int(count.reshape(-1)[0]))):
            if not bool(np.asarray(go_on).reshape(-1)[0]):
                break
            given = [np.asarray(step, np.int64), np.asarray(go_on, bool), *states]
            inner = self._inside(body, scope, given, depth)
            go_on = inner.known.get(body.output[0].name)
            if go_on is None:
                raise UnsupportedError("how often a Loop runs depends on data")
            states = [self._value(inner, each.name) for each in body.output[1 : 1 + len(states)]]
            for row, each in zip(rows, body.output[1 + len(states) :], strict=True):
                row.append(self._tensor(each.name, inner))
        _hand_out(scope, node.output, [*states, *(_stacked(row, 0) for row in rows)])

    def _by_body(self, node: onnx.NodeProto, scope: _Scope, depth: int) -> None:
        """Does what the function says that defines the op."""
        if depth > _DEPTH:
            raise UnsupportedError("functions call one another without end")
        own = self._functions.get((node.domain, node.op_type))
        types = []
        for name in node.input:
            shown = onnx.TypeProto()
            if name in scope.known:
                array = scope.known[name]
                number, shape = onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                shown = onnx.helper.make_tensor_type_proto(number, shape)
            elif name in scope.tensors:
                tensor = scope.tensors[name]
                number = onnx.helper.np_dtype_to_tensor_dtype(tensor.dtype.numpy)
                shown = onnx.helper.make_tensor_type_proto(number, tensor.shape)
            types.append(shown)
        body = own if own is not None else body_of(node, self._versions, types)
        inner = _Scope()
        for formal, name in zip(body.input, node.input, strict=False):
            if name in scope.known:
                inner.known[formal] = scope.known[name]
            elif name:
                inner.tensors[formal] = self._tensor(name, scope)
        given = {each.name: each for each in body.attribute_proto}
        given |= usual_attributes(node, self._versions)
        versions, self._versions = (
            self._versions,
            {
                **self._versions,
                **{each.domain: each.version for each in body.opset_import},
            },
        )
        try:
            self._nodes([_with_attributes(each, given) for each in body.node], inner, depth + 1)
        finally:
            self._versions = versions
        for formal, name in zip(body.output, node.output, strict=False):
            if name and formal in inner.known:
                scope.known[name] = inner.known[formal]
            elif name and formal in inner.tensors:
                scope.tensors[name] = inner.tensors[formal]


_CONTROL = {"If": _Reading._branch, "Scan": _Reading._scan, "Loop": _Reading._loop}
# Bodies are built once for each step.
_STEPS = 256


def _bounded(steps: int) -> int:
    if steps > _STEPS:
        raise UnsupportedError(f"a loop of {steps} steps", cure=f"{_STEPS} are unrolled at most")
    return steps


def _pass_on(inner: _Scope, name: str, scope: _Scope, outer: str) -> None:
    if not outer:
        return
    if name in inner.known:
        scope.known[outer] = inner.known[name]
    elif name in inner.tensors:
        scope.tensors[outer] = inner.tensors[name]


def _hand_out(scope: _Scope, names: Sequence[str], values: Sequence[Any]) -> None:
    for name, value in zip(names, values, strict=True):
        if name and isinstance(value, Tensor):
            scope.tensors[name] = value
        elif name:
            scope.known[name] = value


def _row(x: Tensor, n: int, step: int) -> Tensor:
    start = [step if k == n else 0 for k in range(x.rank)]
    stop = [step + 1 if k == n else size for k, size in enumerate(x.shape)]
    return reshape(slice_(x, start, stop), (*x.shape[:n], *x.shape[n + 1 :]))


def _stacked(rows: Sequence[Tensor], axis: int) -> Tensor:
    if not rows:
        raise UnsupportedError("a loop that does not run once")
    n = axis % (rows[0].rank + 1)
    shape = (*rows[0].shape[:n], 1, *rows[0].shape[n:])
    return concatenate([reshape(each, shape) for each in rows], n)


def _with_attributes(
    node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]
) -> onnx.NodeProto:
    """A node of a function's body with the attributes that its call gives."""
    if not any(each.ref_attr_name for each in node.attribute):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for each in node.attribute:
        if not each.ref_attr_name:
            made.attribute.append(each)
        elif each.ref_attr_name in given:
            copy = onnx.AttributeProto()
            copy.CopyFrom(given[each.ref_attr_name])
            copy.name = each.name
            made.attribute.append(copy)
    return made


def _listed(made: Any) -> Sequence[Tensor]:
    return made if isinstance(made, tuple) else (made,)


def _fresh(name: str, taken: set[str]) -> str:
    # `out` and `stream` are keywords of calls.
    stem, number = name, 2
    while name in taken or name in ("out", "stream"):
        name, number = f"{stem}_{number}", number + 1
    taken.add(name)
    return name

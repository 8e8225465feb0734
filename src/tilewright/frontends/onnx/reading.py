"""A model as a graph, node by node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tilewright.frontends.onnx.elements
import tilewright.frontends.onnx.moving
import tilewright.frontends.onnx.multiplying
import tilewright.frontends.onnx.recurrent
import tilewright.frontends.onnx.reducing
import tilewright.frontends.onnx.resizing
import tilewright.frontends.onnx.sampling
import tilewright.frontends.onnx.training
import tilewright.frontends.onnx.transforms
import tilewright.frontends.onnx.windows  # noqa: F401  # they fill the table
from tilewright.errors import ArgumentError, TilewrightError, UnsupportedError, short
from tilewright.frontends.onnx.bodies import body_of, usual_attributes
from tilewright.frontends.onnx.control import CONTROL
from tilewright.frontends.onnx.folding import folded
from tilewright.frontends.onnx.open_dims import Dims, checked_sizes, cure_of
from tilewright.frontends.onnx.scopes import Scope
from tilewright.frontends.onnx.sizes import calculated
from tilewright.frontends.onnx.table import TABLE, Place
from tilewright.frontends.onnx.values import array_of, attribute_of, shape_of, type_of
from tilewright.graph.graph import Graph
from tilewright.graph.opening import opened
from tilewright.ir.expr import StandIn, var
from tilewright.ir.open_sizes import OpenSizes
from tilewright.ir.stmt import ScalarParam
from tilewright.tensor.known import is_open, sizes_array, tensor_of_known
from tilewright.tensor.names import identifier
from tilewright.tensor.tensor import Builder, Tensor, described

_DEPTH = 32
# Nodes are read by ONNX's rules of ranks, attributes and bodies, of which the package checks some:
# what breaks others fails as one of these.
_UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def from_onnx(
    model: Any, known: Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None
) -> Graph:
    """The graph of an ONNX model: a path, or what ``onnx.load`` gives.

    Initializers are constants of it. ``known`` are contents of inputs on which shapes depend, by
    their names; calls do not pass these. Sizes of inputs that the model leaves open stay so, but
    for those that ``sizes`` has, by the names that the model has for dims. Raises `ArgumentError`
    for what is no model or an ill-formed one, and `UnsupportedError` for what is not there, and
    says which node it is.
    """
    loaded = _loaded(model)
    _check_version(loaded)
    try:
        onnx.checker.check_model(loaded)
        loaded = onnx.shape_inference.infer_shapes(loaded)
    except Exception as error:  # the package's own, of several kinds
        raise ArgumentError(
            "the model is ill-formed", why=str(error).strip()[:500], cure="export it again"
        ) from error
    contents = dict(known or {})
    have = contents.keys() | {tensor.name for tensor in loaded.graph.initializer}
    dims = Dims([info for info in loaded.graph.input if info.name not in have])

    def read(open_sizes: OpenSizes, values: Mapping[str, int]) -> Graph:
        return _Reading(loaded, contents, open_sizes, dims, values).graph()

    numbers = {dims.names.get(name, name): size for name, size in (sizes or {}).items()}
    checked_sizes(tuple(dims.names.values()), numbers)
    allowed = [ScalarParam(var(name), 0, None) for name in dims.names.values()]
    return opened(allowed, numbers, read, cure_of)


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
            f"{os.fspath(model)} cannot be read as a model",
            why=str(error).strip()[:500],
            cure="give a model's file, with the files of its data in the same folder",
        ) from error


def _check_version(model: onnx.ModelProto) -> None:
    """`UnsupportedError` for operators of a version that is not known here."""
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > newest:
            raise UnsupportedError(
                f"the model's operators are of version {opset.version}",
                where="opset_import",
                why=f"the package onnx that is installed knows them up to {newest}",
                cure=f"export it with opset {newest} or less, or update the package",
            )


class _Reading:
    """Goes through a model once."""

    def __init__(
        self,
        model: onnx.ModelProto,
        arrays: dict[str, Any],
        open_sizes: OpenSizes,
        dims: Dims,
        values: Mapping[str, int],
    ) -> None:
        self._model = model
        self.builder = Builder(identifier(model.graph.name) or "model", open_sizes)
        self._dims, self._values = dims, values
        self.versions = {opset.domain: opset.version for opset in model.opset_import}
        self._functions = {(f.domain, f.name): f for f in model.functions}
        self._given = arrays

    def graph(self) -> Graph:
        """The graph."""
        top, scope = self._model.graph, Scope()
        for info in (*top.value_info, *top.output):
            scope.shapes[info.name] = self._dims.shape(info, self._values)
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
            self.builder.output(name, _as_declared(info, self.tensor(info.name, scope)))
        return Graph(self.builder.kernel())

    def _input(self, info: onnx.ValueInfoProto, scope: Scope, taken: set[str]) -> None:
        if info.name in self._given:
            scope.known[info.name] = np.asarray(self._given[info.name])
            return
        if not info.type.HasField("tensor_type"):
            kind = info.type.WhichOneof("value")
            raise UnsupportedError(f"the input {info.name!r} is a {kind}", where=info.name)
        shape = self._dims.shape(info, self._values)
        if shape is None:
            raise UnsupportedError(
                f"a size of {info.name!r} cannot be calculated from the others",
                where=info.name,
                why="one that it is divided by is 0",
                cure="give it a name of its own in the model",
            )
        name = _fresh(identifier(info.name) or "input", taken)
        type_ = type_of(info.type.tensor_type.elem_type)
        scope.tensors[info.name] = self.builder.input(name, type_, shape)

    def tensor(self, name: str, scope: Scope) -> Tensor:
        constant = scope.tensors.get(name)
        if constant is None:
            if name not in scope.known:
                raise UnsupportedError(f"nothing computes {name!r}", where=name)
            array = scope.known[name]
            if is_open(array):
                result = tensor_of_known(self.builder, array)
                scope.tensors[name] = result
                return result
            type_of(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
            constant = scope.tensors[name] = self.builder.constant(array, identifier(name) or None)
        return constant

    def _nodes(self, nodes: Sequence[onnx.NodeProto], scope: Scope, depth: int) -> None:
        for node in nodes:
            try:
                self._node(node, scope, depth)
            except TilewrightError as error:
                if error.where is not None or isinstance(error, ArgumentError):
                    raise
                raise UnsupportedError(
                    error.what,
                    where=_place(node),
                    why=error.why,
                    cure=error.cure,
                ) from error
            except _UNFIT as error:
                raise _ill_formed(node, scope, error) from error

    def _node(self, node: onnx.NodeProto, scope: Scope, depth: int) -> None:
        values = [scope.known.get(name) if name else None for name in node.input]
        if all(
            value is not None or not name for value, name in zip(values, node.input, strict=True)
        ):
            of_sizes = any(map(is_open, values))
            results = calculated(node, values) if of_sizes else folded(node, values, self.versions)
            if results is not None:
                scope.known |= dict(zip(node.output, results, strict=False))
                return
        if node.op_type in ("Shape", "Size") and not node.domain:
            shape = self.tensor(node.input[0], scope).shape
            start, end = (0, len(shape))
            bounds = {attribute.name: attribute.i for attribute in node.attribute}
            start, end, _ = slice(bounds.get("start"), bounds.get("end")).indices(len(shape))
            whole = shape[start:end] if node.op_type == "Shape" else prod(shape)
            scope.known[node.output[0]] = sizes_array(whole)
            return
        if node.op_type == "Identity" and values[0] is not None:
            scope.known[node.output[0]] = values[0]
            return
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            scope.known[node.output[0]] = array_of(node.attribute[0].t)
            return
        if node.op_type in CONTROL and not node.domain:
            CONTROL[node.op_type](self, node, scope, depth)
            return
        usual = node.domain in ("", "ai.onnx")
        handler = TABLE.get(node.op_type if usual else f"{node.domain}.{node.op_type}")
        if handler is None:
            self._by_body(node, scope, depth)
            return
        place = Place(
            self.builder,
            node.op_type,
            self.versions.get("", 1),
            {attribute.name: attribute_of(attribute) for attribute in node.attribute},
            tuple(node.input),
            values,
            [scope.shapes.get(name) for name in node.output],
        )
        inputs = [self.tensor(name, scope) if name else None for name in node.input]
        with self.builder.at(identifier(node.name or node.op_type)):
            outputs = handler(place, *inputs)
        for name, tensor in zip(node.output, _listed(outputs), strict=False):
            if name:
                scope.tensors[name] = tensor

    def inside(
        self, body: onnx.GraphProto, scope: Scope, values: Sequence[Any], depth: int
    ) -> Scope:
        """The values inside of a body, which sees those around it; ``values`` are its arguments."""
        inner = Scope()
        inner.tensors, inner.known = dict(scope.tensors), dict(scope.known)
        for info in body.value_info:
            inner.shapes[info.name] = self._dims.shape(info, self._values)
        for tensor in body.initializer:
            inner.known[tensor.name] = array_of(tensor)
        for info, value in zip(body.input, values, strict=True):
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

    def value(self, name: str, scope: Scope) -> Any:
        """What is known of a value, or else its tensor."""
        return scope.known[name] if name in scope.known else self.tensor(name, scope)

    def _by_body(self, node: onnx.NodeProto, scope: Scope, depth: int) -> None:
        """Does what the function says that defines the op."""
        if depth > _DEPTH:
            raise UnsupportedError("functions call one another without end")
        function = self._functions.get((node.domain, node.op_type))
        types = []
        for name in node.input:
            shown = onnx.TypeProto()
            if name in scope.known:
                array = scope.known[name]
                type_ = np.dtype(np.int64) if is_open(array) else array.dtype
                number = onnx.helper.np_dtype_to_tensor_dtype(type_)
                shown = onnx.helper.make_tensor_type_proto(number, array.shape)
            elif name in scope.tensors:
                tensor = scope.tensors[name]
                number = onnx.helper.np_dtype_to_tensor_dtype(tensor.dtype.numpy)
                dims = [None if isinstance(n, StandIn) else n for n in tensor.shape]
                shown = onnx.helper.make_tensor_type_proto(number, dims)
            types.append(shown)
        body = function if function is not None else body_of(node, self.versions, types)
        inner = Scope()
        for formal, name in zip(body.input, node.input, strict=False):
            if name in scope.known:
                inner.known[formal] = scope.known[name]
            elif name:
                inner.tensors[formal] = self.tensor(name, scope)
        attributes = {attribute.name: attribute for attribute in body.attribute_proto}
        attributes |= usual_attributes(node, self.versions)
        versions, self.versions = (
            self.versions,
            {
                **self.versions,
                **{opset.domain: opset.version for opset in body.opset_import},
            },
        )
        try:
            self._nodes(
                [_with_attributes(child, attributes) for child in body.node], inner, depth + 1
            )
        finally:
            self.versions = versions
        for formal, name in zip(body.output, node.output, strict=False):
            scope.take(inner, formal, name)


def _with_attributes(
    node: onnx.NodeProto, values: Mapping[str, onnx.AttributeProto]
) -> onnx.NodeProto:
    """A node of a function's body with the attributes that its call gives."""
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    del copied.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copied.attribute.append(attribute)
        elif attribute.ref_attr_name in values:
            copy = onnx.AttributeProto()
            copy.CopyFrom(values[attribute.ref_attr_name])
            copy.name = attribute.name
            copied.attribute.append(copy)
    return copied


def _ill_formed(node: onnx.NodeProto, scope: Scope, error: Exception) -> ArgumentError:
    """What a node is that makes its handler fail so."""
    types_text = ", ".join(_described(name, scope) for name in node.input)
    attributes = ", ".join(
        f"{attribute.name}={short(attribute_of(attribute))}"
        for attribute in node.attribute
        if not attribute.ref_attr_name
    )
    return ArgumentError(
        f"{node.op_type} is not defined on {types_text or 'nothing'}"
        + (f" with {attributes}" if attributes else ""),
        where=_place(node),
        why=f"{type(error).__name__}: {error}",
        cure="give it what ONNX's operators take; where it has that, please report it",
    )


def _described(name: str, scope: Scope) -> str:
    if name in scope.tensors:
        return described(scope.tensors[name])
    array = scope.known.get(name)
    return "nothing" if array is None else f"known {array.dtype}{list(array.shape)}"


def _as_declared(info: onnx.ValueInfoProto, tensor: Tensor) -> Tensor:
    """A result, which is what the model says of it as far as it says anything."""
    shape = shape_of(info)
    if shape is not None and shape != tensor.shape:
        raise ArgumentError(
            f"the result {info.name!r} is {described(tensor)}, not of the shape {[*shape]}",
            where=info.name,
            why="the model says so of its results",
            cure="export it again",
        )
    number = info.type.tensor_type.elem_type
    if number and type_of(number) is not tensor.dtype:
        raise ArgumentError(
            f"the result {info.name!r} is {described(tensor)}, not of {type_of(number)}",
            where=info.name,
            why="the model says so of its results",
            cure="export it again",
        )
    return tensor


def _place(node: onnx.NodeProto) -> str:
    return f"node {node.name or '/'.join(node.output)} ({node.op_type})"


def _listed(results: Any) -> Sequence[Tensor]:
    return results if isinstance(results, tuple) else (results,)


def _fresh(name: str, taken: set[str]) -> str:
    # `out` and `stream` are keywords of calls.
    stem, number = name, 2
    while name in taken or name in ("out", "stream"):
        name, number = f"{stem}_{number}", number + 1
    taken.add(name)
    return name

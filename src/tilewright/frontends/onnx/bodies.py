"""Ops by the functions that define them, as ONNX's schemas have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from tilewright.errors import UnsupportedError


def body_of(
    node: onnx.NodeProto, versions: Mapping[str, int], types: Sequence[onnx.TypeProto]
) -> onnx.FunctionProto:
    """The function that defines a node's op, for inputs of these types. Raises
    `UnsupportedError`."""
    refusal = UnsupportedError(
        f"the op {node.domain + '.' if node.domain else ''}{node.op_type} is not there",
        cure="export the model without it",
    )
    version = versions.get(node.domain, 1)
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        raise refusal from None
    if schema.has_function:
        body = onnx.FunctionProto()
        body.CopyFrom(schema.function_body)
        return body
    if schema.has_context_dependent_function:
        offered = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        if offered:
            text = schema.get_context_dependent_function_with_opset_version(
                offered[-1], node.SerializeToString(), [t.SerializeToString() for t in types]
            )
            body = onnx.FunctionProto()
            body.ParseFromString(text)
            if body.node:
                return body
    raise refusal


def usual_attributes(
    node: onnx.NodeProto, versions: Mapping[str, int]
) -> dict[str, onnx.AttributeProto]:
    """The attributes of a node, and what those that it leaves out usually are."""
    usual: dict[str, onnx.AttributeProto] = {}
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        schema = None
    for name, attribute in schema.attributes.items() if schema is not None else ():
        if attribute.default_value is not None and attribute.default_value.type:
            usual[name] = attribute.default_value
    return usual | {attribute.name: attribute for attribute in node.attribute}

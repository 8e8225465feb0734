"""Nodes of known contents: what they give is known, too, by the package's own reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

# What is made so is small: shapes, and what they are computed from.
_LIMIT = 1 << 20
_RANDOM = {"RandomNormal", "RandomUniform", "Bernoulli", "Multinomial", "Dropout"}


def folded(
    node: onnx.NodeProto,
    known: Sequence[np.ndarray[Any, Any] | None],
    versions: Mapping[str, int],
) -> list[np.ndarray[Any, Any]] | None:
    """The results of a node; None where it is none to be computed now."""
    if node.op_type.removesuffix("Like") in _RANDOM or any(
        attribute.HasField("g") for attribute in node.attribute
    ):
        return None
    if node.op_type == "DequantizeLinear" and known[0] is not None and known[0].ndim > 1:
        # Weights stay what they are: products are those of the integers.
        return None
    if sum(array.size for array in known if array is not None) > _LIMIT:
        return None
    names = [name for name in node.input if name]
    graph = onnx.helper.make_graph(
        [node],
        "known",
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in dict.fromkeys(names)],
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name],
    )
    imports = [onnx.helper.make_opsetid(domain, number) for domain, number in versions.items()]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    arrays = {n: k for n, k in zip(node.input, known, strict=True) if n}
    try:
        results = ReferenceEvaluator(model).run(None, arrays)
    except Exception:  # whatever it does not know
        return None
    result = iter(np.asarray(output) for output in results)
    return [next(result) if name else np.zeros(0) for name in node.output]

"""What the package ``onnx`` itself computes: a second opinion on a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from tilewright.errors import UnsupportedError
from tilewright.graph.graph import Graph


def evaluated(
    path: Path, graph: Graph, arguments: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The results of ``graph``, which was read from ``path``, by ONNX's reference evaluator on
    ``arguments``.

    Raises `UnsupportedError` for what the evaluator does not run.
    """
    model = onnx.load(path)
    initialized = {tensor.name for tensor in model.graph.initializer}
    names = [entry.name for entry in model.graph.input if entry.name not in initialized]
    feeds = {name: arguments[argument] for name, argument in zip(names, graph.inputs, strict=True)}
    try:
        wanted = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # whatever its ops raise
        raise UnsupportedError(
            "ONNX's reference evaluator does not run the model",
            why=f"{type(error).__name__}: {error}",
        ) from error
    return {name: np.asarray(array) for name, array in zip(graph.outputs, wanted, strict=True)}

"""What the package ``onnx`` itself computes: a second opinion on a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from tilewright.errors import UnsupportedError
from tilewright.graph.graph import Graph

# ONNX's own tests of backends allow as much, relative to a result's size.
TOLERANCE = 1e-3
# It is not annotated.
_FINFO: Any = ml_dtypes.finfo


def reference_fault(
    path: Path, graph: Graph, arguments: Mapping[str, Any], results: Mapping[str, Any]
) -> str | None:
    """How ``results`` of ``graph``, which was read from ``path``, differ from those of ONNX's
    reference evaluator on the same ``arguments``; None if they don't.

    Raises `UnsupportedError` for what the evaluator does not run.
    """
    model = onnx.load(path)
    known = {each.name for each in model.graph.initializer}
    names = [each.name for each in model.graph.input if each.name not in known]
    given = {name: arguments[own] for name, own in zip(names, graph.inputs, strict=True)}
    try:
        wanted = ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # whatever its ops raise
        raise UnsupportedError(
            "ONNX's reference evaluator does not run the model",
            why=f"{type(error).__name__}: {error}",
        ) from error
    for name, want in zip(graph.outputs, wanted, strict=True):
        fault = _difference(np.asarray(results[name]), np.asarray(want))
        if fault is not None:
            return f"{name}: {fault} by ONNX's reference evaluator"
    return None


def _difference(got: NDArray[Any], want: NDArray[Any]) -> str | None:
    if got.shape != want.shape:
        return f"the shape is {got.shape}, {want.shape}"
    if got.dtype.kind in "biu":
        wrong = got != want
    else:
        wide, exact = got.astype(np.complex128), want.astype(np.complex128)
        unit = max(TOLERANCE, 16 * float(_FINFO(got.dtype).eps))
        slack = unit * np.maximum(np.abs(exact), 1)
        with np.errstate(invalid="ignore"):
            near = np.abs(wide - exact) <= slack
        wrong = ~(near | (wide == exact) | (np.isnan(wide) & np.isnan(exact)))
    if not wrong.any():
        return None
    place = tuple(map(int, np.argwhere(wrong)[0]))
    count = f"{int(wrong.sum())} of {got.size} elements differ"
    return f"{count}, the first at {place}: {got[place]}, {want[place]}"

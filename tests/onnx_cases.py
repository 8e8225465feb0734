"""ONNX's backend node cases, which `graph_coverage` counts.

Each is right, wrong, or refused with the reason. Where shapes depend on the contents of an input,
these are given to `from_onnx` as known.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import tilewright as tw
from tilewright.dtypes import dtype
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.frontends.onnx import from_onnx

_UNKNOWN = re.compile(r"shapes depend on the contents of '(.*)'")


@cache
def cases() -> Mapping[str, Any]:
    """All cases of nodes, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = {
            collect_testcase.name: collect_testcase for collect_testcase in collect_testcases(None)
        }
    return dict(sorted(result.items()))


def outcome(case: Any, target: str = "x86") -> tuple[str, str]:
    """``right``, ``wrong`` or ``refused``, or ``broken`` by another error; and why."""
    try:
        for inputs, results in case.data_sets:
            wrong = _compared(case, inputs, results, target)
            if wrong:
                return "wrong", wrong
    except UnsupportedError as error:
        return "refused", error.what
    except TilewrightError as error:
        return "broken", f"{type(error).__name__}: {error.what}"
    return "right", ""


def _array(each: Any) -> Any:
    return numpy_helper.to_array(each) if isinstance(each, TensorProto) else each


def _compared(case: Any, inputs: Sequence[Any], results: Sequence[Any], target: str) -> str:
    inputs, results = [*map(_array, inputs)], [*map(_array, results)]
    if any(not isinstance(array, np.ndarray | np.generic) for array in (*inputs, *results)):
        raise UnsupportedError("its arguments or results are no tensors")
    names = [info.name for info in case.model.graph.input]
    values = dict(zip(names, map(np.asarray, inputs), strict=True))
    known: dict[str, Any] = {}
    while True:
        try:
            graph = from_onnx(case.model, known)
            break
        except UnsupportedError as error:
            asked = _UNKNOWN.match(error.what)
            if asked is None:
                raise
            if asked[1] in values:
                more = {asked[1]: values[asked[1]]}
            else:  # what a function's body makes of some
                more = {n: x for n, x in values.items() if x.dtype.kind in "iu" and x.size < 64}
            if more.keys() <= known.keys():
                raise
            known |= more
    program = tw.compile(graph, target=target, threads=1)
    arrays = [
        np.ascontiguousarray(value).reshape(value.shape)
        for n, value in values.items()
        if n not in known
    ]
    out = {
        name: np.zeros(np.shape(result), np.asarray(result).dtype)
        for name, result in zip(graph.outputs, results, strict=True)
    }
    program(*arrays, out=out)
    for (name, found), wanted in zip(out.items(), results, strict=True):
        type_ = dtype(wanted.dtype)
        if type_.is_float and type_.bits < 32:
            found, wanted = found.astype(np.float32), wanted.astype(np.float32)
        try:
            # Of narrow floats, each step rounds: two units in the last place.
            rtol = 2 * type_.epsilon if type_.is_float and type_.bits < 32 else 0.0
            rtol = max(rtol, case.rtol)
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=max(case.atol, 1e-6))
        except AssertionError as error:
            return f"{name}: " + " ".join(str(error).split())[:160]
    return ""

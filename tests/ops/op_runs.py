"""Runs an op's naive kernel in the interpreter on logical arrays; checks what any op must hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.interpret import pack, run, unpack
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.verify import verify
from tilewright.ops.op import Op


def execute(op: Op, **given: Any) -> dict[str, Any]:
    """The results in float64, by name. Padding of blocks is checked to be zero."""
    kernel = op.kernel()
    verify(kernel)
    text = to_text(kernel)
    assert to_text(parse_kernel(text)) == text
    arrays = {}
    for param in kernel.params:
        # What the kernel does not write stays this: a result's padding must be written too.
        flat = np.full(param.buffer.layout.extent, 77).astype(param.dtype.numpy)
        if param.access != "out":
            values = np.asarray(given[param.name])
            flat = pack(param.buffer, values.astype(param.dtype.numpy))
        arrays[param.name] = flat
    run(kernel, arrays)
    results = {}
    for param in kernel.params:
        if param.access == "in":
            continue
        values = unpack(param.buffer, arrays[param.name])
        again = pack(param.buffer, values)
        held = math.prod(param.buffer.layout.padded_shape(len(param.buffer.shape)))
        if held == param.buffer.layout.extent:
            same = arrays[param.name].astype(np.float64) == again.astype(np.float64)
            assert (same | (again != again)).all(), f"padding of {param.name} is not zero"
        results[param.name] = values.astype(np.float64)
    return results


def integers(shape: tuple[int, ...], dtype: DType, seed: int) -> Any:
    """Small integers, exact in every type; sums of a few hundred products are exact in f32."""
    low, high = (0, 5) if dtype.kind == "uint" else (-4, 5)
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.float64)


def rounded(values: Any, dtype: DType) -> Any:
    """``values`` as a result of ``dtype`` holds them: rounded to nearest even, and saturated."""
    values = np.asarray(values, np.float64)
    if dtype.is_integer:
        return np.clip(np.rint(values), float(dtype.lowest), float(dtype.highest))
    return values.astype(dtype.numpy).astype(np.float64)

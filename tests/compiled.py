"""Compiled kernels to test, and the arrays they are called on."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
from tilewright.engine import CompiledKernel
from tilewright.ops.op import Op
from tilewright.testing.expected import expected


def small(**given: Any) -> Op:
    return tw.convolution(
        "mb1ic8ih6oc32kh3ph1", src="nhwc", dst="nhwc", epilogue=[tw.bias(), tw.relu()], **given
    )


def inputs(kernel: CompiledKernel, seed: int = 0) -> dict[str, Any]:
    """Small integers for what the kernel reads, in the form in which it takes them, unpacked."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for argument in kernel.signature.arguments:
        if argument.access != "out":
            array = kernel.signature.forms[argument.name].empty()
            low = 0 if argument.dtype.kind == "uint" else -4
            array[...] = generator.integers(low, 5, array.shape).astype(array.dtype)
            arrays[argument.name] = array
    return arrays


def packed(kernel: CompiledKernel, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: kernel.pack(name, array) for name, array in arrays.items()}


def check(kernel: CompiledKernel, seed: int = 0) -> None:
    """The kernel gives what the reference accepts."""
    arrays = inputs(kernel, seed)
    wanted = expected(kernel.what, arrays, exact=True)
    value = kernel(**packed(kernel, arrays))
    results = value if isinstance(value, dict) else {next(iter(wanted)): value}
    assert results.keys() == wanted.keys()
    for name, accepted in wanted.items():
        values = np.asarray(results[name]).astype(np.float64)
        np.testing.assert_array_equal(values, accepted.want)

"""Tilewright: a tensor-kernel compiler and runtime.

import tilewright as tw

op = tw.convolution("ic64ih56oc64oh56kh3ph1", epilogue=[tw.bias(), tw.relu()])
kernel = tw.compile(op, target="x86")
packed = kernel.pack("weights", w)
y = kernel(src=x, weights=packed, bias=b)
"""

from tilewright.engine import CompiledKernel, Packed
from tilewright.engine import compile_op as compile
from tilewright.errors import TilewrightError
from tilewright.ops.arguments import convolution, elementwise, matmul, pool, reduce, reorder
from tilewright.ops.epilogue_elements import (
    add,
    bias,
    binary,
    div,
    mul,
    prelu,
    relu,
    scale,
    sub,
    sum,
    unary,
    zero_point,
)

__all__ = [
    "CompiledKernel",
    "Packed",
    "TilewrightError",
    "add",
    "bias",
    "binary",
    "compile",
    "convolution",
    "div",
    "elementwise",
    "matmul",
    "mul",
    "pool",
    "prelu",
    "reduce",
    "relu",
    "reorder",
    "scale",
    "sub",
    "sum",
    "unary",
    "zero_point",
]
__version__ = "0.1.0"

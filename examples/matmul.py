"""A first matmul: described, compiled for this machine, called on numpy's arrays."""

import numpy as np

import tilewright as tw

op = tw.matmul("64x128:128x96", epilogue=[tw.bias(), tw.relu()])
kernel = tw.compile(op, target="x86", threads=2)

rng = np.random.default_rng(0)
x = rng.standard_normal((64, 128)).astype(np.float32)
w = rng.standard_normal((128, 96)).astype(np.float32)
b = rng.standard_normal(96).astype(np.float32)

packed = kernel.pack("weights", w)  # once, for many calls
y = kernel(src=x, weights=packed, bias=b)

error = np.abs(y - np.maximum(x @ w + b, 0)).max()
print(f"config: {kernel.config}")
print(f"largest difference from numpy: {error:.1e}")
assert error < 1e-3

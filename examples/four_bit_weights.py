"""Weights of 4 bits, two to a byte, with a scale for each group of 32 along k."""

import numpy as np

import tilewright as tw

groups = tw.scale("weights", policy="per_ocic", group=32)
op = tw.matmul("3x64:64x16", dtype="f32:s4:f32", epilogue=[groups])
kernel = tw.compile(op, "x86")

rng = np.random.default_rng(0)
x = rng.integers(-8, 9, (3, 64)).astype(np.float32)
held = rng.integers(0, 256, (32, 16), np.uint8)  # the lower half of a byte is the even k
scale = np.exp2(rng.integers(-2, 2, (2, 16))).astype(np.float32)
given = {"src": x, "weights": held, "weights_scale": scale}
for name in kernel.packed:
    given[name] = kernel.pack(name, given[name])
y = kernel(**given)

halves = np.stack([held & 15, held >> 4], axis=1).reshape(64, 16).astype(np.int64)
weights = (halves - 16 * (halves > 7)) * np.repeat(scale, 32, axis=0)
print(f"{held.nbytes} bytes of weights for {weights.size}")
print(f"largest difference from numpy: {np.abs(y - x @ weights).max()}")
assert np.array_equal(y, x @ weights)

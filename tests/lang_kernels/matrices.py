"""A product by joint matrices, as a user writes it."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilewright as tw
from lang_kernels.case import case


@tw.kernel(subgroup=16)
def joint_matmul(a: tw.array("bf16", 2), b: tw.array("bf16", 2), c: tw.array("f32", 2)) -> None:
    row, col = tw.group_id(0) * 16, tw.group_id(1) * 16
    tile_a = tw.joint_matrix("a", 16, 32, "bf16")
    tile_b = tw.joint_matrix("b", 32, 16, "bf16")
    acc = tw.joint_matrix("accumulator", 16, 16, "f32")
    acc.fill(0.0)
    for k in range(0, a.shape[1], 32):
        tile_a.load(a, (row, k))
        tile_b.load(b, (k, col))
        acc.mad(tile_a, tile_b)
    acc.apply(lambda value, i, j: max(value, 0.0))
    acc.store(c, (row, col))


case(
    joint_matmul,
    (2, 48),
    [(1, 16)],
    lambda g: [
        g.integers(-3, 4, (32, 64)).astype(ml_dtypes.bfloat16),
        g.integers(-3, 4, (64, 48)).astype(ml_dtypes.bfloat16),
        np.zeros((32, 48), np.float32),
    ],
    lambda a, b, c: {2: np.maximum(a.astype(np.float32) @ b.astype(np.float32), 0)},
)

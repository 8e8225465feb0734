"""Joint matrices: a subgroup multiplies tiles of bf16, by the machine's own unit if it has one."""

import ml_dtypes
import numpy as np

import tilewright as tw


@tw.kernel(subgroup=16)
def product(a: tw.array("bf16", 2), b: tw.array("bf16", 2), c: tw.array("f32", 2)):
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


rng = np.random.default_rng(0)
a, b = (rng.integers(-3, 4, s).astype(ml_dtypes.bfloat16) for s in ((32, 64), (64, 48)))
c = np.zeros((32, 48), np.float32)
product.launch((2, 48), a, b, c, local=(1, 16), target="x86")
wanted = np.maximum(a.astype(np.float32) @ b.astype(np.float32), 0)
print(f"{int((c == wanted).sum())} of {c.size} sums as numpy has them")
assert (c == wanted).all()

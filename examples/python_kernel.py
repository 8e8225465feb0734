"""A kernel in Python: work-items, memory of a group, a barrier."""

import numpy as np

import tilewright as tw


@tw.kernel
def transpose(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    tile = tw.local((16, 17), "f32")
    row, col = tw.local_id(0), tw.local_id(1)
    top, left = tw.group_id(0) * 16, tw.group_id(1) * 16
    tile[row, col] = x[top + row, left + col]
    tw.barrier()
    y[left + row, top + col] = tile[col, row]


x = np.arange(32 * 48, dtype=np.float32).reshape(32, 48)
for target in ("x86", "interpreter"):  # which defines what a kernel means
    y = np.zeros((48, 32), np.float32)
    transpose.launch((32, 48), x, y, local=(16, 16), target=target)
    assert (y == x.T).all()
    print(f"{target}: y[5, 3] = {y[5, 3]}")

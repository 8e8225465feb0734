"""A schedule of one's own: a matmul, transform by transform, each stage there to be read."""

import numpy as np

import tilewright as tw

op = tw.matmul("64x128:128x96")
schedule = tw.Schedule(op, "x86")
m_o, n_o = schedule.tile("main", {"m": 4, "n": 8})
schedule.set_kind([m_o, n_o], tw.LoopKind.PARALLEL)
schedule.lower_computes(["main"], vector="n", lanes=8, unroll=["m"], order=["k"])
schedule.lower_computes()
print(schedule)  # the record: Python, to be edited and replayed

kernel = tw.compile(schedule, threads=2)
print("stages:", ", ".join(kernel.stages))
x, w = np.ones((64, 128), np.float32), np.full((128, 96), 0.5, np.float32)
assert (kernel(src=x, weights=w) == 64).all()

try:
    schedule.set_kind(m_o, tw.LoopKind.UNROLLED)
except tw.TilewrightError as error:
    print(error)  # a refusal says what, where and why, and the kernel is as before

"""A kernel in Python that says what it may choose, and a search for what is fastest."""

import tempfile
from pathlib import Path

import numpy as np

import tilewright as tw

LOCAL = tw.tunable("LOCAL", (64, 16))


@tw.kernel(local=LOCAL)
def row_sums(
    x: tw.array("f32", 2),
    y: tw.array("f32", 1),
    together: tw.constant = tw.tunable("TOGETHER", (1, 4)),
):
    row, item = tw.group_id(0), tw.local_id(0)
    total = 0.0
    for start in range(item * together, x.shape[1], LOCAL * together):
        for k in tw.static_range(together):
            total += x[row, start + k]
    total = tw.group_reduce(total, "add")
    if item == 0:
        y[row] = total


def size(chosen):
    """The range: a workgroup for each row."""
    return 256 * chosen["LOCAL"]


x = np.random.default_rng(0).standard_normal((256, 1024), np.float32)
y = np.zeros(256, np.float32)
with tempfile.TemporaryDirectory() as folder:
    database = Path(folder) / "tuned.db"
    search = {"budget": "3 trials", "jobs": 1, "threads": 1, "database": database}
    tw.autotune(row_sums, range=size, arguments=(x, y), **search)
    # In this process, or wherever the database is named.
    row_sums.launch(size, x, y, threads=1)
    print(row_sums.explain(size, x, y, threads=1, database=database))
assert np.allclose(y, x.sum(1), atol=1e-3)

"""Right kernels, as one writes them: `tilewright check kernel` finds nothing, with no option."""

import tilewright as tw

LOCAL = 64


@tw.kernel
def double(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = 2 * x[i]


@tw.kernel
def saxpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@tw.kernel
def early_return(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i >= y.shape[0]:
        return
    y[i] = tw.exp(x[i])


@tw.kernel
def stencil(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i > 0 and i < n - 1:
        y[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]


@tw.kernel
def blur(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    row, col = tw.global_id(0), tw.global_id(1)
    height, width = x.shape
    total = 0.0
    for dy in tw.static_range(-1, 2):
        for dx in tw.static_range(-1, 2):
            r, c = row + dy, col + dx
            total += x[r, c] if r >= 0 and r < height and c >= 0 and c < width else 0.0
    y[row, col] = total / 9.0


@tw.kernel
def reverse(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[n - 1 - i] = x[i]


@tw.kernel(local=LOCAL)
def sums(n: tw.s32, x: tw.array("f32", 1), out: tw.array("f32", 1)):
    part = tw.local(LOCAL, "f32")
    item = tw.local_id(0)
    i = tw.global_id(0)
    part[item] = x[i] if i < n else 0.0
    stride = LOCAL // 2
    while stride > 0:
        tw.barrier()
        if item < stride:
            part[item] += part[item + stride]
        stride //= 2
    if item == 0:
        out[tw.group_id(0)] = part[0]


@tw.kernel(local=(16, 16))
def transpose(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    tile = tw.local((16, 17), "f32")
    row, col = tw.local_id(0), tw.local_id(1)
    top, left = tw.group_id(0) * 16, tw.group_id(1) * 16
    tile[row, col] = x[top + row, left + col]
    tw.barrier()
    y[left + row, top + col] = tile[col, row]


@tw.kernel(local=(16, 16))
def guarded_transpose(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    tile = tw.local((16, 17), "f32")
    height, width = x.shape
    row, col = tw.global_id(0), tw.global_id(1)
    if row < height and col < width:
        tile[tw.local_id(0), tw.local_id(1)] = x[row, col]
    tw.barrier()
    row = tw.group_id(1) * 16 + tw.local_id(0)
    col = tw.group_id(0) * 16 + tw.local_id(1)
    if row < width and col < height:
        y[row, col] = tile[tw.local_id(1), tw.local_id(0)]


@tw.kernel
def histogram(n: tw.s32, x: tw.array("u8", 1), counts: tw.array("u32", 1)):
    i = tw.global_id(0)
    if i < n:
        tw.atomic_add(counts, tw.s32(x[i]), 1)


@tw.kernel(local=LOCAL)
def scan(x: tw.array("s32", 1), out: tw.array("s32", 1), totals: tw.array("s32", 1)):
    i = tw.global_id(0)
    out[i] = tw.group_scan(x[i], "add")
    total = tw.group_reduce(x[i], "add")
    if tw.local_id(0) == 0:
        totals[tw.group_id(0)] = total


@tw.kernel
def gather(table: tw.array("f32", 2), rows: tw.array("s32", 1), out: tw.array("f32", 2)):
    i, j = tw.global_id(0), tw.global_id(1)
    out[i, j] = table[rows[i], j]


@tw.kernel(local=(8, 8))
def matmul(a: tw.array("f32", 2), b: tw.array("f32", 2), c: tw.array("f32", 2)):
    tile_a, tile_b = tw.local((8, 8), "f32"), tw.local((8, 8), "f32")
    row, col = tw.local_id(0), tw.local_id(1)
    top, left = tw.group_id(0) * 8, tw.group_id(1) * 8
    total = 0.0
    for start in range(0, a.shape[1], 8):
        tile_a[row, col] = a[top + row, start + col]
        tile_b[row, col] = b[start + row, left + col]
        tw.barrier()
        for k in range(8):
            total += tile_a[row, k] * tile_b[k, col]
        tw.barrier()
    c[top + row, left + col] = total


@tw.kernel
def flat_matmul(
    m: tw.s32,
    n: tw.s32,
    k: tw.s32,
    a: tw.array("f32", 1),
    b: tw.array("f32", 1),
    c: tw.array("f32", 1),
):
    row, col = tw.global_id(0), tw.global_id(1)
    if row < m and col < n:
        total = 0.0
        for i in range(k):
            total += a[row * k + i] * b[i * n + col]
        c[row * n + col] = total


@tw.kernel(local=(1, 32))
def softmax(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    row, item = tw.group_id(0), tw.local_id(1)
    most = -1e30
    for col in range(item, x.shape[1], tw.local_size(1)):
        most = max(most, x[row, col])
    most = tw.group_reduce(most, "max")
    total = 0.0
    for col in range(item, x.shape[1], tw.local_size(1)):
        total += tw.exp(x[row, col] - most)
    total = tw.group_reduce(total, "add")
    for col in range(item, x.shape[1], tw.local_size(1)):
        y[row, col] = tw.exp(x[row, col] - most) / total


@tw.kernel
def nearest(points: tw.array("f32", (None, 4)), to: tw.array("f32", 1), out: tw.array("f32", 1)):
    i = tw.global_id(0)
    difference = tw.load_vector(points, (i, 0), 4) - tw.load_vector(to, 0, 4)
    out[i] = tw.sqrt(tw.vector_reduce(difference * difference, "add"))


@tw.kernel
def sparse(
    start: tw.array("s32", 1),
    column: tw.array("s32", 1),
    value: tw.array("f32", 1),
    x: tw.array("f32", 1),
    y: tw.array("f32", 1),
):
    row = tw.global_id(0)
    if row < y.shape[0]:
        total = 0.0
        for at in range(start[row], start[row + 1]):
            total += value[at] * x[column[at]]
        y[row] = total


@tw.kernel(subgroup=16)
def shuffled(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    y[i] = tw.shuffle(x[i], 15 - tw.lane_id()) + tw.subgroup_reduce(x[i], "max")


@tw.kernel
def quotient(x: tw.array("s32", 1), y: tw.array("s32", 1), out: tw.array("s32", 1)):
    i = tw.global_id(0)
    out[i] = x[i] // y[i] if y[i] != 0 else 0


@tw.kernel
def strided(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    while i < n:
        y[i] = x[i] * x[i]
        i += tw.global_size(0)


@tw.kernel
def pairs(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = x[2 * i] + x[2 * i + 1]


@tw.kernel
def polynomial(x: tw.array("f32", 1), factors: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    own = tw.private(4, "f32")
    for k in range(4):
        own[k] = factors[k]
    total = 0.0
    for k in range(4):
        total = total * x[i] + own[3 - k]
    y[i] = total

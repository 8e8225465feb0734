"""Kernels whose work-items meet: local memory and barriers, groups, subgroups, atomic updates."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from lang_kernels.case import case, floats, whole


@tw.kernel
def tree_sum(x: tw.array("f32", 1), sums: tw.array("f32", 1)) -> None:
    part = tw.local(tw.local_size(0), "f32")
    item = tw.local_id(0)
    part[item] = x[tw.global_id(0)]
    stride = tw.local_size(0) // 2
    while stride > 0:
        tw.barrier()
        if item < stride:
            part[item] += part[item + stride]
        stride //= 2
    if item == 0:
        tw.atomic_add(sums, 0, part[0])


case(
    tree_sum,
    64,
    [16, 32, 64],
    lambda g: [whole(g, 64).astype(np.float32), np.zeros(1, np.float32)],
    lambda x, sums: {1: x.sum(keepdims=True)},
)


@tw.kernel
def group_sums(x: tw.array("s32", 1), total: tw.array("s32", 1), most: tw.array("s32", 1)) -> None:
    value = x[tw.global_id(0)]
    total[tw.global_id(0)] = tw.group_reduce(value, "add")
    greatest = tw.group_reduce(value, "max")
    if tw.group_any(value > 95):
        greatest = -1
    if tw.group_all(value < 200):
        most[tw.global_id(0)] = greatest


def _group_sums(x, total, most):
    rows = x.reshape(-1, 12)
    greatest = np.where((rows > 95).any(1), -1, rows.max(1))
    return {1: np.repeat(rows.sum(1), 12), 2: np.repeat(greatest, 12)}


case(
    group_sums,
    48,
    [12],
    lambda g: [whole(g, 48), np.zeros(48, np.int32), np.zeros(48, np.int32)],
    _group_sums,
)


@tw.kernel
def prefix_sum(x: tw.array("s32", 1), out: tw.array("s32", 1), sums: tw.array("s32", 1)) -> None:
    """The first of three kernels of a prefix sum over groups: each group's own."""
    i = tw.global_id(0)
    value = x[i]
    out[i] = tw.group_scan(value, "add", exclusive=True)
    total = tw.group_broadcast(out[i] + value, tw.local_size(0) - 1)
    if tw.local_id(0) == 0:
        sums[tw.group_id(0)] = total


@tw.kernel
def add_sums(out: tw.array("s32", 1), before: tw.array("s32", 1)) -> None:
    """The last one: what the groups before have."""
    out[tw.global_id(0)] += before[tw.group_id(0)]


def _prefix_sum(x, out, sums):
    rows = x.reshape(4, -1)
    return {1: (rows.cumsum(1) - rows).ravel(), 2: rows.sum(1)}


case(
    prefix_sum,
    48,
    [12],
    lambda g: [whole(g, 48), np.zeros(48, np.int32), np.zeros(4, np.int32)],
    _prefix_sum,
)
case(
    add_sums,
    48,
    [12],
    lambda g: [whole(g, 48), whole(g, 4)],
    lambda out, before: {0: out + np.repeat(before, 12)},
)


@tw.kernel
def scan_blelloch(x: tw.array("s32", 1)) -> None:
    """An exclusive scan of a group, up and down a tree."""
    t = tw.local(32, "s32")
    item = tw.local_id(0)
    t[item] = x[item]
    step = 1
    while step < 32:
        tw.barrier()
        at = (item + 1) * step * 2 - 1
        if at < 32:
            t[at] += t[at - step]
        step *= 2
    tw.barrier()
    if item == 0:
        t[31] = 0
    step = 16
    while step > 0:
        tw.barrier()
        at = (item + 1) * step * 2 - 1
        if at < 32:
            left = t[at - step]
            t[at - step] = t[at]
            t[at] += left
        step //= 2
    tw.barrier()
    x[item] = t[item]


case(
    scan_blelloch,
    32,
    [32],
    lambda g: [whole(g, 32)],
    lambda x: {0: np.cumsum(x) - x},
)


@tw.kernel
def histogram(x: tw.array("u8", 1), counts: tw.array("u32", 1), n: tw.s32) -> None:
    own = tw.local(16, "u32")
    item = tw.local_id(0)
    for i in range(item, 16, tw.local_size(0)):
        own[i] = 0
    tw.barrier()
    i = tw.global_id(0)
    while i < n:
        tw.atomic_add(own, tw.s32(x[i]) % 16, 1)
        i += tw.global_size(0)
    tw.barrier()
    for i in range(item, 16, tw.local_size(0)):
        tw.atomic_add(counts, i, own[i])


case(
    histogram,
    32,
    [8, 16],
    lambda g: [g.integers(0, 256, 100).astype(np.uint8), np.zeros(16, np.uint32), 100],
    lambda x, counts, n: {1: np.bincount(x % 16, minlength=16)},
)


@tw.kernel
def transpose(x: tw.array("f32", 2), y: tw.array("f32", 2)) -> None:
    tile = tw.local((8, 9), "f32")
    row, col = tw.local_id(0), tw.local_id(1)
    top, left = tw.group_id(0) * 8, tw.group_id(1) * 8
    tile[row, col] = x[top + row, left + col]
    tw.barrier()
    y[left + row, top + col] = tile[col, row]


case(
    transpose,
    (16, 24),
    [(8, 8)],
    lambda g: [floats(g, 16, 24), np.zeros((24, 16), np.float32)],
    lambda x, y: {1: x.T},
)


@tw.kernel
def bitonic_step(x: tw.array("f32", 1)) -> None:
    """Sorts the elements of a group."""
    t = tw.local(32, "f32")
    item = tw.local_id(0)
    i = tw.global_id(0)
    t[item] = x[i]
    for size in tw.static_range(1, 6):
        for step in tw.static_range(size):
            other = item ^ (1 << (size - 1 - step))
            tw.barrier()
            up = (item & (1 << size)) == 0
            mine, theirs = t[item], t[other]
            tw.barrier()
            t[item] = min(mine, theirs) if (item < other) == up else max(mine, theirs)
    x[i] = t[item]


case(
    bitonic_step,
    64,
    [32],
    lambda g: [floats(g, 64)],
    lambda x: {0: _alternating(x)},
)


def _alternating(x):
    return np.sort(x.reshape(-1, 32), axis=1).ravel()


@tw.kernel
def radix_step(keys: tw.array("u32", 1), out: tw.array("u32", 1), bit: tw.u32) -> None:
    """Splits a group's keys by a bit, in their order."""
    i = tw.global_id(0)
    key = keys[i]
    one = tw.s32(key >> bit) & 1
    ones_before = tw.group_scan(one, "add", exclusive=True)
    zeros = tw.local_size(0) - tw.group_reduce(one, "add")
    item = tw.local_id(0)
    place = zeros + ones_before if one == 1 else item - ones_before
    out[i - item + place] = key


def _radix_step(keys, out, bit):
    rows = keys.reshape(-1, 16)
    order = np.argsort((rows >> bit) & 1, axis=1, kind="stable")
    return {1: np.take_along_axis(rows, order, 1).ravel()}


case(
    radix_step,
    64,
    [16],
    lambda g: [g.integers(0, 2**32, 64, dtype=np.uint32), np.zeros(64, np.uint32), 3],
    _radix_step,
)


@tw.kernel
def softmax_rows(x: tw.array("f32", 2), y: tw.array("f32", 2)) -> None:
    row, item = tw.group_id(0), tw.local_id(1)
    width = x.shape[1]
    most = -1e30
    for col in range(item, width, tw.local_size(1)):
        most = max(most, x[row, col])
    most = tw.group_reduce(most, "max")
    total = 0.0
    for col in range(item, width, tw.local_size(1)):
        total += tw.exp(x[row, col] - most)
    total = tw.group_reduce(total, "add")
    for col in range(item, width, tw.local_size(1)):
        y[row, col] = tw.exp(x[row, col] - most) / total


def _softmax(x, y):
    e = np.exp(x - x.max(1, keepdims=True))
    return {1: e / e.sum(1, keepdims=True)}


case(
    softmax_rows,
    (5, 16),
    [(1, 16)],
    lambda g: [floats(g, 5, 37), np.zeros((5, 37), np.float32)],
    _softmax,
    1e-5,
)


@tw.kernel(subgroup=8)
def layer_norm(x: tw.array("f32", 2), y: tw.array("f32", 2), epsilon: tw.f32) -> None:
    """A row for each subgroup."""
    row, lane = tw.global_id(0), tw.lane_id()
    width = x.shape[1]
    total, squares = 0.0, 0.0
    for col in range(lane, width, tw.subgroup_size()):
        value = x[row, col]
        total += value
        squares += value * value
    mean = tw.subgroup_reduce(total, "add") / tw.f32(width)
    variance = tw.subgroup_reduce(squares, "add") / tw.f32(width) - mean * mean
    factor = tw.rsqrt(variance + epsilon)
    for col in range(lane, width, tw.subgroup_size()):
        y[row, col] = (x[row, col] - mean) * factor


def _layer_norm(x, y, epsilon):
    return {1: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + epsilon)}


case(
    layer_norm,
    (6, 8),
    [(1, 8), (2, 8), None],
    lambda g: [floats(g, 6, 19), np.zeros((6, 19), np.float32), 1e-5],
    _layer_norm,
    1e-4,
)


@tw.kernel(subgroup=16)
def subgroup_scans(x: tw.array("s32", 1), out: tw.array("s32", (4, None))) -> None:
    i = tw.global_id(0)
    value = x[i]
    out[0, i] = tw.subgroup_scan(value, "add")
    out[1, i] = tw.subgroup_scan(value, "max", exclusive=True)
    out[2, i] = tw.shuffle(value, 15 - tw.lane_id()) + tw.subgroup_broadcast(value, 3)
    both = tw.s32(tw.subgroup_any(value == 50)) * 2 + tw.s32(tw.subgroup_all(value >= 0))
    out[3, i] = both * 1000 + tw.shuffle_up(value) + tw.shuffle_down(value, 2)


def _subgroup_scans(x, out):
    rows = x.reshape(-1, 16)
    before = np.full_like(rows, -(2**31))
    before[:, 1:] = np.maximum.accumulate(rows, 1)[:, :-1]
    up, down = rows.copy(), rows.copy()
    up[:, 1:], down[:, :-2] = rows[:, :-1], rows[:, 2:]
    some = (rows == 50).any(1, keepdims=True)
    result = [
        rows.cumsum(1),
        before,
        rows[:, ::-1] + rows[:, 3:4],
        (some * 2 + 1) * 1000 + up + down,
    ]
    return {1: np.stack([array.ravel() for array in result])}


case(
    subgroup_scans,
    64,
    [16, 32, 64],
    lambda g: [whole(g, 64), np.zeros((4, 64), np.int32)],
    _subgroup_scans,
)


@tw.kernel
def tiled_matmul(a: tw.array("f32", 2), b: tw.array("f32", 2), c: tw.array("f32", 2)) -> None:
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


case(
    tiled_matmul,
    (16, 24),
    [(8, 8)],
    lambda g: [floats(g, 16, 32), floats(g, 32, 24), np.zeros((16, 24), np.float32)],
    lambda a, b, c: {2: a @ b},
    1e-4,
)


@tw.kernel
def flash_attention(
    q: tw.array("f32", ("m", 16)),
    k: tw.array("f32", ("n", 16)),
    v: tw.array("f32", ("n", 16)),
    out: tw.array("f32", ("m", 16)),
    scale: tw.f32,
) -> None:
    """A row of queries for each work-item; keys and values go through local memory by tiles."""
    keys, values = tw.local((8, 16), "f32"), tw.local((8, 16), "f32")
    row, item = tw.global_id(0), tw.local_id(0)
    query = tw.private(16, "f32")
    total = tw.private(16, "f32")
    for d in range(16):
        query[d] = q[row, d] * scale
        total[d] = 0.0
    most, weight = -1e30, 0.0
    for start in range(0, k.shape[0], 8):
        tw.barrier()
        for d in range(16):
            keys[item, d] = k[start + item, d]
            values[item, d] = v[start + item, d]
        tw.barrier()
        for j in range(8):
            score = 0.0
            for d in range(16):
                score += query[d] * keys[j, d]
            greater = max(most, score)
            old, new = tw.exp(most - greater), tw.exp(score - greater)
            weight = weight * old + new
            for d in range(16):
                total[d] = total[d] * old + new * values[j, d]
            most = greater
    for d in range(16):
        out[row, d] = total[d] / weight


def _attention(q, k, v, out, scale):
    scores = q @ k.T * scale
    e = np.exp(scores - scores.max(1, keepdims=True))
    return {3: e @ v / e.sum(1, keepdims=True)}


case(
    flash_attention,
    16,
    [8],
    lambda g: [
        floats(g, 16, 16),
        floats(g, 24, 16),
        floats(g, 24, 16),
        np.zeros((16, 16), np.float32),
        0.25,
    ],
    _attention,
    1e-4,
)


@tw.kernel
def queue(x: tw.array("s32", 1), found: tw.array("s32", 1), count: tw.array("s32", 1)) -> None:
    """Packs what is even, in any order; then each of the packed is marked once."""
    i = tw.global_id(0)
    if x[i] % 2 == 0:
        place = tw.atomic_add(count, 0, 1)
        tw.atomic_exchange(found, place, x[i])
        tw.atomic_compare_exchange(found, place, x[i], -x[i], order="acq_rel")


def _queue(x, found, count):
    return {2: np.array([np.count_nonzero(x % 2 == 0)])}


case(
    queue,
    40,
    [None, 8],
    lambda g: [whole(g, 40), np.zeros(40, np.int32), np.zeros(1, np.int32)],
    _queue,
)

"""Kernels with a planted fault each, which `tilewright check kernel` finds, with no option.

The comment on a kernel is the kind of fault.
"""

import tilewright as tw

LOCAL = 64


# data race
@tw.kernel
def one_element(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < n:
        y[0] = x[i]


# out of bounds
@tw.kernel
def next_element(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = x[i + 1]


# out of bounds
@tw.kernel
def element_before(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = x[i] - x[i - 1]


# out of bounds
@tw.kernel
def guard_one_too_far(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i <= n:
        y[i] = 2 * x[i]


# out of bounds
@tw.kernel
def return_one_too_late(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i > y.shape[0]:
        return
    y[i] = tw.exp(x[i])


# out of bounds
@tw.kernel(local=LOCAL)
def guard_on_one_side(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    value = x[i]
    if i < n:
        y[i] = value * x[i]


# out of bounds
@tw.kernel
def loop_one_too_far(x: tw.array("f32", 2), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    total = 0.0
    for k in range(x.shape[1] + 1):
        total += x[i, k]
    y[i] = total


# out of bounds
@tw.kernel
def swapped(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    row, col = tw.global_id(0), tw.global_id(1)
    if row < y.shape[0] and col < y.shape[1]:
        y[col, row] = x[row, col]


# out of bounds
@tw.kernel
def stencil_without_guard(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    row, col = tw.global_id(0), tw.global_id(1)
    width = x.shape[1]
    if row > 0 and col > 0 and col < width - 1:
        y[row, col] = x[row - 1, col] + x[row + 1, col] + x[row, col - 1] + x[row, col + 1]


# out of bounds
@tw.kernel(local=LOCAL)
def local_beyond(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    part = tw.local(LOCAL, "f32")
    item = tw.local_id(0)
    part[item] = x[tw.global_id(0)]
    tw.barrier()
    y[tw.global_id(0)] = part[item + 1]


# out of bounds
@tw.kernel
def reversed_one_off(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = x[i]
    y[n - i] = x[i]


# data race
@tw.kernel(local=LOCAL)
def no_barrier(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    part = tw.local(LOCAL, "f32")
    item = tw.local_id(0)
    part[item] = x[tw.global_id(0)]
    y[tw.global_id(0)] = part[LOCAL - 1 - item]


# data race
@tw.kernel(local=LOCAL)
def barrier_before_the_loop(x: tw.array("f32", 1), out: tw.array("f32", 1)):
    part = tw.local(LOCAL, "f32")
    item = tw.local_id(0)
    part[item] = x[tw.global_id(0)]
    stride = LOCAL // 2
    tw.barrier()
    while stride > 0:
        if item < stride:
            part[item] += part[item + stride]
        stride //= 2
    if item == 0:
        out[tw.group_id(0)] = part[0]


# data race
@tw.kernel(local=LOCAL)
def group_forgotten(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    y[tw.local_id(0)] = 2 * x[tw.global_id(0)]


# data race
@tw.kernel
def counts_without_atomics(x: tw.array("u8", 1), counts: tw.array("u32", 1)):
    i = tw.global_id(0)
    counts[tw.s32(x[i]) // 16] += 1


# data race
@tw.kernel
def in_place(x: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i > 0:
        x[i] = x[i - 1]


# data race
@tw.kernel
def two_columns(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    row, col = tw.global_id(0), tw.global_id(1)
    y[row, col // 2] = x[row, col]


# uninitialized read
@tw.kernel
def private_unset(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    own = tw.private(4, "f32")
    for k in range(3):
        own[k] = x[i]
    y[i] = own[0] + own[3]


# uninitialized read
@tw.kernel(local=LOCAL)
def local_half_set(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    part = tw.local(LOCAL, "f32")
    item = tw.local_id(0)
    if item < LOCAL // 2:
        part[item] = x[tw.global_id(0)]
    tw.barrier()
    y[tw.global_id(0)] = part[item]


# divergent barrier
@tw.kernel(local=LOCAL)
def barrier_for_some(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    part = tw.local(LOCAL, "f32")
    item = tw.local_id(0)
    i = tw.global_id(0)
    if i < n:
        part[item] = x[i]
        tw.barrier()
        y[i] = part[item]


# division by zero
@tw.kernel
def quotient(x: tw.array("s32", 1), y: tw.array("s32", 1), out: tw.array("s32", 1)):
    i = tw.global_id(0)
    out[i] = x[i] // y[i]


# out of bounds
@tw.kernel
def flat_rows(n: tw.s32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    row, col = tw.global_id(0), tw.global_id(1)
    if col < n:
        y[row * n + col] = x[row * n + col + 1]


# out of bounds
@tw.kernel(local=(8, 8))
def tile_of_the_next(a: tw.array("f32", 2), b: tw.array("f32", 2)):
    tile = tw.local((8, 8), "f32")
    row, col = tw.local_id(0), tw.local_id(1)
    tile[row, col] = a[tw.group_id(0) * 8 + row + 8, tw.group_id(1) * 8 + col]
    tw.barrier()
    b[tw.group_id(0) * 8 + row, tw.group_id(1) * 8 + col] = tile[col, row]


# data race
@tw.kernel(subgroup=16)
def lanes_race(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    y[i - tw.lane_id()] = x[i]


# out of bounds
@tw.kernel
def vector_beyond(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = tw.vector_reduce(tw.load_vector(x, i, 4), "add")


# out of bounds
@tw.kernel
def place_one_off(table: tw.array("f32", 1), at: tw.array("s32", 1), out: tw.array("f32", 1)):
    i = tw.global_id(0)
    out[i] = table[at[i] + 1]

"""Kernels in Python that tests submit to queues: on 16 bits of integers, so that the order in which
they run is seen in what comes out; and a chain of two."""

from __future__ import annotations

import numpy as np

import tilewright as tw

MASK = 0xFFFF
N = 64


@tw.kernel
def scale_add(n: tw.s32, a: tw.s32, x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = (a * y[i] + x[i]) & 0xFFFF


@tw.kernel
def add(n: tw.s32, x: tw.array("s32", 1), y: tw.array("s32", 1), z: tw.array("s32", 1)):
    i = tw.global_id(0)
    if i < n:
        z[i] = (x[i] + 3 * y[i]) & 0xFFFF


@tw.kernel
def step(n: tw.s32, x: tw.array("s32", 1)):
    i = tw.global_id(0)
    if i < n:
        x[i] = (5 * x[i] + 1) & 0xFFFF


@tw.kernel
def checked(n: tw.s32, most: tw.s32, x: tw.array("s32", 1)):
    i = tw.global_id(0)
    if i < n:
        assert x[i] < most, "too large"
        x[i] = x[i] + 1


def ints(*values: int) -> np.ndarray:
    return np.resize(np.array(values or range(N), np.int32), N)


class Chain:
    """Two kernels, from x by way of t to y."""

    def __init__(self, queue: tw.Queue) -> None:
        self.queue = queue
        self.x, self.t, self.y = (queue.buffer(ints(*v)) for v in ((), (1,), (2,)))

    def submit(self) -> tw.Event:
        first = self.queue.submit(add, (N,), N, self.x, ints(0), self.t)
        second = self.queue.submit(scale_add, (N,), N, 5, self.t, self.y)
        assert first is second
        return second


def after() -> np.ndarray:
    """What `Chain.submit` leaves in y."""
    return (5 * 2 + ints()) & 0xFFFF

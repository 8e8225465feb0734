"""Kernels in Python that tests submit to queues: on 16 bits of integers, so that the order in which
they run is seen in what comes out."""

from __future__ import annotations

import tilewright as tw

MASK = 0xFFFF


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

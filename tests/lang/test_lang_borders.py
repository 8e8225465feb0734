"""Neighbours across the borders of arrays: clamped, or around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.dtypes import dtype
from tilewright.interpret import run as interpret
from tilewright.ir import parse_kernel

TARGETS = ["interpreter", "x86", *DEVICES]


@tw.kernel
def clamped(n: tw.s32, x: tw.array("T", 1), y: tw.array("T", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = x[max(i - 1, 0)] + x[min(i + 1, n - 1)] + x[i]


@tw.kernel
def around(n: tw.s32, x: tw.array("T", 1), y: tw.array("T", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = x[(i + n - 3) % n] - x[(i + 5) % n]


@tw.kernel
def reflected(n: tw.s32, m: tw.s32, x: tw.array("f32", 2), y: tw.array("f32", 2)):
    i, j = tw.global_id(0), tw.global_id(1)
    if i < n and j < m:
        left = j - 2 if j >= 2 else 2 - j
        y[i, j] = x[max(i - 1, 0), left] * 2.0 + x[i, min(j + 1, m - 1)]


@tw.kernel(local=(64,))
def in_groups(x: tw.array("f32", 1), y: tw.array("f32", 1)):
    tile = tw.local((64,), "f32")
    i = tw.local_id(0)
    tile[i] = x[tw.global_id(0)]
    tw.barrier()
    y[tw.global_id(0)] = tile[(i + 1) % 64] - tile[(i + 63) % 64]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", [np.float32, np.int16, np.float64])
@pytest.mark.parametrize("n", [1, 16, 61, 200])
def test_rows(target: str, kind: type, n: int) -> None:
    x = np.random.default_rng(n).integers(-99, 99, n).astype(kind)
    places = np.arange(n)
    y, z = np.zeros_like(x), np.zeros_like(x)
    clamped.launch((n,), n, x, y, target=target)
    around.launch((n,), n, x, z, target=target)
    assert (y == x[np.maximum(places - 1, 0)] + x[np.minimum(places + 1, n - 1)] + x).all()
    assert (z == x[(places + n - 3) % n] - x[(places + 5) % n]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_images(target: str) -> None:
    n, m = 7, 83
    x = np.random.default_rng(0).integers(-99, 99, (n, m)).astype(np.float32)
    y = np.zeros_like(x)
    reflected.launch((n, m), n, m, x, y, target=target)
    rows, columns = np.maximum(np.arange(n) - 1, 0), np.arange(m)
    left = np.where(columns >= 2, columns - 2, 2 - columns)
    expected = x[rows][:, left] * 2 + x[:, np.minimum(columns + 1, m - 1)]
    assert (y == expected).all()


@pytest.mark.parametrize("target", TARGETS)
def test_local_memory(target: str) -> None:
    x = np.random.default_rng(0).integers(-99, 99, 256).astype(np.float32)
    y = np.zeros_like(x)
    in_groups.launch((256,), x, y, target=target)
    groups = x.reshape(4, 64)
    assert (y.reshape(4, 64) == np.roll(groups, -1, 1) - np.roll(groups, 1, 1)).all()


@pytest.mark.parametrize(
    ("place", "near"),
    [("max(i - 1, 0)", True), ("(i + 3) % n", True), ("i // 2 % n", False), ("s64(p[i])", False)],
)
def test_vectors_without_a_border_are_one_load(place: str, near: bool) -> None:
    kernel = parse_kernel(f"""
    kernel k(n: s64 in 1..1000, in x: f32[n], in p: s32[n], out y: f32[n]):
      parallel for o in n // 16:
        vector for l in 16:
          i = o * 16 + l
          y[i] = x[{place}]
    """)
    text = tw.compile(kernel, target="x86").source("llvm")
    assert ("usual" in text) == near


# What bends, and whether the last lane's place says where all of them are.
BENT = {
    "max(i - 1, 0)": True,
    "min(i + 1, n - 1)": True,
    "min(max(i - 3, 2), n - 5)": True,
    "max(i, 9) + min(i, 40)": False,
    "(i + 3) % n": True,
    "i % 5": True,
    "max(i, 20) % 7": False,
    "max(2 * i, n) - n": False,
    "min(s64(s32(i) + s32(1)), n - 1)": True,
    "select(i < 37, i, 0)": False,
    "n - 1 - max(i - 1, 0)": False,
}


@pytest.mark.parametrize("place", BENT)
def test_places_that_bend(place: str) -> None:
    kernel = parse_kernel(f"""
    kernel k(n: s64 in 1..1000, in x: f32[2 * n], out y: f32[n]):
      parallel for o in n // 16:
        vector for l in 16:
          i = o * 16 + l
          y[i] = x[{place}]
    """)
    compiled = tw.compile(kernel, target="x86")
    assert ("icmp eq i16" not in compiled.source("llvm")) == BENT[place]
    x, y = np.arange(160, dtype=np.float32), np.zeros(80, np.float32)
    wanted = y.copy()
    compiled(n=80, x=x, y=y)
    interpret(kernel, {"n": 80, "x": x, "y": wanted})
    assert wanted.any() and (y == wanted).all()


# What is held at a border, and its places for all lanes.
HELD: dict[str, Callable[[Any, int], Any]] = {
    "max(i - 1, 0)": lambda i, n: np.maximum(i - 1, 0),
    "min(i + 1, n - 1)": lambda i, n: np.minimum(i + 1, n - 1),
    "min(max(i - 3, 2), n - 5)": lambda i, n: np.minimum(np.maximum(i - 3, 2), n - 5),
    "min(s64(s32(i) + s32(1)), n - 1)": lambda i, n: np.minimum(i + 1, n - 1),
    "(i + 3) % n": lambda i, n: (i + 3) % n,
}


@pytest.mark.parametrize("place", HELD)
@pytest.mark.parametrize("kind", ["f32", "f64", "s8", "bf16"])
def test_lanes_that_are_held_at_a_border(place: str, kind: str) -> None:
    """Vectors with the border anywhere, with two of them, and after them."""
    kernel = parse_kernel(f"""
    kernel k(n: s64 in 1..1000, m: s64 in 1..1000, in x: {kind}[2 * m], out y: {kind}[m]):
      parallel for o in m // 16:
        vector for l in 16:
          i = o * 16 + l
          y[i] = x[{place}]
    """)
    compiled = tw.compile(kernel, target="x86")
    assert ("icmp ule i64" in compiled.source("llvm")) == ("%" not in place)
    x = np.arange(160).astype(dtype(kind).numpy)
    for n in (*range(7, 81), 90):
        y = np.zeros(80, x.dtype)
        compiled(n=n, m=80, x=x, y=y)
        assert (y == x[HELD[place](np.arange(80), n)]).all(), n

"""Kernels whose work-items do not meet."""

from __future__ import annotations

import math

import numpy as np

import tilewright as tw
from lang_kernels.case import case, floats, whole


@tw.kernel
def saxpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


case(
    saxpy,
    128,
    [None, 1, 16, 64, 128],
    lambda g: [100, np.float32(2.5), floats(g, 100), floats(g, 100)],
    lambda n, a, x, y: {3: a * x + y},
    1e-6,
)


@tw.function
def normal(x):
    return 0.5 * (1.0 + tw.erf(x * math.sqrt(0.5)))


@tw.kernel
def black_scholes(
    price: tw.array("f32", 1),
    strike: tw.array("f32", 1),
    years: tw.array("f32", 1),
    call: tw.array("f32", 1),
    put: tw.array("f32", 1),
    rate: tw.f32,
    volatility: tw.f32,
) -> None:
    i = tw.global_id(0)
    if i >= call.shape[0]:
        return
    s, k, t = price[i], strike[i], years[i]
    spread = volatility * tw.sqrt(t)
    d1 = (tw.log(s / k) + (rate + 0.5 * volatility * volatility) * t) / spread
    d2 = d1 - spread
    discounted = k * tw.exp(-rate * t)
    call[i] = s * normal(d1) - discounted * normal(d2)
    put[i] = discounted * normal(-d2) - s * normal(-d1)


def _options(price, strike, years, call, put, rate, volatility):
    phi = np.vectorize(lambda x: 0.5 * (1 + math.erf(x * math.sqrt(0.5))))
    s, k, t = (array.astype(np.float64) for array in (price, strike, years))
    d1 = (np.log(s / k) + (rate + 0.5 * volatility**2) * t) / (volatility * np.sqrt(t))
    d2 = d1 - volatility * np.sqrt(t)
    discounted = k * np.exp(-rate * t)
    return {
        3: s * phi(d1) - discounted * phi(d2),
        4: discounted * phi(-d2) - s * phi(-d1),
    }


case(
    black_scholes,
    100,
    [None, 10, 50],
    lambda g: [
        g.uniform(5, 30, 100).astype(np.float32),
        g.uniform(1, 100, 100).astype(np.float32),
        g.uniform(0.25, 10, 100).astype(np.float32),
        np.zeros(100, np.float32),
        np.zeros(100, np.float32),
        0.02,
        0.3,
    ],
    _options,
    2e-5,
)


@tw.function
def escape(cx, cy, most):
    x = 0.0
    y = 0.0
    for k in range(most):
        if x * x + y * y > 4.0:
            return k
        x, y = x * x - y * y + cx, 2.0 * x * y + cy
    return most


@tw.kernel
def mandelbrot(most: tw.s32, out: tw.array("s32", 2)) -> None:
    row, col = tw.global_id(0), tw.global_id(1)
    height, width = out.shape
    if row >= height or col >= width:
        return
    cx = 3.0 * tw.f32(col) / tw.f32(width) - 2.0
    cy = 2.0 * tw.f32(row) / tw.f32(height) - 1.0
    out[row, col] = escape(cx, cy, most)


def _mandelbrot(most, out):
    f = np.float32
    height, width = out.shape
    cy, cx = np.meshgrid(
        f(2) * np.arange(height, dtype=f) / f(height) - f(1),
        f(3) * np.arange(width, dtype=f) / f(width) - f(2),
        indexing="ij",
    )
    x, y, count = np.zeros_like(cx), np.zeros_like(cx), np.full(out.shape, most)
    for k in range(most):
        with np.errstate(all="ignore"):
            count[(x * x + y * y > 4) & (count == most)] = k
            x, y = x * x - y * y + cx, f(2) * x * y + cy
    return {1: count}


case(
    mandelbrot,
    (12, 20),
    [None, (3, 4), (1, 20), (12, 1)],
    lambda g: [20, np.zeros((11, 19), np.int32)],
    _mandelbrot,
)


@tw.kernel
def stencil2d(x: tw.array("f32", 2), y: tw.array("f32", 2)) -> None:
    row, col = tw.global_id(0), tw.global_id(1)
    height, width = x.shape
    inside = row > 0 and row < height - 1 and col > 0 and col < width - 1
    if inside:
        around = x[row - 1, col] + x[row + 1, col] + x[row, col - 1] + x[row, col + 1]
        y[row, col] = 0.25 * around


def _stencil2d(x, y):
    y = y.copy()
    y[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return {1: y}


case(
    stencil2d,
    (12, 16),
    [None, (4, 4), (1, 16)],
    lambda g: [floats(g, 12, 16), np.zeros((12, 16), np.float32)],
    _stencil2d,
    1e-6,
)


@tw.kernel
def stencil3d(x: tw.array("f32", 3), y: tw.array("f32", 3)) -> None:
    i, j, k = tw.global_id(0), tw.global_id(1), tw.global_id(2)
    a, b, c = x.shape
    total = 0.0
    for d in tw.static_range(-1, 2, 2):
        total += x[i + d, j, k] if 0 <= i + d < a else 0.0
        total += x[i, j + d, k] if 0 <= j + d < b else 0.0
        total += x[i, j, k + d] if 0 <= k + d < c else 0.0
    y[i, j, k] = total - 6.0 * x[i, j, k]


def _stencil3d(x, y):
    p = np.pad(x, 1)
    around = p[:-2, 1:-1, 1:-1] + p[1:-1, :-2, 1:-1] + p[1:-1, 1:-1, :-2]
    around = around + p[2:, 1:-1, 1:-1] + p[1:-1, 2:, 1:-1] + p[1:-1, 1:-1, 2:]
    return {1: around - 6 * x}


case(
    stencil3d,
    (4, 5, 8),
    [None, (2, 1, 4), (1, 5, 8)],
    lambda g: [floats(g, 4, 5, 8), np.zeros((4, 5, 8), np.float32)],
    _stencil3d,
    1e-5,
)


@tw.kernel
def nbody(position: tw.array("f32", ("n", 4)), acceleration: tw.array("f32", ("n", 3))) -> None:
    i = tw.global_id(0)
    x, y, z = position[i, 0], position[i, 1], position[i, 2]
    ax, ay, az = 0.0, 0.0, 0.0
    for j in range(position.shape[0]):
        dx, dy, dz = position[j, 0] - x, position[j, 1] - y, position[j, 2] - z
        inverse = tw.rsqrt(dx * dx + dy * dy + dz * dz + 0.01)
        scale = position[j, 3] * inverse * inverse * inverse
        ax += scale * dx
        ay += scale * dy
        az += scale * dz
    acceleration[i, 0] = ax
    acceleration[i, 1] = ay
    acceleration[i, 2] = az


def _nbody(position, acceleration):
    p = position.astype(np.float64)
    d = p[None, :, :3] - p[:, None, :3]
    scale = p[None, :, 3] / ((d**2).sum(-1) + 0.01) ** 1.5
    return {1: (scale[..., None] * d).sum(1)}


case(
    nbody,
    32,
    [None, 8],
    lambda g: [floats(g, 32, 4), np.zeros((32, 3), np.float32)],
    _nbody,
    1e-3,
)


@tw.kernel
def sobel(image: tw.array("u8", 2), out: tw.array("u8", 2)) -> None:
    row, col = tw.global_id(0), tw.global_id(1)
    height, width = image.shape
    gx = 0
    gy = 0
    for dy in tw.static_range(-1, 2):
        for dx in tw.static_range(-1, 2):
            r, c = min(max(row + dy, 0), height - 1), min(max(col + dx, 0), width - 1)
            pixel = tw.s32(image[r, c])
            gx += pixel * dx * (2 - abs(dy))
            gy += pixel * dy * (2 - abs(dx))
    out[row, col] = tw.u8(min(255, abs(gx) + abs(gy)))


def _sobel(image, out):
    p = np.pad(image.astype(np.int32), 1, mode="edge")
    h, w = image.shape
    gx, gy = np.zeros((h, w), np.int32), np.zeros((h, w), np.int32)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            part = p[1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]
            gx += part * dx * (2 - abs(dy))
            gy += part * dy * (2 - abs(dx))
    return {1: np.minimum(255, abs(gx) + abs(gy)).astype(np.uint8)}


case(
    sobel,
    (9, 14),
    [None, (3, 7), (9, 2)],
    lambda g: [g.integers(0, 256, (9, 14)).astype(np.uint8), np.zeros((9, 14), np.uint8)],
    _sobel,
)


@tw.kernel
def spmv(
    start: tw.array("s32", 1),
    column: tw.array("s32", 1),
    value: tw.array("f32", 1),
    x: tw.array("f32", 1),
    y: tw.array("f32", 1),
) -> None:
    row = tw.global_id(0)
    if row < y.shape[0]:
        total = 0.0
        for at in range(start[row], start[row + 1]):
            total += value[at] * x[column[at]]
        y[row] = total


def _sparse(g: np.random.Generator):
    counts = g.integers(0, 6, 30)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return [
        start,
        whole(g, int(start[-1]), most=25),
        floats(g, int(start[-1])),
        floats(g, 25),
        np.zeros(30, np.float32),
    ]


def _spmv(start, column, value, x, y):
    rows = np.repeat(np.arange(len(y)), np.diff(start))
    return {4: np.bincount(rows, value * x[column], minlength=len(y))}


case(spmv, 32, [None, 8, 32], _sparse, _spmv, 1e-5)


@tw.kernel
def floyd_warshall(distance: tw.array("s32", ("n", "n")), k: tw.s32) -> None:
    i, j = tw.global_id(0), tw.global_id(1)
    if i != k and j != k:
        through = distance[i, k] + distance[k, j]
        if through < distance[i, j]:
            distance[i, j] = through


def _floyd_warshall(d, k):
    on = np.arange(len(d)) == k
    return {0: np.where(on[:, None] | on, d, np.minimum(d, d[:, [k]] + d[[k]]))}


case(
    floyd_warshall,
    (10, 10),
    [None, (5, 2)],
    lambda g: [whole(g, 10, 10), 3],
    lambda d, k: {
        0: np.minimum(
            d, np.where((np.arange(10) == k)[:, None] | (np.arange(10) == k), d, d[:, [k]] + d[[k]])
        )
    },
)


@tw.kernel
def kmeans(
    points: tw.array("f32", ("n", "d")),
    centers: tw.array("f32", ("k", "d")),
    nearest: tw.array("s32", ("n",)),
) -> None:
    i = tw.global_id(0)
    if i >= nearest.shape[0]:
        return
    best = 0
    least = 1e30
    for c in range(centers.shape[0]):
        total = 0.0
        for d in range(points.shape[1]):
            difference = points[i, d] - centers[c, d]
            total += difference * difference
        if total < least:
            least = total
            best = tw.s32(c)
    nearest[i] = best


case(
    kmeans,
    48,
    [None, 16],
    lambda g: [floats(g, 40, 3), floats(g, 5, 3), np.zeros(40, np.int32)],
    lambda p, c, n: {2: ((p[:, None] - c[None]) ** 2).sum(-1).argmin(1)},
)


@tw.kernel
def matmul(a: tw.array("T", 2), b: tw.array("T", 2), c: tw.array("f32", 2)) -> None:
    row, col = tw.global_id(0), tw.global_id(1)
    total = tw.f32(0)
    for k in range(a.shape[1]):
        total += tw.f32(a[row, k]) * tw.f32(b[k, col])
    c[row, col] = total


case(
    matmul,
    (8, 12),
    [None, (4, 4), (1, 12)],
    lambda g: [floats(g, 8, 10), floats(g, 10, 12), np.zeros((8, 12), np.float32)],
    lambda a, b, c: {2: a @ b},
    1e-5,
)


@tw.kernel
def collatz(steps: tw.array("s32", 1), most: tw.constant) -> None:
    i = tw.global_id(0)
    value = tw.s64(i) + 1
    count = 0
    while value != 1:
        if count == most:
            break
        count += 1
        if value % 2 == 0:
            value //= 2
            continue
        value = 3 * value + 1
    steps[i] = count


def _collatz(steps, most):
    result = []
    for i in range(len(steps)):
        value, count = i + 1, 0
        while value != 1 and count < most:
            value, count = (value // 2 if value % 2 == 0 else 3 * value + 1), count + 1
        result.append(count)
    return {0: np.array(result)}


case(collatz, 40, [None, 8], lambda g: [np.zeros(40, np.int32), 60], _collatz)


@tw.kernel
def hashes(key: tw.array("u32", 1), digest: tw.array("u32", 1)) -> None:
    i = tw.global_id(0)
    h = key[i]
    h ^= h >> 16
    h *= 0x85EBCA6B
    h ^= h >> 13
    h *= 0xC2B2AE35
    digest[i] = h ^ (h >> 16)


def _hashes(key, digest):
    h = key.copy()
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    return {1: h ^ (h >> np.uint32(16))}


case(
    hashes,
    64,
    [None, 16],
    lambda g: [g.integers(0, 2**32, 64, dtype=np.uint32), np.zeros(64, np.uint32)],
    _hashes,
)


@tw.kernel
def fft_step(
    x: tw.array("f32", (None, 2)),
    roots: tw.array("f32", (None, 2)),
    out: tw.array("f32", (None, 2)),
    half: tw.s32,
) -> None:
    """A step of a Stockham FFT of radix 2: neighbours lie ``half`` apart in the result; ``roots``
    are those of unity for it."""
    i = tw.global_id(0)
    j = i % half
    far = x.shape[0] // 2 + i
    re = x[far, 0] * roots[j, 0] - x[far, 1] * roots[j, 1]
    im = x[far, 0] * roots[j, 1] + x[far, 1] * roots[j, 0]
    place = (i // half) * 2 * half + j
    out[place, 0], out[place, 1] = x[i, 0] + re, x[i, 1] + im
    out[place + half, 0], out[place + half, 1] = x[i, 0] - re, x[i, 1] - im


def _fft_step(x, roots, out, half):
    values, weights = x[:, 0] + 1j * x[:, 1], roots[:, 0] + 1j * roots[:, 1]
    n = len(x)
    result = np.zeros(n, complex)
    for i in range(n // 2):
        w = weights[i % half] * values[i + n // 2]
        place = i // half * 2 * half + i % half
        result[place], result[place + half] = values[i] + w, values[i] - w
    return {2: np.stack([result.real, result.imag], 1)}


def _unity(half):
    w = np.exp(-1j * np.pi * np.arange(half) / half)
    return np.stack([w.real, w.imag], 1).astype(np.float32)


case(
    fft_step,
    32,
    [None, 8],
    lambda g: [floats(g, 64, 2), _unity(4), np.zeros((64, 2), np.float32), 4],
    _fft_step,
    1e-5,
)

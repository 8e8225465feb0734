"""Kernels that transforms are tried on, and what a transform must not change: the result."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.interpret import run
from tilewright.ir import Compute, Kernel, Stmt, parse_kernel, to_text, verify
from tilewright.ir.visit import rewrite_stmts
from tilewright.machines import nvidia
from tilewright.schedule import Threads
from tilewright.schedule.pipelines import specialize_warps as specializing
from tilewright.schedule.staging.copiers import Copier
from tilewright.schedule.staging.stage import stage
from tilewright.schedule.staging.staging import Shape

# A row of a convolution of stride 2, by data.
ROW = """
    kernel row(in d: f32[4], in w: f32[3], out s: f32[7]):
      alloc acc: f32[7]
      compute init(i in 7):
        acc[i] = 0.0
      compute main(i in 7, k in 3):
        a = d[(i + 1 - k) // 2 | (i + 1 - k) % 2 == 0 and 0 <= i + 1 - k]
        b = w[k]
        acc[i] add= a * b
      compute store(i in 7):
        v = acc[i]
        s[i] = v
"""


def convolution(
    mb: int = 1,
    ic: int = 3,
    ih: int = 6,
    iw: int = 7,
    oc: int = 5,
    kh: int = 3,
    kw: int = 3,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (1, 1),
    channels_last: bool = True,
    dtype: str = "f32",
    relu: bool = True,
) -> Kernel:
    """A forward convolution with bias, as it is lowered naively."""
    oh = (ih + 2 * pad[0] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (iw + 2 * pad[1] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    y = f"oh * {stride[0]} + kh * {dilation[0]} - {pad[0]}"
    x = f"ow * {stride[1]} + kw * {dilation[1]} - {pad[1]}"

    def declared(name: str, type_: str, shape: tuple[int, int, int, int]) -> str:
        n, c, h, w = shape
        text = f"{name}: {type_}[{n}, {c}, {h}, {w}]"
        if channels_last:
            text += f" {{0:{n}:{c * h * w} 2:{h}:{w * c} 3:{w}:{c} 1:{c}:1}}"
        return text

    mask = f"0 <= {y} and {y} < {ih} and 0 <= {x} and {x} < {iw}"
    value = "s * w" if dtype == "f32" else "f32(s) * f32(w)"
    return parse_kernel(
        f"""
kernel conv(
    in {declared("src", dtype, (mb, ic, ih, iw))},
    in {declared("weights", dtype, (oc, ic, kh, kw))},
    in bias: f32[{oc}],
    out {declared("dst", "f32", (mb, oc, oh, ow))},
):
  alloc acc: f32[{mb}, {oc}, {oh}, {ow}]
  compute zero(mb in {mb}, oc in {oc}, oh in {oh}, ow in {ow}):
    acc[mb, oc, oh, ow] = 0.0
  compute conv(mb in {mb}, oc in {oc}, oh in {oh}, ow in {ow}, ic in {ic}, kh in {kh}, kw in {kw}):
    s = src[mb, ic, {y}, {x} | {mask}]
    w = weights[oc, ic, kh, kw]
    acc[mb, oc, oh, ow] add= {value}
  compute epilogue(mb in {mb}, oc in {oc}, oh in {oh}, ow in {ow}):
    a = acc[mb, oc, oh, ow]
    b = bias[oc]
    dst[mb, oc, oh, ow] = {"max(a + b, 0.0)" if relu else "a + b"}
"""
    )


def matmul(m: int = 7, n: int = 9, k: int = 6, dtype: str = "f32") -> Kernel:
    """``c = a @ b``, row-major."""
    value = "x * y" if dtype == "f32" else "f32(x) * f32(y)"
    return parse_kernel(
        f"""
kernel matmul(in a: {dtype}[{m}, {k}], in b: {dtype}[{k}, {n}], out c: f32[{m}, {n}]):
  compute zero(m in {m}, n in {n}):
    c[m, n] = 0.0
  compute mul(m in {m}, n in {n}, k in {k}):
    x = a[m, k]
    y = b[k, n]
    c[m, n] add= {value}
"""
    )


def softmax(rows: int = 5, columns: int = 6) -> Kernel:
    """The exponentials of each row over their sum: a chain of two intermediate buffers."""
    return parse_kernel(
        f"""
kernel softmax(in x: f32[{rows}, {columns}], out y: f32[{rows}, {columns}]):
  alloc top: f32[{rows}]
  compute low(r in {rows}):
    top[r] = -inf
  compute peak(r in {rows}, c in {columns}):
    v = x[r, c]
    top[r] max= v
  alloc total: f32[{rows}]
  compute none(r in {rows}):
    total[r] = 0.0
  compute add(r in {rows}, c in {columns}):
    v = x[r, c]
    t = top[r]
    total[r] add= exp(v - t)
  compute scale(r in {rows}, c in {columns}):
    v = x[r, c]
    t = top[r]
    d = total[r]
    y[r, c] = exp(v - t) / d
"""
    )


def tensorized(kernel: Kernel) -> Kernel:
    """All computes as if an instruction did them."""

    def change(stmt: Stmt) -> Stmt:
        return replace(stmt, instruction="fma_f32x16") if isinstance(stmt, Compute) else stmt

    return replace(kernel, body=rewrite_stmts(kernel.body, change))


def memory(kernel: Kernel, seed: int = 0) -> dict[str, Any]:
    """Small integers for inputs, so that sums are exact in any order; sevens for outputs."""
    generator = np.random.default_rng(seed)
    return {
        p.name: (
            np.full(p.buffer.layout.extent, 7)
            if p.access == "out"
            else generator.integers(-4 if p.dtype.name != "u8" else 0, 5, p.buffer.layout.extent)
        ).astype(p.dtype.numpy)
        for p in kernel.params
    }


def equal(naive: Kernel, kernel: Kernel, *packing: Kernel) -> None:
    """``kernel``, after the packing kernels, leaves the same values as ``naive``."""
    for part in (*packing, kernel):
        verify(part)
    expected = memory(naive)
    actual = {name: array.copy() for name, array in expected.items()}
    run(naive, expected)
    for part in (*packing, kernel):
        for param in part.params:
            if param.name not in actual:
                garbage = np.full(param.buffer.layout.extent, 77)
                actual[param.name] = garbage.astype(param.dtype.numpy)
        run(part, {p.name: actual[p.name] for p in part.params})
    for param in naive.params:
        if param.access != "in":
            # Sums of small integers are exact; others depend on the order a little.
            np.testing.assert_allclose(actual[param.name], expected[param.name], rtol=1e-6)


def becomes(before: str, transform: Callable[[Kernel], Kernel], after: str) -> None:
    """The kernel ``before`` turns into the text ``after``, and computes the same."""
    naive = parse_kernel(textwrap.dedent(before))
    kernel = transform(naive)
    assert to_text(kernel) == textwrap.dedent(after).strip()
    equal(naive, kernel)


def shared(
    kernel: Kernel,
    compute: str,
    operands: Sequence[str],
    at: str,
    *,
    by: Copier | Mapping[str, Copier] = Threads(),  # noqa: B008 - a value
    shape: Shape = "dims",
    **options: Mapping[str, Any],
) -> Kernel:
    """``kernel`` with ``operands`` staged for a workgroup; ``options`` of `stage` by operand."""
    for name in operands:
        own = {option: values[name] for option, values in options.items() if name in values}
        who = by[name] if isinstance(by, Mapping) else by
        kernel = stage(kernel, compute, name, at, by=who, shape=shape, **own)
    return kernel


UNIT = nvidia.TILE_UNIT


def specialize_warps(
    kernel: Kernel, loop: str, stages: int, registers: tuple[int, int] | None = None
) -> Kernel:
    """`schedule.specialize_warps`, with the unit's copies."""
    return specializing.specialize_warps(kernel, loop, stages, UNIT.load, registers)

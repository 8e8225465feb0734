"""NVIDIA's products of matrices in shared memory, by four warps together, of sm_90.

Four warps (a warpgroup, here a subgroup of 128 lanes) multiply matrices that both lie in workgroup
memory, as `Rows`; they hold the sums. The products run while the program goes on.

Source: NVIDIA, PTX ISA, "Asynchronous warpgroup level matrix instructions".
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.dtypes import DType, bf16, f16, f32, s8, s32, u8
from tilewright.ir.buffer import Layout, LayoutBlock, Swizzle
from tilewright.layout.fragments import Fragment
from tilewright.layout.rows import Rows
from tilewright.machines.instruction import Instruction, OperandForm

LANES = 128
# What the machine has to have.
PRODUCTS = "wgmma"
# Bytes that stay together in a swizzle, and those of its rows; and how many rows make a pattern.
RUN, ROW_BYTES, _SHIFT = 16, (128, 64, 32), 3
_M = 64
# Bytes of a product along the reduction.
_K_BYTES = 32
_N = (8, 16, 32, 64, 96, 128, 160, 192, 224, 256)


def swizzle_of(row: int, element: int) -> Swizzle:
    """The swizzle of rows of ``row`` bytes, of elements of so many bytes."""
    runs = row // RUN
    return Swizzle(runs.bit_length() - 1, (RUN // element).bit_length() - 1, _SHIFT)


def _sums(n: int) -> Fragment:
    """Of a product of 64 by ``n``: 16 rows for each warp, which has them as products of a warp."""
    held = _M * n // LANES
    rows = (LayoutBlock(0, 4, 32 * held), LayoutBlock(0, 2, 2), LayoutBlock(0, 8, 4 * held))
    columns = (LayoutBlock(1, n // 8, 4), LayoutBlock(1, 4, held), LayoutBlock(1, 2, 1))
    return Fragment(("m", "n"), LANES, Layout((*rows, *columns)))


def _rows(kept: str, size: int, dtype: DType) -> tuple[Rows, ...]:
    """The forms of an operand of ``size`` along the dim that it keeps: rows along the reduction, or
    (elements of 2 bytes) across it, where rows are full."""
    rows = []
    for row in ROW_BYTES:
        swizzle, length = swizzle_of(row, dtype.bytes), row // dtype.bytes
        rows.append(Rows("k", kept, length, swizzle))
        if dtype.bytes == 2 and size % length == 0:
            rows.append(Rows(kept, "k", length, swizzle))
    return tuple(rows)


def _product(n: int, out: DType, a: DType, b: DType) -> Instruction:
    """``c[m, n] += a[m, k] * b[k, n]`` by the lanes of a warpgroup."""
    k = _K_BYTES // a.bytes
    shape = f"m{_M}n{n}k{k}"
    return Instruction(
        f"wgmma_{shape}_{out}_{a}" + ("" if a is b else f"_{b}"),
        (("m", _M), ("n", n), ("k", k)),
        OperandForm("c", out, fragment=_sums(n)),
        (
            OperandForm("a", a, rows=_rows("m", _M, a)),
            OperandForm("b", b, rows=_rows("n", n, b)),
        ),
        PRODUCTS,
        f"wgmma.mma_async.sync.aligned.{shape}.{out}.{a}.{b}",
    )


def warpgroup_instructions(features: Collection[str]) -> tuple[Instruction, ...]:
    """The products of warpgroups of a machine with ``features``."""
    if PRODUCTS not in features:
        return ()
    types = [(f32, dtype, dtype) for dtype in (f16, bf16)]
    types += [(s32, a, b) for a in (s8, u8) for b in (s8, u8)]
    return tuple(_product(n, *triple) for triple in types for n in _N)

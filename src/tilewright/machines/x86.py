"""x86-64 processors, from SSE4.2 to AMX.

Sources: Intel Architecture Instruction Set Extensions Reference (VDPBF16PS, VPDPBUSD, TDPBF16PS,
TDPBUSD); the forms of their operands are those of one register or tile as it lies in memory.
"""

from __future__ import annotations

from tilewright.dtypes import (
    DType,
    bf16,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    f64,
    s4,
    s8,
    s16,
    s32,
    s64,
    u4,
    u8,
)
from tilewright.errors import UnsupportedError
from tilewright.machines.instruction import Instruction, Role, Step
from tilewright.machines.machine import Machine


def _multiply_add(dtype: DType, lanes: int, feature: str) -> Instruction:
    """``out[n] += a * b[n]``: without FMA (SSE4.2), a multiplication and an addition."""
    row = (Step("n", lanes, 1),)
    operands = (Role("a", dtype), Role("b", dtype, row))
    name = f"fma_{dtype}x{lanes}"
    return Instruction(name, (("n", lanes),), Role("c", dtype, row), operands, feature, "fma")


def _multiply_add_lanes(dtype: DType, lanes: int, feature: str) -> Instruction:
    """``out[n] += a[n] * b[n]``: both operands have a value per lane."""
    row = (Step("n", lanes, 1),)
    operands = (Role("a", dtype, row), Role("b", dtype, row))
    name = f"fma_lanes_{dtype}x{lanes}"
    return Instruction(name, (("n", lanes),), Role("c", dtype, row), operands, feature, "fma")


def _multiply_adds(dtype: DType, lanes: int, feature: str) -> tuple[Instruction, ...]:
    return _multiply_add(dtype, lanes, feature), _multiply_add_lanes(dtype, lanes, feature)


def _dot(
    name: str, types: tuple[DType, DType, DType], lanes: int, group: int, feature: str, emit: str
) -> Instruction:
    """``out[n] += a[k] * b[n, k]`` where the ``group`` elements of a lane are neighbours.

    The lane of a is the same for all n: one broadcast of ``group`` elements.
    """
    out, a, b = types
    return Instruction(
        name,
        (("n", lanes), ("k", group)),
        Role("c", out, (Step("n", lanes, 1),)),
        (
            Role("a", a, (Step("k", group, 1),)),
            Role("b", b, (Step("n", lanes, group), Step("k", group, 1))),
        ),
        feature,
        emit,
    )


def _tile_dot(
    name: str, types: tuple[DType, DType, DType], group: int, feature: str, emit: str
) -> Instruction:
    """AMX: ``out[m, n] += a[m, k] * b[k, n]`` on tiles of 16 rows of 64 bytes.

    Rows of a hold 64 bytes of k; rows of b hold ``group`` neighbours in k for each n.
    """
    out, a, b = types
    depth = 16 * group
    return Instruction(
        name,
        (("m", 16), ("n", 16), ("k", depth)),
        Role("c", out, (Step("m", 16, None), Step("n", 16, 1))),
        (
            Role("a", a, (Step("m", 16, None), Step("k", depth, 1))),
            Role("b", b, (Step("k", None, None), Step("n", 16, group), Step("k", group, 1))),
        ),
        feature,
        emit,
    )


def _transposes(sizes: dict[int, tuple[int, ...]], feature: str) -> tuple[Instruction, ...]:
    """``out[m, n] = a[m, n]`` on squares, of ``sizes`` by the bytes of an element: in memory, rows
    of the result are contiguous along n, and those of the operand along m."""
    return tuple(
        Instruction(
            f"transpose_{dtype}x{size}",
            (("m", size), ("n", size)),
            Role("c", dtype, (Step("m", size, None), Step("n", size, 1))),
            (Role("a", dtype, (Step("n", size, None), Step("m", size, 1))),),
            feature,
            "transpose",
            None,
        )
        for dtype in _MOVED
        for size in sizes[dtype.bytes]
    )


def _across(vector_bytes: int, feature: str) -> tuple[Instruction, ...]:
    """``out combiner= a[n]``: all lanes of one vector, by halves."""
    found: list[Instruction] = []
    for dtype in (f64, f32, s32):
        lanes = vector_bytes // dtype.bytes
        operand = Role("a", dtype, (Step("n", lanes, 1),))
        for combiner in ("add", "mul", "max", "min"):
            name = f"{combiner}_across_{dtype}x{lanes}"
            out = Role("c", dtype)
            found.append(
                Instruction(name, (("n", lanes),), out, (operand,), feature, "reduce", combiner)
            )
    return tuple(found)


_MOVED = (f64, f32, f16, bf16, f8_e4m3, f8_e5m2, s64, s32, s16, s8, u8, s4, u4)
_BF16 = (f32, bf16, bf16)
_U8S8 = (s32, u8, s8)

# Integers have no fused form: a multiplication and an addition.
SSE42 = (
    *_multiply_adds(f32, 4, "sse4.2"),
    *_multiply_adds(f64, 2, "sse4.2"),
    *_multiply_adds(s32, 4, "sse4.2"),
    *_transposes({8: (2,), 4: (4,), 2: (8, 4), 1: (8, 4)}, "sse4.2"),
    *_across(16, "sse4.2"),
)
AVX2 = (
    *_multiply_adds(f32, 8, "fma"),
    *_multiply_adds(f64, 4, "fma"),
    *_multiply_adds(s32, 8, "avx2"),
    *_transposes({8: (4,), 4: (8,), 2: (), 1: (16,)}, "avx2"),
    *_across(32, "avx2"),
)
AVX512 = (
    *_multiply_adds(f32, 16, "avx512f"),
    *_multiply_adds(f64, 8, "avx512f"),
    *_multiply_adds(s32, 16, "avx512f"),
    *_transposes({8: (8,), 4: (16,), 2: (16,), 1: ()}, "avx512f"),
    *_across(64, "avx512f"),
)
AVX512_VNNI = (
    _dot("vpdpbusd_512", _U8S8, 16, 4, "avx512vnni", "llvm.x86.avx512.vpdpbusd.512"),
    _dot("vpdpbusd_256", _U8S8, 8, 4, "avx512vnni", "llvm.x86.avx512.vpdpbusd.256"),
)
AVX512_BF16 = (
    _dot("vdpbf16ps_512", _BF16, 16, 2, "avx512bf16", "llvm.x86.avx512bf16.dpbf16ps.512"),
    _dot("vdpbf16ps_256", _BF16, 8, 2, "avx512bf16", "llvm.x86.avx512bf16.dpbf16ps.256"),
)
AMX = (
    _tile_dot("tdpbf16ps", _BF16, 2, "amx-bf16", "llvm.x86.tdpbf16ps.internal"),
    _tile_dot("tdpbusd", _U8S8, 4, "amx-int8", "llvm.x86.tdpbusd.internal"),
)

_SSE42_FEATURES = ("sse4.2",)
_AVX2_FEATURES = (*_SSE42_FEATURES, "avx", "avx2", "fma", "f16c")
_AVX512_FEATURES = (*_AVX2_FEATURES, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_VNNI_FEATURES = (*_AVX512_FEATURES, "avx512vnni")
_BF16_FEATURES = (*_VNNI_FEATURES, "avx512bf16")
_AMX_FEATURES = (*_BF16_FEATURES, "amx-tile", "amx-bf16", "amx-int8")

# Features, bytes and number of vector registers, and the instructions that each level has.
_LEVELS: dict[str, tuple[tuple[str, ...], int, int, tuple[Instruction, ...]]] = {
    "sse42": (_SSE42_FEATURES, 16, 16, SSE42),
    "avx2": (_AVX2_FEATURES, 32, 16, SSE42 + AVX2),
    "avx512": (_AVX512_FEATURES, 64, 32, SSE42 + AVX2 + AVX512),
    "avx512_vnni": (_VNNI_FEATURES, 64, 32, SSE42 + AVX2 + AVX512 + AVX512_VNNI),
    "avx512_bf16": (
        _BF16_FEATURES,
        64,
        32,
        SSE42 + AVX2 + AVX512 + AVX512_VNNI + AVX512_BF16,
    ),
    "amx": (
        _AMX_FEATURES,
        64,
        32,
        SSE42 + AVX2 + AVX512 + AVX512_VNNI + AVX512_BF16 + AMX,
    ),
}
LEVELS = tuple(_LEVELS)


def machine(
    level: str,
    cores: int = 1,
    caches: tuple[int, ...] = (32 << 10, 1 << 20, 32 << 20),
) -> Machine:
    """The machine of a feature level (one of `LEVELS`). Raises `UnsupportedError` for another."""
    if level not in _LEVELS:
        raise UnsupportedError(
            f"unknown x86 feature level '{level}'", cure="choose one of " + ", ".join(LEVELS)
        )
    features, vector_bytes, registers, instructions = _LEVELS[level]
    return Machine(
        f"x86-{level}", frozenset(features), vector_bytes, registers, caches, cores, instructions
    )

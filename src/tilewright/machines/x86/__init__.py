"""x86-64 processors, from SSE4.2 to AMX.

Sources: Intel Architecture Instruction Set Extensions Reference (VDPBF16PS, VPDPBUSD, TDPBF16PS,
TDPBUSD); the forms of their operands are those of one register or tile as it lies in memory.
"""

from __future__ import annotations

from tilewright.dtypes import DType, bf16, f16, f32, f64, s8, s32, u8
from tilewright.errors import UnsupportedError, one_of
from tilewright.machines.instruction import AddressStep, Instruction, OperandForm
from tilewright.machines.machine import Machine
from tilewright.machines.rates import USUAL_CORE, WITH_TILES
from tilewright.machines.vectors import across, dot, interleaves, multiply_adds, transposes
from tilewright.machines.x86 import costs


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
        OperandForm("c", out, (AddressStep("m", 16, None), AddressStep("n", 16, 1))),
        (
            OperandForm("a", a, (AddressStep("m", 16, None), AddressStep("k", depth, 1))),
            OperandForm(
                "b",
                b,
                (
                    AddressStep("k", None, None),
                    AddressStep("n", 16, group),
                    AddressStep("k", group, 1),
                ),
            ),
        ),
        feature,
        emit,
    )


def _tile_moves(dtype: DType) -> tuple[Instruction, ...]:
    """AMX: tiles of sums from memory, to memory, and of zeros."""
    tile = (AddressStep("m", 16, None), AddressStep("n", 16, 1))
    out, copied = OperandForm("c", dtype, tile), (OperandForm("a", dtype, tile),)
    return tuple(
        Instruction(
            f"{name}_{dtype}", (("m", 16), ("n", 16)), out, operands, "amx-tile", name, None
        )
        for name, operands in (("tileloadd", copied), ("tilestored", copied), ("tilezero", ()))
    )


_BF16 = (f32, bf16, bf16)
_U8S8 = (s32, u8, s8)

# Integers have no fused form: a multiplication and an addition.
SSE42 = (
    *multiply_adds(f32, 4, "sse4.2"),
    *multiply_adds(f64, 2, "sse4.2"),
    *multiply_adds(s32, 4, "sse4.2"),
    *transposes({8: (2,), 4: (4,), 2: (8, 4), 1: (8, 4)}, "sse4.2"),
    *across(16, "sse4.2"),
)
AVX2 = (
    *multiply_adds(f32, 8, "fma"),
    *multiply_adds(f64, 4, "fma"),
    *multiply_adds(s32, 8, "avx2"),
    *transposes({8: (4,), 4: (8,), 2: (), 1: (16,)}, "avx2"),
    *across(32, "avx2"),
)
AVX512 = (
    *multiply_adds(f32, 16, "avx512f"),
    *multiply_adds(f64, 8, "avx512f"),
    *multiply_adds(s32, 16, "avx512f"),
    *transposes({8: (8,), 4: (16,), 2: (16,), 1: ()}, "avx512f"),
    *interleaves({2: (16, 2), 1: (16, 4)}, "avx512f"),
    *across(64, "avx512f"),
)
AVX512_VNNI = (
    dot("vpdpbusd_512", _U8S8, 16, 4, "avx512vnni", "llvm.x86.avx512.vpdpbusd.512"),
    dot("vpdpbusd_256", _U8S8, 8, 4, "avx512vnni", "llvm.x86.avx512.vpdpbusd.256"),
)
AVX512_BF16 = (
    dot("vdpbf16ps_512", _BF16, 16, 2, "avx512bf16", "llvm.x86.avx512bf16.dpbf16ps.512"),
    dot("vdpbf16ps_256", _BF16, 8, 2, "avx512bf16", "llvm.x86.avx512bf16.dpbf16ps.256"),
)
# Sums of f16 that are f16; others are added up in f32, whatever the machine.
AVX512_FP16 = multiply_adds(f16, 32, "avx512fp16")
AMX = (
    _tile_dot("tdpbf16ps", _BF16, 2, "amx-bf16", "llvm.x86.tdpbf16ps.internal"),
    _tile_dot("tdpbusd", _U8S8, 4, "amx-int8", "llvm.x86.tdpbusd.internal"),
    *_tile_moves(f32),
    *_tile_moves(s32),
)

_SSE42_FEATURES = ("sse4.2",)
_AVX2_FEATURES = (*_SSE42_FEATURES, "avx", "avx2", "fma", "f16c")
_AVX512_FEATURES = (*_AVX2_FEATURES, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_VNNI_FEATURES = (*_AVX512_FEATURES, "avx512vnni")
_BF16_FEATURES = (*_VNNI_FEATURES, "avx512bf16")
_FP16_FEATURES = (*_BF16_FEATURES, "avx512fp16")
_AMX_FEATURES = (*_FP16_FEATURES, "amx-tile", "amx-bf16", "amx-int8")

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
    "avx512_fp16": (
        _FP16_FEATURES,
        64,
        32,
        SSE42 + AVX2 + AVX512 + AVX512_VNNI + AVX512_BF16 + AVX512_FP16,
    ),
    # VDPBF16PS takes longer there than to widen and multiply (Emerald Rapids: 80 GFLOP/s where
    # multiply-adds have 142). `x86:avx512_bf16` has it.
    "amx": (
        _AMX_FEATURES,
        64,
        32,
        SSE42 + AVX2 + AVX512 + AVX512_VNNI + AVX512_FP16 + AMX,
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
        raise UnsupportedError(f"unknown x86 feature level '{level}'", cure=one_of(level, LEVELS))
    features, vector_bytes, registers, instructions = _LEVELS[level]
    return Machine(
        f"x86-{level}",
        frozenset(features),
        vector_bytes,
        registers,
        caches,
        cores,
        instructions,
        core=WITH_TILES if "amx-tile" in features else USUAL_CORE,
        costs=costs.AVX512 if vector_bytes == 64 else costs.AVX2,
        narrowest=2 if "avx512fp16" in features else 4,
        past_caches=True,
        # Tiles are chosen by hand only: no one misses those of a processor.
        lacks=tuple(
            instruction
            for instruction in _LEVELS["avx512_fp16"][-1]
            if instruction.feature not in features
        ),
    )

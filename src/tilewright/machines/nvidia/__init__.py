"""NVIDIA GPUs, by compute capability.

Source: NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities" (table "Technical Specifications
per Compute Capability"); cores and caches are those of the usual device: V100, T4, A100, L40S,
H200, B200.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import f32, f64, s8, s32, u8
from tilewright.errors import UnsupportedError, one_of
from tilewright.machines.machine import BANKED, Hierarchy, Machine
from tilewright.machines.nvidia.copies import COPIES, TILE_UNIT
from tilewright.machines.nvidia.matrices import matrix_instructions
from tilewright.machines.nvidia.matrix_stores import STORES, matrix_stores
from tilewright.machines.nvidia.rates import RATES
from tilewright.machines.nvidia.warpgroups import PRODUCTS, warpgroup_instructions
from tilewright.machines.rates import OF_MANY_ITEMS
from tilewright.machines.vectors import dot, multiply_adds

_KIB, _MIB = 1 << 10, 1 << 20
# A thread has 255 registers of 4 bytes.
_VECTOR_BYTES, _VECTOR_REGISTERS = 16, 63
_MOST_GROUPS = 2**31 - 1
# Workgroups that a cluster has at most, on any device that has clusters.
MOST_CLUSTER = 8

# Scalar multiply-adds, as many as loads and stores move at once.
_VECTORS = (
    *multiply_adds(f32, 4, "vectors"),
    *multiply_adds(f64, 2, "vectors"),
    *multiply_adds(s32, 4, "vectors"),
)

# Dot products of four bytes of each operand, which a work-item adds up in one instruction, dp4a: by
# vectors as well. Its operands are signed or unsigned, each by itself.
_DOTS = tuple(
    dot(
        f"dp4a_s32x4_{a}" + ("" if a is b else f"_{b}"),
        (s32, a, b),
        4,
        4,
        "dp4a",
        f"llvm.nvvm.idp4a.{a.name[0]}.{b.name[0]}",
    )
    for a in (s8, u8)
    for b in (s8, u8)
)

_BYTES = ("s8", "u8", "s8_u8", "u8_s8")
_VOLTA = ("mma_m8n8k4_f32_f16",)
_TURING = (
    "ldmatrix",
    "mma_m16n8k8_f32_f16",
    *(f"mma_m8n8k16_s32_{types}" for types in _BYTES),
)
_AMPERE = (
    *_TURING,
    "async_copy",
    "cvt_bf16",
    "mma_m16n8k16_f32_f16",
    "mma_m16n8k16_f32_bf16",
    "mma_m16n8k4_f32_tf32",
    "mma_m16n8k8_f32_tf32",
    "mma_m8n8k4_f64_f64",
    *(f"mma_m16n8k32_s32_{types}" for types in _BYTES),
)
_ADA = (
    *_AMPERE,
    *(
        f"mma_m16n8k32_f32_{types}"
        for types in ("f8_e4m3", "f8_e5m2", "f8_e4m3_f8_e5m2", "f8_e5m2_f8_e4m3")
    ),
)

# Cores (SMs), shared bytes of a workgroup, L1 of a core and L2, and what came with the capability.
_LEVELS: dict[str, tuple[int, int, int, int, tuple[str, ...]]] = {
    "sm_70": (80, 96 * _KIB, 128 * _KIB, 6 * _MIB, _VOLTA),
    "sm_75": (40, 64 * _KIB, 96 * _KIB, 4 * _MIB, _TURING),
    "sm_80": (108, 163 * _KIB, 192 * _KIB, 40 * _MIB, _AMPERE),
    "sm_89": (142, 99 * _KIB, 128 * _KIB, 96 * _MIB, _ADA),
    "sm_90a": (132, 227 * _KIB, 256 * _KIB, 50 * _MIB, (*_ADA, STORES, PRODUCTS, COPIES)),
    "sm_100a": (148, 227 * _KIB, 256 * _KIB, 126 * _MIB, (*_ADA, STORES, COPIES)),
}
LEVELS = tuple(_LEVELS)


def machine(level: str) -> Machine:
    """The machine of a compute capability (one of `LEVELS`). Raises `UnsupportedError`."""
    if level not in _LEVELS:
        raise UnsupportedError(f"unknown compute capability {level!r}", cure=one_of(level, LEVELS))
    cores, shared, near, far, features = _LEVELS[level]
    products = (*matrix_instructions(features), *warpgroup_instructions(features))
    return Machine(
        f"nvidia-{level}",
        frozenset({"vectors", "dp4a", level, *features}),
        _VECTOR_BYTES,
        _VECTOR_REGISTERS,
        caches=(near, far),
        cores=cores,
        instructions=(
            *_VECTORS,
            *_DOTS,
            *products,
            *matrix_stores(features, products),
        ),
        hierarchy=Hierarchy(
            subgroup=32,
            workgroup=1024,
            shared=shared,
            banks=32,
            bank=4,
            segment=32,
            groups=_MOST_GROUPS,
            cluster=MOST_CLUSTER if COPIES in features else 1,
        ),
        rates=RATES[level],
        core=OF_MANY_ITEMS,
        recipes=BANKED,
        tile_unit=TILE_UNIT if COPIES in features else None,
    )


def reported(level: str, cores: int, shared: int) -> Machine:
    """The machine of a device that reports so many multiprocessors, and bytes that the work-items
    of a workgroup can share."""
    usual = machine(level)
    return replace(usual, cores=cores, hierarchy=replace(usual.hierarchy, shared=shared))

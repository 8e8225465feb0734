"""Devices that take SPIR-V: what they have in common, and how they differ.

Source: SPIR-V Specification, Unified1: vectors of the Kernel execution environment have 2, 3, 4, 8
or 16 components. What a device reports (OpenCL 3.0, clGetDeviceInfo) fills in the rest.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import f32, f64, s32
from tilewright.errors import UnsupportedError
from tilewright.machines.machine import BANKED, Hierarchy, Machine
from tilewright.machines.rates import OF_ITEMS, OF_MANY_ITEMS
from tilewright.machines.vectors import across, multiply_adds, transposes

_MOST_LANES = 16

# A processor whose work-items are threads with vectors: what they share is ordinary memory. Intel's
# library takes subgroups of other sizes, too, but their lanes do not get each other's values.
_CPU = Machine(
    "spirv-cpu",
    frozenset({"vectors"}),
    vector_bytes=64,
    vector_registers=32,
    caches=(32 << 10, 1 << 20, 32 << 20),
    cores=1,
    instructions=(
        *multiply_adds(f32, 16, "vectors"),
        *multiply_adds(f64, 8, "vectors"),
        *multiply_adds(s32, 16, "vectors"),
        *transposes({8: (8,), 4: (16,), 2: (16,), 1: (16,)}, "vectors"),
        *across(64, "vectors"),
    ),
    hierarchy=Hierarchy(
        subgroup=16,
        workgroup=4096,
        shared=32 << 10,
        banks=0,
        bank=4,
        segment=64,
        exchanging=(4, 8, 16, 32, 64),
    ),
    most_lanes=_MOST_LANES,
    core=OF_ITEMS,
)
# A processor whose subgroups of 32 lanes run together, with memory in banks: of no maker.
_GPU = Machine(
    "spirv-gpu",
    frozenset({"vectors"}),
    vector_bytes=16,
    vector_registers=64,
    caches=(16 << 10, 4 << 20),
    cores=16,
    instructions=(*multiply_adds(f32, 4, "vectors"), *multiply_adds(s32, 4, "vectors")),
    hierarchy=Hierarchy(subgroup=32, workgroup=256, shared=32 << 10, banks=32, bank=4, segment=64),
    most_lanes=_MOST_LANES,
    core=OF_MANY_ITEMS,
    recipes=BANKED,
)
MACHINES = {"cpu": _CPU, "gpu": _GPU}


def machine(kind: str) -> Machine:
    """The machine of one of `MACHINES`. Raises `UnsupportedError` for another."""
    if kind not in MACHINES:
        raise UnsupportedError(
            f"unknown kind of SPIR-V device {kind!r}", cure="choose one of " + ", ".join(MACHINES)
        )
    return MACHINES[kind]


def reported(kind: str, cores: int, workgroup: int, shared: int) -> Machine:
    """The machine of a device that reports so many compute units, work-items of a workgroup, and
    bytes that these share."""
    usual = machine(kind)
    hierarchy = replace(usual.hierarchy, workgroup=workgroup, shared=shared)
    return replace(usual, cores=cores, hierarchy=hierarchy)

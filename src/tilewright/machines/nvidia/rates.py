"""Peak figures of NVIDIA GPUs, by compute capability: V100, T4, A100 (80 GB), L40S, H100, B200.

Sources: NVIDIA's whitepapers on the architectures Volta, Turing, Ampere, Ada, Hopper (clocks under
boost, tensor throughput without sparsity, L2, memory); CUDA C++ Programming Guide, "Arithmetic
Instructions" (products of work-items) and "Technical Specifications per Compute Capability" (what a
core holds). Not published, and therefore taken from measurements: Turing's 64 bytes of shared
memory per cycle, the L2 of Turing (Jia et al., "Dissecting the NVIDIA Turing T4 GPU via
Microbenchmarking", 2019), and that products of a subgroup (mma) reach 0.62 of the peak on Hopper,
which only those of four subgroups (wgmma) do (Luo et al., "Benchmarking and Dissecting the Nvidia
Hopper GPU Architecture via Microbenchmarking", 2024). Assumed: L2 of Ada, Hopper (as Ampere's) and
Blackwell (two of those), that Blackwell's subgroups multiply as fast as Hopper's, and that dp4a
takes no longer than a multiply-add of integers. The latency of memory and the time of a launch are
those that fit an H100 (measured by us), for all.
"""

from __future__ import annotations

from tilewright.dtypes import DType, bf16, f8_e4m3, f8_e5m2, f16, f32, f64, s8, s32, u8
from tilewright.machines.rates import Rates

_KIB = 1 << 10
_LATENCY, _LAUNCH = 940, 2.5e-6
# Bytes that a core takes from L2 per cycle.
_PORT = 64

# Integer multiply-adds of work-items per cycle; dp4a makes four at a time of bytes.
_WHOLE = 64

_Products = tuple[tuple[DType, int, int], ...]
_Types = tuple[DType, ...]
_HALVES = (f16, bf16)
_INTEGERS = (s8, u8)
_DOTS: _Products = tuple((dtype, 1, 4 * _WHOLE) for dtype in _INTEGERS)
_BYTES = (*_INTEGERS, f8_e4m3, f8_e5m2)


def _scalar(single: int, double: int) -> _Products:
    return ((f32, 1, single), (f64, 1, double), (s32, 1, _WHOLE), *_DOTS)


def _matrices(
    half: int, halves: _Types, bytes: _Types, double: int = 0, lanes: int = 32
) -> _Products:
    """Products of matrices: of ``bytes`` twice as many as of ``halves``."""
    rows = [(dtype, lanes, half) for dtype in halves] + [(d, lanes, 2 * half) for d in bytes]
    return (*rows, (f64, lanes, double)) if double else tuple(rows)


# Registers of a lane that a subgroup may go on with (PTX ISA, "setmaxnreg").
REGISTERS = range(24, 257, 8)


def _rates(
    clock: float,
    products: _Products,
    near: int,
    memory: float,
    held: int,
    *,
    shared: int = 128,
    items: int = 2048,
    groups: int = 32,
    reserved: int = _KIB,
) -> Rates:
    return Rates(
        clock=clock,
        products=products,
        shared=shared,
        near=near,
        port=_PORT,
        memory=memory,
        latency=_LATENCY,
        launch=_LAUNCH,
        registers=64 * _KIB,
        items=items,
        groups=groups,
        held=held * _KIB,
        reserved=reserved,
        parts=4,
    )


RATES: dict[str, Rates] = {
    "sm_70": _rates(
        1.53e9, _scalar(64, 32) + _matrices(512, (f16,), ()), 2048, 900e9, 96, reserved=0
    ),
    "sm_75": _rates(
        1.59e9,
        _scalar(64, 2) + _matrices(512, (f16,), _INTEGERS),
        1024,
        320e9,
        64,
        shared=64,
        items=1024,
        groups=16,
        reserved=0,
    ),
    "sm_80": _rates(
        1.41e9, _scalar(64, 32) + _matrices(1024, _HALVES, _INTEGERS, 64), 5120, 2039e9, 164
    ),
    "sm_89": _rates(
        2.52e9,
        _scalar(128, 2) + _matrices(512, _HALVES, _BYTES, 2),
        3072,
        864e9,
        100,
        items=1536,
        groups=24,
    ),
    "sm_90a": _rates(
        1.83e9,
        _scalar(128, 64)
        + _matrices(1270, _HALVES, _BYTES, 128)
        + _matrices(2048, _HALVES, _BYTES, lanes=128),
        5120,
        3350e9,
        228,
    ),
    "sm_100a": _rates(
        1.85e9,
        _scalar(128, 64)
        + _matrices(1270, _HALVES, _BYTES, 64)
        + _matrices(4096, _HALVES, _BYTES, lanes=128),
        10240,
        8000e9,
        228,
    ),
}

"""What this machine can do at most, measured: multiply-adds per second, and bytes per second.

A percentage of a peak says more than a ratio to somebody else's library, but only if the peak is
measured beside it: clocks vary by machine, by instruction and by what else runs. So two generated
kernels are timed in every run: one that does nothing but independent multiply-adds in registers,
one that does nothing but load a buffer of a given size again and again.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.dtypes import DType
from tilewright.targets.x86.assemble import assemble, host_cpu, host_features
from tilewright.targets.x86.driver import Program
from tilewright.targets.x86.host import host
from tilewright.targets.x86.pool import worker_pool

# Independent sums: enough for 6 cycles of latency at two instructions per cycle.
_CHAINS = 12
_REPEATS = 9
_SECONDS = 0.01


@dataclass(frozen=True)
class _MultiplyAdd:
    """An instruction in LLVM's words; the types are those of vectors."""

    feature: str
    intrinsic: str
    out: str
    a: str
    b: str
    multiply_adds: int

    @property
    def is_fma(self) -> bool:
        return self.intrinsic.startswith("llvm.fma")


def _fma(feature: str, lanes: int, name: str, type: str) -> _MultiplyAdd:
    vector = f"<{lanes} x {type}>"
    return _MultiplyAdd(feature, f"llvm.fma.v{lanes}{name}", vector, vector, vector, lanes)


# By kind, the widest first.
_INSTRUCTIONS = {
    "f32": (_fma("avx512f", 16, "f32", "float"), _fma("fma", 8, "f32", "float")),
    "f64": (_fma("avx512f", 8, "f64", "double"), _fma("fma", 4, "f64", "double")),
    "bf16": (
        _MultiplyAdd(
            "avx512bf16",
            "llvm.x86.avx512bf16.dpbf16ps.512",
            "<16 x float>",
            "<32 x bfloat>",
            "<32 x bfloat>",
            32,
        ),
    ),
    "int8": (
        _MultiplyAdd(
            "avx512vnni",
            "llvm.x86.avx512.vpdpbusd.512",
            "<16 x i32>",
            "<64 x i8>",
            "<64 x i8>",
            64,
        ),
        _MultiplyAdd(
            "avxvnni", "llvm.x86.avx512.vpdpbusd.256", "<8 x i32>", "<32 x i8>", "<32 x i8>", 32
        ),
    ),
}


@dataclass(frozen=True)
class Peaks:
    """``gflops`` by kind of multiply-add (each counts two), ``bandwidth`` (GB/s) by memory level.

    Both are of ``threads`` threads together. ``sizes``: bytes that each cache holds for one core.
    """

    threads: int
    gflops: Mapping[str, float]
    bandwidth: Mapping[str, float]
    sizes: Mapping[str, int]

    def of(self, a: DType) -> float:
        """GFLOP/s for operands of this type: those of f32 where there is no instruction for it."""
        kind = {"u8": "int8", "s8": "int8"}.get(a.name, a.name)
        return self.gflops.get(kind, self.gflops.get("f32", 0.0))


def measure_peaks(threads: int = 1) -> Peaks:
    """The peaks of this machine with so many threads; takes about half a second."""
    features = set(host_features().split(","))
    compute = {}
    for kind, instructions in _INSTRUCTIONS.items():
        here = next((each for each in instructions if f"+{each.feature}" in features), None)
        if here is not None:
            compute[kind] = _multiply_adds(here, threads)
    l1, l2, l3 = host().caches[:3]
    # Well inside of a level, and well outside of the one before; threads share the last.
    sizes = {
        "L1": l1 // 2,
        "L2": l1 + (l2 - l1) // 2,
        "L3": max(2 * l2, l3 // 3) // threads,
        "DRAM": max(4 * l3, 2**26) // threads,
    }
    widest = 64 if "+avx512f" in features else 32 if "+avx" in features else 16
    bandwidth = {level: _bandwidth(widest, size, threads) for level, size in sizes.items()}
    return Peaks(threads, compute, bandwidth, {"L1": l1, "L2": l2, "L3": l3})


def _multiply_adds(instruction: _MultiplyAdd, threads: int) -> float:
    """GFLOP/s of one instruction."""
    with _load(_compute_code(instruction)) as program:
        seconds, count = _timed(program, threads, pointers=[0] * threads)
    return 2e-9 * instruction.multiply_adds * _CHAINS * count * threads / seconds


def _bandwidth(vector_bytes: int, size: int, threads: int) -> float:
    """GB/s of loads from a buffer of ``size`` bytes for each thread."""
    step = 8 * vector_bytes
    size = max(step, size // step * step)
    buffers = [np.ones(size + 64, np.uint8) for _ in range(threads)]
    pointers = [buffer.ctypes.data + -buffer.ctypes.data % 64 for buffer in buffers]
    with _load(_load_code(vector_bytes, size)) as program:
        seconds, count = _timed(program, threads, pointers)
    return 1e-9 * size * count * threads / seconds


def _load(code: str) -> Program:
    return Program(assemble(code, host_cpu(), host_features()), ("peak",))


def _timed(program: Program, threads: int, pointers: list[int]) -> tuple[float, int]:
    """The best time in seconds, and the iterations of each thread in it."""
    arguments = (ctypes.c_int64 * (1 + threads))(1, *pointers)
    address = program.address("peak")

    def run(count: int) -> float:
        arguments[0] = count
        start = time.perf_counter()
        if threads == 1:
            single(ctypes.addressof(arguments), 0, 1)
        else:
            worker_pool().run(address, ctypes.addressof(arguments), threads)
        return time.perf_counter() - start

    single = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    # The best of some: the first starts the workers, and one that was held up says nothing.
    count = 1
    while (seconds := min(run(count) for _ in range(4))) < _SECONDS:
        count = max(2 * count, int(count * _SECONDS / max(seconds, 1e-7)))
    return min(run(count) for _ in range(_REPEATS)), count


# void peak(ptr args, i64 index, i64 threads), args: iterations, then a pointer for each thread.
_HEAD = """
define void @peak(ptr %args, i64 %index, i64 %threads) nounwind {
entry:
  %count = load i64, ptr %args
  %slot = add i64 %index, 1
  %place = getelementptr ptr, ptr %args, i64 %slot
  %data = load ptr, ptr %place
"""


def _compute_code(instruction: _MultiplyAdd) -> str:
    """A loop of independent multiply-adds in registers."""
    out, a, b, name = instruction.out, instruction.a, instruction.b, instruction.intrinsic
    types = (a, b, out) if instruction.is_fma else (out, a, b)
    order = "{a} %a, {b} %b, {out} %s{i}" if instruction.is_fma else "{out} %s{i}, {a} %a, {b} %b"
    sums = [
        f"  %s{i} = phi {out} [ zeroinitializer, %entry ], [ %n{i}, %loop ]" for i in range(_CHAINS)
    ]
    steps = [
        f"  %n{i} = call {out} @{name}({order.format(a=a, b=b, out=out, i=i)})"
        for i in range(_CHAINS)
    ]
    # The operands come from where the optimizer cannot see that they are all zero.
    hidden = [
        f'  %{x} = call {type_} asm sideeffect "", "=x,0"({type_} zeroinitializer)'
        for x, type_ in (("a", a), ("b", b))
    ]
    return "\n".join(
        [f"declare {out} @{name}({', '.join(types)})", _HEAD, *hidden, "  br label %loop", "loop:"]
        + ["  %i = phi i64 [ 0, %entry ], [ %next, %loop ]", *sums, *steps]
        + ["  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %count"]
        + ["  br i1 %more, label %loop, label %done", "done:"]
        + [f'  call void asm sideeffect "", "x"({out} %n{i})' for i in range(_CHAINS)]
        + ["  ret void", "}"]
    )


def _load_code(vector_bytes: int, size: int) -> str:
    """A loop that loads the thread's buffer, 8 vectors at a time, once for each iteration."""
    vector = f"<{vector_bytes // 4} x i32>"
    sums = [
        f"  %s{i} = phi {vector} [ zeroinitializer, %outer ], [ %n{i}, %loop ]" for i in range(8)
    ]
    steps = []
    for i in range(8):
        steps += [
            f"  %p{i} = getelementptr i8, ptr %p, i64 {i * vector_bytes}",
            f"  %v{i} = load volatile {vector}, ptr %p{i}, align 64",
            f"  %n{i} = or {vector} %s{i}, %v{i}",
        ]
    return "\n".join(
        [_HEAD, f"  %end = getelementptr i8, ptr %data, i64 {size}", "  br label %outer", "outer:"]
        + ["  %o = phi i64 [ 0, %entry ], [ %o_next, %latch ]", "  br label %loop", "loop:"]
        + ["  %p = phi ptr [ %data, %outer ], [ %p_next, %loop ]", *sums, *steps]
        + [f"  %p_next = getelementptr i8, ptr %p, i64 {8 * vector_bytes}"]
        + ["  %more = icmp ult ptr %p_next, %end", "  br i1 %more, label %loop, label %latch"]
        + ["latch:"]
        + [f'  call void asm sideeffect "", "x"({vector} %n{i})' for i in range(8)]
        + ["  %o_next = add i64 %o, 1", "  %again = icmp slt i64 %o_next, %count"]
        + ["  br i1 %again, label %outer, label %done", "done:", "  ret void", "}"]
    )

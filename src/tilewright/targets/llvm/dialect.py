"""How the LLVM IR of the targets differs, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.dtypes import DType, s64
from tilewright.ir.stmt import LoopKind


class FlushingRounding(NamedTuple):
    """An instruction that rounds f32 to bf16 but flushes subnormals to zero, and the one that
    detects these: intrinsics, without the bits of their operand at the end. ``rounds`` takes 8 or
    16 f32, ``classes`` says which of them are of the class ``subnormal``."""

    rounds: str
    classes: str
    subnormal: int


@dataclass(frozen=True)
class Dialect:
    """A target's variant of LLVM IR."""

    arguments: int = 0
    """Address space of a kernel's arguments."""
    stack: int = 4 << 20
    """Bytes of stack that each thread has room for; more has to be in the workspace."""
    workgroup: int | None = None
    """Address space of the memory that a group shares; None: it is on the stack, in space 0."""
    shared: str = ""
    """Name of one external array for all of a group's memory, whose size the launch says; empty:
    each buffer is a global."""
    alignment: int = 1
    """All memory begins at a multiple of so many bytes, which loads and stores tell LLVM."""
    masked_memory: bool = True
    """There are masked loads and stores, and all pointers have one address space, so that loads
    which are off can read ``@zeros``."""
    gathers: frozenset[DType] = frozenset()
    """Elements that an instruction loads from a place for each lane, faster than one by one."""
    least_masked: int = 1
    """Bytes of the narrowest elements whose masked loads are instructions: others are branches."""
    nan_min_max: bool = True
    """LLVM's ``maximum`` and ``minimum`` keep NaNs."""
    fences_min_max: bool = False
    """LLVM must not know that an operand of a scalar ``maximum`` or ``minimum`` is no NaN: with
    AVX-512 DQ, it then asks vfpclass whether the other one is, but leaves out signaling NaNs."""
    whole_by_truncation: bool = False
    """The compiler that takes the code makes floats of integers of floats by truncation, which
    gives -0.0 for numbers between -1 and 0: these are 0.0 before they become integers."""
    defines_halves: bool = True
    """The module defines the functions that LLVM calls to convert f16."""
    serial_kinds: tuple[LoopKind, ...] = (LoopKind.SERIAL, LoopKind.PARALLEL)
    """Kinds of loops that one thread may run, in the order of iterations."""
    most_lanes: int = 0
    """The greatest number of elements of a vector; 0: no limit."""
    index: DType = s64
    """The type of an index that is known to fit in it; other indices are s64."""
    computes: frozenset[DType] = frozenset()
    """Narrow floats that are added, multiplied, divided and compared as they are; others are in
    f32, which gives the same."""
    fuses: frozenset[DType] = frozenset()
    """Floats with an instruction for ``a * b + c`` that rounds once; narrower ones than f64 without
    are computed in f64."""
    rounds_bf16: bool = False
    """LLVM's ``fptrunc`` to bfloat is an instruction, and it keeps subnormals."""
    flushing: FlushingRounding | None = None
    """The instruction of machines whose rounding to bf16 flushes subnormals."""
    permute: str = ""
    """Intrinsic that permutes a register of 16 f32 by 16 indices; empty: none."""
    permute_words: str = ""
    """The same for 32 numbers of 16 bits."""
    scale: str = ""
    """Intrinsic that multiplies a register of 64 bytes by powers of two, without its type and width
    at the end; empty: none."""
    float_atomics: bool = False
    """Floats can be added to memory in one atomic operation."""
    word_atomics: bool = False
    """Atomics are of elements of 32 bits or more."""
    reuses_values: bool = False
    """A block has no instruction twice: for devices whose compiler decides itself how long
    registers hold a value, and because LLVM takes longer for longer text."""
    narrows_by_halves: bool = False
    """Integers are narrowed to half as many bits at a time."""
    word_registers: bool = False
    """Vectors are consecutive registers of 32 bits."""
    double_words: bool = True
    """There are integers of 128 bits."""
    bit_masks: bool = True
    """The conditions of a vector's lanes are bits of one integer."""
    vector_bytes: int = 0
    """Size of a vector register; 0: masked loads need not know it."""
    stream_fence: str = ""
    """Function after which all threads see non-temporal stores; empty: there are no such stores."""


PLAIN = Dialect()

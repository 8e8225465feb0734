"""What of LLVM IR differs between targets, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.dtypes import DType, s64
from tilewright.ir.stmt import LoopKind


def c_name(function: str, arguments: int) -> str:
    """A function of doubles by its name in the C library."""
    del arguments
    return function


class FlushingRounding(NamedTuple):
    """An instruction that rounds f32 to bf16 but takes subnormals for zeros, and what finds these:
    intrinsics, without the bits of their operand at the end. ``rounds`` takes 8 or 16 f32,
    ``classes`` says which of 4, 8 or 16 are of the class ``subnormal``."""

    rounds: str
    classes: str
    subnormal: int


@dataclass(frozen=True)
class Dialect:
    """How a target spells what the lowering writes.

    ``arguments`` is the address space of a kernel's arguments, ``workgroup`` that of the memory
    that a group shares (None: it is on the stack, whose address space is always 0). With ``shared``
    the latter is one external array of that name, whose size the launch says. All memory begins at
    a multiple of ``alignment`` bytes (1: of its elements'), which loads and stores tell LLVM.
    ``masked_memory``: there are masked loads and stores, and what is masked off can be read from
    ``@zeros``, as all pointers have one address space. ``nan_extremes``: LLVM's ``maximum`` and
    ``minimum`` keep NaNs. ``defines_halves``: the module defines what LLVM calls to convert f16.
    Loops of the ``serial`` kinds may stand inside of what one thread runs, which then goes through
    their iterations in order. No vector has more than ``most_lanes`` elements (0: no such limit).
    ``index`` is the type of whatever index is known to fit in it; others have s64.
    Narrow floats of the types ``computes`` are added, multiplied, divided and compared as they are,
    others in f32, which gives the same.
    ``rounds_bf16``: LLVM's ``fptrunc`` to bfloat is an instruction, which keeps subnormals.
    ``flushing`` is the instruction of machines whose own takes these for zeros.
    ``picks`` is the intrinsic that picks from a register of 16 f32 by 16 indices (empty: there is
    none), ``picks_words`` that for 32 numbers of 16 bits. ``library`` gives the symbol of a
    function of so many doubles. ``float_atomics``: floats can be added to memory in one operation.
    With ``once``, a block has no value twice: a device's compiler decides by itself how long
    registers hold one, and LLVM takes longer the more there is. A register of vectors has
    ``vector_bytes`` (0: masked loads need not know).
    ``stream_fence`` is the function behind which all see what was stored past the caches (empty:
    such stores are as others).
    ``cut_by_halves``: integers are cut to half as many bits at a time.
    ``words``: vectors are registers of 32 bits, one beside the other. ``double_words``: there are
    integers of 128 bits. ``bit_masks``: the conditions of a vector's lanes are bits of one integer.
    """

    arguments: int = 0
    workgroup: int | None = None
    shared: str = ""
    alignment: int = 1
    masked_memory: bool = True
    nan_extremes: bool = True
    defines_halves: bool = True
    serial: tuple[LoopKind, ...] = (LoopKind.SERIAL, LoopKind.PARALLEL)
    most_lanes: int = 0
    index: DType = s64
    computes: frozenset[DType] = frozenset()
    rounds_bf16: bool = False
    flushing: FlushingRounding | None = None
    picks: str = ""
    picks_words: str = ""
    library: Callable[[str, int], str] = c_name
    float_atomics: bool = False
    once: bool = False
    cut_by_halves: bool = False
    words: bool = False
    double_words: bool = True
    bit_masks: bool = True
    vector_bytes: int = 0
    stream_fence: str = ""


PLAIN = Dialect()

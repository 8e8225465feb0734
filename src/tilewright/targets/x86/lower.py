"""A kernel to LLVM IR for x86: phases that threads run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.dtypes import f16, f32, f64, s32, s64, u32
from tilewright.facts import Facts, starting_from
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.targets.llvm.computes import Units
from tilewright.targets.llvm.dialect import Dialect, FlushingRounding
from tilewright.targets.llvm.module import Module
from tilewright.targets.llvm.phases import write_phases
from tilewright.targets.x86.amx import emit_tiles

_UNITS = Units(tiles=emit_tiles)
# vcvtneps2bf16, and vfpclassps with its mask for subnormals.
_FLUSHING = FlushingRounding("llvm.x86.avx512bf16.cvtneps2bf16", "llvm.x86.avx512.fpclass.ps", 0x20)
_SCALE = "llvm.x86.avx512.mask.scalef"
_PERMUTE, _PERMUTE_WORDS = "llvm.x86.avx512.permvar.sf.512", "llvm.x86.avx512.permvar.hi.512"


def lower_phases(kernel: Kernel, machine: Machine) -> Module:
    """The module that runs ``kernel``, which is lowered: loops, stores and instructions. Raises
    `CompilationError`."""
    instructions = {i.name: i for i in machine.instructions}
    dialect = replace(dialect_for(machine), reuses_values=_multiplies_tiles(kernel, instructions))
    with starting_from(Facts.of(kernel)):
        return write_phases(kernel, instructions, dialect, _UNITS)


def _multiplies_tiles(kernel: Kernel, instructions: Mapping[str, Instruction]) -> bool:
    """Whether there are products of tiles: which of them load the same tile, shows by addresses."""
    names = {stmt.instruction for stmt in walk_stmts(kernel.body) if isinstance(stmt, Compute)}
    return any(name and "m" in instructions[name].sizes for name in names & {*instructions})


def _least_masked(machine: Machine) -> int:
    """Bytes of the narrowest elements that masked loads take: AVX2's take words, SSE has none."""
    if "avx512bw" in machine.features:
        return 1
    return 4 if machine.vector_bytes >= 32 else machine.vector_bytes


def dialect_for(machine: Machine) -> Dialect:
    """The variant of LLVM IR for ``machine``."""
    return Dialect(
        vector_bytes=machine.vector_bytes,
        least_masked=_least_masked(machine),
        computes=frozenset({f16} if machine.narrowest <= f16.bytes else ()),
        fuses=frozenset({f32, f64} if "fma" in machine.features else ()),
        stream_fence="llvm.x86.sse.sfence",
        # (Those of AVX2 need a register of masks, which LLVM replaces by branches.)
        gathers=frozenset({f32, s32, u32, f64, s64} if "avx512f" in machine.features else ()),
        permute=_PERMUTE if "avx512f" in machine.features else "",
        permute_words=_PERMUTE_WORDS if "avx512bw" in machine.features else "",
        scale=_SCALE if "avx512f" in machine.features else "",
        flushing=_FLUSHING if "avx512bf16" in machine.features else None,
        fences_min_max="avx512dq" in machine.features,
    )

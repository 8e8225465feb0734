"""LLVM IR text -> x86 object code, in process, through llvmlite.

Level 1 of code generation gives the same speed as level 3 (level 0 is 2 to 3 times slower).

LLVM reports most mistakes as errors, which become `CompilationError`. On others it ends the
process, with a message on stderr: an intrinsic that ``cpu`` and ``features`` lack, inline assembly
with a wrong mnemonic or constraint, an operation that it cannot select. So users' kernels are
compiled in a child process.
"""

from __future__ import annotations

import re
from functools import cache

import llvmlite.binding as llvm

from tilewright.targets.llvm.backend import Processor, emit, parsed
from tilewright.targets.llvm.emitter_client import refusal

TRIPLE = "x86_64-unknown-linux-gnu"

_UNKNOWN_INTRINSIC = re.compile(rb"\0(llvm\.[\w.]+)\0")


def assemble(
    ir_text: str, cpu: str, features: str = "", opt: int = 1, apart: bool = False
) -> bytes:
    """The ELF object file for ``ir_text``.

    ``cpu`` and ``features`` are LLVM's (``"znver4"``, ``"+avx512f,-amx-tile"``); ``opt`` is the
    level of code generation, 0 to 3. The code is position independent (small code model): it can
    be loaded anywhere and linked into programs and shared libraries. Raises `CompilationError`,
    with the name of a file that holds the IR; also where LLVM crashes, if that is in the helper
    process (``apart``). Safe to call from several threads.
    """
    processor = _processor(cpu, features, opt)
    code = emit(b"o", ir_text, processor, apart)
    # LLVM takes an unknown llvm.* name for an external function.
    unknown = _UNKNOWN_INTRINSIC.search(code)
    if unknown:
        message = f"LLVM has no intrinsic {unknown.group(1).decode()}"
        raise refusal(ir_text, message, processor.name)
    return code


def assembly(
    ir_text: str, cpu: str, features: str = "", opt: int = 1, remarks: bool = False
) -> str:
    """Like `assemble`, as assembly text (AT&T syntax), with LLVM's ``remarks`` as comments."""
    with parsed(ir_text, _processor(cpu, features, opt)) as (machine, module):
        machine.set_asm_verbosity(remarks)
        text: str = machine.emit_assembly(module)
        return text


@cache
def host_cpu() -> str:
    """LLVM's name of this machine's CPU, such as ``"znver4"``."""
    name: str = llvm.get_host_cpu_name()
    return name


@cache
def host_features() -> str:
    """All features that LLVM knows of, each with + (this machine has it) or - before it."""
    features: str = llvm.get_host_cpu_features().flatten()
    return features


def _processor(cpu: str, features: str, opt: int) -> Processor:
    return Processor(f"the CPU, {cpu}", TRIPLE, cpu, features, opt)

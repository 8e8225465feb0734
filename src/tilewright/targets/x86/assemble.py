"""LLVM IR text -> x86 object code, in process, through llvmlite.

The IR is explicit vector code, so no optimization pipeline runs: parsing takes 1-3 ms, code
generation the rest. Its level 1 gives the same speed as level 3 (level 0 is 2 to 3 times slower).
Loop strength reduction is off: our loops advance pointers themselves, and with LLVM's own attempt
code generation takes 3 to 10 times as long.

LLVM reports most mistakes as errors, which become `CompilationError`. Two kinds end the process
instead, with LLVM's message on stderr: an intrinsic that ``cpu`` and ``features`` do not have, and
inline assembly whose mnemonic or constraint is wrong.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm

from tilewright.targets.llvm.refusal import refusal

TRIPLE = "x86_64-unknown-linux-gnu"

# llvmlite locks each of its calls, but a target machine must not serve two modules at once. A fork
# has to find the lock free as well, or the child would wait for a thread that it does not have.
LLVM_LOCK = threading.RLock()

_UNKNOWN_INTRINSIC = re.compile(rb"\0(llvm\.[\w.]+)\0")


def assemble(ir_text: str, cpu: str, features: str = "", opt: int = 1) -> bytes:
    """The ELF object file for ``ir_text``.

    ``cpu`` and ``features`` are LLVM's (``"znver4"``, ``"+avx512f,-amx-tile"``); ``opt`` is the
    level of code generation, 0 to 3. The code is position independent (small code model): it can
    be loaded anywhere and linked into programs and shared libraries. Raises `CompilationError`,
    which names a file that holds the IR. Safe to call from several threads.
    """
    with _module(ir_text, cpu, features, opt) as (machine, module):
        code: bytes = machine.emit_object(module)
        # LLVM takes an unknown llvm.* name for an external function.
        unknown = _UNKNOWN_INTRINSIC.search(code)
        if unknown:
            raise RuntimeError(f"LLVM has no intrinsic {unknown.group(1).decode()}")
        return code


def assembly(ir_text: str, cpu: str, features: str = "", opt: int = 1) -> str:
    """Like `assemble`, as assembly text (AT&T syntax)."""
    with _module(ir_text, cpu, features, opt) as (machine, module):
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


@contextmanager
def _module(ir_text: str, cpu: str, features: str, opt: int) -> Iterator[tuple[Any, Any]]:
    """The parsed and verified module with its target machine; refusals become our error."""
    with LLVM_LOCK:
        # A context of its own for each module: the global one keeps every type and constant.
        context = llvm.create_context()
        try:
            machine = _machine(cpu, features, opt)
            with llvm.parse_assembly(ir_text, context) as module:
                module.verify()
                yield machine, module
        except RuntimeError as error:
            raise refusal(ir_text, str(error), f"the CPU, {cpu}") from error
        finally:
            context.close()


@lru_cache(maxsize=32)
def _machine(cpu: str, features: str, opt: int) -> Any:
    _initialize()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small"
    )


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # for inline assembly
    llvm.set_option("tilewright", "-disable-lsr")

"""LLVM in this process: one module at a time becomes code.

The IR is explicit code, so no optimization pipeline runs: parsing takes 1-3 ms, code generation the
rest. Loop strength reduction is off: our loops advance pointers themselves, and with that pass code
generation takes 3 to 10 times as long.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm

from tilewright.targets.llvm.refusal import refusal

# llvmlite locks each of its calls, but a target machine must not serve two modules at once. A fork
# waits for the lock: a child that inherited it locked would wait for a thread that it lacks.
LLVM_LOCK = threading.RLock()
# Position-independent code, which can be loaded anywhere.
POSITION = {"reloc": "pic", "codemodel": "small"}


@contextmanager
def parsed(
    ir_text: str, processor: str, triple: str, cpu: str, features: str, opt: int
) -> Iterator[tuple[Any, Any]]:
    """LLVM's target machine, and the parsed and verified module, both valid in the ``with`` block.

    ``triple``, ``cpu`` and ``features`` are LLVM's; ``opt`` is the level of code generation, 0 to
    3. An error of LLVM becomes a `CompilationError` for ``processor`` ("the CPU, znver4").
    """
    with LLVM_LOCK:
        # A new context for each module: the global one keeps every type and constant.
        context = llvm.create_context()
        try:
            machine = _machine(triple, cpu, features, opt)
            with llvm.parse_assembly(ir_text, context) as module:
                module.verify()
                yield machine, module
        except RuntimeError as error:
            raise refusal(ir_text, str(error), processor) from error
        finally:
            context.close()


@lru_cache(maxsize=32)
def _machine(triple: str, cpu: str, features: str, opt: int) -> Any:
    _initialize()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=opt, **POSITION
    )


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # for inline assembly
    llvm.set_option("tilewright", "-disable-lsr")


os.register_at_fork(
    before=LLVM_LOCK.acquire,
    after_in_parent=LLVM_LOCK.release,
    after_in_child=LLVM_LOCK.release,
)

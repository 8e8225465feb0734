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
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from tilewright.targets.llvm.emitter_client import emit_apart, refusal

# llvmlite locks each of its calls, but a target machine must not serve two modules at once. A fork
# waits for the lock: a child that inherited it locked would wait for a thread that it lacks.
LLVM_LOCK = threading.RLock()
# Position-independent code, which can be loaded anywhere.
_POSITION = {"reloc": "pic", "codemodel": "small"}


class Processor(NamedTuple):
    """What LLVM makes code for: its ``name`` in words ("the CPU, znver4"), and ``triple``, ``cpu``
    and ``features`` as LLVM spells them. ``opt`` is the level of code generation, 0 to 3."""

    name: str
    triple: str
    cpu: str
    features: str
    opt: int


def emit(kind: bytes, ir_text: str, processor: Processor, apart: bool) -> bytes:
    """The binary (``kind`` is ``b"o"``) or the text (``b"a"``) that LLVM makes of ``ir_text``: in a
    child process (``apart``) if one can be started, or in this one. Raises `CompilationError`."""
    if apart:
        name, triple, *_ = processor
        settings = {"cpu": processor.cpu, "features": processor.features, "opt": processor.opt}
        code = emit_apart(kind, ir_text, name, triple, **settings, **_POSITION)
        if code is not None:
            return code
    with parsed(ir_text, processor) as (machine, module):
        if kind == b"a":
            return str(machine.emit_assembly(module)).encode()
        return bytes(machine.emit_object(module))


@contextmanager
def parsed(ir_text: str, processor: Processor) -> Iterator[tuple[Any, Any]]:
    """LLVM's target machine, and the parsed and verified module, both valid in the ``with`` block.
    An error of LLVM becomes a `CompilationError`."""
    with LLVM_LOCK:
        # A new context for each module: the global one keeps every type and constant.
        context = llvm.create_context()
        try:
            machine = _machine(*processor[1:])
            with llvm.parse_assembly(ir_text, context) as module:
                module.verify()
                yield machine, module
        except RuntimeError as error:
            raise refusal(ir_text, str(error), processor.name) from error
        finally:
            context.close()


@lru_cache(maxsize=32)
def _machine(triple: str, cpu: str, features: str, opt: int) -> Any:
    _initialize()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=opt, **_POSITION
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

"""LLVM IR text -> PTX, in process -> cubin, by ptxas, where there is one.

The binary holds both: the PTX, a zero byte, and the cubin, which is empty without a ptxas: then the
driver assembles the PTX, as it does for a device that is newer than the cubin.

NVPTX's backend keeps no state: the same module gives the same text, whatever came before.
"""

from __future__ import annotations

import re

from tilewright.targets.llvm.backend import Processor, emit
from tilewright.targets.llvm.emitter_client import refusal
from tilewright.targets.nvidia.lower import TRIPLE
from tilewright.targets.nvidia.ptxas import Assembled, find_ptxas, missing, run_ptxas

_END = b"\0"
_UNKNOWN_INTRINSIC = re.compile(r"^\.extern \.func .*?(llvm\.[\w.$]+)", re.MULTILINE)
_OPT = 2
# PTX versions of capabilities whose first version lacks some of their instructions: that of CUDA
# 11; for products of 8-bit floats, of CUDA 12.4.
_VERSIONS = {"sm_70": "+ptx70", "sm_75": "+ptx70", "sm_89": "+ptx84", "sm_90a": "+ptx84"}


def to_ptx(ir_text: str, level: str, apart: bool = False) -> str:
    """The PTX for ``ir_text`` on a compute capability (``sm_80``), by LLVM in this process, or in a
    child process (``apart``).

    Raises `CompilationError` with the name of a file that holds the IR.
    """
    name, features = f"the target, {level}", _VERSIONS.get(level, "")
    ptx = emit(b"a", ir_text, Processor(name, TRIPLE, level, features, _OPT), apart).decode()
    # LLVM takes an unknown llvm.* name for a function of another module.
    unknown = _UNKNOWN_INTRINSIC.search(ptx)
    if unknown:
        raise refusal(ir_text, f"LLVM's NVPTX has no intrinsic {unknown.group(1)}", name)
    return ptx


def assemble(ir_text: str, level: str, apart: bool = False) -> bytes:
    """PTX and cubin in one, for `split_binary`. Raises `CompilationError`."""
    ptx = to_ptx(ir_text, level, apart)
    assembled = _assembled(ptx, level)
    return ptx.encode() + _END + (assembled.cubin if assembled else b"")


def split_binary(binary: bytes) -> tuple[bytes, bytes]:
    """The PTX and the cubin (empty: none) in a binary of `assemble`."""
    ptx, _, cubin = binary.partition(_END)
    return ptx, cubin


def assembly(ir_text: str, level: str) -> str:
    """The PTX, followed by ptxas's report on each function, as comments."""
    ptx = to_ptx(ir_text, level)
    assembled = _assembled(ptx, level)
    if assembled is None:
        report = [f"not assembled: no ptxas here knows {level}; {missing(level)}"]
    else:
        report = [*map(str, assembled.usage), *assembled.remarks]
    return ptx.rstrip() + "\n\n" + "".join(f"// {line}\n" for line in report)


def _assembled(ptx: str, level: str) -> Assembled | None:
    ptxas = find_ptxas(level)
    return run_ptxas(ptxas, ptx, level) if ptxas else None

"""NVIDIA's assembler, a program: PTX -> cubin, and a report of registers and spills.

It comes with CUDA or with the packages ``nvidia-cuda-nvcc`` and ``nvidia-cuda-nvcc-cu12``, whose
files are in a namespace package. Several may be installed, as CUDA 13 no longer supports sm_70.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tilewright.errors import CompilationError
from tilewright.targets.child_process import kept

# The first release of CUDA that supports each compute capability, and the first that does not.
_SUPPORTED: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "sm_70": ((9, 0), (13, 0)),
    "sm_75": ((10, 0), (99, 0)),
    "sm_80": ((11, 0), (99, 0)),
    "sm_89": ((11, 8), (99, 0)),
    "sm_90a": ((12, 0), (99, 0)),
    "sm_100a": ((12, 8), (99, 0)),
}
_SECONDS = 300
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
# Remarks on code that it had to change.
_REMARK = re.compile(r"\(C75\d\d\)")


@dataclass(frozen=True)
class Ptxas:
    """The program at ``path``, of a release of CUDA."""

    path: str
    release: tuple[int, int]

    def __str__(self) -> str:
        return f"ptxas {self.release[0]}.{self.release[1]}"


@dataclass(frozen=True)
class Usage:
    """Resources of one function: registers of a work-item, and bytes of its stack and of spills
    (stores and loads in the code)."""

    entry: str
    registers: int
    stack: int
    spilled: int

    def __str__(self) -> str:
        return (
            f"{self.entry}: {self.registers} registers, {self.spilled} bytes spilled, "
            f"{self.stack} bytes of stack"
        )


@dataclass(frozen=True)
class Assembled:
    """The cubin, the usage of each function, and remarks on code that was changed."""

    cubin: bytes
    usage: tuple[Usage, ...]
    remarks: tuple[str, ...]


def find_ptxas(level: str) -> Ptxas | None:
    """The newest installed one that supports a compute capability; None if there is none."""
    first, end = _SUPPORTED[level]
    fitting = [ptxas for ptxas in assemblers() if first <= ptxas.release < end]
    return max(fitting, key=lambda ptxas: ptxas.release, default=None)


def missing(level: str) -> str:
    """What to install for a compute capability."""
    package = "nvidia-cuda-nvcc-cu12" if _SUPPORTED[level][1] <= (13, 0) else "nvidia-cuda-nvcc"
    return f"pip install {package}, or put ptxas on the PATH"


@cache
def assemblers() -> tuple[Ptxas, ...]:
    """All installed ones."""
    programs = []
    for path in dict.fromkeys(_paths()):
        release = _release(path)
        if release is not None:
            programs.append(Ptxas(path, release))
    return tuple(programs)


def _paths() -> Iterator[str]:
    package = find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        yield from map(str, sorted(Path(folder).glob("*/bin/ptxas")))
    on_path = shutil.which("ptxas")
    if on_path:
        yield on_path


def _release(path: str) -> tuple[int, int] | None:
    """The release, or None for a program that does not run."""
    try:
        process = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    release = _RELEASE.search(process.stdout)
    return (int(release.group(1)), int(release.group(2))) if release else None


def run_ptxas(ptxas: Ptxas, ptx: str, level: str) -> Assembled:
    """Assembles ``ptx``. Raises `CompilationError` with the name of a file that holds it."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        try:
            source.write_text(ptx)
        except OSError as error:
            raise CompilationError(
                f"cannot write {source}, which ptxas assembles",
                why=error.strerror or str(error),
                cure="make room there, or name another folder in the variable TMPDIR",
            ) from error
        command = [ptxas.path, "-v", f"-arch={level}", "-o", str(result), str(source)]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _refusal(ptxas, ptx, level, str(error)) from error
        output = process.stdout + process.stderr
        if process.returncode or not result.exists():
            raise _refusal(ptxas, ptx, level, output)
        cubin = result.read_bytes()
    remarks = tuple(line.strip() for line in output.splitlines() if _REMARK.search(line))
    return Assembled(cubin, tuple(_usage(output)), remarks)


def _usage(output: str) -> Iterator[Usage]:
    """The usage of each function in the output."""
    entry, stack, spilled = "", 0, 0
    for line in output.splitlines():
        if match := _ENTRY.search(line):
            entry = match.group(1)
        elif match := _FRAME.search(line):
            stack = int(match.group(1))
            spilled = int(match.group(2)) + int(match.group(3))
        elif entry and (match := _REGISTERS.search(line)):
            yield Usage(entry, int(match.group(1)), stack, spilled)
            entry, stack, spilled = "", 0, 0


def _refusal(ptxas: Ptxas, ptx: str, level: str, message: str) -> CompilationError:
    return CompilationError(
        f"{ptxas} refused the generated code for {level}",
        where=kept(ptx.encode(), ".ptx"),
        why=message.strip() or "it says nothing",
        cure="this is a defect of Tilewright: report it with that file; or it is the program: "
        f"`{ptxas.path} --version` says which one it is",
    )

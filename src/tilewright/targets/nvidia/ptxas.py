"""NVIDIA's assembler, a program: PTX -> cubin, with what it says of registers and spills.

It comes with CUDA or with the packages ``nvidia-cuda-nvcc`` and ``nvidia-cuda-nvcc-cu12``, whose
files lie in a namespace package. Several may be here, as CUDA 13 no longer knows sm_70.
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

# From which release of CUDA on, and up to which, each compute capability is known.
_KNOWN: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
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
# What it remarks on code that it could not leave as it was.
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
    """What one function takes: registers of a work-item, and bytes of its stack and of spills
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
    """The cubin, what each function takes, and remarks on code that it changed."""

    cubin: bytes
    usage: tuple[Usage, ...]
    remarks: tuple[str, ...]


def find_ptxas(level: str) -> Ptxas | None:
    """The newest one here that knows a compute capability; None if there is none."""
    first, behind = _KNOWN[level]
    fitting = [each for each in assemblers() if first <= each.release < behind]
    return max(fitting, key=lambda each: each.release, default=None)


def missing(level: str) -> str:
    """What to install for a compute capability."""
    package = "nvidia-cuda-nvcc-cu12" if _KNOWN[level][1] <= (13, 0) else "nvidia-cuda-nvcc"
    return f"pip install {package}, or put ptxas on the PATH"


@cache
def assemblers() -> tuple[Ptxas, ...]:
    """All that are here."""
    found = []
    for path in dict.fromkeys(_paths()):
        release = _release(path)
        if release is not None:
            found.append(Ptxas(path, release))
    return tuple(found)


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
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _RELEASE.search(done.stdout)
    return (int(found.group(1)), int(found.group(2))) if found else None


def run_ptxas(ptxas: Ptxas, ptx: str, level: str) -> Assembled:
    """Assembles ``ptx``. Raises `CompilationError`, which names a file that holds it."""
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
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _refusal(ptxas, ptx, level, str(error)) from error
        said = done.stdout + done.stderr
        if done.returncode or not result.exists():
            raise _refusal(ptxas, ptx, level, said)
        cubin = result.read_bytes()
    remarks = tuple(line.strip() for line in said.splitlines() if _REMARK.search(line))
    return Assembled(cubin, tuple(_usage(said)), remarks)


def _usage(said: str) -> Iterator[Usage]:
    """One for each function that the output tells of."""
    entry, stack, spilled = "", 0, 0
    for line in said.splitlines():
        if found := _ENTRY.search(line):
            entry = found.group(1)
        elif found := _FRAME.search(line):
            stack = int(found.group(1))
            spilled = int(found.group(2)) + int(found.group(3))
        elif entry and (found := _REGISTERS.search(line)):
            yield Usage(entry, int(found.group(1)), stack, spilled)
            entry, stack, spilled = "", 0, 0


def _refusal(ptxas: Ptxas, ptx: str, level: str, message: str) -> CompilationError:
    with tempfile.NamedTemporaryFile(
        "w", prefix="tilewright-", suffix=".ptx", delete=False, encoding="utf-8"
    ) as file:
        file.write(ptx)
    return CompilationError(
        f"{ptxas} refused the generated code for {level}",
        where=file.name,
        why=message.strip() or "it says nothing",
        cure="this is a defect of Tilewright: report it with that file; or it is the program: "
        f"`{ptxas.path} --version` says which one it is",
    )

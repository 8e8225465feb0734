"""Which generator makes the code: a cached kernel of another one is never taken, nor its config."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import llvmlite

_PACKAGE = Path(__file__).resolve().parent.parent
# Rooms of which the code of a kernel, whose text is known, does not depend.
_APART = {"bench", "cli", "frontends", "graph", "lang", "measure", "testing", "tune"}


@cache
def generator_identity() -> str:
    """Changes whenever a source file of this package or LLVM does: names, sizes and times of all
    files, which takes a millisecond."""
    marks: list[str] = [llvmlite.__version__]
    folders = [_PACKAGE]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        folders.append(Path(entry.path))
                elif entry.name.endswith(".py"):
                    status = entry.stat()
                    marks.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(marks)).encode()).hexdigest()


@cache
def generator_version() -> str:
    """The same wherever the same sources and LLVM make code, unlike `generator_identity`: hashes
    the sources, which takes ten milliseconds."""
    digest = hashlib.sha256(llvmlite.__version__.encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = path.relative_to(_PACKAGE)
        if name.parts[0] not in _APART:
            digest.update(f"\n{name.as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]

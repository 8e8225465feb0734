"""Which generator makes the code: a cached kernel of another one is never taken."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import llvmlite

_PACKAGE = Path(__file__).resolve().parent.parent


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

"""This machine: its features from LLVM, its caches from the operating system."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from tilewright.errors import UnsupportedError
from tilewright.machines import x86
from tilewright.machines.machine import Machine
from tilewright.targets.x86.assemble import host_features

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
# Linux, arch/x86/include/uapi/asm/prctl.h, and the state component of tile data.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
_ASSUMED = {1: 32 * 2**10, 2: 2**20, 3: 16 * 2**20}


@cache
def host() -> Machine:
    """The machine that this process runs on: the highest level whose features it has."""
    features = {f[1:] for f in host_features().split(",") if f.startswith("+")}
    if "amx-tile" in features and not _allow_tiles():
        features = {feature for feature in features if not feature.startswith("amx")}
    for level in reversed(x86.LEVELS):
        machine = x86.machine(level, len(os.sched_getaffinity(0)), _cache_sizes())
        if machine.features <= features:
            return machine
    raise UnsupportedError(
        "this processor is older than the oldest x86-64 that has kernels",
        cure="it needs " + ", ".join(sorted(x86.machine(x86.LEVELS[0]).features)),
    )


def _allow_tiles() -> bool:
    """Asks the system for permission to use tile registers; whether it grants it."""
    libc = ctypes.CDLL(None)
    return bool(libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def _cache_sizes() -> tuple[int, ...]:
    """L1 data, L2 and L3 in bytes; unknown sizes are assumed."""
    sizes = dict(_ASSUMED)
    for index in sorted(_CACHES.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
            sizes[level] = int(text[:-1]) * _UNITS[text[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return tuple(sizes[level] for level in (1, 2, 3))

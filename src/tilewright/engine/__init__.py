"""Compiling: a kernel, a target and a config become a program, which is cached.

In reading order: `signature` (what a caller passes), `request` (what is asked for: a kernel and its
signature, from whatever gives one), `scheduling` (what a user writes a schedule with), `choosing`
(the choice of a config), `program` (code, loaded), `compile` (the way there, and the
caches), `fitting` (what the arrays of a call have to be), `kernel` (what a user holds and calls),
`holding` (a kernel with some of its arguments), `cost` (what the code costs), `trace` (what a
compilation did; `page`: for a browser), `export` (files for others), `disk_cache` (bytes by their
key), `entry` (what is kept of a kernel there), `rows` and `database_file` (what the tuner keeps),
`winners` (what is taken from there).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Loaded when first used, as `tilewright` does it: the cache on disk is asked for without them.
if TYPE_CHECKING:
    from tilewright.engine.compile import compile_kernel
    from tilewright.engine.kernel import CompiledKernel
    from tilewright.engine.placing import Packed
    from tilewright.engine.scheduling import Schedule

__all__ = ["CompiledKernel", "Packed", "Schedule", "compile_kernel"]

_HOMES = {
    "CompiledKernel": "kernel",
    "Packed": "placing",
    "Schedule": "scheduling",
    "compile_kernel": "compile",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

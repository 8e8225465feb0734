"""Kernels run by hand on arrays: interpreted, and as code of a target that runs here."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.engine.program import Code
from tilewright.interpret import run
from tilewright.ir import Kernel, verify
from tilewright.targets.program import abi_of
from tilewright.targets.registry import find_target

Arrays = dict[str, Any]


def interpreted(kernel: Kernel, arrays: Arrays) -> Arrays:
    """What ``kernel`` makes of the arrays, by the interpreter."""
    verify(kernel)
    memory = {name: array.copy() for name, array in arrays.items()}
    run(kernel, memory)
    return memory


def compiled(kernel: Kernel, arrays: Arrays, target: str) -> Arrays:
    """The same, as machine code."""
    where = find_target(target)
    module = where.lower(kernel)
    code = Code(where, where.assemble(module), abi_of(kernel, module))
    memory = {name: array.copy() for name, array in arrays.items()}
    code.run([memory[param.name].ctypes.data for param in kernel.params], 1)
    return memory


def assert_same(got: Arrays, wanted: Arrays) -> None:
    """Equal to the bit, except that one NaN is as good as another."""
    for name in wanted:
        a, b = (np.ascontiguousarray(arrays[name]) for arrays in (got, wanted))
        plain = f"u{a.dtype.itemsize}"
        same = a.view(plain) == b.view(plain)
        if a.dtype.kind not in "biu":
            with np.errstate(all="ignore"):
                wide_a, wide_b = (array.astype(np.float64) for array in (a, b))
            same |= np.isnan(wide_a) & np.isnan(wide_b)
        if not same.all():
            at = int(np.argmin(same))
            raise AssertionError(
                f"{name}[{at}] is {a[at]!r}, not {b[at]!r}; {np.sum(~same)} of {len(a)} differ"
            )

"""Floor division and modulo as machine code, beside the interpreter: signs, ends of types, zero."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.dtypes import DType, s8, s32, s64, u8
from tilewright.engine.program import Code
from tilewright.interpret import run
from tilewright.ir import parse_kernel, verify
from tilewright.targets.program import abi_of
from tilewright.targets.x86.target import x86_target


def values(type_: DType) -> np.ndarray:
    """128 of them: around 0, around the ends, and at random."""
    low, high = int(type_.lowest), int(type_.highest)
    near = [v for v in range(-20, 21) if low <= v <= high]
    ends = [low + i for i in range(8)] + [high - i for i in range(8)]
    random = np.random.default_rng(0).integers(low, high, 128, dtype=np.int64)
    return np.array([*near, *ends, *random][:128], np.int64).astype(type_.numpy)


DIVISORS = [
    (type_, divisor)
    for type_ in (s64, s32, s8, u8)
    for divisor in (-7, -1, 0, 1, 3, 7, 8, 100)
    if divisor >= type_.lowest
]


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("type_", "divisor"), DIVISORS, ids=str)
def test_division_by_a_constant(type_: DType, divisor: int, lanes: int) -> None:
    constant = str(divisor) if type_ is s64 else f"{type_}({divisor})"
    kind = "vector for" if lanes > 1 else "for"
    kernel = parse_kernel(
        f"""
kernel divide(in src: {type_}[128], out quotient: {type_}[128], out rest: {type_}[128]):
  for o in {128 // lanes}:
    {kind} i in {lanes}:
      quotient[o * {lanes} + i] = src[o * {lanes} + i] // {constant}
      rest[o * {lanes} + i] = src[o * {lanes} + i] % {constant}
"""
    )
    verify(kernel)
    memory = {
        name: values(type_) if name == "src" else np.zeros(128, type_.numpy)
        for name in ("src", "quotient", "rest")
    }
    wanted = {name: array.copy() for name, array in memory.items()}
    run(kernel, wanted)
    target = x86_target("")
    module = target.lower(kernel)
    code = Code(target, target.assemble(module), abi_of(kernel, module))
    code.run([array.ctypes.data for array in memory.values()], 1)
    for name, array in memory.items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)

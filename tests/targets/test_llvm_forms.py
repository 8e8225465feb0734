"""Every operator and cast on every type, in vectors of every width: LLVM takes it for each level.

Of some forms, LLVM ends its process, which is one of its own here.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sweeps import in_turns
from tilewright.dtypes import COMPUTED, DType, boolean
from tilewright.facts import Facts, starting_from
from tilewright.ir.operators import BINARY, COMPARISONS, KINDS, UNARY
from tilewright.ir.parser import parse_kernel
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.passes import run
from tilewright.targets.llvm.module import Module
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target

LEVELS = ("sse42", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16")
TARGETS = ("nvidia:sm_80", "nvidia:sm_90a", "spirv:cpu", *(f"x86:{level}" for level in LEVELS))
WIDTHS = (64, 1, 2, 3, 4, 8, 12, 16, 24)
# Narrow floats at the end: more of the tests that are not left to sweeps have these.
TYPES = sorted(COMPUTED, key=lambda dtype: (dtype.is_float, -dtype.bytes))
# Of a function that is longer, LLVM takes more than so many times as long.
_AT_ONCE = 20
_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "and": "and",
    "or": "or",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
}
_PREFIXES = {"neg": "-", "not": "not "}


def _values(dtype: DType) -> list[tuple[DType, str]]:
    """What is computed, each with its type: of arrays, of numbers that LLVM sees only late, after
    it has made operations of what the machine has, and of what is the same in all lanes."""
    result: list[tuple[DType, str]] = []
    for x, y in (("a[i]", "b[i]"), ("late[i % 4]", "b[i]"), ("late[i % 4]", "late[0]")):
        for op in BINARY:
            if dtype.kind in KINDS[op]:
                text = f"{x} {_SIGNS[op]} {y}" if op in _SIGNS else f"{op}({x}, {y})"
                result.append((boolean if op in COMPARISONS else dtype, text))
        for op in UNARY:
            if dtype.kind in KINDS[op]:
                text = f"{_PREFIXES[op]}{x}" if op in _PREFIXES else f"{op}({x})"
                result.append((dtype, text))
        result += [(to, f"{to}({x})") for to in COMPUTED if to is not dtype]
        result.append((dtype, f"select(c[i], {x}, {y})"))
        result.append((dtype, f"select(c[0], {x}, {y})"))
    return result


def kernel_of(dtype: DType, width: int, values: Sequence[tuple[DType, str]]) -> Kernel:
    names = [f"r{number}" for number in range(len(values))]
    outs = "".join(f", out {n}: {to}[{width}]" for n, (to, _) in zip(names, values, strict=True))
    number = "True" if dtype is boolean else f"{dtype}({3 if dtype.is_integer else 1.5})"
    lines = [
        f"kernel forms(in a: {dtype}[{width}], in b: {dtype}[{width}], in c: bool[{width}]{outs}):",
        f"  alloc late: {dtype}[4] private",
        *(f"  late[{place}] = {number}" for place in range(4)),
        f"  vector for i in {width}:",
        *(f"    {n}[i] = {text}" for n, (_, text) in zip(names, values, strict=True)),
    ]
    kernel = parse_kernel("\n".join(lines) + "\n")
    verify(kernel)
    return kernel


@pytest.mark.parametrize(
    ("target", "width", "dtype"), in_turns(26, TARGETS, WIDTHS, TYPES), ids=str
)
def test_llvm_takes_it(target: str, width: int, dtype: DType) -> None:
    if target.startswith("spirv") and width > 16:
        width = width % 13 + 2  # it has no wider ones
    result, values = find_target(target), _values(dtype)
    assert len(values) > 5
    for first in range(0, len(values), _AT_ONCE):
        kernel = kernel_of(dtype, width, values[first : first + _AT_ONCE])
        assert result.assemble(_lowered(result, kernel), True)


def _lowered(target: Target, kernel: Kernel) -> Module:
    with starting_from(Facts.of(kernel)):
        return target.lower(run(kernel))

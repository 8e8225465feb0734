"""The loop of a kernel's assembly that most of its work is in."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Labels of LLVM's in assembly of x86 (``.LBB0_5:``) and in PTX (``$L__BB0_5:``), and jumps there.
_LABEL = re.compile(r"^[ \t]*([.$]L\w+):")
_JUMP = re.compile(r"^[ \t]+(?:@!?%\w+[ \t]+)?(?:j[a-z]+|bra(?:\.\w+)?)[ \t]+([.$]L\w+)")
# What multiplies, or adds up products, by how its name begins.
_MULTIPLIES = re.compile(r"^[ \t]+(?:v?f?n?m(?:add|ul)|vpmul|v?pmul|vd?p|fma|mad|mma|wgmma|tdp)")
_SPILL = re.compile(r"\b\d+-byte (?:Folded )?(?:Spill|Reload)")


def hot_loop(assembly: str) -> list[str]:
    """The lines of the innermost loop that multiplies most, or else of the longest; empty where
    there is no loop, or no assembly with labels."""
    lines = assembly.splitlines()
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        label, jump = _LABEL.match(line), _JUMP.match(line)
        if label is not None:
            labels[label.group(1)] = number
        elif jump is not None and jump.group(1) in labels:
            loops.append((labels[jump.group(1)], number))
    inner = [loop for loop in loops if not any(_inside(other, loop) for other in loops)]
    best = max(inner, key=lambda loop: _work(lines[loop[0] : loop[1] + 1]), default=None)
    return [] if best is None else lines[best[0] : best[1] + 1]


def is_spill(line: str) -> bool:
    """Whether a line moves a register to or from the stack for want of registers, as LLVM says in a
    remark."""
    return _SPILL.search(line) is not None


def _inside(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and other[0] <= one[0] and one[1] <= other[1]


def _work(lines: Sequence[str]) -> tuple[int, int]:
    return sum(_MULTIPLIES.match(line) is not None for line in lines), len(lines)

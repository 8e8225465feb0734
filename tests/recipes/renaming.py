"""Kernels with other names: what schedules do must not depend on them."""

from __future__ import annotations

import random
import re

import tilewright as tw
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.visit import walk_stmts


def names_of(kernel: Kernel) -> list[str]:
    """Every name that stands in a kernel of computes: of buffers, computes, dims, operands."""
    result = [param.name for param in kernel.params]
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Allocate):
            result.append(stmt.buffer.name)
        elif isinstance(stmt, Compute):
            result += [stmt.name, *(d.var.name for d in stmt.dims)]
            result += [operand.var.name for operand in stmt.operands]
    return list(dict.fromkeys(result))


def renamed(kernel: Kernel, rng: random.Random) -> tuple[Kernel, dict[str, str]]:
    """``kernel`` with another name for everything that has one, but itself; and the old names by
    the new ones."""
    names = names_of(kernel)
    numbers = rng.sample(range(1000, 10_000), len(names))
    new = {name: f"{rng.choice('abkmnxyz')}x{n}" for name, n in zip(names, numbers, strict=True)}
    head, rest = to_text(kernel).split("(", 1)
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    other = tw.parse_kernel(f"{head}({pattern.sub(lambda each: new[each[0]], rest)}\n")
    return other, {value: name for name, value in new.items()}


def with_names(text: str, names: dict[str, str]) -> str:
    """``text`` with what `renamed` renamed called as before."""
    return re.sub(r"[abkmnxyz]x\d{4}", lambda each: names.get(each[0], each[0]), text)

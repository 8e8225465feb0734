"""Names of buffers, computes and kernels."""

from __future__ import annotations

import re


def identifier(name: str) -> str:
    """``name`` as one word: letters, digits, and underscores for all else."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return f"v{word}" if word[:1].isdigit() else word


def unused(name: str, taken: dict[str, int]) -> str:
    """A name like ``name`` that is not ``taken``; it is from then on. Each has the number that the
    next one like it may have."""
    stem = identifier(name) or "value"
    result, number = stem, taken.get(stem, 2)
    while result in taken:
        result, number = f"{stem}_{number}", number + 1
    taken[stem] = number
    taken.setdefault(result, 2)
    return result

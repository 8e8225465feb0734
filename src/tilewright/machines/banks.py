"""How long the banks of shared memory, and segments of global memory, keep a subgroup waiting.

An access is what the lanes of a subgroup touch by one instruction: addresses in an array of
(accesses, lanes, elements), the elements being those of a vector. One lane accesses up to 16 bytes
at once, where they lie side by side. Lanes that access 16 bytes each take turns by quarters of a
subgroup, those that access 8 bytes by halves. In a turn, each bank serves one word; several words
of one bank make a conflict.

Source: NVIDIA, CUDA C++ Best Practices Guide, "Shared Memory".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.machines.machine import Hierarchy

# Bytes that one lane accesses at once, at most.
WIDEST = 16
# Bytes of what all lanes of a subgroup access at the same time, each; and of a bank's words.
WORD = 4
# Rows of 16 bytes that make a matrix.
ROWS = 8


def instructions(starts: Any, active: Any, size: int) -> tuple[Any, Any]:
    """``starts`` with as many elements of ``size`` bytes as one lane accesses at once, and which
    lanes do: up to 16 bytes where they lie next to each other, otherwise one element.

    ``starts`` are addresses in bytes and ``active`` says which count, both (accesses, lanes,
    elements). Gives the addresses, and which lanes count as (accesses, lanes).
    """
    elements = starts.shape[-1]
    count = math.gcd(elements, max(1, WIDEST // size))
    # Where nothing is accessed, an address means nothing.
    near = (starts[..., 1:] - starts[..., :-1] == size) | ~active[..., 1:]
    together = np.all(near)
    if elements > 1 and not (together and np.all(active == active[..., :1])):
        count = 1
    shape = (*starts.shape[:-1], elements // count, count)
    starts, active = (np.moveaxis(a.reshape(shape), 2, 0) for a in (starts, active))
    starts = starts.reshape(-1, *starts.shape[2:])
    return starts, active.reshape(starts.shape)[..., 0]


def turns(starts: Any, active: Any, size: int, hierarchy: Hierarchy) -> Any:
    """The turns that the banks take for each part of a subgroup that is served at once; 0 where it
    accesses nothing. Arguments as `instructions` gives them."""
    accesses, lanes, elements = starts.shape
    parts = max(1, elements * size // WORD)
    while lanes % parts:
        parts -= 1
    shape = (accesses * parts, lanes // parts * elements)
    words = (starts // hierarchy.bank).reshape(shape)
    used = np.broadcast_to(active[..., None], starts.shape).reshape(shape)
    row, word = distinct(words, used)
    banks = np.bincount(
        row * hierarchy.banks + word % hierarchy.banks, minlength=shape[0] * hierarchy.banks
    )
    return banks.reshape(shape[0], hierarchy.banks).max(axis=1)


def rows(starts: Any, size: int) -> tuple[Any, Any]:
    """Accesses by instructions that load or store matrices, as `turns` takes them, of single words:
    such a one takes eight rows of 16 bytes at a time, whichever lanes hold them.

    ``starts`` are addresses of elements of ``size`` bytes as (matrices, rows, elements of a row).
    Source: NVIDIA, PTX ISA, "Warp-level matrix load instruction: ldmatrix".
    """
    words = starts[..., :: max(1, WORD // size)]
    count, of_rows, of_words = words.shape
    words = words.reshape(count, of_rows * of_words, 1)
    return words, np.ones(words.shape[:2], np.bool_)


def distinct(values: Any, used: Any) -> tuple[Any, Any]:
    """The distinct values of each row, where ``used``: rows and values, 1-D."""
    least = np.iinfo(np.int64).min
    ordered = np.sort(np.where(used, values, least), axis=1)
    new = ordered != least
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    row, column = np.nonzero(new)
    return row, ordered[row, column]

"""A trial: one run of a compiled kernel, on what, and what may come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.arguments import Scalar
from tilewright.ops.op import Argument
from tilewright.testing.approximate import Accepted

# Why a run says nothing of a kernel.
NOTHING_STORED = "no work-item stored anything"


class UntriedError(Exception):
    """There is nothing to compare with: a kernel has no meaning on these inputs, or nobody knows
    it."""


@dataclass(frozen=True)
class Trial:
    """A run on ``inputs`` (of logical shape, by name) and ``numbers``. ``accepted`` says of the
    arrays as they lie in memory, where strides of 0 make several elements one, what each result may
    be, or raises `UntriedError`. ``name`` is what reports call it."""

    name: str
    arguments: Sequence[Argument]
    inputs: Mapping[str, Any]
    accepted: Callable[[Mapping[str, Any]], Mapping[str, Accepted]]
    numbers: Mapping[str, Scalar] = field(default_factory=dict)

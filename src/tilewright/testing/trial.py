"""A trial: one run of a compiled kernel, and its accepted results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.arguments import Scalar
from tilewright.ops.op import Argument
from tilewright.testing.approximate import Accepted

# Reason why a run does not test a kernel.
NOTHING_STORED = "no work-item stored anything"


class UntriedError(Exception):
    """A kernel's results on these inputs are undefined, or unknown."""


@dataclass(frozen=True)
class Trial:
    """A run on ``inputs`` (of logical shape, by name) and ``numbers``. ``accepted`` maps the arrays
    in memory (where strides of 0 make several elements one) to the accepted values of each result,
    or raises `UntriedError`. ``name`` is its name in reports."""

    name: str
    arguments: Sequence[Argument]
    inputs: Mapping[str, Any]
    accepted: Callable[[Mapping[str, Any]], Mapping[str, Accepted]]
    numbers: Mapping[str, Scalar] = field(default_factory=dict)

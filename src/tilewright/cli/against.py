"""``tilewright verify --against torch``: a trial whose results are PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.bench.torch_results import torch_results
from tilewright.errors import ProblemError
from tilewright.ops.op import Op
from tilewright.testing.approximate import Accepted
from tilewright.testing.bounds import roundoff
from tilewright.testing.expected import expected
from tilewright.testing.inputs import make_inputs
from tilewright.testing.trial import Trial

# Roundings of a result's type that PyTorch may be off beside the bound: it keeps what lies between
# its steps in that type.
_ROUNDINGS = 8


def check_against(given: str) -> None:
    """Raises `ProblemError` for who is no second opinion."""
    if given not in ("", "torch"):
        raise ProblemError(
            f"there is nothing to compare with called {given!r}",
            where="--against",
            cure="write torch",
        )


def against_torch(op: Op, seed: int) -> Iterator[Trial]:
    """The op on reals, where each result is what PyTorch gives, within the bounds of both.

    Raises `UnsupportedError` where PyTorch has nothing that does the same.
    """
    plain = replace(op, layouts=())
    inputs = make_inputs(plain, exact=False, seed=seed)
    theirs = torch_results(plain, inputs)

    def accept(given: Mapping[str, Any]) -> Mapping[str, Accepted]:
        # The bounds do not depend on who computes; those of what they do not give are ours.
        found = dict(expected(plain, given, exact=False))
        made = theirs if given is inputs else torch_results(plain, given)
        for name, value in made.items():
            bound = found[name]
            want = value.astype(np.float64)
            with np.errstate(invalid="ignore"):
                room = np.where(np.isfinite(bound.want), bound.high - bound.low, 0.0)
                off = _ROUNDINGS * roundoff(op.argument(name).dtype) * np.abs(want)
            room = room + np.where(np.isfinite(want), off, 0.0)
            found[name] = Accepted(want, want - room, want + room)
        return found

    yield Trial("reals, against PyTorch", op.resolved().arguments, inputs, accept)

"""``tilewright verify --against torch``: a trial whose expected results are PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.bench.torch_work import torch_results
from tilewright.errors import ProblemError
from tilewright.ops.op import Op
from tilewright.testing.approximate import Accepted
from tilewright.testing.bounds import roundoff
from tilewright.testing.expected import expected
from tilewright.testing.inputs import make_inputs
from tilewright.testing.trial import Trial

# Roundings of a result's type by which PyTorch may be off besides the bound: it rounds intermediate
# results to that type.
_ROUNDINGS = 8


def check_against(framework: str) -> None:
    """Raises `ProblemError` for an unknown framework."""
    if framework not in ("", "torch"):
        raise ProblemError(
            f"there is nothing to compare with called {framework!r}",
            where="--against",
            cure="write torch",
        )


def against_torch(op: Op, seed: int) -> Iterator[Trial]:
    """The op on reals, with PyTorch's results, within the bounds of both.

    Raises `UnsupportedError` where PyTorch has no equivalent.
    """
    plain = replace(op, layouts=())
    inputs = make_inputs(plain, exact=False, seed=seed)
    theirs = torch_results(plain, inputs)

    def accept(arrays: Mapping[str, Any]) -> Mapping[str, Accepted]:
        # The bounds are those of our reference, and so are results that PyTorch does not give.
        accepted = dict(expected(plain, arrays, exact=False))
        torch_values = theirs if arrays is inputs else torch_results(plain, arrays)
        for name, value in torch_values.items():
            bound = accepted[name]
            want = value.astype(np.float64)
            with np.errstate(invalid="ignore"):
                room = np.where(np.isfinite(bound.want), bound.high - bound.low, 0.0)
                off = _ROUNDINGS * roundoff(op.argument(name).dtype) * np.abs(want)
            room = room + np.where(np.isfinite(want), off, 0.0)
            accepted[name] = Accepted(want, want - room, want + room)
        return accepted

    yield Trial("reals, against PyTorch", op.resolved().arguments, inputs, accept)

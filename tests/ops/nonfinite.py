"""What sums of products may be where operands hold infinities and NaN: the oracle of tests.

Every product of elements that exist is formed, and the sum is what IEEE 754 says of it. Where the
first operand is masked (its tap lies in the padding or, by data, between two steps of a stride),
the product is left out, or it is 0 times the other operand: NaN where that one is not finite.
Which of the two is left open, for each product by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tilewright.ir.evaluate import evaluate
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.ops.op import Op


@dataclass(frozen=True)
class Terms:
    """The products of a contraction, one at each place: where the two operands and the result lie,
    by the names of their buffers, and whether the first operand exists there."""

    names: tuple[str, str, str]
    places: tuple[Any, Any, Any]
    exists: Any


def terms_of(op: Op) -> Terms:
    """The products of a convolution or matmul, from the views of its naive kernel."""
    kernel = op.kernel()
    main, last = (_compute(kernel, name) for name in ("main", "epilogue"))
    views = (*(operand.view for operand in main.operands), last.out)
    mask = views[0].mask
    rows: list[list[tuple[int, ...]]] = [[], [], []]
    exists = []
    for point in product(*(range(int(dim.extent.value)) for dim in main.dims)):  # type: ignore[attr-defined]
        values = dict(zip((dim.var for dim in main.dims), point, strict=True))
        there = mask is None or bool(evaluate(mask, values))
        exists.append(there)
        for view, row in zip(views, rows, strict=True):
            absent = view is views[0] and not there
            row.append(tuple(0 if absent else int(evaluate(i, values)) for i in view.index))
    a, b, c = (tuple(np.array(row).T) for row in rows)
    first, second, third = (view.buffer.name for view in views)
    return Terms((first, second, third), (a, b, c), np.array(exists))


def _compute(kernel: Kernel, name: str) -> Compute:
    result = (s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and s.name == name)
    return next(result)


def allowed(terms: Terms, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The sums over what exists, and whether NaN may stand in their place."""
    a, b = (
        arrays[name].astype(np.float64)[place]
        for name, place in zip(terms.names[:2], terms.places[:2], strict=True)
    )
    sums = np.zeros(shape)
    with np.errstate(invalid="ignore"):
        products = np.where(terms.exists, a, 0.0) * np.where(terms.exists, b, 0.0)
        np.add.at(sums, terms.places[2], products)
    may_be_nan = np.zeros(shape, bool)
    masked = ~terms.exists & ~np.isfinite(b)
    may_be_nan[tuple(place[masked] for place in terms.places[2])] = True
    return sums, may_be_nan


def wrong(got: Any, sums: Any, may_be_nan: Any) -> list[tuple[int, ...]]:
    """The places where ``got`` is neither the sum nor a NaN that may stand there."""
    same = (got == sums) | (np.isnan(got) & np.isnan(sums))
    bad = np.argwhere(~same & ~(may_be_nan & np.isnan(got)))
    return [tuple(int(i) for i in place) for place in bad]

"""Exponentials that are 0 where they would be less than all normal numbers."""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.dtypes import f32, f64
from tilewright.ir.expr import Expr, Unary, const, select, unary
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import rewrite, walk
from tilewright.schedule.queries.place import computes_named, rewrite_computes
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform

# The exponents of the least normal numbers.
_LEAST = {f32: -126, f64: -1022}


@transform
@asks(compute=a_plain_compute)
def flush_powers(kernel: Kernel, compute: str) -> Kernel:
    """Makes exponentials 0 where they would be less than all normal numbers, or hardly greater.

        compute powers(i in 8): p[i] = exp(x - m)    (x = x[i]; m = m[0])
    ->  flush_powers("powers")
        compute powers(i in 8): p[i] = exp(select(x - m < -87.33646, -inf, x - m))

    They are off by 1.2e-38 then (of f64, 2.3e-308). Beside the exponential of a maximum less
    itself, which is 1, that is nothing, and Intel's processors take ten times as long for a vector
    that makes or multiplies such numbers.
    """
    for stmt, _ in computes_named(kernel, compute):
        if not any(map(_is_power, _nodes(stmt))):
            raise refusal(
                f"'{compute}' computes no exponential of f32 or f64",
                stmt,
                "choose a compute that does",
            )

    def flushed(node: Expr) -> Expr:
        if not _is_power(node) or not isinstance(node, Unary):
            return node
        # A little more, as the bound is rounded to the type.
        least = const(_LEAST[node.type] * math.log(2) * (1 - 1e-6), node.type)
        return unary("exp", select(node.a < least, const(-math.inf, node.type), node.a))

    def change(stmt: Compute, _place: object) -> Compute:
        results = (
            replace(r, values=tuple(rewrite(value, flushed) for value in r.values))
            for r in stmt.results
        )
        return replace(stmt, results=tuple(results))

    return rewrite_computes(kernel, {compute}, change)


def _is_power(node: Expr) -> bool:
    return isinstance(node, Unary) and node.op == "exp" and node.type in _LEAST


def _nodes(compute: Compute) -> list[Expr]:
    return [node for r in compute.results for value in r.values for node in walk(value)]

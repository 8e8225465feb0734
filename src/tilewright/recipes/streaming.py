"""Ops without a contraction on a CPU: vector loops over the result, its outer dims on threads."""

from __future__ import annotations

from tilewright.ir.stmt import Kernel
from tilewright.schedule.loops import lower_computes


def lower_rest(kernel: Kernel) -> Kernel:
    """Every compute that is left becomes loops."""
    return lower_computes(kernel)

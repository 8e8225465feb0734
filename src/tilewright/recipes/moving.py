"""Computes that move elements and compute none: their vectors are as wide as registers are."""

from __future__ import annotations

from tilewright.ir.expr import Var
from tilewright.ir.load import Load
from tilewright.ir.stmt import Compute, Kernel, View
from tilewright.machines.machine import Machine
from tilewright.recipes.reducible import computes_in, contiguous
from tilewright.recipes.sizes import steps_of


def moved_bytes(kernel: Kernel, machine: Machine) -> int | None:
    """The bytes of the widest elements, where threads move runs of them and nothing else happens
    (vectors of devices have no more elements than those of 4 bytes)."""
    found = computes_in(kernel)
    if machine.hierarchy is not None or not found or not all(map(moves, found)):
        return None
    return max(view.buffer.dtype.bytes for compute in found for view in compute.outputs)


def moves(compute: Compute) -> bool:
    """Whether ``compute`` copies neighbours of one array to neighbours of another."""
    result = compute.results[0]
    if len(compute.outputs) > 1 or result.combiner is not None or compute.is_ordered:
        return False
    along, source = contiguous(compute), source_of(compute)
    if along is None or source is None or source.mask is not None:
        return False
    same = source.buffer.dtype is compute.out.buffer.dtype
    whole = source.buffer.dtype.bits >= 8 and compute.out.mask is None
    return same and whole and steps_of(compute, source)[along] == 1


def source_of(compute: Compute) -> View | None:
    """What is copied, where no element is computed."""
    (value,) = compute.results[0].values
    if isinstance(value, Load):
        return View(value.buffer, value.index, value.mask)
    if not isinstance(value, Var):
        return None
    return next((each.view for each in compute.operands if each.var is value), None)

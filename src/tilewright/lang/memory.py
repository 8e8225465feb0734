"""Memory of kernels: local and private arrays, barriers, atomic updates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.dtypes import bf16, f16, f32, f64, s32, s64, u32, u64
from tilewright.ir import expr as ir
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import View
from tilewright.lang.builtin import Site, builtin
from tilewright.lang.emitter import element
from tilewright.lang.values import Array

_MOST_ELEMENTS = 2**24
_ATOMIC = (s32, u32, s64, u64, f16, bf16, f32, f64)
ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")


def _shape(site: Site, shape_argument: Any) -> tuple[int, ...]:
    shape = shape_argument if isinstance(shape_argument, tuple) else (shape_argument,)
    sizes = tuple(site.static_integer(size, "size", 1, _MOST_ELEMENTS) for size in shape)
    if not sizes or math.prod(sizes) > _MOST_ELEMENTS:
        raise site.refuse(
            f"tw.{site.name} of the shape {shape_argument}", cure="give it fewer elements"
        )
    return sizes


@builtin
def local(site: Site, shape: Any, dtype: Any) -> Array:
    """An array that the work-items of a workgroup share, uninitialized; the shape is known when the
    kernel is compiled. Barriers order their accesses."""
    site.translation.require_local(site)
    sizes = _shape(site, shape)
    memory = site.emitter.local(
        site.translation.memory_name(site, "local"), site.element_type(dtype), sizes
    )
    return Array(memory, sizes, parameter=False)


@builtin
def private(site: Site, shape: Any, dtype: Any) -> Array:
    """An array of the work-item's own, uninitialized; the shape is known when the kernel is
    compiled."""
    sizes = _shape(site, shape)
    name = site.translation.memory_name(site, "private")
    memory = site.emitter.private(name, site.element_type(dtype), sizes)
    return Array(memory, sizes, parameter=False)


@builtin
def barrier(site: Site, scope: Any = "workgroup") -> None:
    """Waits for all work-items of the workgroup, or of the subgroup (``scope``): what they stored
    before, all see after it. All of them have to come to it."""
    word = site.one_of(scope, "scope", ("workgroup", "subgroup"))
    if word == "subgroup":
        site.translation.meet_in_subgroup(site)
        return
    site.translation.require_local(site)
    site.emitter.call("barrier")


# Atomic updates.


def _place(site: Site, array: Any, index: Any) -> View:
    target = site.array(array)
    if target.private:
        raise site.refuse(
            f"tw.{site.name} of private memory",
            "no other work-item sees it",
            "update it as any variable, or use local memory",
        )
    values = list(index) if isinstance(index, tuple) else [index]
    place = site.scope.place(target, values, site.node)
    site.translation.written(site, target)
    return View(target.buffer, place)


def _operand(site: Site, array: Any, value: Any) -> Expr:
    target = site.array(array)
    return site.arithmetic.kept(site.number(value), target.dtype, "the element")


def _fenced(site: Site, order: Any, update: Callable[[], Any]) -> Any:
    """``update`` with the fences of its order."""
    word = site.one_of(order, "order", ORDERS)
    if word in ("release", "acq_rel", "seq_cst"):
        site.emitter.call("memory_fence")
    result = update()
    if word in ("acquire", "acq_rel", "seq_cst"):
        site.emitter.call("memory_fence")
    return result


def _updated(site: Site, op: str, array: Any) -> Array:
    """The array, if its type has an atomic ``op``."""
    target = site.array(array)
    integers = op in ("and", "or", "xor")
    if target.dtype not in _ATOMIC or (integers and not target.dtype.is_integer):
        floats = "" if integers else ", f16, bf16, f32, f64"
        raise site.refuse(
            f"tw.{site.name} of {target.dtype}",
            cure=f"update elements of s32, u32, s64, u64{floats}",
        )
    return target


def _update(site: Site, op: str, target: Array, index: Any, amount: Expr) -> Any:
    place = _place(site, target, index)
    if site.translation.unused is site.node:
        site.emitter.call(f"atomic_{op}", place, amount)
        return None
    return _old(site, f"fetch_{op}", target, place, amount)


def _old(site: Site, function: str, target: Array, place: View, *values: Expr) -> Any:
    old = site.emitter.private("before", target.dtype)
    site.emitter.call(function, View(old, (ir.const(0),)), place, *values)
    return site.let("old", element(old))


def _atomic(name: str, op: str, doc: str) -> Callable[..., Any]:
    def run(site: Site, array: Any, index: Any, value: Any, order: Any = "relaxed") -> Any:
        target = _updated(site, op, array)
        amount = _operand(site, array, value)
        if name == "atomic_sub":
            amount = site.arithmetic.unary("neg", amount)
        return _fenced(site, order, lambda: _update(site, op, target, index, amount))

    run.__name__ = name
    run.__doc__ = (
        f"{doc}, atomically; gives the old value. Others may update the element, too, of an array "
        "or of local memory; ``order`` is that of C."
    )
    run.__module__ = __name__
    return builtin(run)


atomic_add = _atomic("atomic_add", "add", "Adds ``value`` to an element")
atomic_sub = _atomic("atomic_sub", "add", "Subtracts ``value`` from an element")
atomic_min = _atomic("atomic_min", "min", "Makes an element the lesser of it and ``value``")
atomic_max = _atomic("atomic_max", "max", "Makes an element the greater of it and ``value``")
atomic_and = _atomic("atomic_and", "and", "Clears the bits of an element that ``value`` lacks")
atomic_or = _atomic("atomic_or", "or", "Sets the bits of an element that ``value`` has")
atomic_xor = _atomic("atomic_xor", "xor", "Flips the bits of an element that ``value`` has")


@builtin
def atomic_exchange(site: Site, array: Any, index: Any, value: Any, order: Any = "relaxed") -> Any:
    """Makes an element ``value`` and gives the old value, atomically."""
    target = site.array(array)
    _check_type(site, target)
    amount = _operand(site, array, value)
    place = _place(site, array, index)
    return _fenced(site, order, lambda: _old(site, "fetch_exchange", target, place, amount))


@builtin
def atomic_compare_exchange(
    site: Site, array: Any, index: Any, expected: Any, value: Any, order: Any = "relaxed"
) -> Any:
    """Makes an element ``value`` if it is ``expected``, and gives the old value, atomically. Floats
    are compared by their bits."""
    target = site.array(array)
    _check_type(site, target)
    wanted, amount = _operand(site, array, expected), _operand(site, array, value)
    place = _place(site, array, index)
    function = "fetch_compare_exchange"
    return _fenced(site, order, lambda: _old(site, function, target, place, wanted, amount))


def _check_type(site: Site, target: Array) -> None:
    if target.dtype not in _ATOMIC:
        names = ", ".join(dtype.name for dtype in _ATOMIC)
        raise site.refuse(f"tw.{site.name} of {target.dtype}", cure=f"exchange elements of {names}")

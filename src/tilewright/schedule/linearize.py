"""Several dims as one, which division takes apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, row_major
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Compute, Dim, Kernel, Stmt, View
from tilewright.ir.visit import map_exprs, rewrite_stmts, substitute, walk_stmts
from tilewright.schedule.access import accesses, readdress
from tilewright.schedule.digits import digits_of
from tilewright.schedule.place import Place, dim_of, plain, taken_names
from tilewright.schedule.transform import transform

T = TypeVar("T")


@transform
def linearize(kernel: Kernel, dims: Sequence[str], name: str) -> Kernel:
    """Makes one dim ``name`` of several, in every compute that has them all.

        compute f(mb in 2, oh in 7, ow in 7): dst[mb, oc, oh, ow] = src[mb, oh*2, ow*2]
    ->  linearize(["mb", "oh", "ow"], "m")
        compute f(m in 98):
          dst[m // 49, oc, m // 7 % 7, m % 7] = src[m // 49, m // 7 % 7 * 2, m % 7 * 2]

    The first dim is the outermost. Unlike `fuse_dims` it takes any dims of constant extent,
    whatever the views do with them. Buffers that the kernel allocates, and that the dims index
    directly, become one dim there too.
    """
    if len(dims) < 2 or len(set(dims)) < len(dims):
        raise _refusal(
            "one dim is none to combine", f"kernel {kernel.name}", "name two or more, each once"
        )
    if name in taken_names(kernel) - set(dims):
        raise _refusal(
            f"the name '{name}' is taken", f"kernel {kernel.name}", "choose another name"
        )
    chosen = [
        stmt
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Compute) and set(dims) <= {d.var.name for d in stmt.dims}
    ]
    if not chosen:
        raise _refusal(
            "no compute has the dims " + ", ".join(dims),
            f"kernel {kernel.name}",
            "combine before tiling",
        )
    sizes = _sizes(chosen, dims)
    for buffer in [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]:
        kernel = _merged(kernel, buffer, dims, sizes)

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Compute) and set(dims) <= {d.var.name for d in stmt.dims}:
            return _combined(stmt, dims, sizes, name)
        return stmt

    return replace(kernel, body=rewrite_stmts(kernel.body, change))


def _refusal(what: str, where: str, cure: str) -> ScheduleError:
    return ScheduleError(f"linearize: {what}", where=where, cure=cure)


def _sizes(computes: Sequence[Compute], dims: Sequence[str]) -> tuple[int, ...]:
    """The extents of the dims, constants that all computes share."""
    found: set[tuple[int, ...]] = set()
    for compute in computes:
        plain(compute, "linearize")
        if compute.instruction is not None:
            raise _refusal(
                "an instruction has the dims", headline(compute), "combine before tensorizing"
            )
        extents = [dim_of(compute, name, "linearize").extent for name in dims]
        if not all(isinstance(extent, Const) for extent in extents):
            raise _refusal("an extent is not constant", headline(compute), "combine before tiling")
        found.add(tuple(int(extent.value) for extent in extents if isinstance(extent, Const)))
    if len(found) != 1:
        raise _refusal("the extents differ", headline(computes[-1]), "rename the dims of one")
    return found.pop()


def _combined(compute: Compute, dims: Sequence[str], sizes: Sequence[int], name: str) -> Compute:
    whole = var(name)
    old = [dim_of(compute, each, "linearize").var for each in dims]
    values: dict[Var, Expr] = dict(zip(old, digits_of(whole, sizes), strict=True))
    changed = map_exprs(replace(compute, dims=()), lambda e: substitute(e, values))
    assert isinstance(changed, Compute)
    kept: list[Dim] = []
    for dim in compute.dims:
        if dim.var.name == dims[0]:
            kept.append(Dim(whole, const(prod(sizes))))
        elif dim.var.name not in dims:
            kept.append(dim)
    return replace(changed, dims=tuple(kept))


def _merged(kernel: Kernel, old: Buffer, dims: Sequence[str], sizes: tuple[int, ...]) -> Kernel:
    """``kernel`` with the buffer's dims that ``dims`` index made one; as it was where some access
    indexes it otherwise."""
    places: set[tuple[int, ...]] = set()
    for access in accesses(kernel.body, Place()):
        if access.view.buffer is not old:
            continue
        if not isinstance(access.stmt, Compute):
            return kernel
        index = [e.name if isinstance(e, Var) else "" for e in access.view.index]
        if any(index.count(name) != 1 for name in dims):
            return kernel
        places.add(tuple(index.index(name) for name in dims))
    if len(places) != 1:
        return kernel
    (where,) = places
    if any(old.shape[place] != size for place, size in zip(where, sizes, strict=True)):
        return kernel
    return _with_one_dim(kernel, old, where, sizes)


def _with_one_dim(
    kernel: Kernel, old: Buffer, where: tuple[int, ...], sizes: tuple[int, ...]
) -> Kernel:
    shape = _shortened(old.shape, where, prod(sizes))
    new = Buffer(old.name, old.dtype, shape, row_major(shape), old.space)

    def view(access: View) -> View:
        whole: Expr = const(0)
        for place, size in zip(where, sizes, strict=True):
            whole = whole * size + access.index[place]
        return View(new, _shortened(access.index, where, whole), access.mask)

    return replace(kernel, body=readdress(kernel.body, old, view))


def _shortened(values: tuple[T, ...], where: tuple[int, ...], whole: T) -> tuple[T, ...]:
    """``values`` with ``whole`` in the first of the places, and the others gone."""
    kept: list[T] = []
    for place, value in enumerate(values):
        if place == min(where):
            kept.append(whole)
        elif place not in where:
            kept.append(value)
    return tuple(kept)

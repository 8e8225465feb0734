"""Computes at the tiles of another one, which stand in its loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.buffer import Space
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Kernel, LoopKind
from tilewright.schedule.loops.kinds import with_kind
from tilewright.schedule.loops.tile import Tail, check_tail, with_tail
from tilewright.schedule.loops.tiled_chains import TiledChain
from tilewright.schedule.loops.tiled_sequences import TiledSequence
from tilewright.schedule.queries.place import computes_named, dim_of, serial_loops
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import asks, positive
from tilewright.schedule.records.transform import transform

Level = tuple[LoopKind, Mapping[str, int]]


def _a_root(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """There is such a compute, which is plain where its producers are found."""
    told = isinstance(arguments["producers"], Mapping)
    computes_named(kernel, arguments[name], any_kind=told)


def _positive_sizes(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """The sizes of each level are 1 or more."""
    for _, sizes in _levels(arguments[name]):
        positive(kernel, name, {name: sizes})


def _dims_like_sizes(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """Where producers come with their dims: there are such computes and dims, of the root too, and
    each has as many as there are sizes."""
    sizes, producers = arguments["sizes"], arguments[name]
    if not isinstance(producers, Mapping):
        return
    if not isinstance(sizes, Mapping):
        raise refusal(
            "levels of producers whose dims are named",
            kernel,
            "give a size for each dim, or name the producers alone",
            why="the next level has other dims",
        )
    for compute, dims in {**producers, arguments["root"]: tuple(sizes)}.items():
        matching = computes_named(kernel, compute, any_kind=True)
        where = headline(matching[0][0])
        if len(matching) > 1:
            raise refusal(
                f"there are {len(matching)} computes called '{compute}'",
                where,
                "tile them before what partitions the kernel",
            )
        for dim in dims:
            dim_of(matching[0][0], dim)
        if len(dims) != len(sizes) or len(set(dims)) != len(dims) or not dims:
            raise refusal(
                f"'{compute}' has the dims {', '.join(dims) or 'none'}, for {len(sizes)} sizes",
                where,
                "name as many dims of each compute as there are sizes, one or more",
            )


@transform
@asks(root=_a_root, sizes=_positive_sizes, producers=_dims_like_sizes)
def compute_at(
    kernel: Kernel,
    root: str,
    sizes: Mapping[str, int] | Sequence[Level],
    order: Sequence[str] = (),
    *,
    producers: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    keep: Sequence[str] = (),
    space: Space = Space.PRIVATE,
    storage: Sequence[str] = (),
    tail: Tail = "mask",
) -> Kernel:
    """Tiles the compute ``root``, and computes what it reads tile by tile inside its loops.

        alloc acc: f32[64, 56]
        compute zero(oc in 64, ow in 56): acc[oc, ow] = 0.0
        compute store(oc in 64, ow in 56): dst[oc, ow] = acc[oc, ow]
    ->  compute_at("store", {"oc": 16, "ow": 4}, storage=["ow", "oc"])
        for oc_o in 4:
          for ow_o in 14:
            alloc acc: f32[16, 4] {1:4:16 0:16:1} private
            compute zero(oc in 16, ow in 4): acc[oc, ow] = 0.0
            compute store(oc in 16, ow in 4): dst[oc_o*16 + oc, ow_o*4 + ow] = acc[oc, ow]

    The producers stand in the block of the root and hand their results on through buffers that the
    block allocates, which each compute indexes by its own dims alone; chains of any length fuse.
    Of what a consumer reaches through windows, as taps do, a tile has what all its points reach.
    The buffers shrink to the tile, go to ``space`` and lie row-major in the order of the root's
    dims in ``storage`` (innermost last; dims that it leaves out are outermost); those that ``keep``
    names stay. ``producers`` names the computes to fuse; without it, all that the root depends on.
    A loop over a dim that a producer does not have computes that producer's tile again in each
    iteration. Loops are called among the results as those of `tile`, and ``tail`` is as there.

    With a list for ``sizes``, the root is tiled once for each level, outermost first, with loops
    that run on that level; a level whose tile holds all makes no loop. After
    ``compute_at("store", [(LoopKind.GRID, {"oc": 16}), (LoopKind.WORKGROUP, {"oc": 4})])``:

        grid for oc_o in 4:
          workgroup for oc_o2 in 4: ...

    Where ``producers`` says by which dims each goes along with those of the root that have a size,
    computes that follow one another run tile by tile, whatever they hand on:

        alloc s: f32[64]
        compute total(i in 64, j in 32): s[i] add= x    (x = x[i, j])
        compute part(r in 64, j in 32): y[r, j] = x / s    (x = x[r, j]; s = s[r])
    ->  compute_at("part", {"r": 1}, producers={"total": ["i"]})
        for i in 64:
          alloc s: f32[1] private
          compute total(j in 32): s[0] add= x    (x = x[i, j])
          compute part(j in 32): y[i, j] = x / s    (x = x[i, j]; s = s[0])

    No two iterations may touch the same element then if one writes it; the computes may have
    several results, combiners of their own and ordered dims. They stand in one block, nothing but
    allocations between them; some under conditions that have no others. What that block allocates,
    they alone use, and each reaches at its own dims, shrinks to the tile. Of sizes that a call
    passes, it has as much as they may be.
    """
    check_tail(kernel, tail)
    if isinstance(producers, Mapping):
        assert isinstance(sizes, Mapping)
        dims = {**producers, root: tuple(sizes)}
        tiled = TiledSequence(root, dims, sizes, order, keep, space, storage)
        return with_tail(tiled.on_kernel(kernel), sizes, tail)
    for kind, level in _levels(sizes):
        inner = order if level is sizes else [name for name in order if name in level]
        chain = TiledChain(root, level, inner, producers, keep, space, storage)
        kernel = _on_level(chain.on_kernel(kernel), root, serial_loops(kernel, root), kind)
    return with_tail(kernel, sizes, tail) if isinstance(sizes, Mapping) else kernel


def _levels(sizes: Mapping[str, int] | Sequence[Level]) -> Sequence[Level]:
    return [(LoopKind.SERIAL, sizes)] if isinstance(sizes, Mapping) else sizes


def _on_level(kernel: Kernel, root: str, before: Sequence[str], kind: LoopKind) -> Kernel:
    """``kernel``, which is not simplified, with loops around ``root`` that were not there before
    run as ``kind``: that tiles of dims that are one by now (`fuse_dims`) write apart can be seen
    before divisions are simplified, not afterwards."""
    for loop in serial_loops(kernel, root) if kind is not LoopKind.SERIAL else ():
        if loop not in before:
            kernel = with_kind(kernel, loop, kind)
    return kernel

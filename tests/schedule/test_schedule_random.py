"""Random transforms in a row: each refuses, or leaves a kernel that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from schedule_cases import convolution, equal
from tilewright.dtypes import s64
from tilewright.errors import ScheduleError
from tilewright.ir import (
    Allocate,
    Block,
    Compute,
    Dim,
    For,
    Kernel,
    LoopKind,
    Store,
    View,
    While,
    block,
    buffer,
    const,
    load,
    var,
    verify,
)
from tilewright.ir.visit import walk_stmts
from tilewright.machines.x86 import machine
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.reorder import reorder
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.loops.trim import trim
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.staging.stage import stage
from tilewright.schedule.staging.stage_result import stage_result

SIZES = (1, 2, 3, 4, 16)
FMA = [machine("avx512").instruction(f"fma_f32x{lanes}") for lanes in (4, 8, 16)]


def _loops(kernel: Kernel) -> list[str]:
    return sorted({s.var.name for s in walk_stmts(kernel.body) if isinstance(s, For)}) or ["none"]


def _compute(kernel: Kernel, r: Random) -> tuple[str, list[str]]:
    """A compute and its dims."""
    computes = [s for s in walk_stmts(kernel.body) if isinstance(s, Compute)]
    if not computes:
        return "none", []
    chosen = r.choice(computes)
    return chosen.name, [d.var.name for d in chosen.dims]


def _sizes(dims: list[str], r: Random) -> dict[str, int]:
    return {d: r.choice(SIZES) for d in r.sample(dims, r.randint(0, len(dims)))}


def _tile(k: Kernel, r: Random) -> Kernel:
    compute, dims = _compute(k, r)
    return tile(k, compute, _sizes(dims, r))


def _tile_and_fuse(k: Kernel, r: Random) -> Kernel:
    dims = ["mb", "oc", "oh", "ow"]
    producers = r.choice([None, ["zero", "conv"]])
    sizes = _sizes(dims, r)
    return compute_at(k, "epilogue", sizes, producers=producers, storage=r.sample(dims, 2))


def _stage(k: Kernel, r: Random) -> Kernel:
    at = r.choice([None, *_loops(k)])
    if r.random() < 0.5:
        return stage(k, "conv", r.choice("sw"), at)
    layout = r.choice([(), [("oc", None), ("ic", None), ("oc", 16), ("ic", 2)]])
    return stage(k, "conv", r.choice("sw"), at, shape="dims", layout=layout)


def _pad(k: Kernel, r: Random) -> Kernel:
    compute, dims = _compute(k, r)
    return pad(k, compute, {r.choice(dims or ["none"]): r.choice([2, 4, 6, 16])})


def _tensorize(k: Kernel, r: Random) -> Kernel:
    return tensorize(k, "conv", r.choice(FMA), {"n": r.choice(["oc", "ow", "m"])})


def _lower(k: Kernel, r: Random) -> Kernel:
    compute, dims = _compute(k, r)
    vector = r.choice([None, *dims])
    return lower_computes(k, [compute], vector=vector, lanes=r.choice([1, 4, 16]), unroll=dims)


def _fuse(k: Kernel, r: Random) -> Kernel:
    outer, inner = r.choice([("oh", "ow"), ("kw", "ic"), ("kh", "kw"), ("mb", "oh")])
    return fuse_dims(k, [outer, inner], "m", digits=r.random() < 0.3)


def _kind(k: Kernel, r: Random) -> Kernel:
    kinds = [LoopKind.UNROLLED, LoopKind.PARALLEL, LoopKind.VECTOR]
    return set_kind(k, r.choice(_loops(k)), r.choice(kinds))


MOVES: list[Callable[[Kernel, Random], Kernel]] = [
    _tile,
    _tile,
    _tile_and_fuse,
    _stage,
    _stage,
    _pad,
    _tensorize,
    _lower,
    _fuse,
    _kind,
    lambda k, r: drop_unit_dims(k),
    lambda k, r: partition(k, r.choice(_loops(k)), split_borders=r.random() < 0.3),
    lambda k, r: trim(k, r.choice(_loops(k))),
    lambda k, r: set_kind(k, r.sample(_loops(k), 1), LoopKind.PARALLEL),
    lambda k, r: reorder(k, r.sample(_loops(k), min(2, len(_loops(k))))),
    lambda k, r: stage_result(k, "conv", r.choice(_loops(k))),
]


def _convolution(r: Random) -> Kernel:
    return convolution(
        mb=r.choice([1, 2]),
        ic=r.choice([1, 2, 3, 5]),
        ih=r.randint(4, 9),
        iw=r.randint(4, 9),
        oc=r.choice([1, 3, 8, 16, 19]),
        kh=r.choice([1, 2, 3]),
        kw=r.choice([1, 3]),
        stride=(r.choice([1, 2]), r.choice([1, 2, 3])),
        dilation=(1, r.choice([1, 2])),
        pad=(r.choice([0, 1, 3]), r.choice([1, 2])),
        channels_last=r.random() < 0.6,
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_schedules(seed: int) -> None:
    r = Random(seed)
    naive = _convolution(r)
    kernel = naive
    for _ in range(8):
        try:
            kernel = r.choice(MOVES)(kernel, r)
        except ScheduleError:
            continue
        verify(kernel)
    equal(naive, kernel)


def _repeated(naive: Kernel) -> Kernel:
    """The convolution three times, each on the source that the one before changed."""
    params = [replace(p, access="inout") if p.name == "src" else p for p in naive.arrays]
    src, bias = params[0].buffer, params[2].buffer
    count = buffer("count", s64, (1,))
    first = (const(0),)
    dims = tuple(Dim(var(f"n{i}"), const(size)) for i, size in enumerate(src.shape))
    index = tuple(dim.var for dim in dims)
    more = Compute.single("bump", dims, View(src, index), (), load(bias, first), "add")
    again = Store(count, first, load(count, first) + 1)
    loop = While(load(count, first) < 3, block(naive.body, more, again))
    body = Block((Allocate(count), Store(count, first, const(0)), loop))
    return Kernel("conv", tuple(params), body)


@pytest.mark.parametrize("seed", range(60))
def test_random_schedules_in_a_while(seed: int) -> None:
    """Nothing moves out of the loop that depends on what it writes."""
    r = Random(seed)
    naive = _repeated(_convolution(r))
    verify(naive)
    kernel = naive
    for _ in range(8):
        try:
            kernel = r.choice(MOVES)(kernel, r)
        except ScheduleError:
            continue
        verify(kernel)
    equal(naive, kernel)

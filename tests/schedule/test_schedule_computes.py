"""Transforms on computes of several results, with combiners, ordered dims and loaded places: each
refuses, saying so, or leaves a kernel that computes the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from random import Random

import numpy as np
import pytest

from compute_cases import CASES, check, run
from tilewright.errors import ScheduleError
from tilewright.interpret import run as interpret
from tilewright.ir import Kernel, LoopKind, parse_kernel, to_text, verify
from tilewright.ir.stmt import Compute, For
from tilewright.ir.visit import walk_stmts
from tilewright.machines.x86 import machine
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.dims.split_dim import split_dim
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.guard import guard, guard_select
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.merge_loops import merge_loops
from tilewright.schedule.loops.narrow import narrow
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.reorder import reorder
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.loops.trim import trim
from tilewright.schedule.operands.inline import inline
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.pipelines.pipeline import pipeline
from tilewright.schedule.reductions.rfactor import rfactor
from tilewright.schedule.staging.stage import stage
from tilewright.schedule.staging.stage_result import stage_result

FMA = machine("avx512").instruction("fma_f32x4")
Step = Callable[[Kernel, Random], Kernel]


def _loops(kernel: Kernel, r: Random, count: int) -> list[str]:
    result = [s.var.name for s in walk_stmts(kernel.body) if isinstance(s, For)] or ["none"]
    first = r.randrange(len(result))
    return list(dict.fromkeys(result[first : first + count]))


def _loop(kernel: Kernel, r: Random) -> str:
    return _loops(kernel, r, 1)[0]


def _some(kernel: Kernel, r: Random) -> tuple[str, list[str], list[str]]:
    """A compute, its dims and its operands."""
    computes = [s for s in walk_stmts(kernel.body) if isinstance(s, Compute)]
    if not computes:
        return "none", ["none"], ["none"]
    chosen = r.choice(computes)
    dims = [d.var.name for d in chosen.dims] or ["none"]
    return chosen.name, dims, [o.var.name for o in chosen.operands] or ["none"]


def _tiled(k: Kernel, r: Random, how: Callable[..., Kernel]) -> Kernel:
    name, dims, _ = _some(k, r)
    chosen = r.sample(dims, r.randint(1, len(dims)))
    return how(k, name, {d: r.choice((1, 2, 3, 4, 16)) for d in chosen}, order=chosen)


def _reordered(k: Kernel, r: Random) -> Kernel:
    loops = _loops(k, r, 2)
    return reorder(k, loops[::-1])


def _padded(k: Kernel, r: Random) -> Kernel:
    name, dims, _ = _some(k, r)
    return pad(k, name, {r.choice(dims): r.choice((8, 12, 48))})


def _pair(k: Kernel, r: Random) -> Kernel:
    _, dims, _ = _some(k, r)
    two = [r.choice(dims), r.choice(dims)]
    return fuse_dims(k, two, "pair", digits=r.random() < 0.5)


STEPS: dict[str, Step] = {
    "tile": lambda k, r: _tiled(k, r, tile),
    "tile again": lambda k, r: _tiled(k, r, tile),
    "compute_at": lambda k, r: _tiled(k, r, compute_at),
    "reorder": _reordered,
    "parallelize": lambda k, r: set_kind(k, _loops(k, r, r.randint(1, 2)), LoopKind.PARALLEL),
    "set_kind": lambda k, r: set_kind(k, _loop(k, r), r.choice([LoopKind.VECTOR, LoopKind.GRID])),
    "unroll": lambda k, r: set_kind(k, _loop(k, r), LoopKind.UNROLLED),
    "merge_loops": lambda k, r: merge_loops(k, _loops(k, r, 2), "merged"),
    "partition": lambda k, r: partition(k, _loop(k, r), r.random() < 0.5),
    "drop_unit_dims": lambda k, r: drop_unit_dims(k),
    "trim": lambda k, r: trim(k, _loop(k, r)),
    "narrow": lambda k, r: narrow(k, _some(k, r)[0], r.choice(_some(k, r)[1]), r.choice((1, 4))),
    "guard": lambda k, r: guard(k, _some(k, r)[0]),
    "guard_select": lambda k, r: guard_select(k, _some(k, r)[0]),
    "pad": _padded,
    "pad again": _padded,
    "split_dim": lambda k, r: split_dim(k, r.choice(_some(k, r)[1]), r.choice((2, 3)), "da", "db"),
    "fuse_dims": _pair,
    "fuse_dims again": _pair,
    "stage": lambda k, r: stage(k, _some(k, r)[0], r.choice(_some(k, r)[2])),
    "stage_result": lambda k, r: stage_result(k, _some(k, r)[0], _loop(k, r)),
    "inline": lambda k, r: inline(k, _some(k, r)[0]),
    "finished": lambda k, r: stage_result(k, *_some(k, r)[:1] * 2),
    "pipeline": lambda k, r: pipeline(k, _loop(k, r)),
    "lanes": lambda k, r: rfactor(k, _some(k, r)[0], r.choice(_some(k, r)[1]), 1, lanes=4),
    "slices": lambda k, r: rfactor(
        k, _some(k, r)[0], r.choice(_some(k, r)[1]), 2, "slice", private=True
    ),
    "lower": lambda k, r: lower_computes(
        k, [_some(k, r)[0]], vector=r.choice([None, *_some(k, r)[1]]), lanes=r.choice((2, 4))
    ),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_random_transforms(name: str, seed: int) -> None:
    r = Random(f"{name} {seed}")
    # Transforms to work-items leave it to others to give each its own private memory.
    kernel = parse_kernel(CASES[name].text.replace(" private", ""))
    taken: list[str] = []
    # 24 draws, and more where all of these were refused.
    for draw in range(500):
        if draw >= 24 and taken:
            break
        step = r.choice(list(STEPS))
        try:
            new = STEPS[step](kernel, r)
        except ScheduleError:
            continue
        if new is kernel:
            continue
        taken.append(step)
        kernel = new
        verify(kernel)
        try:
            check(kernel, CASES[name], seed)
        except Exception as error:
            raise AssertionError(f"{taken}\n{to_text(kernel)}") from error
    assert taken


SEVERAL, OWN, ORDERED, LOADED = (
    "several results",
    "a combiner of its own",
    "ordered dims",
    "places that are loaded",
)

# One output by a combiner of the user's: sums with a limit.
LIMITED = """
kernel limited(in src: f32[6, 40], inout dst: f32[6]):
  compute sums(m in 6, k in 40):
    x = src[m, k]
    combiner limited(a: f32; b: f32) from (0.0) = min(a + b, 100.0)
    dst[m] limited= x
"""

REFUSING: dict[str, Callable[[Kernel, str, list[str], str], Kernel]] = {
    "compute_at": lambda k, c, d, o: compute_at(k, c, {d[0]: 2}),
    "narrow": lambda k, c, d, o: narrow(k, c, d[0], 1),
    "guard": lambda k, c, d, o: guard(k, c),
    "guard_select": lambda k, c, d, o: guard_select(k, c),
    "pad": lambda k, c, d, o: pad(k, c, {d[0]: 64}),
    "split_dim": lambda k, c, d, o: split_dim(k, d[0], 2, "da", "db"),
    "fuse_dims": lambda k, c, d, o: fuse_dims(k, d[:2], "both"),
    "stage": lambda k, c, d, o: stage(k, c, o),
    "stage_result": lambda k, c, d, o: stage_result(tile(k, c, {d[0]: 2}), c, f"{d[0]}_o"),
    "inline": lambda k, c, d, o: inline(k, c),
    "trim": lambda k, c, d, o: trim(tile(k, c, {d[1]: 2}), f"{d[1]}_o"),
    "pipeline": lambda k, c, d, o: pipeline(tile(k, c, {d[1]: 2}), f"{d[1]}_o"),
    "rfactor": lambda k, c, d, o: rfactor(k, c, d[1], 2, private=True),
    "tensorize": lambda k, c, d, o: tensorize(k, c, FMA, {"n": d[1]}),
}


BEYOND = {
    "results": (CASES["argmax"].text, "argmax", SEVERAL),
    "combiner": (LIMITED, "sums", OWN),
    "ordered": (CASES["inclusive"].text, "scan", ORDERED),
    "gather": (CASES["gather"].text, "rows", LOADED),
    "scatter": (CASES["scatter_add"].text, "add_rows", LOADED),
}
# These take any number of results, and combiners of a kernel's own.
TAKEN = {
    (transform, kind) for transform in ("fuse_dims", "stage") for kind in ("results", "combiner")
}


@pytest.mark.parametrize(
    ("transform", "kind"), [pair for pair in product(REFUSING, BEYOND) if pair not in TAKEN]
)
def test_what_is_not_ready_says_so(transform: str, kind: str) -> None:
    text, compute, beyond = BEYOND[kind]
    kernel = parse_kernel(text)
    verify(kernel)
    stmt = next(s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and s.name == compute)
    dims = [d.var.name for d in stmt.dims]
    refused = re.escape(f"{transform}: the compute '{compute}' has {beyond}")
    with pytest.raises(ScheduleError, match=refused):
        REFUSING[transform](kernel, compute, dims, stmt.operands[0].var.name)


GATHERED = """
kernel gathered(in src: f32[4, 9], in place: s64[19], inout dst: f32[4]):
  compute total(m in 4, k in 19):
    p = place[k]
    x = src[m, min(max(p, 0), 8)]
    dst[m] add= x
"""


@pytest.mark.parametrize(
    ("text", "compute", "message"),
    [
        (CASES["inclusive"].text, "scan", "'scan' does not accumulate"),
        (CASES["gather"].text, "rows", "'rows' does not accumulate"),
        (CASES["scatter_add"].text, "add_rows", "'n' is not reduced"),
        (GATHERED, "total", "the compute has ordered dims, or places that are loaded"),
    ],
)
def test_what_cannot_be_widened(text: str, compute: str, message: str) -> None:
    kernel = parse_kernel(text)
    stmt = next(s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and s.name == compute)
    with pytest.raises(ScheduleError, match=f"rfactor: {message}"):
        rfactor(kernel, compute, stmt.dims[1].var.name, 1, lanes=4)


@pytest.mark.parametrize(("text", "compute"), [(CASES["argmax"].text, "argmax"), (LIMITED, "sums")])
def test_what_is_reduced_in_lanes(text: str, compute: str) -> None:
    kernel = parse_kernel(text)
    stmt = next(s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and s.name == compute)
    wide = rfactor(kernel, compute, stmt.dims[-1].var.name, 1, lanes=4)
    verify(wide)
    rng = Random(1)
    values = {
        p.buffer.name: np.array(
            [rng.randrange(9) for _ in range(p.buffer.layout.extent)], p.buffer.dtype.numpy
        )
        for p in kernel.arrays
    }
    results = []
    for version in (kernel, wide):
        memory = {name: array.copy() for name, array in values.items()}
        interpret(version, memory)
        results.append(memory)
    for name in values:
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_two_dims_are_two() -> None:
    kernel = parse_kernel(CASES["swap"].text)
    with pytest.raises(ScheduleError, match="fuse_dims: one dim is none to fuse"):
        fuse_dims(kernel, ["i", "i"], "both")


def _body(kernel: Kernel) -> str:
    return to_text(kernel).split("\n", 1)[1]


def test_tiles_of_ordered_dims_run_in_sequence() -> None:
    kernel = parse_kernel(CASES["inclusive"].text)
    assert _body(tile(kernel, "scan", {"k": 8, "m": 3}, order=["k", "m"])) == (
        "  for k_o in 3:\n"
        "    for m_o in 2:\n"
        "      compute scan(m in 3, ordered k in min(20 - k_o * 8, 8)):\n"
        "        x = src[m + m_o * 3, k + k_o * 8]\n"
        "        before = dst[m + m_o * 3, k + k_o * 8 - 1 | 1 <= k + k_o * 8]\n"
        "        dst[m + m_o * 3, k + k_o * 8] = before + x"
    )


TWO_ORDERED = """
kernel walk(in src: f32[4, 6, 5], out dst: f32[4, 6, 5], inout total: f32[5]):
  compute walk(ordered a in 4, n in 5, ordered b in 6):
    x = src[a, b, n]
    t = total[n]
    dst[a, b, n] = t
    total[n] = t * 0.5 + x
"""


@pytest.mark.parametrize(
    ("sizes", "order", "legal"),
    [
        ({"a": 2}, [], True),
        ({"a": 1, "b": 4}, ["a", "b"], True),
        ({"a": 1, "b": 1, "n": 2}, ["a", "n", "b"], True),
        ({"n": 2}, [], True),
        ({"b": 2}, [], False),
        ({"a": 2, "b": 2}, ["a", "b"], False),
        ({"a": 1, "b": 1}, ["b", "a"], False),
        ({"a": 2, "b": 1}, ["a", "b"], False),
    ],
    ids=str,
)
def test_several_ordered_dims_keep_their_sequence(
    sizes: dict[str, int], order: list[str], legal: bool
) -> None:
    kernel = parse_kernel(TWO_ORDERED)
    verify(kernel)
    rng = np.random.default_rng(0)
    arrays = {
        "src": rng.standard_normal((4, 6, 5)).astype(np.float32),
        "dst": np.zeros((4, 6, 5), np.float32),
        "total": np.zeros(5, np.float32),
    }
    if not legal:
        with pytest.raises(ScheduleError, match="tile: the ordered dims a, b would run in another"):
            tile(kernel, "walk", sizes, order)
        return
    tiled = tile(kernel, "walk", sizes, order)
    wanted = run(kernel, arrays)
    for version in (tiled, lower_computes(tiled)):
        value = run(version, arrays)
        for name, values in wanted.items():
            np.testing.assert_array_equal(value[name], values)


@pytest.mark.parametrize(
    ("name", "compute", "dim", "legal"),
    [
        ("inclusive", "scan", "k", False),  # the next iteration reads what this one writes
        ("inclusive", "scan", "m", True),
        ("exclusive", "scan", "k", False),
        ("scatter_add", "add_rows", "m", False),  # two rows may be added to one
        ("scatter_add", "add_rows", "n", True),
        ("scatter", "rows", "m", False),  # places are unique within the compute only
        ("scatter", "rows", "n", True),
        ("histogram", "count", "k", False),
        ("gather", "rows", "m", True),
        ("argmax", "argmax", "m", True),
        ("argmax", "argmax", "k", False),
        ("sums", "both", "m", False),
        ("sums", "both", "k", False),
        ("swap", "swap", "i", True),
    ],
)
def test_what_may_run_in_parallel(name: str, compute: str, dim: str, legal: bool) -> None:
    kernel = tile(parse_kernel(CASES[name].text), compute, {dim: 2})
    if not legal:
        with pytest.raises(ScheduleError, match="may write the same element"):
            set_kind(kernel, [f"{dim}_o"], LoopKind.PARALLEL)
        return
    parallel = set_kind(kernel, [f"{dim}_o"], LoopKind.PARALLEL)
    check(parallel, CASES[name])
    check(lower_computes(parallel), CASES[name])


def test_reductions_by_a_combiner_may_change_places() -> None:
    kernel = tile(parse_kernel(CASES["argmax"].text), "argmax", {"m": 3, "k": 16}, ["k", "m"])
    check(reorder(kernel, ["m_o", "k_o"]), CASES["argmax"])


def test_atomic_updates_may_meet_at_loaded_places() -> None:
    text = CASES["histogram"].text.replace("compute count(", "compute count<atomic_add>(")
    kernel = parse_kernel(text)
    verify(kernel)
    parallel = set_kind(tile(kernel, "count", {"k": 100}), ["k_o"], LoopKind.GRID)
    lowered = lower_computes(parallel)
    assert "atomic_add(&counts[s64(src[k + k_o * 100])], s32(1))" in to_text(lowered)
    for version in (kernel, parallel, lowered):
        check(version, CASES["histogram"])


def test_scans_may_not() -> None:
    kernel = tile(parse_kernel(TWO_ORDERED), "walk", {"a": 1, "b": 1}, ["a", "b"])
    with pytest.raises(ScheduleError, match="reorder: the iterations of 'a' and 'b' depend"):
        reorder(kernel, ["b", "a"])


@pytest.mark.parametrize(
    ("name", "compute", "dim", "refused"),
    [
        ("inclusive", "scan", "k", "'k' is ordered, so it cannot run in lanes"),
        ("argmax", "argmax", "k", "'k' is reduced, so it cannot run in lanes"),
        ("scatter_add", "add_rows", "m", "'m' cannot run in lanes"),
    ],
)
def test_lanes_that_would_meet(name: str, compute: str, dim: str, refused: str) -> None:
    with pytest.raises(ScheduleError, match=refused):
        lower_computes(parse_kernel(CASES[name].text), vector={compute: dim}, lanes=4)

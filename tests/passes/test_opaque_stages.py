"""Opaque nests behind schedules: one statement to transforms, and their body to targets."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from needs import need_device
from random_ir import random_kernel
from sweeps import in_turns
from tilewright.dtypes import s8, s32, s64
from tilewright.errors import ScheduleError
from tilewright.interpret import run as interpret
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import For, Kernel, LoopKind, Opaque
from tilewright.ir.verify import verify
from tilewright.ir.visit import walk_stmts
from tilewright.passes import hoist, reduce_lets
from tilewright.passes import run as run_passes
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.queries.access import accesses, buffers_written
from tilewright.schedule.queries.place import Place
from tilewright.schedule.staging.stage import stage
from tilewright.simplify import simplify_kernel
from tilewright.targets.program import abi_of
from tilewright.targets.registry import find_target

NEST = """
kernel k(in a: f32[8, 16], inout b: f32[8, 16], out c: f32[8]):
  for i in 8:
    opaque turn reads a writes b:
      for j in 16:
        b[7 - i, j] = a[i, j] + b[i, j]
    c[i] = a[i, 0]
  opaque scale writes b:
    compute double(i in 8, j in 16):
      b[i, j] = b[i, j] * 2.0
"""


def nests(kernel: Kernel) -> list[Opaque]:
    return [stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Opaque)]


def memory_of(kernel: Kernel) -> dict[str, Any]:
    generator = np.random.default_rng(3)
    return {
        array.name: generator.integers(0, 4, array.buffer.layout.extent).astype(array.dtype.numpy)
        for array in kernel.arrays
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda k: tile(k, "double", {"i": 2}), "compute 'double' is inside of .* nest 'scale'"),
        (lambda k: lower_computes(k, ["double"], vector="j", lanes=8), None),
        (
            lambda k: set_kind(k, "j", LoopKind.UNROLLED),
            "the loop 'j' is inside of the opaque nest 'turn'",
        ),
        (lambda k: partition(k, "j"), "the loop 'j' is inside of the opaque nest 'turn'"),
        (
            lambda k: set_kind(k, ["i"], LoopKind.PARALLEL),
            "turn reads a writes b:` may write any element of b",
        ),
        (lambda k: set_kind(k, "i", LoopKind.UNROLLED), None),
    ],
)
def test_transforms_leave_what_is_inside(change: Any, said: str | None) -> None:
    kernel = parse_kernel(NEST)
    if said is not None:
        with pytest.raises(ScheduleError, match=said):
            change(kernel)
        return
    changed = change(kernel)
    assert [nest.body for nest in nests(changed)] == [nest.body for nest in nests(kernel)]


def test_a_loop_around_that_would_change_it() -> None:
    """Pieces of the loop count from 0, so the nest would get other numbers."""
    text = NEST.replace("    c[i] = a[i, 0]", "    c[i] = a[i, 0]\n    if i < 3:\n      c[i] = 1.0")
    with pytest.raises(ScheduleError, match=r"partition: it would change .* opaque nest 'turn'"):
        partition(parse_kernel(text), "i")


def test_what_it_declares_counts() -> None:
    """As one unit: any element of ``b``, whichever its statements name."""
    (turn, _) = nests(parse_kernel(NEST))
    result = {(access.view.buffer.name, access.writes) for access in accesses(turn, Place())}
    assert result == {("a", False), ("b", True)}
    assert {buffer.name for buffer in buffers_written(turn)} == {"b"}
    # Only its own row is written, but it says that it writes ``b``.
    rows = NEST.replace("b[7 - i, j] = a[i, j]", "b[i, j] = a[i, j]")
    with pytest.raises(ScheduleError, match="may write any element of b"):
        set_kind(parse_kernel(rows), ["i"], LoopKind.PARALLEL)
    reading = NEST.replace("b[7 - i, j] = a[i, j] + b[i, j]", "pass").replace(" writes b", "", 1)
    assert LoopKind.PARALLEL in {
        s.kind
        for s in walk_stmts(set_kind(parse_kernel(reading), ["i"], LoopKind.PARALLEL).body)
        if isinstance(s, For)
    }


def test_nothing_moves_in_or_out() -> None:
    text = """
kernel k(in a: f32[8], n: s64 in 1..8, out b: f32[8]):
  for i in n:
    x = i * 2 + 1
    opaque fill reads a writes b:
      for j in 8:
        b[j] = a[i] / f32(x // 3)
"""
    kernel = parse_kernel(text)
    lets = reduce_lets(kernel)
    assert to_text(lets) == to_text(kernel)
    moved = to_text(hoist(kernel))
    before, inside = moved.split("opaque fill reads a writes b:")
    assert before == to_text(kernel).split("opaque fill")[0]
    assert " = " in inside.split("for j")[0] or inside == to_text(kernel).split("writes b:")[1]


@pytest.mark.parametrize("target", ["x86", "x86:avx2", "spirv", "nvidia:sm_80"])
def test_lowered_with_its_nests(target: str) -> None:
    """Without opening them first: the nests' bodies are what is compiled."""
    lowered = run_passes(lower_computes(parse_kernel(NEST)))
    assert len(nests(lowered)) == 2
    check(parse_kernel(NEST), lowered, target)


@pytest.mark.parametrize("target", ["x86", "spirv", "nvidia:sm_80"])
def test_launches_inside(target: str) -> None:
    kind = "parallel" if target == "x86" else "grid"
    text = f"""
kernel k(inout a: s64[8], out b: s64[8]):
  opaque first writes a:
    alloc own: s64[8]
    {kind} for i in 8:
      own[i] = a[7 - i]
    {kind} for i in 8:
      a[i] = own[i] * 3
  y = a[0]
  opaque second reads a writes b:
    x = a[1] + y
    {kind} for i in 8:
      b[i] = a[i] + x
  x = a[2] + y
  {kind} for i in 4:
    b[i * 2] = x + i
"""
    kernel = parse_kernel(text)
    verify(kernel)
    check(kernel, run_passes(kernel), target)


def check(kernel: Kernel, lowered: Kernel, target: str) -> None:
    result = find_target(target)
    need_device(target)
    module = result.lower(lowered)
    if not result.runs_here or target.startswith("nvidia"):  # which takes no addresses of the host
        assert result.assembly(module)
        return
    wanted = memory_of(kernel)
    values = {name: array.copy() for name, array in wanted.items()}
    interpret(kernel, wanted)
    abi = abi_of(lowered, module)
    passed = [values[array.name].ctypes.data for array in kernel.arrays]
    result.load(result.assemble(module), abi).run(passed, 1)
    for name, array in wanted.items():
        np.testing.assert_array_equal(values[name], array, err_msg=name)


def test_random_kernels() -> None:
    """Drawn nests are verified, and compile like the statements in them."""
    seen = 0
    for seed in range(40):
        kernel = random_kernel(random.Random(seed), 16, types=(s64, s32, s8))
        if not nests(kernel):
            continue
        seen += 1
        verify(kernel)
        check(kernel, run_passes(lower_computes(kernel)), "x86")
    assert seen > 5


def _loop(kernel: Kernel, rng: random.Random) -> str:
    return rng.choice([s.var.name for s in walk_stmts(kernel.body) if isinstance(s, For)] or ["i"])


MOVES: list[Callable[[Kernel, random.Random], Kernel]] = [
    lambda k, r: set_kind(k, _loop(k, r), r.choice([LoopKind.UNROLLED, LoopKind.PARALLEL])),
    lambda k, r: partition(k, _loop(k, r), split_borders=r.random() < 0.5),
    lambda k, r: tile(k, "op", {f"d{r.randint(1, 9)}": 2}),
    lambda k, r: stage(k, "op", r.choice(["result", "arg0", "arg1"])),
    lambda k, r: drop_unit_dims(k),
    lambda k, r: lower_computes(k, ["op"]),
]


@pytest.mark.parametrize("part", in_turns(2, range(2)))
def test_random_schedules(part: int) -> None:
    """What is accepted computes the same, and leaves the statements of nests."""
    accepted = 0
    for seed in range(part, 150, 2):
        rng = random.Random(seed)
        source = simplify_kernel(random_kernel(rng, 12, types=(s64, s32, s8)))
        if not nests(source):
            continue
        kernel = source
        for _ in range(4):
            before = {nest.name for nest in nests(kernel)}
            try:
                moved = rng.choice(MOVES)(kernel, rng)
            except ScheduleError:
                continue
            accepted += moved is not kernel
            verify(moved)
            assert {nest.name for nest in nests(moved)} == before, seed
            kernel = moved
        wanted, got = memory_of(source), memory_of(source)
        interpret(source, wanted)
        interpret(kernel, got)
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array, err_msg=f"{seed} {name}")
    assert accepted > 10

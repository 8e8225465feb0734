"""What a scheduled kernel is counted to do: loops, operations, accesses, chains, registers."""

from __future__ import annotations

import pytest

from tilewright.ir import parse_kernel
from tilewright.machines import x86
from tilewright.machines.machine import Machine
from tilewright.predict.bodies import Body, bodies_of
from tilewright.predict.lines import held, lines_of
from tilewright.predict.nest import nest_of
from tilewright.predict.work import COLUMN, work_of

MACHINE = x86.machine("avx512")


def _bodies(text: str, machine: Machine = MACHINE) -> list[Body]:
    root = nest_of(parse_kernel(text))
    lines = lines_of(root, machine)
    return bodies_of(lines, held(root, lines, machine), machine)


def test_extents_that_depend_on_outer_loops_are_averaged() -> None:
    root = nest_of(
        parse_kernel("""
kernel k(out y: f32[64, 64]):
  for i in 64:
    for j in i + 1:
      y[i, j] = 1.0
""")
    )
    (outer,) = root.nests
    (inner,) = outer.nests
    assert outer.extent == 64 and 24 < inner.extent < 40


def test_branches_count_as_often_as_they_are_taken() -> None:
    root = nest_of(
        parse_kernel("""
kernel k(out y: f32[100]):
  for i in 100:
    if i < 50:
      y[i] = 1.0
    else:
      y[i] = 2.0
""")
    )
    then, otherwise = root.nests[0].nests
    assert then.extent + otherwise.extent == pytest.approx(1)
    assert 0.25 < then.extent < 0.75


_PRODUCT = """
kernel k(in a: f32[4, 64], in b: f32[64, 32], out c: f32[4, 32]):
  alloc acc: f32[4, 32] private
  unrolled for m in 4:
    vector for n in 32:
      acc[m, n] = 0.0
  for k in 64:
    unrolled for m in 4:
      unrolled for v in 2:
        compute main<fma_f32x16>(n in 16):
          x = a[m, k]
          w = b[k, v * 16 + n]
          acc[m, v * 16 + n] add= x * w
  unrolled for m in 4:
    vector for n in 32:
      c[m, n] = acc[m, n]
"""


def test_a_register_tile_loads_each_factor_once() -> None:
    around, product = _bodies(_PRODUCT)
    assert around.counts["store"] == 4 * 2 and around.counts["load"] == 0
    assert product.counts["multiply-add"] == 4 * 2
    # Four broadcasts of a, and two vectors of b.
    assert product.counts["load"] == 4 + 2
    assert product.counts["waits multiply-add"] == 1


def test_sums_without_room_in_registers_are_stored_and_loaded() -> None:
    _, product = _bodies(_PRODUCT.replace("4", "40"))
    assert product.counts["store"] > 0 and product.counts["waits memory"] > 0


def _sum(copies: int) -> str:
    return f"""
kernel k(in x: f32[4096], out y: f32[16]):
  alloc sums: f32[{copies}, 16] private
  for i in {4096 // 16 // copies}:
    unrolled for c in {copies}:
      vector for lane in 16:
        sums[c, lane] = sums[c, lane] + x[(i * {copies} + c) * 16 + lane]
  vector for lane in 16:
    y[lane] = sums[0, lane]
"""


def test_copies_of_a_sum_do_not_wait_for_each_other() -> None:
    waits = {}
    for copies in (1, 4):
        work = work_of(parse_kernel(_sum(copies)), MACHINE, threads=1)
        waits[copies] = work.bodies[:, COLUMN["waits float"]].sum()
    assert waits == {1: 256, 4: 64}


def test_a_scan_waits_for_the_element_before() -> None:
    _, scan = _bodies("""
kernel k(in x: f32[100], out y: f32[100]):
  y[0] = x[0]
  for i in 99:
    y[i + 1] = y[i] + x[i + 1]
""")
    assert scan.counts["waits float"] == 1 and scan.counts["waits memory"] == 1


@pytest.mark.parametrize(
    ("index", "kind", "number"),
    [
        ("i * 16 + lane", "load", 1),
        ("lane * 9 + i", "gather", 16),
        # Chosen from the vectors that they lie in.
        ("lane * 3 + i", "load", 3),
        ("lane * 3 + i", "shuffle", 3),
        ("i", "load", 1),
        ("(i * 16 + lane) % 7", "gather", 16),
    ],
)
def test_loads_by_how_lanes_lie_in_memory(index: str, kind: str, number: int) -> None:
    (body,) = _bodies(f"""
kernel k(in x: f32[4096], out y: f32[1024]):
  for i in 64:
    vector for lane in 16:
      y[i * 16 + lane] = x[{index}]
""")
    assert body.counts[kind] == number and body.counts["store"] == 1


def test_masked_and_unaligned_accesses() -> None:
    (body,) = _bodies("""
kernel k(in x: f32[4096], out y: f32[1024]):
  for i in 64:
    vector for lane in 16:
      if lane < 5:
        y[i * 16 + lane] = x[i * 16 + lane + 3]
""")
    assert body.counts["store masked"] == 1
    # Of 64 bytes that begin at multiples of 4, 15 of 16 cross the end of a line.
    assert body.counts["split"] == pytest.approx(60 / 64)


@pytest.mark.parametrize(("kind", "share"), [("", 1.0), ("unrolled ", 0.25)])
def test_code_under_a_mask_runs_for_all_vectors_of_a_loop(kind: str, share: float) -> None:
    """Loops that are written out have vectors without lanes left out."""
    bodies = _bodies(f"""
kernel k(in x: f32[64], out y: f32[64]):
  {kind}for i in 4:
    vector for lane in 16:
      if i * 16 + lane < 8:
        y[i * 16 + lane] = x[i * 16 + lane]
""")
    turns = 1 if kind else 4
    stored = sum(body.counts["store masked"] for body in bodies) * turns
    # Which turns of a loop are looked at is a sample.
    assert stored == pytest.approx(4 * share, rel=0.2 if kind else 1e-9)


def test_what_does_not_change_in_a_loop_is_loaded_before_it() -> None:
    (body,) = _bodies("""
kernel k(in x: f32[64], in s: f32[1], out y: f32[64, 16]):
  for i in 64:
    vector for lane in 16:
      y[i, lane] = x[i] * exp(s[0])
""")
    assert body.counts["load"] == 1 + 1 / 64
    assert body.counts["exp"] == pytest.approx(1 / 64)


def test_the_thread_with_most_iterations_counts() -> None:
    text = """
kernel k(in x: f32[3, 160], out y: f32[3, 160]):
  parallel for i in 3:
    for j in 10:
      vector for lane in 16:
        y[i, j * 16 + lane] = x[i, j * 16 + lane]
"""
    stores = {
        threads: work_of(parse_kernel(text), MACHINE, threads).bodies[:, COLUMN["store"]].sum()
        for threads in (1, 2, 3, 8)
    }
    assert stores == {1: 30, 2: 20, 3: 10, 8: 10}
    one, two = (work_of(parse_kernel(text), MACHINE, threads).overheads for threads in (1, 2))
    assert one[COLUMN["starts of threads"]] == 0 and two[COLUMN["starts of threads"]] == 1


def test_copies_of_a_window_that_moves_load_each_place_once() -> None:
    (body,) = _bodies("""
kernel k(in x: f32[8, 160], in w: f32[3], out y: f32[6, 160]):
  for j in 10:
    alloc acc: f32[6, 16] private
    unrolled for i in 6:
      vector for v in 16:
        acc[i, v] = 0.0
    unrolled for t in 3:
      unrolled for i in 6:
        compute main<fma_f32x16>(v in 16):
          b = w[t]
          a = x[i + t, v + j * 16]
          acc[i, v] add= a * b
    unrolled for i in 6:
      vector for v in 16:
        y[i, v + j * 16] = acc[i, v]
""")
    assert body.counts["multiply-add"] == 18
    # Eight rows, and three taps, which all iterations share.
    assert body.counts["load"] == pytest.approx(8 + 3 / 10)


def test_parallel_loops_that_are_one_range_find_their_indices() -> None:
    """In each iteration, and load anew what does not change in the inner loop."""
    nested, single = (
        _bodies(f"""
kernel k(in x: s32[3], in y: f32[9, 100], out z: f32[3, 100]):
  {outer} for i in 3:
    parallel for j in 100:
      z[i, j] = y[s64(x[i]), j]
""")[0].counts
        for outer in ("parallel", "serial")
    )
    assert nested["scalar"] > 0 == single["scalar"]
    assert nested["load"] == 2 and single["load"] == pytest.approx(1.01)


def test_short_floats_are_computed_on_as_f32() -> None:
    (body,) = _bodies("""
kernel k(in x: f16[64], out y: f16[64]):
  vector for i in 64:
    y[i] = x[i] * x[i]
""")
    assert body.counts["simple"] == 4 and body.counts["narrow"] == 4


def test_buffers_of_parts_one_after_the_other_share_registers() -> None:
    part = """
  block:
    alloc acc{0}: f32[20, 16] private
    unrolled for i in 20:
      vector for v in 16:
        acc{0}[i, v] = x[i, v + {0}]
    unrolled for i in 20:
      vector for v in 16:
        y[i, v + {0}] = acc{0}[i, v] * acc{0}[0, v]
"""
    text = "kernel k(in x: f32[20, 99], out y: f32[20, 99]):" + part.format(0) + part.format(16)
    root = nest_of(parse_kernel(text))
    assert set(held(root, lines_of(root, MACHINE), MACHINE).values()) == {1.0}

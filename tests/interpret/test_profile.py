"""What accesses cost: conflicts of banks and segments, counted as a device with 32 banks does."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.interpret import Line, Profile, run
from tilewright.ir import parse_kernel, verify
from tilewright.machines import spirv

HIERARCHY = spirv.machine("gpu").hierarchy
assert HIERARCHY is not None and HIERARCHY.banks == 32 and HIERARCHY.segment == 64


def lines(body: str, params: str = "inout y: f32[4096]") -> dict[str, Line]:
    """What was counted for each kind of access of each buffer."""
    indented = "\n".join(f"  {line}" for line in body.strip().splitlines())
    kernel = parse_kernel(f"kernel k({params}):\n{indented}\n")
    verify(kernel)
    memory = {p.name: np.zeros(p.buffer.layout.extent, p.dtype.numpy) for p in kernel.params}
    profile = Profile(HIERARCHY)
    run(kernel, memory, profile=profile)
    return {f"{line.verb} {line.buffer.name}": line for line in profile.lines}


def shared(index: str, dtype: str = "f32", shape: str = "4096", around: str = "") -> Line:
    """A store to workgroup memory by 64 work-items ``t``."""
    body = f"""alloc s: {dtype}[{shape}] workgroup
workgroup for t in 64:
  {around or "if t < 64:"}
    s[{index}] = {dtype}(t)"""
    return lines(body, "")["store s"]


@pytest.mark.parametrize(
    ("index", "degree"),
    [
        ("t", 1),  # consecutive words
        ("63 - t", 1),  # in any order
        ("t * 2", 2),
        ("t * 16", 16),
        ("t * 32", 32),
        ("t * 33", 1),  # a row of 32 is padded by one
        ("t % 8 * 32 + t // 8", 8),  # the transposed square of 8 rows
        ("t % 8 * 36 + t // 8", 1),
    ],
)
def test_conflicts_of_words(index: str, degree: int) -> None:
    line = shared(index)
    assert (line.accesses, line.degree, line.worst) == (2, degree, degree)


def test_one_word_for_all_is_free() -> None:
    body = """alloc s: f32[8] workgroup
for i in 8:
  s[i] = 0.0
workgroup for t in 64:
  y[t] = s[t // 32 * 4 + 1]"""
    line = lines(body)["load s"]
    assert (line.accesses, line.degree) == (2, 1.0)


def test_two_halves_of_a_word_are_one_word() -> None:
    assert shared("t", "f16").degree == 1.0
    assert shared("t * 2", "f16").degree == 1.0
    assert shared("t * 4", "f16").degree == 2.0


def test_average_and_worst() -> None:
    # The first subgroup accesses a column, the second a row.
    line = shared("select(t < 32, t * 32, t + 1024)")
    assert (line.accesses, line.degree, line.worst) == (2, 16.5, 32)


@pytest.mark.parametrize(
    ("dtype", "elements", "turns"),
    [("f32", 4, 4), ("f32", 2, 2), ("f64", 2, 4), ("f16", 8, 4), ("f16", 2, 1), ("f32", 8, 8)],
)
def test_wide_accesses_take_turns(dtype: str, elements: int, turns: int) -> None:
    """Contiguous vectors are free: lanes take turns by as many as make up 128 bytes."""
    around = f"vector for v in {elements}:"
    line = shared(f"t * {elements} + v", dtype, around=around)
    if elements == 8 and dtype == "f32":
        # Two accesses of 16 bytes, 32 bytes apart: half of the banks twice.
        assert (line.accesses, line.degree) == (16, 2.0)
    else:
        assert (line.accesses, line.degree) == (2 * turns, 1.0)


def test_wide_accesses_conflict() -> None:
    # Rows of 32 words: the 8 lanes of a turn all want the first four banks.
    line = shared("t % 32 * 32 + t // 32 * 4 + v", around="vector for v in 4:")
    assert (line.accesses, line.degree) == (8, 8.0)
    # Swizzled, each row begins in other banks.
    line = shared("t % 32 * 32 + (t // 32 + t) % 8 * 4 + v", around="vector for v in 4:")
    assert (line.accesses, line.degree) == (8, 1.0)


def test_vectors_that_do_not_lie_together_are_single_accesses() -> None:
    line = shared("v * 64 + t", around="vector for v in 4:")
    assert (line.accesses, line.degree) == (8, 1.0)


def test_a_layout_with_padding_has_no_conflicts() -> None:
    """The same index, the same square: the layout decides."""
    body = """alloc s: f32[32, 32]{} workgroup
workgroup for r in 2:
  workgroup for t in 32:
    for i in 16:
      s[t, i * 2 + r] = 1.0
    barrier()
    y[r * 32 + t] = s[r, t]"""
    plain = lines(body.format(""))
    padded = lines(body.format(" {0:32:33 1:32:1}"))
    assert plain["store s"].degree == 32.0 and plain["load s"].degree == 1.0
    assert padded["store s"].degree == 1.0 and padded["load s"].degree == 1.0
    assert plain["store s"].accesses == 32


def test_masked_lanes_do_not_count() -> None:
    line = shared("t * 32", around="if t < 4:")
    assert (line.accesses, line.degree) == (1, 4.0)


def test_subgroups_of_lane_loops_are_as_large_as_these() -> None:
    body = """alloc s: f32[1024] workgroup
subgroup for w in 2:
  lane for l in 8:
    s[w + l * 32] = 1.0"""
    line = lines(body, "")["store s"]
    assert (line.accesses, line.degree) == (2, 8.0)


@pytest.mark.parametrize(
    ("index", "efficiency"),
    [
        ("t", 1.0),
        ("t * 2", 0.5),
        ("t * 16", 1 / 16),
        ("t + 8", 2 / 3),  # aligned to half a segment
        ("t % 2 * 16", 0.5),
    ],
)
def test_coalescing(index: str, efficiency: float) -> None:
    body = f"""workgroup for t in 64:
  alloc r: f32[1] private
  r[0] = y[{index}]"""
    assert lines(body)["load y"].efficiency == pytest.approx(efficiency)


def test_vectors_coalesce() -> None:
    body = """grid for g in 2:
  workgroup for t in 32:
    vector for v in 4:
      y[g * 128 + t * 4 + v] = 1.0"""
    line = lines(body)["store y"]
    assert (line.accesses, line.segments, line.least) == (2, 16, 16)


def test_vectors_beyond_the_end_of_a_result_leave_the_others_whole() -> None:
    """Where nothing is stored, no address counts: rows of 6 are no vector's, but masked."""
    body = """workgroup for t in 32:
  vector for v in 4:
    if t < 12:
      z[(t * 4 + v) // 6, (t * 4 + v) % 6] = 1.0"""
    line = lines(body, "inout z: f32[8, 6]")["store z"]
    assert (line.accesses, line.efficiency) == (1, 1.0)


def test_asynchronous_copies_and_atomics_are_accesses() -> None:
    body = """alloc s: f32[1024] workgroup
workgroup for t in 32:
  copy_async(&s[t * 32], &y[t])
  commit_copies()
  wait_copies(0)
  atomic_add(&s[t * 32], 1.0)"""
    result = lines(body)
    assert result["load y"].efficiency == 1.0
    assert result["store s"].degree == 32.0 and result["update s"].degree == 32.0


def test_vectors_of_copies_are_wide_accesses() -> None:
    body = """grid for g in 2:
  alloc s: f32[128] workgroup
  workgroup for t in 32:
    vector for v in 4:
      copy_async(&s[t * 4 + v], &y[g * 128 + t * 4 + v])
    commit_copies()
    wait_copies(0)
    barrier()
    y[g * 128 + t] = s[127 - t]"""
    result = lines(body)
    assert (result["load y"].accesses, result["load y"].efficiency) == (2, 1.0)
    assert (result["store s"].accesses, result["store s"].degree) == (8, 1.0)

"""GPU-shaped kernels in the interpreter: what they mean, and each fault of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import interpret
from tilewright.errors import InterpreterFault, UnsupportedError, VerificationError
from tilewright.interpret import FaultKind, Findings
from tilewright.interpret.lockstep import Lockstep
from tilewright.ir import parse_kernel, verify
from tilewright.machines import spirv

HIERARCHY = spirv.machine("gpu").hierarchy
KINDS = FaultKind


def indented(body: str) -> str:
    lines = body.strip("\n").splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join("  " + line[margin:] for line in lines)


def run(params: str, body: str, **arrays: Any) -> dict[str, Any]:
    """Runs the kernel of that text; memory that is not given is zero."""
    kernel = parse_kernel(f"kernel k({params}):\n{indented(body)}\n")
    verify(kernel)
    memory = {
        p.name: np.array(arrays[p.name], p.dtype.numpy)
        if p.name in arrays
        else np.zeros(p.buffer.layout.extent, p.dtype.numpy)
        for p in kernel.params
    }
    interpret.run(kernel, memory, hierarchy=HIERARCHY)
    return memory


def found(params: str, body: str) -> list[tuple[FaultKind, str, int]]:
    """The findings on zeros: kind, IR line, count. The first is what a strict run raises."""
    kernel = parse_kernel(f"kernel k({params}):\n{indented(body)}\n")
    verify(kernel)

    def memory() -> dict[str, Any]:
        return {p.name: np.zeros(p.buffer.layout.extent, p.dtype.numpy) for p in kernel.params}

    findings = Findings()
    interpret.run(kernel, memory(), hierarchy=HIERARCHY, findings=findings)
    for finding in findings:
        fault = finding.fault
        assert isinstance(fault.where, str) and fault.why and fault.cure
    if len(findings):
        with pytest.raises(InterpreterFault) as caught:
            interpret.run(kernel, memory(), hierarchy=HIERARCHY)
        assert str(caught.value) == str(next(iter(findings)).fault)
    else:
        interpret.run(kernel, memory(), hierarchy=HIERARCHY)
    return [
        (finding.kind, str(finding.fault.where).splitlines()[0], finding.count)
        for finding in findings
    ]


def fault(params: str, body: str) -> str:
    """The text of the one fault of a kernel."""
    with pytest.raises(InterpreterFault) as caught:
        run(params, body)
    assert len(found(params, body)) == 1
    return str(caught.value)


# What kernels mean.

REVERSE = """
grid for g in 3:
  alloc s: s64[8] workgroup
  workgroup for t in 8:
    s[t] = x[g * 8 + t]
    barrier()
    y[g * 8 + t] = s[7 - t]
"""


def test_workgroups_share_memory_of_their_own() -> None:
    x = np.arange(24)
    memory = run("in x: s64[24], out y: s64[24]", REVERSE, x=x)
    np.testing.assert_array_equal(memory["y"], x.reshape(3, 8)[:, ::-1].ravel())


@pytest.mark.parametrize("chunk", [1, 2])
def test_workgroups_one_after_another_give_the_same(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lockstep, "chunk", lambda *_: chunk)
    assert found("in x: s64[24], out y: s64[24]", REVERSE) == []


def test_private_memory_is_per_work_item() -> None:
    body = """
    grid for g in 2:
      workgroup for ty in 2:
        workgroup for tx in 4:
          id = g * 8 + ty * 4 + tx
          alloc acc: s64[1] private
          acc[0] = 0
          for k in id + 1:
            acc[0] = acc[0] + k
          y[id] = acc[0]
    """
    expected = [n * (n + 1) // 2 for n in range(16)]
    np.testing.assert_array_equal(run("out y: s64[16]", body)["y"], expected)


def test_guarded_tails_in_packed_grids() -> None:
    body = """
    grid for g in 6:
      row = g // 2
      workgroup for t in 4:
        column = g % 2 * 4 + t
        if column < 7:
          y[row, column] = row * 10 + column
    """
    expected = np.arange(3)[:, None] * 10 + np.arange(7)
    got = run("out y: s64[3, 7]", body)["y"]
    np.testing.assert_array_equal(got.reshape(3, 7), expected)


def test_ops_run_per_work_item() -> None:
    body = """
    grid for g in 2:
      alloc s: f32[4, 8] workgroup
      workgroup for t in 4:
        compute fill(v in 8):
          a = x[g * 32 + t * 8 + v]
          s[t, v] = a
        barrier()
        alloc acc: f32[1] private
        acc[0] = 0.0
        compute sum(k in 8):
          a = s[3 - t, k]
          acc[0] add= a
        y[g * 4 + t] = acc[0]
    """
    x = np.arange(64.0)
    got = run("in x: f32[64], out y: f32[8]", body, x=x)["y"]
    np.testing.assert_array_equal(got, x.reshape(2, 4, 8).sum(2)[:, ::-1].ravel())


def test_statements_outside_of_work_items_run_once_in_order() -> None:
    body = """
    alloc w: s64[4]
    for i in 4:
      w[i] = 5
    grid for g in 4:
      alloc s: s64[4] workgroup
      for i in 4:
        s[i] = w[i] + g
      workgroup for t in 4:
        s[t] = s[t] * 2
      y[g] = s[g]
    """
    np.testing.assert_array_equal(run("out y: s64[4]", body)["y"], [10, 12, 14, 16])


def test_a_workgroup_without_thread_loops_is_one_work_item() -> None:
    body = """
    grid for g in 4:
      alloc s: s64[2] workgroup
      for i in 2:
        copy_async(&s[i], &x[g * 2 + i])
        commit_copies()
      wait_copies(0)
      barrier()
      y[g] = s[0] + s[1]
    """
    got = run("in x: s64[8], out y: s64[4]", body, x=np.arange(8))["y"]
    np.testing.assert_array_equal(got, [1, 5, 9, 13])


def test_barriers_in_loops_and_in_uniform_branches() -> None:
    body = """
    grid for g in 4:
      alloc s: s64[8] workgroup
      workgroup for t in 8:
        s[t] = t
        for k in g:
          barrier()
          alloc r: s64[1] private
          r[0] = s[(t + 1) % 8]
          barrier()
          s[t] = r[0]
        if g < 2:
          barrier()
          y[g * 8 + t] = s[7 - t]
    """
    got = run("inout y: s64[32]", body)["y"].reshape(4, 8)
    np.testing.assert_array_equal(got[0], 7 - np.arange(8))
    np.testing.assert_array_equal(got[1], (8 - np.arange(8)) % 8)


def test_subgroups_of_lane_loops() -> None:
    body = """
    grid for g in 2:
      alloc s: s64[16] workgroup
      subgroup for w in 2:
        lane for l in 8:
          s[w * 8 + l] = l
          subgroup_barrier()
          y[g * 16 + w * 8 + l] = s[w * 8 + 7 - l]
    """
    got = run("out y: s64[32]", body)["y"]
    np.testing.assert_array_equal(got, np.tile(np.arange(8)[::-1], 4))


def test_subgroups_of_consecutive_work_items() -> None:
    body = """
    alloc s: s64[64]
    workgroup for a in 4:
      workgroup for b in 16:
        s[a * 16 + b] = b
        subgroup_barrier()
        y[a * 16 + b] = s[(a // 2 * 32 + (a * 16 + b + 1) % 32)]
    """
    assert found("out y: s64[64]", body) == []
    assert found("out y: s64[64]", body.replace("a // 2 * 32", "0"))[0][0] is KINDS.RACE


def test_atomics_add_up_in_any_order() -> None:
    body = """
    grid for g in 3:
      alloc s: s64[1] workgroup
      workgroup for t in 8:
        if t < 1:
          s[0] = 0
        barrier()
        atomic_add(&s[0], t)
        barrier()
        if t < 1:
          atomic_add(&y[0], s[0])
    """
    assert run("inout y: s64[1]", body)["y"][0] == 3 * 28


PIPELINE = """
grid for g in 2:
  alloc s: s64[2, 8] workgroup
  workgroup for t in 8:
    alloc acc: s64[1] private
    acc[0] = 0
    copy_async(&s[0, t], &x[g, 0, t])
    commit_copies()
    for k in 5:
      if k < 4:
        copy_async(&s[(k + 1) % 2, t], &x[g, k + 1, t])
      commit_copies()
      wait_copies(1)
      barrier()
      acc[0] = acc[0] + s[k % 2, 7 - t]
      barrier()
    wait_copies(0)
    y[g, t] = acc[0]
"""
PIPELINE_PARAMS = "in x: s64[2, 5, 8], out y: s64[2, 8]"


def test_a_pipeline_of_asynchronous_copies() -> None:
    x = np.random.default_rng(0).integers(0, 100, (2, 5, 8))
    got = run(PIPELINE_PARAMS, PIPELINE, x=x.ravel())["y"]
    np.testing.assert_array_equal(got.reshape(2, 8), x.sum(axis=1)[:, ::-1])


# Races.


def test_missing_barrier() -> None:
    text = fault("in x: s64[24], out y: s64[24]", REVERSE.replace("    barrier()\n", ""))
    assert "data race on 's': work-item 7 writes the element at offset 7 and work-item 0" in text
    assert "y[g * 8 + t] = s[7 - t]" in text
    assert "g=0, t=0" in text


def test_missing_second_barrier() -> None:
    body = """
    grid for g in 2:
      alloc s: s64[8] workgroup
      workgroup for t in 8:
        for k in 3:
          s[t] = x[g, k, t]
          barrier()
          y[g, k, t] = s[7 - t]
          barrier()
    """
    params = "in x: s64[2, 3, 8], out y: s64[2, 3, 8]"
    assert found(params, body) == []
    faulty = body.replace("s[7 - t]\n          barrier()", "s[7 - t]")
    assert found(params, faulty) == [(KINDS.RACE, "s[t] = x[g, k, t]", 32)]
    assert "k=1" in fault(params, faulty)


def test_all_readers_count() -> None:
    """Work-items 0 and 1 read what 0 then writes: it is not enough to know one reader."""
    body = """
    alloc s: s64[8]
    for i in 8:
      s[i] = i
    workgroup for t in 2:
      y[t] = s[3]
      if t < 1:
        s[3] = t
    """
    assert found("out y: s64[2]", body) == [(KINDS.RACE, "s[3] = t", 1)]
    assert found("out y: s64[2]", body.replace("y[t] = s[3]", "y[t] = s[3 + t]")) == []


def test_two_lanes_write_one_element() -> None:
    body = """
    grid for g in 2:
      alloc s: s64[8] workgroup
      workgroup for t in 8:
        s[t // 2] = 1
    """
    assert found("", body) == [(KINDS.RACE, "s[t // 2] = 1", 16)]
    text = fault("", body)
    assert "work-item 1 writes the element at offset 0 and work-item 0 writes it" in text


def test_two_work_items_write_one_element_in_an_op() -> None:
    body = """
    workgroup for t in 4:
      compute op(i in 2):
        y[i] = i
    """
    assert {kind for kind, _, _ in found("out y: s64[2]", body)} == {KINDS.RACE}


def test_a_work_item_may_write_an_element_twice() -> None:
    body = """
    workgroup for t in 4:
      for k in 3:
        y[t] = k
    """
    assert found("out y: s64[4]", body) == []
    body = """
    workgroup for t in 4:
      vector for v in 2:
        y[t] = v
    """
    assert found("out y: s64[4]", body) == [(KINDS.RACE, "y[t] = v", 4)]


def test_race_between_workgroups() -> None:
    body = """
    grid for g in 4:
      workgroup for t in 8:
        y[g * 4 + t] = g
        barrier()
    """
    assert found("out y: s64[20]", body) == [(KINDS.RACE, "y[g * 4 + t] = g", 24)]
    text = fault("out y: s64[20]", body)
    assert "workgroup g=1 writes the element at offset 4 and workgroup g=0 writes it" in text
    assert "workgroups run in any order" in text


def test_subgroup_barrier_is_for_one_subgroup() -> None:
    body = """
    grid for g in 2:
      alloc s: s64[16] workgroup
      subgroup for w in 2:
        lane for l in 8:
          s[w * 8 + l] = l
          subgroup_barrier()
          y[g * 16 + w * 8 + l] = s[15 - w * 8 - l]
    """
    line = "y[g * 16 + w * 8 + l] = s[15 - w * 8 - l]"
    assert found("out y: s64[32]", body) == [(KINDS.RACE, line, 32)]
    assert "subgroup 1 writes the element at offset 15 and subgroup 0 reads" in fault(
        "out y: s64[32]", body
    )
    assert found("out y: s64[32]", body.replace("subgroup_barrier", "barrier")) == []
    missing = body.replace("subgroup_barrier()", "pass").replace("15 - w * 8", "w * 8 + 7")
    assert found("out y: s64[32]", missing)[0][0] is KINDS.RACE


def test_lanes_are_not_ordered_without_a_subgroup_barrier() -> None:
    body = """
    alloc s: s64[16]
    subgroup for w in 2:
      lane for l in 8:
        s[w * 8 + l] = l
        subgroup_barrier()
        s[w * 8 + l] = s[w * 8 + l] + 1
        y[w * 8 + l] = s[w * 8 + 7 - l]
    """
    text = fault("out y: s64[16]", body)
    assert "work-item 7 writes the element at offset 7 and work-item 0 reads it" in text


def test_atomics_and_plain_accesses() -> None:
    body = """
    alloc s: s64[1]
    s[0] = 0
    workgroup for t in 4:
      atomic_add(&s[0], 1)
      y[t] = s[0]
    """
    assert found("out y: s64[4]", body) == [(KINDS.RACE, "y[t] = s[0]", 4)]
    text = fault("out y: s64[4]", body)
    assert "updates the element" in text and "reads it" in text
    between = body.replace("1)\n", "1)\n      barrier()\n")
    assert found("out y: s64[4]", between) == []
    before = body.replace("s[0] = 0", "pass")
    assert found("out y: s64[4]", before)[0][0] is KINDS.UNINITIALIZED


def test_atomics_of_workgroups_do_not_race() -> None:
    body = """
    grid for g in 4:
      workgroup for t in 4:
        atomic_add(&y[t % 2], 1.0)
    """
    assert found("inout y: f32[2]", body) == []
    plain = body.replace("atomic_add(&y[t % 2], 1.0)", "y[t] = y[t] + 1.0")
    assert {kind for kind, _, _ in found("inout y: f32[4]", plain)} == {KINDS.RACE}


# Barriers.


def test_divergent_barrier() -> None:
    body = """
    grid for g in 2:
      workgroup for t in 8:
        if t < 4:
          barrier()
    """
    assert found("", body) == [(KINDS.DIVERGENT_BARRIER, "barrier()", 2)]
    text = fault("", body)
    assert "not all work-items of the workgroup reach it" in text
    assert "g=0, t=4" in text


def test_divergent_subgroup_barrier() -> None:
    body = """
    subgroup for w in 2:
      lane for l in 8:
        if w < 1:
          subgroup_barrier()
    """
    assert found("", body) == []
    divergent = body.replace("w < 1", "l < 1")
    assert found("", divergent) == [(KINDS.DIVERGENT_BARRIER, "subgroup_barrier()", 2)]


def test_loops_of_different_extents_around_a_barrier() -> None:
    body = """
    workgroup for t in 4:
      for k in t:
        barrier()
    """
    with pytest.raises(VerificationError, match="iterations differ by work-item"):
        found("", body)


# Asynchronous copies.


def test_read_before_the_wait() -> None:
    faulty = PIPELINE.replace("      wait_copies(1)\n", "")
    kinds = found(PIPELINE_PARAMS, faulty)
    line = "acc[0] = acc[0] + s[k % 2, 7 - t]"
    assert kinds[0][:2] == (KINDS.EARLY_ACCESS, line)
    with pytest.raises(InterpreterFault, match="read of 's' at offset 7 before its copy has arr"):
        run(PIPELINE_PARAMS, faulty)


def test_too_many_pending() -> None:
    faulty = PIPELINE.replace("wait_copies(1)", "wait_copies(2)")
    assert found(PIPELINE_PARAMS, faulty)[0][0] is KINDS.EARLY_ACCESS


def test_missing_commit() -> None:
    faulty = PIPELINE.replace("      commit_copies()\n      wait", "      wait")
    kinds = [kind for kind, _, _ in found(PIPELINE_PARAMS, faulty)]
    assert kinds[0] is KINDS.EARLY_ACCESS and kinds[-1] is KINDS.LOST_COPY


def test_a_copy_that_nobody_waits_for() -> None:
    body = """
    alloc s: s64[8]
    workgroup for t in 8:
      copy_async(&s[t], &x[t])
      commit_copies()
    """
    expected = [(KINDS.LOST_COPY, "copy_async(&s[t], &x[t])", 8)]
    assert found("in x: s64[8]", body) == expected
    assert "is never waited for" in fault("in x: s64[8]", body)
    uncommitted = body.replace("commit_copies()", "wait_copies(0)")
    assert found("in x: s64[8]", uncommitted) == expected
    assert "is never committed" in fault("in x: s64[8]", uncommitted)


def test_a_wait_is_no_barrier() -> None:
    faulty = PIPELINE.replace("wait_copies(1)\n      barrier()", "wait_copies(1)")
    line = "acc[0] = acc[0] + s[k % 2, 7 - t]"
    assert found(PIPELINE_PARAMS, faulty)[0][:2] == (KINDS.RACE, line)


def test_a_copy_into_what_others_still_read() -> None:
    faulty = PIPELINE.replace("7 - t]\n      barrier()", "7 - t]")
    line = "copy_async(&s[(k + 1) % 2, t], &x[g, k + 1, t])"
    assert found(PIPELINE_PARAMS, faulty)[0][:2] == (KINDS.RACE, line)


def test_a_masked_copy_brings_zero() -> None:
    body = """
    alloc s: s64[8]
    workgroup for t in 8:
      copy_async(&s[t], &x[t + 1 | t < 5])
      commit_copies()
      wait_copies(0)
      y[t] = s[t]
    """
    got = run("in x: s64[6], out y: s64[8]", body, x=np.arange(6))["y"]
    np.testing.assert_array_equal(got, [1, 2, 3, 4, 5, 0, 0, 0])


def test_copies_that_some_work_items_start() -> None:
    body = """
    alloc s: s64[8]
    workgroup for t in 8:
      s[t] = -1
      if t % 2 < 1:
        copy_async(&s[t], &x[t])
        commit_copies()
      wait_copies(0)
      y[t] = s[t]
    """
    got = run("in x: s64[8], out y: s64[8]", body, x=np.arange(8))["y"]
    np.testing.assert_array_equal(got, [0, -1, 2, -1, 4, -1, 6, -1])


# Bounds, initialization, swizzles.

COPY = """
grid for g in 3:
  alloc s: s64[9] workgroup
  workgroup for t in 4:
    for i in 3:
      if i * 4 + t < 9:
        s[i * 4 + t] = x[g * 8 + i * 4 + t]
    barrier()
    for i in 2:
      y[g * 8 + i * 4 + t] = s[i * 4 + t] + s[i * 4 + t + 1]
"""
COPY_PARAMS = "in x: s64[25], out y: s64[24]"


def test_copy_of_a_halo() -> None:
    x = np.arange(25)
    np.testing.assert_array_equal(run(COPY_PARAMS, COPY, x=x)["y"], x[1:] + x[:-1])


def test_copy_of_one_too_many() -> None:
    faulty = COPY.replace("t < 9", "t < 10")
    line = "s[i * 4 + t] = x[g * 8 + i * 4 + t]"
    # Of the last workgroup the read is out of bounds too.
    assert found(COPY_PARAMS, faulty) == [(KINDS.OUT_OF_BOUNDS, line, 4)]
    text = "out of bounds: x[25]"
    with pytest.raises(InterpreterFault, match=r"out of bounds: x\[25\]") as caught:
        run(COPY_PARAMS, faulty)
    assert text in caught.value.what and "g=2, t=1, i=2" in str(caught.value)


def test_copy_of_one_too_few() -> None:
    faulty = COPY.replace("t < 9", "t < 8")
    line = "y[g * 8 + i * 4 + t] = s[i * 4 + t] + s[i * 4 + t + 1]"
    assert found(COPY_PARAMS, faulty) == [(KINDS.UNINITIALIZED, line, 3)]
    with pytest.raises(InterpreterFault, match=r"uninitialized read of 's'.* offset 8"):
        run(COPY_PARAMS, faulty)


def test_unmasked_tail() -> None:
    body = """
    grid for g in 3:
      workgroup for t in 4:
        y[g * 4 + t] = x[g * 4 + t] * 2
    """
    line = "y[g * 4 + t] = x[g * 4 + t] * 2"
    expected = [(KINDS.OUT_OF_BOUNDS, line, 4)]
    assert found("in x: s64[10], out y: s64[10]", body) == expected


def test_read_before_write() -> None:
    body = """
    grid for g in 3:
      alloc s: s64[4] workgroup
      workgroup for t in 4:
        y[g, t] = s[t]
        s[t] = t
    """
    assert found("out y: s64[3, 4]", body) == [(KINDS.UNINITIALIZED, "y[g, t] = s[t]", 12)]


def test_store_to_an_input_is_found() -> None:
    body = """
    workgroup for t in 4:
      y[t] = x[t]
    """
    kernel = parse_kernel(f"kernel k(in x: s64[4], in y: s64[4]):\n{indented(body)}\n")
    findings, memory = Findings(), {name: np.ones(4, np.int64) for name in "xy"}
    memory["y"][:] = 7
    interpret.run(kernel, memory, findings=findings)
    assert [finding.kind for finding in findings] == [KINDS.INPUT_WRITTEN]
    np.testing.assert_array_equal(memory["y"], 7)


def test_thread_loops_are_a_perfect_nest() -> None:
    body = """
    workgroup for a in 4:
      y[a] = a
      workgroup for b in 4:
        y[b] = b
    """
    kernel = parse_kernel(f"kernel k(out y: s64[4]):\n{indented(body)}\n")
    with pytest.raises(UnsupportedError, match="inside of what work-items run"):
        interpret.run(kernel, {"y": np.zeros(4, np.int64)})


@pytest.mark.parametrize("body", ["alloc s: s64[2]", "grid for g in 2:\n  alloc s: s64[2]"])
def test_memory_alone(body: str) -> None:
    run("out y: s64[1]", body)

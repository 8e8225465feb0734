"""Workgroups of a cluster, which reach each other's memory: what they compute, and their faults."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright import interpret
from tilewright.errors import InterpreterFault, UnsupportedError
from tilewright.interpret import FaultKind, Findings
from tilewright.ir import parse_kernel, to_text, verify

KINDS = FaultKind

# Two workgroups take the two halves of 64 rows, and the same columns: each copies half of what it
# reads of b into the memory of both.
CLUSTER = """
kernel product(in a: f32[128, 48], in b: f32[48, 16], out c: f32[128, 16]):
  grid for m_o in 2:
    alloc a_slots: f32[2, 2, 32, 8] cluster
    alloc b_slots: f32[2, 2, 8, 16] cluster
    alloc full: s64[2, 2] cluster
    alloc empty: s64[2, 2] cluster
    cluster for c_m in 2:
      subgroup for w in 3:
        if w == 0:
          for slot in 2:
            mbarrier_init(&full[c_m, slot], 1)
            mbarrier_init(&empty[c_m, slot], 4)
        cluster_barrier()
        if w == 0:
          for step in 6:
            mbarrier_wait(&empty[c_m, step % 2], (step // 2 + 1) % 2)
            mbarrier_expect(&full[c_m, step % 2], 1536)
            compute a_fill<tma_load>(m in 32, k in 8) signals full[c_m, step % 2]:
              x = a[m + (m_o * 2 + c_m) * 32, k + step * 8]
              a_slots[c_m, step % 2, m, k] = x
            compute b_fill<tma_load>(peer in 2, k in 4, n in 16) signals full[peer, step % 2]:
              x = b[k + c_m * 4 + step * 8, n]
              b_slots[peer, step % 2, k + c_m * 4, n] = x
        else:
          alloc acc: f32[16, 16] private
          lane for lane in 4:
            for m in 4:
              for n in 16:
                acc[m + lane * 4, n] = 0.0
          for step in 6:
            mbarrier_wait(&full[c_m, step % 2], step // 2 % 2)
            compute main<product>(m in 16, n in 16, k in 8) joins products:
              x = a_slots[c_m, step % 2, m + (w - 1) * 16, k]
              y = b_slots[c_m, step % 2, k, n]
              acc[m, n] add= x * y
            commit_products()
            wait_products(0)
            for peer in 2:
              mbarrier_arrive(&empty[peer, step % 2])
          lane for lane in 4:
            for m in 4:
              for n in 16:
                c[m + lane * 4 + (m_o * 2 + c_m) * 32 + (w - 1) * 16, n] = acc[m + lane * 4, n]
        cluster_barrier()
"""


def cluster(*changes: tuple[str, str]) -> str:
    """`CLUSTER` with parts of it replaced (by "": the last such line is left out)."""
    text = CLUSTER
    for old, new in changes:
        assert old in text
        if new:
            text = text.replace(old, new)
        else:
            *_, last = re.finditer(rf" *{re.escape(old)}\n", text)
            text = text[: last.start()] + text[last.end() :]
    return text


def product(text: str, findings: Findings | None = None) -> bool:
    """Runs such a kernel; whether what it computes is right."""
    kernel = parse_kernel(text)
    verify(kernel)
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((128, 48), (48, 16)))
    c = np.zeros(128 * 16, np.float32)
    interpret.run(kernel, {"a": a.ravel(), "b": b.ravel(), "c": c}, findings=findings)
    return bool(np.array_equal(c.reshape(128, 16), a @ b))


def test_what_a_cluster_computes() -> None:
    assert product(CLUSTER)


def test_the_text_parses_back() -> None:
    kernel = parse_kernel(CLUSTER)
    assert to_text(parse_kernel(to_text(kernel))) == to_text(kernel)


FAULTS: dict[str, tuple[list[tuple[str, str]], FaultKind, str]] = {
    "nobody else knows of the mbarriers": (
        [("cluster_barrier()\n        if", "barrier()\n        if")],
        KINDS.RACE,
        "subgroup 0 of the cluster's workgroup 1",
    ),
    "the end is not awaited": (
        [("cluster_barrier()", "")],
        KINDS.AFTER_END,
        "which may have ended",
    ),
    "the other workgroup is not waited for": (
        [
            ("c_m, slot], 4", "c_m, slot], 2"),
            ("for peer in 2:", "for peer in 1:"),
            ("empty[peer, step", "empty[c_m, step"),
        ],
        KINDS.RACE,
        "'b_slots'",
    ),
    "arrivals at one's own only": (
        [("empty[peer, step", "empty[c_m, step")],
        KINDS.RACE,
        "'b_slots'",
    ),
    "bytes of one's own only": (
        [(", 1536)", ", 1280)")],
        KINDS.MBARRIER,
        "256 bytes more than the phase of 'full' expects",
    ),
    "the other's bytes never come": (
        [("peer in 2, k in 4", "peer in 1, k in 4")],
        KINDS.DEADLOCK,
        "subgroup 1 of the cluster's workgroup 1 waits at full[2]",
    ),
    "the wrong half": (
        [("b_slots[peer, step % 2, k + c_m * 4", "b_slots[peer, step % 2, k + 4 - c_m * 0")],
        KINDS.RACE,
        "'b_slots'",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str) -> None:
    changes, kind, words = FAULTS[name]
    findings = Findings()
    product(cluster(*changes), findings)
    result = [finding for finding in findings if finding.kind is kind]
    assert result, [str(finding.fault) for finding in findings]
    assert any(words in str(finding.fault) for finding in result), [str(f.fault) for f in result]
    with pytest.raises(InterpreterFault):
        product(cluster(*changes))


def test_a_corner_of_the_other_half_gives_other_values() -> None:
    assert not product(cluster(("x = b[k + c_m * 4 +", "x = b[k + (1 - c_m) * 4 +")))


def test_global_memory_is_not_handed_over() -> None:
    """An arrival at another workgroup's mbarrier tells of the memory of workgroups only."""
    text = """
kernel k(inout y: s64[8], out z: s64[8]):
  alloc told: s64[2] cluster
  cluster for c in 2:
    subgroup for w in 1:
      mbarrier_init(&told[c], 1)
      cluster_barrier()
      if c == 0:
        y[0] = 7
        mbarrier_arrive(&told[1])
      else:
        mbarrier_wait(&told[1], 0)
        z[0] = y[0]
      cluster_barrier()
"""
    kernel = parse_kernel(text)
    verify(kernel)
    with pytest.raises(InterpreterFault, match="data race on 'y'"):
        interpret.run(kernel, {name: np.zeros(8, np.int64) for name in "yz"})


def test_work_items_of_a_cluster_are_refused() -> None:
    text = """
kernel k(out y: s64[8]):
  cluster for c in 2:
    workgroup for t in 4:
      cluster_barrier()
      y[c*4 + t] = t
"""
    with pytest.raises(UnsupportedError, match="no subgroup acts as one here"):
        interpret.run(parse_kernel(text), {"y": np.zeros(8, np.int64)})


def test_clusters_that_use_the_same_memory() -> None:
    text = """
kernel k(out y: s64[8]):
  alloc s: s64[2, 4] cluster
  grid for g in 4:
    cluster for c in 2:
      subgroup for w in 1:
        s[c, 0] = g
        y[g*2 + c] = s[c, 0]
"""
    kernel = parse_kernel(text)
    verify(kernel)
    with pytest.raises(InterpreterFault, match="data race on 's': workgroup g="):
        interpret.run(kernel, {"y": np.zeros(8, np.int64)})

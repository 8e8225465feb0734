"""What well-formed means for kernels of workgroups: loops, shared memory, calls."""

from __future__ import annotations

import pytest

from tilewright.errors import VerificationError
from tilewright.ir import parse_kernel, verify
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.stmt import LoopKind
from tilewright.ir.verify_groups import THREADS, may_nest


def check(body: str) -> None:
    lines = body.strip("\n").splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join("  " + line[margin:] for line in lines)
    verify(parse_kernel(f"kernel k(in x: s64[64], inout y: s64[64]):\n{text}\n"))


@pytest.mark.parametrize(
    "body",
    [
        """
    grid for g in 4:
      cluster for c in 2:
        base = g * 2 + c
        alloc s: s64[8] workgroup
        workgroup for w in 2:
          subgroup for b in 2:
            lane for l in 2:
              alloc r: s64[1] private
              vector for v in 4:
                s[v] = base
              barrier()
              subgroup_barrier()
              copy_async(&s[l], &x[l])
              atomic_add(&y[l], 3)
    """,
        # One work-item may have a barrier, and private memory is its own.
        """
    alloc r: s64[1] private
    grid for g in 4:
      barrier()
      r[0] = 1
    """,
        # What a kernel is before its copies are distributed.
        """
    grid for g in 4:
      alloc s: s64[8] workgroup
      for i in 8:
        s[i] = x[i]
      workgroup for w in 8:
        y[w] = s[w]
    """,
        # Subgroups that run different code.
        """
    alloc tile: s64[8] workgroup
    alloc full: s64[2] workgroup
    subgroup for w in 2:
      mbarrier_init(&full[w], 4)
      barrier()
      compute fill(i in 8) signals full[w]:
        e = x[i]
        tile[i] = e
      lane for l in 4:
        mbarrier_expect(&full[w], 16)
        mbarrier_wait(&full[w], 0)
        fence_async()
      compute drain(i in 8) joins stores:
        e = tile[i]
        y[i | i < 7] = e
      commit_stores()
      wait_stores(0)
    """,
    ],
)
def test_well_formed(body: str) -> None:
    check(body)


FAULTS = {
    "shared memory of one work-item": (
        """
    workgroup for w in 4:
      alloc s: s64[8] workgroup
      s[w] = 1
    """,
        "s is in workgroup memory, but each work-item would have its own",
        "`alloc s: s64[8] workgroup` in `workgroup for w in 4:` in kernel k",
    ),
    "private memory of all work-items": (
        """
    alloc r: s64[8] private
    workgroup for w in 4:
      r[w] = 1
    """,
        "work-items use r, which is private but allocated for all of them",
        "`r[w] = 1` in `workgroup for w in 4:` in kernel k",
    ),
    "no perfect nest": (
        """
    workgroup for a in 4:
      y[a] = 1
      workgroup for b in 4:
        y[b] = 1
    """,
        "the workgroup loop over b is part of what work-items run",
        "`workgroup for b in 4:` in `workgroup for a in 4:` in kernel k",
    ),
    "thread loop in a serial loop of work-items": (
        """
    workgroup for a in 4:
      for i in 2:
        lane for b in 4:
          y[b] = 1
    """,
        "the lane loop over b is part of what work-items run",
        "`lane for b in 4:` in `for i in 2:` in `workgroup for a in 4:` in kernel k",
    ),
    "lanes of subgroups that are more than others": (
        """
    subgroup for a in 4:
      lane for b in 4:
        y[b] = 1
      for i in 2:
        lane for c in 8:
          y[c] = 1
    """,
        "this lane loop has 4 iterations, another one of the same subgroups has 8",
        "`lane for b in 4:` in `subgroup for a in 4:` in kernel k",
    ),
    "lanes in lanes": (
        """
    subgroup for a in 4:
      lane for b in 4:
        for i in 2:
          lane for c in 4:
            y[c] = 1
    """,
        "the lane loop over c is part of what work-items run",
        "`lane for c in 4:` in `for i in 2:` in `lane for b in 4:` in `subgroup for a in 4:` "
        "in kernel k",
    ),
    "subgroup in lane": (
        """
    lane for a in 4:
      subgroup for b in 4:
        y[b] = 1
    """,
        "a subgroup loop cannot run inside a loop that is lane",
        "`subgroup for b in 4:` in `lane for a in 4:` in kernel k",
    ),
    "grid in workgroup": (
        """
    workgroup for a in 4:
      grid for b in 4:
        y[b] = 1
    """,
        "a grid loop cannot run inside a loop that is workgroup",
        "`grid for b in 4:` in `workgroup for a in 4:` in kernel k",
    ),
    "grid in cluster": (
        """
    cluster for a in 4:
      grid for b in 4:
        y[b] = 1
    """,
        "a grid loop cannot run inside a loop that is cluster",
        "`grid for b in 4:` in `cluster for a in 4:` in kernel k",
    ),
    "unknown number of work-items": (
        """
    grid for g in 4:
      lane for a in g:
        y[a] = 1
    """,
        "a lane loop's extent is `g`",
        "`lane for a in g:` in `grid for g in 4:` in kernel k",
    ),
    "barrier of a workgroup as a whole": (
        """
    grid for g in 4:
      workgroup for a in 4:
        y[a] = 1
      barrier()
    """,
        "barrier stands outside of the loops over work-items",
        "`barrier()` in `grid for g in 4:` in kernel k",
    ),
    "memory of a cluster in one of its workgroups": (
        """
    cluster for c in 2:
      alloc s: s64[2, 4] cluster
      subgroup for w in 1:
        s[c, 0] = 1
    """,
        "s is in the cluster's memory, but allocated by one of its workgroups",
        "`alloc s: s64[2, 4] cluster` in `cluster for c in 2:` in kernel k",
    ),
    "parts that are interleaved": (
        """
    alloc s: s64[2, 4] {1:4:2 0:2:1} cluster
    cluster for c in 2:
      subgroup for w in 1:
        s[c, 0] = 1
    """,
        "the parts of s do not lie one after the other",
        "`alloc s: s64[2, 4] {1:4:2 0:2:1} cluster` in kernel k",
    ),
    "memory of a cluster without one": (
        """
    alloc s: s64[2, 4] cluster
    grid for c in 2:
      subgroup for w in 1:
        s[c, 0] = 1
    """,
        "s is in the cluster's memory, but used outside of one cluster loop of constant extent",
        "`s[c, 0] = 1` in `subgroup for w in 1:` in `grid for c in 2:` in kernel k",
    ),
    "as many parts as another cluster has": (
        """
    alloc s: s64[2, 4] cluster
    cluster for c in 4:
      subgroup for w in 1:
        s[c, 0] = 1
    """,
        "s has 2 parts, but the cluster 4 workgroups",
        "`s[c, 0] = 1` in `subgroup for w in 1:` in `cluster for c in 4:` in kernel k",
    ),
    "memory of a cluster that work-items use": (
        """
    alloc s: s64[2, 4] cluster
    cluster for c in 2:
      workgroup for w in 4:
        s[c, w] = 1
    """,
        "the use of s, in the cluster's memory, stands where no subgroup acts as one",
        "`s[c, w] = 1` in `workgroup for w in 4:` in `cluster for c in 2:` in kernel k",
    ),
    "barrier of no cluster": (
        """
    grid for g in 4:
      subgroup for w in 2:
        cluster_barrier()
    """,
        "cluster_barrier stands in no cluster of a constant number of workgroups",
        "`cluster_barrier()` in `subgroup for w in 2:` in `grid for g in 4:` in kernel k",
    ),
    "barrier of a cluster that varies": (
        """
    grid for g in 2:
      cluster for c in g + 1:
        subgroup for w in 2:
          cluster_barrier()
    """,
        "cluster_barrier stands in no cluster of a constant number of workgroups",
        "`cluster_barrier()` in `subgroup for w in 2:` in `cluster for c in g + 1:` in "
        "`grid for g in 2:` in kernel k",
    ),
    "barrier of a cluster for a lane": (
        """
    cluster for c in 2:
      subgroup for w in 2:
        lane for l in 4:
          y[l] = 1
          cluster_barrier()
    """,
        "cluster_barrier stands where no subgroup acts as one",
        "`cluster_barrier()` in `lane for l in 4:` in `subgroup for w in 2:` in "
        "`cluster for c in 2:` in kernel k",
    ),
    "copy of another type": (
        """
    alloc s: f32[4]
    copy_async(&s[0], &x[0])
    """,
        "copy_async takes a destination of f32 and a source of s64",
        "`copy_async(&s[0], &x[0])` in kernel k",
    ),
    "update by another type": (
        """
    atomic_add(&y[0], 1.0)
    """,
        "atomic_add takes a place of s64 and a value of f32",
        "`atomic_add(&y[0], 1.0)` in kernel k",
    ),
}

_SHARED = """
    alloc tile: s64[8] workgroup
    alloc full: s64[2] workgroup
    alloc words: s32[2] workgroup
"""

# Of what subgroups do as one, and asynchronously: the statement, what is wrong, and where it is.
ASYNCHRONOUS_FAULTS = {
    "an mbarrier of work-items": (
        "workgroup for w in 2:\n      mbarrier_arrive(&full[0])",
        "mbarrier_arrive stands where no subgroup acts as one",
    ),
    "lanes that are part of the nest": (
        "subgroup for w in 2:\n      lane for l in 4:\n        mbarrier_wait(&full[0], 0)",
        "mbarrier_wait stands where no subgroup acts as one",
    ),
    "lanes without subgroups": (
        "lane for l in 4:\n      mbarrier_wait(&full[0], 0)",
        "mbarrier_wait stands where no subgroup acts as one",
    ),
    "a fence of nobody": ("fence_async()", "fence_async stands where no subgroup acts as one"),
    "an mbarrier of 4 bytes": (
        "subgroup for w in 2:\n      mbarrier_init(&words[0], 1)",
        "words[0] is no mbarrier",
    ),
    "an mbarrier in global memory": (
        "subgroup for w in 2:\n      mbarrier_init(&y[0], 1)",
        "y[0] is no mbarrier",
    ),
    "half an arrival": (
        "subgroup for w in 2:\n      mbarrier_init(&full[0], 0.5)",
        "the arrivals of mbarrier_init are f32",
    ),
    "a queue of lanes": (
        "subgroup for w in 2:\n      fence_async()\n      lane for l in 4:\n"
        "        wait_products(0)",
        "wait_products stands in a loop over lanes",
    ),
    "an op of nobody": (
        "compute op(i in 8) joins stores:\n      y[i] = 1",
        "the asynchronous op op stands where no subgroup acts as one",
    ),
    "an op among copies of elements": (
        "subgroup for w in 2:\n      compute op(i in 8) joins copies:\n        y[i] = 1",
        "the asynchronous op op joins copies",
    ),
    "an op of a lane": (
        "subgroup for w in 2:\n      fence_async()\n      lane for l in 4:\n"
        "        compute op(i in 8) joins stores:\n          y[i] = 1",
        "the asynchronous op op stands in a loop over lanes",
    ),
    "bytes that depend on a mask": (
        "subgroup for w in 2:\n      compute op(i in 8) signals full[0]:\n"
        "        tile[i | i < 7] = 1",
        "the asynchronous op op signals an mbarrier, but combines or masks what it writes",
    ),
    "bytes of a sum": (
        "subgroup for w in 2:\n      compute op(i in 8) signals full[0]:\n        tile[i] add= 1",
        "the asynchronous op op signals an mbarrier, but combines or masks what it writes",
    ),
    "bytes in global memory": (
        "subgroup for w in 2:\n      compute op(i in 8) signals full[0]:\n        y[i] = 1",
        "the asynchronous op op signals an mbarrier, but writes y, which is global",
    ),
    "a signal for what is no mbarrier": (
        "subgroup for w in 2:\n      compute op(i in 8) signals words[0]:\n        tile[i] = 1",
        "words[0] is no mbarrier",
    ),
}


@pytest.mark.parametrize("fault", ASYNCHRONOUS_FAULTS)
def test_what_subgroups_do_as_one(fault: str) -> None:
    body, what = ASYNCHRONOUS_FAULTS[fault]
    with pytest.raises(VerificationError) as caught:
        check(f"{_SHARED}    {body}\n")
    assert caught.value.what == what
    assert caught.value.cure


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(fault: str) -> None:
    body, what, where = FAULTS[fault]
    with pytest.raises(VerificationError) as caught:
        check(body)
    assert (caught.value.what, caught.value.where) == (what, where)
    assert caught.value.cure


def test_loops_over_work_items_nest_in_order() -> None:
    assert len(THREADS) == 3
    for outer_rank, outer in enumerate(THREADS):
        for inner_rank, inner in enumerate(THREADS):
            assert may_nest(inner, outer) == (inner_rank >= outer_rank)
        assert may_nest(LoopKind.VECTOR, outer) and not may_nest(outer, LoopKind.VECTOR)
        assert may_nest(outer, LoopKind.GRID) and may_nest(outer, LoopKind.CLUSTER)


def test_which_calls_keep_their_order() -> None:
    updates = ("add", "min", "max", "and", "or", "xor")
    unordered = {name for name, function in FUNCTIONS.items() if not function.ordered}
    assert unordered == {
        "prefetch",
        "prefetch_second",
        "copy_async",
        *(f"{kind}_{op}" for kind in ("atomic", "fetch") for op in updates),
        "fetch_exchange",
        "fetch_compare_exchange",
        "give_registers",
        "take_registers",
    }

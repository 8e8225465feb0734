"""Subgroups that run different code: what their kernels compute, and each fault of theirs."""

from __future__ import annotations

import re
import textwrap
import threading
from typing import Any

import numpy as np
import pytest

from tilewright import interpret
from tilewright.dtypes import s64
from tilewright.errors import InterpreterFault
from tilewright.interpret import FaultKind, Findings, Profile
from tilewright.ir import (
    Allocate,
    Kernel,
    Space,
    Stmt,
    View,
    buffer,
    const,
    map_kernel,
    parse_kernel,
    to_text,
    verify,
    walk_stmts,
)
from tilewright.machines import spirv
from tilewright.passes.hoist import hoist
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.queries.access import accesses, readdress
from tilewright.schedule.queries.place import Place
from tilewright.simplify import simplify_kernel

KINDS = FaultKind

# One subgroup copies tiles into STAGES slots, two multiply them; what they add up leaves by way of
# workgroup memory. Each workgroup has as many tiles as its number says.
PIPELINE = """
kernel product(in a: f32[64, 48], in b: f32[48, 32], out c: f32[64, 32]):
  grid for m_o in 2:
    alloc a_slots: f32[STAGES, 32, 8] workgroup
    alloc b_slots: f32[STAGES, 8, 32] workgroup
    alloc c_tile: f32[32, 32] workgroup
    alloc full: s64[STAGES] workgroup
    alloc empty: s64[STAGES] workgroup
    subgroup for w in 3:
      if w == 0:
        for slot in STAGES:
          mbarrier_init(&full[slot], 1)
          mbarrier_init(&empty[slot], 2)
      barrier()
      if w == 0:
        for step in 6:
          mbarrier_wait(&empty[step % STAGES], (step // STAGES + 1) % 2)
          mbarrier_expect(&full[step % STAGES], 2048)
          compute a_fill<tma_load>(m in 32, k in 8) signals full[step % STAGES]:
            x = a[m + m_o * 32, k + step * 8]
            a_slots[step % STAGES, m, k] = x
          compute b_fill<tma_load>(k in 8, n in 32) signals full[step % STAGES]:
            x = b[k + step * 8, n]
            b_slots[step % STAGES, k, n] = x
      else:
        alloc acc: f32[16, 32] private
        lane for lane in 4:
          for m in 4:
            for n in 32:
              acc[m + lane * 4, n] = 0.0
        for step in 6:
          mbarrier_wait(&full[step % STAGES], step // STAGES % 2)
          compute main<product>(m in 16, n in 32, k in 8) joins products:
            x = a_slots[step % STAGES, m + (w - 1) * 16, k]
            y = b_slots[step % STAGES, k, n]
            acc[m, n] add= x * y
          commit_products()
          wait_products(0)
          mbarrier_arrive(&empty[step % STAGES])
        lane for lane in 4:
          for m in 4:
            for n in 32:
              c_tile[m + lane * 4 + (w - 1) * 16, n] = acc[m + lane * 4, n]
        fence_async()
        subgroup_barrier()
        compute store<tma_store>(m in 16, n in 32) joins stores:
          x = c_tile[m + (w - 1) * 16, n]
          c[m + m_o * 32 + (w - 1) * 16, n] = x
        commit_stores()
        wait_stores(0)
"""


def pipeline(stages: int = 2, *changes: tuple[str, str]) -> str:
    """`PIPELINE` with parts of it replaced (by "": a line that is left out)."""
    text = PIPELINE.replace("STAGES", str(stages))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new) if new else re.sub(rf" *{re.escape(old)}\n", "", text)
    return text


def product(kernel: Kernel | str, findings: Findings | None = None) -> bool:
    """Runs such a kernel; whether what it computes is right."""
    kernel = parse_kernel(kernel) if isinstance(kernel, str) else kernel
    verify(kernel)
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((64, 48), (48, 32)))
    c = np.zeros(64 * 32, np.float32)
    interpret.run(kernel, {"a": a.ravel(), "b": b.ravel(), "c": c}, findings=findings)
    return np.array_equal(c.reshape(64, 32), a @ b)


def found(text: str) -> list[tuple[FaultKind, str, str]]:
    """The findings: kind, message, and the line of the IR; a strict run raises the first."""
    findings = Findings()
    product(text, findings)
    for finding in findings:
        assert finding.fault.why and finding.fault.cure and finding.count
    with pytest.raises(InterpreterFault) as caught:
        product(text)
    assert str(caught.value) == str(next(iter(findings)).fault)
    return [(f.kind, f.fault.what, str(f.fault.where).splitlines()[0]) for f in findings]


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_a_pipeline(stages: int) -> None:
    threads = threading.active_count()
    assert product(pipeline(stages))
    assert threading.active_count() == threads


# What is planted, and what is found first because of it.
FAULTS: dict[str, tuple[tuple[str, str], FaultKind, str]] = {
    "no wait for what is read": (
        ("mbarrier_wait(&full[step % 2], step // 2 % 2)", ""),
        KINDS.UNINITIALIZED,
        "uninitialized read of 'a_slots'",
    ),
    "one of two consumers does not wait": (
        ("mbarrier_wait(&full[step % 2], step // 2 % 2)", "if w == 2: FULL"),
        KINDS.RACE,
        "data race on 'a_slots': what subgroup 0 started writes",
    ),
    "no wait for an empty slot": (
        ("mbarrier_wait(&empty[step % 2], (step // 2 + 1) % 2)", ""),
        KINDS.MBARRIER,
        "more arrivals than the phase of 'full' takes",
    ),
    "nobody says that a slot is empty": (
        ("mbarrier_arrive(&empty[step % 2])", ""),
        KINDS.DEADLOCK,
        "deadlock: subgroup 0 waits at empty[0], whose phase 0 lacks 2 of 2 arrivals; "
        "subgroup 1 waits at full[0], whose phase 1 lacks 1 of 1 arrivals; subgroup 2 waits",
    ),
    "a slot is empty once one of two has read it": (
        ("mbarrier_init(&empty[slot], 2)", "mbarrier_init(&empty[slot], 1)"),
        KINDS.DEADLOCK,
        "deadlock: subgroup 0 waits at empty[0], whose phase 2 lacks 1 of 1 arrivals",
    ),
    "the parity of the producer": (
        ("(step // 2 + 1) % 2", "step // 2 % 2"),
        KINDS.DEADLOCK,
        "deadlock: subgroup 0 waits at empty[0]",
    ),
    "the parity of the consumers": (
        ("step // 2 % 2)", "(step // 2 + 1) % 2)"),
        KINDS.UNINITIALIZED,
        "uninitialized read of 'a_slots'",
    ),
    "bytes that nobody expects": (
        ("mbarrier_expect(&full[step % 2], 2048)", "mbarrier_arrive(&full[step % 2])"),
        KINDS.EARLY_ACCESS,
        "read of 'a_slots' at offset 0 before its copy has arrived",
    ),
    "the bytes of one copy of two": (
        ("2048", "1024"),
        KINDS.EARLY_ACCESS,
        "read of 'b_slots' at offset 0 before its copy has arrived",
    ),
    "too few bytes": (
        ("2048", "1536"),
        KINDS.MBARRIER,
        "mbarrier misused: 512 bytes more than the phase of 'full' expects",
    ),
    "too many bytes": (
        ("2048", "4096"),
        KINDS.DEADLOCK,
        "subgroup 1 waits at full[0], whose phase 0 lacks 2048 bytes",
    ),
    "no fence before the store": (
        ("fence_async()", ""),
        KINDS.MISSING_FENCE,
        "missing fence: subgroup 1 writes the element of 'c_tile' at offset 0, and what "
        "subgroup 1 started reads it",
    ),
    "the other lanes may not have written": (
        ("subgroup_barrier()", ""),
        KINDS.RACE,
        "data race on 'c_tile': another lane of subgroup 1 writes the element at offset 128",
    ),
    "mbarriers that nobody tells of": (
        ("barrier()\n      if", "if"),
        KINDS.RACE,
        "data race on 'full': subgroup 0 writes the element at offset 0 and subgroup 1 updates it",
    ),
    "no mbarrier": (
        ("mbarrier_init(&empty[slot], 2)", ""),
        KINDS.UNINITIALIZED,
        "'empty' is no mbarrier yet",
    ),
    "an mbarrier of nobody": (
        ("mbarrier_init(&empty[slot], 2)", "mbarrier_init(&empty[slot], 0)"),
        KINDS.MBARRIER,
        "a phase of no arrivals",
    ),
    "a product is not waited for": (
        ("wait_products(0)", "wait_products(1)"),
        KINDS.RACE,
        "data race on 'a_slots': what subgroup 1 started reads the element at offset 0 and what "
        "subgroup 0 started writes it",
    ),
    "a product joins no group": (
        ("commit_products()", ""),
        KINDS.RACE,
        "data race on 'a_slots': what subgroup 1 started reads",
    ),
    "a store is not waited for": (
        ("wait_stores(0)", ""),
        KINDS.LOST_COPY,
        "the copy to 'c' is never waited for",
    ),
    "a store joins no group": (
        ("commit_stores()", ""),
        KINDS.LOST_COPY,
        "the copy to 'c' is never committed, so that no wait completes it",
    ),
    "a wrong corner": (
        ("k + step * 8]\n            a_slots", "k + step * 8 + 1]\n            a_slots"),
        KINDS.OUT_OF_BOUNDS,
        "out of bounds: a[0, 48]",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str) -> None:
    (old, new), kind, message = FAULTS[name]
    if "FULL" in new:
        new = "if w == 2:\n            " + old
    kinds = found(pipeline(2, (old, new)))
    assert any(k is kind and message in what for k, what, _ in kinds), kinds
    if kind is not KINDS.RACE:
        assert kinds[0][0] is kind


def other_order(text: str) -> str:
    """The last subgroup copies: those that multiply run first."""
    text = text.replace("w == 2", "w == 1").replace("w == 0:", "w == 2:")
    return text.replace("(w - 1)", "w")


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_found_depends_on_no_order(name: str) -> None:
    """In another order other accesses come too early; but some do."""
    (old, new), _, _ = FAULTS[name]
    if "FULL" in new:
        new = "if w == 2:\n            " + old
    assert found(other_order(pipeline(2, (old, new))))


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_pipeline_in_another_order(stages: int) -> None:
    assert product(other_order(pipeline(stages)))


def test_a_corner_inside_gives_other_values() -> None:
    assert not product(pipeline(2, ("x = b[k + step * 8, n]", "x = b[k + step * 8, 31 - n]")))


def test_a_slot_that_is_used_again_while_it_is_read() -> None:
    """Nobody reads early, nobody overwrites early in this order; but another one is possible."""
    text = pipeline(2, ("mbarrier_arrive(&empty[step % 2])", ""))
    early = "          mbarrier_arrive(&empty[step % 2])\n          wait_products(0)\n"
    text = text.replace("          wait_products(0)\n", early)
    kinds = found(text)
    assert {kind for kind, _, _ in kinds} == {KINDS.RACE}
    assert "what subgroup 1 started reads the element at offset 0" in kinds[0][1]


def run(body: str, lanes: int = 4, **options: Any) -> Any:
    """What the kernel of that body leaves in `y`, which holds its element's number at first."""
    text = "kernel k(inout y: s64[64]):\n" + textwrap.indent(textwrap.dedent(body), "  ")
    kernel = parse_kernel(text.replace("LANES", str(lanes)))
    verify(kernel)
    y = np.arange(64)
    interpret.run(kernel, {"y": y}, **options)
    return y


PING_PONG = """
    alloc turn: s64[2] workgroup
    subgroup for w in 2:
      if w == 0:
        mbarrier_init(&turn[0], LANES)
        mbarrier_init(&turn[1], LANES)
      barrier()
      for step in 3:
        mbarrier_wait(&turn[w], (step + (1 - w)) % 2)
        lane for lane in LANES:
          y[lane] = y[lane] * 2 + w
          mbarrier_arrive(&turn[1 - w])
"""


@pytest.mark.parametrize("lanes", [1, 4, 32, 64])
def test_subgroups_take_turns(lanes: int) -> None:
    """The same code, but never at the same place: in lockstep, neither could go on."""
    expected = np.arange(64)
    for _ in range(3):
        for w in range(2):
            expected[:lanes] = expected[:lanes] * 2 + w
    np.testing.assert_array_equal(run(PING_PONG, lanes), expected)


def test_lanes_that_are_not_in_step_meet_between_waits() -> None:
    """One lane does what is to be done: another one may be two phases late, which an H100 was."""
    one = """
    alloc turn: s64[2] workgroup
    subgroup for w in 2:
      if w == 0:
        mbarrier_init(&turn[0], 1)
        mbarrier_init(&turn[1], 1)
      barrier()
      for step in 3:
        mbarrier_wait(&turn[w], (step + (1 - w)) % 2)
        subgroup_barrier()
        mbarrier_arrive(&turn[1 - w])
      lane for lane in LANES:
        if w == 0:
          y[lane] = 1
    """
    run(one, 64)
    late = one.replace("        subgroup_barrier()\n", "")
    run(late, 32)
    with pytest.raises(InterpreterFault, match="'turn' again, and its lanes have not met"):
        run(late, 64)


def test_lanes_that_arrive_tell_of_themselves_only() -> None:
    """An arrival of one lane orders what it did, not what the other lanes did."""
    one = PING_PONG.replace("[0], LANES", "[0], 1").replace("[1], LANES", "[1], 1")
    one = one.replace(
        "mbarrier_arrive(&turn[1 - w])", "if lane == 0:\n            mbarrier_arrive(&turn[1 - w])"
    )
    with pytest.raises(InterpreterFault, match="another lane of subgroup 0 writes the element at"):
        run(one)
    run(one, 1)


def test_lanes_hand_over_to_those_of_another_subgroup() -> None:
    """Behind a barrier of the subgroup, its one arrival tells of all its lanes."""
    body = """
    alloc box: s64[4] workgroup
    alloc full: s64[1] workgroup
    subgroup for w in 2:
      if w == 0:
        mbarrier_init(&full[0], 1)
      barrier()
      if w == 1:
        lane for lane in 4:
          box[lane] = lane + 10
        subgroup_barrier()
        mbarrier_arrive(&full[0])
      else:
        mbarrier_wait(&full[0], 0)
        lane for lane in 4:
          y[lane] = box[3 - lane]
    """
    np.testing.assert_array_equal(run(body)[:4], [13, 12, 11, 10])
    with pytest.raises(InterpreterFault, match="another lane of subgroup 1 writes the element at"):
        run(body.replace("        subgroup_barrier()\n", ""))


def test_more_lanes_than_a_phase_takes() -> None:
    with pytest.raises(InterpreterFault, match="more arrivals than the phase of 'turn' takes"):
        run(PING_PONG.replace("[1], LANES", "[1], LANES - 1"))


def test_a_phase_that_is_missed() -> None:
    """Nobody waits for the slow one: when it comes, the phase after its phase is over, too."""
    body = """
    alloc full: s64[1] workgroup
    subgroup for w in 2:
      if w == 0:
        mbarrier_init(&full[0], 1)
      barrier()
      if w == 0:
        mbarrier_arrive(&full[0])
        mbarrier_arrive(&full[0])
      else:
        mbarrier_wait(&full[0], 0)
    """
    with pytest.raises(InterpreterFault, match=r"waits at full\[0\], whose phase 2 lacks 1 of 1"):
        run(body)
    run(body.replace("mbarrier_arrive(&full[0])\n        mbarrier_a", "mbarrier_a"))


def test_a_barrier_that_one_subgroup_does_not_reach() -> None:
    body = """
    alloc full: s64[1] workgroup
    subgroup for w in 2:
      if w == 0:
        mbarrier_init(&full[0], 1)
        barrier()
    """
    with pytest.raises(InterpreterFault, match="deadlock: subgroup 0 waits at a barrier"):
        run(body)


def test_a_barrier_that_one_lane_does_not_reach() -> None:
    body = """
    subgroup for w in 2:
      fence_async()
      lane for lane in 4:
        if lane < 3:
          barrier()
    """
    with pytest.raises(InterpreterFault, match="divergent barrier"):
        run(body)


def test_barriers_order_subgroups_each_time() -> None:
    body = """
    subgroup for w in 3:
      fence_async()
      for step in 5:
        if w == step % 3:
          lane for lane in 4:
            y[lane] = y[lane] + y[lane + 4]
        barrier()
    """
    y = run(body)
    np.testing.assert_array_equal(y[:4], np.arange(4) + 5 * np.arange(4, 8))
    with pytest.raises(
        InterpreterFault, match="data race on 'y': subgroup 0 writes the element at"
    ):
        run(body.replace("  barrier()\n", ""))


def test_lanes_of_one_subgroup_race() -> None:
    body = """
    subgroup for w in 1:
      fence_async()
      lane for lane in 4:
        y[lane // 2] = lane
    """
    with pytest.raises(InterpreterFault, match="work-item 1 writes the element at offset 0"):
        run(body)


def test_workgroups_with_different_numbers_of_steps() -> None:
    """Masked workgroups wait for nothing, and nothing of theirs is waited for."""
    body = """
    grid for g in 4:
      alloc slot: s64[4] workgroup
      alloc full: s64[1] workgroup
      alloc empty: s64[1] workgroup
      subgroup for w in 2:
        if w == 0:
          mbarrier_init(&full[0], 1)
          mbarrier_init(&empty[0], 4)
        barrier()
        for step in g:
          if w == 0:
            mbarrier_wait(&empty[0], (step + 1) % 2)
            mbarrier_expect(&full[0], 32)
            compute fill<tma_load>(i in 4) signals full[0]:
              x = y[i + g * 16 + step * 4]
              slot[i] = x
          else:
            mbarrier_wait(&full[0], step % 2)
            lane for lane in 4:
              y[lane + g * 16 + 12] = y[lane + g * 16 + 12] + slot[lane]
              mbarrier_arrive(&empty[0])
    """
    y = np.arange(64).reshape(4, 4, 4)
    for g in range(4):
        y[g, 3] += y[g, :g].sum(axis=0)
    np.testing.assert_array_equal(run(body).reshape(4, 4, 4), y)


def test_element_copies_and_products_in_one_kernel() -> None:
    """What lanes copied by elements was written by them: a product of it needs a fence."""
    body = """
    alloc slot: s64[8] workgroup
    subgroup for w in 2:
      alloc acc: s64[4] private
      lane for lane in 4:
        acc[lane] = 0
        copy_async(&slot[lane + w * 4], &y[lane + w * 4])
      commit_copies()
      wait_copies(0)
      fence_async()
      barrier()
      compute main<product>(i in 4, k in 4) joins products:
        x = slot[i + (1 - w) * 4]
        acc[i] add= x
      commit_products()
      wait_products(0)
      lane for lane in 4:
        y[lane + w * 4 + 8] = acc[lane]
    """
    y = run(body)
    np.testing.assert_array_equal(y[8:16], 4 * np.array([4, 5, 6, 7, 0, 1, 2, 3]))
    with pytest.raises(InterpreterFault, match=r"missing fence: .* writes the element of 'slot'"):
        run(body.replace("      fence_async()\n", ""))
    with pytest.raises(InterpreterFault, match=r"never waited for|before its copy has arrived"):
        run(body.replace("      wait_copies(0)\n", ""))


@pytest.mark.parametrize(
    ("line", "what"), [("commit_products()", "committed, so that no wait"), ("wait_", "waited for")]
)
def test_products_that_nothing_completes(line: str, what: str) -> None:
    body = """
    subgroup for w in 2:
      alloc acc: s64[4] private
      lane for lane in 4:
        acc[lane] = 0
      compute main<product>(i in 4, k in 4) joins products:
        x = y[i]
        acc[i] add= x
      commit_products()
      wait_products(0)
    """
    np.testing.assert_array_equal(run(body), np.arange(64))
    left_out = "".join(
        splitline for splitline in body.splitlines(keepends=True) if line not in splitline
    )
    with pytest.raises(InterpreterFault, match=f"the copy to 'acc' is never {what}"):
        run(left_out)


def test_a_copy_whose_mbarrier_nobody_waits_at() -> None:
    """What signals an mbarrier is never committed, and need not be."""
    body = """
    alloc slot: s64[4] workgroup
    alloc full: s64[1] workgroup
    subgroup for w in 1:
      lane for lane in 4:
        if lane == 0:
          mbarrier_init(&full[0], 1)
      subgroup_barrier()
      mbarrier_expect(&full[0], 32)
      compute fill<tma_load>(i in 4) signals full[0]:
        x = y[i]
        slot[i] = x
      mbarrier_wait(&full[0], 0)
    """
    run(body)
    with pytest.raises(InterpreterFault, match="the copy to 'slot' is never waited for"):
        run(body.replace("      mbarrier_wait(&full[0], 0)\n", ""))


REGISTERS = """
    subgroup for w in 2:
      alloc weights: s64[4] private
      alloc acc: s64[4] private
      lane for lane in 4:
        acc[lane] = 0
      for step in 3:
        lane for lane in 4:
          weights[lane] = y[lane + step * 4]
        compute main<product>(i in 4, k in 4) joins products:
          x = weights[i]
          acc[i] add= x
        commit_products()
        wait_products(0)
      lane for lane in 4:
        y[lane + w * 4 + 16] = acc[lane]
    """


def test_operands_in_registers_stay_until_they_are_read() -> None:
    np.testing.assert_array_equal(run(REGISTERS)[16:24], [48, 60, 72, 84] * 2)
    late = REGISTERS.replace("        wait_products(0)\n", "")
    late = late.replace(
        "      lane for lane in 4:\n        y", "      wait_products(0)\n      LANES_y"
    )
    late = late.replace("LANES_y", "lane for lane in 4:\n        y")
    message = "write of 'weights' at offset 0 while an asynchronous op reads it"
    with pytest.raises(InterpreterFault, match=message):
        run(late)
    # Without the writes in between, products may be under way at the same time.
    op = "        compute main<product>(i in 4, k in 4) joins products:\n"
    op += "          x = weights[i]\n          acc[i] add= x\n"
    twice = late.replace("for step in 3:", "for step in 1:").replace(op, op + op)
    np.testing.assert_array_equal(run(twice)[16:20], [0, 8, 16, 24])


def test_a_fault_inside_ends_the_others() -> None:
    threads = threading.active_count()
    body = PING_PONG.replace("y[lane] * 2 + w", "y[lane + step * 40]")
    with pytest.raises(InterpreterFault, match=re.escape("out of bounds: y[80]")):
        run(body)
    assert threading.active_count() == threads


def test_a_profile_counts_accesses_of_lanes() -> None:
    hierarchy = spirv.machine("gpu").hierarchy
    profile = Profile(hierarchy)
    run(PING_PONG, hierarchy.subgroup, profile=profile)
    assert {(line.verb, line.accesses) for line in profile.lines} == {("load", 6), ("store", 6)}


def test_passes_and_transforms_keep_a_pipeline() -> None:
    """What is simplified, named, moved or put elsewhere is what an op signals, too."""
    kernel = parse_kernel(pipeline(2, ("signals full[step % 2]", "signals full[(step + 4) % 2]")))
    simple = simplify_kernel(kernel)
    assert to_text(simple) == to_text(simplify_kernel(parse_kernel(pipeline(2))))
    assert product(hoist(simple))
    unmatched = parse_kernel(to_text(simple).replace("<tma_load>", ""))
    assert lower_computes(unmatched) is unmatched

    full = next(s.buffer for s in walk_stmts(simple.body) if allocates(s, "full"))
    pair = buffer("pair", s64, (2, 2), space=Space.WORKGROUP)
    moved = map_kernel(
        simple,
        lambda body: readdress(body, full, lambda v: View(pair, (const(1), *v.index), v.mask)),
    )
    assert "signals pair[1, step % 2]:" in to_text(moved)
    assert product(moved)
    assert {a.view.buffer.name for a in accesses(moved.body, Place()) if a.writes} >= {"pair"}


def allocates(stmt: Stmt, name: str) -> bool:
    return isinstance(stmt, Allocate) and stmt.buffer.name == name


def test_the_text_of_a_pipeline(golden) -> None:
    kernel = parse_kernel(pipeline(2))
    golden("ir_specialized", to_text(kernel))
    assert to_text(parse_kernel(to_text(kernel))) == to_text(kernel)

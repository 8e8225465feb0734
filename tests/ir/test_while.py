"""`While`: its text, what the verifier refuses, what it does in the interpreter and on targets."""

from __future__ import annotations

import random
import signal
import time

import numpy as np
import pytest

import tilewright as tw
from random_ir import random_kernel
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir import LoopKind, While, difference, parse_kernel, to_text, verify, walk_stmts
from tilewright.passes.pipeline import run as run_passes
from tilewright.schedule.loops.kinds import set_kind
from tilewright.simplify import simplify_kernel

NEWTON = """\
kernel roots(in a: f32[8], out root: f32[8]):
  for i in 8:
    alloc x: f32[1] private
    x[0] = max(a[i], 1.0)
    while a[i] * 1e-06 < x[0] * x[0] - a[i]:
      x[0] = (x[0] + a[i] / x[0]) * 0.5
    root[i] = x[0]"""


def parsed(text: str):
    kernel = parse_kernel(text, file="test.tw")
    verify(kernel)
    assert to_text(kernel) == text.rstrip("\n")
    assert difference(kernel, parse_kernel(to_text(kernel))) is None
    return kernel


def newton(text: str = NEWTON) -> None:
    kernel = parsed(text)
    squares = np.array([0.25, 1, 2, 3, 100, 1e6, 7, 49], np.float32)
    results = np.zeros(8, np.float32)
    run(kernel, {"a": squares, "root": results})
    np.testing.assert_allclose(results, np.sqrt(squares), rtol=2e-6)


def test_newton_by_serial_loops() -> None:
    newton()


@pytest.mark.parametrize("kind", ["parallel", "grid", "unrolled"])
def test_lanes_leave_at_different_times(kind: str) -> None:
    newton(NEWTON.replace("for i", f"{kind} for i"))


def test_work_items_leave_at_different_times() -> None:
    body = NEWTON.replace("for i in 8:", "grid for g in 2:\n    workgroup for t in 4:")
    head, *lines = body.split("\n")[:3], *body.split("\n")[3:]
    text = "\n".join([*head, "      i = g * 4 + t", *("  " + line for line in lines)])
    newton(text)


def test_a_loop_that_does_not_run() -> None:
    kernel = parsed("kernel k(inout a: s32[4]):\n  while a[0] < s32(0):\n    a[1] = s32(5)")
    a = np.array([0, 1, 2, 3], np.int32)
    run(kernel, {"a": a})
    assert a.tolist() == [0, 1, 2, 3]


def test_what_the_condition_says_of_memory_ends_with_a_store() -> None:
    """Were it a fact inside, the `if` behind the store would be decided by it."""
    text = (
        "kernel k(inout a: s32[2]):\n"
        "  while a[0] < s32(3):\n"
        "    a[0] = a[0] + s32(1)\n"
        "    if a[0] < s32(3):\n"
        "      a[1] = a[1] + s32(1)"
    )
    kernel = parsed(text)
    assert to_text(simplify_kernel(kernel)) == text
    for stage in (kernel, simplify_kernel(kernel), run_passes(kernel, check=True)):
        a = np.zeros(2, np.int32)
        run(stage, {"a": a})
        assert a.tolist() == [3, 2]


def test_what_the_condition_says_of_variables_is_a_fact_inside() -> None:
    text = (
        "kernel k(inout a: s32[8]):\n"
        "  for i in 8:\n"
        "    while i < 4 and a[i] < s32(2):\n"
        "      if i < 5:\n"
        "        a[i] = a[i] + s32(1)"
    )
    assert "if" not in to_text(simplify_kernel(parsed(text)))


def test_simplify_takes_out_what_never_runs_and_keeps_what_may_not_end() -> None:
    kernel = parsed(
        "kernel k(inout a: s32[8]):\n"
        "  for i in 8:\n"
        "    while 8 < i:\n"
        "      a[i] = s32(0)\n"
        "  while a[0] == a[1]:\n"
        "    pass"
    )
    left = [s for s in walk_stmts(simplify_kernel(kernel).body) if isinstance(s, While)]
    assert len(left) == 1


def test_hoisting_names_what_a_while_does_not_change() -> None:
    kernel = parsed(
        "kernel k(in n: s64[1], in w: f32[4], inout a: f32[64]):\n"
        "  for i in 8:\n"
        "    while a[i] < 100.0:\n"
        "      a[i * i % 7] = a[i * i % 7] + w[2] + a[63]"
    )
    hoisted = run_passes(kernel, check=True)
    assert to_text(hoisted.body) == (
        "for i in 8:\n"
        "  t = i * i % 7\n"
        "  t2: f32 = w[2]\n"
        "  while a[i] < 100.0:\n"
        "    a[t] = a[t] + t2 + a[63]"
    )


REFUSALS = {
    "condition of numbers": (
        "while 1:\n    a[0] = 1.0",
        "a condition must be bool, this is s64",
    ),
    "extent of a structured op by lane": (
        "vector for v in 8:\n    compute c(k in v + 1):\n      a[v] add= 1.0",
        "the extent of k, `v + 1`, differs by lane",
    ),
    "barrier in a divergent while": (
        "grid for g in 2:\n    workgroup for t in 4:\n      while a[t] < 1.0:\n"
        "        a[t] = a[t] + 1.0\n        barrier()",
        "barrier stands in a loop whose iterations differ by work-item: `while a[t] < 1.0:`",
    ),
    "barrier in a while of private memory": (
        "workgroup for t in 4:\n    alloc x: f32[1] private\n    x[0] = a[t]\n"
        "    while x[0] < 1.0:\n      x[0] = 1.0\n      barrier()",
        "barrier stands in a loop whose iterations differ by work-item",
    ),
    "barrier in a divergent for": (
        "workgroup for t in 4:\n    for k in t:\n      barrier()",
        "barrier stands in a loop whose iterations differ by work-item: `for k in t:`",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusals(what: str) -> None:
    body, said = REFUSALS[what]
    with pytest.raises(Exception) as caught:
        verify(parse_kernel(f"kernel k(inout a: f32[8]):\n  {body}", file="test.tw"))
    assert said in str(caught.value)


def test_a_barrier_in_a_while_of_the_workgroup() -> None:
    parsed(
        "kernel k(inout a: f32[8]):\n"
        "  grid for g in 2:\n"
        "    alloc rest: s64[1] workgroup\n"
        "    workgroup for t in 4:\n"
        "      if t == 0:\n"
        "        rest[0] = 3\n"
        "      barrier()\n"
        "      while 0 < rest[0]:\n"
        "        a[g * 4 + t] = a[g * 4 + t] + 1.0\n"
        "        barrier()\n"
        "        if t == 0:\n"
        "          rest[0] = rest[0] - 1\n"
        "        barrier()"
    )


def test_a_while_between_lanes_is_the_same_for_all() -> None:
    parsed(
        "kernel k(inout a: f32[8], inout n: s64[1]):\n"
        "  while 0 < n[0]:\n"
        "    vector for v in 8:\n"
        "      a[v] = a[v] + 1.0\n"
        "    n[0] = n[0] - 1"
    )


def test_random_kernels_have_loops_that_end() -> None:
    seen = 0
    for seed in range(60):
        kernel = random_kernel(random.Random(seed), 16)
        verify(kernel)
        seen += any(isinstance(stmt, While) for stmt in walk_stmts(kernel.body))
    assert seen > 10


# Lanes may leave a loop at different times. Each has the interpreter's results.
BY_LANE = {
    "condition": "while a[v] < 9.0:\n      a[v] = a[v] * 1.5 + 1.0",
    "condition through a let": "x = v * 2\n    while a[v] < f32(x):\n      a[v] = a[v] + 1.0",
    "condition through memory of its own": (
        "alloc x: f32[8] private\n    x[v] = a[v]\n"
        "    while x[v] < 5.0:\n      x[v] = x[v] + 1.0\n    a[v] = x[v]"
    ),
    "reached by some lanes": (
        "if a[v] < 4.0:\n      while a[v] < 7.0:\n        for k in 2:\n          a[v] = a[v] + 1.0"
    ),
    "reached by none": "if a[v] < -4.0:\n      while b[0] < 1.0:\n        a[v] = 2.0",
    "extent": "for k in v + 1:\n      a[v] = a[v] * 2.0 + b[k]",
    "extent from memory": "for k in s64(a[v]):\n      a[v] = a[v] + b[v]",
    "an if inside": "for k in s64(a[v]):\n      if b[k] < a[v]:\n        a[v] = a[v] + b[v]",
    "a loop inside": "for k in v:\n      for j in s64(b[k]):\n        a[v] = a[v] + b[j]",
    "few lanes": "if v < 5:\n      for k in v % 3:\n        a[v] = a[v] * 2.0",
}


@pytest.mark.parametrize("what", BY_LANE)
@pytest.mark.parametrize("lanes", [8, 7])
def test_lanes_leave_loops_at_different_times(what: str, lanes: int) -> None:
    text = f"vector for v in {lanes}:\n    {BY_LANE[what]}"
    kernel = parsed(f"kernel k(inout a: f32[8], in b: f32[8]):\n  {text}")
    a = np.array([3.25, 0.5, 7, 2, 4, 0, 5, 1], np.float32)
    b = np.array([1, 4, 2, 0, 3, 5, 2, 6], np.float32)
    wanted = {"a": a.copy(), "b": b}
    run(kernel, wanted)
    result = tw.compile(kernel, target="x86")(a=a, b=b)
    np.testing.assert_array_equal(result, wanted["a"])


def test_transforms_leave_no_extents_that_differ_by_lane() -> None:
    kernel = parsed(
        "kernel k(inout a: f32[8, 8]):\n  for i in 8:\n    for j in i + 1:\n      a[i, j] = 1.0"
    )
    with pytest.raises(ScheduleError, match=r"set_kind: the extent `i \+ 1` differs by lane"):
        set_kind(kernel, "i", LoopKind.VECTOR)


ENDLESS = """\
kernel k(inout a: s64[4]):
  while a[0] == 0:
    a[1] = a[1] + 1
"""
# Subgroups that run different code are threads of Python's.
ENDLESS_SUBGROUP = """\
kernel k(inout a: s64[4]):
  grid for g in 1:
    alloc full: s64[1] workgroup
    subgroup for w in 2:
      if w == 0:
        mbarrier_init(&full[0], 1)
      barrier()
      if w == 0:
        while a[0] == 0:
          a[1] = a[1] + 1
      else:
        mbarrier_wait(&full[0], 0)
"""


@pytest.mark.parametrize("text", [ENDLESS, ENDLESS_SUBGROUP])
def test_an_endless_loop_can_be_interrupted(text: str) -> None:
    kernel = parse_kernel(text)
    verify(kernel)
    a = np.zeros(4, np.int64)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(kernel, {"a": a})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert a[1] > 0
    running = a[1]
    time.sleep(0.05)
    assert a[1] == running  # nobody goes on

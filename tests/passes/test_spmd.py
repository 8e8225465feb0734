"""Kernels of work-items on their way to threads and vectors: each stage as text, and what cannot be
done."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import UnsupportedError
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, to_text, verify
from tilewright.passes.spmd import (
    access_report,
    name_values,
    predicted_width,
    select_branches,
    split_at_barriers,
    vectorize_items,
    vectorize_runs,
)
from tilewright.recipes.config import PlainConfig
from tilewright.targets.registry import find_target

HEAD = "kernel k(inout a: f32[64], inout b: s64[64], in n: s64[64]):\n"
NEST = "  grid for g in 4:\n    alloc s: f32[16] workgroup\n    workgroup for t in 16:\n"


# The number of the first lane.
FIRST = "s64(s32(g * 16 + t_o * 8))"


def kernel(*lines: str, shared: str = "") -> Kernel:
    """A kernel of 4 groups of 16 work-items that do ``lines``, with ``shared`` memory."""
    nest = NEST.replace("f32[16] workgroup", f"f32[16] workgroup\n    alloc {shared} workgroup")
    text = HEAD + (nest if shared else NEST) + "".join(f"      {line}\n" for line in lines)
    result = parse_kernel(text, file="k.tw")
    verify(result)
    return result


def shown(made: Kernel) -> list[str]:
    """The lines inside of the grid, behind the workgroup's memory."""
    again = parse_kernel(to_text(made))
    verify(again)
    lines = to_text(made).splitlines()
    start = next(i for i, line in enumerate(lines) if "for g in 4" in line)
    return [line[4:] for line in lines[start + 2 :]]


def same_as_interpreted(made: Kernel) -> None:
    """What x86 gives is what the interpreter gives."""
    rng = np.random.default_rng(0)
    values: dict[str, np.ndarray] = {
        "a": rng.integers(-9, 9, 64).astype(np.float32),
        "b": rng.integers(-9, 9, 64),
        "n": rng.integers(0, 5, 64),
    }
    wanted = {name: value.copy() for name, value in values.items()}
    run(made, wanted)
    for config in (PlainConfig(vector=8), PlainConfig(vector=1)):
        x86 = {name: value.copy() for name, value in values.items()}
        result = tw.compile(made, target="x86", config=config)(**x86)
        for name in ("a", "b"):
            np.testing.assert_array_equal(result[name], wanted[name])


def test_names_for_values() -> None:
    result = kernel(
        "alloc x: s64[1] private",
        "x[0] = t * 2",
        "b[g * 16 + t] = x[0] + x[0]",
        "if n[t] < 3:",
        "  x[0] = 7",
        "b[g * 16 + t] = b[g * 16 + t] + x[0]",
    )
    assert shown(name_values(result)) == [
        "workgroup for t in 16:",
        "  alloc x: s64[1] private",
        "  x_2 = t * 2",
        "  x[0] = x_2",
        "  b[g * 16 + t] = x_2 + x_2",
        "  if n[t] < 3:",
        "    x[0] = 7",
        "  b[g * 16 + t] = b[g * 16 + t] + x[0]",
    ]
    same_as_interpreted(result)


def test_what_nobody_reads_is_gone() -> None:
    result = kernel("alloc x: s64[2] private", "x[1] = t", "x[0] = 2", "b[g * 16 + t] = x[1]")
    assert shown(name_values(result)) == ["workgroup for t in 16:", "  b[g * 16 + t] = t"]


def test_what_extents_load_has_a_name() -> None:
    result = kernel("for k in n[t + 1] - n[t]:", "  b[g * 16 + t] = b[g * 16 + t] + n[n[t] + k]")
    assert shown(name_values(result)) == [
        "workgroup for t in 16:",
        "  n_2 = n[t + 1]",
        "  n_3 = n[t]",
        "  for k in n_2 - n_3:",
        "    b[g * 16 + t] = b[g * 16 + t] + n[n_3 + k]",
    ]
    same_as_interpreted(result)


def test_pieces_between_barriers() -> None:
    result = kernel(
        "i = g * 16 + t",
        "x: f32 = a[i]",
        "s[t] = x",
        "for k in g + 1:",
        "  barrier()",
        "  y: f32 = s[15 - t]",
        "  barrier()",
        "  s[t] = y * x",
        "barrier()",
        "a[i] = s[15 - t]",
    )
    assert shown(split_at_barriers(result)) == [
        "alloc x_all: f32[16] workgroup",
        "alloc y_all: f32[16] workgroup",
        "workgroup for t in 16:",
        "  i = g * 16 + t",
        "  x: f32 = a[i]",
        "  x_all[t] = x",
        "  s[t] = x",
        "for k in g + 1:",
        "  workgroup for t in 16:",
        "    y: f32 = s[15 - t]",
        "    y_all[t] = y",
        "  workgroup for t in 16:",
        "    x: f32 = x_all[t]",
        "    y: f32 = y_all[t]",
        "    s[t] = y * x",
        "workgroup for t in 16:",
        "  i = g * 16 + t",
        "  a[i] = s[15 - t]",
    ]
    same_as_interpreted(result)


def test_what_is_the_same_for_all_is_there_once() -> None:
    result = kernel(
        "alloc k: s64[1] private",
        "m = n[g]",
        "k[0] = m + 1",
        "s[t] = 1.0",
        "barrier()",
        "a[g * 16 + t] = s[15 - t] * f32(k[0])",
        "for j in m:",
        "  barrier()",
        "  k[0] = k[0] + 1",
        "b[g * 16 + t] = k[0]",
    )
    assert shown(split_at_barriers(result)) == [
        "alloc k_all: s64[1] workgroup",
        "m = n[g]",
        "k_all[0] = m + 1",
        "workgroup for t in 16:",
        "  s[t] = 1.0",
        "workgroup for t in 16:",
        "  a[g * 16 + t] = s[15 - t] * f32(k_all[0])",
        "for j in m:",
        "  k_all[0] = k_all[0] + 1",
        "workgroup for t in 16:",
        "  b[g * 16 + t] = k_all[0]",
    ]
    same_as_interpreted(result)


def test_private_memory_across_barriers() -> None:
    result = kernel(
        "alloc x: f32[2] private",
        "x[t % 2] = a[g * 16 + t]",
        "x[(t + 1) % 2] = 3.0",
        "s[t] = 2.0",
        "barrier()",
        "a[g * 16 + t] = x[0] - s[15 - t]",
    )
    assert "  x_all[t % 2, t] = a[g * 16 + t]" in shown(split_at_barriers(result))
    same_as_interpreted(result)


def test_private_memory_of_computes_across_barriers() -> None:
    result = kernel(
        "alloc x: f32[2] private",
        "if n[t] < 3:",
        "  x[0] = 7.0",
        "else:",
        "  x[0] = a[g * 16 + t]",
        "x[1] = f32(t)",
        "barrier()",
        "compute c(i in 2):",
        "  e = x[i]",
        "  a[g * 16 + t] add= e",
    )
    split = shown(split_at_barriers(result))
    assert "alloc x_all: f32[2, 16] workgroup" in split
    same_as_interpreted(result)


def test_lanes() -> None:
    result = kernel(
        "alloc x: f32[1] private",
        "i: s32 = s32(g * 16 + t)",
        "x[0] = a[s64(i)]",
        "for k in n[s64(i)]:",
        "  x[0] = x[0] + f32(k)",
        "if s64(i) < 60:",
        "  a[s64(i)] = x[0]",
    )
    assert shown(vectorize_items(result, 8)) == [
        "for t_o in 2:",
        "  alloc x: f32[1, 8] private",
        f"  if {FIRST} + 7 < 60 and {FIRST} + 7 <= 2147483647:",
        "    vector for t_i in 8:",
        "      i: s32 = s32(g * 16 + (t_o * 8 + t_i))",
        "      x[0, t_i] = a[s64(s32(g * 16 + t_o * 8)) + t_i]",
        "      for k in n[s64(s32(g * 16 + t_o * 8)) + t_i]:",
        "        x[0, t_i] = x[0, t_i] + f32(k)",
        "      a[s64(s32(g * 16 + t_o * 8)) + t_i] = x[0, t_i]",
        "  else:",
        "    vector for t_i_2 in 8:",
        "      i_2: s32 = s32(g * 16 + (t_o * 8 + t_i_2))",
        "      x[0, t_i_2] = a[s64(s32(g * 16 + t_o * 8)) + t_i_2]",
        "      for k_2 in n[s64(s32(g * 16 + t_o * 8)) + t_i_2]:",
        "        x[0, t_i_2] = x[0, t_i_2] + f32(k_2)",
        "      if s64(i_2) < 60:",
        "        a[s64(s32(g * 16 + t_o * 8)) + t_i_2] = x[0, t_i_2]",
    ]
    same_as_interpreted(result)


def test_a_workgroup_that_is_inside_asks_once() -> None:
    result = kernel("i: s32 = s32(g * 16 + t)", "if s64(i) < 60:", "  a[s64(i)] = a[s64(i)] + 1.0")
    first, lines = "s64(s32(g * 16))", shown(vectorize_items(result, 8))
    assert lines[0] == f"if {first} + 15 < 60 and {first} + 15 <= 2147483647:"
    inside = lines[: lines.index("else:")]
    assert inside[1] == "  vector for t_i_2 in 16:"
    assert len(inside) == 4 and "if" not in "".join(inside[1:])
    same_as_interpreted(result)


def test_what_all_lanes_do_of_a_loop_that_differs() -> None:
    many = "many = n[0]"
    result = kernel(many, "for k in (many - t + 15) // 16:", "  b[k * 16 + t] = b[k * 16 + t] + 1")
    assert shown(vectorize_items(result, 16)) == [
        "vector for t_i in 16:",
        "  many = n[0]",
        "  block:",
        "    all_k = max(many // 16, 0)",
        "    for k in all_k:",
        "      b[k * 16 + t_i] = b[k * 16 + t_i] + 1",
        "    for k_2 in (many - (0 + t_i) + 15) // 16 - all_k:",
        "      b[(all_k + k_2) * 16 + t_i] = b[(all_k + k_2) * 16 + t_i] + 1",
    ]
    result = kernel("many = n[g]", "for k in t - many:", "  a[g * 16 + t] = a[g * 16 + t] + 1.0")
    assert "all_k = max(t_o * 8 - many, 0)" in str(vectorize_items(result, 8))
    same_as_interpreted(result)
    result = kernel("for k in b[t] - t:", "  b[t] = b[t] + k")
    assert "all_k" not in str(vectorize_items(result, 8))


def test_a_loop_or_a_condition_that_differs_around_a_barrier_is_refused() -> None:
    result = kernel("if n[t] < 3:", "  barrier()", "a[t] = 1.0")
    with pytest.raises(UnsupportedError) as caught:
        split_at_barriers(result)
    assert str(caught.value).startswith(
        "control around a barrier may diverge by work-item\n  at k.tw:5:7:\n"
        "        if n[t] < 3:\n        ^^^^^^^^^^^\n"
    )
    assert "cure: let it depend on what they share" in str(caught.value)
    with pytest.raises(UnsupportedError, match="control around a barrier may diverge"):
        tw.compile(result, target="x86")


@pytest.mark.parametrize("kind", ["add", "min", "max", "xor"])
def test_atomic_updates(kind: str) -> None:
    same_as_interpreted(
        kernel(
            "i = g * 16 + t",
            "alloc old: s64[1] private",
            "old[0] = 0",
            "if n[i] < 3:",
            f"  atomic_{kind}(&b[0], n[i] + t)",
            "  fetch_add(&old[0], &b[i % 1 + 1], 0)",
            "  a[i] = f32(old[0])",
        )
    )


def test_shuffles() -> None:
    text = (
        HEAD + "  grid for g in 2:\n    subgroup for w in 2:\n      lane for l in 16:\n"
        "        alloc x: f32[1] private\n        i = g * 32 + w * 16 + l\n"
        "        shuffle(&x[0], a[i], 15 - l)\n        shuffle(&x[0], x[0] + 1.0, (l + 3) % 16)\n"
        "        a[i] = x[0]\n"
    )
    result = parse_kernel(text)
    verify(result)
    same_as_interpreted(result)


EXCHANGING = (
    HEAD
    + """\
  grid for g in 2:
    subgroup for w in 2:
      lane for l in 16:
        alloc x: f32[1] private
        alloc y: f32[1] private
        i = g * 32 + w * 16 + l
        v: f32 = a[i]
        if n[w] < 3:
          shuffle(&x[0], v, l ^ 4)
          v_2: f32 = v + x[0]
          shuffle(&y[0], v_2, LANE)
          a[i] = v_2 + y[0]
"""
)


def test_shuffles_are_those_of_vectors() -> None:
    """In orders that are known, nothing goes through memory; and control is each subgroup's own."""
    result = parse_kernel(EXCHANGING.replace("LANE", "15 - l"))
    split = to_text(split_at_barriers(result))
    verify(parse_kernel(split))
    assert "alloc shuffle: f32[16] private" in split and "barrier" not in split
    same_as_interpreted(result)
    assembly = tw.compile(result, target="x86:avx2", threads=1).source("asm")
    body = assembly[assembly.index("phase0.range:") :]
    body = body[: body.index("retq")]
    assert len(re.findall(r"\bv(perm|shuf)\w+", body)) >= 4
    assert not re.search(r"%[xy]mm\d+, -?\d*\(%r[sb]p\)|vinsert|vextract|vmovss", body), body


def test_shuffles_in_any_order() -> None:
    same_as_interpreted(parse_kernel(EXCHANGING.replace("LANE", "(b[i] + 16) % 16")))


def test_neighbours_are_consecutive() -> None:
    """Also in a type that wraps, and by names: whole vectors, no gathers."""
    result = kernel(
        "i: s32 = s32(g * 16 + t)",
        "j: s32 = i * s32(1) + s32(3) - s32(3)",
        "a[s64(j)] = a[s64(j)] + 1.0",
    )
    assembly = tw.compile(result, target="x86:avx2", threads=1).source("asm")
    assert "vaddps" in assembly and "vinsertps" not in assembly


def test_the_report_says_how_lanes_access_memory() -> None:
    result = kernel(
        "i = g * 16 + t",
        "x: f32 = a[n[g]] + a[i]",
        "if b[i] < 3:",
        "  s[(t * 5) % 16] = x",
        "  b[2 * t] = n[b[i]]",
        "  atomic_add(&b[i], 1)",
    )
    assert access_report(vectorize_items(result, 8)) == [
        "uniform: a, n",
        "consecutive: a, b",
        "consecutive, masked: b",
        "evenly spaced, masked: b",
        "gathered, masked: n",
        "scattered, masked: s",
        "one by one, masked: b",
    ]


@pytest.mark.parametrize(
    ("lines", "width"),
    [
        (["a[g * 16 + t] = a[g * 16 + t] + 1.0"], 8),
        (["if a[g * 16 + t] < 1.0:", "  a[g * 16 + t] = exp(a[g * 16 + t])"], 8),
        (["b[g * 16 + t] = n[n[g * 16 + t]] + n[b[g * 16 + t]]"], 1),
        (["for k in n[g * 16 + t]:", "  b[g * 16 + t] = n[b[g * 16 + t]]"], 1),
        (["old: s64 = n[g * 16 + t]", "atomic_add(&b[old], 1)"], 1),
        (["b[g * 16 + t] = b[g * 16 + t] % n[g]"], 1),
    ],
    ids=["neighbours", "numbers under masks", "gathers", "in a loop", "updates", "quotients"],
)
def test_how_wide_vectors_are(lines: list[str], width: int) -> None:
    """What lanes would do one by one, work-items do one after the other."""
    for target in ("x86:avx2", "x86:avx512"):
        assert predicted_width(kernel(*lines), find_target(target).machine, 8) == width


@pytest.mark.parametrize(
    "lines",
    [
        ["i = g * 16 + t", "inside: bool = 3 < i and i < 20", "if inside:", "  a[i] = 1.0"],
        ["i = g * 16 + t", "if i <= 3 or 20 <= i:", "  pass", "else:", "  a[i] = 1.0"],
    ],
    ids=["by name", "who is outside returns"],
)
def test_conditions_of_whole_vectors(lines: list[str]) -> None:
    result = kernel(*lines)
    text = str(vectorize_items(result, 8))
    whole, masked = text.split("else:", 1)
    whole = whole[whole.index("vector for") :]
    assert "a[" in whole and "if " not in whole
    assert "if " in masked
    same_as_interpreted(result)


def test_all_lanes_store_to_one_place() -> None:
    result = parse_kernel(
        HEAD + NEST.replace("g in 4", "g in 1").replace("t in 16", "t in 8") + "      a[3] = 2.0\n"
    )
    results = tw.compile(result, target="x86")(
        a=np.zeros(64, np.float32), b=np.zeros(64, np.int64), n=np.zeros(64, np.int64)
    )
    assert results["a"][3] == 2


def branching(*lines: str) -> Kernel:
    """A kernel with ``lines`` where ``x`` and ``y`` may be anything."""
    return kernel(
        *("alloc x: s64[1] private", "alloc y: s64[1] private", "alloc stop: bool[1] private"),
        *("x[0] = b[g * 16 + t]", "y[0] = n[t]", "stop[0] = False"),
        *lines,
        "b[g * 16 + t] = x[0] + y[0]",
    )


def test_small_branches_are_selections() -> None:
    result = branching(
        *("if x[0] % 2 == 0:", "  x[0] = x[0] // 2", "  y[0] = x[0]", "else:", "  x[0] = 3 * x[0]"),
    )
    assert shown(select_branches(result))[7:-1] == [
        "  block:",
        "    x_now = x[0]",
        "    y_now = y[0]",
        "    taken: bool = x[0] % 2 == 0",
        "    x_2 = select(taken, x_now // 2, 3 * x_now)",
        "    y_2 = select(taken, x_now // 2, y_now)",
        "    x[0] = x_2",
        "    y[0] = y_2",
    ]
    same_as_interpreted(result)


def test_branches_inside_of_branches_are_selections() -> None:
    result = branching("if x[0] < 3:", "  if y[0] < 3:", "    x[0] = y[0]")
    assert "if" not in str(select_branches(result)).split()
    same_as_interpreted(result)


@pytest.mark.parametrize(
    "lines",
    [
        ["if x[0] < 3:", "  x[0] = n[x[0] + 9]"],
        ["if x[0] != 0:", "  x[0] = 9 // x[0]"],
        ["if x[0] < 3:", "  b[g * 16 + t] = 1"],
        ["if x[0] < 3:", "  for k in y[0]:", "    x[0] = k"],
        ["if x[0] < 3:", "  x[0] = (x[0] + 1) * (x[0] + 2) * (x[0] + 3)"],
        [
            "while not stop[0]:",
            "  if x[0] < 9:",
            "    x[0] = x[0] + 1",
            "  else:",
            "    stop[0] = True",
        ],
        ["if g * 16 + t < 40:", "  x[0] = 1"],
        ["alloc z: s64[1] private", "if x[0] < 3:", "  z[0] = 1"],
    ],
    ids=[
        *("loads", "divisions", "stores", "loops", "much", "leaving", "ends of ranges"),
        "what has no value yet",
    ],
)
def test_other_branches_stay(lines: list[str]) -> None:
    result = branching(*lines)
    assert select_branches(result) is result


RUN = HEAD + NEST.replace("16", "1") + "      for j in n[g] - 1:\n"


def run_of(*lines: str) -> Kernel:
    """A kernel whose work-items do ``lines`` for one j after the other."""
    result = parse_kernel(RUN + "".join(f"        {line}\n" for line in lines))
    return vectorize_items(result, 1)


def test_runs_are_vectors() -> None:
    result = run_of("b[g + j] = 3 * n[j] - n[g]")
    assert shown(vectorize_runs(result, 16)) == [
        "for t in 1:",
        "  j_count = max(n[g] - 1, 0)",
        "  for j_o in j_count // 8:",
        "    vector for j_i in 8:",
        "      b[g + j_o * 8 + j_i] = 3 * n[j_o * 8 + j_i] - n[g]",
        "  for j_o_2 in j_count % 8 // 2:",
        "    vector for j_i_2 in 2:",
        "      b[g + (j_count // 8 * 8 + j_o_2 * 2) + j_i_2] = "
        "3 * n[j_count // 8 * 8 + j_o_2 * 2 + j_i_2] - n[g]",
        "  if 0 < j_count % 2:",
        "    vector for j_i_3 in 2:",
        "      if j_count // 2 * 2 + j_i_3 < j_count:",
        "        b[g + j_count // 2 * 2 + j_i_3] = 3 * n[j_count // 2 * 2 + j_i_3] - n[g]",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["b[j + 1] = b[j]"],
        ["b[j] = b[n[j]]"],
        ["b[2 * j] = n[j]"],
        ["b[g] = n[j]"],
        ["b[j] = n[g + n[j]]"],
        ["if n[j] < 3:", "  b[j] = 1"],
        ["for k in 2:", "  b[j] = k"],
    ],
    ids=["next", "places", "apart", "one place", "gathers", "conditions", "loops"],
)
def test_other_loops_stay(lines: list[str]) -> None:
    result = run_of(*lines)
    assert vectorize_runs(result, 16) is result

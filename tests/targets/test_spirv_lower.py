"""Kernels to LLVM IR for SPIR-V: launches, workgroup memory, masks, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from device_kernels import TURN
from tilewright.errors import CompilationError, UnsupportedError
from tilewright.ir.expr import var
from tilewright.ir.parser import parse_kernel
from tilewright.machines import spirv
from tilewright.runtime.steps import ForStep
from tilewright.targets.llvm.module import Launch, Module
from tilewright.targets.spirv.lower import lower_launches

MACHINE = spirv.machine("cpu")

HISTOGRAM = """kernel histogram(
    in src: s32[64],
    inout count: s32[8],
    inout total: f32[1],
):
  grid for g in 4:
    lane for i in 16:
      prefetch(&src[g * 16 + i])
      atomic_add(&count[s64(src[g * 16 + i]) % 8], s32(1))
      subgroup_barrier()
      atomic_add(&total[0], f32(src[g * 16 + i]))
"""

MASKS = """kernel masks(
    in src: bf16[13],
    out dst: bf16[26],
):
  vector for i in 13:
    if src[i] < bf16(1.0):
      dst[2 * i] = src[i]
"""


def lowered(text: str) -> Module:
    return lower_launches(parse_kernel(text), MACHINE)


def body(*lines: str, params: str = "inout x: f32[64]") -> str:
    """A kernel of the lines, on ``x``."""
    return "\n".join([f"kernel k({params}):", *("  " + line for line in lines), ""])


@pytest.mark.parametrize(
    ("name", "text"), [("turn", TURN), ("histogram", HISTOGRAM), ("masks", MASKS)]
)
def test_the_text(name: str, text: str, golden: Callable[[str, str], None]) -> None:
    golden(f"spirv_{name}", lowered(text).text)


def test_a_launch_has_groups_items_and_shared_memory() -> None:
    module = lowered(TURN)
    assert module.launches == (Launch("turn_0", groups=12, items=256, shared=1024),)
    assert module.workspaces == ()
    assert "!reqd_work_group_size !{i32 256, i32 1, i32 1}" in module.text


def test_the_top_of_a_kernel_is_launches_and_workspaces() -> None:
    module = lowered(
        body(
            "alloc a: f32[32]",
            "grid for g in 32:",
            "  a[g] = x[g]",
            "x[0] = 1.0",
            "x[1] = 2.0",
            "alloc b: f64[4] private",
            "b[0] = f64(x[0])",
            "lane for l in 8:",
            "  x[l] = a[l] + f32(b[0])",
            "grid for g in 0:",
            "  x[g] = 0.0",
        )
    )
    assert module.launches == (
        Launch("k_0", 32, 1, 0),
        Launch("k_1", 1, 1, 0),
        Launch("k_2", 1, 8, 0),
    )
    assert module.workspaces == (128, 32)
    pointer = r"ptr addrspace\(1\) noalias %a"
    parameters = re.findall(rf"@k_\d\(({pointer}0), ({pointer}1), ({pointer}2)\)", module.text)
    assert len(parameters) == 3


def test_a_workgroup_alone_beside_other_statements() -> None:
    module = lowered(
        body(
            "block:",
            "  alloc own: f32[16] workgroup",
            "  workgroup for i in 16:",
            "    own[i] = x[i]",
            "    barrier()",
            "    x[i] = own[15 - i]",
            "x[16] = 1.0",
        )
    )
    assert module.launches == (Launch("k_0", 1, 16, 64), Launch("k_1", 1, 1, 0))


def test_loops_around_grid_loops_are_the_hosts() -> None:
    module = lowered(body("for i in 4:", "  grid for g in 16:", "    x[g + 16 * i] = 0.0"))
    assert module.launches == (Launch("k_0", 16, 1, 0, values=("i",)),)
    assert module.steps == (ForStep(var("i"), "4", (0,)),)
    assert "noalias %a0, i64 %h0)" in module.text


def test_grid_loops_inside_of_other_launches_are_serial() -> None:
    lines = ("parallel for i in 4:", "  x[i] = 1.0", "  grid for g in 16:", "    x[g] = 0.0")
    module = lowered(body("grid for h in 2:", *("  " + line for line in lines)))
    assert module.launches == (Launch("k_0", 2, 1, 0),)
    assert module.text.count(" = phi i32 [0, ") == 2


def test_unrolled_iterations_share_workgroup_memory() -> None:
    """That of a workgroup of one work-item, which is on its stack."""
    module = lowered(
        body(
            "grid for g in 2:",
            "  unrolled for u in 4:",
            "    alloc s: f32[16] workgroup",
            "    for i in 16:",
            "      s[i] = x[i]",
            "    x[u] = s[u]",
        )
    )
    assert module.launches == (Launch("k_0", 2, 1, 0),)
    assert module.text.count(" = alloca [16 x float]") == 1
    assert "addrspace(3)" not in module.text


def test_masks_that_are_the_same_in_all_lanes_are_one_branch() -> None:
    """Without masked stores, each lane that may be off is a branch of its own."""
    loops = ("for g in 8:", "  vector for i in 4:")
    for condition, branches in (
        ("g < 5", 1),
        ("g < 5 and i < 3", 1),
        ("i < 3", 0),
        ("g < 5 and i < g", 5),
    ):
        lines = (*loops, f"    if {condition}:", "      x[g * 8 + i] = 1.0")
        text = lowered(body(*lines)).text
        # The loop has a branch, too.
        assert text.count("br i1") == branches + 1, condition


def test_the_only_lane_that_is_left_stores() -> None:
    lines = ("for g in 8:", "  vector for i in 4:", "    if g < 5 and i < 1:", "      x[g] = 1.0")
    assert lowered(body(*lines)).text.count("store float") == 1


@pytest.mark.parametrize("text", [TURN, HISTOGRAM, MASKS])
def test_nothing_of_x86_is_in_the_text(text: str) -> None:
    module = lowered(text).text
    for absent in ("bfloat", "llvm.masked", "llvm.prefetch", "@zeros", "__extendhfsf2"):
        assert absent not in module


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ("grid for g in 2:", "  cluster for c in 2:", "    x[c] = 0.0"),
            "this target has no cluster loops",
        ),
        (
            ("grid for g in 2:", "  lane for l in 8:", "    copy_async(&x[0], x[0])"),
            "this target has no function 'copy_async'",
        ),
        (
            ("grid for g in 2:", "  for i in 2:", "    lane for l in 8:", "      x[l] = 0.0"),
            "the lane loop over 'l' is inside the body of one work-item",
        ),
        (
            ("grid for g in 2:", "  x[g] = 0.0", "  lane for l in 8:", "    x[l] = 0.0"),
            "statements before the thread loop over 'l' would run once per work-item",
        ),
        (
            (
                "grid for g in 2:",
                "  alloc p: f32[8] private",
                "  lane for l in 8:",
                "    p[l] = x[l]",
            ),
            "'p' is allocated around the thread loop over 'l'",
        ),
        (
            (
                "grid for g in 2:",
                "  lane for l in 8:",
                "    alloc s: f32[8] workgroup",
                "    s[l] = x[l]",
            ),
            "the workgroup memory 's' is allocated inside the thread loop over 'l'",
        ),
        (
            ("n = s64(x[0])", "grid for g in 2:", "  lane for l in 4 * n:", "    x[l] = 0.0"),
            "the lane loop over 'l' has an extent that is not constant",
        ),
        (
            ("grid for g in 2:", "  vector for l in 32:", "    x[l] = 0.0"),
            "vectors of this target have at most 16",
        ),
        (
            ("alloc h: s16[1]", "atomic_add(&h[0], s16(1))"),
            "this target has no atomic_add of s16",
        ),
        (
            ("grid for g in 2:", "  alloc p: f32[1] private", "  atomic_add(&p[0], 1.0)"),
            "atomic_add to 'p', which no other work-item sees",
        ),
    ],
)
def test_what_cannot_be_lowered(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises((CompilationError, UnsupportedError)) as raised:
        lowered(body(*lines))
    assert message in str(raised.value)


def test_a_workgroup_beyond_the_machine() -> None:
    with pytest.raises(CompilationError) as raised:
        lowered(body("grid for g in 2:", "  lane for l in 8192:", "    x[l % 64] = 0.0"))
    assert str(raised.value) == (
        "a workgroup has 8192 work-items\n"
        "  where: k_0\n"
        "  why: spirv-cpu has at most 4096\n"
        "  cure: choose smaller thread loops"
    )
    small = replace(MACHINE, hierarchy=replace(MACHINE.hierarchy, shared=1000))
    with pytest.raises(CompilationError) as raised:
        lower_launches(parse_kernel(TURN), small)
    assert str(raised.value) == (
        "a workgroup shares 1024 bytes\n"
        "  at line 7, column 7:\n"
        "        alloc tile: f32[16, 16] workgroup\n"
        "        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  where: turn_0\n"
        "  why: spirv-cpu has 1000\n"
        "  cure: choose smaller tiles, or fewer of them at a time"
    )

"""What is said of the instruction that multiplies, and of better ones."""

from __future__ import annotations

import pytest

import tilewright as tw
from commands import Command


@pytest.mark.parametrize(
    ("dtype", "target", "said"),
    [
        ("u8:s8:s32", "x86:avx512_vnni", ["vpdpbusd_512 (64 products at a time)"]),
        (
            "s8:s8:s32",
            "x86:avx512_vnni",
            [
                "fma_s32x16 (16 products at a time)",
                "not vpdpbusd_512 (64 products at a time): it multiplies u8 by s8, and src has s8, "
                "weights s8",
            ],
        ),
        (
            "u8:s8:s32",
            "x86:avx2",
            [
                "fma_s32x8 (8 products at a time)",
                "not vpdpbusd_512 (64 products at a time): x86-avx2 has no avx512vnni",
            ],
        ),
        ("f32", "x86:avx2", ["fma_f32x8 (8 products at a time)"]),
        (
            "f32",
            "nvidia:sm_80",
            [
                "fma_f32x4 (4 products at a time)",
                "not mma_m16n8k8_f32_tf32 (1024 products at a time): it multiplies tf32 by tf32, "
                "and src has f32, weights f32",
            ],
        ),
    ],
)
def test_the_instruction_and_why_no_better(
    tilewright: Command, dtype: str, target: str, said: list[str]
) -> None:
    words = ("--target", target, "--dt", dtype, "mb1ic64ih14oc64kh3ph1")
    ended = tilewright("show", "conv", "--stage", "config", *words)
    start = "# instruction: "
    assert [line.removeprefix(start) for line in ended.lines if line.startswith(start)] == said
    op = tw.convolution("mb1ic64ih14oc64kh3ph1", dtype=dtype)
    assert tw.compile(op, target=target).instruction == "; ".join(said)


def test_what_multiplies_nothing_has_none() -> None:
    kernel = tw.compile(tw.softmax("8x64"), target="x86:avx2")
    assert kernel.instruction == ""


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("i, k", None),
        ("i, k % 3", "no reduced dim has 4 neighbours in A, or indexes a dim of A alone"),
        ("j, k", "no schedule with it is legal"),
    ],
)
def test_why_an_instruction_of_these_types_does_not_do(place: str, said: str | None) -> None:
    text = f"""
kernel products(in a: u8[64, 64], in b: s8[64, 64], out c: s32[64, 64]):
  compute main(i in 64, j in 64, k in 64):
    c[i, j] add= s32(a[{place}]) * s32(b[k, j])
"""
    kernel = tw.compile(tw.parse_kernel(text), target="x86:avx512_vnni")
    best = "vpdpbusd_512 (64 products at a time)"
    assert kernel.instruction == (
        best if said is None else f"no instruction: plain code; not {best}: {said}"
    )


def test_few_rows_take_no_instruction_that_wants_a_copy() -> None:
    """They convert what lies along the results as they read it."""
    text = """
kernel products(in a: bf16[4, 64], in b: bf16[64, 64], out c: f32[4, 64]):
  compute clear(i in 4, j in 64):
    c[i, j] = 0.0
  compute main(i in 4, j in 64, k in 64):
    c[i, j] add= f32(a[i, k]) * f32(b[k, j])
"""
    kernel = tw.compile(tw.parse_kernel(text), target="x86:avx512_bf16")
    best = "vdpbf16ps_512 (32 products at a time)"
    said = f"no instruction: plain code; not {best}: few rows read B as it lies"
    assert kernel.instruction == said

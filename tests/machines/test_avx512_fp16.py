"""Floats of 16 bits computed on as they are, where the processor does: AVX512-FP16."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import tilewright as tw
from staged import check_schedule
from tilewright.ir.stmt import Kernel
from tilewright.ops.op import Op

pytestmark = pytest.mark.usefixtures("own_cache")

ARITHMETIC = tw.parse_kernel(
    """
    kernel f(in a: f16[4096], in b: f16[4096], out y: f16[4096]):
      compute c(i in 4096):
        y[i] = max(a[i] * b[i] + a[i], a[i] / b[i])
    """
)
SUMS = tw.parse_kernel(
    """
    kernel g(in a: f16[13, 24], in b: f16[24, 40], out y: f16[13, 40]):
      compute z(i in 13, j in 40):
        y[i, j] = f16(0.0)
      compute c(i in 13, j in 40, k in 24):
        y[i, j] add= a[i, k] * b[k, j]
    """
)


def instructions(what: Kernel | Op, level: str) -> Counter[str]:
    kernel = tw.compile(what, f"x86:{level}", threads=1)
    return Counter(re.findall(r"^\t(v\w+)", kernel.source("asm"), re.MULTILINE))


@pytest.mark.parametrize("level", ["avx512_fp16", "amx"])
def test_arithmetic_is_that_of_f16(level: str) -> None:
    result = instructions(ARITHMETIC, level)
    assert all(result[f"v{name}ph"] for name in ("mul", "add", "div", "max"))
    assert not any("ph2ps" in name or "ps2ph" in name for name in result)
    # Each operation rounds: a product that is added is no fused one.
    assert not any(name.startswith("vfm") for name in result)


def test_vectors_are_whole_registers() -> None:
    kernel = tw.compile(ARITHMETIC, "x86:avx512_fp16", threads=1)
    assert re.search(r"vmulph\t[^\n]*%zmm", kernel.source("asm"))
    assert "vector=16" in repr(tw.compile(ARITHMETIC, "x86:avx512_bf16", threads=1).config)


def test_elsewhere_it_is_that_of_f32() -> None:
    result = instructions(ARITHMETIC, "avx512_bf16")
    assert result["vmulps"] and result["vcvtph2ps"] and result["vcvtps2ph"]
    assert not any(name.endswith("ph") and not name.startswith("vcvt") for name in result)


def test_sums_in_f16_are_fused() -> None:
    kernel = tw.compile(SUMS, "x86:avx512_fp16", threads=1)
    result = instructions(SUMS, "avx512_fp16")
    assert result["vfmadd231ph"] >= 13 and not result["vfmadd231ps"]
    check_schedule(kernel.schedule)


def test_sums_in_f32_stay_there() -> None:
    """Products of f16 add up in f32, unless the kernel says otherwise."""
    result = instructions(tw.matmul("13x24:24x40", dtype="f16"), "avx512_fp16")
    assert result["vfmadd231ps"] and not result["vfmadd231ph"]

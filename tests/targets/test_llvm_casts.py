"""Generated conversions against the interpreter's, for every pair of types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lane_functions import LaneFunction, levels, module_text
from sweeps import in_turns
from tilewright.conversions import convert
from tilewright.dtypes import ALL, DType, bf16, f8_e4m3, f32, s4, s8, s32, tf32, u4, u8, u16
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.types import llvm_type
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer
from tilewright.targets.x86.assemble import assembly
from tilewright.targets.x86.lower import dialect_for
from tilewright.targets.x86.target import x86_target

# numpy warns about the overflows and signaling NaNs that are tested here.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def _values(dtype: DType) -> Any:
    """Values of ``dtype``: all of them where there are few; else random bits, and numbers around
    every boundary of the other types."""
    rng = np.random.default_rng(7)
    if dtype.kind == "bool":
        return np.tile([False, True], 8)
    if dtype.is_nibble:
        # With anything in the upper 4 bits.
        return np.arange(256, dtype=np.uint8).view(dtype.numpy)
    if dtype.bits <= 16:
        codes = np.arange(2**dtype.bits, dtype=f"uint{dtype.bits}")
        return codes.view(dtype.numpy)
    random = rng.integers(0, 2**64, 1 << 14, np.uint64)
    narrow = [t for t in ALL if t.bits <= 16 and t.is_float]
    halves = np.concatenate([_midpoints(t) for t in narrow])
    powers = np.ldexp(1.0, np.arange(-160, 160))
    edges = np.concatenate([powers, powers - 1, powers + 0.5, halves])
    signed = np.concatenate([edges, -edges])
    with np.errstate(all="ignore"):
        if dtype.is_float:
            singles = signed.astype(dtype.numpy)
            bits = singles.view(f"uint{dtype.bits}")
            near = np.concatenate([bits, bits + 1, bits - 1]).view(dtype.numpy)
            wild = random.astype(f"uint{dtype.bits}").view(dtype.numpy)
            mild = rng.normal(size=1 << 14) * np.exp(rng.normal(size=1 << 14) * 9)
            special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
            parts = [near, wild, mild, special]
        else:
            limit = 2.0 ** (dtype.bits - 1) * 0.999
            near = np.clip(signed, -limit, limit).astype(dtype.numpy)
            shifts = rng.integers(0, dtype.bits, 1 << 14).astype(dtype.numpy)
            wild = random.astype(dtype.numpy)
            parts = [near, near + 1, near - 1, wild, wild >> shifts]
        values = np.concatenate([p.astype(dtype.numpy) for p in parts])
    if dtype is tf32:
        values = convert(values, f32, tf32)
    return np.resize(values, (len(values) // 16 + 1) * 16)


def _midpoints(dtype: DType) -> Any:
    """Halfway between neighbours of a narrow float, and its nonnegative finite values."""
    codes = np.arange(2 ** (dtype.bits - 1), dtype=f"uint{dtype.bits}")
    with np.errstate(all="ignore"):
        values = codes.view(dtype.numpy).astype(np.float64)
    values = values[np.isfinite(values)][:: max(1, len(codes) // 4096)]
    return np.concatenate([values, (values[1:] + values[:-1]) / 2])


def _same(got: Any, want: Any) -> Any:
    """Equal bit for bit, except that any NaN is as good as another."""
    if want.dtype.kind in "biu" or want.dtype in (s4.numpy, u4.numpy):
        return got == want
    unsigned = f"uint{want.dtype.itemsize * 8}"
    wide_got, wide_want = (a.astype(np.float64) for a in (got, want))
    equal = got.view(unsigned) == want.view(unsigned)
    return equal | (np.isnan(wide_got) & np.isnan(wide_want))


@pytest.mark.parametrize(("level", "source"), in_turns(2, levels(), ALL), ids=str)
def test_casts_match_the_interpreter(source: DType, level: str) -> None:
    values = _values(source)
    assert values.size and len(ALL) > 9
    for to in ALL:
        want = np.asarray(convert(values, source, to))
        for lanes in (16, 1):
            got = _cast(source, to, lanes, level)(values)
            bad = ~_same(got, want)
            at = int(np.argmax(bad))
            assert not bad.any(), (
                f"{source} to {to}, {lanes} lanes: {bad.sum()} differ; "
                f"{values[at]!r} gives {got[at]!r}, not {want[at]!r}"
            )


def _cast(source: DType, to: DType, lanes: int, level: str) -> LaneFunction:
    return LaneFunction(lambda w, a: emit_cast(w, a[0], to), (source,), to, lanes, level)


@pytest.mark.parametrize(
    ("source", "to"), [(f32, s8), (f32, u8), (f32, s32), (bf16, f32), (f32, bf16), (f8_e4m3, f32)]
)
def test_frequent_casts_stay_in_vectors(source: DType, to: DType) -> None:
    cast = _cast(source, to, 16, "sse42")
    assert "pinsr" not in assembly(cast.text, "haswell")


@pytest.mark.parametrize("lanes", [4, 8, 12, 16, 48, 64, 72, 96])
def test_bf16_is_rounded_by_an_instruction_without_branches(lanes: int) -> None:
    dialect = dialect_for(x86_target("avx512_bf16").machine)
    text = module_text(lambda w, a: emit_cast(w, a[0], bf16), (f32,), bf16, lanes, dialect)
    result = assembly(text, "cooperlake")
    parts = -(-lanes // 16)
    assert result.count("\tvfpclassps\t") == result.count("\tvcvtneps2bf16\t") == parts
    assert "kortest" not in result and "vpsrld" not in result


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_subnormals_are_rounded_to_the_nearest_bf16(lanes: int) -> None:
    """All neighbours, what lies halfway between them, and what is next to that on both sides, up to
    the first that become normal."""
    halfway = np.arange(0, 0x808000, 0x8000, dtype=np.uint32)
    codes = np.concatenate([halfway, halfway + 1, halfway[1:] - 1])
    values = np.resize(np.concatenate([codes, codes | 0x80000000]), 2048).view(np.float32)
    got = LaneFunction(lambda w, a: emit_cast(w, a[0], bf16), (f32,), bf16, lanes, levels()[0])
    assert _same(got(values), np.asarray(convert(values, f32, bf16))).all()


def _one_known_late(w: Writer, lanes: int) -> Value:
    """Lanes of u16 that nothing says, but one: a number that went through memory."""
    place = w.assign("alloca i16")
    w.emit(f"store i16 3, ptr {place}")
    number = w.assign(f"load i16, ptr {place}")
    type_ = llvm_type(u16, lanes)
    whole = w.assign(f"insertelement {type_} poison, i16 {number}, i64 {lanes - 1}")
    return Value(whole, u16, lanes)


@pytest.mark.parametrize("lanes", [4, 8, 16, 24, 64])
def test_rounding_to_bf16_takes_numbers_that_llvm_sees_late(lanes: int) -> None:
    dialect = dialect_for(x86_target("avx512_bf16").machine)
    text = module_text(
        lambda w, a: emit_cast(w, _one_known_late(w, lanes), bf16), (f32,), bf16, lanes, dialect
    )
    # Of a vector of bfloat, LLVM would make a constant that its own instructions do not take.
    assert "fptrunc" not in text
    assert "vcvtneps2bf16" in assembly(text, "sapphirerapids")


@pytest.mark.parametrize("where", [0, 17, 47])
def test_a_subnormal_among_other_numbers_is_rounded(where: int) -> None:
    values = np.linspace(-3, 3, 48).astype(np.float32)
    for number in (1e-40, -1.1754942e-38, 3e-41, 0.0, -0.0, np.nan):
        values[where] = number
        got = LaneFunction(lambda w, a: emit_cast(w, a[0], bf16), (f32,), bf16, 48, levels()[0])
        assert _same(got(values), np.asarray(convert(values, f32, bf16))).all()

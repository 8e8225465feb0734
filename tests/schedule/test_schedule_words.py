"""read_words and precompute: golden texts, results, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from schedule_cases import becomes, equal, tensorized
from tilewright.dtypes import DType, bf16, f8_e4m3, s16, tf32, u8, u16, u32
from tilewright.errors import ScheduleError
from tilewright.ir import Kernel, parse_kernel, verify
from tilewright.ir.printer import to_text
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.inline import inline
from tilewright.schedule.operands.precompute import precompute
from tilewright.schedule.staging.read_words import read_words
from tilewright.schedule.staging.stage import stage

PRODUCT = """
    kernel product(in x: f32[8], in w: u8[8, 6], inout y: f32[6]):
      compute main(n in 6, k in 8):
        x = x[k]
        q = w[k, n]
        y[n] add= x * f32(q)
    """
NIBBLES = """
    kernel nibbles(in x: f32[3, 16], in w: u8[8, 6], inout y: f32[3, 6]):
      compute main(m in 3, n in 6, k in 16):
        x = x[m, k]
        q = w[k // 2, n]
        y[m, n] add= x * f32(s32(q) >> s32(k % 2 * 4) and s32(15))
    """


def kernel_of(text: str) -> Kernel:
    kernel = parse_kernel(text.replace("\n    ", "\n"))
    verify(kernel)
    return kernel


def test_neighbours_are_read_as_one() -> None:
    becomes(
        PRODUCT,
        lambda k: read_words(k, "main", "q", 0, u16),
        """
        kernel product(in x: f32[8], in w: u8[8, 6], inout y: f32[6]):
          alloc w_words: u16[4, 6]
          compute w_join(i in 4, i2 in 6):
            part = w[i * 2, i2]
            part2 = w[i * 2 + 1, i2]
            w_words[i, i2] = u16(part) or u16(part2) << u16(8)
          compute main(n in 6, k in 8):
            x = x[k]
            q = w_words[k // 2, n]
            y[n] add= x * f32(u8(q >> u16(k % 2 * 8)))
        """,
    )


@pytest.mark.parametrize(("axis", "type"), [(0, u16), (0, u32), (1, u16)])
def test_words_have_all_bits(axis: int, type: DType) -> None:
    for text in (PRODUCT, NIBBLES):
        kernel = kernel_of(text)
        words = read_words(kernel, "main", "q", axis, type)
        equal(kernel, words)
        equal(kernel, inline(words, "w_join"))
        packed = stage(words, "main", "q", shape="dims", name="packed")
        assert "w_words[" not in to_text(inline(packed, "w_join"))
        equal(kernel, inline(packed, "w_join"))


def test_words_of_several_computes_and_odd_bytes() -> None:
    text = (
        PRODUCT
        + "  compute again(n in 6, k in 8):\n        v = w[k, n]\n        y[n] max= f32(v)\n"
    )
    kernel = kernel_of(text)
    words = read_words(kernel, "again", "v", 0, u32)
    equal(kernel, words)
    # A compute in tiles reads words in each of its pieces.
    equal(kernel, read_words(tile(kernel, "main", {"k": 3}), "main", "q", 0, u16))


@pytest.mark.parametrize(
    ("change", "operand", "axis", "type", "message"),
    [
        (("", ""), "z", 0, u16, "there is no operand 'z'"),
        (("", ""), "q", 2, u16, "'w' has no axis 2"),
        (("", ""), "q", -1, u16, "'w' has no axis -1"),
        (("", ""), "q", 1, u32, "a word would be 4 of 6 elements"),
        (("", ""), "q", 0, u8, "u8 has no parts of u8"),
        (("", ""), "q", 0, s16, "s16 has no parts of u8"),
        (("w: u8", "w: s8"), "q", 0, u16, "u16 has no parts of s8"),
        (("w: u8", "w: u4"), "q", 0, u16, "u16 has no parts of u4"),
        (("in w", "inout w"), "q", 0, u16, "'w' is not a parameter that nothing writes"),
        (("w[k, n]", "w[k, n | k < 7]"), "q", 0, u16, "is read under a mask"),
    ],
)
def test_words_that_are_refused(
    change: tuple[str, str], operand: str, axis: int, type: DType, message: str
) -> None:
    text = PRODUCT.replace(*change) if change[0] else PRODUCT
    if change[0] == "in w":
        text += "  compute clear(n in 6):\n        w[0, n] = u8(0)\n"
    with pytest.raises(ScheduleError, match=f"read_words: .*{message}"):
        read_words(kernel_of(text), "main", operand, axis, type)


def test_what_says_where_is_not_read_in_words() -> None:
    kernel = kernel_of(
        """
    kernel gather(in at: u8[8], in x: f32[256], out y: f32[8]):
      compute main(i in 8):
        a = at[i]
        v = x[s64(a)]
        y[i] = v
    """
    )
    with pytest.raises(ScheduleError, match="read_words: the compute 'main' has places"):
        read_words(kernel, "main", "a", 0, u16)


def test_what_an_instruction_reads_stays() -> None:
    kernel = tensorized(kernel_of(PRODUCT))
    with pytest.raises(ScheduleError, match=r"read_words: .* by an instruction"):
        read_words(kernel, "main", "q", 0, u16)


# precompute


def test_what_is_made_of_one_operand_is_set_apart() -> None:
    becomes(
        NIBBLES,
        lambda k: precompute(k, "main", "q", cast=bf16, order=["n", "k"]),
        """
        kernel nibbles(in x: f32[3, 16], in w: u8[8, 6], inout y: f32[3, 6]):
          alloc main_q: bf16[6, 16] private
          compute main_q(n in 6, k in 16):
            q = w[k // 2, n]
            main_q[n, k] = bf16(f32(s32(q) >> s32(k % 2 * 4) and s32(15)))
          compute main(m in 3, n in 6, k in 16):
            x = x[m, k]
            q = main_q[n, k]
            y[m, n] add= x * f32(q)
        """,
    )


def test_inline_is_the_inverse() -> None:
    kernel = kernel_of(NIBBLES)
    apart = precompute(kernel, "main", "q")
    equal(kernel, apart)
    assert to_text(inline(apart, "main_q")) == to_text(kernel)


def test_names_that_are_taken() -> None:
    kernel = kernel_of(NIBBLES.replace("in w:", "in main_q: f32[1], in w:"))
    assert "alloc main_q2: f32" in to_text(precompute(kernel, "main", "q"))


def test_each_tile_sets_its_own_apart() -> None:
    kernel = kernel_of(NIBBLES)
    tiled = tile(kernel, "main", {"k": 4, "n": 3})
    apart = precompute(tiled, "main", "q", order=["n", "k"], cast=bf16)
    assert "alloc main_q: bf16[3, 4] private" in to_text(apart)
    equal(kernel, apart)
    fused = fuse_dims(apart, ["n", "k"], "n_k", computes=["main_q"], digits=True)
    assert "alloc main_q: bf16[12] private" in to_text(fused)
    equal(kernel, fused)


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("f32(s32(q) - s32(128))", bf16),
        ("f32(q)", bf16),
        ("f32(q and u8(15))", f8_e4m3),
        ("f32(s32(q) << s32(28) >> s32(28))", f8_e4m3),
    ],
)
def test_types_that_have_all_digits(value: str, type: DType) -> None:
    kernel = kernel_of(PRODUCT.replace("f32(q)", value))
    equal(kernel, precompute(kernel, "main", "q", cast=type))


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ("f32(q)", {"operand": "z"}, "there is no operand 'z'"),
        (
            "f32(q)",
            {"operand": "x"},
            "makes not one value of 'x' alone.*\n.*\n.*alone there are: x",
        ),
        ("(f32(q) + exp(f32(q)) * x)", {}, "makes not one value of 'q' alone"),
        ("f32(q)", {"order": ["n", "n"]}, "the order \\['n', 'n'\\] has not each dim"),
        ("f32(q)", {"order": ["n", "j"]}, "has no dim 'j'"),
        ("f32(s32(q) + s32(2))", {"cast": bf16}, "is not known to be a number of bf16"),
        ("f32(q)", {"cast": f8_e4m3}, "is not known to be a number of f8_e4m3"),
        ("f32(s32(q) * s32(9))", {"cast": tf32}, "is not known to be a number of tf32"),
        ("exp(f32(q))", {"cast": bf16}, "is not known to be a number of bf16"),
        ("f32(q)", {"cast": u8}, "is not known to be a number of u8"),
    ],
)
def test_what_is_not_set_apart(value: str, options: dict[str, Any], message: str) -> None:
    kernel = kernel_of(PRODUCT.replace("f32(q)", value))
    with pytest.raises(ScheduleError, match=f"precompute: .*{message}"):
        precompute(kernel, "main", **{"operand": "q", **options})


def test_tiles_with_rests_are_not_set_apart() -> None:
    kernel = tile(kernel_of(PRODUCT), "main", {"k": 3})
    with pytest.raises(ScheduleError, match="precompute: the extents are not constant"):
        precompute(kernel, "main", "q")


# Processors look values up that depend on few bits.

LOOKED_UP = """
    kernel values(in w: u16[96], out y: bf16[96]):
      vector for i in {lanes}:
        y[i] = {value}
    """
VALUES = {
    "a field": "bf16(f32(s32(w[i] >> u16(4)) and s32(15)))",
    "a byte of it": "bf16(f32(s32(u8(w[i] >> u16(8))) >> s32(4) and s32(15)))",
    "with a sign": "bf16(f32(s32(w[i]) << s32(24) >> s32(28)))",
    "the highest bits": "bf16(f32(s16(w[i]) >> s16(12)))",
    "minus eight": "bf16(f32(s32(w[i] and u16(15)) - s32(8)))",
    "five bits, times three": "bf16(f32((w[i] >> u16(3) and u16(31)) * u16(3)))",
    "halves": "bf16(0.5 * f32(w[i] and u16(3)))",
    "six bits": "bf16(f32(w[i] and u16(63)))",
    "all that is carried": "bf16(f32((w[i] + u16(1)) >> u16(12)))",
    "bits that are apart": "bf16(f32(w[i] and u16(33)))",
}
TABLES = {"a field", "a byte of it", "with a sign", "the highest bits", "minus eight"}
TABLES |= {"five bits, times three"}


@pytest.mark.parametrize("lanes", [96, 32, 16, 5])
@pytest.mark.parametrize("value", VALUES)
def test_what_depends_on_few_bits_is_looked_up(value: str, lanes: int) -> None:
    kernel = kernel_of(LOOKED_UP.format(lanes=lanes, value=VALUES[value]))
    result = tw.compile(kernel, "x86:avx512_bf16", threads=1)
    assert ("permvar.hi" in result.source("llvm")) == (value in TABLES)
    assert "permvar" not in tw.compile(kernel, "x86:avx2", threads=1).source("llvm")
    w = np.random.default_rng(lanes).integers(0, 65536, 96).astype(np.uint16)
    w[:8] = (0, 65535, 32768, 8, 15, 16, 4096, 61440)
    results = []
    for run in (result, tw.compile(kernel, "interpreter")):
        if run.target.runs_here:
            y = np.zeros(96, bf16.numpy)
            run(w=w, y=y)
            results.append(y.astype(np.float32))
    for other in results[:-1]:
        np.testing.assert_array_equal(other, results[-1])

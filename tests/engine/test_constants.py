"""Constants beside a kernel: in its text by their digest, checked, passed by the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, need_device
from tilewright.dtypes import f32, s32
from tilewright.errors import ArgumentError, ParseError, VerificationError
from tilewright.interpret import run as interpret
from tilewright.ir.buffer import buffer
from tilewright.ir.compare import difference
from tilewright.ir.constants import contents_of, digest_of
from tilewright.ir.printer import to_text
from tilewright.ir.verify import verify

TABLE = np.arange(256, dtype=np.float32) ** 2
DIGEST = digest_of(TABLE)
TEXT = f"""
kernel looked_up(in i: s32[100], constant table: f32[256] = {DIGEST}, out y: f32[100]):
  compute look(m in 100):
    p = i[m]
    y[m] = table[s64(p)]
"""
INDEX = np.random.default_rng(0).integers(0, 256, 100).astype(np.int32)


def parsed(text: str = TEXT, table: Any = TABLE) -> Any:
    return tw.parse_kernel(text, constants={DIGEST: table})


def test_text_has_the_digest() -> None:
    kernel = parsed()
    assert f"constant table: f32[256] = {DIGEST}" in to_text(kernel)
    again = tw.parse_kernel(to_text(kernel))
    assert difference(kernel, again) is None and not again.constants
    other = tw.parse_kernel(TEXT.replace(DIGEST, digest_of(TABLE + 1)))
    assert "params differs" in str(difference(kernel, other))


def test_built_in_python() -> None:
    contents = contents_of(buffer("table", f32, (256,)), TABLE)
    assert digest_of(contents) == DIGEST
    assert not contents.flags.writeable
    with pytest.raises(ArgumentError, match=r"has 256 elements of float32[^$]*256 elements of s32"):
        contents_of(buffer("table", s32, (256,)), TABLE)


@pytest.mark.parametrize("target", ["interpreter", "x86", *DEVICES, "spirv:gpu"])
def test_calls_do_not_pass_it(target: str) -> None:
    need_device(target)
    run = tw.compile(parsed(), target, threads=2)
    assert run.signature.names == ("i", "y")
    np.testing.assert_array_equal(run(INDEX), TABLE[INDEX])
    out = np.zeros(100, np.float32)
    run.bind(i=INDEX, out=out)()
    np.testing.assert_array_equal(out, TABLE[INDEX])
    with pytest.raises(ArgumentError, match="there is no argument 'table'"):
        run(INDEX, table=TABLE)


def test_for_nvidia() -> None:
    result = tw.compile(parsed(), "nvidia:sm_80")
    memory = {"i": INDEX.copy(), "y": np.zeros(100, np.float32)}
    interpret(result.schedule.kernel, memory)
    np.testing.assert_array_equal(memory["y"], TABLE[INDEX])


def test_from_the_caches_with_the_contents_of_this_kernel() -> None:
    assert tw.compile(parsed()).schedule is not None
    assert tw.compile(parsed()).from_cache
    table = TABLE + 1
    text = TEXT.replace(DIGEST, digest_of(table))
    other = tw.compile(tw.parse_kernel(text, constants={digest_of(table): table}))
    np.testing.assert_array_equal(other(INDEX), table[INDEX])


def test_contents_have_to_be_there_and_right() -> None:
    verify(tw.parse_kernel(TEXT))  # known by its digest only
    for target in ("x86", "interpreter"):
        with pytest.raises(ArgumentError, match=r"contents of the constant table are missing"):
            tw.compile(tw.parse_kernel(TEXT.replace("looked_up", "missing")), target)
    with pytest.raises(VerificationError, match=r"contents of the constant table are not those"):
        verify(parsed(table=TABLE + 1))
    with pytest.raises(ArgumentError, match=r"table has 255 elements[^$]*holds 256"):
        parsed(table=TABLE[1:])
    with pytest.raises(ArgumentError, match="elements of float64"):
        parsed(table=TABLE.astype(np.float64))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (DIGEST, DIGEST[:-1], "this is no digest"),
        (DIGEST, DIGEST.replace("sha256", "md5"), "expected a digest"),
        (f" = {DIGEST}", "", "expected `=`"),
    ],
)
def test_texts_that_are_refused(before: str, after: str, said: str) -> None:
    with pytest.raises(ParseError, match=said):
        tw.parse_kernel(TEXT.replace(before, after))


def test_a_constant_is_not_written() -> None:
    text = TEXT.replace("y[m] = table[s64(p)]", "table[m] = 0.0")
    with pytest.raises(VerificationError, match="table"):
        verify(tw.parse_kernel(text))


def test_export_writes_it(tmp_path: Path) -> None:
    tw.compile(parsed(), "x86").export(tmp_path, "first")
    tw.compile(parsed(), "x86").export(tmp_path, "second")
    assert np.array_equal(np.fromfile(tmp_path / "first_table.bin", np.float32), TABLE)
    said = "| 1 | table | constant, the bytes of `first_table.bin` |"
    assert said in (tmp_path / "first.md").read_text()
    assert (tmp_path / "second_table.bin").exists()

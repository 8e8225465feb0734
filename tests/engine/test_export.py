"""Kernels for programs without Python: their names, and that a C compiler takes what is written."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError
from tilewright.ir.constants import digest_of

needs_c = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]

TABLE = np.arange(8, dtype=np.float32)
LOOKUP = f"""
kernel lookup(n: s64 in 4..400 by 4, alpha: f32, in x: f32[n], out y: f32[n],
              constant table: f32[8] = {digest_of(TABLE)}):
  alloc partial: f32[n]
  compute first(i in n):
    partial[i] = alpha * x[i]
  compute second(i in n):
    y[i] = partial[n - 1 - i] + table[i % 8]
"""


def convolution(**options: object) -> CompiledKernel:
    op = tw.convolution("mb1ic8ih6oc32kh3ph1", epilogue=[tw.bias()], **options)  # type: ignore[arg-type]
    return tw.compile(op, target="x86:avx2", threads=1)


def matmul(name: str) -> CompiledKernel:
    return tw.compile(tw.matmul(name), target="x86:avx2", threads=1)


def lookup() -> CompiledKernel:
    constants = {digest_of(TABLE): TABLE}
    return tw.compile(tw.parse_kernel(LOOKUP, constants=constants), target="x86:avx2", threads=1)


def symbols(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.h")}


def test_names_are_of_problems(tmp_path: Path) -> None:
    convolution().export(tmp_path)
    convolution(dtype="bf16").export(tmp_path)
    lookup().export(tmp_path)
    result = sorted(symbols(tmp_path))
    assert len(result) == 5
    kind = r"conv_fwd_b_mb1ic8ih6oc32kh3ph1_[0-9a-f]{8}"
    for name, form in zip(result, [kind, f"{kind}_pack_weights"] * 2 + ["lookup"], strict=True):
        assert re.fullmatch(form, name), result


def test_names_of_ones_own(tmp_path: Path) -> None:
    kernel = convolution()
    kernel.export(tmp_path, "first")
    assert symbols(tmp_path) == {"first", "first_pack_weights"}
    # Nothing but the name is another.
    text = (tmp_path / "first.ll").read_text()
    assert text == kernel.source("llvm").replace("@conv_fwd_b(", "@first(")
    assert "TILEWRIGHT_FIRST_H" in (tmp_path / "first.h").read_text()


@pytest.mark.parametrize("name", ["", "1st", "a-b", "_x", "for", "main", "ä", "x" * 201, 7])
def test_names_that_c_has_no_use_for(name: object, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot be the name of a function in C"):
        convolution().export(tmp_path, name)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_name_on_the_command_line(tilewright: Command, tmp_path: Path) -> None:
    ended = tilewright("build", "matmul", "--name", "mine", "4x4:4x4", "-o", str(tmp_path))
    assert ended.code == 0 and "mine" in symbols(tmp_path)
    ended = tilewright("build", "matmul", "--name=x", "4x4:4x4", "8x4:4x4", "-o", str(tmp_path))
    assert ended.code == 2 and "each kernel needs a name of its own" in ended.err


def run(folder: Path, text: str, flags: list[str] = STRICT) -> str:
    """Compiles ``text`` with all that lies in ``folder``, and gives what it prints."""
    (folder / "main.c").write_text(text)
    objects = [path.name for path in folder.glob("*.o")]
    build = ["gcc", *flags, "main.c", *objects, "-lm", "-o", "main"]
    subprocess.run(build, cwd=folder, check=True)
    return subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True).stdout


# Before a program: it counts what it has of memory, and ends with that.
_COUNTED = """#include <stdlib.h>
static int had;
static void *get(size_t count, size_t size) { had++; return calloc(count, size); }
static void give(void *memory) { had--; free(memory); }
#define calloc get
#define free give
"""


@needs_c
def test_several_share_a_folder_and_their_examples_run(tmp_path: Path) -> None:
    convolution().export(tmp_path, "conv")
    convolution(dtype="bf16").export(tmp_path, "narrow")
    lookup().export(tmp_path)
    tw.compile(tw.elementwise("5", "relu", dtype="s8"), "x86:avx2").export(tmp_path, "whole")
    # Of a corner: 4 taps of 8 channels, and the bias.
    for name, printed in {
        "conv": "dst: 33 33 33 33\n",
        "narrow": "dst (bits of bf16): 0x4204 0x4204 0x4204 0x4204\n",
        "lookup": "y: 1 2 3 4\n",
        "whole": "dst: 0 0 0 0\n",
    }.items():
        text = (tmp_path / f"{name}_example.c").read_text()
        (command,) = re.findall(r"^ +cc (.*)$", text, re.MULTILINE)
        (tmp_path / f"{name}_example.c").write_text(
            _COUNTED + text.replace("return 0;", "return had;")
        )
        subprocess.run(["gcc", *STRICT, *command.split()], cwd=tmp_path, check=True)
        ended = subprocess.run([f"./{name}_example"], cwd=tmp_path, capture_output=True, text=True)
        assert (ended.returncode, ended.stdout) == (0, printed)


def test_what_it_was_made_for_and_shapes_are_said(tilewright: Command, tmp_path: Path) -> None:
    for target, words in (
        ("x86", "this processor ("),
        ("x86:avx2", "x86-64 processors with avx, avx2, f16c, fma"),
        ("nvidia:sm_80", "GPUs of NVIDIA of sm_80, and newer ones"),
    ):
        problem = ("--name=mine", "4x8:8x16", "-o", str(tmp_path))
        ended = tilewright("build", "matmul", f"--target={target}", *problem)
        assert f"  runs on {words}" in ended.lines[1]
        assert f"Runs on {words}" in (tmp_path / "mine.md").read_text()
        if target.startswith("x86"):
            header = (tmp_path / "mine.h").read_text()
            assert f"Runs on {words}" in header
            assert "args[0] in src: f32[4, 8], 128 bytes" in header
            assert "args[2] out dst: f32[4, 16], 256 bytes" in header


_MAIN = """#include <stdint.h>
#include <stdio.h>
HEADERS
static float a[64], b[128], c[64], packed[1024], spaces[1024];
int main(void) {
  int i;
  void *space = (char *)spaces + (64 - (uintptr_t)spaces % 64) % 64;
  for (i = 0; i < 32; i++) a[i] = (float)i;
  for (i = 0; i < 128; i++) b[i] = 1;
  CALLS
  return 0;
}
"""


@needs_c
def test_kernels_link_together(tmp_path: Path) -> None:
    kernels = {"4x8:8x16": matmul("4x8:8x16"), "3x8:8x16": matmul("3x8:8x16")}
    calls, headers = [], []
    for name, kernel in kernels.items():
        kernel.export(tmp_path)
        (symbol,) = (
            line
            for line in symbols(tmp_path)
            if name.replace(":", "_") in line and "pack" not in line
        )
        headers += [f'#include "{symbol}.h"', f'#include "{symbol}_pack_weights.h"']
        calls.append(f"""{{
    void *pack[2], *args[4];
    pack[0] = b; pack[1] = packed; args[0] = a; args[1] = packed; args[2] = c; args[3] = space;
    {symbol}_pack_weights(pack, 0, 0, 1);
    {symbol}(args, 0, 0, 1);
    printf("%g %g\\n", (double)c[0], (double)c[16 * {name[0]} - 1]);
  }}""")
    text = _MAIN.replace("HEADERS", "\n".join(headers)).replace("CALLS", "\n".join(calls))
    # Rows of 8 of 0, 1, 2, ..., summed.
    assert run(tmp_path, text) == "28 220\n28 156\n"


@needs_c
def test_headers_are_for_c_plus_plus_too(tmp_path: Path) -> None:
    convolution().export(tmp_path, "first")
    (tmp_path / "a.cpp").write_text('#include "first.h"\n#include "first_pack_weights.h"\n')
    command = ["g++", "-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror", "a.cpp"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_alignment_is_said_once(tmp_path: Path) -> None:
    for target in ("x86:avx2", "nvidia:sm_80"):
        kernel = tw.compile(tw.elementwise("4x64", "relu"), target=target, threads=1)
        kernel.export(tmp_path / target)
        words = next((tmp_path / target).glob("*.md")).read_text()
        said = re.findall(
            r"Each pointer is (?:aligned to its element|a multiple of 16 bytes)", words
        )
        assert len(said) == 1 == words.count("Each pointer"), words

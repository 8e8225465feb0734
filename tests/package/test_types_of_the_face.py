"""What type checkers say of programs that use the face."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import tilewright as tw
from checkout import ROOT
from tilewright.errors import ArgumentError
from tilewright.lang.annotations import ScalarType

RIGHT = """
from __future__ import annotations
from typing import Any, TypeVar
import numpy as np
import tilewright as tw

T = TypeVar("T", bound=Any)

@tw.kernel
def saxpy(alpha: tw.f32, x: tw.Array[tw.f32, 1], y: tw.Array[tw.f32, ("n",)]) -> None:
    i = tw.global_id(0)
    part = tw.local((16,), tw.f32)
    part[tw.local_id(0)] = x[i]
    tw.barrier()
    y[i] = alpha * tw.exp(part[tw.local_id(0)]) + y[i]

@tw.kernel(local=64)
def scaled(alpha: T, n: tw.constant, x: tw.Array[T, 2]) -> None:
    i = tw.global_id(0)
    x[i, 0] = alpha * x[i, n]

saxpy.launch((8,), 2.0, np.ones(8, np.float32), np.ones(8, np.float32))
reveal_type(saxpy)
reveal_type(scaled)
kernel = tw.compile(tw.matmul("2x3:3x4"))
a, b = np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)
packed = kernel.pack("weights", b)
reveal_type(packed)
y = kernel(src=a, weights=packed)
reveal_type(y)
print(y.sum())
reveal_type(kernel(a, packed, out=np.zeros((2, 4), np.float32)))
"""
REVEALED = [
    "KernelFunction",
    "KernelFunction",
    "ndarray.*Packed",
    "ndarray.*Any",
    "ndarray[^|]*$",
]
WRONG = """
import tilewright as tw

@tw.kernel
def f(x: tw.Array[tw.f32, 1]) -> None: ...

tw.matmul((8, 8), (8, 8))
f.lunch()
tw.matmul("2x3:3x4", dtyp="f32")
"""

ALL = """
from tilewright import *

def rows(x: "Array[float, 2]") -> None: ...

reveal_type(softmax)
"""


T = TypeVar("T", bound=Any)


@tw.kernel
def scaled(x: tw.Array[T, 1], scale: T) -> None:
    """Its type is that of a call."""
    i = tw.global_id(0)
    x[i] = x[i] * scale


def said(tmp_path: Path, text: str) -> list[str]:
    """What mypy says of a program, a line each."""
    pytest.importorskip("mypy")
    file = tmp_path / "program.py"
    file.write_text(text)
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    # Beside the cache of a check of the project, it takes seconds.
    ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    return [line for line in ended.stdout.splitlines() if "defined in" not in line]


@pytest.mark.sweep
def test_right_programs_have_types(tmp_path: Path) -> None:
    lines = said(tmp_path, RIGHT)
    assert len(lines) == len(REVEALED), lines
    for line, wanted in zip(lines, REVEALED, strict=True):
        assert re.search(f'Revealed type is "[^"]*{wanted}', line), line


@pytest.mark.sweep
def test_all_names_of_the_face_are_there(tmp_path: Path) -> None:
    (line,) = said(tmp_path, ALL)
    assert "LibraryOp" in line


@pytest.mark.sweep
def test_wrong_programs_are_found(tmp_path: Path) -> None:
    text = "\n".join(said(tmp_path, WRONG))
    for found in ("Too many positional arguments", 'no attribute "lunch"', '"dtyp"'):
        assert found in text, text


def test_annotations_that_checkers_take_are_those_of_calls() -> None:
    assert tw.Array[tw.f32, 2] == tw.array("f32", 2)
    assert tw.Array["T", ("n", 16)] == tw.array("T", ("n", 16))
    for values in (tw.f32, (tw.f32,), (tw.f32, 1, 2), ()):
        with pytest.raises(ArgumentError, match=r"write both: tw\.Array\[tw\.f32, 2\]"):
            tw.Array[values]
    assert tw.scalar("T") == ScalarType("T")


def test_type_variables_are_types_that_calls_decide() -> None:
    for dtype in (np.float32, np.int32):
        x = np.full(8, 3, dtype)
        scaled.launch(8, x, 2, target="interpreter")
        assert (x == 6).all()

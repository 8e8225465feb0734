"""Random kernels of work-items: each stage on the way to threads and vectors, and x86, give what
the kernel gives in the interpreter, where it is checked for races and barriers."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilewright as tw
from spmd_kernels import GROUPS, Drawing, arrays
from sweeps import in_turns
from tilewright.interpret import run
from tilewright.ir import parse_kernel, to_text, verify
from tilewright.passes.spmd import stages
from tilewright.recipes.config import PlainConfig


def check(seed: int) -> None:
    rng = random.Random(seed)
    drawing = Drawing(rng)
    kernel = parse_kernel(drawing.text())
    verify(kernel)
    values = arrays(GROUPS * drawing.items, seed)
    wanted = {name: value.copy() for name, value in values.items()}
    run(kernel, wanted)
    for _, made in stages(kernel, rng.choice((8, 4, 1)), 32):
        again = parse_kernel(to_text(made))
        verify(again)
        result = {name: value.copy() for name, value in values.items()}
        run(again, result)
        for name, array in wanted.items():
            np.testing.assert_array_equal(result[name], array, f"{name}\n{to_text(made)}")
    config = rng.choice([None, *(PlainConfig(vector=n) for n in (8, 4, 1))])
    compiled = tw.compile(kernel, target="x86", config=config)(**values)
    for name in ("x", "y", "c"):
        np.testing.assert_array_equal(compiled[name], wanted[name])


@pytest.mark.parametrize("seed", in_turns(10, range(150)))
def test_stages_and_x86_give_what_the_interpreter_gives(seed: int) -> None:
    check(seed)

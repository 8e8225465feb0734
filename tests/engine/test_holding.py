"""Kernels with some of their arguments: what the others have to be is looked at in each call."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from needs import needs_x86
from tilewright.engine.holding import holding
from tilewright.errors import ArgumentError, PlacementError
from tilewright.graph.compiling import compile_graph

MANY = 40


def sum_of_many(count: int) -> str:
    names = ", ".join(f"in w{n}: f32[4]" for n in range(count))
    lines = [f"    a{n} = w{n}[i]" for n in range(count)]
    total = " + ".join(f"a{n}" for n in range(count))
    head = f"kernel k({names}, in x: f32[4], out y: f32[4], out z: f32[4]):\n"
    first = "  compute first(i in 4):\n" + "\n".join(lines) + f"\n    y[i] = {total}\n"
    return head + first + "  compute second(i in 4):\n    b = x[i]\n    z[i] = b * 2.0\n"


@needs_x86
@pytest.mark.parametrize("count", [3, MANY])
def test_held_arguments_are_checked_once(count: int) -> None:
    program = compile_graph(tw.parse_kernel(sum_of_many(count)), "x86", 1)
    memory = np.arange((count + 8) * 4, dtype=np.float32)
    held = {f"w{n}": memory[4 * n : 4 * n + 4] for n in range(count)}
    run = holding(program, dict(held))
    x, y, z = np.full(4, 3, np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    for _ in range(2):
        run(x=x, y=y, z=z)
        np.testing.assert_array_equal(y, sum(held.values()))
        np.testing.assert_array_equal(z, x * 2)
        memory[: 4 * count] += 1  # read as it is in the call
    run(x=memory[4 * count : 4 * count + 4], y=y, z=memory[4 * count + 4 :][:4])
    for wrong in (memory[2:6], memory[4 * count - 3 : 4 * count + 1]):
        with pytest.raises(PlacementError, match="shares memory"):
            run(x=x, y=y, z=wrong)
    with pytest.raises(PlacementError, match="shares memory"):
        run(x=x, y=y, z=y)
    with pytest.raises(PlacementError, match="shares memory"):
        run(x=x, y=x, z=z)
    with pytest.raises(ArgumentError, match="y"):
        run(x=x, z=z)
    with pytest.raises(ArgumentError, match="other"):
        run(x=x, y=y, z=z, other=x)
    with pytest.raises(ArgumentError):
        run(x=np.zeros(5, np.float32), y=y, z=z)


@needs_x86
def test_results_may_be_held() -> None:
    program = compile_graph(tw.parse_kernel(sum_of_many(MANY)), "x86", 1)
    arrays = {f"w{n}": np.full(4, n, np.float32) for n in range(MANY)}
    y, z = np.zeros(4, np.float32), np.zeros(4, np.float32)
    run = holding(program, {**arrays, "z": z})
    run(x=np.ones(4, np.float32), y=y)
    assert (z == 2).all() and (y == sum(range(MANY))).all()
    with pytest.raises(PlacementError):
        run(x=z, y=y)

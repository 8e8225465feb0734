"""Loops of the host with products in them: each iteration is cut into groups, as kernels are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, need_device
from tilewright.interpret import run as interpret
from tilewright.ir.stmt import Kernel
from tilewright.problems.library import RecurrentProblem
from tilewright.recipes import choose
from tilewright.recipes.config import GroupsConfig
from tilewright.recipes.start import Start
from tilewright.schedule.groups import cut
from tilewright.targets.registry import find_target

STEPS = """
kernel steps(in x: f32[5, 20, 24], in w: f32[24, 24], out y: f32[20, 24], out last: f32[20, 24]):
  alloc s: f32[20, 24]
  compute begin(i in 20, j in 24):
    s[i, j] = 0.5
  for t in 5:
    alloc p: f32[20, 24]
    compute clear(i in 20, j in 24):
      p[i, j] = 0.0
    compute product(i in 20, j in 24, k in 24):
      p[i, j] add= s[i, k] * w[j, k]
    compute next(i in 20, j in 24):
      s[i, j] = max(p[i, j], 0.0) * 0.125 + x[t, i, j]
  compute copy(i in 20, j in 24):
    y[i, j] = s[i, j]
    last[i, j] = x[4, i, j]
"""
# A loop around one product, to whose result each iteration adds: all of the kernel.
SUMS = """
kernel sums(in x: f32[5, 20, 24], in w: f32[5, 24, 8], inout y: f32[20, 8]):
  for t in 5:
    compute product(i in 20, j in 8, k in 24):
      y[i, j] add= x[t, i, k] * w[4 - t, k, j]
"""
# Loops in loops, one after the other, by the same name.
NESTED = """
kernel nested(in x: f32[2, 3, 16, 24], in w: f32[24, 8], out y: f32[2, 3, 16, 8], out z: f32[2]):
  for t in 2:
    z[t] = f32(t)
    for u in 3:
      alloc p: f32[16, 8]
      compute clear(i in 16, j in 8):
        p[i, j] = 1.0
      compute product(i in 16, j in 8, k in 24):
        p[i, j] add= x[t, u, i, k] * w[k, j]
      compute store(i in 16, j in 8):
        y[t, u, i, j] = p[i, j] * f32(t + 1)
  for t in 2:
    z[t] = z[t] * 2.0
"""
KERNELS = {text.split("(")[0].split()[-1]: text for text in (STEPS, SUMS, NESTED)}


def _arrays(kernel: Kernel) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        array.name: rng.integers(-2, 3, array.buffer.shape).astype(np.float32)
        for array in kernel.arrays
    }


@pytest.mark.parametrize("target", ["x86", *DEVICES, "interpreter"])
@pytest.mark.parametrize("name", KERNELS)
def test_results_are_those_of_the_interpreter(name: str, target: str) -> None:
    need_device(target)
    kernel = tw.parse_kernel(KERNELS[name])
    wanted, result = _arrays(kernel), _arrays(kernel)
    interpret(kernel, {key: array.ravel() for key, array in wanted.items()})
    tw.compile(kernel, target=target, threads=2)(**result)
    np.testing.assert_equal(result, wanted)


def test_the_groups_of_an_iteration() -> None:
    result = cut(tw.parse_kernel(STEPS))
    assert [(len(group.loops), group.contracts) for group in result.groups] == [
        (0, False),
        (1, True),
        (1, False),
        (0, False),
    ]
    # What a step leaves to the next is there after it.
    assert {buffer.name for buffer in result.between} == {"s", "p"}
    counter = result.groups[1].kernel.scalars[0]
    assert (counter.name, counter.low, counter.high) == ("t", 0, 4)


def test_a_loop_is_no_group_without_a_product() -> None:
    kernel = tw.parse_kernel(STEPS.replace("s[i, k] * w[j, k]", "s[i, k]"))
    assert all(not group.loops for group in cut(kernel).groups)


def test_a_loop_around_one_product_is_kept() -> None:
    kernel = tw.parse_kernel(SUMS)
    result = cut(kernel)
    assert [group.contracts for group in result.groups] == [True] and not result.whole
    config, schedule = choose.choose(Start(kernel, kernel), find_target("x86").machine)
    again = choose.schedule(Start(kernel, kernel), find_target("x86").machine, config)
    assert str(again.kernel) == str(schedule.kernel) and "for t in 5" in str(schedule.kernel)


@pytest.mark.parametrize("algorithm", RecurrentProblem.algorithms)
def test_products_of_recurrent_layers_are_contractions(algorithm: str) -> None:
    """Of all inputs at once, and of the state in each step; of a GRU that multiplies the state by
    its reset gate one more."""
    kernel = tw.rnn("l2t3mb16sic16", algorithm, order="sum").kernel()
    products = [group for group in cut(kernel).groups if group.contracts]
    carried = 2 if algorithm in {"VANILLA_GRU", "VANILLA_AUGRU"} else 1
    assert sum(bool(product.loops) for product in products) == 4 * carried
    assert sum(not product.loops for product in products) == 4
    config, _ = choose.choose(Start(kernel, kernel), find_target("x86").machine)
    assert isinstance(config, GroupsConfig)

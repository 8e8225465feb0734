"""Products of few rows whose other factor lies along the reduction: it is read as it lies."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.engine.request import request_of
from tilewright.interpret import pack
from tilewright.recipes import choose
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.contraction import Contraction
from tilewright.recipes.start import starts
from tilewright.targets.registry import find_target

PRODUCT = """
kernel product(in x: {type}[{m}, {k}], in w: {type}[{n}, {k}], out y: f32[{m}, {n}]):
  compute zero(i in {m}, j in {n}):
    y[i, j] = 0.0
  compute total(i in {m}, j in {n}, k in {k}):
    a = x[i, k]
    b = w[j, k]
    y[i, j] add= f32(a) * f32(b)
"""


@pytest.mark.parametrize("m", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("n", "k"), [(64, 64), (37, 70), (16, 9)])
@pytest.mark.parametrize("type", ["f32", "bf16"])
def test_all_rows_meet_a_tile(m: int, n: int, k: int, type: str) -> None:
    kernel = tw.parse_kernel(PRODUCT.format(m=m, n=n, k=k, type=type))
    run = tw.compile(kernel, "x86:avx2", threads=2, config=ReductionConfig(vector=8))
    text = str(run.stages["lowered"])
    # Threads have no tiles of so few rows.
    assert n < 64 or "transpose_" in text
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((m, k), (n, k)))
    values = {"x": x, "w": w}
    arrays = [(p.name, p.buffer) for p in kernel.arrays if p.name in values]
    value = {n: pack(b, values[n]).reshape(b.shape) for n, b in arrays}
    np.testing.assert_array_equal(run(**value), x @ w.T)


def test_sums_of_rows_and_factors_are_registers() -> None:
    """Four rows of the other factor, each loaded once for four rows of the first."""
    kernel = tw.parse_kernel(PRODUCT.format(m=4, n=64, k=64, type="f32"))
    run = tw.compile(kernel, "x86:avx2", threads=2, config=ReductionConfig(vector=8))
    text = str(run.stages["lowered"])
    assert "main_parts: f32[4, 4, 1, 8] private" in text


@pytest.mark.parametrize("type", ["bf16", "f16"])
@pytest.mark.parametrize("m", [1, 5])
def test_what_lies_along_the_results_is_converted_as_it_is_read(type: str, m: int) -> None:
    """No copy of the other factor, which would take longer than the product."""
    text = PRODUCT.format(m=m, n=80, k=48, type=type)
    text = text.replace(f"w: {type}[80, 48]", f"w: {type}[48, 80]").replace("w[j, k]", "w[k, j]")
    kernel = tw.parse_kernel(text)
    machine, start = find_target("x86:avx2").machine, request_of(kernel).start()
    (group,) = starts(start, choose.cut_for(start, machine))
    config, *others = [candidate.config for candidate in Contraction().candidates(group, machine)]
    assert not config.instruction and not config.pack_b and config not in others
    run = tw.compile(kernel, "x86:avx2", threads=2, config=config)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((m, 48), (48, 80)))
    values = {"x": x, "w": w}
    arrays = [(p.name, p.buffer) for p in kernel.arrays if p.name in values]
    value = {n: pack(b, values[n]).reshape(b.shape) for n, b in arrays}
    np.testing.assert_array_equal(run(**value), x @ w)

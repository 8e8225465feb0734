"""What depends on constant arguments alone is made beforehand, and the rest computes the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from graphs import run
from random_graphs import Graphs
from sweeps import in_turns
from tilewright.graph.preparing import Prepared, prepare
from tilewright.ir import Kernel, parse_kernel, verify

COUNT = 300


def whole(kernel: Kernel, found: Prepared, inputs: dict[str, Any]) -> list[Any]:
    """The results of ``kernel`` in two parts."""
    verify(found.kernel)
    known = dict(inputs)
    if found.before is not None:
        verify(found.before)
        params = [array for array in found.before.arrays if array.digest is None]
        values = {param.name: inputs[param.name] for param in params if param.access == "in"}
        names = [param.name for param in params if param.access != "in"]
        known |= dict(zip(names, run(found.before, **values), strict=True))
    known |= {name: known[source] for name, source in found.constant.items()}
    taken = {array.name for array in found.kernel.arrays if array.access != "out"}
    return run(found.kernel, **{name: known[name] for name in known if name in taken})


@pytest.mark.parametrize("seed", in_turns(12, range(COUNT)))
def test_random_graphs(seed: int) -> None:
    graph = Graphs(seed)
    names = [array.name for array in graph.kernel.arrays if array.digest is None]
    draw = random.Random(seed)
    for count in (1, 2, len(names)):
        chosen = draw.sample(names, min(count, len(names)))
        result = prepare(graph.kernel, chosen)
        results = whole(graph.kernel, result, graph.inputs)
        for got, want in zip(results, run(graph.kernel, **graph.inputs), strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)


NORM = parse_kernel("""
kernel norm(in x: f32[6, 4], in w: f32[4, 8], in mean: f32[8], in variance: f32[8],
            out y: f32[6, 8], out z: f32[6, 8]):
  alloc sums: f32[6, 8]
  compute clear(i in 6, j in 8):
    sums[i, j] = 0.0
  compute product(i in 6, j in 8, k in 4):
    sums[i, j] add= x[i, k] * w[k, j]
  alloc scale: f32[8]
  compute scale(j in 8):
    scale[j] = rsqrt(variance[j] + 1.0)
  alloc rows: f32[6, 8]
  compute rows(i in 6, j in 8):
    rows[i, j] = mean[j] * mean[j]
  compute normalized(i in 6, j in 8):
    y[i, j] = (sums[i, j] - mean[j]) * scale[j]
  compute others(i in 6, j in 8):
    z[i, j] = rows[i, j] + mean[j]
""")


def inputs_of(kernel: Kernel) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = [array for array in kernel.arrays if array.access == "in"]
    return {array.name: rng.random(array.buffer.shape, np.float32) for array in arrays}


def test_a_norm_goes_into_the_weights_that_it_follows() -> None:
    """Though what it multiplies by is computed behind the product that reads the weights."""
    result = prepare(NORM, ("w", "mean", "variance"))
    assert result.before is not None
    after = str(result.kernel)
    assert "rsqrt" not in after and "variance" not in after and after.count(" * ") == 2
    assert "rsqrt" in str(result.before)
    inputs = inputs_of(NORM)
    for got, want in zip(whole(NORM, result, inputs), run(NORM, **inputs), strict=True):
        np.testing.assert_allclose(got, want, 1e-5)


def test_what_would_take_more_memory_is_made_in_each_call() -> None:
    result = prepare(NORM, ("mean",))
    assert result.before is None and "rows" in str(result.kernel)


def test_as_many_elements_of_a_wider_type_are_made_beforehand() -> None:
    for count, early in ((64, True), (1 << 15, False)):
        kernel = parse_kernel(f"""
        kernel k(in x: f32[{count}], in w: bf16[{count}], out y: f32[{count}]):
          alloc s: f32[{count}]
          compute s(i in {count}):
            e = w[i]
            s[i] = rsqrt(f32(e))
          compute y(i in {count}):
            e = x[i]
            f = s[i]
            y[i] = e * f
        """)
        assert (prepare(kernel, ("w",)).before is not None) == early


def test_each_reader_of_a_constant_argument_has_its_own() -> None:
    result = prepare(NORM, ("mean",))
    assert set(result.constant.values()) == {"mean"} and len(result.constant) == 3
    assert result.kernel.scalars == () and not prepare(NORM, ()).constant

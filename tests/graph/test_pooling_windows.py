"""Windows of pooling that reach beyond the image."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.stmt import Compute
from tilewright.ir.visit import walk_stmts
from tilewright.tensor.convolution import Window
from tilewright.tensor.nn.pooling import _inside

torch = pytest.importorskip("torch")


def _elements(window: Window, size: int) -> list[list[int]]:
    """The places inside that each window has."""
    steps = [tap * window.dilation - window.low for tap in range(window.taps)]
    starts = [number * window.stride for number in range(window.positions(size))]
    return [[start + s for s in steps if 0 <= start + s < size] for start in starts]


def test_taps_outside_of_the_image_are_left_out() -> None:
    rng = random.Random(1)
    shorter = 0
    for _ in range(4000):
        size, taps, stride = rng.randint(1, 9), rng.randint(1, 14), rng.randint(1, 5)
        window = Window(taps, stride, rng.randint(-1, 9), rng.randint(-1, 9), 1, rng.randint(1, 3))
        inside = _inside(window, size)
        assert _elements(inside, size) == _elements(window, size), (window, size)
        shorter += inside.taps < window.taps
    assert shorter > 400
    assert _inside(Window(1280, 1280, 0, 1273), 7) == Window(7, 1280, 0, 0)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize("pool", [torch.nn.AvgPool2d, torch.nn.MaxPool2d])
def test_a_window_larger_than_the_image_reads_the_image_once(pool: type) -> None:
    """As EfficientNet's of `transformers`, whose window has as many rows as there are channels."""
    module = pool(1280, ceil_mode=True)
    x = torch.randn(1, 32, 7, 7, dtype=torch.float64)
    graph = tw.from_torch(torch.export.export(module, (x.float(),)))
    computes = [s for s in walk_stmts(graph.kernel.body) if isinstance(s, Compute)]
    points = [np.prod([int(dim.extent.value) for dim in c.dims]) for c in computes]  # type: ignore[attr-defined]
    assert max(points) == x.numel()
    result = np.asarray(tw.compile(graph)(x.float()))
    np.testing.assert_allclose(result, module(x).numpy(), rtol=1e-6, atol=1e-7)

"""Random graphs give the same behind each pass."""

from __future__ import annotations

import numpy as np
import pytest

from graphs import run
from random_graphs import Graphs
from sweeps import in_turns
from tilewright.graph.passes.pipeline import PASSES
from tilewright.ir import parse_kernel, same, verify

COUNT = 400


@pytest.mark.parametrize("seed", in_turns(16, range(COUNT)))
def test_every_pass_keeps_what_a_graph_computes(seed: int) -> None:
    graph = Graphs(seed)
    before = graph.kernel
    known = run(before, **graph.inputs)
    exact = True
    for each in PASSES:
        after = each.function(before)
        if after is before:
            continue
        verify(after)
        assert same(parse_kernel(str(after), constants=dict(after.constants)), after)
        # Weights are rounded after they were scaled.
        exact = exact and each.name != "scales"
        for got, want in zip(run(after, **graph.inputs), known, strict=True):
            if exact:
                np.testing.assert_array_equal(got, want, err_msg=each.name)
            else:
                size = np.abs(want[np.isfinite(want)]).max(initial=1.0)
                np.testing.assert_allclose(got, want, 2e-5, 2e-5 * float(size), err_msg=each.name)
        assert each.function(after) is after or each.name in ("views", "scales")
        before = after

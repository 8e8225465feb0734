"""ONNX's nodes where onnxruntime differs from the specification: that, and the package's reference
where it has the attribute, say what is right."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tilewright as tw

onnx = pytest.importorskip("onnx")
reference: Any = import_module("onnx.reference")
helper = onnx.helper


def run_both(
    op: str, given: dict[str, Any], known: dict[str, Any], version: int, **attributes: Any
) -> tuple[Any, Any]:
    """The one result that a node gives here, and by the reference."""
    names = ["x", "grid"] if op == "GridSample" else ["x", "", *known]
    names = names if "scales" not in known else ["x", "", "scales"]
    names = names if "sizes" not in known else ["x", "", "", "sizes"]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "model",
        [helper.make_tensor_value_info(n, 1, a.shape) for n, a in given.items()],
        [helper.make_tensor_value_info("y", 1, [None] * 4)],
        [onnx.numpy_helper.from_array(a, n) for n, a in known.items()],
    )
    opsets = [helper.make_opsetid("", version)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    wanted = reference.ReferenceEvaluator(model).run(None, given)[0]
    return tw.compile(tw.from_onnx(model), "interpreter")(**given), wanted


def drawn(*shape: int, scale: float = 1.0) -> Any:
    values = np.random.default_rng(0).normal(size=shape) * scale
    return values.astype(np.float32)


@pytest.mark.parametrize("corners", [0, 1])
def test_cubic_samples_outside_of_the_border_are_its_values(corners: int) -> None:
    """Places are moved to the border before they are weighted."""
    values = {"x": drawn(1, 2, 5, 6), "grid": drawn(1, 4, 4, 2, scale=2.0)}
    settings = {"mode": "cubic", "padding_mode": "border", "align_corners": corners}
    result, wanted = run_both("GridSample", values, {}, 20, **settings)
    np.testing.assert_allclose(result, wanted, atol=1e-5)


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize(
    "known",
    [{"scales": np.float32([1, 1, 2.65, 0.87])}, {"sizes": np.int64([1, 2, 3, 9])}],
    ids=["scales", "sizes"],
)
def test_cubic_weights_without_what_is_outside(mode: str, known: dict[str, Any]) -> None:
    settings = {"coordinate_transformation_mode": mode, "exclude_outside": 1}
    values = {"x": drawn(1, 2, 4, 5)}
    result, wanted = run_both("Resize", values, known, 19, mode="cubic", **settings)
    np.testing.assert_allclose(result, wanted, atol=1e-5)


def test_lstm_clips_what_each_activation_takes() -> None:
    """The cell's state for the last of them, too; the reference does not clip at all."""
    steps, batch, inputs, hidden, limit = 6, 2, 3, 4, 0.3
    arrays = {
        "x": drawn(steps, batch, inputs),
        "w": drawn(1, 4 * hidden, inputs),
        "r": drawn(1, 4 * hidden, hidden),
        "b": drawn(1, 8 * hidden),
    }
    # Of positive numbers, the state grows beyond the limit.
    arrays = {name: np.abs(array) for name, array in arrays.items()}
    node = helper.make_node("LSTM", list(arrays), ["", "", "y"], hidden_size=hidden, clip=limit)
    state = helper.make_tensor_value_info("y", 1, [1, batch, hidden])
    hiddens = helper.make_tensor_value_info("h", 1, [1, batch, hidden])
    node.output[1] = "h"
    graph = helper.make_graph(
        [node],
        "model",
        [helper.make_tensor_value_info(n, 1, a.shape) for n, a in arrays.items()],
        [hiddens, state],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9)
    result = tw.compile(tw.from_onnx(model), "interpreter")(**arrays)

    def clipped(value: Any) -> Any:
        return np.clip(value, -limit, limit)

    def gate(value: Any) -> Any:
        return 1 / (1 + np.exp(-clipped(value)))

    h = c = np.zeros((batch, hidden))
    bias = arrays["b"][0, : 4 * hidden] + arrays["b"][0, 4 * hidden :]
    for x in arrays["x"]:
        i, o, f, g = np.split(x @ arrays["w"][0].T + h @ arrays["r"][0].T + bias, 4, -1)
        c = gate(f) * c + gate(i) * np.tanh(clipped(g))
        h = gate(o) * np.tanh(clipped(c))
    assert np.abs(c).max() > limit  # so that it matters
    np.testing.assert_allclose(result["h"][0], h, atol=1e-5)
    np.testing.assert_allclose(result["y"][0], c, atol=1e-5)

"""ONNX models as graphs: what they compute is what the package's reference says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ArgumentError, ProblemError, UnsupportedError

onnx = pytest.importorskip("onnx")
reference: Any = import_module("onnx.reference")
helper = onnx.helper
FLOAT, INT = 1, 7


def model(
    nodes: list[Any],
    inputs: dict[str, tuple[int, ...]],
    outputs: dict[str, Any],
    constants: dict[str, Any] | None = None,
    version: int = 18,
) -> Any:
    """A model of f32 inputs and outputs (shapes; None: not known)."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in outputs.items()],
        [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)


def check(made: Any, target: str = "interpreter", **arrays: Any) -> Any:
    """The graph's results are the reference's."""
    expected = reference.ReferenceEvaluator(made).run(None, arrays)
    graph = tw.from_onnx(made)
    result = tw.compile(graph, target=target, threads=1)(**arrays)
    results = result if isinstance(result, dict) else {graph.outputs[0]: result}
    assert expected
    for array, wanted in zip(results.values(), expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5)
    return graph


def drawn(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_a_model_of_images() -> None:
    node = helper.make_node
    result = model(
        [
            node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("BatchNormalization", ["c", "g", "g", "m", "g"], ["n"]),
            node("Relu", ["n"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Shape", ["p"], ["s"], end=1),
            node("Concat", ["s", "rest"], ["t"], axis=0),
            node("Reshape", ["p", "t"], ["f"]),
            node("Gemm", ["f", "v"], ["y"], transB=1),
            node("LogSoftmax", ["y"], ["z"]),
        ],
        {"x": (2, 3, 8, 8)},
        {"z": (2, 5)},
        {
            "w": drawn(4, 3, 3, 3),
            "b": drawn(4),
            "g": np.abs(drawn(4)),
            "m": drawn(4),
            "v": drawn(5, 16),
            "rest": np.array([-1]),
        },
    )
    graph = check(result, "x86", x=drawn(2, 3, 8, 8))
    assert graph.inputs == ("x",) and graph.outputs == ("z",)


def test_ops_are_functions_of_others() -> None:
    result = model(
        [
            helper.make_node("Gelu", ["x"], ["a"]),
            helper.make_node("RMSNormalization", ["a", "w"], ["y"]),
        ],
        {"x": (3, 4)},
        {"y": (3, 4)},
        {"w": drawn(4)},
        version=23,
    )
    check(result, x=drawn(3, 4))


def test_integers_of_64_bits_wrap() -> None:
    node = helper.make_node
    nodes = [
        *(node("Mul", ["v", "three"], ["p"]), node("Div", ["p", "three"], ["thirds"])),
        *(node("Add", ["v", "three"], ["s"]), node("Less", ["s", "v"], ["less"])),
    ]
    info = helper.make_tensor_value_info
    three = onnx.numpy_helper.from_array(np.array(3, np.int64), "three")
    outputs = [info("thirds", INT, (3,)), info("less", onnx.TensorProto.BOOL, (3,))]
    graph = helper.make_graph(nodes, "model", [info("v", INT, (3,))], outputs, [three])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    check(result, "x86", v=np.array([2**63 - 1, 2**62, 5]))


def test_loops_and_arms_of_known_control() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["s2"]), helper.make_node("Identity", ["s2"], ["o"])],
        "body",
        [helper.make_tensor_value_info(n, FLOAT, (2,)) for n in ("s", "e")],
        [helper.make_tensor_value_info(n, FLOAT, (2,)) for n in ("s2", "o")],
    )
    scan = helper.make_node("Scan", ["start", "x"], ["end", "all"], num_scan_inputs=1, body=body)
    result = model([scan], {"start": (2,), "x": (3, 2)}, {"end": (2,), "all": (3, 2)})
    check(result, start=drawn(2), x=drawn(3, 2))
    arms = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], ["y"])],
            kind,
            [],
            [helper.make_tensor_value_info("y", FLOAT, (3,))],
        )
        for kind in ("Exp", "Neg")
    ]
    node = helper.make_node("If", ["c"], ["z"], then_branch=arms[0], else_branch=arms[1])
    result = model([node], {"x": (3,)}, {"z": (3,)}, {"c": np.array(False)})
    check(result, x=drawn(3))


def test_shapes_that_depend_on_inputs_are_given() -> None:
    graph = helper.make_graph(
        [helper.make_node("Tile", ["x", "r"], ["y"])],
        "tile",
        [
            helper.make_tensor_value_info("x", FLOAT, (2, 3)),
            helper.make_tensor_value_info("r", INT, (2,)),
        ],
        [helper.make_tensor_value_info("y", FLOAT, (None, None))],
    )
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(UnsupportedError, match="shapes depend on the contents of 'r'") as raised:
        tw.from_onnx(result)
    assert raised.value.cure is not None and "known={'r'" in raised.value.cure
    run = tw.compile(tw.from_onnx(result, known={"r": np.array([2, 1])}), target="interpreter")
    assert run(x=drawn(2, 3)).shape == (4, 3)


def test_bad_models(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no ONNX model"):
        tw.from_onnx(3)
    with pytest.raises(ArgumentError, match="cannot be read"):
        tw.from_onnx(tmp_path / "none.onnx")
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"\xff\x01\x02 nothing")
    with pytest.raises(ArgumentError, match="cannot be read as a model"):
        tw.from_onnx(path)
    relu = helper.make_node("Relu", ["x"], ["y"])
    good = model([relu], {"x": (2,)}, {"y": (2,)})
    path.write_bytes(good.SerializeToString())
    assert tw.from_onnx(path).inputs == ("x",)
    with pytest.raises(ArgumentError, match=r"'y' is f32\[2\], not of the shape \[3\]"):
        tw.from_onnx(model([relu], {"x": (2,)}, {"y": (3,)}))
    lying = model([relu], {"x": (2,)}, {"y": (2,)})
    lying.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    with pytest.raises(ArgumentError, match=r"'y' is f32\[2\], not of f64"):
        tw.from_onnx(lying)
    unknown = helper.make_node("Relu", ["q"], ["y"])
    with pytest.raises(ArgumentError, match="ill-formed"):
        tw.from_onnx(model([unknown], {"x": (2,)}, {"y": (2,)}))
    with pytest.raises(ArgumentError, match="ill-formed"):
        tw.from_onnx(model([helper.make_node("Relux", ["x"], ["y"])], {"x": (2,)}, {"y": (2,)}))
    lies = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,)}, {"y": (2,)})
    lies.graph.initializer.append(
        onnx.TensorProto(name="w", data_type=FLOAT, dims=[1 << 40], raw_data=b"1234")
    )
    with pytest.raises(ArgumentError, match=r"cannot be read|ill-formed"):
        tw.from_onnx(lies)
    det = helper.make_node("Det", ["x"], ["y"], name="determinant")
    with pytest.raises(UnsupportedError, match="the op Det is not there") as raised:
        tw.from_onnx(model([det], {"x": (2, 2)}, {"y": ()}))
    assert raised.value.where == "node determinant (Det)"
    newer = model([relu], {"x": (2,)}, {"y": (2,)})
    newer.opset_import[0].version = 99
    with pytest.raises(UnsupportedError, match=r"of version 99[^$]*export it with opset"):
        tw.from_onnx(newer)
    odd = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,)}, {"y": (2,)})
    odd.graph.initializer.append(onnx.TensorProto(name="w", data_type=99, dims=[2]))
    with pytest.raises((UnsupportedError, ArgumentError), match=r"type 99|ill-formed"):
        tw.from_onnx(odd)


# Cases of ONNX's own, by the module that has them: one of each form that the op has.
CASES = {
    "adagrad": ["adagrad_multiple"],
    "adam": ["adam_multiple"],
    "col2im": ["col2im_dilations", "col2im_5d"],
    "compress": ["compress_0", "compress_default_axis"],
    "deformconv": ["deform_conv_with_mask_bias", "deform_conv_with_multiple_offset_groups"],
    "dft": ["dft", "dft_inverse_opset19", "dft_irfft", "dft_rfft"],
    "gridsample": [
        *("gridsample_bicubic", "gridsample_border_padding", "gridsample_reflection_padding"),
        "gridsample_volumetric_nearest_align_corners_0",
    ],
    "gru": ["gru_bidirectional", "gru_batchwise", "gru_with_initial_bias"],
    "if_": ["if"],
    "loop": ["loop11"],
    "lstm": ["lstm_with_peepholes", "lstm_reverse", "lstm_batchwise"],
    "maxunpool": ["maxunpool_export_with_output_shape"],
    "momentum": ["momentum", "nesterov_momentum"],
    "resize": [
        *("resize_tf_crop_and_resize_axes_3_2", "resize_downsample_scales_cubic_antialias"),
        *(
            "resize_downsample_sizes_linear_antialias",
            "resize_upsample_scales_linear_half_pixel_symmetric",
        ),
        "resize_downsample_scales_linear_align_corners",
    ],
    "rnn": ["simple_rnn_bidirectional", "rnn_seq_length"],
    "roialign": ["roialign_aligned_false", "roialign_mode_max"],
    "stft": ["stft_with_window"],
    "tensorscatter": ["tensorscatter_3d", "tensorscatter_circular"],
    "topk": ["top_k_uint64", "top_k_same_values"],
}


@pytest.mark.parametrize("module", CASES)
def test_cases_of_ops(module: str) -> None:
    cases = import_module("onnx_cases")
    import_module(f"onnx.backend.test.case.node.{module}")
    named = {
        case.name: case for case in import_module("onnx.backend.test.case.node")._NodeTestCases
    }
    assert CASES[module]
    for name in CASES[module]:
        assert cases.outcome(named[f"test_{name}"], "interpreter") == ("right", ""), name


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ab,ab,ab", [(2, 3)] * 3),
        ("...ii->...i", [(2, 3, 3)]),
        ("ii", [(4, 4)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
        ("...a,...b->...", [(1, 3, 2), (4, 1, 5)]),
        ("bhqd,bhkd,k->bqh", [(2, 3, 4, 5), (2, 3, 6, 5), (6,)]),
        ("ba", [(2, 3)]),
    ],
)
def test_sums_of_products_by_names(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = {f"x{n}": drawn(*shape) for n, shape in enumerate(shapes)}
    node = helper.make_node("Einsum", list(arrays), ["y"], equation=equation)
    wanted = np.einsum(equation, *arrays.values())
    check(model([node], {n: a.shape for n, a in arrays.items()}, {"y": wanted.shape}), **arrays)


def test_equations_that_do_not_fit() -> None:
    for equation, shape in (
        ("ij,jk->ik", (2, 3)),
        ("ij->ijk", (2, 3)),
        ("i->i", (2, 3)),
        ("00->0", (2, 2)),
        ("\u00b2->\u00b2", (2,)),
        ("...j->0j", (2, 3)),
    ):
        node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
        with pytest.raises((ProblemError, ArgumentError), match=r"equation|ill-formed"):
            tw.from_onnx(model([node], {"x": shape}, {"y": (2,)}))


def resized(array: Any, scales: list[float], **attributes: Any) -> Any:
    """A model that resizes arrays of this type and shape."""
    type_ = helper.np_dtype_to_tensor_dtype(array.dtype)
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "roi", "scales"], ["y"], **attributes)],
        "resized",
        [helper.make_tensor_value_info("x", type_, array.shape)],
        [helper.make_tensor_value_info("y", type_, [None] * array.ndim)],
        [
            onnx.numpy_helper.from_array(np.array(scales, np.float32), "scales"),
            onnx.numpy_helper.from_array(np.array([0.125, -0.25, 1.125, 0.75], np.float32), "roi"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("type_", ["uint8", "int32", "float64"])
def test_images_of_integers_and_of_doubles(type_: str) -> None:
    """Integers are rounded once, to even ones, and kept in range."""
    small = np.array([[10, 20], [30, 41]], type_)
    run = tw.compile(tw.from_onnx(resized(small, [1.5, 1.5], mode="linear")), target="interpreter")
    if type_ != "float64":
        np.testing.assert_array_equal(run(x=small), [[10, 15, 20], [20, 25, 30], [30, 36, 41]])
    most = 2**30 if type_ == "int32" else 255
    image = np.array([[0, most, most - 1, 1], [1, 0, most, 7], [3, most, 0, 2]], type_)
    if type_ == "float64":
        image *= 1 / 3
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    # The reference's weights of cubic are rounded to f32; these are not.
    for scales, attributes in (
        ([1.5, 0.75], {"mode": "linear"}),
        ([2.0, 0.75], {"mode": "linear", **crop}),
        ([2.0, 0.75], {"mode": "nearest", **crop}),
        ([2.0, 0.5], {"mode": "cubic"}),
        ([2.0, 0.5], {"mode": "cubic", "antialias": 1}),
    ):
        result = resized(image, scales, **attributes)
        wanted = reference.ReferenceEvaluator(result).run(None, {"x": image})[0]
        results = tw.compile(tw.from_onnx(result), target="interpreter")(x=image)
        assert results.dtype == wanted.dtype
        np.testing.assert_allclose(results, wanted, rtol=1e-13, err_msg=str(attributes))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers_of_sequences_of_different_lengths(kind: str, direction: str) -> None:
    """Each sequence gives what it gives alone, and zeros behind its end."""
    gates, both = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if direction == "bidirectional" else 1
    steps, batch, inner, hidden = 4, 3, 2, 3
    weights = {
        "w": drawn(both, gates * hidden, inner),
        "r": drawn(both, gates * hidden, hidden),
        "b": drawn(both, 2 * gates * hidden),
    }
    results = ["y", "h", "c"] if kind == "LSTM" else ["y", "h"]
    lengths = [4, 1, 3]

    def run(x: Any, sizes: list[int] | None) -> list[Any]:
        node = helper.make_node(
            kind,
            ["x", "w", "r", "b", *(["s"] if sizes else [])],
            results,
            hidden_size=hidden,
            direction=direction,
            clip=2.0,
        )
        constants = weights | ({"s": np.array(sizes, np.int32)} if sizes else {})
        shapes = dict.fromkeys(results, (both, x.shape[1], hidden))
        shapes["y"] = (x.shape[0], both, x.shape[1], hidden)
        result = model([node], {"x": x.shape}, shapes, constants)
        found = tw.compile(tw.from_onnx(result), target="interpreter")(x=x)
        return [found[output] for output in results]

    x = drawn(steps, batch, inner)
    y, *last = run(x, lengths)
    for n, length in enumerate(lengths):
        alone, *end = run(np.ascontiguousarray(x[:length, n : n + 1]), None)
        np.testing.assert_allclose(y[:length, :, n], alone[:, :, 0], rtol=1e-5, atol=1e-6)
        assert not y[length:, :, n].any()
        for array, wanted in zip(last, end, strict=True):
            np.testing.assert_allclose(array[:, n], wanted[:, 0], rtol=1e-5, atol=1e-6)


def test_a_loop_that_depends_on_data() -> None:
    """Doubles as long as the sum is less than 100."""
    names = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["s2"]),
            helper.make_node("ReduceSum", ["s2"], ["t"], keepdims=0),
            helper.make_node("Less", ["t", "limit"], ["more"]),
        ],
        "body",
        [names("i", INT, ()), names("go", 9, ()), names("s", FLOAT, (2,))],
        [names("more", 9, ()), names("s2", FLOAT, (2,))],
    )
    start = helper.make_node("Identity", ["limit_in"], ["limit"])
    count = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    graph = helper.make_graph(
        [start, count],
        "loop",
        [names("x", FLOAT, (2,)), names("limit_in", FLOAT, ()), names("n", INT, ())],
        [names("y", FLOAT, (2,))],
    )
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    run = tw.compile(tw.from_onnx(result), target="interpreter")
    x = np.array([1, 2], np.float32)
    for n, limit, times in ((10, 100.0, 64), (2, 100.0, 4), (0, 100.0, 1)):
        results = run(x=x, limit_in=np.float32(limit).reshape(()), n=np.array(n))
        np.testing.assert_array_equal(results, x * times)
    # The count is known, and how soon the body's condition ends it is not.
    result = model([start, count], {"x": (2,), "limit_in": ()}, {"y": (2,)}, {"n": np.array(10)})
    run = tw.compile(tw.from_onnx(result), target="interpreter")
    np.testing.assert_array_equal(run(x=x, limit_in=np.array(20, np.float32)), x * 8)
    loop = helper.make_node("Loop", ["", "", "x"], ["y"], body=body)
    endless = model([start, loop], {"x": (2,), "limit_in": ()}, {"y": (2,)})
    with pytest.raises(UnsupportedError, match="neither a count nor a condition"):
        tw.from_onnx(endless)


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes"),
    [
        ("GRU", [(2, 2, 2, 2), (1, 6, 2), (1, 6, 2)], {"hidden_size": 2}),
        ("RoiAlign", [(1, 1, 4, 4), (1,), (1,)], {"sampling_ratio": 2}),
        ("TensorScatter", [(2, 3, 2), (2,), (2,)], {}),
        ("MaxUnpool", [(1, 1, 2), (1, 1, 2)], {"kernel_shape": [2, 2]}),
    ],
)
def test_nodes_that_are_ill_formed(kind: str, shapes: list[Any], attributes: Any) -> None:
    """The package's own checks do not find these."""
    types = {"RoiAlign": (1, 1, 7), "TensorScatter": (1, 1, 7), "MaxUnpool": (1, 7)}
    names = [f"x{n}" for n in range(len(shapes))]
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["y"], **attributes)],
        "bad",
        [
            helper.make_tensor_value_info(name, type_, shape)
            for name, type_, shape in zip(names, types.get(kind, (1, 1, 1)), shapes, strict=True)
        ],
        [helper.make_tensor_value_info("y", FLOAT, [None, None])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    with pytest.raises(
        (ArgumentError, UnsupportedError), match=r"is not defined on|an update of"
    ) as raised:
        tw.from_onnx(made)
    assert raised.value.where == f"node y ({kind})"
    if kind != "TensorScatter":  # which is checked by what reads it
        assert raised.value.cure is not None
        for name, value in attributes.items():
            assert f"{name}={value}" in raised.value.what


@pytest.mark.parametrize("target", ["interpreter", "x86"])
def test_nan_is_the_greatest_of_no_window(target: str) -> None:
    """ONNX's reference compares by ``>``: values and places are those of numbers, as in
    onnxruntime where it gives places."""
    x = drawn(1, 2, 6, 6)
    x[0, :, 0, 0] = x[0, 0, 2:4, 4] = np.nan
    x[0, 1, 4:, 4:] = np.nan
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2], strides=[2, 2])
    result = model([node], {"x": x.shape}, {"y": (1, 2, 3, 3)})
    places = helper.make_tensor_value_info("places", INT, (1, 2, 3, 3))
    result.graph.output.append(places)
    results = tw.compile(tw.from_onnx(result), target=target, threads=1)(x=x)
    numbers = np.where(np.isnan(x), -np.inf, x).reshape(2, 3, 2, 3, 2).transpose(0, 1, 3, 2, 4)
    wanted = numbers.reshape(2, 3, 3, 4).max(-1)
    np.testing.assert_array_equal(results["y"][0], wanted)
    known = np.isfinite(wanted)
    assert known.sum() == 17
    np.testing.assert_array_equal(x.reshape(-1)[results["places"][0][known]], wanted[known])


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_nan_is_the_greatest_and_the_least_element(kind: str, last: int) -> None:
    """As in numpy, by which ONNX's reference says it."""
    x = drawn(3, 8)
    x[0, [2, 5]] = x[1, 0] = np.nan
    node = helper.make_node(kind, ["x"], ["y"], axis=1, keepdims=0, select_last_index=last)
    result = model([node], {"x": x.shape}, {})
    result.graph.output.append(helper.make_tensor_value_info("y", INT, (3,)))
    check(result, x=x)


def body(inputs: int, outputs: int) -> Any:
    """A body whose results are all the model's ``x``."""
    names = [f"i{n}" for n in range(inputs)]
    return helper.make_graph(
        [helper.make_node("Identity", ["x"], [f"o{n}"]) for n in range(outputs)],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [None, None]) for name in names],
        [helper.make_tensor_value_info(f"o{n}", FLOAT, [None, None]) for n in range(outputs)],
    )


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("If", ["none"], {"then_branch": body(0, 1), "else_branch": body(0, 1)}),
        ("If", ["true"], {"then_branch": body(0, 2), "else_branch": body(0, 2)}),
        ("If", ["flag"], {"then_branch": body(0, 2), "else_branch": body(0, 2)}),
        ("Loop", ["none", "", "x"], {"body": body(3, 2)}),
        ("Loop", ["", "none", "x"], {"body": body(3, 2)}),
        ("Loop", ["true", "", "x"], {"body": body(1, 2)}),
        ("Scan", ["x"], {"body": body(1, 1), "num_scan_inputs": 0}),
        *(
            ("Scan", ["x"], {"body": body(1, 1), "num_scan_inputs": 1, name: [0, 0]})
            for name in ("scan_input_axes", "scan_input_directions", "scan_output_axes")
        ),
    ],
)
def test_bodies_that_do_not_fit(kind: str, inputs: list[str], attributes: Any) -> None:
    """The error names the node and its attributes."""
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, ["y"], **attributes)],
        "bad",
        [
            helper.make_tensor_value_info("x", FLOAT, (2, 2)),
            helper.make_tensor_value_info("flag", 9, ()),
        ],
        [helper.make_tensor_value_info("y", FLOAT, [None, None])],
        [
            onnx.numpy_helper.from_array(
                np.zeros(0, np.bool_ if kind == "If" else np.int64), "none"
            ),
            onnx.numpy_helper.from_array(
                np.ones((), np.bool_ if kind == "If" else np.int64), "true"
            ),
        ],
    )
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(ArgumentError, match=f"{kind} is not defined on") as raised:
        tw.from_onnx(result)
    assert raised.value.where == f"node y ({kind})"
    for name, value in attributes.items():
        shown = "a GraphProto" if isinstance(value, onnx.GraphProto) else str(value)
        assert f"{name}={shown}" in raised.value.what


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(15))
def test_backend_cases(part: int) -> None:
    """One in ten of the cases: none is wrong."""
    cases = import_module("onnx_cases")
    names = list(cases.cases())[part::150]
    assert len(names) > 5
    for name in names:
        result, why = cases.outcome(cases.cases()[name])
        assert result != "wrong", f"{name}: {why}"

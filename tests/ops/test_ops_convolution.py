"""Convolution in its three directions against float64, over shapes, types and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from op_runs import execute, integers, rounded
from tilewright.dtypes import bf16, f16, f32, f64, s8, s32, u8
from tilewright.errors import UnsupportedError
from tilewright.layout.roles import Role, roles
from tilewright.ops.attributes import Attributes
from tilewright.ops.convolution import Convolution, convolution_op
from tilewright.problems import ConvProblem, Direction, Policy, Scale, Unary, ZeroPoint
from tilewright.testing import reference

SHAPES = [
    "ic4ih5oc6kh3ph1",
    "ic3ih6iw4oc5kh3kw2sh2ph1pw0",
    "g2ic4ih5oc6kh3ph1",
    'g4ic4ih6oc4kh3sh2ph1n"depthwise"',
    'g2ic2ih5oc6kh3n"channel_multiplier"',
    'ic3iw9oc5kw3sw2pw1dw1n"1d"',
    'ic2id3ih4iw5oc3kd2kh3kw2pd1ph1pw0n"3d"',
    'ic3ih4oc2oh2kh5sh3ph2n"kernel_larger_than_image"',
    'ic2ih7oc3oh3kh1sh3ph0n"stride_over_kernel"',
    'ic2ih5oh5oc3kh2ph0n"asymmetric"',
    'ic2iw5ow1oc3kw3sw2pw0n"ow1_stride2"',
    'ic2ih3oh9oc2kh2ph3n"rows_of_padding"',
    'ic2ih9oh3oc2kh1sh3ph1dh1n"unread_end"',
    "ic1ih1oc1kh1",
]
LAYOUTS = [
    {},
    {"src": "axb", "dst": "axb"},
    {"src": "aBx4b", "dst": "aBx16b"},
    {"src": "abx", "dst": "aBx2b"},
]


def _window(problem: ConvProblem) -> dict[str, Any]:
    return {
        "stride": problem.stride,
        "dilation": problem.dilation,
        "left": problem.pad_l,
        "groups": problem.g,
    }


def _forward(problem: ConvProblem, src: Any, weights: Any, bias: Any = None) -> Any:
    window = _window(problem)
    right = problem.pad_r
    return reference.convolution_forward(src, weights, bias=bias, right=right, **window)


def _data(problem: ConvProblem, types: Any = None) -> dict[str, Any]:
    types = types or dict.fromkeys(("src", "weights", "dst"), f32)
    shapes = problem.shapes
    return {name: integers(shapes[name], types[name], i) for i, name in enumerate(shapes)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layouts", LAYOUTS, ids=str)
def test_forward(shape: str, layouts: dict[str, str]) -> None:
    problem = ConvProblem.parse(shape)
    data = _data(problem)
    result = execute(convolution_op(problem, layouts=layouts), **data)
    np.testing.assert_array_equal(result["dst"], _forward(problem, data["src"], data["weights"]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layouts", LAYOUTS[1:3], ids=str)
def test_backward_by_data(shape: str, layouts: dict[str, str]) -> None:
    problem = ConvProblem.parse(shape)
    data = _data(problem)
    result = execute(convolution_op(problem, Direction.BWD_D, layouts=layouts), **data)
    wanted = reference.convolution_backward_data(
        data["dst"], data["weights"], src_shape=problem.src_shape, **_window(problem)
    )
    np.testing.assert_array_equal(result["src"], wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_backward_by_weights_with_bias(shape: str) -> None:
    problem = ConvProblem.parse(shape)
    data = _data(problem)
    tag = "ABx4b2a" if problem.g == 1 else "aBCx4c2b"
    op = convolution_op(problem, Direction.BWD_WB, layouts={"src": "axb", "weights": tag})
    result = execute(op, **data)
    wanted = reference.convolution_backward_weights(
        data["src"], data["dst"], weights_shape=problem.weights_shape, **_window(problem)
    )
    np.testing.assert_array_equal(result["weights"], wanted)
    np.testing.assert_array_equal(result["bias"], reference.convolution_backward_bias(data["dst"]))
    without = execute(convolution_op(problem, Direction.BWD_W), **data)
    assert list(without) == ["weights"]


@pytest.mark.parametrize(
    ("src", "weights", "dst", "accumulator"),
    [
        (bf16, bf16, bf16, f32),
        (bf16, bf16, f32, f32),
        (f16, f16, f16, f32),
        (f64, f64, f64, f64),
        (u8, s8, s32, s32),
        (u8, s8, s8, s32),
        (s8, s8, u8, s32),
        (u8, s8, f32, s32),
        (f16, s8, f16, f32),
    ],
    ids=str,
)
def test_types(src: Any, weights: Any, dst: Any, accumulator: Any) -> None:
    problem = ConvProblem.parse("g2ic6ih5oc4kh3ph1")
    types = {"src": src, "weights": weights, "dst": dst}
    data = _data(problem, types)
    op = convolution_op(problem, types=types)
    assert op.accumulator is accumulator
    exact = _forward(problem, data["src"], data["weights"])
    np.testing.assert_array_equal(execute(op, **data)["dst"], rounded(exact, dst))


def test_weights_in_every_blocked_form() -> None:
    problem = ConvProblem.parse("ic5ih4oc6kh3ph1")
    data = _data(problem)
    wanted = _forward(problem, data["src"], data["weights"])
    for tag in ("oihw", "hwio", "ohwi", "OIhw4i4o", "OIhw4i16o4i", "Ohwi8o", "ABcd2a4b", "any"):
        op = convolution_op(problem, layouts={"weights": tag})
        np.testing.assert_array_equal(execute(op, **data)["dst"], wanted)


def test_strides_as_layout() -> None:
    problem = ConvProblem.parse("mb2ic3ih4oc2kh1")
    data = _data(problem)
    op = convolution_op(problem, layouts={"dst": (64, 1, 16, 3), "src": (0, 16, 4, 1)})
    src = np.broadcast_to(data["src"][:1], data["src"].shape)
    result = execute(op, **(data | {"src": src}))
    np.testing.assert_array_equal(result["dst"], _forward(problem, src, data["weights"]))


def test_masks_stand_only_where_padding_is() -> None:
    def main(shape: str, direction: Direction = Direction.FWD_D) -> Any:
        kernel = convolution_op(ConvProblem.parse(shape), direction).kernel()
        return next(s for s in kernel.body.body if getattr(s, "name", "") == "main")

    def masked(text: str, *direction: Direction) -> int:
        mask = main(text, *direction).operands[0].view.mask
        return 0 if mask is None else repr(mask).count("and") + 1

    assert masked("ic3ih6oc4kh3") == 0
    assert masked("ic3ih6oc4kh3ph1") == 4
    assert masked("ic3ih6iw9oc4kh3kw1ph1pw0") == 2
    assert masked("ic3ih7oc4kh3sh2ph1") == 4
    assert masked("ic3ih6oc4kh3sh2ph1") == 2  # the last window ends inside
    assert masked("ic3ih6oc4kh1", Direction.BWD_D) == 0
    assert masked("ic3ih6oc4kh1sh2", Direction.BWD_D) == 2  # divisibility only


def test_roles_follow_from_views() -> None:
    wanted = {
        Direction.FWD_D: "mb:m g:batch oc:n oh:m ow:m ic:k kh:k kw:k",
        Direction.BWD_D: "mb:m g:batch ic:n ih:m iw:m oc:k kh:k kw:k",
        Direction.BWD_W: "g:batch oc:n ic:m kh:m kw:m mb:k oh:k ow:k",
    }
    for direction, text in wanted.items():
        kernel = convolution_op(ConvProblem.parse("g2ic4ih5oc6kh3ph1"), direction).kernel()
        main = next(s for s in kernel.body.body if getattr(s, "name", "") == "main")
        assert " ".join(f"{n}:{role.value}" for n, role in roles(main).items()) == text
        assert Role.BATCH in roles(main).values()


def test_arguments_are_inputs_then_results() -> None:
    problem = ConvProblem.parse("ic4ih5oc6kh3")

    def names(direction: Direction) -> list[str]:
        op: Convolution = convolution_op(problem, direction)
        assert [p.name for p in op.kernel().params] == [a.name for a in op.arguments]
        return [f"{a.access} {a.name}" for a in op.arguments]

    assert names(Direction.FWD_B) == ["in src", "in weights", "in bias", "out dst"]
    assert names(Direction.BWD_D) == ["in dst", "in weights", "out src"]
    assert names(Direction.BWD_WB) == ["in src", "in dst", "out weights", "out bias"]


def test_transposed_convolution_has_an_epilogue() -> None:
    problem = ConvProblem.parse("ic3ih7oc4kh3sh2")
    data = _data(problem) | {"bias": np.array([1.0, -20.0, 3.0])}
    attributes = Attributes(bias=f32, post_ops=(Unary("relu"),))
    result = execute(convolution_op(problem, Direction.BWD_D, attributes=attributes), **data)
    plain = reference.convolution_backward_data(
        data["dst"], data["weights"], src_shape=problem.src_shape, **_window(problem)
    )
    wanted = np.maximum(plain + data["bias"].reshape(3, 1, 1), 0)
    np.testing.assert_array_equal(result["src"], wanted)


def test_backward_refuses_what_it_does_not_take() -> None:
    problem = ConvProblem.parse("ic4ih5oc6kh3")
    for values in (
        Attributes(scales=(Scale("src", value=0.5),)),
        Attributes(post_ops=(Unary("relu"),)),
    ):
        with pytest.raises(UnsupportedError, match="BWD_W takes no scales, zero points and post-o"):
            convolution_op(problem, Direction.BWD_W, attributes=values)


@pytest.mark.parametrize("target", ["interpreter", "x86"])
def test_a_gradient_by_data_is_quantized_as_a_transposed_convolution(target: str) -> None:
    """What it multiplies is ``src`` to attributes, and its result ``dst``."""
    conv, g = ConvProblem.parse("mb2ic3ih7oc4oh4kh3sh2ph1"), np.random.default_rng(0)
    attributes = Attributes(
        scales=(
            Scale("src", value=0.5),
            Scale("weights", Policy("per_dim_1")),
            Scale("dst", value=4),
        ),
        zero_points=(ZeroPoint("src", value=3), ZeroPoint("dst", value=-2)),
    )
    types, tags = (
        {"src": s8, "weights": s8, "dst": u8},
        dict(src="nchw", weights="oihw", dst="nchw"),
    )
    op = convolution_op(conv, Direction.BWD_D, types, tags, attributes)
    x = g.integers(0, 9, conv.dst_shape).astype(np.uint8)
    w = g.integers(-4, 5, conv.weights_shape).astype(np.int8)
    factors = np.array([1, 2, 0.5], np.float32)
    result = tw.compile(op, target)(dst=x, weights=w, weights_scale=factors)
    # Each element of the one image adds its products with the taps to the other.
    wide, total = np.zeros((2, 3, 9, 9)), x.astype(np.float64) - 3
    for row, column in np.ndindex(4, 4):
        part = np.einsum("no,oikl->nikl", total[:, :, row, column], w.astype(np.float64))
        wide[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3] += part
    wanted = wide[:, :, 1:8, 1:8] * 0.5 * factors[:, None, None] / 4 - 2
    np.testing.assert_array_equal(result, np.clip(np.rint(wanted), -128, 127))


def test_an_op_is_a_value() -> None:
    problem = ConvProblem.parse("ic4ih5oc6kh3")
    first, second = convolution_op(problem), convolution_op(problem)
    assert first == second
    assert hash(first) == hash(second)
    blocked = first.with_layouts(weights="OIhw4i16o4i")
    assert blocked != first
    assert blocked.layout_of("weights") == "OIhw4i16o4i"
    assert blocked.argument("weights").layout.padded_shape(4) == (16, 16, 3, 3)
    assert first.kernel() is first.kernel()

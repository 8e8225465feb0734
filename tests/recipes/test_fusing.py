"""Kernels as one kernel: the code that comes of it, its results, and the report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from fusion_cases import (
    add,
    add_bias,
    chain,
    halve_positive,
    member,
    mirror,
    relu_in_place,
    scale,
    scale_and_add,
    twos,
)
from needs import needs_opencl, needs_x86
from tilewright.engine.request import request_of
from tilewright.errors import InterpreterFault
from tilewright.ir.constants import digest_of
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.fusing import fuse
from tilewright.schedule.fusion.members import Fusion, Member
from tilewright.schedule.groups import cut
from tilewright.targets.registry import find_target

TARGETS = (
    "interpreter",
    pytest.param("x86", marks=needs_x86),
    pytest.param("spirv", marks=needs_opencl),
)


def fused(fusion: Fusion) -> Kernel:
    kernel = fuse(fusion).kernel
    assert kernel is not None
    return kernel


def machine() -> Machine:
    return find_target("x86").machine


@pytest.mark.parametrize("local", [None, 64])
def test_a_chain_is_the_kernel_that_is_written_as_one(local: int | None) -> None:
    ours = fused(chain((scale, "axt"), (add, "ty"), local=local, promote={"t": "private"}))
    theirs = fused(chain((scale_and_add, "axy"), local=local))
    text = str(ours).replace("t_2", "t")
    assert text.split("  grid", 1)[1] == str(theirs).split("  grid", 1)[1]
    assert [param.name for param in ours.params] == ["a", "n", "x_0", "x", "y_0", "y"]


@needs_x86
def test_a_chain_has_the_code_of_the_kernel_that_is_written_as_one() -> None:
    code = []
    for steps in ([(scale, "axt"), (add, "ty")], [(scale_and_add, "axy")]):
        fusion = chain(*steps, size=4096, promote={"t": "any"} if len(steps) == 2 else {})
        code.append(tw.compile(fused(fusion), target="x86:avx512").source("asm"))
    assert code[0] == code[1]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [None, 256])
def test_a_chain_runs(target: str, size: int | None) -> None:
    fusion = chain(
        (scale, "axt"),
        (halve_positive, "tu"),
        (add, "uy"),
        size=size,
        promote=dict.fromkeys("tu", "any"),
    )
    kernel = fused(fusion)
    # Without sizes, nothing says that all that is added was halved.
    left = ["u"] if size is None else []
    assert [p.name for p in kernel.arrays] == ["x", *left, "y"]
    x, y = (np.linspace(-1, 1, 256, dtype=np.float32) + k for k in range(2))
    t = np.float32(3.0) * x
    expected = np.where(t > 0, t * np.float32(0.5), t) + y
    others = {"n": 256, "t_0": 256, "u": np.zeros_like(x)} if left else {}
    tw.compile(kernel, target=target)(a=3.0, x=x, y=y, **others)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_workgroup_hands_on_is_in_its_memory(
    target: str, golden: Callable[[str, str], None]
) -> None:
    fusion = chain((scale, "axt"), (mirror, "ty"), size=256, local=64, promote={"t": "any"})
    result = fuse(fusion, machine())
    assert result.kernel is not None
    golden("fusion_local", str(result.kernel))
    assert result.report.buffers["t"].promoted == "local"
    assert result.report.barriers == (1,)
    assert result.report.bytes_saved == 2 * 4 * 256
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    tw.compile(result.kernel, target=target)(a=2.0, x=x, y=y)
    np.testing.assert_array_equal(y, 2 * x.reshape(-1, 64)[:, ::-1].ravel())


def test_a_work_item_has_several_elements() -> None:
    fusion = chain((twos, "xt"), (twos, "ty"), size=256, promote={"t": "private"})
    kernel = fused(fusion)
    assert "alloc t: f32[2] private" in str(kernel)
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    tw.compile(kernel, target="interpreter")(x=x, y=y)
    np.testing.assert_array_equal(y, x)


def test_the_same_kernel_stands_there_several_times() -> None:
    steps = [(scale, "axt"), (scale, "atu"), (scale, "auy")]
    kernel = fused(chain(*steps, promote=dict.fromkeys("tu", "any")))
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    tw.compile(kernel, target="interpreter")(a=2.0, x=x, y=y, n=100)
    np.testing.assert_array_equal(y, 8 * x)


def test_constants_become_code() -> None:
    fusion = chain((scale, "axt"), (add, "ty"), promote={"t": "any"}, constants={"a": 0.5})
    kernel = fused(fusion)
    assert "a" not in {param.name for param in kernel.params}
    assert "0.5 * x[" in str(kernel)


def test_constants_beside_kernels_are_passed_by_none() -> None:
    table = np.arange(64, dtype=np.float32)
    digest = digest_of(table)
    text = f"""
kernel look(in x: f32[64], constant table: f32[64] = {digest}, out y: f32[64]):
  grid for g in 1:
    workgroup for i in 64:
      y[i] = x[i] + table[63 - i]
"""
    look = tw.parse_kernel(text, constants={digest: table})
    members = Member(look, {"x": "x", "y": "t"}), Member(look, {"x": "t", "y": "y"})
    kernel = fused(Fusion(members, promote={"t": "any"}))
    assert [param.name for param in kernel.arrays] == ["x", "table", "y"]
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    tw.compile(kernel, target="interpreter")(x=x, y=y)
    np.testing.assert_array_equal(y, 1 + 2 * table[::-1])


CONVOLUTION = "mb1ic8ih6oc16kh3ph1"
TAGS = {"src": "abcd", "weights": "abcd", "dst": "abcd"}


def channelwise(name: str, value: str, operand: str) -> Kernel:
    """A kernel of one compute, in text: ``operand`` has a number for each channel."""
    values = f"in {operand}: f32[16], " if operand else ""
    load = f"{operand}_c = {operand}[c]" if operand else ""
    return tw.parse_kernel(f"""
kernel {name}({values}in x: f32[1, 16, 6, 6], out y: f32[1, 16, 6, 6]):
  compute {name}(n in 1, c in 16, h in 6, w in 6):
    x = x[n, c, h, w]
    {load}
    y[n, c, h, w] = {value}
""")


def convolution_and_epilogue() -> Fusion:
    op = request_of(tw.convolution(CONVOLUTION, **TAGS)).start().kernel
    return Fusion(
        (
            Member(op, {"src": "src", "weights": "weights", "dst": "sums"}),
            Member(channelwise("scale", "s_c * x", "s"), {"s": "s", "x": "sums", "y": "t"}),
            Member(channelwise("bias", "x + b_c", "b"), {"b": "b", "x": "t", "y": "u"}),
            Member(channelwise("relu", "max(x, 0.0)", ""), {"x": "u", "y": "dst"}),
        ),
        promote=dict.fromkeys(("sums", "t", "u"), "any"),
    )


def test_a_convolution_and_what_follows_are_one_with_an_epilogue() -> None:
    result = fuse(convolution_and_epilogue(), machine())
    assert result.kernel is not None
    assert [group.contracts for group in cut(result.kernel).groups] == [True]
    op = tw.convolution(CONVOLUTION, **TAGS, epilogue=[tw.bias(), tw.relu()])
    ours = tw.compile(result.kernel, target="x86:avx512").config
    theirs = tw.compile(op, target="x86:avx512").config
    assert (ours.instruction, ours.tile["n"], ours.tile["m2"]) == (
        theirs.instruction,
        theirs.tile["oc"],
        theirs.tile["ow"],
    )
    assert {n for n, buffer in result.report.buffers.items() if buffer.promoted} == {
        "sums",
        "t",
        "u",
    }
    assert result.report.predicted is not None
    assert result.report.predicted.gain > 1
    assert result.report.predicted.usual is None


@needs_x86
def test_a_convolution_and_what_follows_are_right() -> None:
    draw = np.random.default_rng(5)
    src, weights, s, b = (
        draw.standard_normal(shape, np.float32)
        for shape in ((1, 8, 6, 6), (16, 8, 3, 3), (16,), (16,))
    )
    dst = np.zeros((1, 16, 6, 6), np.float32)
    run = tw.compile(fused(convolution_and_epilogue()), target="x86")
    run(src=src, weights=weights, s=s, b=b, out=dst)
    plain = tw.compile(tw.convolution(CONVOLUTION, **TAGS), target="x86")(src=src, weights=weights)
    expected = np.maximum(plain * s[None, :, None, None] + b[None, :, None, None], 0)
    np.testing.assert_allclose(dst, expected, rtol=1e-5, atol=1e-5)


def test_work_items_become_the_epilogue_of_a_product() -> None:
    product = request_of(tw.matmul("64x32:32x48")).start().kernel
    sizes = {"x_0": 64, "x_1": 48, "global_0": 64, "global_1": 48}
    bias = {"x": "t", "b": "b", "y": "y", "b_0": 48, "y_0": 64, "y_1": 48, **sizes}
    members = (
        Member(product, {"src": "src", "weights": "w", "dst": "t"}),
        Member(add_bias.over(2), bias),
        Member(relu_in_place.over(2), {"x": "y", **sizes}),
    )
    kernel = fused(Fusion(members, promote={"t": "any"}))
    assert [group.contracts for group in cut(kernel).groups] == [True]
    op = tw.matmul("64x32:32x48", epilogue=[tw.bias(), tw.relu()])
    ours, theirs = (tw.compile(what, target="x86:avx512").config for what in (kernel, op))
    assert (ours.tile, ours.order) == (theirs.tile, theirs.order)


@tw.kernel
def add_channels(x: tw.array("f32", 1), b: tw.array("f32", 1)):
    i = tw.global_id(0)
    x[i] = x[i] + b[i // 36 % 16]


def test_work_items_on_all_elements_in_line_become_an_epilogue() -> None:
    """A kernel's array of one dim is the convolution's result."""
    op = request_of(tw.convolution(CONVOLUTION, **TAGS)).start().kernel
    sizes = {"x_0": 576, "global_0": 576}
    members = (
        Member(op, {"src": "src", "weights": "weights", "dst": "dst"}),
        Member(add_channels.over(1), {"x": "dst", "b": "b", "b_0": 16, **sizes}),
    )
    kernel = fused(Fusion(members))
    assert [group.contracts for group in cut(kernel).groups] == [True]
    assert "dst[0, i1, i2, i3] = dst2 + b3" in str(kernel)


@pytest.mark.parametrize("first", ["rows", "line"])
def test_memory_of_another_shape_is_the_same_memory(first: str) -> None:
    sizes = {"x_0": 8, "x_1": 64, "y_0": 8, "y_1": 64, "b_0": 64, "global_0": 8, "global_1": 64}
    rows = Member(add_bias.over(2), {"x": "x", "b": "b", "y": "t", **sizes})
    line = member(scale, "aty", 512)
    if first == "line":
        line = member(scale, "axt", 512)
        rows = Member(rows.kernel, {**rows.arguments, "x": "t", "y": "y"})
    members = (rows, line) if first == "rows" else (line, rows)
    result = fuse(Fusion(members, promote={"t": "any"}))
    assert result.kernel is not None
    assert result.report.buffers["t"].promoted == "private"
    shapes = {param.name: param.buffer.shape for param in result.kernel.arrays}
    x, b = np.arange(512, dtype=np.float32), np.arange(64, dtype=np.float32)
    y = np.zeros(shapes["y"], np.float32)
    tw.compile(result.kernel, target="interpreter")(a=2.0, x=x.reshape(shapes["x"]), b=b, y=y)
    expected = 2 * (x.reshape(8, 64) + b) if first == "rows" else 2 * x.reshape(8, 64) + b
    np.testing.assert_array_equal(y.reshape(8, 64), expected)


# Ranges that differ.


@pytest.mark.parametrize(("first", "second"), [(256, 64), (64, 256)])
@pytest.mark.parametrize("local", [None, 64])
def test_ranges_of_two_lengths(first: int, second: int, local: int | None) -> None:
    """What a shorter range writes is not all that a longer one reads."""
    sizes = {"x_0": 256, "t_0": 256}
    members = tuple(
        Member(scale.over(1, local=local), {"a": 2.0, "x": x, "t": t, "global_0": n, **sizes})
        for x, t, n in (("x", "t", first), ("t", "y", second))
    )
    result = fuse(Fusion(members, promote={"t": "any"}))
    assert result.kernel is not None
    promoted = result.report.buffers["t"].promoted
    assert promoted == ("private" if first > second else None)
    x, t, y = np.arange(256, dtype=np.float32), *np.ones((2, 256), np.float32)
    others = {} if promoted else {"t": t}
    tw.compile(result.kernel, target="interpreter")(x=x, y=y, **others)
    written = np.where(np.arange(256) < first, 2 * x, 1)
    np.testing.assert_array_equal(y, np.where(np.arange(256) < second, 2 * written, 1))


# What is told wrong.


def test_races_of_what_is_trusted_are_found() -> None:
    steps = [(scale, "axt"), (mirror, "ty")]
    fusion = chain(*steps, size=128, local=64, trust=True, barriers=False)
    kernel = fused(fusion)
    x, t, y = (np.ones(128, np.float32) for _ in range(3))
    with pytest.raises(InterpreterFault, match="race"):
        tw.compile(kernel, target="interpreter")(a=2.0, x=x, t=t, y=y)


def test_reads_of_what_was_never_written_are_found() -> None:
    fusion = chain((add, "ty"), (scale, "axt"), size=128, trust=True, promote={"t": "private"})
    kernel = fused(fusion)
    x, y = (np.ones(128, np.float32) for _ in range(2))
    with pytest.raises(InterpreterFault, match="uninitialized"):
        tw.compile(kernel, target="interpreter")(a=2.0, x=x, y=y)


def test_the_report_is_a_table() -> None:
    report = fuse(chain((scale, "axt"), (add, "ty"), size=256, promote={"t": "any"})).report
    assert (
        str(report)
        == """\
fused: scale, add
buffer  promoted  bytes saved  why
x       no                     no member writes it
t       private   2048         proved
y       no                     it may be read afterwards
barriers: none"""
    )
    refused = fuse(Fusion(()), require=False).report
    assert str(refused).startswith("not fused: \nno kernels to fuse")


def test_predicted_times_of_ranges_that_calls_pass_say_which_sizes_they_are_for() -> None:
    report = fuse(chain((scale, "axt"), (add, "ty"), promote={"t": "any"}), machine()).report
    assert report.predicted is not None and report.predicted.usual == 1024
    assert str(report).endswith(" x, with sizes of 1024)")

"""Kernels as one kernel: the code that comes of it, its results, and the report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from fusion_cases import add, chain, halve_positive, member, mirror, scale, scale_and_add, twos
from needs import needs_opencl, needs_x86
from tilewright.engine.request import request_of
from tilewright.errors import InterpreterFault
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
    assert [each.name for each in ours.params] == ["a", "n", "x_0", "x", "y_0", "y"]


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


CONVOLUTION = "mb1ic8ih6oc16kh3ph1"
TAGS = {"src": "abcd", "weights": "abcd", "dst": "abcd"}


def channelwise(name: str, value: str, operand: str) -> Kernel:
    """A kernel of one compute, in text: ``operand`` has a number for each channel."""
    given = f"in {operand}: f32[16], " if operand else ""
    load = f"{operand}_c = {operand}[c]" if operand else ""
    return tw.parse_kernel(f"""
kernel {name}({given}in x: f32[1, 16, 6, 6], out y: f32[1, 16, 6, 6]):
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
    assert {n for n, each in result.report.buffers.items() if each.promoted} == {"sums", "t", "u"}
    assert result.report.predicted is not None
    assert result.report.predicted.gain > 1


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


# Ranges that differ.


def test_a_shorter_range_leaves_workgroups_out() -> None:
    fusion = Fusion((member(scale, "axt", 256, 64), member(scale, "aty", 128, 64)))
    assert_refused_sizes(fusion)


def assert_refused_sizes(fusion: Fusion) -> None:
    with pytest.raises(tw.TilewrightError, match="memory of one name has one type"):
        fuse(fusion)


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

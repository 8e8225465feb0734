"""How objects print: in a line, or as the call that makes them; and as HTML, in notebooks."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import small
from tilewright.engine.trace import Trace
from tilewright.ir.compare import difference
from tilewright.ir.parser import parse_kernel
from tilewright.ops.op import Op
from tilewright.problems import DRIVERS, LIBRARY, Direction, parse_unary
from tilewright.recipes.config import parse_config
from tilewright.recipes.parts.forms import Choices
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case
from tilewright.testing.random_problems import random_cases

CALLS = [
    "tw.convolution('mb1ic16ih14iw14oc32kh3kw3ph1pw1', dtype='bf16', src='nhwc', dst='nhwc', "
    "epilogue=[tw.bias(), tw.add('residual'), tw.relu()])",
    "tw.convolution('mb1ic4ih5iw5oc6kh3kw3', direction='bwd_data', accumulator='f64')",
    "tw.matmul('4x64:64x8', dtype='f32:u4:f32', epilogue=[tw.zero_point('weights', "
    "policy='per_ocic', dtype='u4', group=64), tw.scale('weights', policy='per_ocic', group=64)])",
    "tw.matmul('4x5:5x6', fpmath='bf16', src=(8, 1), weights='ba')",
    "tw.pool('mb1ic3ih6iw6kh2kw2', algorithm='avg_np')",
    "tw.elementwise('8x16', 'elu', 0.5, epilogue=[tw.sum(2.0, zero_point=3), tw.prelu('slope')])",
    "tw.elementwise('2x3:2x1', 'max')",
    "tw.argmin('3x5', axis=0)",
    "tw.rms_norm('4x8', scale=False, eps=0.001)",
    "tw.gather('10x4:6', outside='zero', counted=True, dtype='f32:s64:f32')",
    "tw.sort('3x6', descending=True, axis=0)",
    "tw.softmax('3x5', algorithm='logsoftmax')",
]


@pytest.mark.parametrize("text", CALLS)
def test_ops_print_as_the_call_that_makes_them(text: str) -> None:
    assert made_by(repr(made_by(text))) == made_by(text)
    assert len(repr(made_by(text))) <= len(text) + 80


def made_by(text: str) -> Op:
    """The op of a call."""
    op: Op = eval(text, {"tw": tw})
    return op


@pytest.mark.parametrize("driver", DRIVERS)
def test_calls_of_random_ops_make_the_same(driver: str) -> None:
    """What no call makes prints its fields."""
    calls = 0
    for case in random_cases(driver, 12, 3):
        op = case.op()
        if not repr(op).startswith("tw."):
            assert repr(op) == op.identity
            continue
        again = made_by(repr(op))
        assert difference(again.kernel(), op.kernel()) is None, repr(op)
        assert difference(again.exact_kernel(), op.exact_kernel()) is None, repr(op)
        assert again.accumulator is op.accumulator, repr(op)
        calls += 1
    assert calls >= 3


def test_what_no_call_makes() -> None:
    twice = Case(tw.elementwise("8x16", "relu").problem.with_alg("relu:0:0:2")).op()
    assert parse_unary("relu:0:0:2").scale == 2
    assert repr(twice) == twice.identity and "relu:0:0:2" in repr(twice)
    plain = LIBRARY["lnorm"].parse("4x8").changed(flags="M")
    assert Case(plain, direction=Direction.FWD_D).op().identity.startswith("LibraryOp(")


@pytest.mark.usefixtures("own_cache")
def test_lines() -> None:
    kernel = tw.compile(small(), "x86:avx2", threads=1)
    assert repr(kernel.target) == "find_target('x86:avx2')"
    assert repr(kernel.target.machine) == "<machine x86-avx2>"
    assert repr(kernel.target.machine.instructions[0]) == "<instruction fma_f32x4>"
    for value in (kernel.schedule, kernel.stages["naive"], kernel.module, kernel.start):
        assert len(repr(value)) < 200, value
    assert parse_kernel(str(kernel.stages["naive"])).name == "conv_fwd_b"
    packed = kernel.pack("weights", np.zeros((32, 8, 3, 3), np.float32))
    assert repr(packed) == "Packed(name='weights', device=None)"
    assert repr(tw.parse_schedule(kernel.source("schedule"))).startswith("<schedule of conv_fwd_b")


def test_targets_print_what_finds_them() -> None:
    for name in ("x86", "x86:avx2", "nvidia:sm_80", "interpreter", "spirv:gpu"):
        target = find_target(name)
        assert repr(target) == f"find_target({target.name!r})"
        assert find_target(target.name).name == target.name


def test_schedules_print_how_they_began() -> None:
    schedule = tw.Schedule(tw.matmul("64x128:128x96"), "x86:avx2", constant=("weights",))
    began = "tw.Schedule(tw.matmul('64x128:128x96'), 'x86:avx2', constant=('weights',))"
    assert repr(schedule) == began
    schedule.tile("main", {"m": 4})
    assert repr(schedule) == f"{began}  # and 1 steps"


def test_configs_leave_out_what_is_usual() -> None:
    text = "ElementwiseConfig(vector=8)"
    assert repr(parse_config(text)) == text and "PlainConfig" in Choices.kinds
    assert repr(parse_config("PlainConfig(vector=1)")) == "PlainConfig()"


class _Balance(HTMLParser):
    """Counts what is opened and closed, and keeps the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(what: Any) -> str:
    """The text that a notebook shows of an object."""
    read = _Balance()
    read.feed(what._repr_html_())
    assert not read.open
    return read.text


@pytest.mark.usefixtures("own_cache")
def test_notebooks() -> None:
    trace = Trace()
    kernel = tw.compile(small(), "x86:avx2", threads=1, trace=trace)
    assert "x86:avx2, runs on" in shown(kernel) and repr(kernel.config) in shown(kernel)
    assert "weights" in shown(kernel)
    assert str(kernel.stages["naive"]) in shown(kernel.stages)
    assert shown(kernel.schedule) == shown(kernel.stages)
    assert shown(kernel.stages["naive"]) == str(kernel.stages["naive"])
    assert "vfmadd" in shown(kernel.cost()) and "unknown" not in shown(kernel.cost())
    assert "tensorized" in shown(trace)
    schedule = tw.Schedule(tw.matmul("4x8:8x16"), "x86:avx2")
    schedule.tile("main", {"m": 4})
    assert 'schedule.tile("main", {"m": 4})' in shown(schedule)
    assert shown(schedule.record) == str(schedule.record)


def test_notebooks_show_reports() -> None:
    pytest.importorskip("torch")
    from tilewright.frontends.torch import reports

    graph = reports.GraphReport("graph 0", native=3, programs=1)
    graph.refused["aten.x<1>", "it is not there"] = 2
    said = shown(reports.Report((graph,)))
    assert "graph 0" in said and "aten.x<1>" in said and "it is not there" in said


@tw.kernel
def doubled(x: tw.array("f32", 1), y: tw.array("f32", (16,))) -> None:  # type: ignore[valid-type]
    """Its sizes are those of a call, of one array."""
    i = tw.global_id(0)
    y[i] = x[i] * 2.0


@pytest.mark.usefixtures("own_cache")
def test_flops_of_kernels_that_are_no_op() -> None:
    """They are counted, or unknown, but not 0."""
    text = "kernel k(in a: f32[8], out b: f32[8]):\n  for i in 8:\n    b[i] = a[i] * 2.0 + 1.0\n"
    assert tw.compile(parse_kernel(text), "x86:avx2").cost().flops == 16
    unknown = tw.compile(doubled, "x86:avx2").cost()
    assert unknown.flops is None and "flopsunknown" in shown(unknown)


@pytest.mark.usefixtures("own_cache")
def test_bound_calls_say_what_they_do() -> None:
    kernel = tw.compile(tw.elementwise("4x8", "relu"), threads=1)
    x, y = np.ones((4, 8), np.float32), np.ones((4, 8), np.float32)
    bound = kernel.bind(src=x, dst=y)
    assert bound.__doc__ is not None and "Runs the kernel" in bound.__doc__


def test_the_face_is_what_is_listed() -> None:
    assert {name for name in dir(tw) if not name.startswith("__")} == set(tw.__all__)

"""Schedules that users write or edit: compiled, cached, taken by the command line, refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from compiled import check, small
from tilewright.engine.compile import forget
from tilewright.errors import ArgumentError, ParseError, ScheduleError, UnsupportedError
from tilewright.ir.stmt import LoopKind
from tilewright.machines.x86 import machine
from tilewright.recipes.config import OwnSchedule, parse_config

AVX2 = machine("avx2")
OP = tw.matmul("24x40:40x32")
TARGETS = ("x86:avx2", "spirv:gpu", "nvidia:sm_80")
# A product of three operands, of which the largest is wanted: none of the ops.
LARGEST = """
kernel largest(in a: f32[20, 12], in b: f32[12, 24], in c: f32[12], out y: f32[20, 24]):
  compute start(i in 20, j in 24):
    y[i, j] = -1000.0
  compute products(i in 20, j in 24, k in 12):
    p = a[i, k]
    q = b[k, j]
    r = c[k]
    y[i, j] max= p * q * r
"""


def _products(target: str = "x86:avx2") -> tw.Schedule:
    schedule = tw.Schedule(OP, target)
    m_o, n_o = schedule.tile("main", {"m": 4, "n": 8})
    schedule.set_kind([m_o, n_o], LoopKind.PARALLEL)
    schedule.lower_computes(["main"], vector="n", lanes=8, unroll=["m"], order=["k"])
    return schedule


def test_a_schedule_is_compiled_for_its_target() -> None:
    schedule = _products("x86:sse42")
    schedule.lower_computes()
    kernel = tw.compile(schedule, threads=1)
    assert kernel.target.name == "x86:sse42"
    assert not kernel.packed
    check(kernel)
    assert list(kernel.stages)[:3] == ["naive", "1 tile", "2 set_kind"]
    assert kernel.source("schedule") == schedule.text()


def test_what_recipes_do_is_taken_as_text() -> None:
    default = tw.compile(small(), "x86:avx2")
    text = default.source("schedule")
    kernel = tw.compile(small(), "x86:avx2", schedule=text)
    assert kernel.source("llvm") == default.source("llvm")
    assert kernel.packed == default.packed == ("weights",)
    assert kernel.source("schedule") == text
    check(kernel)
    again = tw.Schedule.replay(small(), tw.parse_schedule(text), "x86:avx2")
    assert tw.compile(again).from_cache


def test_the_text_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    forget()
    schedule = _products()
    schedule.lower_computes()
    assert not tw.compile(schedule).from_cache
    assert tw.compile(schedule).from_cache
    assert not tw.compile(OP, "x86:avx2").from_cache
    assert not tw.compile(OP, "x86:avx2", schedule=schedule.text() + "#\n").from_cache
    forget()
    result = tw.compile(OP, "x86:avx2", schedule=schedule)
    assert result.from_cache and result.config == OwnSchedule(schedule.text())
    check(result)


@pytest.mark.parametrize("target", TARGETS)
def test_an_own_kernel_with_an_own_schedule(target: str) -> None:
    kernel = tw.parse_kernel(LARGEST)
    schedule = tw.Schedule(kernel, target)
    for name in ("start", "products"):
        schedule.tile(name, {"i": 4, "j": 8})
        schedule.lower_computes([name], vector="j", lanes=8, order=["k"], unroll=["i"])
    kind = LoopKind.PARALLEL if target.startswith("x86") else LoopKind.GRID
    schedule.parallelize_parts(16, kind)
    assert "largest" in tw.compile(schedule).source("llvm")
    run = tw.compile(schedule.kernel, "interpreter")
    generator = np.random.default_rng(3)
    a, b, c = (
        generator.integers(-4, 5, shape).astype(np.float32) for shape in ((20, 12), (12, 24), 12)
    )
    expected = (a[:, :, None] * b * c[:, None]).max(axis=1)
    np.testing.assert_array_equal(run(a=a, b=b, c=c), expected)
    np.testing.assert_array_equal(tw.compile(kernel, "interpreter")(a=a, b=b, c=c), expected)


def test_a_kernel_with_constants_may_be_packed() -> None:
    kernel = tw.parse_kernel(LARGEST)
    steps = """
schedule.stage("products", "q", shape="dims", space=Space.GLOBAL, layout=["j", "k"], name="packed")
pack = schedule.hoist_pack("packed")
pack.lower_computes()
schedule.lower_computes()
"""
    result = tw.compile(kernel, "x86:avx2", constant=("b",), schedule=steps)
    assert result.packed == ("b",)
    schedule = tw.Schedule.replay(kernel, steps, "x86:avx2", constant=("b",))
    assert tw.compile(schedule).packed == ("b",)
    with pytest.raises(ScheduleError, match="packs 'b' beforehand, which may change") as caught:
        tw.compile(kernel, "x86:avx2", schedule=steps)
    assert caught.value.cure is not None and 'constant=("b",)' in caught.value.cure


# Refusals.


def test_schedules_of_others_are_refused() -> None:
    schedule = _products()
    schedule.lower_computes()
    text = schedule.text()
    other = tw.matmul("24x40:40x16")
    with pytest.raises(ScheduleError, match=r"for another kernel than this matmul[^$]*strict=F"):
        tw.compile(other, "x86:avx2", schedule=text)
    with pytest.raises(ScheduleError, match=r"for the machine x86-avx2, not for x86-sse42[^$]*str"):
        tw.compile(OP, "x86:sse42", schedule=text)
    with pytest.raises(ScheduleError, match="for another kernel"):
        tw.Schedule.replay(other, text, "x86:avx2")
    check(tw.compile(tw.Schedule.replay(other, text, "x86:avx2", strict=False)))
    check(tw.compile(other, "x86:sse42", schedule=text.partition("\n")[2]))
    reduction = tw.reduce("24x40:24x1")
    with pytest.raises(ScheduleError, match=r"step 1 does not fit: tile: .* no dim 'm'"):
        tw.Schedule.replay(reduction, text, "x86:avx2", strict=False)


def test_what_is_no_code_yet_is_refused() -> None:
    schedule = _products()
    with pytest.raises(
        ScheduleError, match=r"compute 'init' is no loop yet[^$]*lower_computes\(\)"
    ):
        tw.compile(schedule)
    schedule.lower_computes()
    tw.compile(schedule)
    steps = """
schedule.stage("main", "a", shape="box", space=Space.WORKGROUP)
schedule.lower_computes()
"""
    check(tw.compile(OP, "x86:avx2", schedule=steps))  # a thread's memory
    with pytest.raises(ScheduleError, match=r"a workgroup shares [^$]*spirv-gpu has"):
        tw.compile(tw.matmul("256x256:256x256"), "spirv:gpu", schedule=steps)


def test_what_is_no_schedule_is_refused() -> None:
    schedule = _products()
    with pytest.raises(ParseError, match="this is no step"):
        tw.compile(OP, schedule="import os")
    with pytest.raises(ArgumentError, match="3 is no schedule"):
        tw.compile(OP, schedule=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a config and a schedule are given"):
        tw.compile(OP, config="PlainConfig()", schedule=schedule)
    with pytest.raises(ArgumentError, match="a schedule is given for interpreter"):
        tw.compile(schedule, "interpreter")
    with pytest.raises(UnsupportedError, match="there is no target ''"):
        tw.compile(OP, target="")
    with pytest.raises(ArgumentError, match="cannot be compiled"):
        tw.Schedule(3)
    text = repr(OwnSchedule("x" * 400_000))
    assert parse_config(text) == OwnSchedule("x" * 400_000)
    with pytest.raises(ScheduleError, match="too long for a config"):
        parse_config("PlainConfig(" + " " * 10_000 + ")")


def test_a_schedule_of_a_machine_is_to_look_at() -> None:
    schedule = tw.Schedule(OP, AVX2, check=False)
    assert schedule.instruction("fma_f32x8").lanes == 1
    assert "machine x86-avx2;" in str(schedule)


# The command line.


def test_the_command_line_prints_and_takes_schedules(
    tilewright: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = ("matmul", "--target", "x86:avx2", "24x40:40x32")
    shown = tilewright("show", *problem, "--stage", "schedule")
    assert shown.code == 0
    assert shown.lines[0].startswith("# Tilewright schedule, format 2; machine x86-avx2; kernel ")
    Path("steps.py").write_text(shown.out, encoding="utf-8")
    code = tilewright("show", *problem, "--stage", "llvm").out
    again = tilewright("show", *problem, "--stage", "llvm", "--schedule", "steps.py")
    assert again.lines[0] == "# matmul --target=x86:avx2 --schedule=steps.py --dt=f32 24x40:40x32"
    assert again.lines[1:] == code.splitlines()[1:]
    # Edited: another tile.
    changed, count = re.subn(r'("epilogue", {"m": )\d+', r"\g<1>2", shown.out)
    assert count == 1 and changed != shown.out
    Path("steps.py").write_text(changed, encoding="utf-8")
    edited = tilewright("show", *problem, "--stage", "llvm", "--schedule", "steps.py")
    assert edited.code == 0 and edited.lines[1:] != code.splitlines()[1:]
    verified = tilewright("verify", *problem, "--schedule", "steps.py", "--on", "interpreter")
    assert verified.lines[-1] == "1 passed, 0 failed, 0 skipped"


def test_the_command_line_refuses_schedules(
    tilewright: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("steps.py").write_text('schedule.set_kind("x", LoopKind.UNROLLED)\n', encoding="utf-8")
    Path("other.py").write_text("schedule.set_kind(x, LoopKind.UNROLLED)\n", encoding="utf-8")
    Path("bytes").write_bytes(b"\xff")
    for values, message in (
        (("--schedule", "steps.py"), "step 1 does not fit: set_kind: there is no loop 'x'"),
        (("--schedule", "other.py"), "this is no argument of a step\n  at other.py:1:19:"),
        (("--schedule", "none.py"), "cannot read none.py"),
        (("--schedule", "bytes"), "why: it is no text in UTF-8"),
        (("--schedule", "steps.py", "--config", "PlainConfig()"), "a config and a schedule are"),
    ):
        ended = tilewright("show", "matmul", "24x40:40x32", *values)
        assert ended.code == 2, values
        assert message in ended.err


def test_strict_is_true_or_false() -> None:
    odd = type("Odd", (), {"__len__": len})()
    with pytest.raises(ArgumentError, match="strict is neither True nor False"):
        tw.Schedule.replay(
            tw.matmul("4x5:5x6"), 'schedule.set_kind("k", LoopKind.UNROLLED)', "x86", strict=odd
        )

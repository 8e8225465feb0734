"""What transforms gave is kept for as long as somebody chooses: same kernels, same records."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir import parse_kernel, to_text
from tilewright.machines import nvidia, spirv
from tilewright.machines.machine import Machine
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.records.transform import Step, each_once
from tilewright.schedule.staging.copiers import CopyUnit, Threads

KERNEL = parse_kernel("""
kernel k(in a: f32[64, 32], out y: f32[64, 32]):
  compute twice(i in 64, j in 32):
    v = a[i, j]
    y[i, j] = v + v
""")


def test_the_same_step_gives_the_same_kernel() -> None:
    with each_once():
        first = tile(KERNEL, "twice", {"i": 8})
        with each_once():
            assert tile(KERNEL, "twice", {"i": 8}) is first
        assert tile(KERNEL, "twice", {"i": 16}) is not first
        assert drop_unit_dims(first) is first
        assert drop_unit_dims(first) is first
    again = tile(KERNEL, "twice", {"i": 8})
    assert again is not first
    assert to_text(again) == to_text(first)


def test_refusals_are_refused_again() -> None:
    with each_once():
        for _ in range(2):
            with pytest.raises(ScheduleError, match="tile"):
                tile(KERNEL, "once", {"i": 8})


def test_arguments_that_print_alike_are_told_apart() -> None:
    arguments = [
        1, True, 1.0, "1", None, [1], (1,), [], (), {}, {"a": 1, "b": 2}, {"b": 2, "a": 1},
        {"a": 1.0, "b": 2}, Threads(), Threads(1, 1), CopyUnit(), CopyUnit({"n": 1}),
    ]  # fmt: skip
    keys = [Step.of("f", (argument,), {}).key for argument in arguments]
    keys += [Step.of("f", (), {"x": argument}).key for argument in arguments]
    assert len(set(keys)) == len(keys)
    assert keys == [
        *(Step.of("f", (argument,), {}).key for argument in arguments),
        *(Step.of("f", (), {"x": argument}).key for argument in arguments),
    ]


@pytest.mark.parametrize("machine", [spirv.machine("gpu"), nvidia.machine("sm_90a")])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_is_chosen_is_the_same(
    machine: Machine, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = tw.convolution("mb1ic8ih6oc32kh3ph1", src="nhwc", dst="nhwc", dtype=dtype).resolved()
    start = Start.of(op)
    config, scheduled = choose.choose(start, machine)
    monkeypatch.setattr(choose, "each_once", nullcontext)
    other, apart = choose.choose(start, machine)
    assert other == config
    assert list(apart.stages) == list(scheduled.stages)
    for name, stage in scheduled.stages.items():
        assert to_text(apart.stages[name]) == to_text(stage)
    assert [entry.step.key for entry in scheduled.done] == [entry.step.key for entry in apart.done]

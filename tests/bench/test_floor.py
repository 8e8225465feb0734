"""The least time of a kernel, by roofline: of a machine's data, this processor's, or unknown."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from commands import Command
from tilewright.bench import floor
from tilewright.bench.floor import Floor, floor_of
from tilewright.dtypes import DType, bf16, f32
from tilewright.engine import CompiledKernel
from tilewright.engine.cost import Cost
from tilewright.errors import UnsupportedError
from tilewright.measure import peaks
from tilewright.measure.peaks import Peaks, Roof, measure_roof
from tilewright.problems import parse
from tilewright.testing.case import Case


def cost(kernel: CompiledKernel, flops: int, moved: int | None) -> Cost:
    return Cost(flops, moved, 1, None, None, {})


def test_by_the_data_of_the_machine() -> None:
    op = Case(parse("matmul", "256x256:256x256"), (bf16,) * 3).op()
    kernel = tw.compile(op, target="nvidia:sm_80")
    machine = kernel.target.machine
    rates = machine.rates
    assert rates is not None
    # As many flops as take two seconds, and bytes that take one; and the other way round.
    flops = int(4 * rates.peak(bf16) * machine.cores * rates.clock)
    result = floor_of(kernel, cost(kernel, flops, int(rates.memory)))
    assert replace(result, seconds=2.0) == Floor(2.0, "", f"peak figures of {machine.name}")
    assert result.seconds == pytest.approx(2.0)
    result = floor_of(kernel, cost(kernel, flops, int(3 * rates.memory)))
    assert result.level == "DRAM" and result.seconds == pytest.approx(3.0)
    assert str(result) == f"3000 ms, by DRAM (peak figures of {machine.name})"


def test_of_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measured(flops: int, moved: int, element: DType | None, threads: int) -> Roof:
        asked.append((flops, moved, element, threads))
        return Roof(0.002, "")

    monkeypatch.setattr(floor, "measure_roof", measured)
    kernel = tw.compile(tw.matmul("8x4:4x16"), threads=2)
    result = floor_of(kernel, kernel.cost())
    assert asked == [(2 * 8 * 4 * 16, 4 * (32 + 64 + 128), f32, 2)]
    assert str(result) == "2 ms, by arithmetic (peaks of this processor, 2 threads, measured now)"


def test_only_the_peaks_that_count_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measured(threads: int, host: None, kinds: list[str], levels: tuple[str, ...]) -> Peaks:
        asked.append((threads, kinds, levels))
        return Peaks(1, dict.fromkeys(kinds, 10.0), dict.fromkeys(levels, 5.0), {"L1": 1 << 14})

    monkeypatch.setattr(peaks, "measure_peaks", measured)
    monkeypatch.setattr(peaks, "cache_sizes", lambda: {"L1": 1 << 14})
    monkeypatch.setattr(peaks, "instruction_for", lambda kind: kind == "f32" or None)
    assert measure_roof(10**10, 1 << 20, bf16, 1) == Roof(1.0, "")
    assert measure_roof(0, 1 << 10, None, 1).level == "L1"
    assert asked == [(1, ["f32"], ("DRAM",)), (1, [], ("L1",))]


def test_unknown() -> None:
    kernel = tw.compile(tw.matmul("8x4:4x16"), target="spirv:gpu")
    with pytest.raises(UnsupportedError, match="peaks of spirv-gpu are not known"):
        floor_of(kernel, cost(kernel, 1, 1))
    with pytest.raises(UnsupportedError, match="bytes and flops depend on the numbers of a call"):
        floor_of(kernel, cost(kernel, 0, None))


def test_show(tilewright: Command) -> None:
    words = ("show", "matmul", "--stage", "cost", "8x4:4x16")
    shown = tilewright(*words, "--target", "nvidia:sm_80").out
    assert re.search(r"^floor: \S+ ms, by DRAM \(peak figures of nvidia-sm_80\)$", shown, re.M)
    shown = tilewright(*words, "--target", "spirv:gpu").out
    assert "\nvector_registers: unknown\nspills: unknown\n" in shown
    assert "\nfloor: unknown (peaks of spirv-gpu are not known)\n" in shown

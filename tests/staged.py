"""Every stage of a schedule prints, parses back, verifies, and computes what the naive one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, to_text, verify
from tilewright.machines.machine import THREADS, Machine
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import Config
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule
from tilewright.testing.check import check_stages
from tilewright.testing.inputs import make_inputs


def filled(kernel: Kernel) -> dict[str, Any]:
    """Memory for the parameters: small integers, so that sums are exact, in results too."""
    generator = np.random.default_rng(0)
    memory = {}
    for param in kernel.params:
        low = 0 if param.dtype.kind == "uint" else -4
        values = generator.integers(low, 5, param.buffer.layout.extent)
        memory[param.name] = values.astype(param.dtype.numpy)
    return memory


def results(kernel: Kernel, memory: dict[str, Any]) -> dict[str, Any]:
    """What ``kernel`` leaves in its results, in float64."""
    own = {p.name: memory[p.name].copy() for p in kernel.params}
    run(kernel, own)
    return {p.name: own[p.name].astype(np.float64) for p in kernel.params if p.access != "in"}


def check_text(kernel: Kernel) -> Kernel:
    """``kernel``, verified, after a round trip through its text."""
    verify(kernel)
    text = to_text(kernel)
    again = parse_kernel(text)
    assert to_text(again) == text
    return again


def carried_out(
    schedule: Callable[[KernelSchedule, Machine, Any], None],
    kernel: Kernel,
    machine: Machine,
    config: Config,
) -> KernelSchedule:
    """What a recipe's ``schedule`` makes of ``kernel`` by ``config``."""
    result = KernelSchedule(kernel, machine)
    schedule(result, machine, config)
    return result


def check_schedule(schedule: KernelSchedule) -> None:
    """Runs the packing kernels and each stage, all after a round trip through text."""
    naive = schedule.stages["naive"]
    memory = filled(naive)
    for pack in schedule.packed.values():
        target = pack.params[-1].buffer
        memory[target.name] = np.zeros(target.layout.extent, target.dtype.numpy)
        again = check_text(pack)
        run(again, {p.name: memory[p.name] for p in again.params})
    expected = results(naive, memory)
    tolerance = max(1e-6, *(p.dtype.epsilon for p in naive.params if p.access != "in"))
    for stage, kernel in schedule.stages.items():
        actual = results(check_text(kernel), memory)
        assert actual.keys() == expected.keys()
        for result, values in actual.items():
            what = f"{result} after {stage}"
            np.testing.assert_allclose(values, expected[result], tolerance, 1e-6, err_msg=what)
    assert list(schedule.stages.values())[-1] is schedule.kernel


def uncounted(machine: Machine) -> Machine:
    """``machine``, of which nobody counts what accesses cost: that takes a third of the time."""
    return replace(machine, hierarchy=THREADS)


def check_races(op: Op, machine: Machine, config: Config | None = None) -> KernelSchedule:
    """The op's schedule, by default the model's, all of whose stages are right and free of races
    on integers, after a round trip through text."""
    op = op.resolved()
    if config is None:
        _, scheduled = choose.choose(Start.of(op), machine)
    else:
        scheduled = choose.schedule(Start.of(op), machine, config)
    stages = {name: check_text(stage) for name, stage in scheduled.stages.items()}
    inputs = make_inputs(op, exact=True, seed=0)
    reports = check_stages(stages, scheduled.packed, uncounted(machine), inputs, "all")
    assert [(r.stage, i.kind, i.message) for r in reports for i in r.issues] == []
    return scheduled

"""Plans in JSON: host loops written out, and what no plan can say beforehand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright.dtypes import s64
from tilewright.errors import UnsupportedError
from tilewright.ir.expr import var
from tilewright.runtime.steps import ForStep, ReadStep
from tilewright.targets.linking import Base, Place, Plan, Run
from tilewright.targets.llvm.module import DeviceStep, Launch
from tilewright.targets.plan_files import plan_files
from tilewright.targets.program import Abi
from tilewright.targets.standalone import Standalone, StandaloneFunction


def written(step: DeviceStep) -> Any:
    """The launches of a program of one kernel whose host runs ``step``."""
    launch = Launch("k_0", "i + 1" if isinstance(step, ForStep) else 1, 8, 0, values=("i",))
    if isinstance(step, ReadStep):
        launch = Launch("k_0", 1, 8, 0, result=0)
    abi = Abi("k", (), (16,), (launch,), (step,))
    run = Run(0, (), (Place(Base.ARENA, 64),))
    function = StandaloneFunction("net_f", "f", (), Plan((run, run), 128, ()))
    standalone = Standalone("net", (function,), ((b"code", abi),), None, 1)
    files = plan_files(standalone, "spirv", "OpenCL devices", lambda b, a, _: {f"{a.entry}.spv": b})
    plan = json.loads(files.pop("net.json"))
    assert files == {"net_kernel_0.spv": b"code"} and plan["modules"] == [["net_kernel_0.spv"]]
    return plan["functions"]["net_f"]["steps"]


def test_loops_of_the_host_are_written_out() -> None:
    steps = written(ForStep(var("i", s64), "3", (0,)))
    assert [(step["groups"], step["items"]) for step in steps] == [(1, 8), (2, 8), (3, 8)] * 2
    workspace = {"arena": 64, "access": "inout", "bytes": 16}
    for number, step in enumerate(steps):
        assert step["arguments"] == [workspace, {"value": number % 3, "bytes": 8}]


def test_a_loop_that_depends_on_data_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="net_f has a loop on the host whose condition depends on data"
    ) as raised:
        written(ReadStep(var("n", s64), 0))
    assert "kernel k" in str(raised.value) and "build it for x86" in str(raised.value)

"""Contractions on processors whose results are no neighbours along the lanes: transposed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from compiled import check
from staged import check_schedule
from tilewright.errors import ScheduleError
from tilewright.machines import x86
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.start import Start

pytestmark = pytest.mark.usefixtures("own_cache")


def nchw(problem: str, **given: Any) -> Op:
    return tw.convolution(problem, src="nchw", dst="nchw", **given)


EPILOGUE = [tw.bias(), tw.relu()]
# What is transposed at a time, for each: dims that are left out are whole.
CASES: dict[str, tuple[Op, str, dict[str, int]]] = {
    "rows": (nchw("mb2ic8ih12oc20kh3ph1", epilogue=EPILOGUE), "avx2", {"mb": 1, "oh": 1}),
    "parts of rows": (nchw("mb1ic5ih16oc16kh3ph1"), "avx2", {"oc": 16, "oh": 1, "ow": 8}),
    "columns left over": (nchw("mb1ic5ih16oc27kh3sh2ph1"), "avx2", {"oh": 1}),
    "a residual": (nchw("mb1ic5ih8oc16kh3ph1", epilogue=[tw.add("residual")]), "avx2", {"oh": 1}),
    "bf16": (nchw("mb1ic8ih8oc16kh3ph1", dtype="bf16"), "avx2", {"oh": 1}),
    "doubles": (nchw("mb1ic5ih8oc8kh3ph1", dtype="f64"), "avx2", {"oh": 1}),
    "squares of four": (nchw("mb1ic5ih8oc8kh3ph1"), "sse42", {"oh": 1}),
    "squares of sixteen": (nchw("mb1ic5ih20oc32kh3ph1"), "avx512", {"oh": 1}),
    "bytes": (nchw("mb1ic8ih8oc16kh3ph1", dtype="u8:s8:s32"), "avx512_vnni", {"oh": 1}),
    "a product": (tw.matmul("40x9:9x32", weights="ab", dst="ba"), "avx2", {"n": 16}),
    "blocks of a product": (tw.matmul("48x9:9x32", weights="ab", dst="ba"), "avx2", {"m": 24}),
}


@pytest.mark.parametrize("name", CASES)
def test_turned_results_are_the_same(name: str) -> None:
    op, level, block = CASES[name]
    start, machine = Start.of(op.resolved()), x86.machine(level)
    config, _ = choose.choose(start, machine)
    assert isinstance(config, ContractionConfig)
    config = replace(config, transpose=True, block=block)
    scheduled = choose.schedule(start, machine, config)
    assert "<transpose_" in str(scheduled.stages["transposed"])
    check_schedule(scheduled)


@pytest.mark.parametrize("name", ["rows", "parts of rows", "bf16", "a product"])
def test_compiled(name: str) -> None:
    op, level, block = CASES[name]
    kernel = tw.compile(op, f"x86:{level}", config={"transpose": True, "block": block}, threads=2)
    check(kernel)


def chosen(op: Op) -> Any:
    return choose.choose(Start.of(op.resolved()), x86.machine("avx2"))[0]


def test_results_that_evict_one_another_are_transposed() -> None:
    """Planes of whole pages: all channels of a tile share sets of the first cache."""
    config = chosen(nchw("mb1ic3ih64oc64kh3ph1"))
    assert config.transpose and config.block == {"oc": 16, "oh": 1, "ow": 64}
    check(tw.compile(nchw("mb1ic3ih32oc32kh3ph1"), "x86:avx2", threads=1))
    assert not chosen(nchw("mb1ic3ih60oc64kh3ph1")).transpose
    # What stores take of so many products cannot be told.
    assert not chosen(nchw("mb1ic128ih64oc64kh3ph1")).transpose


def test_results_whose_lines_are_completed_late_are_transposed() -> None:
    """All channels come in between of two tiles that are neighbours."""
    config = chosen(nchw("mb1ic256ih56oc512kh1sh2"))
    assert config.order[-1] == config.lanes == "oc" and config.transpose
    assert not chosen(tw.convolution("mb1ic256ih56oc512kh1sh2", src="nhwc", dst="nhwc")).transpose


def refused(op: Op, **config: Any) -> str:
    with pytest.raises(ScheduleError) as error:
        tw.compile(op, "x86:avx2", config=config)
    return str(error.value)


def test_what_cannot_be_transposed() -> None:
    along = tw.convolution("mb1ic8ih8oc16kh3ph1", src="nhwc", dst="nhwc")
    assert "has its neighbours along the lanes" in refused(along, transpose=True)
    op = nchw("mb1ic8ih8oc16kh3ph1")
    assert "do not go together" in refused(op, transpose=True, slices={"ic": 2})
    assert "transpose='yes' is not True or False" in refused(op, transpose="yes")

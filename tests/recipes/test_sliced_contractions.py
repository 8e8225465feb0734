"""Contractions on processors whose reduction goes in slices, which are added up in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import check
from staged import check_schedule
from tilewright.errors import ScheduleError
from tilewright.ir.stmt import For, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.machines import x86
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.start import Start

pytestmark = pytest.mark.usefixtures("own_cache")
CACHES = (32 << 10, 512 << 10, 32 << 20)


def sliced(op: Op, target: str, slices: dict[str, int]) -> tw.CompiledKernel:
    return tw.compile(op, target, config={"slices": slices}, threads=2)


CASES: dict[str, tuple[Op, str, dict[str, int]]] = {
    "product": (tw.matmul("13x48:48x40", epilogue=[tw.bias(), tw.relu()]), "avx2", {"k": 4}),
    "the last slice is shorter": (tw.matmul("7x53:53x21"), "avx2", {"k": 4}),
    "weights as they lie": (tw.matmul("13x53:53x40", weights="ab"), "avx2", {"k": 3}),
    "slices of one": (tw.matmul("5x8:8x20"), "avx2", {"k": 8}),
    "batches": (tw.matmul("3x5x16:3x16x20"), "avx2", {"k": 2}),
    "doubles": (tw.matmul("9x24:24x20", dtype="f64"), "avx2", {"k": 3}),
    "taps": (
        tw.convolution("mb1ic12ih6oc20kh3ph1", src="nhwc", dst="nhwc"),
        "avx2",
        {"ic": 3},
    ),
    "rows of taps": (
        tw.convolution("mb1ic4ih6oc20kh3ph1", src="nhwc", dst="nhwc"),
        "avx2",
        {"kh": 3},
    ),
    "gradient of weights": (
        tw.convolution("mb2ic5ih9oc20kh3ph1", direction="bwd_w", src="nhwc", dst="nhwc"),
        "avx2",
        {"oh": 3},
    ),
    "gradient of weights, batches": (
        tw.convolution("mb4ic5ih9oc20kh3sh2ph1", direction="bwd_w", src="nhwc", dst="nhwc"),
        "avx2",
        {"mb": 2},
    ),
    "gradient of weights, nchw": (
        tw.convolution("mb1ic3ih10oc20kh3sh2ph1", direction="bwd_w", src="nchw", dst="nchw"),
        "avx2",
        {"oh": 5},
    ),
    "gradient of grouped weights": (
        tw.convolution("g8mb1ic8ih9oc8kh3ph1", direction="bwd_w", src="nhwc", dst="nhwc"),
        "avx2",
        {"oh": 3},
    ),
    "bf16": (tw.matmul("9x64:64x40", dtype="bf16"), "avx512_bf16", {"k": 4}),
    "bytes": (tw.matmul("9x64:64x40", dtype="u8:s8:s32"), "avx512_vnni", {"k": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_slices_compute_the_same(name: str) -> None:
    op, level, slices = CASES[name]
    op, machine = op.resolved(), x86.machine(level)
    start = Start.of(op)
    config, _ = choose.choose(start, machine)
    assert isinstance(config, ContractionConfig) and not config.slices
    scheduled = choose.schedule(start, machine, replace(config, slices=slices))
    assert "sliced" in scheduled.stages
    check_schedule(scheduled)


@pytest.mark.parametrize("name", ["product", "weights as they lie", "taps", "gradient of weights"])
def test_compiled_slices(name: str) -> None:
    op, level, slices = CASES[name]
    check(sliced(op, f"x86:{level}", slices))


def _chosen(op: Op, cores: int = 2) -> Any:
    machine = x86.machine("avx2", cores=cores, caches=CACHES)
    return choose.choose(Start.of(op.resolved()), machine)


def test_long_reductions_go_in_slices() -> None:
    """Neither what a panel reads of so long a reduction nor all of the factors fit a cache."""
    config, scheduled = _chosen(tw.matmul("64x65536:65536x64", weights="ab"), cores=1)
    ((dim, parts),) = config.slices.items()
    assert dim == "k" and 65536 // parts * (16 + 5) * 4 < CACHES[1]
    assert 65536 // parts * 64 * 4 > CACHES[0]
    # Those of the slices, and those that add up.
    loops = [s for s in walk_stmts(scheduled.kernel.body) if isinstance(s, For)]
    assert sum(loop.kind is LoopKind.PARALLEL for loop in loops) >= 2


def test_gradients_of_weights_go_in_slices() -> None:
    knobs = {"src": "nhwc", "dst": "nhwc", "weights": "hwio"}
    op = tw.convolution("mb1ic64ih56oc64kh3ph1", direction="bwd_w", **knobs)  # type: ignore[arg-type]
    assert _chosen(op, cores=1)[0].slices
    # There, results are more than what is reduced.
    op = tw.convolution("mb1ic256ih14oc256kh3ph1", direction="bwd_w", **knobs)  # type: ignore[arg-type]
    assert not _chosen(op, cores=1)[0].slices


def test_results_of_few_tiles_go_in_slices_on_threads() -> None:
    op = tw.matmul("6x65536:65536x16", weights="ab")
    assert not _chosen(op, cores=1)[0].slices
    assert _chosen(op, cores=16)[0].slices
    assert not _chosen(tw.matmul("6x256:256x16", weights="ab"), cores=16)[0].slices
    assert not _chosen(tw.matmul("512x512:512x512"))[0].slices


def test_long_reductions_of_no_divisor() -> None:
    config, _ = _chosen(tw.matmul("64x65537:65537x64", weights="ab"), cores=1)
    assert config.slices


def test_sums_are_the_same_in_every_run() -> None:
    op = tw.matmul("4x4096:4096x16", weights="ab")
    kernel = sliced(op, "x86", {"k": 16})
    generator = np.random.default_rng(0)
    a = generator.standard_normal((4, 4096), np.float32)
    b = generator.standard_normal((4096, 16), np.float32)
    first = kernel(a, b)
    assert all(np.array_equal(first, kernel(a, b)) for _ in range(5))


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        ({"m": 2}, "slices='m' is no dim that this may name"),
        ({"k": 1}, "slices={'k': 1} is no division of the dim"),
        ({"k": 11}, "slices={'k': 11} is no division of the dim"),
    ],
)
def test_slices_refused(slices: dict[str, int], message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        sliced(tw.matmul("60x10:10x70"), "x86:avx2", slices)
    assert message in str(error.value)


def test_slices_of_two_dims_refused() -> None:
    op = tw.convolution("mb1ic4ih6oc20kh3ph1", src="nhwc", dst="nhwc")
    with pytest.raises(ScheduleError, match="divides 2 dims"):
        sliced(op, "x86:avx2", {"ic": 2, "kh": 3})

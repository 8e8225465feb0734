"""What configs in workgroups are predicted to take, and which of them are chosen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

import tilewright as tw
from sweeps import in_turns
from tilewright.dtypes import bf16, f32
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Layout, LayoutBlock
from tilewright.layout.fragments import Fragment
from tilewright.machines import nvidia, spirv
from tilewright.machines.instruction import Instruction, OperandForm
from tilewright.machines.machine import Machine
from tilewright.ops.op import Op
from tilewright.passes import run
from tilewright.recipes import choose
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.recipe import table
from tilewright.recipes.start import Start
from tilewright.recipes.warpgroups import division
from tilewright.recipes.workgroup_candidates import WorkgroupCandidate
from tilewright.recipes.workgroup_cost import LIMITS, Prediction
from tilewright.recipes.workgroup_model import candidates, prediction_of
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.targets.nvidia.ptxas import find_ptxas, run_ptxas
from workgroup_configs import with_fields, workgroup_config

LEVELS = nvidia.LEVELS
WIDE = "mb256ic512ih14oc512oh14kh1"


def matmul(m: int, n: int, k: int, types: str = "bf16:bf16:f32") -> Op:
    return tw.matmul(f"{m}x{k}:{k}x{n}", dtype=types).resolved()


def convolution(mb: int, direction: str = "fwd", types: str = "bf16") -> Op:
    problem = f"mb{mb}ic64ih28oc96oh28kh3ph1"
    return tw.convolution(
        problem, direction=direction, dtype=types, src="nhwc", dst="nhwc"
    ).resolved()


@cache
def found(op: Op, level: str) -> list[WorkgroupCandidate]:
    return candidates(op.kernel(), nvidia.machine(level))


def best(op: Op, level: str) -> WorkgroupCandidate:
    return found(op, level)[0]


def predicted(op: Op, machine: Machine, config: WorkgroupConfig) -> Prediction:
    prediction = prediction_of(op.kernel(), machine, config)
    assert prediction is not None
    return prediction


GROWING: dict[str, Callable[[int], Op]] = {
    "rows": lambda n: matmul(128 * n, 512, 512),
    "columns": lambda n: matmul(384, 128 * n, 512, "f32"),
    "reduction": lambda n: matmul(256, 256, 128 * n),
    "images": lambda n: convolution(n),
    "images, bwd_w": lambda n: convolution(n, "bwd_w", "f16:f32:f16"),
}


@pytest.mark.parametrize(("name", "level"), in_turns(4, GROWING, LEVELS))
def test_twice_as_much_is_not_faster(name: str, level: str) -> None:
    """But for a tenth: not all is tried, and of small problems not what is best for larger ones."""
    seconds = [best(GROWING[name](2**n), level).prediction.seconds for n in range(6)]
    assert all(more > 0.9 * less for less, more in itertools.pairwise(seconds))
    assert seconds[-1] > 1.5 * seconds[0]


@pytest.mark.parametrize("types", ["bf16:bf16:f32", "f32"])
def test_padding_is_not_free(types: str) -> None:
    machine = nvidia.machine("sm_80")
    config = best(matmul(2048, 2048, 2048, types), "sm_80").config
    whole = predicted(matmul(2048, 2048, 2048, types), machine, config)
    for size in (2049, 2100, 2176):
        for shape in ((size, 2048, 2048), (2048, size, 2048), (2048, 2048, size)):
            more = predicted(matmul(*shape, types), machine, config)
            # What is read once is spread over more workgroups, of which the first are faster.
            assert more.seconds > 0.999 * whole.seconds
            assert more.limits["compute"] >= whole.limits["compute"]
    # What pads to the same tiles takes the same products.
    less = predicted(matmul(2047, 2047, 2047, types), machine, config)
    assert less.limits["compute"] == whole.limits["compute"]
    assert less.peak < whole.peak


def test_large_products_take_large_tiles() -> None:
    for level in ("sm_80", "sm_90a"):
        config = best(matmul(4096, 4096, 4096), level).config
        assert min(config.tile.group.values()) >= 128
        assert not config.reduction.slices
        kind = "wgmma_m64" if level == "sm_90a" else "mma_m16n8k16"
        assert config.product.instruction.startswith(kind)
    assert best(matmul(4096, 4096, 4096), "sm_80").prediction.limit == "compute"


def test_long_reductions_are_sliced() -> None:
    for types in ("bf16:bf16:f32", "f32"):
        assert best(matmul(64, 64, 16384, types), "sm_80").config.reduction.slices
        assert not best(matmul(4096, 4096, 16384, types), "sm_80").config.reduction.slices


def test_little_work_on_much_memory_is_bound_by_it() -> None:
    prediction = best(matmul(65536, 64, 64), "sm_80").prediction
    assert prediction.limit == "DRAM"
    assert best(matmul(64, 64, 64), "sm_80").prediction.limit == "latency"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("types", ["f16:f16:f32", "f32", "s8:s8:s32", "f64"])
def test_nothing_is_faster_than_the_device(types: str, level: str) -> None:
    machine = nvidia.machine(level)
    rates = machine.rates
    assert rates is not None
    for shape in ((4096, 4096, 4096), (100, 3000, 70), (64, 64, 16384), (65536, 64, 64)):
        op = matmul(*shape, types)
        peak = rates.peak(*(op.argument(name).dtype for name in ("src", "dst")))
        products = math.prod(shape) / (peak * machine.cores * rates.clock)
        moved = sum(a.layout.extent * a.dtype.bytes for a in op.arguments) / rates.memory
        for candidate in found(op, level):
            seconds = candidate.prediction.seconds
            assert seconds > max(products, moved, *candidate.prediction.limits.values()) * 0.999
            assert candidate.prediction.peak == pytest.approx(products / seconds)


def test_what_a_core_holds() -> None:
    machine = nvidia.machine("sm_80")
    op = matmul(4096, 4096, 4096)
    config = with_fields(
        best(op, "sm_80").config,
        group={"n": 128, "m": 128},
        item={"n": 64, "m": 64},
        step={"k": 32},
        stages=3,
        raster=1,
    )
    chosen = predicted(op, machine, config)
    # Three stages of two tiles of 128 rows of 32 elements; 128 sums per lane, 32 words of
    # fragments for one product, and for the next.
    assert chosen.shared == 3 * 2 * 128 * 32 * 2
    assert chosen.registers == 128 + 2 * 32 + 40
    # 2 * 128 * 232 registers are less than 65536, and twice that are more than all.
    assert chosen.resident == 2 and chosen.waves == 1024 / (2 * 108)
    assert prediction_of(op.kernel(), machine, with_fields(config, stages=11)) is None
    assert (
        prediction_of(op.kernel(), machine, with_fields(config, item={"n": 128, "m": 64})) is None
    )
    narrow = with_fields(config, item={"n": 16, "m": 16})
    assert prediction_of(op.kernel(), machine, narrow) is None  # 2048 work-items


def test_bands_of_tiles_save_memory() -> None:
    machine = nvidia.machine("sm_80")
    op = matmul(16384, 16384, 4096)
    config = with_fields(best(op, "sm_80").config, raster=1)
    rows, bands = (predicted(op, machine, with_fields(config, raster=r)) for r in (1, 8))
    assert bands.limits["DRAM"] < 0.8 * rows.limits["DRAM"]
    assert bands.limits["compute"] == rows.limits["compute"]


def test_copying_ahead_saves_waits() -> None:
    machine = nvidia.machine("sm_80")
    op = matmul(1024, 1024, 4096)
    config = with_fields(best(op, "sm_80").config, step={"k": 32}, slices=())
    waits = [
        predicted(op, machine, with_fields(config, stages=n, fill="async" if n > 1 else "copy"))
        for n in (1, 2, 3)
    ]
    seconds = [wait.seconds for wait in waits]
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > 1.3 * seconds[2]


def test_products_of_several_subgroups() -> None:
    """Four subgroups multiply at once, from shared memory: no registers for fragments."""
    rows = Fragment(("m", "n"), 128, Layout((LayoutBlock(0, 64, 128), LayoutBlock(1, 128, 1))))
    wide = Instruction(
        "wide",
        (("m", 64), ("n", 128), ("k", 16)),
        OperandForm("c", f32, fragment=rows),
        (OperandForm("a", bf16), OperandForm("b", bf16)),
        "",
        "",
    )
    machine = nvidia.machine("sm_90a")
    machine = replace(machine, instructions=(*machine.instructions, wide))
    op = matmul(4096, 4096, 4096)
    # What the device does at best with subgroups of 32.
    chosen = best(op, "sm_80").config
    narrow = predicted(op, machine, chosen)
    config = with_fields(
        chosen,
        instruction="wide",
        group={"n": 128, "m": 128},
        item={"n": 128, "m": 64},
        step={"k": 64},
        stages=4,
    )
    prediction = predicted(op, machine, config)
    assert prediction.registers == 64 + 40
    assert prediction.seconds < narrow.seconds


def hopper(group: dict[str, int], item: dict[str, int], **changes: object) -> WorkgroupConfig:
    """Products of warpgroups, whose tiles a subgroup of its own has copied."""
    config = workgroup_config(
        instruction=f"wgmma_m64n{item['n']}k16_f32_bf16",
        lanes="n",
        group=group,
        item=item,
        order=("m", "n"),
        step={"k": 64},
        stages=3,
        fill="unit",
        k="k",
    )
    return with_fields(config, **changes)


@pytest.mark.parametrize("subgroups", [2, 3, 4])
@pytest.mark.parametrize("n", [32, 64, 128, 192])
def test_registers_are_divided(n: int, subgroups: int) -> None:
    """Where one workgroup is all that a core holds, and then no more than it has, nor than there
    were at the start."""
    machine = nvidia.machine("sm_90a")
    config = hopper({"m": 128 * subgroups, "n": n}, {"m": 128, "n": n}, stages=2)
    divided = division(machine, config, 4)
    prediction = prediction_of(matmul(4096, 4096, 4096).kernel(), machine, config)
    assert (divided is None) == (2 * (n + 40) * 128 * (subgroups + 1) <= 65536)
    if divided is None:
        assert prediction is not None and prediction.registers == n + 40
        return
    own, started = divided.copying + subgroups * divided.multiplying, (subgroups + 1)
    assert own <= divided.launch * started
    assert 128 * divided.launch * started <= 65536
    counts = (divided.launch, divided.copying, divided.multiplying)
    assert all(24 <= count <= 255 and count % 8 == 0 for count in counts)
    # Sums, and what else there is: or else there is no room for such a workgroup.
    assert (prediction is not None) == (n + 40 <= divided.multiplying)
    if prediction is not None:
        assert (prediction.registers, prediction.resident) == (divided.launch, 1)


def test_persistent_workgroups_begin_before_they_have_ended() -> None:
    machine, op = nvidia.machine("sm_90a"), matmul(4096, 4096, 4096)
    config = hopper({"m": 256, "n": 128}, {"m": 128, "n": 128})
    once = predicted(op, machine, config)
    many = predicted(op, machine, with_fields(config, persistent=132))
    assert once.waves == many.waves == 512 / 132
    assert many.seconds < once.seconds
    assert many.limits["compute"] == once.limits["compute"]
    # Fewer workgroups leave cores idle.
    assert predicted(op, machine, with_fields(config, persistent=66)).seconds > 1.5 * many.seconds
    # What work-items copy themselves does not go on into the next tile.
    config = with_fields(config, fill="async", vector=8)
    once, many = (predicted(op, machine, with_fields(config, persistent=n)) for n in (0, 132))
    assert many.seconds == once.seconds


def test_the_unit_stores_while_the_next_tile_is_multiplied() -> None:
    machine, op = nvidia.machine("sm_90a"), matmul(4096, 4096, 512, "bf16")
    config = hopper({"m": 256, "n": 128}, {"m": 128, "n": 128}, persistent=132)
    through = with_fields(config, epilogue_tile={"m": 128})
    alone, together = predicted(op, machine, config), predicted(op, machine, through)
    assert together.seconds < alone.seconds
    assert together.shared == alone.shared + 256 * 128 * 2
    half = predicted(op, machine, with_fields(config, epilogue_tile={"m": 64}))
    assert half.shared == alone.shared + 128 * 128 * 2
    assert together.seconds < half.seconds
    # Parts of the reduction are sums.
    sliced = [with_fields(variant, slices=(("k", 2),), stages=2) for variant in (config, through)]
    first, second = (predicted(op, machine, variant).shared for variant in sliced)
    assert second == first + 256 * 128 * 4
    # Beside its tile, there is no room for as many stages.
    assert prediction_of(op.kernel(), machine, with_fields(config, stages=4)) is not None
    assert prediction_of(op.kernel(), machine, with_fields(through, stages=4)) is None


STORED = {
    "matmul": (matmul(4096, 4096, 512, "bf16"), True),
    "channels last": (tw.convolution(WIDE, dtype="bf16", src="nhwc", dst="nhwc").resolved(), True),
    "channels first": (
        tw.convolution(WIDE, dtype="bf16", src="nhwc", dst="nchw").resolved(),
        False,
    ),
    "bytes": (tw.matmul("4096x512:512x4096", dtype="s8:s8:s8").resolved(), False),
    "rows of no 16 bytes": (
        tw.matmul("4096x512:512x4092", dtype="bf16").resolved(),
        False,
    ),
    "what is read": (
        tw.matmul("4096x512:512x4096", dtype="bf16", epilogue=[tw.sum()]).resolved(),
        False,
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_the_unit_stores_what_it_can(name: str) -> None:
    op, expected = STORED[name]
    configs = [candidate.config for candidate in found(op, "sm_90a")]
    stored = [variant for variant in configs if variant.storing.tile]
    assert bool(stored) == expected
    assert all(variant.staging.fill == "unit" for variant in stored)
    if expected:
        config, scheduled = choose.choose(Start.of(op), nvidia.machine("sm_90a"))
        assert config == configs[0]
        assert ("stored" in scheduled.stages) == bool(config.storing.tile)


def test_stores_that_are_chosen() -> None:
    """Of few steps, what is stored counts."""
    op = matmul(4096, 4096, 512, "bf16")
    config, scheduled = choose.choose(Start.of(op), nvidia.machine("sm_90a"))
    assert isinstance(config, WorkgroupConfig) and config.storing.tile and config.staging.stages > 2
    assert "stored" in scheduled.stages


def test_workgroups_persist_where_there_are_more_tiles() -> None:
    machine = nvidia.machine("sm_90a")
    large = [candidate.config for candidate in found(matmul(4096, 4096, 4096), "sm_90a")]
    assert large[0].order.persistent == machine.cores and large[0].staging.fill == "unit"
    assert any(variant.staging.fill == "unit" and not variant.order.persistent for variant in large)
    assert not any(variant.order.persistent for variant in large if variant.staging.fill != "unit")
    small = [candidate.config for candidate in found(matmul(1024, 1024, 1024), "sm_90a")]
    assert small[0].staging.fill == "unit" and not small[0].order.persistent
    # Taps are no boxes: there are no such candidates.
    assert not any(
        candidate.config.staging.fill == "unit" for candidate in found(convolution(8), "sm_90a")
    )


SAMPLED: dict[str, tuple[Op, str]] = {
    "matrices": (matmul(1000, 520, 300), "sm_80"),
    "bytes": (matmul(96, 80, 1000, "s8:s8:s32"), "sm_75"),
    "warpgroups": (matmul(4096, 4096, 512), "sm_90a"),
    "doubles": (matmul(300, 200, 100, "f64"), "sm_90a"),
    "work-items": (matmul(500, 300, 200, "f32"), "sm_80"),
    "held": (matmul(500, 300, 200, "f32"), "sm_70"),
    "convolution": (convolution(1), "sm_80"),
    "by weights": (convolution(2, "bwd_w"), "sm_80"),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_candidates_can_be_scheduled(name: str) -> None:
    op, level = SAMPLED[name]
    all_of_them = found(op, level)
    assert 4 <= len(all_of_them) <= 60
    assert len({candidate.config for candidate in all_of_them}) == len(all_of_them)
    for candidate in all_of_them[:: max(1, len(all_of_them) // 6)]:
        choose.schedule(Start.of(op), nvidia.machine(level), candidate.config)


LARGE = {
    "bf16": matmul(4096, 4096, 4096),
    "f64": matmul(2048, 2048, 2048, "f64"),
    "s8": matmul(4096, 4096, 4096, "s8:s8:s32"),
}


@pytest.mark.parametrize("level", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", LARGE)
def test_large_tiles_stay_in_registers(name: str, level: str) -> None:
    """And the model knows how many they take, within an eighth."""
    ptxas = find_ptxas(level)
    if ptxas is None:
        pytest.skip("ptxas is not at hand")
    op, machine = LARGE[name], nvidia.machine(level)
    config, result = choose.choose(Start.of(op), machine)
    assert isinstance(config, WorkgroupConfig)
    ptx = to_ptx(lower_launches(run(result.kernel), machine).text, level)
    usage = run_ptxas(ptxas, ptx, level).usage
    assert not any(function.spilled for function in usage)
    said = predicted(op, machine, config).registers
    assert max(function.registers for function in usage) == pytest.approx(said, rel=1 / 8)


def test_a_table(golden: Callable[[str, str], None]) -> None:
    op = matmul(200, 100, 64)
    golden("config_candidates", "\n".join(table(found(op, "sm_80"))) + "\n")


def test_limits_are_named() -> None:
    assert set(best(matmul(256, 256, 256), "sm_80").prediction.limits) == set(LIMITS)


def test_machines_without_rates_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no model predicts times on spirv-gpu"):
        candidates(matmul(64, 64, 64, "f32").kernel(), spirv.machine("gpu"))

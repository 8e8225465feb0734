"""Contractions by matrix instructions: asked for by a config, in the interpreter and as text."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from staged import check_schedule
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.start import Start
from tilewright.targets.registry import find_target

AMX = find_target("x86:amx")
PRODUCT = ContractionConfig(
    "tdpbf16ps", "n", {"m": 16, "n": 32}, ("n", "m"), {"k": 32}, ("k",), k="k"
)
CONVOLUTION = ContractionConfig(
    "tdpbusd",
    "oc",
    {"ow": 9, "oc": 32},
    ("oc", "oh", "ow"),
    {"ic": 64},
    ("kh", "kw", "ic"),
    k="ic",
    pack_a=True,
)

CASES: dict[str, tuple[Op, ContractionConfig]] = {
    "product": (tw.matmul("40x64:64x48", dtype="bf16"), PRODUCT),
    "tails everywhere": (
        tw.matmul("37x50:50x43", dtype="bf16"),
        replace(PRODUCT, tile={"m": 32, "n": 32}, step={"k": 64}, pack_a=True),
    ),
    "bytes": (
        tw.matmul("40x128:128x48", dtype="u8:s8:s32"),
        replace(PRODUCT, instruction="tdpbusd", step={"k": 64}),
    ),
    "convolution": (
        tw.convolution("mb1ic70ih9oc40kh3ph1", dtype="u8:s8:s32", src="nhwc", dst="nhwc"),
        CONVOLUTION,
    ),
    "convolution of bf16": (
        tw.convolution(
            "mb1ic32ih9oc40kh3ph1", dtype="bf16", src="nhwc", dst="nhwc", epilogue=[tw.relu()]
        ),
        replace(CONVOLUTION, instruction="tdpbf16ps", step={"ic": 32}),
    ),
}

# How many tiles of sums each has.
SUMS = {
    "product": 6,
    "tails everywhere": 9,
    "bytes": 6,
    "convolution": 3,
    "convolution of bf16": 3,
}


@pytest.mark.parametrize("name", CASES)
def test_matrix_instructions(name: str) -> None:
    op, config = CASES[name]
    op = op.resolved()
    schedule = choose.schedule(Start.of(op), AMX.machine, config)
    check_schedule(schedule)
    module = AMX.lower(schedule.kernel)
    assert AMX.assemble(module).startswith(b"\x7fELF")
    text = AMX.assembly(module)
    result = {
        word: len(re.findall(rf"^\t{word}\b", text, re.MULTILINE))
        for word in (config.instruction, "tileloadd", "tilestored", "tilezero", "ldtilecfg")
    }
    # Sums stay in tiles from zero to the epilogue: what a product loads is its factors.
    assert result["tilezero"] == SUMS[name]
    spilled = result["tilestored"] - SUMS[name]
    factors = result["tileloadd"] - spilled
    if name == "tails everywhere":
        # Tiles of other shapes are other registers to LLVM, which shares none of them in between.
        assert spilled and factors <= 2 * result[config.instruction]
    else:
        # Products that follow one another share one of them.
        assert not spilled and factors < 2 * result[config.instruction]
    assert result["ldtilecfg"] >= 1


def test_rows_of_tiles_need_a_dim() -> None:
    config = replace(PRODUCT, tile={"n": 32})
    with pytest.raises(ScheduleError, match=r"no one dim for the rows[^$]*name 'n' and one other"):
        tw.compile(CASES["product"][0], target="x86:amx", config=config)


@pytest.mark.usefixtures("own_cache")
def test_a_compiled_kernel_shows_its_tiles() -> None:
    op, config = CASES["product"]
    kernel = tw.compile(op, target="x86:amx", config=repr(config), threads=1)
    assert kernel.config == config
    assert kernel.cost().mix["tdpbf16ps"] >= 3
    # Its sums pass through the stack, where tiles are read by rows.
    assert "(%rsp" in kernel.source("asm") and kernel.cost().spills == 0
    assert "#" not in kernel.source("asm")


DEFAULT = {
    "product": (tw.matmul("256x256:256x256", dtype="bf16"), "tdpbf16ps", False),
    "bytes": (tw.matmul("256x256:256x256", dtype="u8:s8:s32"), "tdpbusd", False),
    "taps past the border": (
        tw.convolution("mb1ic64ih14oc64kh3ph1", dtype="bf16", src="nhwc", dst="nhwc"),
        "tdpbf16ps",
        True,
    ),
}


@pytest.mark.parametrize("name", DEFAULT)
def test_tiles_are_the_default_where_they_take_less_time(name: str) -> None:
    op, instruction, copied = DEFAULT[name]
    config, schedule = choose.choose(Start.of(op.resolved()), AMX.machine)
    assert isinstance(config, ContractionConfig)
    assert (config.instruction, config.pack_a) == (instruction, copied)
    assert f"<{instruction}>" in to_text(schedule.kernel)


def config_of(op: Op) -> ContractionConfig:
    config, _ = choose.choose(Start.of(op.resolved()), AMX.machine)
    assert isinstance(config, ContractionConfig) and config.instruction == "tdpbf16ps"
    return config


@pytest.mark.parametrize(
    "op",
    [
        tw.convolution("mb1ic64ih56oc64kh3ph1", dtype="bf16", src="nhwc", dst="nhwc"),
        tw.convolution("mb1ic64ih7oc64kh3ph1", dtype="bf16", src="nhwc", dst="nhwc"),
        tw.convolution("mb1ic64ih7oc64kh1", dtype="bf16", src="nhwc", dst="nhwc"),
    ],
    ids=["56 rows", "7 rows", "49 rows"],
)
def test_tiles_of_few_shapes_are_not_spilled(op: Op) -> None:
    schedule = choose.schedule(Start.of(op.resolved()), AMX.machine, config_of(op))
    check_schedule(schedule)
    text = AMX.assembly(AMX.lower(schedule.kernel))
    stored, zeros = (len(re.findall(rf"^\t{w}\b", text, re.M)) for w in ("tilestored", "tilezero"))
    assert stored == zeros > 0


def test_rows_of_images_are_tiles_of_two_dims() -> None:
    """What is packed of the weights is read once for all of them."""
    op = tw.convolution("mb1ic64ih7oc64kh3ph1", dtype="bf16", src="nhwc", dst="nhwc")
    tile = config_of(op).tile
    assert tile["oh"] > 1 and tile["ow"] == 7


def test_a_block_of_a_stays_in_the_second_cache() -> None:
    config = config_of(tw.matmul("2048x1024:1024x2048", dtype="bf16"))
    room = AMX.machine.caches[1]
    assert 0 < config.block["m"] * 1024 * 2 <= room / 2
    assert not config_of(tw.matmul("128x256:256x256", dtype="bf16")).block


@pytest.mark.parametrize("problem", ["g3mb2ic96ih7oc96kh3ph1", "g2mb1ic64ih9oc48kh3ph1sh2"])
def test_channels_of_a_group_are_multiplied_by_tiles(problem: str) -> None:
    """A copy of A has those of each group by themselves, so that rows of a tile are near."""
    op = tw.convolution(problem, dtype="bf16", src="nhwc", dst="nhwc")
    config = config_of(op)
    assert config.pack_a and config.order[0] == "g"
    schedule = choose.schedule(Start.of(op.resolved()), AMX.machine, config)
    check_schedule(schedule)
    assert re.search(r"src_packed: bf16\[.*:32:1\}", to_text(schedule.kernel))


def test_channels_of_a_group_that_leave_a_rest_of_the_depth_are_no_tiles() -> None:
    """A copy would hold those of the next group where zeros belong."""
    op = tw.convolution("g2mb1ic80ih9oc64kh3ph1", dtype="bf16", src="nhwc", dst="nhwc").resolved()
    config, schedule = choose.choose(Start.of(op), AMX.machine)
    assert isinstance(config, ContractionConfig) and not config.instruction.startswith("tdp")
    check_schedule(schedule)


def test_few_channels_are_not_filled_up_to_tiles() -> None:
    """Three of 32 would be zeros for the most part: so is the copy."""
    op = tw.convolution("mb1ic3ih224oc32oh112kh3ph1sh2", dtype="bf16", src="nhwc", dst="nhwc")
    config, _ = choose.choose(Start.of(op.resolved()), AMX.machine)
    assert isinstance(config, ContractionConfig) and not config.instruction.startswith("tdp")


def test_rows_of_a_large_result_are_written_one_after_the_other() -> None:
    """No second cache holds it: panels of columns would go through it again."""
    op = tw.convolution("mb1ic16ih112oc96kh1", dtype="bf16", src="nhwc", dst="nhwc")
    assert config_of(op).order[-1] == "oc"


def test_one_row_is_no_tile() -> None:
    """A tile of one row takes as long as one of 16."""
    config, _ = choose.choose(
        Start.of(tw.matmul("1x512:512x512", dtype="bf16").resolved()), AMX.machine
    )
    assert isinstance(config, ContractionConfig) and not config.instruction.startswith("tdp")


@pytest.mark.parametrize("problem", ["mb2ic16ih7oc16kh1ph1sh2", "mb1ic16ih3oc8kh1ph1sh2"])
def test_padding_of_one_strided_tap_has_no_mask_in_a_tile(problem: str) -> None:
    """The copy has zeros instead; rows at one place are refused before there is code."""
    op = tw.convolution(problem, dtype="u8:s8:f32", src="nhwc", dst="nhwc").resolved()
    _, schedule = choose.choose(Start.of(op), AMX.machine)
    check_schedule(schedule)
    assert AMX.assemble(AMX.lower(schedule.kernel)).startswith(b"\x7fELF")


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("rows", [197, 1500])
def test_tiles_of_more_shapes_than_there_are_go_apart(rows: int) -> None:
    """What has no tile of its shape left in a function gets one of its own."""
    sizes = f"1x2x{rows}x64"
    op = tw.attention(f"{sizes}:{sizes}", "full", dtype=tw.bf16)
    kernel = tw.compile(op, target="x86:amx", threads=1)
    text = kernel.source("asm")
    assert text.count("tdpbf16ps") > 8 and re.search(r"call\w*\s+tiles_", text)
    replayed = tw.compile(op, target="x86:amx", threads=1, schedule=kernel.source("schedule"))
    assert replayed.source("asm") == text
    if "amx-bf16" not in find_target("x86").machine.features:
        return
    generator = np.random.default_rng(0)
    q, k, v = (
        generator.standard_normal((1, 2, rows, 64)).astype(ml_dtypes.bfloat16) for _ in range(3)
    )
    result = tw.compile(op, target="x86", threads=2)(queries=q, keys=k, values=v)
    wide = [factor.astype(np.float64) for factor in (q, k, v)]
    scores = np.exp(wide[0] @ wide[1].swapaxes(2, 3) / 8)
    exact = scores / scores.sum(axis=3, keepdims=True) @ wide[2]
    assert np.abs(result.astype(np.float64) - exact).max() < 0.01

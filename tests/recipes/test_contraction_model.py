"""What the model chooses for contractions on processors, and blocks of the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from compiled import check
from staged import check_schedule
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.machines import x86
from tilewright.machines.machine import Machine
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.start import Start

pytestmark = pytest.mark.usefixtures("own_cache")
L3 = 32 << 20


def _config(problem: str, machine: Machine, **knobs: object) -> ContractionConfig:
    op = tw.matmul(problem, **knobs).resolved()  # type: ignore[arg-type]
    config, _ = choose.choose(Start.of(op), machine)
    assert isinstance(config, ContractionConfig)
    return config


# Register tiles.


@pytest.mark.parametrize("level", ["avx2", "avx512"])
@pytest.mark.parametrize("size", [96, 200, 768, 1000])
def test_tiles_are_not_bound_by_their_loads(size: int, level: str) -> None:
    """A tile of one vector loads as often as it multiplies, whether or not operands broadcast."""
    machine = x86.machine(level)
    tile = _config(f"{size}x{size}:{size}x{size}", machine).tile
    rows, vectors = tile["m"], tile["n"] * 4 // machine.vector_bytes
    assert rows + vectors < rows * vectors
    assert rows * vectors + vectors + 1 <= machine.vector_registers * 15 // 16


def test_lanes_lie_along_images_of_depthwise_convolutions_with_strides() -> None:
    """In nchw, neighbours along rows are two elements apart, those along channels a whole plane."""
    op = tw.convolution("g32mb1ic32ih28oc32oh14kh3sh2ph1", src="nchw", dst="nchw")
    config, _ = choose.choose(Start.of(op.resolved()), x86.machine("avx512"))
    assert isinstance(config, ContractionConfig)
    assert (config.lanes, config.tile["ow"]) == ("ow", 14)
    check(tw.compile(op, "x86:avx2"))


def _chosen(problem: str, level: str = "avx512", **knobs: object) -> ContractionConfig:
    op = tw.convolution(problem, **knobs).resolved()  # type: ignore[arg-type]
    config, _ = choose.choose(Start.of(op), x86.machine(level))
    assert isinstance(config, ContractionConfig)
    return config


def test_gradients_of_depthwise_weights_take_all_taps_at_a_time() -> None:
    """Each multiply-add loads a vector of the image; a vector of the gradient serves nine."""
    for level in ("avx2", "avx512"):
        config = _chosen("g32mb1ic32ih7oc32kh3ph1", level, direction="BWD_W")
        assert (config.tile["kh"], config.tile["kw"]) == (3, 3)
        # Where LLVM would spill what more steps share, they are few.
        assert config.step["ow"] <= x86.machine(level).vector_registers // 8
    check(tw.compile(tw.convolution("g20mb2ic20ih5oc20kh3ph1", direction="BWD_W"), "x86:avx2"))


def test_small_images_have_rows_of_both_dims_in_a_tile() -> None:
    config = _chosen("mb1ic5ih2oc7kh7ph3", src="nhwc", dst="nhwc")
    assert (config.tile["oh"], config.tile["ow"]) == (2, 2)
    check(tw.compile(tw.convolution("mb3ic5ih2oc7kh7ph3", src="nhwc", dst="nhwc"), "x86:avx2"))


def test_positions_with_padding_are_trimmed_where_taps_are_loops() -> None:
    """Of a step of several positions, each would be tested; of none without padding."""
    assert _chosen("mb1ic64ih14oc64kh3ph1", direction="BWD_W").step == {"ow": 1}
    assert _chosen("mb1ic64ih14oc64kh3", direction="BWD_W").step["ow"] > 1


def test_parts_of_depthwise_convolutions_are_read_from_the_nearest_cache() -> None:
    """One part of the channels after the other, where the second cache holds an image, or the last
    one easily all of them."""
    knobs = {"src": "nhwc", "dst": "nhwc"}
    machine = x86.machine("avx512", caches=(32 << 10, 1 << 20, L3))
    for problem, order in (
        ("g480mb2ic480ih14oc480kh3ph1", ("mb", "g", "oh", "ow")),
        ("g144mb2ic144ih56oc144oh28kh5sh2ph2", ("mb", "g", "oh", "ow")),
        ("g144mb8ic144ih56oc144kh3ph1", ("mb", "oh", "ow", "g")),
    ):
        config, _ = choose.choose(Start.of(tw.convolution(problem, **knobs).resolved()), machine)
        assert isinstance(config, ContractionConfig)
        assert config.order == order


@pytest.mark.parametrize("direction", ["FWD_D", "BWD_D"])
def test_what_taps_share_has_registers_beside_the_sums(direction: str) -> None:
    """LLVM holds the vectors of an image's row that taps read again: 14 rows of 3 taps spill."""
    knobs: Any = {"src": "nhwc", "dst": "nhwc", "direction": direction}
    machine = x86.machine("avx512", caches=(32 << 10, 1 << 20, L3))
    for problem, taps in (("g96ic96ih28oc96kh3ph1", 3), ("g96ic96ih28oc96kh5ph2", 5)):
        config, _ = choose.choose(Start.of(tw.convolution(problem, **knobs).resolved()), machine)
        assert isinstance(config, ContractionConfig)
        vectors = config.tile["g"] // 16
        (rows,) = (size for dim, size in config.tile.items() if dim != "g")
        assert (rows + rows - 1 + taps + 1) * vectors < machine.vector_registers


# Blocks.


def test_blocks_are_for_a_beyond_the_caches() -> None:
    machine = x86.machine("avx2", cores=2, caches=(32 << 10, 512 << 10, L3))
    assert _config("512x512:512x512", machine).block == {}
    config = _config("3000x3000:3000x3000", machine)
    assert config.order == ("n", "m")
    (size,) = config.block.values()
    assert size % config.tile["m"] == 0 and size * 3000 * 4 <= L3 / 8
    # As many for both cores.
    assert 3000 // size % 2 == 0


CONFIG = ContractionConfig(
    instruction="fma_f32x8",
    lanes="n",
    tile={"m": 3, "n": 16},
    order=("n", "m"),
    step={"k": 4},
    reduce_order=("k",),
    block={"m": 12},
)


@pytest.mark.parametrize(
    "block",
    [{"m": 12}, {"m": 9}, {"n": 32}, {"n": 16, "m": 6}, {"m": 21, "n": 48}, {"m": 31}],
    ids=str,
)
def test_blocks_compute_the_same(block: dict[str, int]) -> None:
    """Rows and columns of which neither blocks nor tiles are a divisor."""
    op = tw.matmul("31x10:10x70", epilogue=[tw.bias(), tw.relu()])
    check(tw.compile(op, "x86:avx2", config=replace(CONFIG, block=block), threads=2))


def test_every_stage_computes_the_same() -> None:
    op = tw.matmul("14x6:6x40").resolved()
    start, machine = Start.of(op), x86.machine("avx2")
    scheduled = choose.schedule(start, machine, CONFIG)
    assert "blocked" in scheduled.stages
    check_schedule(scheduled)


def test_blocks_of_taps() -> None:
    config = ContractionConfig(
        instruction="fma_f32x8",
        lanes="oc",
        tile={"ow": 2, "oc": 8},
        order=("oc", "oh", "ow"),
        step={"ic": 2},
        reduce_order=("kh", "kw", "ic"),
        block={"oh": 4, "ow": 6},
    )
    op = tw.convolution("mb1ic4ih9oc20oh9kh3ph1", src="nhwc", dst="nhwc")
    check(tw.compile(op, "x86:avx2", config=config, threads=1))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"m": 10}, "block={'m': 10} cuts tiles of 3"),
        ({"k": 4}, "block='k' is no dim that this may name"),
        ({"m": 120}, "block={'m': 120} is not a part of the dim"),
    ],
)
def test_blocks_refused(block: dict[str, int], message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        tw.compile(tw.matmul("60x10:10x70"), "x86:avx2", config=replace(CONFIG, block=block))
    assert message in str(error.value)


# Packing.


@pytest.mark.parametrize(
    ("problem", "packs"),
    [
        ("512x512:512x512", True),
        # Few rows of A: as B lies, unless each of its rows is in another page.
        ("32x512:512x512", False),
        ("32x1024:1024x1024", True),
        ("8x1024:1024x1024", False),
        # Rows of B that follow one another.
        ("512x512:512x16", False),
    ],
)
def test_weights_that_lie_are_packed_where_that_pays(problem: str, packs: bool) -> None:
    assert _config(problem, x86.machine("avx2"), weights="ab").pack_b is packs


@pytest.mark.parametrize("layout", ["ab", "ba"])
def test_copies_have_both_sides_in_rows(layout: str) -> None:
    """Vectors where neighbours are neighbours in both, transposes in registers elsewhere."""
    op = tw.matmul("200x37:37x70", weights=layout, epilogue=[tw.bias()])
    check(tw.compile(op, "x86:avx2", config="pack_b=True", threads=2))
    _, scheduled = choose.choose(Start.of(op.resolved()), x86.machine("avx2"))
    lowered = to_text(scheduled.kernel)
    copy = lowered[: lowered.index("acc")]
    assert "vector for" in copy
    assert ("transpose_f32x8" in copy) is (layout == "ba")


@pytest.mark.parametrize("k", [38, 37])
def test_copies_of_pairs_take_rows_in_turn(k: int) -> None:
    """Of an odd number of rows, the last has zeros beside it."""
    op = tw.matmul(f"40x{k}:{k}x70", dtype="bf16:bf16:f32", weights="ab")
    _, scheduled = choose.choose(Start.of(op.resolved()), x86.machine("avx512_bf16"))
    assert "<interleave_bf16_2x16>" in to_text(scheduled.kernel)
    check_schedule(scheduled)
    check(tw.compile(op, threads=2))


@pytest.mark.parametrize("types", ["bf16:bf16:f32", "u8:s8:s32"])
def test_weights_are_packed_by_the_same_copies(types: str) -> None:
    op = tw.matmul("40x37:37x70", dtype=types)
    _, scheduled = choose.choose(Start.of(op.resolved()), x86.machine("avx512_bf16"))
    check_schedule(scheduled)
    text = to_text(scheduled.packed["weights"])
    assert "<interleave_bf16_2x16>" in text or "<transpose_s8x4>" in text
    check(tw.compile(op, threads=2))

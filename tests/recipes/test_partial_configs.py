"""Configs that users give: changes of the default, of a larger batch, and what may be said."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from commands import Command
from compiled import check, small
from staged import check_races
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.machines import nvidia, x86
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig, WorkgroupConfig
from tilewright.recipes.given import PartialConfig, read_config
from tilewright.recipes.legal import legal
from tilewright.recipes.parts import Order, Product, Staging, Tile
from tilewright.recipes.start import Start
from tilewright.targets.registry import find_target

pytestmark = pytest.mark.usefixtures("own_cache")
AVX2 = "x86:avx2"


# Changes of the default.


def test_changes_of_the_default() -> None:
    """Of a dict, the entries that are not given stay."""
    default = tw.compile(small(), AVX2, threads=1).config
    assert isinstance(default, ContractionConfig) and default.tile["ow"] > 1
    changes: tuple[Any, ...] = (
        "tile={'oc': 8}, step={'ic': 2}",
        {"tile": {"oc": 8}, "step": {"ic": 2}},
    )
    for change in changes:
        kernel = tw.compile(small(), AVX2, threads=1, config=change)
        assert kernel.config == replace(
            default, tile={**default.tile, "oc": 8}, step={**default.step, "ic": 2}
        )
        check(kernel)
    again = tw.compile(small(), AVX2, threads=1, config=kernel.config)
    assert again.source("llvm") == kernel.source("llvm")
    kernel = tw.compile(tw.pool("mb1ic20ih9kh3sh2ph1", src="nhwc"), config="unroll=3", threads=1)
    assert kernel.config.unroll == 3  # type: ignore[union-attr]
    check(kernel)


REFUSED: dict[str, tuple[Any, str]] = {
    "no field": ("tail={'oc': 8}", r"'tail' is nothing that[^$]*its default is[^$]*lanes, tile"),
    "no form": ("tile=3", "tile=3 is not a dict of dims with sizes"),
    "no dim": ({"tile": {"x": 2}}, "tile='x' is no dim that this may name"),
    "nothing": ({}, "a dict is no change of a config"),
    "no names": ({3: 4}, "is no change of a config"),
    "no literal": ("tile=exit()", "is not a config"),
    "trailing": ("step={'ic': 2}) or (1", "is not a config"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_changes_nothing(name: str) -> None:
    values, text = REFUSED[name]
    with pytest.raises(ScheduleError, match=text):
        tw.compile(small(), AVX2, threads=1, config=values)


def test_changes_of_several_groups() -> None:
    kernel = tw.parse_kernel("""
kernel perceptron(in x: f32[16, 32], in v: f32[32, 48], in w: f32[48, 8], out y: f32[16, 8]):
  alloc h: f32[16, 48]
  compute clear(m in 16, n in 48):
    h[m, n] = 0.0
  compute first(m in 16, n in 48, k in 32):
    h[m, n] add= x[m, k] * v[k, n]
  compute start(m in 16, n in 8):
    y[m, n] = 0.0
  compute second(m in 16, n in 8, k in 48):
    y[m, n] add= h[m, k] * w[k, n]
""")
    with pytest.raises(ScheduleError, match=r"'tile' is nothing[^$]*GroupsConfig[^$]*groups"):
        tw.compile(kernel, AVX2, threads=1, config="tile={'n': 8}")


def test_changes_of_parts() -> None:
    """Of a part, the fields that are given are others, and of a dict in it the entries."""
    product, tile = Product("fma_f32x4", "n"), Tile({"m": 8, "n": 16}, {"m": 2, "n": 4})
    default = WorkgroupConfig(product, tile, staging=Staging(stages=2, vector=4))
    values = "tile={'group': {'m': 16}}, staging={'stages': 3}, order=Order(raster=4)"
    changed = WorkgroupConfig(
        product,
        Tile({"m": 16, "n": 16}, tile.item),
        staging=Staging(stages=3, vector=4),
        order=Order(raster=4),
    )
    for text in (values, str(read_config(values))):
        change = read_config(text)
        assert isinstance(change, PartialConfig) and change.over(default) == changed
    assert read_config({"staging": {"stages": 3}}) == PartialConfig({"staging": {"stages": 3}})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("stages=3", "'stages' is nothing[^$]*product, tile, [^$]*stages is a field of staging"),
        ("tile={'m': 8}", "'tile.m' is nothing[^$]*choose some of tile.group, tile.item;"),
        ("tile=8", "tile=8 is not a Tile"),
        ("tile=Tile(m=8)", "is not a config"),
        ("tile=ContractionConfig(k='')", "is not a config"),
    ],
)
def test_changes_that_no_part_has(given: str, text: str) -> None:
    default = WorkgroupConfig(Product("", "n"))
    with pytest.raises(ScheduleError, match=text):
        change = read_config(given)
        assert isinstance(change, PartialConfig)
        change.over(default)


def test_how_a_change_prints() -> None:
    config = read_config(" tile={'oc': 32}, pack_a=True ")
    assert config == PartialConfig({"tile": {"oc": 32}, "pack_a": True})
    assert read_config(str(config)) == config


# One that fits a larger batch fits one image.


@pytest.mark.parametrize(
    ("machine", "pair"),
    [
        (x86.machine("avx2"), ("mb4ic16ih6oc32kh3ph1", "mb1ic16ih6oc32kh3ph1")),
        (x86.machine("avx2"), ("mb4ic16ih6oc32kh1ph0", "mb1ic16ih6oc32kh1ph0")),
        (x86.machine("avx2"), ("mb4ic16ih2oc32kh1ph0", "mb1ic16ih2oc32kh1ph0")),
        (x86.machine("avx2"), ("mb4ic16ih1oc32kh1", "mb1ic16ih1oc32kh1")),
        (x86.machine("avx2"), ("8x32:32x48", "1x32:32x48")),
        (x86.machine("avx2"), ("4x8x32:4x32x48", "1x8x32:1x32x48")),
        (nvidia.machine("sm_80"), ("mb4ic16ih6oc32kh3ph1", "mb1ic16ih6oc32kh3ph1")),
        (nvidia.machine("sm_80"), ("mb4ic16ih6oc32kh1ph0", "mb1ic16ih6oc32kh1ph0")),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_batches(machine: Any, pair: tuple[str, str]) -> None:
    def op(problem: str) -> Op:
        if ":" in problem:
            return tw.matmul(problem).resolved()
        return tw.convolution(problem, src="nhwc", dst="nhwc").resolved()

    larger, one = (Start.of(op(problem)) for problem in pair)
    values, _ = choose.choose(larger, machine)
    config, scheduled = choose.schedule_given(one, machine, values)
    # It names no dim that is not there, and gives what it gives when it is written down.
    sizes = {param.name: param.buffer.shape for param in one.kernel.arrays}
    assert sizes and type(config) is type(values)
    again, same = choose.schedule_given(one, machine, config)
    assert again == config and to_text(same.kernel) == to_text(scheduled.kernel)
    if isinstance(config, ContractionConfig):
        assert "mb" not in (*config.tile, *config.order)
    assert isinstance(config, ContractionConfig | WorkgroupConfig)


def test_a_batch_of_one_runs() -> None:
    for descriptor in ("ic16ih6oc32kh3ph1", "ic16ih2oc32kh1ph0"):
        four, one = (tw.convolution(f"mb{n}{descriptor}", src="nhwc", dst="nhwc") for n in (4, 1))
        values = tw.compile(four, AVX2, threads=1).config
        check(tw.compile(one, AVX2, threads=1, config=values))
        assert isinstance(values, ContractionConfig)
        wide = replace(values, tile={**values.tile, "mb": 2})
        check(tw.compile(four, AVX2, threads=1, config=wide))
        check(tw.compile(one, AVX2, threads=1, config=str(wide)))


def test_tiles_end_with_the_dim() -> None:
    """Of four rows, six pixels are a tile; one row has four."""
    rows, row = (
        tw.convolution(f"mb1ic16ih{n}iw4oc32kh1kw1", src="nhwc", dst="nhwc") for n in (4, 1)
    )
    values = tw.compile(rows, AVX2, threads=1, config="tile={'oh_ow': 6, 'oc': 8}").config
    kernel = tw.compile(row, AVX2, threads=1, config=values)
    assert isinstance(kernel.config, ContractionConfig)
    assert kernel.config.tile == {"ow": 4, "oc": 8} and sorted(kernel.config.order) == ["oc", "ow"]
    assert kernel.config.fuse == ()
    check(kernel)


def test_the_default_of_a_kernel_stays_as_it_is() -> None:
    for problem in ("mb1ic16ih6oc32kh3ph1", "mb1g1ic8ih1oc8kh1", "mb2ic3ih7oc8kh3ph1sh2"):
        start = Start.of(tw.convolution(problem, src="nhwc", dst="nhwc").resolved())
        for machine in (x86.machine("avx512"), nvidia.machine("sm_80")):
            config, scheduled = choose.choose(start, machine)
            again, same = choose.schedule_given(start, machine, config)
            assert again == config and to_text(same.kernel) == to_text(scheduled.kernel)


# What may be said.


@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8:s8:s32"])
def test_legal_values_are_legal(dtype: str) -> None:
    """Each name that is listed can be chosen, and each largest size."""
    machine = x86.machine("avx512_bf16")
    op = tw.convolution("mb2ic16ih6oc32kh3ph1", dtype=dtype, src="nhwc", dst="nhwc")
    start = Start.of(op.resolved())
    default, _ = choose.choose(start, machine)
    assert isinstance(default, ContractionConfig)
    values = legal(start.kernel, machine, default)
    assert list(values) == [name for name in ContractionConfig.__dataclass_fields__]
    tried: list[dict[str, Any]] = [
        {"order": tuple(values["order"].rpartition(": ")[2].split(", "))}
    ]
    tried += [{"reduce_order": tuple(values["reduce_order"].rpartition(": ")[2].split(", "))}]
    for field in ("instruction", "lanes", "k"):
        assert repr(getattr(default, field)) in values[field]
        tried += [{field: name} for name in re.findall(r"'(\w*)'", values[field])]
    for dim in ("ow", "oh"):
        size = int(re.findall(rf"{dim}: 1 to (\d+)", values["tile"])[0])
        tried.append({"tile": {dim: size}})
        with pytest.raises(ScheduleError, match=f"choose 1 to {size}"):
            choose.schedule_given(start, machine, PartialConfig({"tile": {dim: size + 1}}))
    for changes in tried:
        choose.schedule_given(start, machine, PartialConfig(changes))


def test_legal_values_on_the_command_line(tilewright: Command) -> None:
    result = tilewright(
        "show", "conv", "--stage", "config", "--legal", "--target", AVX2, "ic16ih6oc32kh3"
    )
    assert "# lanes         'oc'\n" in result.out
    assert "# step          ic: 1 to 16; kh: 1 to 3; kw: 1 to 3\n" in result.out
    assert "predicted" not in result.out
    bf16 = ["--target", "nvidia:sm_80", "--dt", "bf16", "256x256:256x256"]
    result = tilewright("show", "matmul", "--stage", "config", "--legal", *bf16)
    assert "'mma_m16n8k16_f32_bf16'" in result.out
    assert re.search("# product.lanes +'n'\n", result.out)
    result = tilewright("show", "pool", "--stage", "config", "--legal", "ic20ih9kh3")
    assert "# unroll  a whole number, 1 or more\n" in result.out
    result = tilewright("show", "conv", "--legal", "ic16ih6oc32kh3")
    assert result.code == 2 and "write --stage config --legal" in result.err


def test_a_change_on_the_command_line(tilewright: Command) -> None:
    values = ["--target", AVX2, "--config", "tile={'oc': 8}", "ic16ih6oc32kh3"]
    assert "'oc': 8}" in tilewright("show", "conv", "--stage", "config", *values).out
    result = tilewright("verify", "conv", "--on", "interpreter", *values)
    assert result.code == 0, result.err


# What transforms refuse.


def test_what_a_transform_refuses_is_said_of_the_config() -> None:
    with pytest.raises(ScheduleError) as caught:
        tw.compile(small(), AVX2, threads=1, config="fuse=(('oh', 'ow', 'p'),)")
    assert caught.value.what.startswith("the config does not fit this kernel: 'oh' and 'ow'")
    assert "fuse_dims" not in str(caught.value)
    assert str(caught.value.where).startswith("config ContractionConfig(")
    assert "--legal" in str(caught.value.cure)


@pytest.mark.parametrize("target", ["spirv:gpu", "nvidia:sm_80"])
@pytest.mark.parametrize(
    "op",
    [
        tw.convolution("mb1ic16ih14oc16kh3ph1"),
        tw.convolution("mb2ic64ih28oc64kh3ph1sh2"),
        tw.convolution("ic3iw9oc5kw3pw1"),
        tw.convolution("mb1ic4ih7oc8kh3ph1", direction="bwd_data"),
    ],
)
def test_a_halo_needs_no_more_than_to_be_asked_for(target: str, op: Any) -> None:
    """The default's tiles of joined dims become boxes, and its steps as short as fit."""
    machine, start = find_target(target).machine, Start.of(op.resolved())
    default, _ = choose.choose(start, machine)
    config, _ = choose.schedule_given(start, machine, read_config("staging={'halo': True}"))
    assert isinstance(config, WorkgroupConfig) and isinstance(default, WorkgroupConfig)
    assert config.staging.halo and not default.staging.halo
    assert math.prod(config.tile.group.values()) == math.prod(default.tile.group.values())
    assert math.prod(config.tile.item.values()) == math.prod(default.tile.item.values())
    if op.flops < 100_000:
        check_races(op, machine, config)

"""Configs of compiled kernels, levels of x86, and what the code costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import check, inputs, small
from skips import lacking
from tilewright.engine.cost import cost_of
from tilewright.engine.request import request_of
from tilewright.errors import ArgumentError, ScheduleError, UnsupportedError
from tilewright.machines import x86
from tilewright.problems import parse
from tilewright.recipes.config import ContractionConfig, ElementwiseConfig, parse_config
from tilewright.targets.x86 import device
from tilewright.targets.x86.assemble import host_features
from tilewright.testing.case import Case

pytestmark = pytest.mark.usefixtures("own_cache")


# Configs.


def test_a_config_prints_as_what_makes_it() -> None:
    for op in (small(), small(dtype="bf16"), tw.reorder("3x20")):
        kernel = tw.compile(op, threads=1)
        assert parse_config(repr(kernel.config)) == kernel.config
        assert hash(parse_config(repr(kernel.config))) == hash(kernel.config)
        again = tw.compile(op, threads=1, config=repr(kernel.config))
        assert again.config == kernel.config
        assert again.source("llvm") == kernel.source("llvm")
        check(again)


@pytest.mark.parametrize(
    "changes",
    [
        {"tile": {"ow": 3, "oc": 16}},
        {"tile": {"oc": 32}, "order": ("oh", "oc", "ow")},
        {"tile": {"oh": 2, "ow": 2, "oc": 16}},
        {"step": {"ic": 8}, "reduce_order": ("ic", "kw", "kh")},
        {"step": {"kw": 3}},
        {"order": ()},
        {"instruction": ""},
    ],
)
def test_config_overrides(changes: dict[str, Any]) -> None:
    chosen = tw.compile(small(), threads=1).config
    assert isinstance(chosen, ContractionConfig)
    config = replace(chosen, **changes)
    kernel = tw.compile(small(), threads=1, config=str(config))
    assert kernel.config == config
    check(kernel)


ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "instruction": ({"instruction": "fma_f9x3"}, "has no instruction 'fma_f9x3'[^$]*choose one of"),
    "instruction of other types": (
        {"instruction": "fma_f64x8"},
        r"'fma_f64x8' multiplies other types[^$]*f32 and f32 added up in f32[^$]*'fma_f32x16'",
    ),
    "instruction without k": ({"instruction": "vdpbf16ps_512"}, "multiplies other types"),
    "k with an instruction without": ({"k": "ic"}, "and k='ic' do not go together"),
    "lanes": ({"lanes": "x"}, "lanes='x' is no dim that this may name[^$]*choose one of"),
    "reduced lanes": ({"lanes": "ic"}, "lanes='ic' is no dim that this may name"),
    "lanes apart": ({"lanes": "ow"}, "lanes='ow' is no dim for[^$]*choose one of oc"),
    "tile": ({"tile": {"x": 3}}, "tile='x' is no dim that this may name"),
    "tile of 0": ({"tile": {"oc": 0}}, r"tile=\{'oc': 0\} is not a dict of dims with sizes"),
    "tile of a fraction": ({"tile": {"oc": 2.5}}, "with sizes, which are 1 or more"),
    "no tile": ({"tile": None}, "tile=None is not a dict of dims"),
    "order": ({"order": ("x",)}, "order='x' is no dim that this may name"),
    "order twice": ({"order": ("oc", "oc")}, r"\('oc', 'oc'\) is not a tuple of dims, each once"),
    "order as text": ({"order": "oc"}, "order='oc' is not a tuple of dims"),
    "step": ({"step": {"oc": 4}}, "step='oc' is no dim that this may name"),
    "step of 0": ({"step": {"ic": 0}}, "with sizes, which are 1 or more"),
    "step of a fraction": ({"step": {"ic": 1.5}}, "step=.*1.5.* is not a dict of dims"),
    "reduce_order": ({"reduce_order": ("oc",)}, "reduce_order='oc' is no dim that this may name"),
    "k": ({"k": "x"}, "k='x' is no dim that this may name"),
    "k without a dot product": ({"k": "ic"}, "'fma_f32x16' and k='ic' do not go together"),
    "fuse": (
        {"fuse": (("a", "b", "c"),)},
        "the config does not fit this kernel: no compute has the dims",
    ),
    "fuse across a mask": ({"fuse": (("oh", "ow", "p"),)}, "'oh' and 'ow' do not fuse in the mask"),
    "fuse of two": ({"fuse": (("oh", "ow"),)}, r"is not a tuple of \(outer, inner, new name\)"),
    "split": ({"split": (("oh", 0),)}, r"split=.* is not a tuple of \(dim, factor\)"),
    "pack_a": ({"pack_a": "oh"}, "pack_a='oh' is not True or False"),
    "instruction of no name": ({"instruction": 5}, "instruction=5 is not a name in quotes"),
    "pack_b": ({"pack_b": False}, "pack_b=False: weights does not lie as 'fma_f32x16'"),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_configs(name: str) -> None:
    changes, text = ILLEGAL[name]
    legal = tw.compile(small(), target="x86:avx512_bf16", threads=1).config
    assert isinstance(legal, ContractionConfig)
    with pytest.raises((ScheduleError, UnsupportedError), match=text):
        tw.compile(small(), target="x86:avx512_bf16", threads=1, config=replace(legal, **changes))


@pytest.mark.parametrize("values", ["0", "-1", "'a'", "1.5", "None", "True", "8, unroll=0"])
def test_illegal_streaming_configs(values: str) -> None:
    with pytest.raises(ScheduleError, match=r"is not a whole number, 1 or more[^$]*cure: write"):
        tw.compile(tw.pool("ic20ih9kh3"), config=f"ElementwiseConfig(vector={values})")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "exit()",
        "ElementwiseConfig(16)",
        "ElementwiseConfig(lanes=16)",
        "ElementwiseConfig(vector=__import__('os').getpid())",
        "ContractionConfig(instruction='fma_f32x16')",
    ],
)
def test_text_that_is_no_config(text: str) -> None:
    with pytest.raises(ScheduleError, match=r"is not a config[^$]*ElementwiseConfig\(vector="):
        tw.compile(small(), config=text)


def test_a_config_of_another_kind() -> None:
    pool = tw.pool("mb1ic20ih9kh3sh2ph1", src="nhwc")
    with pytest.raises(ScheduleError, match=r"pool_fwd_d is no contraction[^$]*ElementwiseConfig"):
        tw.compile(pool, config=repr(tw.compile(small(), threads=1).config))
    for config in (ElementwiseConfig(vector=4), ElementwiseConfig(vector=8, unroll=3)):
        check(tw.compile(pool, threads=1, config=config))
    check(tw.compile(small(), threads=1, config="ElementwiseConfig(vector=16)"))


# Levels of x86.


@pytest.mark.parametrize("level", ["sse42", "avx2", "avx512", "avx512_vnni", "avx512_bf16"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8:s8:s32"])
def test_levels(level: str, dtype: str) -> None:
    kernel = tw.compile(small(dtype=dtype), target=f"x86:{level}", threads=2)
    if not kernel.target.runs_here:
        lacking(f"this processor has no {level}")
    check(kernel)
    registers = {"sse42": "xmm", "avx2": "ymm"}.get(level, "zmm")
    text = kernel.source("asm")
    assert f"%{registers}0" in text
    assert "fmaf" not in text  # a call for each element, where there is no FMA
    assert not any(wider in text for wider in ("ymm", "zmm") if wider > registers)


def test_code_for_other_machines_is_made_but_not_run(tmp_path: Path) -> None:
    kernel = tw.compile(small(), target="x86:amx", threads=1)
    if kernel.target.runs_here:
        lacking("this processor has AMX, so all code runs here")
    arrays = inputs(kernel)
    why = r"kernels for x86:amx do not run[^$]*it has no amx-bf16[^$]*export the kernel"
    with pytest.raises(UnsupportedError, match=why):
        kernel.pack("weights", arrays["weights"])
    streaming = tw.compile(tw.elementwise("40", "abs"), target="x86:amx", threads=1)
    with pytest.raises(UnsupportedError, match=why):
        streaming(src=np.zeros(40, np.float32))
    with pytest.raises(UnsupportedError, match=why):
        streaming.bind(src=np.zeros(40, np.float32))()
    assert (kernel.export(tmp_path / "out", "conv_fwd_b") / "conv_fwd_b.o").stat().st_size > 0


@pytest.mark.parametrize("allowed", [True, False])
def test_tiles_are_used_only_where_the_system_allows_them(
    allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = ",".join(f"+{feature}" for feature in x86.machine("amx").features)
    monkeypatch.setattr(device, "host_features", lambda: features)
    monkeypatch.setattr(device, "_allow_tiles", lambda: allowed)
    result = device.host.__wrapped__()  # which is remembered otherwise
    assert result.name == ("x86-amx" if allowed else "x86-avx512_fp16")


def test_asking_for_tiles() -> None:
    has = "+amx-tile" in host_features().split(",")
    assert device._allow_tiles() <= has


def test_unknown_targets() -> None:
    with pytest.raises(
        UnsupportedError, match=r"no target 'arm'[^$]*choose one of interpreter, nvidia, spirv, x86"
    ):
        tw.compile(small(), target="arm")
    with pytest.raises(UnsupportedError, match="unknown x86 feature level 'mmx'"):
        tw.compile(small(), target="x86:mmx")


# What it costs.


def test_cost() -> None:
    op = tw.convolution("mb1ic64ih6oc32kh3ph1", src="nhwc", dst="nhwc")
    cost = tw.compile(op, target="x86:avx512_bf16", threads=1).cost()
    assert cost.spills == 0
    assert cost.vector_registers is not None and 8 < cost.vector_registers <= 32
    assert cost.mix["vfmadd231ps"] > 0
    assert cost.instructions == sum(cost.mix.values())
    assert cost.bytes == 4 * (64 * 36 + 32 * 64 * 9 + 32 * 36)
    # 16 * 16 of the 18 * 18 taps along the two spatial dims are inside of the image.
    assert cost.flops == 2 * 32 * 64 * 16 * 16


def test_cost_finds_spills() -> None:
    """A tile of 14 x 4 vectors does not fit 32 registers."""
    op = tw.matmul("28x32:32x64")
    chosen = tw.compile(op, target="x86:avx512_bf16", threads=1)
    assert isinstance(chosen.config, ContractionConfig)
    config = replace(chosen.config, tile={"m": 14, "n": 64})
    kernel = tw.compile(op, target="x86:avx512_bf16", threads=1, config=config)
    assert chosen.cost().spills == 0
    spills = kernel.cost().spills
    assert spills is not None and spills > 20
    assert kernel.cost().vector_registers == 32


def test_what_lies_on_the_stack_is_no_spill() -> None:
    """LLVM says what it stores for want of registers; tiles, and arrays, have a place there."""
    request = request_of(Case(parse("matmul", "4x4:4x4")).op())
    text = (
        "f:\n\tvmovaps\t%zmm0, 128(%rsp)\n\ttilestored\t%tmm0, (%rsp,%rax)\n"
        "\tvmovups\t%zmm1, 64(%rsp)                   # 64-byte Spill\n"
        "\tvfmadd231ps\t64(%rsp), %zmm2, %zmm3    # 64-byte Folded Reload\n"
        "\ttilestored\t%tmm1, 1024(%rsp,%rbx)       # 1024-byte Folded Spill\n"
        "\tmovq\t%rdi, 56(%rsp)                     # 8-byte Spill\n"
        "                                        # kill: def $eax killed $eax\n"
        "\tvaddps\t%ymm3, %ymm2, %ymm0\n\tretq\n"
    )
    cost = cost_of(request, request.signature(), text)
    assert (cost.spills, cost.vector_registers) == (3, 4)
    assert cost.mix["tilestored"] == 2 and cost.instructions == 8


def test_sources() -> None:
    kernel = tw.compile(small(), threads=1)
    assert "define void @conv_fwd_b(" in kernel.source("llvm")
    assert "conv_fwd_b:" in kernel.source("asm")
    assert next(iter(kernel.stages)) == "naive"
    with pytest.raises(ArgumentError, match=r"no source 'ptx'[^$]*choose llvm, asm or schedule"):
        kernel.source("ptx")

"""Sums of a few products by work-items that share nothing: depthwise convolutions, stencils."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import tilewright as tw
from assembly import assembled
from staged import check_races
from tilewright.errors import ScheduleError
from tilewright.ir import to_text
from tilewright.machines import nvidia, spirv, x86
from tilewright.machines.machine import Machine
from tilewright.ops.op import Op
from tilewright.passes import run
from tilewright.recipes import choose
from tilewright.recipes.config import StencilConfig, parse_config
from tilewright.recipes.start import Start
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches

SM_80 = nvidia.machine("sm_80")


def _conv(
    problem: str, direction: str = "fwd", layout: str = "nhwc", dtype: str = "bf16", **given: object
) -> Op:
    return tw.convolution(  # type: ignore[arg-type]
        problem, direction=direction, dtype=dtype, src=layout, dst=layout, **given
    )


# What is chosen: neighbours of a load, or those that lanes are, and results whose taps overlap.
CHOSEN: dict[str, tuple[Op, StencilConfig | None]] = {
    "channels last": (
        _conv("g16mb2ic16ih8oc16oh8kh3ph1"),
        StencilConfig("g", 8, {"ow": 4}),
    ),
    "f32": (_conv("g16mb2ic16ih9oc16oh9kh3ph1", dtype="f32"), StencilConfig("g", 4, {"ow": 3})),
    "odd channels": (_conv("g9mb2ic9ih7oc9oh7kh3ph1"), StencilConfig("g", 1)),
    "channels first": (
        _conv("g6mb2ic6ih8oc6oh8kh3ph1", layout="nchw"),
        StencilConfig("ow", 1, {"oh": 4}),
    ),
    "strides": (_conv("g12mb2ic12ih9oc12oh5kh3sh2ph1"), StencilConfig("g", 4)),
    "by data": (
        _conv("g16mb2ic16ih8oc16oh8kh3ph1", "bwd_d"),
        StencilConfig("g", 8, {"iw": 4}),
    ),
    "by data, where strides leave taps out": (
        _conv("g16mb2ic16ih8oc16oh4kh3sh2ph1", "bwd_d"),
        None,
    ),
    "dilation, one dim": (
        _conv("g8mb2ic8iw16oc8ow16kw3dw1pw2", layout="axb"),
        StencilConfig("g", 8, {"ow": 4}),
    ),
    "three dims": (
        _conv("g8mb1ic8id4ih5iw6oc8od4oh5ow6kd3kh3kw3pd1ph1pw1", layout="axb"),
        StencilConfig("g", 8, {"ow": 3}),
    ),
    "one channel": (
        _conv("mb2ic1ih8oc1oh8kh3ph1", layout="nchw", dtype="f32"),
        StencilConfig("ow", 1, {"oh": 4}),
    ),
    "by weights": (_conv("g16mb2ic16ih8oc16oh8kh3ph1", "bwd_w"), None),
    "groups": (_conv("g2mb2ic32ih8oc32oh8kh3ph1"), None),
    "many taps": (_conv("g8mb1ic8ih12oc8oh12kh9ph4"), None),
    "no groups": (_conv("mb2ic16ih8oc16oh8kh3ph1"), None),
    "a vector of weights": (tw.matmul("64x64:64x1", dtype="f32"), None),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen(name: str) -> None:
    op, expected = CHOSEN[name]
    op = op.resolved()
    config, _ = choose.choose(Start.of(op), SM_80)
    assert config == expected or (expected is None and not isinstance(config, StencilConfig))


@pytest.mark.parametrize("machine", [SM_80, spirv.machine("gpu")], ids=lambda m: m.name)
@pytest.mark.parametrize("name", [name for name, (_, config) in CHOSEN.items() if config])
def test_the_stages_are_right(name: str, machine: Machine) -> None:
    scheduled = check_races(CHOSEN[name][0], machine)
    assert "tiled" in scheduled.stages


def test_an_epilogue_and_weights_as_they_lie() -> None:
    op = _conv(
        "g16mb2ic16ih8oc16oh8kh3ph1",
        weights="hwigo",
        epilogue=[tw.bias(), tw.sum(), tw.relu()],
    )
    assert check_races(op, SM_80).packed == {}


def test_threads_of_a_cpu_have_a_recipe_of_their_own() -> None:
    op = CHOSEN["channels last"][0].resolved()
    config, _ = choose.choose(Start.of(op), x86.machine("avx2"))
    assert not isinstance(config, StencilConfig)
    # By hand it runs there, too.
    check_races(op, x86.machine("avx2"), StencilConfig("g", 8, {"ow": 2}))


LARGE = [
    ("g144mb64ic144ih56oc144kh3ph1", "fwd"),
    ("g144mb64ic144ih56oc144kh3sh2ph1", "fwd"),
    ("g96mb64ic96ih56oc96kh7ph3", "fwd"),
    ("g96mb64ic96ih56oc96kh5ph2", "bwd_d"),
    ("g32mb4ic32id16ih28iw28oc32kd3kh3kw3pd1ph1pw1", "fwd"),
]


@pytest.mark.parametrize("level", ["sm_70", "sm_90a"])
@pytest.mark.parametrize("layout", ["axb", "abx"])
@pytest.mark.parametrize(("problem", "direction"), LARGE)
def test_large_ones_are_assembled(problem: str, direction: str, layout: str, level: str) -> None:
    machine = nvidia.machine(level)
    op = _conv(problem, direction, layout, "f16").resolved()
    config, scheduled = choose.choose(Start.of(op), machine)
    assert isinstance(config, StencilConfig)
    ptx = to_ptx(lower_launches(run(scheduled.kernel), machine).text, level)
    # Neighbours are loaded and stored at once, and nothing is shared.
    assert ("st.global.v4.b32" in ptx) == (layout == "axb")
    assert "ld.shared" not in ptx and "bar.sync" not in ptx
    assembled(ptx, level)


def test_the_text(golden: Callable[[str, str], None]) -> None:
    op = _conv("g16mb2ic16ih8oc16oh8kh3ph1").resolved()
    _, scheduled = choose.choose(Start.of(op), SM_80)
    golden("stencil", to_text(scheduled.stages["lowered"]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("StencilConfig(lanes='g', vector=3)", "3 results along 'g'"),
        ("StencilConfig(lanes='kh', vector=1)", "1 results along 'kh'"),
        ("StencilConfig(lanes='g', vector=8, item={'ow': 3})", "3 results along 'ow'"),
        ("StencilConfig(lanes='g', vector=8, item={'x': 1})", "1 results along 'x'"),
    ],
)
def test_refused_configs(text: str, message: str) -> None:
    op = _conv("g16mb2ic16ih8oc16oh8kh3ph1").resolved()
    config = parse_config(text)
    assert parse_config(repr(config)) == config
    with pytest.raises(ScheduleError, match=re.escape(message)) as caught:
        choose.schedule(Start.of(op), SM_80, config)
    assert caught.value.cure

"""Clusters in schedules: what workgroups read in common, each copies a part of for all."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from assembly import assembled
from staged import check_races
from sweeps import in_turns
from tilewright import interpret
from tilewright.errors import CompilationError, ScheduleError
from tilewright.interpret import FaultKind, Findings
from tilewright.ir import Kernel, parse_kernel, to_text, verify
from tilewright.machines import nvidia
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule.pipelines.multicast import multicast
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from workgroup_configs import with_fields, workgroup_config

MACHINE = nvidia.machine("sm_90a")
CONFIG = workgroup_config(
    instruction="wgmma_m64n16k16_f32_bf16",
    lanes="n",
    group={"m": 128, "n": 16},
    item={"m": 64, "n": 16},
    order=("m", "n"),
    step={"k": 16},
    stages=2,
    fill="unit",
    k="k",
    cluster={"m": 2},
)


def _conv(rows: str, lanes: str = "oc", k: str = "ic") -> dict[str, Any]:
    """What a convolution changes of `CONFIG`, with ``rows`` of pixels."""
    return {
        "group": {rows: 128, lanes: 16},
        "item": {rows: 64, lanes: 16},
        "lanes": lanes,
        "order": (rows, lanes),
        "step": {k: 16},
        "k": k,
        "cluster": {rows: 2},
    }


CASES: dict[str, tuple[Op, dict[str, Any]]] = {
    "along m": (tw.matmul("500x72:72x48", dtype="bf16"), {}),
    "along n": (tw.matmul("200x72:72x64", dtype="bf16"), {"cluster": {"n": 2}}),
    "half of the last one beyond the result": (tw.matmul("300x72:72x16", dtype="bf16"), {}),
    "four": (tw.matmul("512x64:64x32", dtype="bf16"), {"cluster": {"m": 4}, "step": {"k": 32}}),
    **{
        f"{stages} stages": (tw.matmul("256x88:88x32", dtype="bf16"), {"stages": stages})
        for stages in (1, 3)
    },
    "boxes": (
        tw.matmul("512x72:72x256", dtype="bf16", weights="ab"),
        {
            "instruction": "wgmma_m64n128k16_f32_bf16",
            "group": {"m": 128, "n": 128},
            "item": {"m": 64, "n": 128},
        },
    ),
    "rows along k": (tw.matmul("512x72:72x48", dtype="bf16", weights="ba"), {}),
    "rows along m": (
        tw.matmul("256x72:72x96", dtype="bf16", src="ba"),
        {"cluster": {"n": 2}},
    ),
    "persistent": (
        tw.matmul("700x72:72x80", dtype="bf16"),
        {"persistent": 6, "stages": 3, "raster": 2},
    ),
    "persistent, fewer workgroups than a cluster": (
        tw.matmul("300x40:40x32", dtype="bf16"),
        {"persistent": 1},
    ),
    "slices, batch": (
        tw.matmul("2x250x64:2x64x16", dtype="bf16:bf16:f32"),
        {"order": ("b0", "m", "n"), "slices": (("k", 2),), "persistent": 4},
    ),
    "stored by the unit": (
        tw.matmul("512x64:64x128", dtype="bf16"),
        {
            "instruction": "wgmma_m64n64k16_f32_bf16",
            "group": {"m": 128, "n": 64},
            "item": {"m": 64, "n": 64},
            "persistent": 4,
            "epilogue_tile": {"m": 64, "n": 64},
        },
    ),
    "weights for all": (
        tw.convolution("mb4ic32ih9iw8oc16oh9ow8kh3kw3ph1pw1", dtype="bf16", src="axb", dst="axb"),
        _conv("mb_oh_ow"),
    ),
    "columns of pixels for all": (
        tw.convolution(
            "mb3ic32ih11iw9oc32oh6ow5kh3kw3sh2sw2ph1pw1", dtype="bf16", src="axb", dst="axb"
        ),
        {**_conv("mb_oh_ow"), "cluster": {"oc": 2}},
    ),
    "by data": (
        tw.convolution(
            "mb4ic16ih9oc32oh9kh3ph1", direction="bwd_d", dtype="bf16", src="axb", dst="axb"
        ),
        _conv("mb_ih_iw", "ic", "oc"),
    ),
    "by weights": (
        tw.convolution(
            "mb3ic64ih7oc32oh7kh3ph1", direction="bwd_w", dtype="bf16", src="axb", dst="axb"
        ),
        {
            **_conv("kh_kw_ic", "oc", "mb_oh_ow"),
            "fused": ("mb", "oh", "ow"),
            "cluster": {"oc": 2},
        },
    ),
}


def _scheduled(op: Op, changed: dict[str, Any]) -> KernelSchedule:
    op = op.resolved()
    return choose.schedule(Start.of(op), MACHINE, with_fields(CONFIG, **changed))


@pytest.mark.parametrize("name", in_turns(8, CASES))
def test_stages_compute_what_the_naive_one_does(name: str) -> None:
    op, changed = CASES[name]
    stages = check_races(op, MACHINE, with_fields(CONFIG, **changed)).stages
    assert {"warp-specialized", "multicast", "tensorized", "lowered"} <= stages.keys()


@pytest.mark.parametrize("name", CASES)
def test_what_is_launched(name: str) -> None:
    op, changed = CASES[name]
    module = lower_launches(_scheduled(op, changed).kernel, MACHINE)
    (launch, *_) = module.launches
    (size,) = changed.get("cluster", CONFIG.order.cluster).values()
    assert launch.cluster == size and launch.groups % size == 0
    ptx = to_ptx(module.text, "sm_90a")
    assert f".reqnctapercluster {size}" in ptx
    receivers = re.findall(r"complete_tx::bytes\.multicast::cluster .*, (\d+);", ptx)
    assert receivers and set(receivers) == {str(2**size - 1)}
    assert "complete_tx::bytes [" in ptx  # of what a workgroup alone reads
    assembled(ptx, "sm_90a")


def _product(**changed: Any) -> KernelSchedule:
    return _scheduled(tw.matmul("512x64:64x32", dtype="bf16:bf16:f32"), changed)


@cache
def _kernel(stage: str = "multicast") -> Kernel:
    return _product().stages[stage]


def test_the_text(golden: Callable[[str, str], None]) -> None:
    golden("multicast", to_text(_kernel("warp-specialized")) + "\n\n" + to_text(_kernel()))


def _right(kernel: Kernel, findings: Findings | None = None) -> bool:
    verify(kernel)
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, shape) for shape in ((512, 64), (64, 32)))
    c = np.zeros(512 * 32, np.float32)
    src, weights, dst = (param.buffer for param in kernel.params)
    arrays = {
        src.name: interpret.pack(src, a),
        weights.name: interpret.pack(weights, b.T),
        dst.name: c,
    }
    interpret.run(kernel, arrays, findings=findings)
    return np.array_equal(c.reshape(512, 32), a @ b)


@cache
def _without_fault() -> bool:
    return _right(_kernel())


FAULTS: dict[str, tuple[str, str, FaultKind]] = {
    "arrivals of one's own subgroups only": (
        r"mbarrier_init\(&empty\[(.*)\], 4\)",
        r"mbarrier_init(&empty[\1], 2)",
        FaultKind.RACE,
    ),
    "nobody tells the other workgroup": (
        r"mbarrier_arrive\(&empty\[peer",
        "mbarrier_arrive(&empty[m_o2",
        FaultKind.RACE,
    ),
    "mbarriers that the other workgroup does not know of": (
        r"cluster_barrier\(\)\n( *)if",
        r"barrier()\n\1if",
        FaultKind.RACE,
    ),
    "one ends before the other": (r"cluster_barrier\(\)\n*$", "", FaultKind.AFTER_END),
    "the part of the other one twice": (
        r"(weights\w*2\[peer.*) \+ m_o2 \* 8\]",
        r"\1]",
        FaultKind.RACE,
    ),
    "bytes of one's own copies": (
        r"(mbarrier_expect\(.*), 4608\)",
        r"\1, 4352)",
        FaultKind.MBARRIER,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str) -> None:
    assert _without_fault()
    old, new, kind = FAULTS[name]
    text = to_text(_kernel())
    changed = re.sub(old, new, text)
    assert changed != text
    findings = Findings()
    _right(parse_kernel(changed), findings)
    assert kind in {finding.kind for finding in findings}, [str(f.fault) for f in findings]


def test_the_other_part_gives_other_values() -> None:
    text = to_text(_kernel())
    changed = re.sub(r"(b = weights\w*\[.*) \+ m_o2 \* 8", r"\1 + 8 - m_o2 * 8", text)
    assert changed != text and not _right(parse_kernel(changed))


REFUSED_CONFIGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "copies by work-items": (
        {"fill": "async"},
        "order.cluster={'m': 2} with staging.fill='async'",
        "choose fill='unit'",
    ),
    "two dims": ({"cluster": {"m": 2, "n": 2}}, "lie along one dim", "name one dim"),
    "many": ({"cluster": {"m": 16}}, "has clusters of at most 8 workgroups", "choose a smaller"),
    "a dim that is reduced": ({"cluster": {"k": 2}}, "no dim that this may name", "choose one of"),
    "one tile": (
        {"cluster": {"n": 4}},
        "cluster={'n': 4} along 'n', of which there are 2 tiles",
        "choose a smaller cluster",
    ),
    "no equal parts": ({"cluster": {"m": 3}}, "cannot be copied in 3 equal parts", "other values"),
}


@pytest.mark.parametrize("name", REFUSED_CONFIGS)
def test_refused_configs(name: str) -> None:
    changed, message, cure = REFUSED_CONFIGS[name]
    with pytest.raises(ScheduleError, match=re.escape(message)) as caught:
        _product(**changed)
    assert cure in str(caught.value)


def test_a_machine_without_clusters() -> None:
    op = tw.matmul("256x64:64x32", dtype="bf16").resolved()
    config = with_fields(CONFIG, instruction="mma_m16n8k16_f32_bf16", fill="async")
    with pytest.raises(ScheduleError, match="nvidia-sm_80 has no clusters"):
        choose.schedule(Start.of(op), nvidia.machine("sm_80"), config)


REFUSED: dict[str, tuple[tuple[str, str], str]] = {
    "another loop": (("cluster for m_o2", "grid for m_o2"), "no loop over the workgroups"),
    "a cluster in a cluster": (("grid for n_o", "cluster for n_o"), "several that make a cluster"),
    "nothing in common": (
        ("b = weights_packed[n + n_o * 16, k", "b = weights_packed[n + m_o2 * 16, k"),
        "its workgroups read nothing in common",
    ),
    "nobody waits": (
        ("mbarrier_wait(&empty[step % 2], (step // 2 + 1) % 2)", "fence_async()"),
        "no wait says that all have read what a copy writes over",
    ),
    "no barrier": ((" barrier()", " fence_async()"), "no barrier of its subgroups"),
    "different steps": (("for step in 4", "for step in 3 + m_o2"), "differs from workgroup to"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    (old, new), message = REFUSED[name]
    text = to_text(_kernel("warp-specialized"))
    assert old in text
    with pytest.raises(ScheduleError, match=message) as caught:
        multicast(parse_kernel(text.replace(old, new)), "m_o2", nvidia.TILE_UNIT.load)
    assert caught.value.cure and caught.value.where


UNREACHABLE: dict[str, tuple[str, str, str]] = {
    "a tile of the other workgroup is read": (
        "b = weights_packed2[m_o2,",
        "b = weights_packed2[1 - m_o2,",
        "'weights_packed2' of another workgroup is accessed",
    ),
    "a copy to one other workgroup": (
        "(peer in 2,",
        "(peer in 1,",
        "goes to other workgroups than the unit copies to",
    ),
}


@pytest.mark.parametrize("name", UNREACHABLE)
def test_what_the_device_cannot_reach(name: str) -> None:
    old, new, message = UNREACHABLE[name]
    text = to_text(_scheduled(*CASES["along m"]).kernel)
    assert old in text
    with pytest.raises(CompilationError, match=message):
        lower_launches(parse_kernel(text.replace(old, new)), MACHINE)


OWN = """
kernel k(out y: s64[8]):
  grid for g in 2:
    alloc s: s64[{size}, 4] cluster
    cluster for c in {size}:
      subgroup for w in 1:
        if c == 0:
          s[0, 1] = 5
        s[c, 0] = 3
        cluster_barrier()
        y[g * 2 + c] = s[(c + {size}) % {size}, 0]
"""


@pytest.mark.parametrize("size", [1, 2])
def test_ones_own_part_in_other_words(size: int) -> None:
    kernel = parse_kernel(OWN.format(size=size))
    verify(kernel)
    (launch,) = (module := lower_launches(kernel, MACHINE)).launches
    assert (launch.groups, launch.cluster, launch.shared) == (2 * size, size, 32)
    assembled(to_ptx(module.text, "sm_90a"), "sm_90a")


ACROSS = """
kernel k(out y: s64[8]):
  alloc s: s64[2, 4] cluster
  cluster for c in 2:
    subgroup for w in 1:
      s[c, 0] = c
  cluster for c in 2:
    subgroup for w in 1:
      y[c] = s[c, 0]
"""


def test_memory_of_a_cluster_does_not_outlive_it() -> None:
    kernel = parse_kernel(ACROSS)
    verify(kernel)
    with pytest.raises(CompilationError, match="'s' is allocated outside the launch"):
        lower_launches(kernel, MACHINE)

"""Fragments of the next product, loaded during one: text, results, planted faults, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from staged import check_races
from sweeps import in_turns
from tilewright.errors import ScheduleError
from tilewright.interpret import FaultKind, Findings, pack, run
from tilewright.ir import Kernel, parse_kernel, to_text, verify
from tilewright.machines import nvidia
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule import Fill
from tilewright.schedule.pipelines.pipeline import pipeline
from tilewright.testing.inputs import make_inputs
from workgroup_configs import with_fields, workgroup_config

MACHINE = nvidia.machine("sm_80")
CONFIG = workgroup_config(
    instruction="mma_m16n8k16_f32_bf16",
    lanes="n",
    group={"m": 32, "n": 32},
    item={"m": 16, "n": 16},
    order=("m", "n"),
    step={"k": 32},
    vector=8,
    stages=2,
    fill="async",
    k="k",
)

CASES: dict[str, tuple[Op, dict[str, Any]]] = {
    "two stages": (tw.matmul("64x160:160x64", dtype="bf16"), {}),
    "three": (tw.matmul("64x160:160x32", dtype="bf16"), {"stages": 3}),
    "four stages, two steps": (tw.matmul("32x64:64x32", dtype="bf16"), {"stages": 4}),
    "four products": (tw.matmul("40x192:192x40", dtype="bf16"), {"step": {"k": 64}, "stages": 3}),
    "eight": (tw.matmul("32x256:256x32", dtype="bf16"), {"step": {"k": 128}}),
    "transposed": (tw.matmul("64x96:96x64", dtype="bf16", src="ba", weights="ba"), {"stages": 3}),
    "slices": (
        tw.matmul("32x256:256x32", dtype="bf16:bf16:f32"),
        {"slices": (("k", 2),), "stages": 3},
    ),
    "persistent": (
        tw.matmul("100x128:128x72", dtype="bf16"),
        {"persistent": 3, "raster": 2, "stages": 3},
    ),
    "epilogue_tile": (
        tw.matmul("64x128:128x64", dtype="bf16"),
        {"epilogue_tile": {"m": 16, "n": 16}, "store_padding": 8},
    ),
    "bytes": (
        tw.matmul("64x192:192x64", dtype="s8:s8:s32", weights="ba"),
        {"instruction": "mma_m16n8k32_s32_s8", "step": {"k": 64}, "vector": 16},
    ),
    "single precision": (
        tw.matmul("64x64:64x64", dtype="tf32:tf32:f32"),
        {"instruction": "mma_m16n8k8_f32_tf32", "step": {"k": 32}, "vector": 4},
    ),
    "convolution": (
        tw.convolution("mb2ic32ih7oc32oh7kh3ph1", dtype="bf16", src="nhwc", dst="nhwc"),
        {
            "lanes": "oc",
            "group": {"mb_oh_ow": 32, "oc": 32},
            "item": {"mb_oh_ow": 16, "oc": 16},
            "order": ("mb_oh_ow", "oc"),
            "step": {"ic": 32},
            "k": "ic",
            "stages": 3,
        },
    ),
}


@pytest.mark.parametrize("name", in_turns(2, CASES))
def test_stages_compute_what_the_naive_one_does(name: str) -> None:
    op, changed = CASES[name]
    assert "ahead" in check_races(op, MACHINE, with_fields(CONFIG, **changed)).stages


NOT: dict[str, tuple[Op, dict[str, Any]]] = {
    "one stage": (tw.matmul("64x96:96x64", dtype="bf16"), {"stages": 1, "fill": "copy"}),
    "one product": (tw.matmul("64x96:96x64", dtype="bf16"), {"step": {"k": 16}}),
    "three products": (tw.matmul("64x96:96x64", dtype="bf16"), {"step": {"k": 48}}),
    "in shares": (tw.matmul("64x96:96x64", dtype="bf16"), {"stream_k": 3}),
    "through registers": (tw.matmul("64x96:96x64", dtype="bf16"), {"fill": "registers"}),
}


@pytest.mark.parametrize("name", NOT)
def test_what_stays_as_it_is(name: str) -> None:
    op, changed = NOT[name]
    config = with_fields(CONFIG, **changed)
    op = op.resolved()
    assert "ahead" not in choose.schedule(Start.of(op), MACHINE, config).stages
    check_races(op, MACHINE, config)


def _kernel(stage: str = "ahead", **changed: Any) -> Kernel:
    op = tw.matmul("32x192:192x32", dtype="bf16:bf16:f32").resolved()
    config = with_fields(CONFIG, stages=3, **changed)
    return choose.schedule(Start.of(op), MACHINE, config).stages[stage]


def test_the_text(golden: Callable[[str, str], None]) -> None:
    golden("products_ahead", to_text(_kernel("tensorized")) + "\n\n" + to_text(_kernel()))


def _findings(kernel: Kernel) -> tuple[set[FaultKind], bool]:
    """What is wrong with such a kernel, and whether what it computes is right."""
    verify(kernel)
    op = tw.matmul("32x192:192x32", dtype="bf16:bf16:f32").resolved()
    inputs = make_inputs(op, exact=True, seed=1)
    src, weights = (inputs[name].astype("float64") for name in ("src", "weights"))
    flat = {}
    for param in kernel.params[:2]:
        value = src if param.name == "src" else weights.T
        flat[param.name] = pack(param.buffer, value.astype(param.buffer.dtype.numpy))
    out = kernel.params[2].buffer
    flat[out.name] = pack(out, 0 * (src @ weights))
    findings = Findings()
    run(kernel, flat, findings=findings, hierarchy=MACHINE.hierarchy)
    right = bool((flat[out.name].reshape(32, 32) == src @ weights).all())
    return {finding.kind for finding in findings}, right


FAULTS: dict[str, tuple[str, str, FaultKind]] = {
    "the first step is not awaited": (
        r"wait_copies\(2\)",
        "wait_copies(3)",
        FaultKind.EARLY_ACCESS,
    ),
    "a further step is not awaited": (
        r"if step < 5:\n( *)wait_copies\(1\)",
        r"if step < 5:\n\1wait_copies(2)",
        FaultKind.EARLY_ACCESS,
    ),
    "no barrier before the slot is filled again": (
        r"if step < 5:\n( *)wait_copies\(1\)\n *barrier\(\)",
        r"if step < 5:\n\1wait_copies(1)",
        FaultKind.RACE,
    ),
    "a slot that is still read": (
        r"&src_packed\[step,",
        "&src_packed[(step + 1) % 3,",
        FaultKind.RACE,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str) -> None:
    assert _findings(_kernel()) == (set(), True)
    old, new, kind = FAULTS[name]
    text = to_text(_kernel())
    changed = re.sub(old, new, text)
    assert changed != text
    kinds, _ = _findings(parse_kernel(changed))
    assert kind in kinds


def test_the_fragment_of_another_product_gives_other_values() -> None:
    text = to_text(_kernel())
    changed = re.sub(r"(src_packed\[\(step \+ 1\) % 3.*, k)\]", r"\1 + 16]", text)
    assert changed != text
    assert _findings(parse_kernel(changed)) == (set(), False)


REFUSED: dict[str, tuple[tuple[str, str], str]] = {
    "no wait": (("wait_copies(1)", "subgroup_barrier()"), "do not begin with a wait, a barrier"),
    "no barrier": ((" barrier()", " subgroup_barrier()"), "do not begin with a wait, a barrier"),
    "one step": (("for step in 6", "for step in 1"), "is not constant, or it is one"),
    "an odd number": (("unrolled for k_o in 2", "unrolled for k_o in 3"), "an even number"),
    "not written out": (("unrolled for k_o in 2", "for k_o in 2"), "written out"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    (old, new), message = REFUSED[name]
    text = to_text(_kernel("tensorized"))
    assert old in text
    with pytest.raises(ScheduleError, match=message) as caught:
        pipeline(parse_kernel(text.replace(old, new, 1)), "k_o")
    assert caught.value.cure and caught.value.where


# Each work-item takes two numbers at a time of what is copied for all.
FORM = """
kernel sums(in a: f32[32], out y: f32[8]):
  alloc s: f32[2, 8] workgroup
  workgroup for t in 4:
    alloc acc: f32[2] private
    for i in 2:
      acc[i] = 0.0
    for i in 2:
      copy_async(&s[0, t * 2 + i], &a[t * 2 + i])
    commit_copies()
    for step in 4:
      wait_copies(0)
      barrier()
      if step < 3:
        for i in 2:
          copy_async(&s[(step + 1) % 2, t * 2 + i], &a[step * 8 + t * 2 + i + 8])
      commit_copies()
      unrolled for k in 4:
        alloc f: f32[2] private
        for i in 2:
          f[i] = s[step % 2, k * 2 + i]
        for i in 2:
          acc[i] = acc[i] * 2.0 + f[i]
    for i in 2:
      y[t * 2 + i] = acc[i]
"""


def _sums(kernel: Kernel) -> list[float]:
    y = np.zeros(8, np.float32)
    run(kernel, {"a": np.arange(32, dtype=np.float32), "y": y})
    return [float(number) for number in y]


def test_the_form_itself() -> None:
    kernel = parse_kernel(FORM)
    ahead = pipeline(kernel, "k")
    verify(ahead)
    assert _sums(ahead) == _sums(kernel)


NO_FORM: dict[str, tuple[str, str, str]] = {
    # The copies for a further step write over what the last product would read.
    "a product reads what is copied": (
        "* 2.0 + f[i]",
        "* s[step % 2, k * 2 + i] + f[i]",
        "does not load into private memory",
    ),
    "a fragment is loaded again": (
        "* 2.0 + f[i]",
        "* 2.0 + f[i]\n        for i in 2:\n          f[i] = s[step % 2, i]\n        acc[0] = f[0]",
        "does not load into private memory",
    ),
    "loads need a name": (
        "        for i in 2:\n          f[i] = s[step % 2, k * 2 + i]",
        "        z = k * 2\n        for i in 2:\n          f[i] = s[step % 2, z + i]",
        "does not load into private memory",
    ),
    "copies need a name": (
        "      if step < 3:",
        "      z = step + 1\n      if z < 4:",
        "copies that run by themselves",
    ),
    "a wait that differs": ("wait_copies(0)", "wait_copies(step - step)", "begin with a wait"),
    "no products": ("for k in 4", "for k in 0", "an even number"),
}


@pytest.mark.parametrize("name", NO_FORM)
def test_refused_forms(name: str) -> None:
    old, new, message = NO_FORM[name]
    kernel = parse_kernel(FORM.replace(old, new))
    verify(kernel)
    with pytest.raises(ScheduleError, match=message):
        pipeline(kernel, "k")


def test_fragments_are_filled_by_loads_of_one_loop() -> None:
    text = "kernel k(out y: f32[1]):\n  y[0] = 0.0\n  for step in 4:\n    pass\n"
    with pytest.raises(ScheduleError, match="its body is not copies, a barrier"):
        pipeline(parse_kernel(text), "step")
    with pytest.raises(ScheduleError, match="'k' copies to private memory"):
        pipeline(parse_kernel(FORM), "k", fill=Fill.REGISTERS)
    *_, loop = FORM.partition("    for step in 4:")
    twice = loop[: loop.index("    for i in 2:\n      y")]
    with pytest.raises(ScheduleError, match="'k' copies to private memory"):
        pipeline(parse_kernel(FORM.replace(twice, f"{twice}    for step in 4:{twice}")), "k")

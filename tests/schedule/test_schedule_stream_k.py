"""Even shares of the steps of all tiles (stream-K): as a transform, and in recipes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import Any

import pytest

import tilewright as tw
from assembly import assembled
from compiled import check
from needs import needs_opencl
from schedule_cases import becomes, equal, memory
from staged import check_races
from sweeps import in_turns
from tilewright.errors import ScheduleError
from tilewright.interpret import Findings, run
from tilewright.ir import Allocate, Compute, For, Kernel, Let, Space, parse_kernel
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import var
from tilewright.ir.visit import walk_stmts
from tilewright.layout.roles import MAIN
from tilewright.machines import nvidia, spirv
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.roles import find_compute, roles
from tilewright.recipes.start import Start
from tilewright.recipes.workgroups import combined
from tilewright.schedule import KernelSchedule
from tilewright.schedule.loops.order_workgroups import order_workgroups
from tilewright.schedule.reductions.stream_k import stream_k
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.testing.check import check_op
from workgroup_configs import with_fields, workgroup_config


def _sums(tiles: int = 3, steps: int = 5) -> str:
    """Sums of rows, with what comes after them: 8 rows a tile, by 2 work-items."""
    return f"""
    kernel sums(in src: f32[{tiles * 8}, {steps}], out dst: f32[{tiles * 8}]):
      grid for m_o in {tiles}:
        workgroup for t in 2:
          alloc acc: f32[4] private
          compute init(i in 4):
            acc[i] = 0.0
          for k in {steps}:
            compute main(i in 4):
              x = src[m_o * 8 + t * 4 + i, k]
              acc[i] add= x
          compute end(i in 4):
            a = acc[i]
            dst[m_o * 8 + t * 4 + i] = max(a, 0.0)
    """


def _kernel(text: str) -> Kernel:
    return parse_kernel(textwrap.dedent(text))


# The transform.


def test_shares_that_cut_tiles() -> None:
    becomes(
        _sums(tiles=4),
        lambda k: stream_k(k, "k", 3, vector=2),
        """
        kernel sums(in src: f32[32, 5], out dst: f32[32]):
          alloc acc_parts: f32[3, 2, 2, 4] {0:3:16 1:2:8 3:2:4 2:2:2 3:2:1}
          grid for group in 3:
            workgroup for t in 2:
              begin = group * 20 // 3
              end = (group * 20 + 2) // 3 + 6
              for turn in (end + 4) // 5 - begin // 5:
                m_o = begin // 5 + turn
                first = max(begin - m_o * 5, 0)
                count = min(end - m_o * 5, 5) - first
                alloc acc: f32[4] private
                compute init(i in 4):
                  acc[i] = 0.0
                for k in count:
                  compute main(i in 4):
                    x = src[i + m_o * 8 + t * 4, first + k]
                    acc[i] add= x
                if count == 5:
                  compute end(i in 4):
                    a = acc[i]
                    dst[i + m_o * 8 + t * 4] = max(a, 0.0)
                else:
                  compute stream_store(i in 4):
                    x2 = acc[i]
                    acc_parts[group, min(turn, 1), t, i] = x2
          grid for cut in 2:
            workgroup for t in 2:
              m_o = (cut * 4 + 1) // 3 + 1
              if cut == m_o * 3 // 4:
                alloc acc: f32[4] private
                compute init(i in 4):
                  acc[i] = 0.0
                for piece in (m_o * 3 + 2) // 4 - cut + 1:
                  compute stream_sum(i in 4):
                    x2 = acc_parts[cut + piece, m_o - (cut * 4 + piece * 4) // 3, t, i]
                    acc[i] add= x2
                compute end(i in 4):
                  a = acc[i]
                  dst[i + m_o * 8 + t * 4] = max(a, 0.0)
        """,
    )


def test_shares_of_whole_tiles() -> None:
    becomes(
        _sums(tiles=6),
        lambda k: stream_k(k, "k", 3),
        """
        kernel sums(in src: f32[48, 5], out dst: f32[48]):
          grid for group in 3:
            workgroup for t in 2:
              begin = group * 2
              end = group * 2 + 2
              for turn in end - begin:
                m_o = begin + turn
                alloc acc: f32[4] private
                compute init(i in 4):
                  acc[i] = 0.0
                for k in 5:
                  compute main(i in 4):
                    x = src[i + m_o * 8 + t * 4, k]
                    acc[i] add= x
                compute end(i in 4):
                  a = acc[i]
                  dst[i + m_o * 8 + t * 4] = max(a, 0.0)
        """,
    )


def test_shares_of_one_tile() -> None:
    """Split-K: each workgroup has a part, and no other tile."""
    text = _sums(tiles=1, steps=6).replace("grid for m_o in 1:", "block:").replace("m_o", "0")
    becomes(
        text,
        lambda k: stream_k(k, "k", 2, "s"),
        """
        kernel sums(in src: f32[8, 6], out dst: f32[8]):
          alloc acc_parts: f32[2, 1, 2, 4] {0:2:8 1:1:8 3:4:2 2:2:1}
          grid for group in 2:
            workgroup for t in 2:
              begin = group * 3
              end = group * 3 + 3
              tile = 0
              first = begin
              count = end - first
              alloc acc: f32[4] private
              compute init(i in 4):
                acc[i] = 0.0
              for k in 3:
                compute main(i in 4):
                  x = src[i + t * 4, first + k]
                  acc[i] add= x
              compute s_store(i in 4):
                x2 = acc[i]
                acc_parts[group, 0, t, i] = x2
          grid for cut in 1:
            workgroup for t in 2:
              tile = 0
              alloc acc: f32[4] private
              compute init(i in 4):
                acc[i] = 0.0
              for piece in 2:
                compute s_sum(i in 4):
                  x2 = acc_parts[piece, 0, t, i]
                  acc[i] add= x2
              compute end(i in 4):
                a = acc[i]
                dst[i + t * 4] = max(a, 0.0)
        """,
    )


def _shares(kernel: Kernel) -> list[tuple[int, int]]:
    """Where the share of each workgroup begins and ends."""
    result = {s.var.name: s.value for s in walk_stmts(kernel.body) if isinstance(s, Let)}
    (grid,) = (s for s in walk_stmts(kernel.body) if isinstance(s, For) and s.var.name == "group")
    numbers = [{var("group"): g} for g in range(int(evaluate(grid.extent, {})))]
    return [(evaluate(result["begin"], n), evaluate(result["end"], n)) for n in numbers]


@pytest.mark.parametrize(("tiles", "steps"), [(1, 7), (2, 2), (3, 5), (7, 3), (4, 6), (2, 16)])
def test_shares_are_even(tiles: int, steps: int) -> None:
    naive = _kernel(_sums(tiles, steps))
    for workgroups in (1, 2, 3, 4, 5, 7, 8, 13, 99):
        kernel = stream_k(naive, "k", workgroups)
        equal(naive, kernel)
        findings = Findings()
        run(kernel, memory(kernel), findings=findings)
        assert not list(findings)
        shares = _shares(kernel)
        sizes = [end - begin for begin, end in shares]
        parts = [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]
        parts = [b for b in parts if b.space is Space.GLOBAL]
        # Whole tiles are counted in tiles.
        unit = 1 if parts else steps
        assert shares[0][0] == 0 and shares[-1][1] * unit == tiles * steps
        assert all(a[1] == b[0] for a, b in pairwise(shares))
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) * unit >= 2
        assert len(sizes) == min(workgroups, tiles * steps // 2)
        assert sum(b.bytes for b in parts) <= len(sizes) * 2 * 8 * 4
        assert bool(parts) == any(end * unit % steps for _, end in shares)


@pytest.mark.parametrize("workgroups", [2, 3, 5])
def test_other_sums(workgroups: int) -> None:
    maxima = _sums().replace("add= x", "max= x").replace("] = 0.0", "] = -inf")
    whole = _sums().replace("f32[", "s32[").replace("0.0", "s32(0)")
    for text in (maxima, whole, _sums().replace("grid for m_o in 3:\n        work", "work")):
        text = text if "m_o in" in text else text.replace("m_o", "2")
        naive = _kernel(text)
        equal(naive, stream_k(naive, "k", workgroups))


TWO = """
    kernel two(in a: f32[24, 6], in b: f32[6, 10], out c: f32[24, 10]):
      grid for m_o in 3:
        grid for n_o in 5:
          workgroup for m in 8:
            workgroup for n in 2:
              alloc acc: f32[1, 1] private
              compute init():
                acc[0, 0] = 0.0
              for k_o in 3:
                compute main(k in 2):
                  x = a[m_o * 8 + m, k_o * 2 + k]
                  y = b[k_o * 2 + k, n_o * 2 + n]
                  acc[0, 0] add= x * y
              compute end():
                z = acc[0, 0]
                c[m_o * 8 + m, n_o * 2 + n] = z
    """


@pytest.mark.parametrize("workgroups", [2, 4, 7, 22])
@pytest.mark.parametrize("bands", [False, True])
def test_grids_of_several_loops(workgroups: int, bands: bool) -> None:
    naive = _kernel(TWO)
    kernel = order_workgroups(naive, ["m_o", "n_o"], rows=2) if bands else naive
    equal(naive, stream_k(kernel, "k_o", workgroups, vector=4))


def test_names_that_are_taken() -> None:
    text = _sums().replace("src", "acc_parts").replace("m_o", "group").replace("for t", "for turn")
    naive = _kernel(text.replace(" t *", " turn *"))
    kernel = stream_k(naive, "k", 2)
    equal(naive, kernel)
    assert "acc_parts2" in str(kernel) and "grid for group2" in str(kernel)


_LOOPS = "for k in 5:\n            compute main"
_INIT = "compute init(i in 4):\n            acc[i] = 0.0"


@pytest.mark.parametrize(
    ("old", "new", "arguments", "message"),
    [
        ("", "", {"workgroups": 0}, "workgroups is 0"),
        ("", "", {"loop": "t"}, "'t' does not stand directly in loops over tiles"),
        ("", "", {"loop": "x"}, "there is no loop 'x'"),
        ("grid", "serial", {}, "stand in 1 nests"),
        (_LOOPS, _LOOPS.replace("for k", "unrolled for k"), {}, "do not run in order"),
        (_LOOPS, _LOOPS.replace("5", "m_o + 1"), {}, "or how many there are is not constant"),
        ("workgroup", "alloc s: f32[1] workgroup\n        workgroup", {}, "does not stand direct"),
        ("acc[i] add= x", "acc[i] = x", {}, "not all that writes 'acc' there combines in one way"),
        ("acc[i] add= x", "dst[m_o * 8 + t * 4 + i] add= x", {}, "do more than accumulate in one"),
        ("acc[i] add= x", "acc[i] add= x + acc[0]", {}, "do more than accumulate in one buffer"),
        (_INIT, f"dst[0] = 1.0\n          {_INIT}", {}, "'dst' is written before it"),
        (_INIT, f"acc[0] = 1.0\n          {_INIT}", {}, "what initializes 'acc' is not one comp"),
        ("= 0.0", "= 1.0", {}, "'acc' begins with 1.0"),
    ],
)
def test_the_transform_refuses(
    old: str, new: str, arguments: Mapping[str, Any], message: str
) -> None:
    text = _sums()
    assert old in text
    text = text.replace(old, new) if old else text
    if new == "serial":
        text = text.replace("serial for", "for").replace("workgroup for", "for")
        message = "1 loops 'k' stand in 0 nests of workgroups"
    values = {"loop": "k", "workgroups": 2, **arguments}
    with pytest.raises(ScheduleError) as caught:
        stream_k(_kernel(text), **values)
    assert message in str(caught.value)
    assert caught.value.cure and caught.value.where


# In recipes.

GPU, CPU = spirv.machine("gpu"), spirv.machine("cpu")
OPS = (
    lambda: tw.matmul("13x20:20x10", dtype="f32", epilogue=[tw.bias(), tw.relu()]),
    lambda: tw.matmul("2x9x33:2x33x17", dtype="u8:s8:s32"),
    lambda: tw.matmul("4x90:90x8", dtype="f32", epilogue=[tw.sum(), tw.relu()]),
    lambda: tw.convolution("mb1ic5ih4oc7kh3ph1", src="nhwc", dst="nhwc", epilogue=[tw.bias()]),
    lambda: tw.convolution("g2mb1ic6ih6oc8kh3sh2ph1", src="nchw", dst="nchw"),
    lambda: tw.convolution("mb1ic7ih4oc6kh3ph1", direction="bwd_data", src="nhwc", dst="nhwc"),
    lambda: tw.convolution("mb2ic2ih4oc5kh3ph1", direction="bwd_weights", dtype="bf16"),
)
WAYS: tuple[dict[str, Any], ...] = (
    {"stream_k": 2},
    {"stream_k": 3, "stages": 2, "raster": 2},
    {"stream_k": 5, "stages": 2, "fill": "registers", "vector": 4},
    {"stream_k": 7, "stages": 3, "fill": "async", "padding": {"a": 4}},
    {"stream_k": 64, "stages": 2, "raster": 3},
)


def _config(op: Op, **given: Any) -> WorkgroupConfig:
    """Small groups, so that there are several tiles, and steps of a few elements."""
    schedule = KernelSchedule(op.kernel())
    schedule.drop_unit_dims()
    combined(schedule)
    parts = roles(find_compute(schedule.kernel, MAIN))
    random = Random(len(parts.k))
    item = {d: random.choice([2, 4]) for d in (*parts.m, *parts.n)}
    return workgroup_config(
        instruction="",
        lanes=parts.n[0],
        group={d: size * 2 for d, size in item.items()},
        item=item,
        order=parts.kept,
        step={parts.k[0]: 4},
        **given,
    )


@pytest.mark.parametrize(("number", "machine"), in_turns(7, range(len(OPS)), [GPU, CPU]))
def test_all_stages_compute_the_same(number: int, machine: Any) -> None:
    op = OPS[number]().resolved()
    values = dict(WAYS[(number + 2 * (machine is CPU)) % len(WAYS)])
    if number in (1, 6) and values.get("fill") == "async":
        # Their elements are converted on the way.
        values |= {"fill": "copy", "stages": 2}
    config = _config(op, **values)
    assert "stream-k" in choose.schedule(Start.of(op), machine, config).stages
    for report in check_op(op, machine, "all", config, costs=False):
        assert not report.issues, report


MATRICES = {
    "warps": ("mma_m16n8k16_f32_bf16", "sm_80", {"m": 32, "n": 32}, {"m": 16, "n": 16}),
    "warpgroups": ("wgmma_m64n16k16_f32_bf16", "sm_90a", {"m": 128, "n": 16}, {"m": 64, "n": 16}),
}


@pytest.mark.parametrize(("stream", "name"), in_turns(3, [2, 3, 5], MATRICES))
def test_parts_of_matrices_in_registers_are_added_up(name: str, stream: int) -> None:
    """Who adds them up holds them as the products do: lanes take whole parts of no other form."""
    instruction, level, group, item = MATRICES[name]
    config = workgroup_config(
        instruction,
        "n",
        group,
        item,
        ("m", "n"),
        {"k": 32},
        vector=8,
        stages=2,
        fill="async",
        stream_k=stream,
        k="k",
    )
    check_races(tw.matmul("200x96:96x40", dtype="bf16"), nvidia.machine(level), config)


def test_the_stages() -> None:
    op = tw.matmul("64x64:64x64", dtype="f32", epilogue=[tw.relu()]).resolved()
    config = workgroup_config(
        "fma_f32x4",
        "n",
        {"m": 32, "n": 32},
        {"m": 4, "n": 8},
        ("m", "n"),
        {"k": 8},
        vector=4,
        stages=2,
        fill="registers",
        stream_k=3,
    )
    result = choose.schedule(Start.of(op), GPU, config)
    stages = result.stages
    assert "alloc acc_parts: f32[3, 2, 8, 4, 4, 8]" in str(stages["stream-k"])
    assert "if step + 1 < count:" in str(stages["pipelined"])
    names = [s.name for s in walk_stmts(stages["lowered"].body) if isinstance(s, Compute)]
    assert set(names) == {MAIN}
    # Whole vectors to and from the workspace, and one epilogue here and one there.
    text = str(result.kernel)
    assert text.count("dst[") == 2 and "vector for n in 4" in text
    assert text.count("grid for") == 2 and "grid for cut in 2" in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slices": (("k", 2),)}, "order.stream_k=4 with reduction.slices=(('k', 2),)"),
        (
            {"slices": (("k", 2),), "atomic": True},
            "order.stream_k=4 with reduction.slices=(('k', 2),)",
        ),
        ({"item_slices": (("k", 2),)}, "order.stream_k=4 with reduction.item_slices=(('k', 2),)"),
        ({"persistent": 8}, "order.stream_k=4 with order.persistent=8"),
        ({"atomic": True}, "atomic=True with 0 sliced dims"),
        ({"step": {"k": 20}}, "stream_k=4 with tiles of one step"),
        ({"stream_k": -1}, "stream_k=-1 is not a whole number, 0 or more"),
    ],
)
def test_configs_are_refused(given: Mapping[str, Any], message: str) -> None:
    op = OPS[0]().resolved()
    with pytest.raises(ScheduleError) as caught:
        config = with_fields(_config(op, stream_k=4), **given)
        choose.schedule(Start.of(op), GPU, config)
    assert message in str(caught.value)
    assert caught.value.cure and caught.value.where


@needs_opencl
@pytest.mark.parametrize(("number", "way"), [(0, 2), (1, 1), (2, 4), (3, 2), (4, 0), (6, 4)])
def test_on_a_device(number: int, way: int) -> None:
    op = OPS[number]().resolved()
    check(tw.compile(op, target="spirv", config=_config(op, **WAYS[way])))


def test_assembled_for_a_gpu() -> None:
    """With tiles copied ahead asynchronously, in registers: nothing is spilled."""
    op = tw.matmul("1000x1000:1000x1000", dtype="f32").resolved()
    config = workgroup_config(
        "fma_f32x4",
        "n",
        {"m": 64, "n": 64},
        {"m": 8, "n": 8},
        ("m", "n"),
        {"k": 16},
        vector=4,
        stages=3,
        fill="async",
        raster=4,
        stream_k=108,
    )
    machine = nvidia.machine("sm_80")
    kernel = choose.schedule(Start.of(op), machine, config).kernel
    ptx = to_ptx(lower_launches(kernel, machine).text, "sm_80")
    assert ptx.count(".entry") == 2
    for wide in ("cp.async.cg.shared.global", "st.global.v4.b32", "ld.global.v4.b32"):
        assert wide in ptx
    assembled(ptx, "sm_80")

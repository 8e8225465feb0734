"""Slices of a reduction: over workgroups, over their work-items, and added up atomically."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import check
from needs import needs_opencl
from schedule_cases import becomes, equal
from sweeps import in_turns
from tilewright.errors import ScheduleError, VerificationError
from tilewright.interpret import FaultKind, Findings, run
from tilewright.ir import Kernel, LoopKind, parse_kernel, verify
from tilewright.machines import spirv
from tilewright.ops.op import Op
from tilewright.recipes import choose, workgroup_model
from tilewright.recipes.config import WorkgroupConfig, parse_config
from tilewright.recipes.start import Start
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.fuse_nests import fuse_nests
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.reductions.rfactor import rfactor
from tilewright.targets.registry import find_target
from tilewright.testing.check import check_op
from workgroup_configs import with_fields

SUMS = """
    kernel sums(in src: f32[8, 12], out dst: f32[8]):
      alloc acc: f32[8]
      compute init(i in 8):
        acc[i] = 0.0
      compute main(i in 8, k in 12):
        x = src[i, k]
        acc[i] add= x
      compute end(i in 8):
        a = acc[i]
        dst[i] = max(a, 0.0)
    """


def _kernel(text: str) -> Kernel:
    return parse_kernel(textwrap.dedent(text))


# A reduction in slices.


def test_slices() -> None:
    becomes(
        SUMS,
        lambda k: rfactor(k, "main", "k", 3, "slice", private=True),
        """
        kernel sums(in src: f32[8, 12], out dst: f32[8]):
          alloc acc_parts: f32[3, 8]
          alloc acc_slice: f32[3, 8] private
          compute init(slice in 3, i in 8):
            acc_slice[slice, i] = 0.0
          compute main(slice in 3, i in 8, k in 4):
            x = src[i, k + slice * 4]
            acc_slice[slice, i] add= x
          compute slice_store(slice in 3, i in 8):
            part = acc_slice[slice, i]
            acc_parts[slice, i] = part
          alloc acc: f32[8]
          compute slice_init(i in 8):
            acc[i] = 0.0
          compute slice_sum(i in 8, slice in 3):
            part = acc_parts[slice, i]
            acc[i] add= part
          compute end(i in 8):
            a = acc[i]
            dst[i] = max(a, 0.0)
        """,
    )


def test_atomic_slices() -> None:
    becomes(
        SUMS,
        lambda k: rfactor(k, "main", "k", 3, "s", private=True, atomic=True),
        """
        kernel sums(in src: f32[8, 12], out dst: f32[8]):
          alloc acc: f32[8]
          compute s_zero(i in 8):
            acc[i] = 0.0
          alloc acc_s: f32[3, 8] private
          compute init(s in 3, i in 8):
            acc_s[s, i] = 0.0
          compute main(s in 3, i in 8, k in 4):
            x = src[i, k + s * 4]
            acc_s[s, i] add= x
          compute s_store<atomic_add>(s in 3, i in 8):
            part = acc_s[s, i]
            acc[i] add= part
          compute end(i in 8):
            a = acc[i]
            dst[i] = max(a, 0.0)
        """,
    )


def test_slices_of_slices_and_their_order_in_memory() -> None:
    kernel = rfactor(_kernel(SUMS), "main", "k", 2, "s", private=True, storage=["i"])
    twice = rfactor(kernel, "main", "k", 3, "t", private=True)
    equal(_kernel(SUMS), twice)
    assert "s_store" in str(twice) and "t_store" in str(twice)


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"parts": 5}, "'k' has no 5 equal parts"),
        ({}, {"dim": "i", "parts": 2}, "'i' is not reduced"),
        ({}, {"compute": "end", "dim": "k"}, "has no dim 'k'"),
        ({}, {"name": "x"}, "the name 'x' is taken"),
        ({"acc[i] = 0.0": "acc[i] = 1.0"}, {}, "its result begins with 1.0"),
        ({"add=": "max=", "= 0.0": "= -inf"}, {"atomic": True}, "parts combined by max"),
        (
            {
                "acc: f32": "acc: f64",
                "max(a, 0.0)": "f32(a)",
                "= 0.0": "= f64(0.0)",
                "add= x": "add= f64(x)",
            },
            {"atomic": True},
            "parts of f64 cannot come in any order",
        ),
        (
            {"compute init": "acc[0] = 0.0\n      compute init"},
            {},
            "is used before it is initialized",
        ),
        ({"compute main": "acc[0] = 0.0\n      compute main"}, {}, "what initializes its result"),
    ],
)
def test_slices_are_refused(
    changes: Mapping[str, str], arguments: Mapping[str, Any], message: str
) -> None:
    text = SUMS
    for old, new in changes.items():
        text = text.replace(old, new)
    values = {"compute": "main", "dim": "k", "parts": 3, **arguments}
    with pytest.raises(ScheduleError) as caught:
        rfactor(_kernel(text), private=True, **values)
    assert message in str(caught.value)
    assert caught.value.cure and caught.value.where


# Atomic updates, before they are calls.

HISTOGRAM = """
    kernel h(in x: f32[4, 3], inout y: f32[3]):
      grid for i in 4:
        compute add{mark}(j in 3):
          v = x[i, j]
          y[j] add= v
    """


def test_atomic_updates_are_no_race() -> None:
    for mark, races in (("", 1), ("<atomic_add>", 0)):
        kernel = _kernel(HISTOGRAM.format(mark=mark))
        findings = Findings()
        run(kernel, _memory(kernel), findings=findings)
        assert sum(finding.kind is FaultKind.RACE for finding in findings) == races
    equal(_kernel(HISTOGRAM.format(mark="").replace("grid ", "")), kernel)


def _memory(kernel: Kernel) -> dict[str, Any]:
    return {p.name: np.ones(p.buffer.layout.extent, np.float32) for p in kernel.params}


def test_only_atomic_updates_may_run_at_once() -> None:
    serial = HISTOGRAM.replace("grid ", "")
    atomic = _kernel(serial.format(mark="<atomic_add>"))
    assert "grid for i" in str(set_kind(atomic, "i", LoopKind.GRID))
    lowered = lower_computes(atomic)
    assert "grid for i" in str(set_kind(lowered, "i", LoopKind.GRID))
    with pytest.raises(ScheduleError, match="may write the same element"):
        set_kind(_kernel(serial.format(mark="")), "i", LoopKind.GRID)


def test_atomic_updates_become_calls() -> None:
    becomes(
        HISTOGRAM.format(mark="<atomic_add>"),
        lambda k: lower_computes(k, vector="j", lanes=2),
        """
        kernel h(in x: f32[4, 3], inout y: f32[3]):
          grid for i in 4:
            for j_o in 2:
              vector for j in 2:
                atomic_add(&y[j + j_o * 2 | j + j_o * 2 < 3], x[i, j + j_o * 2 | j + j_o * 2 < 3])
        """,
    )


def test_what_updates_combines_the_same_way() -> None:
    kernel = _kernel(HISTOGRAM.format(mark="<atomic_add>").replace("add= v", "max= v"))
    with pytest.raises(VerificationError, match="atomic_add does not combine by max"):
        verify(kernel)


# Nests of workgroups made one.

PARTS = """
    kernel two(in src: f32[2, 64], out dst: f32[64]):
      alloc parts: f32[2, 64]
      compute store(s in 2, m in 64):
        x = src[s, m]
        parts[s, m] = x * 2.0
      compute sum(m in 64):
        a = parts[0, m]
        b = parts[1, m]
        dst[m] = a + b
    """
LEVELS = (LoopKind.GRID, LoopKind.WORKGROUP)


def _two(text: str = PARTS, items: int = 4, grid: int = 16, again: int = 16) -> Kernel:
    """Both computes distributed; the second one's work-items take ``items``."""
    first = ({"s": 2, "m": grid}, {"s": 1, "m": 4})
    second = ({"m": again}, {"m": items})
    kernel = _kernel(text)
    for root, tiles in (("store", first), ("sum", second)):
        levels = list(zip(LEVELS, tiles, strict=True))
        kernel = compute_at(kernel, root, levels, ["s", "m"][root == "sum" :], producers=[])
    return kernel


def test_groups_are_joined() -> None:
    becomes(
        str(_two()),
        lambda k: fuse_nests(k, "store", "sum"),
        """
        kernel two(in src: f32[2, 64], out dst: f32[64]):
          grid for m_o in 4:
            alloc parts: f32[2, 16] workgroup
            workgroup for s in 2:
              workgroup for m_o2 in 4:
                compute store(m in 4):
                  x = src[s, m + m_o * 16 + m_o2 * 4]
                  parts[s, m + m_o2 * 4] = x * 2.0
                barrier()
                if m_o2 + s * 4 < 4:
                  compute sum(m in 4):
                    a = parts[0, m + m_o2 * 4]
                    b = parts[1, m + m_o2 * 4]
                    dst[m + m_o * 16 + m_o2 * 4] = a + b
                barrier()
        """,
    )


@pytest.mark.parametrize("items", [1, 2, 8, 16])
def test_joined_groups_share_the_work(items: int) -> None:
    two = _two(items=items)
    if items == 1:
        with pytest.raises(ScheduleError, match="the second needs 16 work-items"):
            fuse_nests(two, "store", "sum")
        return
    joined = fuse_nests(two, "store", "sum")
    findings = Findings()
    run(joined, _memory(joined), findings=findings)
    assert not list(findings)
    equal(_kernel(PARTS), joined)
    assert ("if " in str(joined)) == (items > 2)


def _between(kernel: Kernel) -> Kernel:
    text = str(kernel)
    middle = text.rindex("  grid for")
    return parse_kernel(text[:middle] + "  parts[0, 0] = 1.0\n" + text[middle:])


@pytest.mark.parametrize(
    ("kernel", "names", "message"),
    [
        (_two, ("sum", "store"), "the second stands before the first"),
        (_two, ("store", "store"), "do not stand in two nests"),
        (_two, ("store", "none"), "there is no compute 'none'"),
        (lambda: _two(again=32), ("store", "sum"), "the two grids differ"),
        (lambda: _kernel(PARTS), ("store", "sum"), "no loops over work-items"),
        (lambda: _between(_two()), ("store", "sum"), "a statement stands between"),
        (
            lambda: _two(PARTS.replace("b = parts[1, m]", "b = parts[1, 63 - m]")),
            ("store", "sum"),
            "the workgroups' parts of 'parts' are not known",
        ),
        (
            lambda: _two(
                PARTS.replace("out dst", "out parts: f32[2, 64], out dst").replace(
                    "alloc parts: f32[2, 64]", "alloc unused: f32[1]"
                )
            ),
            ("store", "sum"),
            "'parts' is not only handed",
        ),
    ],
)
def test_joining_is_refused(
    kernel: Callable[[], Kernel], names: tuple[str, str], message: str
) -> None:
    with pytest.raises(ScheduleError) as caught:
        fuse_nests(kernel(), *names)
    assert message in str(caught.value)
    assert caught.value.cure and caught.value.where


OVERLAPPING = """
    kernel k(in src: f32[20], out dst: f32[16]):
      alloc parts: f32[20]
      grid for g in 4:
        workgroup for t in 8:
          compute store():
            x = src[g * 4 + t]
            parts[g * 4 + t] = x
      grid for g in 4:
        workgroup for t in 4:
          compute sum():
            x = parts[g * 4 + t]
            dst[g * 4 + t] = x
    """


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kernel k", "kernel k", "the iterations of 'g' may use the same elements"),
        ("parts[g * 4", "parts[g // 2 * 4", "are not known"),
        (
            "workgroup for t in 4",
            "alloc s: f32[1] workgroup\n        workgroup for t in 4",
            "no perfect",
        ),
    ],
)
def test_parts_of_workgroups_lie_apart(old: str, new: str, message: str) -> None:
    text = OVERLAPPING.replace(old, new)
    with pytest.raises(ScheduleError, match=message):
        fuse_nests(_kernel(text), "store", "sum")


# In recipes.

MACHINE = spirv.machine("gpu")


def _config(op: Op, machine: Any = MACHINE, **given: Any) -> WorkgroupConfig:
    """The model's config with smaller groups, and ``given``, in which ``K`` is the stepped dim."""
    config = next(workgroup_model.default_configs(op.kernel(), machine), None)
    assert config is not None
    group = {d: max(size // 4, config.tile.item[d]) for d, size in config.tile.group.items()}
    k = max(config.reduction.step, key=lambda d: config.reduction.step[d])
    named = {
        name: ((k, value),) if name.endswith("slices") else value for name, value in given.items()
    }
    # Where not all work-items add parts up, they do not all come to store them.
    through = {} if "item_slices" in given else config.storing.tile
    # Swizzles are for tiles of the model's own sizes.
    own = {"slices": (), "group": group, "swizzle": {}, "epilogue_tile": through}
    return with_fields(config, **{**own, **named})


WAYS: tuple[dict[str, Any], ...] = (
    {"item_slices": 2},
    {"item_slices": 3, "stages": 2},
    {"item_slices": 2, "stages": 2, "fill": "registers", "persistent": 3},
    {"item_slices": 2, "stages": 3, "fill": "async", "slices": 2},
    {"slices": 2, "atomic": True, "instruction": ""},
    {"slices": 3, "atomic": True, "item_slices": 2, "stages": 2, "raster": 2},
)


def _problems() -> list[Op]:
    """Small matmuls and convolutions, the same in each run."""
    random = Random(3)
    ops: list[Op] = []
    for number in range(6):
        if number % 2:
            m, n, k = (random.randint(9, 24) for _ in range(3))
            dtype = "s8" if number == 5 else "f32"
            ops.append(tw.matmul(f"{m}x{k}:{k}x{n}", dtype=dtype, epilogue=[tw.relu()]))
        else:
            sizes = f"ic{random.randint(3, 6)}ih{random.randint(4, 5)}oc{random.randint(8, 12)}"
            direction = ("fwd", "bwd_d", "bwd_w")[number // 2]
            layout = random.choice(["nchw", "nhwc"])
            ops.append(
                tw.convolution(
                    f"mb2{sizes}kh3ph1", direction=direction, src=layout, dst=layout, dtype="f32"
                )
            )
    return [op.resolved() for op in ops]


# Each way meets a matmul and a convolution, each problem two ways.
PAIRS = [(n, (n + shift) % len(WAYS)) for n in range(6) for shift in (0, 3)]


@pytest.mark.parametrize("pair", in_turns(3, PAIRS))
def test_all_stages_compute_the_same(pair: tuple[int, int]) -> None:
    number, way = pair
    op = _problems()[number]
    values = dict(WAYS[way])
    if number == 5 and values.get("fill") == "async":
        # Its elements are converted on the way.
        values["fill"], values["stages"] = "copy", 2
    for report in check_op(op, MACHINE, "all", _config(op, **values), costs=False):
        assert not report.issues, report


def test_the_stages() -> None:
    op = tw.matmul("32x64:64x32", dtype="f32").resolved()
    config = _config(op, item_slices=2, slices=2, atomic=True)
    assert parse_config(repr(config)) == config
    stages = choose.schedule(Start.of(op), MACHINE, config).stages
    assert [s for s in stages if s in ("sliced", "mapped", "added up")] == [
        "sliced",
        "mapped",
        "added up",
    ]
    assert "alloc acc_k_slice_parts: f32[2, 1, 8, 8] workgroup" in str(stages["added up"])
    assert "k_slice_store<atomic_add>" in str(stages["staged"])
    assert "atomic_add(&acc[" in str(stages["lowered"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"atomic": True}, "atomic=True with 0 sliced dims"),
        ({"item_slices": (("m", 2),)}, "item_slices='m' is no dim that this may name"),
        ({"item_slices": (("k", 2), ("k2", 2))}, "item_slices='k2'"),
        ({"item_slices": (("k", 999),)}, "work-items"),
        ({"item_slices": (("k", 0),)}, "is not a tuple of (dim, factor)"),
    ],
)
def test_configs_are_refused(given: Mapping[str, Any], message: str) -> None:
    op = tw.matmul("32x64:64x32", dtype="f32").resolved()
    with pytest.raises(ScheduleError) as caught:
        choose.schedule(Start.of(op), MACHINE, with_fields(_config(op), **given))
    assert message in str(caught.value)
    assert caught.value.cure and caught.value.where


def test_two_dims_of_work_items_are_refused() -> None:
    op = tw.convolution("mb1ic8ih8oc16kh3ph1", dtype="f32").resolved()
    config = with_fields(_config(op), item_slices=(("kh", 3), ("kw", 3)))
    with pytest.raises(ScheduleError, match="the work-items reduce parts of 2 dims"):
        choose.schedule(Start.of(op), MACHINE, config)


@needs_opencl
@pytest.mark.parametrize(("number", "way"), [(1, 0), (2, 2), (5, 4), (0, 5)])
def test_on_a_device(number: int, way: int) -> None:
    op = _problems()[number]
    target = find_target("spirv")
    check(tw.compile(op, target="spirv", config=_config(op, target.machine, **WAYS[way])))

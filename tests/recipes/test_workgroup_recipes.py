"""Contractions in workgroups: every stage computes what the naive kernel does, with the default
config and with others; illegal configs are refused."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

import tilewright as tw
from compiled import check
from needs import needs_opencl
from staged import carried_out, check_text, uncounted
from sweeps import in_turns
from tilewright.errors import ScheduleError
from tilewright.ir import Allocate, Kernel, Space
from tilewright.ir.printer import to_text
from tilewright.ir.visit import walk_stmts
from tilewright.layout.roles import MAIN
from tilewright.machines import spirv, x86
from tilewright.machines.machine import Machine
from tilewright.ops.op import Op
from tilewright.recipes import choose, storing, workgroup_model, workgroups
from tilewright.recipes.config import WorkgroupConfig, parse_config
from tilewright.recipes.preparing import combined
from tilewright.recipes.roles import find_compute, roles, taps_of
from tilewright.recipes.start import Start
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.schedule import KernelSchedule
from tilewright.testing.check import check_op, check_stages
from tilewright.testing.inputs import make_inputs
from workgroup_configs import with_fields, workgroup_config

GPU, CPU = spirv.machine("gpu"), spirv.machine("cpu")


def _check(op: Op, machine: Machine, config: WorkgroupConfig | None = None) -> KernelSchedule:
    """The schedule, each stage of which parses back from its text and computes the same."""
    kernel = op.kernel()
    config = config or next(workgroup_model.default_configs(kernel, machine), None)
    assert config is not None
    again = parse_config(repr(config))
    assert again == config
    assert hash(again) == hash(config)
    schedule = carried_out(workgroups.schedule, kernel, machine, config)
    stages = {name: check_text(stage) for name, stage in schedule.stages.items()}
    inputs = make_inputs(op, exact=True, seed=0)
    reports = check_stages(stages, schedule.packed, uncounted(machine), inputs, "all")
    assert [(r.stage, i.kind, i.message) for r in reports for i in r.issues] == []
    return schedule


def _small(**options: Any) -> Op:
    return tw.convolution("mb1ic6ih7oc10kh3ph1", src="nhwc", dst="nhwc", **options).resolved()


def test_what_dims_are_called_changes_nothing() -> None:
    """As copies' dims are: the sums would be no registers."""
    text = to_text(tw.matmul("64x32:32x64").resolved().kernel())
    lowered: list[list[object]] = []
    for name in ("n", "element"):
        kernel = tw.parse_kernel(re.sub(r"\bn\b", name, text))
        config = next(workgroup_model.default_configs(kernel, GPU))
        schedule = carried_out(workgroups.schedule, kernel, GPU, config)
        steps = [entry.step for entry in schedule.done if entry.step.name == "lower_computes"]
        lowered.append([step.args for step in steps])
    assert lowered[0] == lowered[1]


# Random problems and configs.


def _convolution(r: Random) -> Op:
    g = r.choice([1, 1, 1, 2, 3, 4])
    sizes = {"g": g, "mb": r.choice([1, 1, 2, 3]), "ic": g * r.choice([1, 2, 3, 5, 8])}
    sizes["oc"] = g * r.choice([1, 2, 4, 7, 16])
    axes = r.choice(["hw", "hw", "w"])
    for axis in axes:
        kernel, dilation, padding = r.choice([1, 2, 3, 3]), r.choice([0, 0, 1]), r.choice([0, 1, 2])
        least = max(1, (kernel - 1) * (dilation + 1) + 1 - 2 * padding)
        sizes |= {f"k{axis}": kernel, f"d{axis}": dilation, f"p{axis}": padding}
        sizes |= {f"s{axis}": r.choice([1, 1, 2, 3]), f"i{axis}": r.randint(least, least + 6)}
    layout = r.choice({"hw": ["nhwc", "nchw", "nChw8c"], "w": ["nwc", "ncw"]}[axes])
    direction = r.choice(["fwd", "fwd", "bwd_data", "bwd_weights"])
    epilogue = [tw.bias(), tw.relu()] if direction == "fwd" and r.random() < 0.5 else []
    return tw.convolution(
        "".join(f"{name}{size}" for name, size in sizes.items()),
        direction=direction,
        dtype=r.choice(["f32", "f32", "bf16", "f16"]),
        src=layout,
        dst=layout,
        epilogue=epilogue,
    )


def _matmul(r: Random) -> Op:
    m, n, k = (r.choice([1, 2, 3, 5, 8, 16, 17, 20, 33]) for _ in range(3))
    batch = r.choice(["", "", "2x", "3x"])
    plain = ["abc", "acb"] if batch else ["ab", "ba"]
    return tw.matmul(
        f"{batch}{m}x{k}:{batch}{k}x{n}",
        dtype=r.choice(["f32", "f32", "bf16", "u8:s8:s32"]),
        src=r.choice(plain),
        weights=r.choice(plain),
    )


def _random_config(kernel: Kernel, r: Random) -> WorkgroupConfig:
    naive = drop_unit_dims(kernel)
    halo = r.random() < 0.3 and len(taps_of(find_compute(naive, MAIN))) > 0
    schedule = KernelSchedule(naive)
    combined(schedule, halo=halo)
    main = find_compute(schedule.kernel, MAIN)
    parts = roles(main)
    item = {d: r.choice([1, 1, 2, 3, 4]) for d in parts.kept}
    fill = r.choice(["copy", "registers", "async"])
    config = workgroup_config(
        instruction="",
        lanes=r.choice(parts.kept or ("",)),
        group={d: item[d] * r.choice([1, 2, 3, 4]) for d in parts.kept},
        item=item,
        order=tuple(r.sample(parts.kept, len(parts.kept))),
        step={d: r.choice([1, 2, 3, 4, 8]) for d in parts.k if r.random() < 0.7},
        reduce_order=tuple(r.sample(parts.k, r.randint(0, len(parts.k)))),
        slices=((r.choice(parts.k), r.choice([2, 3])),) if parts.k and r.random() < 0.2 else (),
        vector=r.choice([1, 2, 4]),
        stages=r.choice([1, 2, 3]) if fill == "async" else r.choice([1, 2]),
        fill=fill,
        raster=r.choice([1, 1, 2, 3]),
        persistent=r.choice([0, 0, 1, 3]),
        padding={name: r.choice([1, 3, 4]) for name in ("a", "b") if r.random() < 0.4},
        store_padding=r.choice([0, 0, 1, 3, 4]),
        swizzle={name: (r.choice([1, 2]), r.choice([0, 1, 2]), 2) for name in _some(r, "ab")},
        epilogue_tile={d: r.choice([1, n]) for d, n in item.items() if r.random() < 0.3},
        halo=halo,
    )
    if config.reduction.slices or config.order.persistent:
        return config
    return with_fields(config, stream_k=r.choice([0, 2, 3, 7]))


def _some(r: Random, names: str) -> list[str]:
    return [name for name in names if r.random() < 0.3]


# What a config that is drawn at random may be refused for.
_REFUSALS = (
    "a workgroup of one work-item",
    "is no dim that this may name",  # all dims of the result have one element
    "computes on the way, which asynchronous copies do not",
    "bytes",
    "cuts rows of",
    "is not proven to be another element",
    "with tiles of one step",
    "halo=True where A is read at",
)


@pytest.mark.parametrize("seed", in_turns(6, range(48)))
def test_random_workgroups(seed: int) -> None:
    r = Random(seed)
    op = r.choice([_convolution, _convolution, _matmul])(r).resolved()
    machine = r.choice([GPU, CPU])
    default = next(workgroup_model.default_configs(op.kernel(), machine), None)
    if default is not None:
        _check(op, machine, default)
    try:
        _check(op, machine, _random_config(op.kernel(), r))
    except ScheduleError as error:
        assert any(text in str(error) for text in _REFUSALS)


@pytest.mark.parametrize("machine", [GPU, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize(
    "op",
    [
        lambda: _small(epilogue=[tw.bias(), tw.relu()]),
        lambda: _small(direction="bwd_data"),
        lambda: _small(direction="bwd_weights"),
        lambda: tw.convolution("g3ic3ih7oc3kh3sh2ph1", src="nchw", dst="nchw"),
        lambda: tw.convolution("g4mb2ic8ih5oc12kh3", src="nChw8c", dst="nChw8c"),
        lambda: tw.matmul("33x20:20x17"),
    ],
)
def test_defaults_are_legal_and_right(op: Any, machine: Machine) -> None:
    schedule = _check(op().resolved(), machine)
    assert {"mapped", "stepped", "staged", "lowered"} <= schedule.stages.keys()


@pytest.mark.parametrize(
    ("stages", "fill"), [(1, "copy"), (2, "copy"), (2, "registers"), (2, "async"), (4, "async")]
)
def test_ways_to_fill(stages: int, fill: str) -> None:
    default = next(workgroup_model.default_configs(_small().kernel(), GPU), None)
    assert default is not None
    for spread in (
        {"padding": {"a": 4, "b": 4}, "swizzle": {}},
        {"padding": {}, "swizzle": {"a": (2, 2, 2), "b": (1, 2, 2)}},
    ):
        config = with_fields(default, stages=stages, fill=fill, **spread)
        schedule = _check(_small(), GPU, config)
        assert ("pipelined" in schedule.stages) == (stages > 1)


def test_one_step_needs_no_pipeline() -> None:
    config = workgroup_config("", "n", {"m": 4, "n": 8}, {"m": 2, "n": 4}, ("m", "n"), {"k": 8})
    schedule = _check(tw.matmul("6x8:8x9").resolved(), GPU, with_fields(config, stages=2))
    assert "pipelined" not in schedule.stages


def test_no_default_where_there_is_nobody_to_share_with() -> None:
    for shape in ("1x8:8x1", "2x8:8x2"):
        op = tw.matmul(shape).resolved()
        config = next(workgroup_model.default_configs(op.kernel(), CPU), None)
        assert config is None or config.items >= 2


@pytest.mark.parametrize("groups", [1, 8, 64])
def test_defaults_fit_into_shared_memory(groups: int) -> None:
    op = tw.convolution(f"g{groups}mb4ic128ih14oc128kh3ph1").resolved()
    scheduled = 0
    for kind in ("gpu", "cpu"):
        for shared in (4 << 10, 32 << 10):
            machine = spirv.reported(kind, cores=8, workgroup=256, shared=shared)
            config = next(workgroup_model.default_configs(op.kernel(), machine), None)
            if config is not None:
                assert carried_out(workgroups.schedule, op.kernel(), machine, config).done
                scheduled += 1
    assert scheduled


# Illegal configs.

LEGAL = workgroup_config(
    instruction="fma_f32x4",
    lanes="oc",
    group={"oh_ow": 8, "oc": 8},
    item={"oh_ow": 2, "oc": 4},
    order=("oh_ow", "oc"),
    step={"ic": 2},
    reduce_order=("kh", "kw", "ic"),
    vector=2,
)

ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "lanes": ({"lanes": "x"}, "lanes='x' is no dim that this may name[^$]*choose one of oh_ow, oc"),
    "reduced lanes": ({"lanes": "ic"}, "lanes='ic' is no dim that this may name"),
    "a dim that was combined": ({"group": {"oh": 2}}, "group='oh' is no dim that this may name"),
    "group": ({"group": {"ic": 4}}, r"group='ic' is no dim[^$]*\['ic', 'kh', 'kw'\] are reduced"),
    "item": ({"item": {"x": 4}}, "item='x' is no dim that this may name"),
    "order": ({"order": ("kh",)}, "order.loops='kh' is no dim that this may name"),
    "order twice": ({"order": ("oc", "oc")}, "is not a tuple of dims, each once"),
    "step": ({"step": {"oc": 4}}, "step='oc' is no dim[^$]*choose one of ic, kh, kw"),
    "reduce_order": (
        {"reduce_order": ("oc",)},
        "reduction.loops='oc' is no dim that this may name",
    ),
    "swizzle": ({"swizzle": {"c": (1, 1, 1)}}, "swizzle='c' is no operand[^$]*a, b"),
    "no swizzle": ({"swizzle": {"a": (2, 0, 1)}}, "2:0:1 is no swizzle[^$]*at least the bits"),
    "half a swizzle": ({"swizzle": {"a": (2, 0)}}, "is not a dict of operands with .bits, base"),
    "swizzled rows of another size": (
        {"group": {"oh_ow": 12, "oc": 8}, "swizzle": {"a": (1, 0, 3)}},
        "the swizzle 1:0:3 cuts rows of 12 elements[^$]*along 'ic'[^$]*or pad rows instead",
    ),
    "swizzled and padded": (
        {"swizzle": {"a": (1, 0, 3)}, "padding": {"a": 1}},
        "the swizzle 1:0:3 cuts rows of 9 elements",
    ),
    "padding": (
        {"padding": {"c": 1}},
        "padding='c' is no operand that this may name[^$]*choose one of a, b$",
    ),
    "through no dim": (
        {"epilogue_tile": {"ic": 1}},
        "storing.tile='ic' is no dim that this may name",
    ),
    "through in unequal pieces": (
        {"epilogue_tile": {"oc": 3}},
        "storing.tile={'oc': 3} is no part of what a work-item has"
        "[^$]*has 4 along 'oc'[^$]*a divisor",
    ),
    "halo of combined dims": ({"halo": True}, "'oh_ow' is no dim that this may name[^$]*oh, ow"),
    "fill": ({"fill": "tma"}, "fill='tma' is no way to fill a tile[^$]*copy, registers, async"),
    "group not of items": (
        {"group": {"oh_ow": 9, "oc": 8}},
        "a tile of 9 along 'oh_ow' is no whole number of work-items' tiles[^$]*takes 2",
    ),
    "items without a group": (
        {"group": {"oc": 8}},
        "a tile of 1 along 'oh_ow' is no whole number of work-items' tiles",
    ),
    "too many work-items": (
        {"group": {"oh_ow": 64, "oc": 64}, "item": {"oh_ow": 1, "oc": 4}},
        "a workgroup of 1024 work-items[^$]*spirv-gpu has at most 256[^$]*or the items' larger",
    ),
    "one work-item": (
        {"group": {"oh_ow": 2, "oc": 4}},
        "a workgroup of one work-item[^$]*nobody to share memory with",
    ),
    "shared memory": (
        {"group": {"oh_ow": 48, "oc": 8}, "step": {"ic": 6, "kh": 3, "kw": 3}},
        "a workgroup shares 12096 bytes[^$]*has 8192, and src_packed takes 10368, weights_packed "
        "takes 1728[^$]*the steps or the number of stages smaller",
    ),
    "shared memory of stages": (
        {"group": {"oh_ow": 48, "oc": 8}, "step": {"ic": 6}, "stages": 9, "fill": "async"},
        "a workgroup shares [^$]*has 8192",
    ),
    "stages": ({"stages": 3}, "pipeline: 3 stages[^$]*one iteration is prepared ahead"),
    "stages of none": ({"stages": 0}, "stages=0 is not a whole number, 1 or more"),
    "vector of none": ({"vector": 0}, "vector=0 is not a whole number, 1 or more"),
    "sizes of none": ({"group": {"oc": 0}}, "is not a dict of dims with sizes"),
    "fill of no name": ({"fill": 2}, "fill=2 is not a name in quotes"),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_configs(name: str) -> None:
    changes, text = ILLEGAL[name]
    machine = spirv.reported("gpu", cores=8, workgroup=256, shared=8 << 10)
    with pytest.raises(ScheduleError, match=text):
        carried_out(workgroups.schedule, _small().kernel(), machine, with_fields(LEGAL, **changes))


def test_a_legal_config() -> None:
    schedule = _check(_small(), GPU, LEGAL)
    assert all(p.buffer.space is Space.GLOBAL for p in schedule.kernel.params)


def test_machines_without_a_hierarchy() -> None:
    with pytest.raises(ScheduleError, match=r"has no workgroups[^$]*use a ContractionConfig"):
        carried_out(workgroups.schedule, _small().kernel(), x86.machine("avx512"), LEGAL)


def test_configs_of_other_ops() -> None:
    target = tw.pool("ic20ih9kh3").resolved()
    with pytest.raises(ScheduleError, match=r"pool_fwd_d is no contraction[^$]*ElementwiseConfig"):
        choose.schedule(Start.of(target), GPU, LEGAL)


def test_a_config_prints_as_what_makes_it() -> None:
    config = with_fields(LEGAL, stages=3, fill="async", padding={"a": 1})
    assert parse_config(repr(config)) == config
    assert hash(parse_config(repr(config))) == hash(config)
    tile = "Tile(group={'n': 8}, item={'n': 4})"
    short = f"WorkgroupConfig(product=Product(instruction='', lanes='n'), tile={tile})"
    assert parse_config(short) == workgroup_config("", "n", {"n": 8}, {"n": 4}, ())
    # What is as it is by default goes without saying.
    assert repr(parse_config(short)) == short
    with pytest.raises(ScheduleError, match=r"is not a config[^$]*WorkgroupConfig\(product="):
        parse_config("WorkgroupConfig(order=Order())")


@pytest.mark.parametrize(
    ("layout", "lanes"), [("nhwc", "oc"), ("nchw", "oh_ow"), ("nChw16c", "oc")]
)
def test_vectors_lie_along_what_is_contiguous_in_the_result(layout: str, lanes: str) -> None:
    op = tw.convolution("mb1ic16ih14oc32kh3ph1", src="nhwc", dst=layout).resolved()
    config = next(workgroup_model.default_configs(op.kernel(), GPU), None)
    assert config is not None
    assert config.product.lanes == lanes


def _waits(op: Any, config: WorkgroupConfig) -> float:
    """Turns of the banks beyond one per access, as the interpreter counts what runs."""
    (report,) = check_op(op, GPU, config=config)
    return sum((note.conflicts - 1) * note.accesses for note in report.notes)


def test_paddings_are_those_with_fewer_conflicts() -> None:
    op = tw.convolution("mb2ic16ih14oc16kh3ph1", src="nhwc", dst="nhwc").resolved()
    config = next(workgroup_model.default_configs(op.kernel(), GPU, "weights"), None)
    assert config is not None
    assert config.staging.padding and not config.staging.swizzle
    assert _waits(op, config) < 0.1 * _waits(op, with_fields(config, padding={}))


def test_tiles_are_swizzled_where_that_is_better_than_padding() -> None:
    """Vectors of B are stored one by one, across its rows: whole vectors of padding in between do
    not bring these into different banks."""
    op = tw.matmul("64x32:32x64", weights="ba").resolved()
    config = next(workgroup_model.default_configs(op.kernel(), GPU), None)
    assert config is not None
    assert config.staging.padding.keys() == {"a"} and config.staging.swizzle.keys() == {"b"}
    chosen = _waits(op, config)
    for padding in (0, 4, 8, 12, 16):
        padded = {"b": padding} if padding else {}
        other = with_fields(config, padding={**config.staging.padding, **padded}, swizzle={})
        assert chosen < _waits(op, other), padding


# Tiles of the result through shared memory.


def _stores(op: Op, config: WorkgroupConfig | None = None) -> list[float]:
    """Which part of what the stores of the result move is needed."""
    reports = check_op(op, GPU, config=config)
    assert [issue for report in reports for issue in report.issues] == []
    notes = [note for report in reports for note in report.notes]
    return [n.efficiency for n in notes if n.buffer == "dst" and n.access == "store"]


@pytest.mark.parametrize(
    ("layout", "dtype"), in_turns(2, ["nchw", "nhwc", "nChw16c"], ["f32", "bf16"])
)
def test_the_model_stores_tiles_through_shared_memory(layout: str, dtype: str) -> None:
    op = tw.convolution(
        "mb1ic16ih14oc32kh3ph1",
        src=layout,
        dst=layout,
        dtype=dtype,
        epilogue=[tw.sum(), tw.relu()],
    ).resolved()
    config = next(workgroup_model.default_configs(op.kernel(), GPU, "weights"), None)
    assert config is not None and config.storing.tile
    (direct,), (together,) = _stores(op, with_fields(config, epilogue_tile={})), _stores(op, config)
    assert direct <= 0.55 and together > max(0.9 if dtype == "f32" else 0, 1.7 * direct)


def test_stores_that_coalesce_go_the_direct_way() -> None:
    """A work-item's tile is one vector, and neighbours have neighbouring ones."""
    op = tw.matmul("64x64:64x16").resolved()
    config = next(workgroup_model.default_configs(op.kernel(), GPU, "weights"), None)
    assert config is not None
    wide = with_fields(config, group={"m": 8, "n": 16}, item={"m": 4, "n": 4}, epilogue_tile={})
    schedule = KernelSchedule(op.kernel(), GPU, constant=["weights"])
    stores = workgroups.until_staged(schedule, GPU, wide)
    assert storing.choose_epilogue_tile(schedule.kernel, GPU, wide, stores.group, 4096) is wide


@pytest.mark.parametrize(
    ("pieces", "vector", "layout"),
    in_turns(
        4,
        [{"oc": 1}, {"oc": 4}, {"oh_ow": 1}, {"oh_ow": 1, "oc": 2}],
        [1, 4],
        ["nchw", "nhwc"],
    ),
)
def test_through_in_pieces(pieces: dict[str, int], vector: int, layout: str) -> None:
    config = with_fields(LEGAL, epilogue_tile=pieces, vector=vector, store_padding=4, persistent=3)
    _check(tw.convolution("mb1ic6ih7oc10kh3ph1", src=layout, dst=layout).resolved(), GPU, config)


@pytest.mark.parametrize(
    "changes",
    [
        {"slices": (("ic", 2),)},
        {"slices": (("ic", 2),), "atomic": True},
        {"item_slices": (("ic", 2),)},
    ],
)
def test_through_with_slices(changes: dict[str, Any]) -> None:
    _check(_small(), GPU, with_fields(LEGAL, epilogue_tile={"oc": 2}, **changes))


# The halo of a convolution.

HALO = workgroup_config(
    "fma_f32x4",
    "oc",
    {"oc": 16, "oh": 8, "ow": 8},
    {"oc": 8, "oh": 2, "ow": 2},
    ("oh", "ow", "oc"),
    step={"ic": 3},
    reduce_order=("ic",),
    halo=True,
)
WIDE = {"group": {"oc": 16, "oh": 16, "ow": 16}, "item": {"oc": 8, "oh": 4, "ow": 2}}


HALOS: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("mb2ic6ih14oc20kh3ph1", {}, (3, 10, 10)),
    ("mb1ic6ih14oc16kh3", {"padding": {"a": 1}}, (3, 10, 10)),
    ("mb1ic3ih40oc16kh7sh2ph3", WIDE, (3, 37, 37)),
    ("mb1ic3ih40oc16kh7sh2ph3", {**WIDE, "step": {"kh": 7}}, (37, 37)),
    ("mb1ic6ih14oc16kh3dh1ph2", {"vector": 4}, (3, 12, 12)),
    ("mb1ic6ih14iw14oc16kh3kw1ph1pw0", {}, (3, 10, 8)),
    ("g2mb2ic12ih9oc32kh3ph1", {"stages": 2}, (3, 10, 10)),
    ("mb1ic6ih9oc16kh3ph1", {"stages": 2, "fill": "registers"}, (3, 10, 10)),
    (
        "mb1ic6ih9oc16kh3ph1",
        {"stages": 2, "fill": "async", "epilogue_tile": {"oh": 1}},
        (3, 10, 10),
    ),
    ("mb1ic6ih9oc16kh3ph1", {"slices": (("ic", 2),)}, (3, 10, 10)),
]


@pytest.mark.parametrize(("halo", "layout"), in_turns(4, HALOS, ["nhwc", "nchw"]))
def test_the_halo_is_shared_once(
    halo: tuple[str, dict[str, Any], tuple[int, ...]], layout: str
) -> None:
    problem, changes, box = halo
    op = tw.convolution(problem, src=layout, dst=layout, epilogue=[tw.relu()]).resolved()
    schedule = _check(op, GPU, with_fields(HALO, **changes))
    shared = [
        s.buffer.shape
        for s in walk_stmts(schedule.stages["staged"].body)
        if isinstance(s, Allocate) and s.buffer.name == "src_packed"
    ]
    assert shared == [box]


@pytest.mark.parametrize(
    ("op", "dims", "text"),
    [
        (
            lambda: tw.convolution("mb1ic6ih9oc16kh1", src="nhwc", dst="nhwc"),
            ("oc", "oh", "ow"),
            "halo=True without taps[^$]*nothing is read twice[^$]*leave halo out",
        ),
        (
            lambda: tw.convolution("mb1ic16ih9oc6kh3sh2ph1", direction="bwd_data"),
            ("ic", "ih", "iw"),
            r"halo=True where A is read at [^$]*// 2[^$]*no box of the tensor[^$]*leave halo out",
        ),
    ],
)
def test_halos_that_are_none(op: Any, dims: tuple[str, ...], text: str) -> None:
    sizes = dict(zip(dims, (8, 2, 2), strict=True))
    group = {d: n * 4 for d, n in sizes.items()}
    config = with_fields(
        HALO, lanes=dims[0], group=group, item=sizes, order=dims, step={}, reduce_order=()
    )
    with pytest.raises(ScheduleError, match=text):
        carried_out(workgroups.schedule, op().resolved().kernel(), GPU, config)


@needs_opencl
@pytest.mark.parametrize(
    ("problem", "changes"),
    [
        ("mb2ic6ih14oc20kh3ph1", {"epilogue_tile": {"oh": 1}}),
        ("mb1ic3ih40oc16kh7sh2ph3", WIDE),
        ("mb1ic6ih14oc16kh3dh1", {"stages": 2}),
    ],
)
def test_halos_on_the_device(problem: str, changes: dict[str, Any]) -> None:
    config = with_fields(HALO, **changes)
    check(tw.compile(tw.convolution(problem, src="nchw"), target="spirv:gpu", config=config))


@needs_opencl
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("problem", ["mb2ic6ih14oc20kh3ph1", "mb2ic8ih7oc33kh1"])
def test_tiles_through_shared_memory_on_the_device(problem: str, layout: str) -> None:
    op = tw.convolution(problem, src="nhwc", dst=layout, epilogue=[tw.bias(), tw.sum()])
    kernel = tw.compile(op, target="spirv:gpu")
    assert isinstance(kernel.config, WorkgroupConfig) and kernel.config.storing.tile
    check(kernel)

"""Configs of other sizes: which rows are near, and what fits."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from tilewright.engine.request import Request, request_of
from tilewright.errors import ScheduleError, UnsupportedError
from tilewright.recipes import choose
from tilewright.recipes.config import (
    Config,
    ContractionConfig,
    GroupsConfig,
    WorkgroupConfig,
    parse_config,
)
from tilewright.targets.registry import find_target
from tilewright.tune.database import Database
from tilewright.tune.nearest import distance, form_of
from tilewright.tune.transfer import adapted, dims_of, first_configs
from tuned_rows import row

CONVOLUTIONS = (
    *("mb1ic64ih56oc64kh3ph1", "mb4ic64ih28oc128kh3ph1", "mb1ic128ih14oc256kh3ph1"),
    *("mb2ic48ih7oc96kh3ph1", "mb1ic24ih10oc20kh3ph1"),
)


def formed(what: object) -> tuple[str, tuple[int, ...]]:
    request = request_of(what)
    return form_of(request.start().kernel, request.kind)


def test_what_differs_in_sizes_alone() -> None:
    one, sizes = formed(tw.matmul("8x16:16x32"))
    other, larger = formed(tw.matmul("16x16:16x32"))
    assert one == other and {8, 16, 32} == set(sizes)
    assert distance(sizes, sizes) == 0 and distance(sizes, larger) >= 1
    assert distance(sizes, sizes[1:]) == float("inf")
    for another in (
        tw.matmul("8x16:16x32", dtype="bf16"),
        tw.convolution("mb1ic8ih6oc32kh3ph1"),
    ):
        assert formed(another)[0] != one


def test_what_fits() -> None:
    config = parse_config(
        "ContractionConfig(instruction='fma', lanes='n', tile={'m_p': 6, 'n': 64, 'q': 9}, "
        "order=('n', 'm_p'), step={'k': 8}, fuse=(('m', 'p', 'm_p'),))"
    )
    same, shorter, dividing = adapted(config, {"m": 2, "p": 4, "n": 40, "k": 6})
    assert same == config
    assert isinstance(shorter, ContractionConfig) and isinstance(dividing, ContractionConfig)
    assert (shorter.tile, shorter.step) == ({"m_p": 6, "n": 40, "q": 9}, {"k": 6})
    assert (dividing.tile, dividing.step) == ({"m_p": 4, "n": 40, "q": 9}, {"k": 6})
    assert list(adapted(config, {"m": 6, "p": 4, "n": 64, "k": 8})) == [config]
    (_, groups) = adapted(GroupsConfig((config, config)), {"n": 32, "m": 2, "p": 2, "k": 3})
    assert isinstance(groups, GroupsConfig)
    first, second = groups.groups
    assert first == second and first.tile["n"] == 32  # type: ignore[attr-defined]  # of both


def test_configs_of_workgroups_fit() -> None:
    config = parse_config(
        "WorkgroupConfig(product=Product(instruction='', lanes='', k=''), "
        "tile=Tile(group={'m': 64}, item={'m': 4}))"
    )
    same, shorter = adapted(config, {"m": 48})
    assert same == config and isinstance(shorter, WorkgroupConfig)
    assert (shorter.tile.group, shorter.tile.item) == ({"m": 48}, {"m": 4})


def legal(request: Request, target: str, config: Config) -> bool:
    try:
        choose.schedule_given(request.start(), find_target(target).machine, config)
    except (ScheduleError, UnsupportedError):
        return False
    return True


@pytest.mark.parametrize("target", ["x86:avx2", "spirv:gpu"])
def test_the_nearest_is_legal(target: str, tmp_path: Path) -> None:
    """Of every convolution, what the recipes choose for the others does for it."""
    where = find_target(target)
    with Database(tmp_path / "tuned.db") as database:
        requests = [request_of(tw.convolution(convolution)) for convolution in CONVOLUTIONS]
        for request in requests:
            start = request.start()
            form, sizes = form_of(start.kernel, request.kind)
            config, _ = choose.choose(start, where.machine)
            values = {"kernel": request.identity, "target": target, "form": form, "sizes": sizes}
            database.add(row(repr(config), **values))
        assert requests
        database.add(row("Unknown(x=1)", **{**values, "kernel": "of a recipe that is not there"}))
        for request in requests:
            form, sizes = form_of(request.start().kernel, request.kind)
            rows = database.nearest(form, sizes, target)
            assert rows[0].sizes == sizes
            assert [
                neighbour.kernel for neighbour in database.nearest(form, sizes, target, threads=9)
            ] == []
            configs = list(first_configs(database, request, where, 1))
            assert len(configs) == len(set(configs)) > 1
            others = [c for c in configs if repr(c) != rows[0].config]
            assert any(legal(request, target, other) for other in others)


def test_dims_of_several_computes() -> None:
    kernel = tw.parse_kernel(
        "kernel k(in x: f32[8, 4], out y: f32[8], out z: f32[3]):\n"
        "  compute a(i in 8, j in 4):\n    y[i] add= x[i, j]\n"
        "  compute b(i in 3):\n    z[i] = 1.0\n"
    )
    assert dims_of(kernel) == {"i": 8, "j": 4}

"""What transforms ask of all their arguments: refused in one way, before anything is tried."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schedule_cases import matmul
from tilewright.errors import ScheduleError
from tilewright.ir import Kernel, LoopKind
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.order_workgroups import order_workgroups
from tilewright.schedule.loops.parallelize_parts import parallelize_parts
from tilewright.schedule.loops.reorder import reorder
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.fragments import on_lanes
from tilewright.schedule.reductions.divide_scan import divide_scan
from tilewright.schedule.reductions.rfactor import rfactor


def _grid(kernel: Kernel) -> Kernel:
    tiled = tile(kernel, "mul", {"m": 4, "n": 4}, ["m", "n"])
    return set_kind(set_kind(tiled, "m_o", LoopKind.GRID), "n_o", LoopKind.GRID)


@pytest.mark.parametrize(
    ("transform", "refused"),
    [
        (lambda k: rfactor(k, "mul", "k", 1, lanes=0), "rfactor: lanes is 0"),
        (lambda k: rfactor(k, "mul", "k", 1, lanes=-4), "rfactor: lanes is -4"),
        (lambda k: rfactor(k, "mul", "k", 0, lanes=2), "rfactor: parts is 0"),
        (lambda k: rfactor(k, "mul", "k", parts=0), "rfactor: parts is 0"),
        (lambda k: on_lanes(k, ["mul"], 0), "on_lanes: lanes is 0"),
        (
            lambda k: set_kind(_grid(k), ["m_o", "n_o"], LoopKind.GRID, items=0),
            "set_kind: items is 0",
        ),
        (lambda k: set_kind(_grid(k), [], LoopKind.GRID), "set_kind: loops is empty"),
        (
            lambda k: set_kind(_grid(k), "m_o", LoopKind.SERIAL, items=4),
            "set_kind: items of serial",
        ),
        (
            lambda k: order_workgroups(_grid(k), [], workgroups=4),
            "order_workgroups: loops is empty",
        ),
        (
            lambda k: order_workgroups(_grid(k), ["m_o", "q"], workgroups=4),
            "order_workgroups: there is no loop 'q'",
        ),
        (
            lambda k: order_workgroups(_grid(k), ["m_o", "n_o"], workgroups=0),
            "order_workgroups: workgroups is 0",
        ),
        (
            lambda k: order_workgroups(_grid(k), ["m_o", "n_o"], rows=0),
            "order_workgroups: rows is 0",
        ),
        (lambda k: reorder(_grid(k), []), "reorder: loops is empty"),
        (lambda k: parallelize_parts(_grid(k), 0), "parallelize_parts: workers is 0"),
        (lambda k: rfactor(k, "mul", "k", 2, "n"), "rfactor: the name 'n' is taken"),
        (lambda k: tile(k, "sum", {"k": 2}), "tile: there is no compute 'sum'"),
        (lambda k: tile(k, "mul", {"k": 2, "m": -1}), r"tile: sizes\['m'\] is -1"),
        (lambda k: set_kind(k, "k_o", LoopKind.UNROLLED), "set_kind: there is no loop 'k_o'"),
    ],
)
def test_refused_before_it_runs(transform: Callable[[Kernel], Kernel], refused: str) -> None:
    with pytest.raises(ScheduleError, match=refused):
        transform(matmul(8, 16, 6))


def test_names_that_are_defaults_are_asked_for_too() -> None:
    kernel = fuse_dims(matmul(8, 16, 6), ["m", "n"], "part", digits=True)
    with pytest.raises(ScheduleError, match="divide_scan: the name 'part' is taken"):
        divide_scan(kernel, "mul", "k", 3)

#!/usr/bin/env python3
"""Counts workgroups and work-items that ops are launched on, of the sets that ship.

For each problem, each launch as WORKITEMS/STEPS: how many work-items there are, and how many
statements the longest of them runs one after the other. Marked by ``few`` is what leaves cores of
the device idle: less than a subgroup for each core, and more than 512 statements for a work-item.

Exit status: 0, 1 if a problem is marked or cannot be compiled.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.bench import catalog
from tilewright.engine import compile_kernel
from tilewright.errors import TilewrightError
from tilewright.ir.expr import Const
from tilewright.ir.stmt import For, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import nested, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case

EXAMPLES = """examples:
  python benchmarks/grids.py
  python benchmarks/grids.py --target spirv:gpu,nvidia:sm_90a --set softmax,lnorm
"""
CONTRACTIONS = ("conv", "matmul")
MOST_STEPS = 512
LAUNCHED = frozenset({LoopKind.GRID, *THREADS})


def sets() -> Iterator[str]:
    """Those of ops that are no contractions."""
    for name in catalog.names():
        if catalog.load(name).driver not in CONTRACTIONS:
            yield name


@dataclass(frozen=True)
class Part:
    """A nest of loops that is launched: its work-items, and how many statements the longest of them
    runs one after the other."""

    items: int
    steps: int


def parts(stmt: Stmt, times: int = 1) -> Iterator[Part]:
    """The launches in ``stmt``, in order; loops around them are steps, too."""
    if isinstance(stmt, For) and stmt.kind in LAUNCHED:
        yield Part(_items(stmt), times * _steps(stmt))
        return
    if not any(isinstance(each, For) and each.kind in LAUNCHED for each in walk_stmts(stmt)):
        if isinstance(stmt, For):
            yield Part(1, times * _steps(stmt))
        return
    for inner in nested(stmt):
        yield from parts(inner, times * _number(stmt) if isinstance(stmt, For) else times)


def _items(stmt: Stmt) -> int:
    """Of the nest in ``stmt`` that has most."""
    inside = max(map(_items, nested(stmt)), default=1)
    return inside * _number(stmt) if isinstance(stmt, For) and stmt.kind in LAUNCHED else inside


def _steps(stmt: Stmt) -> int:
    inside = max(map(_steps, nested(stmt)), default=1)
    alone = isinstance(stmt, For) and stmt.kind not in LAUNCHED
    return inside * _number(stmt) if isinstance(stmt, For) and alone else inside


def _number(loop: For) -> int:
    return int(loop.extent.value) if isinstance(loop.extent, Const) else 1


def is_few(machine: Machine, part: Part) -> bool:
    """Whether ``part`` leaves cores idle though each of its work-items has much to do."""
    assert machine.hierarchy is not None
    return part.items < machine.cores * machine.hierarchy.subgroup and part.steps > MOST_STEPS


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="spirv:gpu,nvidia:sm_80,nvidia:sm_90a")
    parser.add_argument("--set", default=",".join(sets()), help="all but contractions")
    chosen = parser.parse_args()
    marked = 0
    for target in chosen.target.split(","):
        machine = find_target(target).machine
        for name in chosen.set.split(","):
            loaded = catalog.load(name)
            for problem in loaded.problems:
                title = f"{target} {loaded.driver} {problem.descriptor()}"
                try:
                    op = Case(problem).op()
                    result = list(parts(compile_kernel(op, target).schedule.kernel.body))
                except TilewrightError as error:
                    print(f"{title}: {error.what}", flush=True)
                    marked += 1
                    continue
                few = any(is_few(machine, part) for part in result)
                marked += few
                counts = " ".join(f"{each.items}/{each.steps}" for each in result)
                print(f"{title}: {counts}{' few' if few else ''}", flush=True)
    print(f"{marked} marked")
    return 1 if marked else 0


if __name__ == "__main__":
    sys.exit(main())

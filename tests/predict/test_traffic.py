"""Lines that move, beside those of a simulated cache; and footprints beside counted ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import Kernel, parse_kernel
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.load import Load
from tilewright.ir.stmt import Block, For, Stmt, Store
from tilewright.ir.visit import loads_in
from tilewright.machines import x86
from tilewright.predict.footprints import box_of
from tilewright.predict.lines import lines_of
from tilewright.predict.nest import nest_of
from tilewright.predict.traffic import Traffic, shares

LINE = 64
_USUAL = x86.machine("avx512")
MACHINE = replace(_USUAL, caches=(4 << 10, 32 << 10, 256 << 10), core=replace(_USUAL.core, way=512))


def _touched(kernel: Kernel) -> Iterator[tuple[object, int]]:
    """The lines that loops touch, in order."""

    def place(load: Load | Store, values: dict[Var, int]) -> tuple[object, int]:
        offset = load.buffer.layout.offset_of(load.index)
        return load.buffer, int(evaluate(offset, values)) * load.buffer.dtype.bytes // LINE

    def run(stmt: Stmt, values: dict[Var, int]) -> Iterator[tuple[object, int]]:
        match stmt:
            case Block():
                for part in stmt.body:
                    yield from run(part, values)
            case For():
                assert isinstance(stmt.extent, Const)
                for number in range(int(stmt.extent)):
                    yield from run(stmt.body, {**values, stmt.var: number})
            case Store():
                for load in loads_in(stmt.value):
                    yield place(load, values)
                yield place(stmt, values)

    yield from run(kernel.body, {})


def _missed(kernel: Kernel, size: int, way: int) -> int:
    """Lines that come into a cache of ``size`` bytes, each set of which forgets what was not used
    for longest. Buffers lie one after the other."""
    starts: dict[object, int] = {}
    sets: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(way // LINE)]
    missed = 0
    for buffer, line in _touched(kernel):
        line += starts.setdefault(buffer, 100003 * len(starts))
        held = sets[line % len(sets)]
        if line in held:
            held.move_to_end(line)
            continue
        missed += 1
        held[line] = None
        if len(held) > size // way:
            held.popitem(last=False)
    return missed


def _moved(kernel: Kernel, level: int, warm: bool = False) -> float:
    root = nest_of(kernel)
    lines = lines_of(root, MACHINE)
    traffic = Traffic(lines, {}, shares(root, 1), MACHINE)
    return sum(moved.lines for moved in traffic.moved(root, warm) if moved.level == level)


KERNELS = {
    "copy": """
kernel k(in x: f32[64, 256], out y: f32[64, 256]):
  for i in 64:
    for j in 256:
      y[i, j] = x[i, j]
""",
    "transpose": """
kernel k(in x: f32[128, 128], out y: f32[128, 128]):
  for i in 128:
    for j in 128:
      y[i, j] = x[j, i]
""",
    "transpose by a power of two": """
kernel k(in x: f32[64, 1024], out y: f32[32, 64]):
  for j in 32:
    for i in 64:
      y[j, i] = x[i, j]
""",
    "product": """
kernel k(in a: f32[48, 64], in b: f32[64, 48], out c: f32[48, 48]):
  for i in 48:
    for j in 48:
      for k in 64:
        c[i, j] = c[i, j] + a[i, k] * b[k, j]
""",
    "two passes over a row": """
kernel k(in x: f32[16, 512], out s: f32[16], out y: f32[16, 512]):
  for i in 16:
    for j in 512:
      s[i] = s[i] + x[i, j]
    for j in 512:
      y[i, j] = x[i, j] - s[i]
""",
    "two passes over all": """
kernel k(in x: f32[8192], out s: f32[1], out y: f32[8192]):
  for i in 8192:
    s[0] = s[0] + x[i]
  for i in 8192:
    y[i] = x[i] - s[0]
""",
    "stencil": """
kernel k(in x: f32[66, 130], out y: f32[64, 128]):
  for i in 64:
    for j in 128:
      y[i, j] = x[i, j] + x[i + 1, j + 1] + x[i + 2, j + 2]
""",
    "strided": """
kernel k(in x: f32[64, 512], out y: f32[64, 16]):
  for r in 4:
    for i in 64:
      for j in 16:
        y[i, j] = x[i, j * 32]
""",
}

KERNELS["columns beside rows"] = """
kernel k(in x: f32[400, 18], out y: f32[400, 18]):
  for i in 400:
    for j in 16:
      y[i, j] = x[i, j]
    for j in 1:
      y[i, j + 16] = x[i, j + 16]
    for j in 1:
      y[i, j + 17] = x[i, j + 17]
"""


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("level", [0, 1])
def test_lines_that_move_are_those_of_a_simulated_cache(name: str, level: int) -> None:
    kernel = parse_kernel(KERNELS[name])
    size = MACHINE.caches[level]
    missed = _missed(kernel, size, (MACHINE.core.way, size // 16)[level])
    assert missed / 2 < _moved(kernel, level) < missed * 2


def test_what_a_cache_has_room_for_is_there_at_the_next_call() -> None:
    kernel = parse_kernel(KERNELS["copy"])
    assert _moved(kernel, 2, warm=False) > 1000
    assert _moved(kernel, 2, warm=True) == 0
    assert _moved(kernel, 0, warm=True) > 1000


@st.composite
def _indices(draw: st.DrawFn) -> tuple[Expr, dict[Var, float]]:
    """An index, and the extents of its loops."""
    loops = {var(name): float(draw(st.integers(1, 9))) for name in "ijk"}
    chosen = draw(st.permutations((0, 1, 2, 8, 16, 64)))
    steps = dict(zip(loops, chosen, strict=False))
    return sum((v * step for v, step in steps.items()), start=const(0)), loops


@settings(max_examples=60, deadline=None)
@given(_indices())
def test_footprints_are_those_counted(drawn: tuple[Expr, dict[Var, float]]) -> None:
    index, loops = drawn
    kernel = parse_kernel(f"""
kernel k(in x: f32[1024], out y: f32[1]):
  for i in {int(loops[var("i")])}:
    for j in {int(loops[var("j")])}:
      for k in {int(loops[var("k")])}:
        y[0] = x[{index}]
""")
    (line,) = lines_of(nest_of(kernel), MACHINE)
    access = next(a for a in line.accesses if not a.writes)
    values = list(loops)
    places = {
        int(evaluate(index, dict(zip(values, numbers, strict=True)))) * 4 // LINE
        for numbers in product(*(range(int(loops[v])) for v in values))
    }
    assert len(places) / 3 <= box_of(access, loops, LINE).lines <= 4 * len(places)

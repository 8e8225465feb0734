"""Layouts with a swizzle: where elements lie, what stays together, and kernels on such memory."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from random_ir import random_layout
from tilewright.dtypes import COMPUTED, DType, f32
from tilewright.engine.program import Code
from tilewright.errors import InterpreterFault, LayoutError, ParseError, VerificationError
from tilewright.facts import Facts
from tilewright.interpret import Profile, pack, run, unpack
from tilewright.ir import Swizzle, parse_kernel, row_major, to_text, var, verify
from tilewright.ir.buffer import Buffer, Layout, LayoutBlock
from tilewright.ir.evaluate import evaluate
from tilewright.layout.strides import strides_of
from tilewright.machines import nvidia, spirv
from tilewright.recipes.shared_layout import Spread, spreads
from tilewright.simplify import simplify
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.targets.program import abi_of
from tilewright.targets.x86.target import x86_target

# Rows of 64 elements, in runs of 8.
ROWS = replace(row_major((32, 64)), swizzle=Swizzle(3, 3, 3))


@st.composite
def swizzles(draw: st.DrawFn) -> Swizzle:
    bits = draw(st.integers(1, 3))
    return Swizzle(bits, draw(st.integers(0, 4)), draw(st.integers(bits, 5)))


@given(swizzles())
def test_elements_change_places_within_their_room(swizzle: Swizzle) -> None:
    before = np.arange(2 * swizzle.period)
    after = swizzle.place(before)
    assert (after != before).any()
    np.testing.assert_array_equal(np.sort(after), before)
    np.testing.assert_array_equal(swizzle.place(after), before)
    np.testing.assert_array_equal(after // swizzle.room, before // swizzle.room)
    # Runs stay whole, and the pattern repeats.
    np.testing.assert_array_equal(after % swizzle.run, before % swizzle.run)
    half = swizzle.period
    np.testing.assert_array_equal(after[half:] - half, after[:half])


@given(swizzles(), st.integers(0, 2**20))
def test_the_expression_is_the_place(swizzle: Swizzle, offset: int) -> None:
    o = var("o")
    for expr in (swizzle.place_of(o), simplify(swizzle.place_of(o))):
        assert evaluate(expr, {o: offset}) == swizzle.place(offset)


@pytest.mark.parametrize("seed", range(60))
def test_the_offset_of_every_element(seed: int) -> None:
    """As an expression, simplified or not, and as the interpreter packs memory: all different,
    and within the extent."""
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 3)))
    layout = random_layout(rng, shape)
    bits = rng.randint(1, 3)
    layout = replace(layout, swizzle=Swizzle(bits, rng.randint(0, 2), rng.randint(bits, 4)))
    index = tuple(var(f"i{dim}") for dim in range(len(shape)))
    facts = Facts.empty()
    for variable, size in zip(index, shape, strict=True):
        facts = facts.loop(variable, tw.ir.const(size))
    offset = layout.offset_of(index)
    short = simplify(offset, facts)
    numbers = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    tile = Buffer("t", f32, shape, layout)
    flat = pack(tile, numbers)
    assert flat.shape == (layout.extent,)
    for place in np.ndindex(shape):
        values = dict(zip(index, place, strict=True))
        assert evaluate(short, values) == evaluate(offset, values)
        assert flat[evaluate(offset, values)] == numbers[place]
    np.testing.assert_array_equal(unpack(tile, flat), numbers)


def test_what_is_known_stays_plain() -> None:
    row, col, chunk, e, t, part = (var(name) for name in ("row", "col", "chunk", "e", "t", "part"))
    facts = Facts.empty()
    for variable, size in ((row, 32), (col, 64), (chunk, 8), (e, 8), (t, 128), (part, 2)):
        facts = facts.loop(variable, tw.ir.const(size))

    def text(*index: tw.ir.Expr) -> str:
        return repr(simplify(ROWS.offset_of(index), facts))

    assert text(row, col) == "(col // 8 ^ row % 8) * 8 + col % 8 + row * 64"
    assert text(row, chunk * 8 + e) == "(chunk ^ row % 8) * 8 + e + row * 64"
    assert text(row, e + 40) == "e + row * 64 + (row % 8 ^ 5) * 8"
    assert text(part * 8 + 3, e + 40) == "e + part * 512 + 240"
    # What 128 work-items copy, 8 elements each.
    copied = text(part * 16 + t // 8, t % 8 * 8 + e)
    assert copied == "e + part * 1024 + t // 8 * 64 + (t // 8 % 8 ^ t % 8) * 8"


def test_stages_lie_outside() -> None:
    """Blocks that step over whole periods are not part of the exclusive or."""
    staged = Layout(
        (LayoutBlock(0, 3, 2048), LayoutBlock(1, 32, 64), LayoutBlock(2, 64, 1)),
        0,
        Swizzle(3, 3, 3),
    )
    k, row, chunk = var("k"), var("row"), var("chunk")
    facts = Facts.empty().loop(row, tw.ir.const(32)).loop(chunk, tw.ir.const(8))
    offset = simplify(staged.offset_of((k % 3, row, chunk * 8)), facts)
    assert repr(offset) == "(chunk ^ row % 8) * 8 + k % 3 * 2048 + row * 64"


def test_the_extent_holds_what_changes_places() -> None:
    assert ROWS.extent == 32 * 64
    # 3 rows of 20: element 59 of row 2 could go to a run behind it.
    assert (
        Layout((LayoutBlock(0, 3, 20), LayoutBlock(1, 20, 1)), 5, Swizzle(2, 2, 2)).extent == 5 + 64
    )


def test_moved_runs_have_no_strides() -> None:
    assert strides_of(ROWS, 2) is None


def test_an_op_takes_no_such_tensor() -> None:
    def op(src: Layout) -> object:
        return tw.reorder("4x8", src=src).arguments

    plain = row_major((4, 8))
    assert op(plain)
    with pytest.raises(LayoutError, match="the layout is swizzled"):
        op(replace(plain, swizzle=Swizzle(1, 1, 1)))
    with pytest.raises(LayoutError, match="the layout has an offset"):
        op(replace(plain, start=4))


# Text.

COPY = """kernel copy(
    in src: f32[6, 16] {0:6:20 1:16:1 +7},
    out dst: f32[16, 6] {0:16:8 1:6:1 +3 ^1:2:3},
):
  alloc tile: f32[6, 16] {0:6:16 1:16:1 ^2:2:2}
  for i in 6:
    for c in 4:
      vector for e in 4:
        tile[i, c * 4 + e] = src[i, c * 4 + e]
  for j in 16:
    for i in 6:
      dst[j, i] = tile[i, j]
"""


def test_text() -> None:
    kernel = parse_kernel(COPY)
    verify(kernel)
    assert to_text(parse_kernel(to_text(kernel))) == to_text(kernel)
    assert "out dst: f32[16, 6] {0:16:8 1:6:1 +3 ^1:2:3}" in to_text(kernel)
    assert kernel.params[1].buffer.layout.swizzle == Swizzle(1, 2, 3)
    with pytest.raises(ParseError, match="expected `:` and the base of the swizzle"):
        parse_kernel(COPY.replace("^2:2:2", "^2"))


@pytest.mark.parametrize("swizzle", ["0:2:2", "2:-1:2", "2:2:1"])
def test_wrong_swizzles_are_refused(swizzle: str) -> None:
    with pytest.raises(VerificationError, match=f"tile has a swizzle of {swizzle}"):
        verify(parse_kernel(COPY.replace("^2:2:2", f"^{swizzle}")))


def test_negative_strides_are_refused() -> None:
    text = COPY.replace("{0:6:16 1:16:1 ^2:2:2}", "{0:6:16 1:16:-1 +15 ^2:2:2}")
    with pytest.raises(VerificationError, match="swizzles elements before its offset"):
        verify(parse_kernel(text))


# Machine code.


def executed(text: str, arrays: dict[str, np.ndarray]) -> None:
    """The kernel as machine code writes what it writes in the interpreter, into memory that
    begins where offsets are counted from."""
    kernel = parse_kernel(text)
    verify(kernel)
    wanted = {name: array.copy() for name, array in arrays.items()}
    run(kernel, wanted)
    target = x86_target("")
    module = target.lower(kernel)
    abi = abi_of(kernel, module)
    assert [p.bytes for p in abi.parameters] == [a.nbytes for a in arrays.values()]
    Code(target, target.assemble(module), abi).run([a.ctypes.data for a in arrays.values()], 1)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)


def test_machine_code_finds_the_elements() -> None:
    src, dst = (p.buffer for p in parse_kernel(COPY).params)
    numbers = np.arange(96, dtype=np.float32).reshape(6, 16)
    arrays = {"src": pack(src, numbers), "dst": np.zeros(dst.layout.extent, np.float32)}
    executed(COPY, arrays)
    np.testing.assert_array_equal(unpack(dst, arrays["dst"]), numbers.T)


@pytest.mark.parametrize("type_", [t for t in COMPUTED if t.is_integer], ids=str)
def test_exclusive_or(type_: DType) -> None:
    rng = np.random.default_rng(0)
    low, high = int(type_.lowest), int(type_.highest)
    arrays = {
        name: rng.integers(low, high, 64, dtype=type_.numpy, endpoint=True)
        for name in ("a", "b", "c")
    }
    wanted = arrays["a"] ^ arrays["b"]
    lines = f"""
kernel k(in a: {type_}[64], in b: {type_}[64], out c: {type_}[64]):
  for o in 8:
    vector for i in 8:
      c[o * 8 + i] = a[o * 8 + i] ^ b[o * 8 + i]
"""
    executed(lines, arrays)
    np.testing.assert_array_equal(arrays["c"], wanted)


STAGED = """kernel staged(
    in src: f16[2, 32, 64],
    out dst: f16[2, 32, 64],
):
  grid for g in 2:
    alloc tile: f16[2, 32, 64] {0:2:2048 1:32:64 2:64:1 ^3:3:3} workgroup
    lane for t in 32:
      for k in 8:
        for part in 8:
          vector for e in 8:
            row = part * 4 + t // 8
            copy_async(&tile[k % 2, row, t % 8 * 8 + e], &src[g, row, t % 8 * 8 + e])
        commit_copies()
        wait_copies(0)
        barrier()
        for part in 8:
          vector for e in 8:
            dst[g, t, part * 8 + e] = tile[k % 2, t, part * 8 + e]
        barrier()
"""


def test_runs_are_copied_and_read_at_once() -> None:
    """A run of 16 bytes stays one asynchronous copy and one access."""
    text = lower_launches(parse_kernel(STAGED), nvidia.machine("sm_80")).text
    assert len(re.findall(r"call void @llvm.nvvm.cp.async.cg.shared.global.16\(", text)) == 1
    assert "cp.async.ca" not in text
    loads = re.findall(r"load (\S+ x \S+), ptr addrspace\(3\) \S+, align (\d+)", text)
    assert loads == [("<8 x half>", "16")], text


# Shared tiles: conflicts of banks, and a reader that is wrong about the writer.

TURNED = """kernel turned(in x: f32[32, 32], out y: f32[32, 32]):
  alloc s: f32[32, 32]{} workgroup
  workgroup for t in 32:
    for i in 32:
      s[i, t] = x[i, t]
    barrier()
    for i in 32:
      y[i, t] = s[t, i]
"""


def degrees(layout: str) -> list[float]:
    """Turns of the banks for each store to and each load from the tile; checks what it computes."""
    kernel = parse_kernel(TURNED.replace("{}", layout))
    verify(kernel)
    square = np.arange(1024, dtype=np.float32)
    memory = {"x": square.copy(), "y": np.zeros(1024, np.float32)}
    hierarchy = spirv.machine("gpu").hierarchy
    profile = Profile(hierarchy)
    run(kernel, memory, profile=profile)
    np.testing.assert_array_equal(memory["y"].reshape(32, 32), square.reshape(32, 32).T)
    return [line.degree for line in profile.lines if line.buffer.name == "s"]


def test_a_transposing_access_has_no_conflicts() -> None:
    assert degrees("") == [1.0, 32.0]
    assert degrees(" {0:32:32 1:32:1 ^5:0:5}") == [1.0, 1.0]
    # Runs of 4 elements leave 4 rows of the column in each bank.
    assert degrees(" {0:32:32 1:32:1 ^3:2:3}") == [1.0, 4.0]
    # Longer rows instead, and more memory.
    assert degrees(" {0:32:33 1:32:1}") == [1.0, 1.0]


@pytest.mark.parametrize(("size", "spread"), [(32, Spread(1)), (8, Spread(0, Swizzle(1, 2, 3)))])
def test_a_padding_that_is_much_of_the_tile_gives_way(size: int, spread: Spread) -> None:
    """A square whose columns are stored and whose rows are read: 1 element in 8 is much."""
    text = f"""kernel turned(in x: f32[{size}, {size}], inout y: f32[{size}]):
  alloc s: f32[{size}, {size}] workgroup
  workgroup for t in {size}:
    compute a_pack(i in {size}):
      a = x[t, i]
      s[t, i] = a
    barrier()
    compute main(i in {size}):
      a = s[i, t]
      y[t] add= a
"""
    hierarchy = spirv.machine("gpu").hierarchy
    assert spreads(parse_kernel(text), hierarchy, "", 1, 1) == {"a": spread}


TWO_VIEWS = """kernel views(in x: f32[16, 32], out y: f32[16, 32]):
  alloc s: f32[1024] workgroup
  workgroup for t in 32:
    for i in 16:
      s[i * 64 + (t // 4 ^ i % 8) * 4 + t % 4] = x[i, t]
    barrier()
    for i in 16:
      y[i, t] = s[i * 64 + (t // 4 ^ i % {rows}) * 4 + t % 4]
"""


@pytest.mark.parametrize("rows", [8, 4, 16])
def test_a_reader_with_another_swizzle_is_found(rows: int) -> None:
    """What were machine code if a tile's writer and its reader were swizzled differently."""
    numbers = np.arange(512, dtype=np.float32)
    memory = {"x": numbers.copy(), "y": np.zeros(512, np.float32)}
    kernel = parse_kernel(TWO_VIEWS.format(rows=rows))
    verify(kernel)
    if rows > 8:
        # Runs beyond what was written.
        with pytest.raises(InterpreterFault, match="uninitialized read of 's'"):
            run(kernel, memory)
        return
    run(kernel, memory)
    assert (memory["y"] == numbers).all() == (rows == 8)

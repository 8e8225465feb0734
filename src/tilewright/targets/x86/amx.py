"""Structured ops that are one matrix instruction on tile registers (AMX).

A tile is loaded from rows in memory at one stride, so operands are not in registers of ours: LLVM
assigns tiles and configures them (Intel 64 and IA-32 Software Developer's Manual, volume 1, chapter
18). An accumulator stays in memory between instructions, or in a tile: if it is private, and used
only by products, copies of tiles, and zeros.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from tilewright.dtypes import s32
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Dim
from tilewright.ir.visit import variables
from tilewright.machines.instruction import Instruction
from tilewright.targets.llvm.memory import MemoryMap, NotInRegisters
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.types import llvm_type
from tilewright.targets.llvm.values import Value

_LOAD = "llvm.x86.tileloadd64.internal"
_STORE = "llvm.x86.tilestored64.internal"
_ZERO = "llvm.x86.tilezero.internal"
_TILE = "x86_amx"
_TILES = 8
# The rows of a tile, and the bytes of a row, as LLVM's arguments.
Shape: TypeAlias = tuple[str, str]
# LLVM carries tiles through loops as vectors of the same size, and recognizes them as tiles.
_ELEMENTS = 256
_TO_TILE = f"llvm.x86.cast.vector.to.tile.v{_ELEMENTS}i32"
_TO_VECTOR = f"llvm.x86.cast.tile.to.vector.v{_ELEMENTS}i32"


def emit_tiles(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """``out[m, n] += a[m, k] * b[k, n]``; or a copy of a tile, or a tile of zeros."""
    memory.exprs.push()
    for dim in plan.stmt.dims:
        memory.exprs.variables[dim.var] = 0
    if len(plan.operands) == 2:
        _product(memory, plan, instruction)
    else:
        _copy(memory, plan)
    memory.exprs.pop()


def _product(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    out, (a, b) = plan.out, plan.operands
    for address in (a, b):
        if address.buffer in memory.registers:
            raise NotInRegisters(address.buffer)
    dims = _dims_by_role(plan, instruction)
    group = instruction.operands[1].steps_of("k")[-1].size
    assert group is not None
    masks = [_mask(memory, plan, position) for position in range(2)]
    if False in masks:  # a product with a masked operand is 0 and adds nothing
        return
    shape = _shape(memory, out, dims["m"], dims["n"])
    rows, columns = shape
    depth = instruction.sizes["k"]
    bytes_k = f"i16 {depth * a.buffer.dtype.bytes}"
    groups = f"i16 {depth // group}"
    c_tile = _read(memory, out, dims["m"], shape)
    most = _count(memory, out.buffer, shape, [(rows, bytes_k), (groups, columns)])
    a_tile = _load(memory, a, (rows, bytes_k), _row(memory, a, dims["m"], 1), masks[0], most)
    b_tile = _load(memory, b, (groups, columns), _row(memory, b, dims["k"], group), masks[1], most)
    sizes = f"{rows}, {columns}, {bytes_k}"
    tiles = f"{_TILE} {c_tile}, {_TILE} {a_tile}, {_TILE} {b_tile}"
    types = f"i16, i16, i16, {_TILE}, {_TILE}, {_TILE}"
    result = memory.w.call(_TILE, instruction.emit, f"{sizes}, {tiles}", types)
    _write(memory, out, dims["m"], shape, result)


def _count(memory: MemoryMap, sums: Buffer, shape: Shape, factors: Iterable[Shape]) -> int:
    """Counts the tiles of a product whose ``sums`` have this ``shape``; gives how many tiles its
    factors may have, with those of products before. A tile has one shape in a whole function, so
    what lets LLVM run out of tiles is a buffer in memory instead."""
    passing = Counter(factors)
    if sums not in memory.registers:
        passing[shape] += 1
    memory.passing_tiles = passing = passing | Counter(memory.passing_tiles)
    held = {buffer: Counter(shapes.values()) for buffer, shapes in memory.tiles.items()}
    most = functools.reduce(operator.or_, held.values(), Counter[Shape]())
    spare = _TILES - (most + passing).total()
    if held and spare < 0:
        raise NotInRegisters(max(held, key=lambda buffer: held[buffer].total()))
    if spare < 0:
        raise CompilationError(
            f"tiles of {len(passing)} shapes are more than the {_TILES} that there are",
            where=f"the product in {sums.name!r}",
            cure="cut the products of the function in tiles of fewer shapes",
        )
    return 2 + spare


def _copy(memory: MemoryMap, plan: ComputePlan) -> None:
    """A copy of a tile from another place, or a tile of zeros."""
    if any(operand.view.mask is not None for operand in plan.stmt.operands):
        raise CompilationError(
            f"a mask hides parts of a tile in {plan.stmt.name!r}",
            cure="copy it by vectors",
        )
    dims = {"m": None, "n": None} | {
        "n" if plan.out.lane_coefficient(dim.var) == 1 else "m": dim
        for dim in plan.stmt.dims
        if not (isinstance(dim.extent, Const) and dim.extent.value == 1)
    }
    shape = _shape(memory, plan.out, dims["m"], dims["n"])
    if plan.operands:
        tile = _read(memory, plan.operands[0], dims["m"], shape)
    else:
        tile = memory.w.call(_TILE, _ZERO, ", ".join(shape), "i16, i16")
    _write(memory, plan.out, dims["m"], shape, tile)


def _shape(memory: MemoryMap, out: Address, rows: Dim | None, columns: Dim | None) -> Shape:
    """The rows of a tile, and the bytes of a row."""
    width = _length(memory, columns) * out.buffer.dtype.bytes
    return f"i16 {_length(memory, rows)}", f"i16 {width}"


def _read(memory: MemoryMap, address: Address, rows: Dim | None, shape: Shape) -> str:
    """A tile of 32-bit elements, from a register or from memory."""
    if address.buffer not in memory.registers:
        return _load(memory, address, shape, _row(memory, address, rows, 1), True, 0)
    offset = _offset(memory, address)
    if memory.tiles.get(address.buffer, {}).get(offset) != shape:
        raise NotInRegisters(address.buffer)
    value = memory.slots[address.buffer, offset]
    return memory.w.call(_TILE, _TO_TILE, value.typed, value.type)


def _write(memory: MemoryMap, address: Address, rows: Dim | None, shape: Shape, tile: str) -> None:
    """Writes a tile to its register or to memory."""
    if address.buffer in memory.registers:
        offset = _offset(memory, address)
        shapes = memory.tiles.setdefault(address.buffer, {})
        if shapes.setdefault(offset, shape) != shape:
            raise NotInRegisters(address.buffer)
        type_ = llvm_type(s32, _ELEMENTS)
        text = memory.w.call(type_, _TO_VECTOR, f"{_TILE} {tile}", _TILE)
        memory.slots[address.buffer, offset] = Value(text, s32, _ELEMENTS)
        return
    stride = _row(memory, address, rows, 1)
    memory.w.call_void(
        _STORE,
        f"{', '.join(shape)}, {memory.pointer(address, {}).typed}, i64 {stride}, {_TILE} {tile}",
        f"i16, i16, ptr, i64, {_TILE}",
    )


def _offset(memory: MemoryMap, address: Address) -> int:
    """The offset of a tile in registers. A buffer of tiles holds no vectors or elements."""
    offset, shapes = memory.constant_offset(address), memory.tiles.get(address.buffer, {})
    others = any(buffer is address.buffer and at not in shapes for buffer, at in memory.slots)
    if offset is None or others:
        raise NotInRegisters(address.buffer)
    return offset


def _dims_by_role(plan: ComputePlan, instruction: Instruction) -> dict[str, Dim | None]:
    """The dims of the op by those of the instruction; None for a dim of extent 1."""
    a, b = (_variables_of(address) for address in plan.operands)
    out = _variables_of(plan.out)
    roles: dict[str, Dim | None] = dict.fromkeys(instruction.sizes)
    for dim in plan.stmt.dims:
        if isinstance(dim.extent, Const) and dim.extent.value == 1:
            continue  # it stands in no index
        uses = (dim.var in out, dim.var in a, dim.var in b)
        role = {(True, True, False): "m", (True, False, True): "n", (False, True, True): "k"}
        name = role.get(uses)
        if name is None or roles[name] is not None:
            raise CompilationError(
                f"{plan.stmt.name!r} does not have the dims of {instruction.name}",
                cure="match it with `tensorize`",
            )
        roles[name] = dim
    return roles


def _variables_of(address: Address) -> set[Expr]:
    atoms: set[Expr] = {atom for atom, _ in address.lanes}
    for atom, _ in address.loose:
        atoms |= variables(atom)
    return atoms


def _length(memory: MemoryMap, dim: Dim | None) -> int:
    """A constant extent: LLVM ends the process if it cannot configure tiles early."""
    if dim is None:
        return 1
    extent = memory.exprs.evaluate(dim.extent, {})
    if isinstance(extent, Value):
        raise CompilationError(
            f"the extent of {dim.var.name!r} in a tile is not constant: {to_text(dim.extent)}",
            cure="partition the loop around it, so that its last tile stands alone",
        )
    return int(extent)


def _mask(memory: MemoryMap, plan: ComputePlan, position: int) -> Value | bool:
    """The mask of an operand: a constant, or one for the whole tile."""
    view = plan.stmt.operands[position].view
    if view.mask is None:
        return True
    if any(dim.var in variables(view.mask) for dim in plan.stmt.dims):
        raise CompilationError(
            f"the mask of {view.buffer.name!r} differs within a tile",
            cure="stage the operand, so that its copy has no mask",
        )
    value = memory.exprs.evaluate(view.mask, {})
    return value if isinstance(value, Value) else bool(value)


def _row(memory: MemoryMap, address: Address, dim: Dim | None, step: int) -> int:
    """Bytes between rows of a tile, which are ``step`` apart along ``dim``."""
    if dim is None:
        return 0
    rows = range(_length(memory, dim) // step)
    places = [_place(memory, address, dim.var, row * step) for row in rows]
    stride = places[1] if len(places) > 1 else 0
    if any(place != row * stride for row, place in enumerate(places)):
        raise CompilationError(
            f"the rows of a tile of {address.buffer.name!r} are not evenly spaced",
            cure="pack the operand so that they are",
        )
    return stride * address.buffer.dtype.bytes


def _place(memory: MemoryMap, address: Address, variable: Var, value: int) -> int:
    """Elements from the start of the tile to where ``variable`` has ``value``."""
    place = address.lane_coefficient(variable) * value
    exprs = memory.exprs
    for atom, coefficient in address.loose:
        if variable not in variables(atom):
            continue
        exprs.push()
        exprs.variables[variable] = value
        index = exprs.evaluate(atom, {})
        exprs.variables[variable] = 0
        exprs.pop()
        if isinstance(index, Value):
            raise CompilationError(
                f"the rows of a tile of {address.buffer.name!r} have no known distance",
                cure="pack the operand in blocks of a tile",
            )
        place += coefficient * int(index)
    return place


def _load(
    memory: MemoryMap,
    address: Address,
    shape: Shape,
    stride: int,
    mask: Value | bool,
    most: int,
) -> str:
    """A tile of rows ``stride`` bytes apart; zeros where ``mask`` does not hold. It is not loaded
    anew if it is one of the ``most`` that were used last."""
    pointer = memory.pointer(address, {})
    step = f"i64 {stride}"
    if isinstance(mask, Value):
        chosen = memory.w.assign(f"select {mask.typed}, {pointer.typed}, ptr @zeros")
        pointer = pointer.moved(chosen)
        spread = memory.w.assign(f"select {mask.typed}, i64 {stride}, i64 0")
        step = f"i64 {spread}"
    arguments = f"{shape[0]}, {shape[1]}, {pointer.typed}, {step}"
    memory.w.declare(_TILE, _LOAD, "i16, i16, ptr, i64")
    return memory.w.read(f"call {_TILE} @{_LOAD}({arguments})", most)

"""Structured ops that are one matrix instruction on tile registers (AMX).

A tile is loaded from rows in memory at one stride, so operands are not in registers of ours: LLVM
assigns tiles and configures them (Intel 64 and IA-32 Software Developer's Manual, volume 1, chapter
18). An accumulator stays in memory between instructions, or in a tile: if it is private, and used
only by products, copies of tiles, and zeros.
"""

from __future__ import annotations

import functools
import operator
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tilewright.dtypes import s32
from tilewright.errors import CompilationError
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
# The address of its first element, and the bytes from row to row, likewise.
Source: TypeAlias = tuple[str, str]
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
    shapes = [(rows, bytes_k), (groups, columns)]
    passing = shapes if out.buffer in memory.registers else [shape, *shapes]
    most = _count(memory, passing)
    strides = [_row(memory, a, dims["m"], 1), _row(memory, b, dims["k"], group)]
    sources = [
        _source(memory, address, stride, mask)
        for address, stride, mask in zip((a, b), strides, masks, strict=True)
    ]
    sizes = f"{rows}, {columns}, {bytes_k}"
    types = f"i16, i16, i16, {_TILE}, {_TILE}, {_TILE}"
    if most is None:
        memory.w.declare(_TILE, instruction.emit, types)
        sums = _source(memory, out, _row(memory, out, dims["m"], 1), True)
        loads = list(enumerate([shape, *shapes]))
        _apart(memory, shape, [sums, *sources], loads, f"{instruction.emit}({sizes}, ")
        return
    c_tile = _read(memory, out, dims["m"], shape)
    a_tile, b_tile = (
        _load(memory, shape, source, most) for shape, source in zip(shapes, sources, strict=True)
    )
    tiles = f"{_TILE} {c_tile}, {_TILE} {a_tile}, {_TILE} {b_tile}"
    result = memory.w.call(_TILE, instruction.emit, f"{sizes}, {tiles}", types)
    _write(memory, out, dims["m"], shape, result)


def _apart(
    memory: MemoryMap,
    shape: Shape,
    sources: Sequence[Source],
    loads: Sequence[tuple[int, Shape]],
    call: str,
) -> None:
    """The tile of this ``shape`` that a ``call`` makes of ``loads`` from ``sources``, or the one
    that is loaded, goes to the first source, by a function of its own: its tiles have other shapes
    than the caller's."""
    memory.w.declare(_TILE, _LOAD, "i16, i16, ptr, i64")
    memory.w.declare("void", _STORE, f"i16, i16, ptr, i64, {_TILE}")
    body = [
        f"  %t{n} = call {_TILE} @{_LOAD}({', '.join(of)}, ptr %p{source}, i64 %s{source})"
        for n, (source, of) in enumerate(loads)
    ]
    result = "%t0"
    if call:
        result = "%r"
        values = ", ".join(f"{_TILE} %t{n}" for n in range(len(loads)))
        body.append(f"  {result} = call {_TILE} @{call}{values})")
    body.append(f"  call void @{_STORE}({', '.join(shape)}, ptr %p0, i64 %s0, {_TILE} {result})")
    parameters = ", ".join(f"ptr %p{n}, i64 %s{n}" for n in range(len(sources)))
    # Equal bodies have one name, others another.
    name = "tiles_" + re.sub(r"\W+", "_", f"{call} {shape} {loads}").strip("_")
    header = f"define internal void @{name}({parameters}) nounwind noinline {{"
    memory.w.declarations[name] = "\n".join([header, "entry:", *body, "  ret void", "}"])
    memory.w.emit(f"call void @{name}({', '.join(', '.join(source) for source in sources)})")


def _count(memory: MemoryMap, shapes: Iterable[Shape]) -> int | None:
    """Counts tiles of these ``shapes`` that one op takes beside what is held; gives how many of
    them may be kept for ops that follow. A tile has one shape in a whole function, so what lets
    LLVM run out of tiles is a buffer in memory instead; then nothing is kept. None where there is
    no tile of a shape even so."""
    passing = Counter(shapes) | Counter(memory.passing_tiles)
    held = {buffer: Counter(tiles.values()) for buffer, tiles in memory.tiles.items()}
    most = functools.reduce(operator.or_, held.values(), Counter[Shape]())
    spare = _TILES - (most + passing).total()
    if held and spare < 0:
        raise NotInRegisters(max(held, key=lambda buffer: held[buffer].total()))
    are_kept = None not in memory.memory_only
    if spare < 0 and are_kept:
        raise NotInRegisters(None)
    if spare < 0:
        return None
    memory.passing_tiles = passing
    return 2 + spare if are_kept else 0


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
    addresses = (plan.out, *plan.operands)
    in_memory = all(address.buffer not in memory.registers for address in addresses)
    if in_memory and _count(memory, [shape]) is None:
        memory.w.declare(_TILE, _ZERO, "i16, i16")
        sources = [
            _source(memory, address, _row(memory, address, dims["m"], 1), True)
            for address in addresses
        ]
        loads, call = ([(1, shape)], "") if plan.operands else ([], f"{_ZERO}({', '.join(shape)}")
        _apart(memory, shape, sources, loads, call)
        return
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
        source = _source(memory, address, _row(memory, address, rows, 1), True)
        return _load(memory, shape, source, 0)
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


def _source(memory: MemoryMap, address: Address, stride: int, mask: Value | bool) -> Source:
    """Where the rows of a tile are; zeros where ``mask`` does not hold."""
    pointer = memory.pointer(address, {})
    if not isinstance(mask, Value):
        return pointer.typed, f"i64 {stride}"
    chosen = memory.w.assign(f"select {mask.typed}, {pointer.typed}, ptr @zeros")
    spread = memory.w.assign(f"select {mask.typed}, i64 {stride}, i64 0")
    return pointer.moved(chosen).typed, f"i64 {spread}"


def _load(memory: MemoryMap, shape: Shape, source: Source, most: int) -> str:
    """A tile of rows from `_source`. It is not loaded anew if it is one of the ``most`` that were
    used last."""
    memory.w.declare(_TILE, _LOAD, "i16, i16, ptr, i64")
    return memory.w.read(f"call {_TILE} @{_LOAD}({', '.join((*shape, *source))})", most)

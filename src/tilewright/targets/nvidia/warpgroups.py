"""Products of matrices that the 128 lanes of a warpgroup start together (wgmma, sm_90a).

A and B lie in shared memory, in rows whose 16-byte pieces are permuted: a descriptor gives their
address, and the distance of groups of eight rows. The sums are in registers, which must not be
touched before the product is complete: so the wait takes them as operands, and returns them.

Source: NVIDIA, PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from tilewright.dtypes import DType, s64
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Dim
from tilewright.layout.rows import RowPlacement, place_rows
from tilewright.machines.instruction import Instruction
from tilewright.targets.llvm.fragments import first_register, read_registers, write_registers
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.values import Value
from tilewright.targets.nvidia.assembler import ptx, shared_address

# The number of a swizzle in a descriptor, by the bytes of its rows.
_SWIZZLES = {128: 1, 64: 2, 32: 3}
# A descriptor counts in units of 16 bytes; of an address it takes 18 bits.
_UNIT, _ADDRESS = 4, 0x3FFFF


def emit_product(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """Starts ``c += a * b``."""
    if not memory.products:
        _fence(memory, plan.out.buffer)
    fragment = instruction.out.fragment
    assert fragment is not None
    first, count = first_register(memory, plan.out, plan.stmt.dims), fragment.registers
    sums = [read_registers(memory, plan.out.buffer, first + i, 1) for i in range(count)]
    layouts = [_placed(plan, position, instruction) for position in range(2)]
    transposed = [layout.rows.along != "k" for layout in layouts]
    descriptors = [
        _descriptor(memory, address, plan.stmt.dims, layout)
        for address, layout in zip(plan.operands, layouts, strict=True)
    ]
    outputs = ", ".join(f"${i}" for i in range(count))
    dtype = instruction.operands[0].dtype
    text = (
        "{\\0A .reg .pred adds;\\0A setp.ne.b32 adds, 1, 0;\\0A"
        f" {instruction.emit} {{{outputs}}}, ${2 * count}, ${2 * count + 1}, adds"
        f"{_flags(dtype, transposed)};\\0A}}"
    )
    letters = [*_letters(instruction.out.dtype, count), "l", "l"]
    _tied(memory, plan.out.buffer, first, (text, letters, [*sums, *descriptors]), count)
    memory.products.setdefault(plan.out.buffer, set()).update(range(first, first + count))


def _fence(memory: MemoryMap, buffer: Buffer) -> None:
    """Orders earlier accesses to registers and shared memory before the products. The sums in
    ``buffer`` pass through, or what they begin with would be written between two products."""
    registers = sorted(
        offset + lane
        for (held, offset), slot in memory.slots.items()
        if held is buffer
        for lane in range(slot.lanes)
    )
    values = [read_registers(memory, buffer, register, 1) for register in registers]
    call = ("wgmma.fence.sync.aligned;", _letters(buffer.dtype, len(values)), values)
    _tied(memory, buffer, registers[0], call, len(values))


def _letters(dtype: DType, count: int) -> list[str]:
    """The constraints of ``count`` registers that are operands and results."""
    letter = "r" if dtype.is_integer else "f"
    return [f"={letter}"] * count + [str(i) for i in range(count)]


def _flags(dtype: DType, transposed: list[bool]) -> str:
    """The flags after the operands: signs, and, for 2 bytes, whether rows lie along M and N."""
    signs = "" if dtype.is_integer else ", 1, 1"
    return signs + ("".join(f", {int(flag)}" for flag in transposed) if dtype.bytes == 2 else "")


def _tied(
    memory: MemoryMap,
    buffer: Buffer,
    first: int,
    call: tuple[str, list[str], list[Value]],
    count: int,
) -> None:
    """PTX with ``count`` registers as operands and as results."""
    text, letters, values = call
    w, element = memory.w, values[0]
    struct = "{ " + ", ".join([element.type] * count) + " }" if count > 1 else element.type
    typed = ", ".join(value.typed for value in values)
    constraints = ",".join((*letters, "~{memory}"))
    result = w.assign(f'call {struct} asm sideeffect "{text}", "{constraints}"({typed})')
    parts = [
        result if count == 1 else w.assign(f"extractvalue {struct} {result}, {i}")
        for i in range(count)
    ]
    write_registers(memory, buffer, first, [Value(p, element.dtype) for p in parts])


def commit_products(memory: MemoryMap) -> None:
    """Closes the group of products started so far."""
    ptx(memory.w, "wgmma.commit_group.sync.aligned;")


def wait_products(memory: MemoryMap, pending: int) -> None:
    """Waits for all groups but the newest ``pending``. Registers of running products pass through
    the wait."""
    text = f"wgmma.wait_group.sync.aligned {pending};"
    for buffer, numbers in list(memory.products.items()):
        registers = sorted(numbers)
        values = [read_registers(memory, buffer, r, 1) for r in registers]
        call = (text, _letters(buffer.dtype, len(values)), values)
        _tied(memory, buffer, registers[0], call, len(values))
        text = ""
    if text:
        ptx(memory.w, text)
    if not pending:
        memory.products.clear()


def _placed(plan: ComputePlan, position: int, instruction: Instruction) -> RowPlacement:
    """The layout of an operand in shared memory. Raises `CompilationError` if no descriptor has
    it."""
    view, role = plan.stmt.operands[position].view, instruction.operands[position]
    dims = {
        name: (dim.var, size)
        for (name, size), dim in zip(instruction.dims, plan.stmt.dims, strict=True)
    }
    reasons: list[str] = []
    for rows in role.rows:
        layout = place_rows(rows, view, dims, plan.facts)
        if isinstance(layout, RowPlacement):
            return layout
        reasons.append(layout)
    raise CompilationError(
        f"{view.buffer.name!r} is no operand of {instruction.name}",
        why="; or ".join(dict.fromkeys(reasons)),
        cure="put it in shared memory in swizzled rows, and match the product by `tensorize`",
    )


def _descriptor(
    memory: MemoryMap, address: Address, dims: tuple[Dim, ...], placed: RowPlacement
) -> Value:
    """The 64-bit descriptor of a matrix."""
    w, size, rows = memory.w, address.buffer.dtype.bytes, placed.rows
    memory.exprs.push()
    for dim in dims:
        memory.exprs.variables[dim.var] = 0
    start_address = shared_address(w, memory.pointer(address, {}))
    memory.exprs.pop()
    masked = w.assign(f"and {start_address.typed}, {_ADDRESS}")
    start = w.assign(f"lshr i32 {masked}, {_UNIT}")
    wide = w.assign(f"zext i32 {start} to i64")
    # Distance of blocks along the rows and across them; a single block has no distance.
    along = placed.along * size or 1 << _UNIT
    across = placed.across * size or rows.swizzle.period * size
    swizzle = _SWIZZLES[rows.length * size]
    fields = (along >> _UNIT) << 16 | (across >> _UNIT) << 32 | swizzle << 62
    if fields >= 1 << 63:
        fields -= 1 << 64
    return Value(w.assign(f"or i64 {wide}, {fields}"), s64)

"""Products of matrices that the 128 lanes of a warpgroup start together (wgmma, sm_90a).

A and B lie in shared memory, in rows whose 16-byte pieces are permuted: a descriptor says where,
and how far apart groups of eight rows are. The sums are in registers, which nobody may touch until
the product is awaited: so the wait takes them, and gives them back.

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
# A descriptor counts 16 bytes; of an address it takes 18 bits.
_UNIT, _ADDRESS = 4, 0x3FFFF


def emit_product(memory: MemoryMap, plan: ComputePlan, instruction: Instruction) -> None:
    """Starts ``c += a * b``."""
    w = memory.w
    if not memory.products:
        # Registers and shared memory as they are now.
        ptx(w, "wgmma.fence.sync.aligned;")
    fragment = instruction.out.fragment
    assert fragment is not None
    first, count = first_register(memory, plan.out, plan.stmt.dims), fragment.registers
    sums = [read_registers(memory, plan.out.buffer, first + i, 1) for i in range(count)]
    placed = [_placed(plan, position, instruction) for position in range(2)]
    turned = [each.rows.along != "k" for each in placed]
    descriptors = [
        _descriptor(memory, address, plan.stmt.dims, each)
        for address, each in zip(plan.operands, placed, strict=True)
    ]
    letter = "r" if instruction.out.dtype.is_integer else "f"
    outputs = ", ".join(f"${i}" for i in range(count))
    dtype = instruction.operands[0].dtype
    text = (
        "{\\0A .reg .pred adds;\\0A setp.ne.b32 adds, 1, 0;\\0A"
        f" {instruction.emit} {{{outputs}}}, ${2 * count}, ${2 * count + 1}, adds"
        f"{_flags(dtype, turned)};\\0A}}"
    )
    letters = [f"={letter}"] * count + [str(i) for i in range(count)] + ["l", "l"]
    _tied(memory, plan.out.buffer, first, (text, letters, [*sums, *descriptors]), count)
    memory.products.setdefault(plan.out.buffer, set()).update(range(first, first + count))


def _flags(dtype: DType, turned: list[bool]) -> str:
    """What follows the operands: signs, and, of 2 bytes, whether rows lie along M and N."""
    signs = "" if dtype.is_integer else ", 1, 1"
    return signs + ("".join(f", {int(each)}" for each in turned) if dtype.bytes == 2 else "")


def _tied(
    memory: MemoryMap,
    buffer: Buffer,
    first: int,
    call: tuple[str, list[str], list[Value]],
    count: int,
) -> None:
    """PTX that takes ``count`` registers and gives them back."""
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
    """Makes what was started a group."""
    ptx(memory.w, "wgmma.commit_group.sync.aligned;")


def wait_products(memory: MemoryMap, pending: int) -> None:
    """Waits for all groups but ``pending``. All sums that may be under way go through it."""
    text = f"wgmma.wait_group.sync.aligned {pending};"
    for buffer, held in list(memory.products.items()):
        registers = sorted(held)
        values = [read_registers(memory, buffer, r, 1) for r in registers]
        letter = "r" if buffer.dtype.is_integer else "f"
        letters = [f"={letter}"] * len(values) + [str(i) for i in range(len(values))]
        _tied(memory, buffer, registers[0], (text, letters, values), len(values))
        text = ""
    if text:
        ptx(memory.w, text)
    if not pending:
        memory.products.clear()


def _placed(plan: ComputePlan, position: int, instruction: Instruction) -> RowPlacement:
    """How an operand lies in shared memory: `CompilationError` where no descriptor says it."""
    view, role = plan.stmt.operands[position].view, instruction.operands[position]
    dims = {
        name: (dim.var, size)
        for (name, size), dim in zip(instruction.dims, plan.stmt.dims, strict=True)
    }
    reasons: list[str] = []
    for rows in role.rows:
        found = place_rows(rows, view, dims, plan.facts)
        if isinstance(found, RowPlacement):
            return found
        reasons.append(found)
    raise CompilationError(
        f"{view.buffer.name!r} is no operand of {instruction.name}",
        why="; or ".join(dict.fromkeys(reasons)),
        cure="share it in swizzled rows, and match the product by `tensorize`",
    )


def _descriptor(
    memory: MemoryMap, address: Address, dims: tuple[Dim, ...], placed: RowPlacement
) -> Value:
    """The 64 bits that say where a matrix lies."""
    w, size, rows = memory.w, address.buffer.dtype.bytes, placed.rows
    memory.exprs.push()
    for dim in dims:
        memory.exprs.variables[dim.var] = 0
    where = shared_address(w, memory.pointer(address, {}))
    memory.exprs.pop()
    masked = w.assign(f"and {where.typed}, {_ADDRESS}")
    start = w.assign(f"lshr i32 {masked}, {_UNIT}")
    wide = w.assign(f"zext i32 {start} to i64")
    # From block to block, along the rows and across them. One block has no next one.
    along = placed.along * size or 1 << _UNIT
    across = placed.across * size or rows.swizzle.period * size
    swizzle = _SWIZZLES[rows.length * size]
    rest = (along >> _UNIT) << 16 | (across >> _UNIT) << 32 | swizzle << 62
    if rest >= 1 << 63:
        rest -= 1 << 64
    return Value(w.assign(f"or i64 {wide}, {rest}"), s64)

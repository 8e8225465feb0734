"""Products of matrices that the 128 lanes of a warpgroup start together (wgmma, sm_90a).

A and B lie in shared memory, in rows whose 16-byte pieces are permuted: a descriptor says where,
and how far apart groups of eight rows are. The sums are in registers, which nobody may touch until
the product is awaited: so the wait takes them, and gives them back.

Source: NVIDIA, PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from tilewright.dtypes import DType, s64
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.stmt import Dim, View
from tilewright.ir.visit import variables
from tilewright.machines.instruction import Instruction
from tilewright.targets.llvm.fragments import first_register, read_registers, write_registers
from tilewright.targets.llvm.memory import Memory
from tilewright.targets.llvm.plan import Address, ComputePlan
from tilewright.targets.llvm.values import Value
from tilewright.targets.nvidia.assembler import ptx, shared_address

# Rows that are permuted among each other, and the number of each swizzle in a descriptor, by the
# bytes of a row.
_ROWS = 8
_SWIZZLES = {128: 1, 64: 2, 32: 3}
# A descriptor counts 16 bytes; of an address it takes 18 bits.
_UNIT, _ADDRESS = 4, 0x3FFFF


def emit_product(memory: Memory, plan: ComputePlan, instruction: Instruction) -> None:
    """Starts ``c += a * b``."""
    w = memory.w
    if not memory.products:
        # Registers and shared memory as they are now.
        ptx(w, "wgmma.fence.sync.aligned;")
    fragment = instruction.out.fragment
    assert fragment is not None
    first, count = first_register(memory, plan.out, plan.stmt.dims), fragment.registers
    sums = [read_registers(memory, plan.out.buffer, first + i, 1) for i in range(count)]
    m, n, k = plan.stmt.dims
    descriptors, turned = [], []
    for address, operand, row in zip(plan.operands, plan.stmt.operands, (m, n), strict=True):
        form = _Form.of(operand.view, row, k)
        turned.append(form.turned)
        descriptors.append(_descriptor(memory, address, plan.stmt.dims, form))
    letter = "r" if instruction.out.dtype.is_integer else "f"
    outputs = ", ".join(f"${i}" for i in range(count))
    a, b = (role.dtype for role in instruction.operands)
    size = "".join(f"{name}{extent}" for name, extent in instruction.dims)
    text = (
        "{\\0A .reg .pred adds;\\0A setp.ne.b32 adds, 1, 0;\\0A"
        f" wgmma.mma_async.sync.aligned.{size}.{_type(instruction.out.dtype)}.{_type(a)}.{_type(b)}"
        f" {{{outputs}}}, ${2 * count}, ${2 * count + 1}, adds{_flags(a, turned)};\\0A}}"
    )
    letters = [f"={letter}"] * count + [str(i) for i in range(count)] + ["l", "l"]
    _tied(memory, plan.out.buffer, first, (text, letters, [*sums, *descriptors]), count)
    memory.products.setdefault(plan.out.buffer, set()).update(range(first, first + count))


def _type(dtype: DType) -> str:
    return dtype.name


def _flags(dtype: DType, turned: list[bool]) -> str:
    """What follows the operands: signs, and, of 2 bytes, whether rows lie along M and N."""
    if dtype.is_integer:
        _only_along_k(dtype, turned)
        return ""
    if dtype.bytes != 2:
        _only_along_k(dtype, turned)
        return ", 1, 1"
    return ", 1, 1" + "".join(f", {int(each)}" for each in turned)


def _only_along_k(dtype: DType, turned: list[bool]) -> None:
    if any(turned):
        raise CompilationError(
            f"a matrix of {dtype} whose rows do not lie along the reduction",
            why="the instruction turns elements of 2 bytes only",
            cure="share it in rows along the reduction",
        )


def _tied(
    memory: Memory,
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


def commit_products(memory: Memory) -> None:
    """Makes what was started a group."""
    ptx(memory.w, "wgmma.commit_group.sync.aligned;")


def wait_products(memory: Memory, pending: int) -> None:
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


class _Form:
    """How an operand lies in shared memory: rows of so many bytes, ``apart`` (in bytes) between
    blocks of rows side by side; ``turned``: rows along M or N."""

    def __init__(self, row: int, apart: int, turned: bool) -> None:
        self.row, self.apart, self.turned = row, apart, turned

    @staticmethod
    def of(view: View, kept: Dim, reduced: Dim) -> _Form:
        """Raises `CompilationError` where a descriptor cannot say it."""
        layout, size = view.buffer.layout, view.buffer.dtype.bytes
        swizzle = layout.swizzle
        row = (16 << swizzle.bits) if swizzle is not None else 0
        if view.buffer.space is not Space.WORKGROUP or row not in _SWIZZLES:
            raise CompilationError(
                f"{view.buffer.name!r} is no operand of a warpgroup's product",
                why="these are read from workgroup memory, in swizzled rows of 32, 64 or 128 bytes",
                cure="share it so",
            )
        near = next(b for b in reversed(layout.blocks) if b.stride == 1)
        along = variables(view.index[near.dim])
        turned = kept.var in along
        if (not turned and reduced.var not in along) or near.size * size != row:
            raise CompilationError(
                f"the rows of {view.buffer.name!r} have {near.size * size} bytes",
                why=f"its swizzle is for rows of {row}, along one dim of the matrix",
                cure="share rows of the swizzle's length",
            )
        blocks = [b for b in layout.blocks if b.dim == near.dim and b is not near]
        apart = blocks[-1].stride * size if turned and blocks and blocks[-1].size > 1 else 16
        return _Form(row, apart, turned)


def _descriptor(memory: Memory, address: Address, dims: tuple[Dim, ...], form: _Form) -> Value:
    """The 64 bits that say where a matrix lies."""
    w = memory.w
    memory.exprs.push()
    for dim in dims:
        memory.exprs.variables[dim.var] = 0
    where = shared_address(w, memory.pointer(address, {}))
    memory.exprs.pop()
    masked = w.assign(f"and {where.typed}, {_ADDRESS}")
    start = w.assign(f"lshr i32 {masked}, {_UNIT}")
    wide = w.assign(f"zext i32 {start} to i64")
    rest = (
        (form.apart >> _UNIT) << 16 | (_ROWS * form.row >> _UNIT) << 32 | _SWIZZLES[form.row] << 62
    )
    if rest >= 1 << 63:
        rest -= 1 << 64
    return Value(w.assign(f"or i64 {wide}, {rest}"), s64)

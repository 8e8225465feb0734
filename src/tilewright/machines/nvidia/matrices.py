"""NVIDIA's instructions on matrices: which lane of a subgroup holds which element.

In a table of PTX, a lane is a group of four, ``g = lane / 4``, and a place in it, ``t = lane % 4``.
The products of compute capability 7.0 are four at a time, by lanes of their own.
Source: NVIDIA, PTX ISA, "Matrix multiply-accumulate operation using mma instruction" and
"Warp-level matrix load instruction: ldmatrix".
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.dtypes import DType, bf16, f8_e4m3, f8_e5m2, f16, f32, f64, s8, s32, tf32, u8
from tilewright.ir.buffer import Layout, LayoutBlock
from tilewright.layout.fragments import Copies, Fragment
from tilewright.machines.instruction import AddressStep, Instruction, OperandForm

LANES = 32
# Rows that ldmatrix takes from memory, in bytes, and how many make a matrix.
_ROW, _ROWS = 16, 8
# Bytes of a register.
_REGISTER = 4
# What PTX calls the floats of a byte.
_EIGHTS = {f8_e4m3: "e4m3", f8_e5m2: "e5m2"}


def _fragment(dims: str, tile: tuple[int, int], together: int, across: str) -> Fragment:
    """The tile of ``dims`` in which ``across`` goes through the groups of four, and the other dim
    through the four of a group, each with ``together`` neighbours of it; then again, in further
    registers, along the second dim of the tile first where it is the one that is added up.
    """
    first, second = dims[0], dims[1]
    other = second if across == first else first
    sizes = dict(zip(dims, tile, strict=True))
    halves = {across: sizes[across] // _ROWS, other: sizes[other] // (4 * together)}
    # Of A: rows 0-7 and 8-15, then the next columns. B and C have one of the two only.
    strides = {across: together, other: together * halves[across]}
    held = together * halves[across] * halves[other]
    blocks: list[LayoutBlock] = []
    for number, dim in enumerate(dims):
        if halves[dim] > 1:
            blocks.append(LayoutBlock(number, halves[dim], strides[dim]))
        if dim == across:
            blocks.append(LayoutBlock(number, _ROWS, 4 * held))
        else:
            blocks.append(LayoutBlock(number, 4, held))
            if together > 1:
                blocks.append(LayoutBlock(number, together, 1))
    return Fragment((first, second), LANES, Layout(tuple(blocks)))


def _mma(shape: tuple[int, int, int], out: DType, a: DType, b: DType, types: str) -> Instruction:
    """``c[m, n] += a[m, k] * b[k, n]``, a feature of its own."""
    m, n, k = shape
    packed = max(1, _REGISTER // a.bytes)
    name = f"mma_m{m}n{n}k{k}_{out}_{a}" + ("" if a is b else f"_{b}")
    return Instruction(
        name,
        (("m", m), ("n", n), ("k", k)),
        OperandForm("c", out, fragment=_fragment("mn", (m, n), 2, "m")),
        (
            OperandForm("a", a, fragment=_fragment("mk", (m, k), packed, "m")),
            OperandForm("b", b, fragment=_fragment("kn", (k, n), packed, "n")),
        ),
        name,
        f"llvm.nvvm.mma.m{m}n{n}k{k}.row.col.{types}",
    )


def _quads(a_across: bool, b_across: bool) -> Instruction:
    """``c[m, n] += a[m, k] * b[k, n]`` as four products of 8x8x4, 2 along m and 2 along n.

    Each is made by eight lanes, four of each half of the subgroup:
    ``lane = half*16 + n_part*8 + m_part*4 + t``. Of its eight rows, four are ``half``'s, and in the
    tile the halves' are eight apart, so that neighbouring lanes hold neighbouring rows. What two
    products share, the lanes of both hold: there are copies of it. A lane holds four neighbours
    along k; of A along m where ``a_across``, of B likewise along n.
    """
    ways = [("col" if a_across else "row"), ("row" if b_across else "col")]
    total = (
        LayoutBlock(0, 2, 16 * 8),
        LayoutBlock(0, 2, 4 * 8),
        LayoutBlock(0, 2, 2),
        LayoutBlock(0, 2, 8),
    )
    columns = (
        LayoutBlock(1, 2, 4),
        LayoutBlock(1, 2, 8 * 8),
        LayoutBlock(1, 2, 2 * 8),
        LayoutBlock(1, 2, 1),
    )

    def operand(dim: int, part: int, across: bool) -> Layout:
        four, place = (1, 4) if across else (4, 1)
        kept = LayoutBlock(dim, 2, 16 * 4), LayoutBlock(dim, 2, part * 4), LayoutBlock(dim, 4, four)
        return Layout((*kept, LayoutBlock(1 - dim, 4, place), LayoutBlock(2, 2, (12 - part) * 4)))

    a = Fragment(("m", "k"), LANES, operand(0, 4, a_across), Copies("n", 4, 2))
    b = Fragment(("k", "n"), LANES, operand(1, 8, b_across), Copies("m", 4, 2))
    return Instruction(
        "mma_m16n16k4_f32_f16_" + "_".join(ways),
        (("m", 16), ("n", 16), ("k", 4)),
        OperandForm("c", f32, fragment=Fragment(("m", "n"), LANES, Layout((*total, *columns)))),
        (OperandForm("a", f16, fragment=a), OperandForm("b", f16, fragment=b)),
        "mma_m8n8k4_f32_f16",
        f"llvm.nvvm.mma.m8n8k4.{'.'.join(ways)}.f32.f32",
    )


def _loads(product: Instruction) -> tuple[Instruction, ...]:
    """The ways to fill fragments of the operands of ``product`` from rows in memory: of 16 bytes
    along the dim that is added up, or, of elements of 2 bytes, across it."""
    instructions: list[Instruction] = []
    for role in product.operands:
        assert role.fragment is not None
        if role.dtype.bytes > _REGISTER or role.fragment.copies is not None:
            continue
        # Of B, two tiles side by side are as many registers as A has.
        kept = next(d for d in role.fragment.dims if d != "k")
        tiles = 1 if kept == "m" else 2
        shape = {d: size * (tiles if d == kept else 1) for d, size in role.fragment.sizes.items()}
        whole = Fragment(role.fragment.dims, LANES, role.fragment.tiled(list(shape.values())))
        count = whole.registers * role.dtype.bytes // _REGISTER
        ways = [("k", kept, "")]
        if role.dtype.bytes == 2:
            ways.append((kept, "k", ".trans"))
        for along, rows, form in ways:
            run = _ROW // role.dtype.bytes
            steps = (
                AddressStep(rows, shape[rows], None),
                AddressStep(along, None, None),
                AddressStep(along, run, 1),
            )
            tile = "".join(f"{dim}{size}" for dim, size in shape.items())
            instructions.append(
                Instruction(
                    f"ldmatrix_{tile}_{role.dtype}" + form.replace(".", "_"),
                    tuple(shape.items()),
                    OperandForm("c", role.dtype, fragment=whole),
                    (OperandForm("a", role.dtype, steps, aligned=run),),
                    "ldmatrix",
                    f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{form}.b16.p3",
                    None,
                )
            )
    return tuple(instructions)


def matrix_instructions(features: Collection[str]) -> tuple[Instruction, ...]:
    """The products of matrices, and the loads for them, of a machine with ``features``."""
    products = [
        *(_quads(a, b) for a in (False, True) for b in (False, True)),
        _mma((16, 8, 8), f32, f16, f16, "f32.f32"),
        _mma((16, 8, 16), f32, f16, f16, "f32.f32"),
        _mma((16, 8, 16), f32, bf16, bf16, "bf16"),
        _mma((16, 8, 4), f32, tf32, tf32, "tf32"),
        _mma((16, 8, 8), f32, tf32, tf32, "tf32"),
        _mma((8, 8, 4), f64, f64, f64, "f64"),
    ]
    for a in (s8, u8):
        for b in (s8, u8):
            types = f"{a}" if a is b else f"{a}.{b}"
            products += [_mma((8, 8, 16), s32, a, b, types), _mma((16, 8, 32), s32, a, b, types)]
    for a, left in _EIGHTS.items():
        for b, right in _EIGHTS.items():
            products.append(_mma((16, 8, 32), f32, a, b, f"f32.{left}.{right}.f32"))
    instructions = [p for p in products if p.feature in features]
    loads = {
        load.name: load for p in instructions for load in _loads(p) if load.feature in features
    }
    return (*instructions, *loads.values())

"""NVIDIA's instructions on matrices: which lane of a subgroup holds which element.

In a table of PTX, a lane is a group of four, ``g = lane / 4``, and a place in it, ``t = lane % 4``.
Source: NVIDIA, PTX ISA, "Matrix multiply-accumulate operation using mma instruction" and
"Warp-level matrix load instruction: ldmatrix".
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.dtypes import DType, bf16, f16, f32, f64, s8, s32, u8
from tilewright.ir.buffer import Block, Layout
from tilewright.layout.fragments import Fragment
from tilewright.machines.instruction import Instruction, Role, Step

LANES = 32
# Rows that ldmatrix takes from memory, in bytes, and how many make a matrix.
_ROW, _ROWS = 16, 8
# Bytes of a register.
_REGISTER = 4


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
    blocks: list[Block] = []
    for number, dim in enumerate(dims):
        if halves[dim] > 1:
            blocks.append(Block(number, halves[dim], strides[dim]))
        if dim == across:
            blocks.append(Block(number, _ROWS, 4 * held))
        else:
            blocks.append(Block(number, 4, held))
            if together > 1:
                blocks.append(Block(number, together, 1))
    return Fragment((first, second), LANES, Layout(tuple(blocks)))


def _mma(shape: tuple[int, int, int], out: DType, a: DType, b: DType, types: str) -> Instruction:
    """``c[m, n] += a[m, k] * b[k, n]``, a feature of its own."""
    m, n, k = shape
    packed = max(1, _REGISTER // a.bytes)
    name = f"mma_m{m}n{n}k{k}_{out}_{a}" + ("" if a is b else f"_{b}")
    return Instruction(
        name,
        (("m", m), ("n", n), ("k", k)),
        Role("c", out, fragment=_fragment("mn", (m, n), 2, "m")),
        (
            Role("a", a, fragment=_fragment("mk", (m, k), packed, "m")),
            Role("b", b, fragment=_fragment("kn", (k, n), packed, "n")),
        ),
        name,
        f"llvm.nvvm.mma.m{m}n{n}k{k}.row.col.{types}",
    )


def _loads(product: Instruction) -> tuple[Instruction, ...]:
    """The ways to fill fragments of the operands of ``product`` from rows in memory: of 16 bytes
    along the dim that is added up, or, of elements of 2 bytes, across it."""
    found: list[Instruction] = []
    for role in product.operands:
        assert role.fragment is not None
        if role.dtype.bytes > _REGISTER:
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
            steps = (Step(rows, shape[rows], None), Step(along, None, None), Step(along, run, 1))
            tile = "".join(f"{dim}{size}" for dim, size in shape.items())
            found.append(
                Instruction(
                    f"ldmatrix_{tile}_{role.dtype}" + form.replace(".", "_"),
                    tuple(shape.items()),
                    Role("c", role.dtype, fragment=whole),
                    (Role("a", role.dtype, steps, aligned=run),),
                    "ldmatrix",
                    f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{form}.b16.p3",
                    None,
                )
            )
    return tuple(found)


def matrix_instructions(features: Collection[str]) -> tuple[Instruction, ...]:
    """The products of matrices, and the loads for them, of a machine with ``features``."""
    products = [
        _mma((16, 8, 8), f32, f16, f16, "f32.f32"),
        _mma((16, 8, 16), f32, f16, f16, "f32.f32"),
        _mma((16, 8, 16), f32, bf16, bf16, "bf16"),
        _mma((8, 8, 4), f64, f64, f64, "f64"),
    ]
    for a in (s8, u8):
        for b in (s8, u8):
            types = f"{a}" if a is b else f"{a}.{b}"
            products += [_mma((8, 8, 16), s32, a, b, types), _mma((16, 8, 32), s32, a, b, types)]
    found = [p for p in products if p.feature in features]
    loads = {each.name: each for p in found for each in _loads(p) if each.feature in features}
    return (*found, *loads.values())

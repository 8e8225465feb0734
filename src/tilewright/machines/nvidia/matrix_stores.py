"""NVIDIA's stores of matrices: what lanes hold together becomes rows of workgroup memory.

The sums of a product are made of matrices of 8x8, of which a lane holds two neighbours along n,
whichever instruction made them. Converted to two bytes, a pair is a register, and a warp stores
four such matrices at once, of which each lane names one row: along n as they are held, or along m.
The four warps of a warpgroup do so at the same time, each with rows of its own.

Source: NVIDIA, PTX ISA, "Warp-level matrix store instruction: stmatrix".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tilewright.dtypes import DType, bf16, f16
from tilewright.ir.buffer import Layout
from tilewright.layout.fragments import Fragment
from tilewright.machines.instruction import AddressStep, Instruction, OperandForm

# What the machine has to have.
STORES = "stmatrix"
_TYPES = (f16, bf16)
# Rows and columns of a matrix; how many of them a warp stores at once; elements of a register.
_SIZE, _COUNTS, _PACKED = 8, (1, 2, 4), 2


def matrix_stores(
    features: Collection[str], products: Sequence[Instruction]
) -> tuple[Instruction, ...]:
    """The stores of what the ``products`` of a machine with ``features`` make."""
    if STORES not in features:
        return ()
    by_name = {
        instruction.name: instruction
        for product in products
        for fragment in _pieces(product)
        for dtype in _TYPES
        for instruction in (_store(fragment, dtype, "n"), _store(fragment, dtype, "m"))
    }
    return tuple(by_name.values())


def _pieces(product: Instruction) -> Iterator[Fragment]:
    """The parts of what ``product`` makes that a store takes: some of its columns, or more."""
    fragment = product.out.fragment
    if fragment is None or fragment.neighbours != "n" or fragment.sizes["n"] != _SIZE:
        return
    rows = fragment.sizes["m"]
    for count in _COUNTS:
        columns = _PACKED * count // fragment.registers * _SIZE
        if columns:
            blocks = (b for b in fragment.tiled((rows, columns)).blocks if b.size > 1)
            yield Fragment(fragment.dims, fragment.lanes, Layout(tuple(blocks)))


def _store(fragment: Fragment, dtype: DType, along: str) -> Instruction:
    """``c[m, n] = a[m, n]``, in rows ``along`` a dim."""
    sizes, count = fragment.sizes, fragment.registers // _PACKED
    rows, form = ("m", "") if along == "n" else ("n", ".trans")
    steps = (
        AddressStep(rows, sizes[rows], None),
        AddressStep(along, None, None),
        AddressStep(along, _SIZE, 1),
    )
    tile = "".join(f"{dim}{size}" for dim, size in sizes.items())
    return Instruction(
        f"stmatrix_{tile}_{dtype}" + form.replace(".", "_"),
        tuple(sizes.items()),
        OperandForm("c", dtype, steps, aligned=_SIZE),
        (OperandForm("a", dtype, fragment=fragment),),
        STORES,
        f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{count}{form}.b16.p3",
        None,
    )

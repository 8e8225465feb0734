"""Products of matrices that lie in workgroup memory: their table, and the forms that they take."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts
from tilewright.ir import Kernel, parse_kernel
from tilewright.ir.expr import Const, const, var
from tilewright.ir.stmt import Compute
from tilewright.ir.visit import substitute, walk_stmts
from tilewright.layout.rows import Placed, place_rows
from tilewright.machines import nvidia
from tilewright.machines.instruction import Instruction
from tilewright.machines.warpgroups import LANES, PRODUCTS
from tilewright.schedule.fragments import hold
from tilewright.schedule.tensorize import tensorize
from tilewright.simplify import simplify

MACHINE = nvidia.machine("sm_90a")
TABLE = {i.name: i for i in MACHINE.instructions if i.feature == PRODUCTS}
BF16 = TABLE["wgmma_m64n64k16_f32_bf16"]


@pytest.mark.parametrize("instruction", TABLE.values(), ids=str)
def test_sums_are_where_the_manual_has_them(instruction: Instruction) -> None:
    fragment, n = instruction.out.fragment, instruction.sizes["n"]
    assert fragment is not None and fragment.registers == n // 2 and instruction.lanes == LANES
    places = set()
    for lane, i in product(range(LANES), range(n // 2)):
        row = 16 * (lane // 32) + lane % 32 // 4 + 8 * (i // 2 % 2)
        column = 8 * (i // 4) + 2 * (lane % 4) + i % 2
        places.add((row, column))
        assert fragment.layout.place((row, column)) == lane * (n // 2) + i
    assert len(places) == 64 * n


def test_only_sm_90a_has_them() -> None:
    assert not any(
        i.feature == PRODUCTS
        for level in ("sm_80", "sm_89", "sm_100a")
        for i in nvidia.machine(level).instructions
    )


def test_elements_of_one_byte_are_rows_along_the_reduction() -> None:
    for name, instruction in TABLE.items():
        a, b = ({rows.along for rows in role.rows} for role in instruction.operands)
        both = "_s32_" not in name
        assert a == ({"k", "m"} if both else {"k"})
        assert b == ({"k", "n"} if both and instruction.sizes["n"] >= 16 else {"k"})
        assert all(rows.block == 8 for role in instruction.operands for rows in role.rows)


# A kernel of one product; {A} and {B} are layouts of the shared tiles.
TEXT = """
kernel k(out y: f32[64, 64]):
  grid for g in 4:
    alloc a_tile: bf16[A_SHAPE] A_LAYOUT workgroup
    alloc b_tile: bf16[64, 64] B_LAYOUT workgroup
    subgroup for s in 2:
      alloc acc: f32[64, 64] private
      for step in 8:
        compute main(m in 64, n in 64, k in 64):
          a = a_tile[A_INDEX]
          b = b_tile[k, n]
          acc[m, n] add= f32(a) * f32(b)
"""
K_MAJOR = ("128, 64", "m + s * 64, k", "{0:128:64 1:64:1 ^3:3:3}")
M_MAJOR = ("64, 64", "k, m", "{0:64:64 1:64:1 ^3:3:3}")


def _kernel(a: tuple[str, str, str] = K_MAJOR, b: str = "{0:64:64 1:64:1 ^3:3:3}") -> Kernel:
    text = TEXT.replace("A_SHAPE", a[0]).replace("A_INDEX", a[1]).replace("A_LAYOUT", a[2])
    kernel = parse_kernel(text.replace("B_LAYOUT", b))
    assert BF16.out.fragment is not None
    return hold(kernel, "main", "acc", BF16.out.fragment, {"m": "m", "n": "n"})


def _placed(kernel: Kernel, position: int) -> Placed:
    """Where an operand of the kernel's product lies."""
    (compute,) = (s for s in walk_stmts(kernel.body) if isinstance(s, Compute))
    facts = Facts.empty().loop(var("s"), const(2)).loop(var("k_o"), const(4))
    dims = {d.var.name: (d.var, int(d.extent.value)) for d in compute.dims}  # type: ignore[attr-defined]
    for dim in compute.dims:
        facts = facts.loop(dim.var, dim.extent)
    operand, role = compute.operands[position], BF16.operands[position]
    for rows in role.rows:
        found = place_rows(rows, operand.view, dims, facts)
        if isinstance(found, Placed):
            return found
    raise AssertionError(role)


MAJORS = {
    "rows of 128 bytes along k": (K_MAJOR, ("k", 64), "k_o * 16 + s * 4096", (0, 512)),
    "of 64 bytes": (
        ("128, 64", "m + s * 64, k", "{1:2:4096 0:128:32 1:32:1 ^2:3:3}"),
        ("k", 32),
        "k_o // 2 * 4096 + k_o % 2 * 16 + s * 2048",
        (0, 256),
    ),
    "of 32 bytes": (
        ("64, 64", "m, k", "{1:4:1024 0:64:16 1:16:1 ^1:3:3}"),
        ("k", 16),
        "k_o * 1024",
        (0, 128),
    ),
    "along m": (M_MAJOR, ("m", 64), "k_o * 1024", (0, 512)),
    "along m, of 64 bytes": (
        ("64, 64", "k, m", "{1:2:2048 0:64:32 1:32:1 ^2:3:3}"),
        ("m", 32),
        "k_o * 512",
        (2048, 256),
    ),
    "along m, of 32 bytes": (
        ("64, 128", "k, m + s * 64", "{1:8:1024 0:64:16 1:16:1 ^1:3:3}"),
        ("m", 16),
        "k_o * 256 + s * 4096",
        (1024, 128),
    ),
}


@pytest.mark.parametrize("name", MAJORS)
def test_operands_lie_in_rows(name: str) -> None:
    given, (along, length), first, blocks = MAJORS[name]
    kernel = tensorize(_kernel(given), "main", BF16, {"m": "m", "n": "n", "k": "k"})
    placed = _placed(kernel, 0)
    assert (placed.rows.along, placed.rows.length) == (along, length)
    assert str(placed.first) == first
    assert (placed.along, placed.across) == blocks


def test_what_a_descriptor_says_is_where_the_elements_are() -> None:
    """An element lies where the unit looks for it: block, row and column from the first one."""
    for given, *_ in MAJORS.values():
        kernel = tensorize(_kernel(given), "main", BF16, {"m": "m", "n": "n", "k": "k"})
        placed, rows = _placed(kernel, 0), _placed(kernel, 0).rows
        (compute,) = (s for s in walk_stmts(kernel.body) if isinstance(s, Compute))
        view = compute.operands[0].view
        for s, k_o, m, k in product(range(2), range(4), (0, 1, 9, 63), range(16)):
            values = {"s": s, "k_o": k_o, "m": m, "k": k}
            here = {var(name): const(value) for name, value in values.items()}
            first = simplify(substitute(placed.first, here))
            at = {"m": m, "k": k}
            assert isinstance(first, Const)
            plain = int(first.value) + (
                at[rows.along] // rows.length * placed.along
                + at[rows.across] // rows.block * placed.across
                + at[rows.across] % rows.block * rows.length
                + at[rows.along] % rows.length
            )
            offset = simplify(substitute(view.buffer.layout.offset_of(view.index), here))
            assert isinstance(offset, Const) and offset.value == rows.swizzle.place(plain)


REFUSED = {
    "no swizzle": (
        (*K_MAJOR[:2], "{0:128:64 1:64:1}"),
        "'a_tile' does not lie as 'wgmma_m64n64k16_f32_bf16' takes it",
    ),
    "another swizzle": ((*K_MAJOR[:2], "{0:128:64 1:64:1 ^3:2:3}"), "it is swizzled by"),
    "rows with gaps": (
        (*K_MAJOR[:2], "{0:128:72 1:64:1 ^3:3:3}"),
        "has to grow by 64 from m = 0 to m = 1",
    ),
    "inside of a block": (
        ("132, 64", "m + s * 4, k", "{0:132:64 1:64:1 ^3:3:3}"),
        "it begins at k_o * 16 + s * 256: not in the first of 8 rows, at a multiple of 8 elements",
    ),
    "inside of a run": (
        ("68, 128", "k + s * 4, m", "{0:128:1 1:128:64 ^3:3:3}"),
        "it begins at k_o * 16 + s * 4: not in the first of 8 rows, at a multiple of 8 elements",
    ),
    "blocks at odd places": (
        ("64, 64", "k, m", "{1:2:2080 0:64:32 1:32:1 ^2:3:3}"),
        "blocks along 'm' are no multiple of 256 elements apart",
    ),
    "it depends on n": (("128, 64", "m + n, k", K_MAJOR[2]), "it depends on 'n', which is 'n'"),
    "masked": (
        ("128, 64", "m + s * 64, k | m + s * 64 < 100", K_MAJOR[2]),
        "it is masked by m + s * 64 < 100",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_operands(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(message)):
        tensorize(_kernel(given), "main", BF16, {"m": "m", "n": "n", "k": "k"})


def test_operands_in_global_memory_are_refused() -> None:
    kernel = parse_kernel("""
kernel k(in a: bf16[64, 16], in b: bf16[16, 64]):
  subgroup for s in 1:
    alloc acc: f32[64, 64] private
    compute main(m in 64, n in 64, k in 16):
      x = a[m, k]
      y = b[k, n]
      acc[m, n] add= f32(x) * f32(y)
""")
    assert BF16.out.fragment is not None
    kernel = hold(kernel, "main", "acc", BF16.out.fragment, {"m": "m", "n": "n"})
    with pytest.raises(ScheduleError, match="it is in global memory, not in workgroup memory"):
        tensorize(kernel, "main", BF16, {"m": "m", "n": "n", "k": "k"})

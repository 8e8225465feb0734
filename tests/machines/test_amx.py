"""AMX: tensorized kernels compute the same in the interpreter, and become tile instructions."""

from __future__ import annotations

import re

import pytest

from schedule_cases import convolution, equal
from tilewright.errors import CompilationError, ScheduleError
from tilewright.ir import Kernel, LoopKind, parse_kernel
from tilewright.ir.printer import to_text
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.staging.hoist import hoist_pack
from tilewright.schedule.staging.stage import stage
from tilewright.targets.registry import find_target

AMX = find_target("x86:amx")


def assembly(kernel: Kernel) -> str:
    """The assembly of ``kernel``, which also assembles to an object file."""
    module = AMX.lower(kernel)
    assert AMX.assemble(module).startswith(b"\x7fELF")
    return AMX.assembly(module)


def count(text: str, name: str) -> int:
    return len(re.findall(rf"^\t{name}\b", text, re.MULTILINE))


def product(types: str, group: int, m: int, n: int, k: int, mask: str = "") -> Kernel:
    """``c += a @ b`` with b in blocks of 16 columns and ``group`` neighbours in k."""
    a, b, c = types.split(":")
    depth = 16 * group
    index = f"k // {depth}, n // 16, k % {depth} // {group}, n % 16, k % {group}"
    return parse_kernel(
        f"""
        kernel f(
            in a: {a}[{m}, {k}],
            in b: {b}[{k // depth}, {-(-n // 16)}, 16, 16, {group}],
            in on: s64[1],
            inout c: {c}[{m}, {n}],
        ):
          go = on[0]
          compute mul(m in {m}, n in {n}, k in {k}):
            x = a[m, k{mask}]
            y = b[{index}]
            c[m, n] add= {c}(x) * {c}(y)
        """
    )


@pytest.mark.parametrize(
    ("name", "types", "group"), [("tdpbf16ps", "bf16:bf16:f32", 2), ("tdpbusd", "u8:s8:s32", 4)]
)
def test_matrix_product(name: str, types: str, group: int) -> None:
    naive = product(types, group, 40, 36, 64 * group)
    instruction = AMX.machine.instruction(name)
    kernel = tensorize(naive, "mul", instruction, {"m": "m", "n": "n", "k": "k"})
    equal(naive, kernel)
    text = assembly(kernel)
    # Three row tiles (the last has 8 rows), three column tiles (the last has 4), four steps of k.
    assert count(text, name) == 36
    assert count(text, "tileloadd") == 3 * 36
    assert count(text, "tilestored") == 36
    assert count(text, "ldtilecfg") >= 1


def test_tails_shorten_tiles() -> None:
    naive = product("u8:s8:s32", 4, 7, 5, 64)
    instruction = AMX.machine.instruction("tdpbusd")
    kernel = tensorize(naive, "mul", instruction, {"m": "m", "n": "n", "k": "k"})
    equal(naive, kernel)
    text = AMX.lower(kernel).text
    assert "@llvm.x86.tdpbusd.internal(i16 7, i16 20, i16 64, " in text
    assert count(assembly(kernel), "tdpbusd") == 1


def test_a_single_row() -> None:
    naive = product("bf16:bf16:f32", 2, 1, 16, 32)
    instruction = AMX.machine.instruction("tdpbf16ps")
    kernel = tensorize(naive, "mul", instruction, {"m": "m", "n": "n", "k": "k"})
    equal(naive, kernel)
    assert "tdpbf16ps.internal(i16 1, i16 64, i16 64, " in AMX.lower(kernel).text
    assert count(assembly(kernel), "tdpbf16ps") == 1


def test_masks_of_a_whole_tile() -> None:
    naive = product("bf16:bf16:f32", 2, 16, 16, 32, mask=" | go < 1")
    instruction = AMX.machine.instruction("tdpbf16ps")
    kernel = tensorize(naive, "mul", instruction, {"m": "m", "n": "n", "k": "k"})
    equal(naive, kernel)
    assert count(assembly(kernel), "tdpbf16ps") == 1
    never = product("bf16:bf16:f32", 2, 16, 16, 32, mask=" | 1 < 0")
    kernel = tensorize(never, "mul", instruction, {"m": "m", "n": "n", "k": "k"})
    assert count(assembly(kernel), "tdpbf16ps") == 0


def test_a_mask_within_a_tile_is_refused() -> None:
    """By the transform, and in a kernel from text."""
    masked = product("bf16:bf16:f32", 2, 16, 16, 32, mask=" | m < 9")
    instruction = AMX.machine.instruction("tdpbf16ps")
    dims = {"m": "m", "n": "n", "k": "k"}
    with pytest.raises(ScheduleError, match=r"its mask m < 9 depends on 'm'[^$]*stage it"):
        tensorize(masked, "mul", instruction, dims)
    text = to_text(masked).replace("compute mul(", "compute mul<tdpbf16ps>(")
    with pytest.raises(CompilationError, match=r"mask of 'a' differs within a tile[^$]*stage"):
        AMX.lower(parse_kernel(text))


def test_extents_must_be_constant() -> None:
    naive = product("bf16:bf16:f32", 2, 20, 16, 32)
    instruction = AMX.machine.instruction("tdpbf16ps")
    kernel = set_kind(
        tensorize(naive, "mul", instruction, {"m": "m", "n": "n", "k": "k"}),
        "m_o",
        LoopKind.SERIAL,
    )
    equal(naive, kernel)
    with pytest.raises(CompilationError, match=r"extent of 'm' in a tile is not constant: min"):
        AMX.lower(kernel)


def test_rows_must_be_evenly_spaced() -> None:
    naive = parse_kernel(
        """
        kernel f(in a: bf16[16, 32], in b: bf16[16, 16, 2], inout c: f32[8, 3, 16]):
          compute mul(m in 16, n in 16, k in 32):
            x = a[m, k]
            y = b[k // 2, n, k % 2]
            c[m // 2, m % 2, n] add= f32(x) * f32(y)
        """
    )
    instruction = AMX.machine.instruction("tdpbf16ps")
    kernel = tensorize(naive, "mul", instruction, {"m": "m", "n": "n", "k": "k"})
    equal(naive, kernel)
    with pytest.raises(CompilationError, match="rows of a tile of 'c' are not evenly spaced"):
        AMX.lower(kernel)


def test_convolution() -> None:
    """Packed weights, a copy of the source without padding, tiles of 16 positions."""
    naive = convolution(ic=33, iw=20, oc=19, dtype="bf16")
    blocks: list[str | tuple[str, int | None]]
    blocks = [("oc", None), "kh", "kw", ("ic", None), ("ic", 16), ("oc", 16), ("ic", 2)]
    kernel = pad(stage(naive, "conv", "w", shape="dims", layout=blocks), "conv", {"ic": 64})
    pack, kernel = hoist_pack(kernel, "weights_packed")
    kernel = compute_at(kernel, "epilogue", {"oc": 16, "oh": 1, "ow": 16}, storage=["ow", "oc"])
    kernel = stage(drop_unit_dims(kernel), "conv", "s", at="oh", layout=["kh", "ow_kw", "ic"])
    kernel = partition(partition(tile(kernel, "conv", {"kh": 1, "kw": 1}), "ow_o"), "oc_o")
    instruction = AMX.machine.instruction("tdpbf16ps")
    kernel = tensorize(kernel, "conv", instruction, {"m": "ow", "n": "oc", "k": "ic"})
    equal(naive, kernel, pack)
    kernel = lower_computes(kernel)
    equal(naive, kernel, pack)
    text = assembly(kernel)
    assert count(text, "tdpbf16ps") >= 2
    assert count(text, "tdpbf16ps") == count(text, "tilestored")

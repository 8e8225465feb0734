"""tensorize, the table of instructions, and the schedule that records transforms."""

from __future__ import annotations

import pytest

from schedule_cases import convolution, equal, matmul
from tilewright.dtypes import bf16, f32, s8, s32, u8
from tilewright.errors import ScheduleError, UnsupportedError
from tilewright.ir import Kernel, parse_kernel, to_text
from tilewright.machines.x86 import LEVELS, machine
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.staging.hoist import hoist_pack
from tilewright.schedule.staging.stage import stage

AVX512 = machine("avx512")
AMX = machine("amx")
PAIRS = machine("avx512_bf16").instruction("vdpbf16ps_512")


def test_tensorize_with_multiply_add() -> None:
    naive = matmul(4, 32, 3)
    kernel = tensorize(naive, "mul", AVX512.instruction("fma_f32x16"), {"n": "n"})
    equal(naive, kernel)
    assert (
        to_text(kernel).partition("c[m, n] = 0.0\n")[2]
        == """\
  unrolled for k in 3:
    unrolled for m in 4:
      unrolled for n_o in 2:
        compute mul<fma_f32x16>(n in 16):
          x = a[m, k]
          y = b[k, n + n_o * 16]
          c[m, n + n_o * 16] add= x * y"""
    )


def test_tensorize_orders_loops_and_operands() -> None:
    naive = parse_kernel(
        """
        kernel f(in a: f32[4, 3], in b: f32[3, 32], inout c: f32[4, 32]):
          compute mul(m in 4, n in 32, k in 3):
            y = b[k, n]
            x = a[m, k]
            c[m, n] add= y * x
        """
    )
    instruction = AVX512.instruction("fma_f32x16")
    kernel = tensorize(naive, "mul", instruction, {"n": "n"}, order=["n", "m"])
    equal(naive, kernel)
    text = to_text(kernel)
    assert text.index("n_o in") < text.index("m in") < text.index("k in")
    assert text.index("x = a[m, k]") < text.index("y = b[k,")


def test_tensorize_keeps_short_pieces() -> None:
    naive = matmul(4, 21, 3)
    kernel = tensorize(naive, "mul", AVX512.instruction("fma_f32x16"), {"n": "n"})
    equal(naive, kernel)
    assert "compute mul<fma_f32x16>(n in min(21 - n_o * 16, 16)):" in to_text(kernel)


def test_tensorize_with_fewer_elements_at_a_time() -> None:
    naive = parse_kernel(
        """
        kernel f(in a: bf16[28, 32], in b: bf16[16, 16, 2], inout c: f32[28, 16]):
          compute mul(m in 28, n in 16, k in 32):
            x = a[m, k]
            y = b[k // 2, n, k % 2]
            c[m, n] add= f32(x) * f32(y)
        """
    )
    dims = {"m": "m", "n": "n", "k": "k"}
    kernel = tensorize(naive, "mul", AMX.instruction("tdpbf16ps"), dims, lengths={"m": 14})
    equal(naive, kernel)
    assert "compute mul<tdpbf16ps>(m in 14, n in 16, k in 32):" in to_text(kernel)
    assert "c[m + m_o * 14, n] add=" in to_text(kernel)


def _packed_convolution(blocks: list[tuple[str, int]], ic: int, depth: int) -> tuple[Kernel, ...]:
    naive = convolution(ic=ic, oc=19, dtype="bf16")
    layout = [("oc", None), "kh", "kw", ("ic", None), *blocks]
    kernel = stage(naive, "conv", "w", shape="dims", layout=layout)
    kernel = pad(kernel, "conv", {"ic": depth})
    pack, main = hoist_pack(kernel, "weights_packed")
    main = compute_at(main, "epilogue", {"oc": 16, "oh": 1, "ow": 7}, storage=["ow", "oc"])
    main = stage(drop_unit_dims(main), "conv", "s", at="oh", layout=["kh", "ow_kw", "ic"])
    return naive, pack, tile(main, "conv", {"kh": 1, "kw": 1})


def test_tensorize_with_pairs() -> None:
    naive, pack, main = _packed_convolution([("oc", 16), ("ic", 2)], 5, 6)
    kernel = tensorize(main, "conv", PAIRS, {"n": "oc", "k": "ic"})
    equal(naive, kernel, pack)
    assert "compute conv<vdpbf16ps_512>(oc in" in to_text(kernel)


def test_tensorize_with_tiles() -> None:
    naive, pack, main = _packed_convolution([("ic", 16), ("oc", 16), ("ic", 2)], 33, 64)
    instruction = AMX.instruction("tdpbf16ps")
    kernel = tensorize(main, "conv", instruction, {"m": "ow", "n": "oc", "k": "ic"})
    equal(naive, kernel, pack)
    assert "ow in 7, ic in 32):" in to_text(kernel)


def test_tensorize_of_bytes() -> None:
    naive = parse_kernel(
        """
        kernel f(in a: u8[5, 8], in b: s8[2, 2, 16, 4], inout c: s32[5, 32]):
          compute mul(m in 5, n in 32, k in 8):
            x = a[m, k]
            y = b[n // 16, k // 4, n % 16, k % 4]
            c[m, n] add= s32(x) * s32(y)
        """
    )
    kernel = tensorize(naive, "mul", AMX.instruction("vpdpbusd_512"), {"n": "n", "k": "k"})
    equal(naive, kernel)


def test_tensorize_refuses() -> None:
    fma = AVX512.instruction("fma_f32x16")
    with pytest.raises(
        ScheduleError, match=r"'c' does not lie as 'fma_f32x16' takes it[^$]*grow by 1"
    ):
        tensorize(matmul(32, 4, 4), "mul", fma, {"n": "m"})
    with pytest.raises(ScheduleError, match="one is reduced and the other is not"):
        tensorize(matmul(), "mul", fma, {"n": "k"})
    with pytest.raises(ScheduleError, match=r"has the dims n, k[^$]*map all of them"):
        tensorize(matmul(), "mul", PAIRS, {"n": "n"})
    with pytest.raises(ScheduleError, match=r"computes f32\(a\) \* f32\(b\)"):
        tensorize(matmul(), "mul", PAIRS, {"n": "n", "k": "k"})
    with pytest.raises(ScheduleError, match=r"'k' is no multiple of 2[^$]*`pad` the dim"):
        tensorize(matmul(k=5, dtype="bf16"), "mul", PAIRS, {"n": "n", "k": "k"})
    with pytest.raises(ScheduleError, match="'b' does not lie as 'vdpbf16ps_512' takes it"):
        tensorize(matmul(dtype="bf16"), "mul", PAIRS, {"n": "n", "k": "k"})
    with pytest.raises(ScheduleError, match="'fma_f32x16' combines by add"):
        tensorize(matmul(), "zero", fma, {"n": "n"})


def test_masks_on_reduced_dims_are_refused() -> None:
    kernel = pad(convolution(ic=3, oc=16, dtype="bf16"), "conv", {"ic": 4})
    kernel = stage(kernel, "conv", "w", shape="dims", layout=["ic", ("oc", 16), ("ic", 2)])
    kernel = compute_at(
        kernel, "epilogue", {"oh": 1}, storage=["ow", "oc"], producers=["zero", "conv"]
    )
    with pytest.raises(ScheduleError, match=r"its mask .* depends on 'ic'"):
        tensorize(kernel, "conv", PAIRS, {"n": "oc", "k": "ic"})


def test_machines() -> None:
    assert [machine(level).vector_bytes for level in LEVELS] == [16, 32, *[64] * 5]
    assert AVX512.lanes(f32) == 16
    pairs = machine("avx512_bf16").products(f32, bf16, bf16)
    assert [i.name for i in pairs] == ["vdpbf16ps_512", "vdpbf16ps_256"]
    # Where there are tiles, pairs in vectors are slower than multiply-adds.
    assert [i.name for i in AMX.products(f32, bf16, bf16)] == ["tdpbf16ps"]
    assert AMX.products(s32, u8, s8)[0].name == "tdpbusd"
    assert AMX.instruction("tdpbusd").sizes == {"m": 16, "n": 16, "k": 64}
    assert AMX.instruction("tdpbf16ps").flops == 2 * 16 * 16 * 32
    for level in LEVELS:
        for instruction in machine(level).instructions:
            assert instruction.feature in machine(level).features
    with pytest.raises(UnsupportedError, match=r"no instruction 'tdpbusd'[^$]*fma_f32x16"):
        AVX512.instruction("tdpbusd")
    with pytest.raises(UnsupportedError, match="unknown x86 feature level 'mmx'"):
        machine("mmx")

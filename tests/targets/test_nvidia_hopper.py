"""What Hopper's own instructions become: mbarriers, copies of tiles, products of warpgroups."""

from __future__ import annotations

import re

import numpy as np
import pytest

from assembly import assembled
from tilewright.errors import CompilationError, UnsupportedError
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, verify
from tilewright.machines import nvidia
from tilewright.machines.nvidia.tensor_map import TensorMap, Tile
from tilewright.targets.llvm.module import Module
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches

HOPPER = nvidia.machine("sm_90a")

# A producer and two consumers of 64 rows each, two tiles at a time; B's rows lie along K, or (where
# ROWS is so) along N.
TEXT = """
kernel product(in a: bf16[256, 256], in b: bf16[B], out c: bf16[256, 128]):
  grid for m_o in 2:
    alloc a_slots: bf16[2, 128, 64] {0:2:8192 1:128:64 2:64:1 ^3:3:3} workgroup
    alloc b_slots: bf16[2, TILE] {0:2:8192 BLOCKS ^3:3:3} workgroup
    alloc c_tile: bf16[128, 128] workgroup
    alloc full: s64[2] workgroup
    alloc empty: s64[2] workgroup
    subgroup for w in 3:
      if w == 0:
        for slot in 2:
          mbarrier_init(&full[slot], 1)
          mbarrier_init(&empty[slot], 2)
      barrier()
      if w == 0:
        give_registers(40)
        for step in 4:
          mbarrier_wait(&empty[step % 2], (step // 2 + 1) % 2)
          subgroup_barrier()
          mbarrier_expect(&full[step % 2], 32768)
          compute a_fill<tma_load>(m in 128, k in 64) signals full[step % 2]:
            x = a[m + m_o * 128, k + step * 64]
            a_slots[step % 2, m, k] = x
          FILL
      else:
        take_registers(232)
        alloc acc: f32[64, 128] {0:4:2048 0:2:2 0:8:256 1:16:4 1:4:64 1:2:1} private
        lane for lane in 128:
          unrolled for r in 16:
            unrolled for h in 2:
              vector for e in 2:
                acc[lane // 32 * 16 + h * 8 + lane % 32 // 4, r * 8 + lane % 4 * 2 + e] = 0.0
        for step in 4:
          mbarrier_wait(&full[step % 2], step // 2 % 2)
          unrolled for k_o in 4:
            compute main<wgmma_m64n128k16_f32_bf16>(m in 64, n in 128, k in 16) joins products:
              x = a_slots[step % 2, m + (w - 1) * 64, k + k_o * 16]
              y = b_slots[step % 2, READ]
              acc[m, n] add= f32(x) * f32(y)
          commit_products()
          wait_products(0)
          mbarrier_arrive(&empty[step % 2])
        lane for lane in 128:
          unrolled for r in 16:
            unrolled for h in 2:
              vector for e in 2:
                STORE
        fence_async()
        BARRIER
        compute store<tma_store>(m in 64, n in 128) joins stores:
          x = c_tile[m + (w - 1) * 64, n]
          c[m + m_o * 128 + (w - 1) * 64, n] = x
        commit_stores()
        wait_stores(0)
"""
_PLACE = "lane // 32 * 16 + h * 8 + lane % 32 // 4, r * 8 + lane % 4 * 2 + e"
TEXT = TEXT.replace("STORE", f"c_tile[(w - 1) * 64 + {_PLACE}] = bf16(acc[{_PLACE}])")
ALONG_K = {
    "B": "128, 256",
    "TILE": "128, 64",
    "BLOCKS": "1:128:64 2:64:1",
    "READ": "n, k + k_o * 16",
    "FILL": """compute b_fill<tma_load>(n in 128, k in 64) signals full[step % 2]:
            x = b[n, k + step * 64]
            b_slots[step % 2, n, k] = x""",
}
ALONG_N = {
    "B": "256, 128",
    "TILE": "64, 128",
    "BLOCKS": "2:2:4096 1:64:64 2:64:1",
    "READ": "k + k_o * 16, n",
    "FILL": """for half in 2:
            compute b_fill<tma_load>(k in 64, n in 64) signals full[step % 2]:
              x = b[k + step * 64, n + half * 64]
              b_slots[step % 2, k, n + half * 64] = x""",
}


def _kernel(form: dict[str, str], barrier: str = "subgroup_barrier()") -> Kernel:
    text = TEXT.replace("BARRIER", barrier)
    for name, value in form.items():
        text = re.sub(rf"\b{name}\b", lambda _, v=value: v, text)  # type: ignore[misc]
    kernel = parse_kernel(text)
    verify(kernel)
    return kernel


def _lowered(kernel: Kernel) -> tuple[Module, str]:
    module = lower_launches(kernel, HOPPER)
    return module, to_ptx(module.text, "sm_90a")


@pytest.mark.parametrize("form", [ALONG_K, ALONG_N], ids=["along K", "along N"])
def test_a_product_by_warpgroups(form: dict[str, str]) -> None:
    kernel = _kernel(form)
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-2, 3, shape) for shape in ((256, 256), (256, 128)))
    b_given = b if form is ALONG_N else b.T
    types = {p.name: p.dtype.numpy for p in kernel.params}
    memory = {
        "a": a.ravel().astype(types["a"]),
        "b": b_given.ravel().astype(types["b"]),
        "c": np.zeros(256 * 128, types["c"]),
    }
    run(kernel, memory, hierarchy=HOPPER.hierarchy, instructions=HOPPER.instructions)
    expected = (a @ b).astype(np.float64).astype(types["c"])
    assert np.array_equal(memory["c"].reshape(256, 128), expected)


@pytest.mark.parametrize("form", [ALONG_K, ALONG_N], ids=["along K", "along N"])
def test_what_it_becomes(form: dict[str, str]) -> None:
    module, ptx = _lowered(_kernel(form))
    (launch,) = module.launches
    assert (launch.groups, launch.items) == (2, 384)
    maps = {map_.argument: TensorMap.from_text(map_.text) for map_ in launch.maps}
    assert {n: (t.shape, t.box, t.swizzle) for n, t in maps.items()} == {
        0: ((256, 256), Tile((64, 128)), 128),
        1: (
            (128, 256) if form is ALONG_N else (256, 128),
            Tile((64, 64 if form is ALONG_N else 128)),
            128,
        ),
        2: ((128, 256), Tile((128, 64)), 0),
    }
    turned = "1" if form is ALONG_N else "0"
    products = re.findall(r"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 .*", ptx)
    assert len(products) == 4
    assert all(product.endswith(f"adds, 1, 1, 0, {turned};") for product in products)
    for instruction, count in {
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile": 2,
        "cp.async.bulk.tensor.2d.global.shared::cta.tile": 1,
        "mbarrier.try_wait.parity": 2,
        "mbarrier.init": 2,
        "fence.proxy.async": 1,
        "wgmma.wait_group.sync.aligned 0": 1,
        "setmaxnreg.dec.sync.aligned.u32 40": 1,
        "setmaxnreg.inc.sync.aligned.u32 232": 1,
    }.items():
        assert ptx.count(instruction) == count, instruction
    # Of 128 work-items, not of all.
    assert re.search(r"bar(rier)?\.sync\s+%r\d+, 128;", ptx.split("fence.proxy.async")[1])
    assembled(ptx, "sm_90a")


REFUSED = {
    "rows of another swizzle": (
        ("2:64:1 ^3:3:3} workgroup\n    alloc b", "2:64:1 ^2:3:3} workgroup\n    alloc b"),
        "its rows have 64 elements, those of the swizzle 32",
    ),
    "a mask that hides what is there": (
        ("x = a[m + m_o * 128, k + step * 64]", "x = a[m + m_o * 128, k + step * 64 | 3 <= m]"),
        "its mask hides more than what is outside of the tensor: 3 <= m",
    ),
    "a stride": (
        ("x = a[m + m_o * 128, k + step * 64]", "x = a[m * 9, k + step * 64]"),
        "it does not go along dim 0 step by step",
    ),
    "a tile with gaps": (
        ("{0:2:8192 1:128:64 2:64:1 ^3:3:3}", "{0:2:16384 1:128:128 2:64:1 ^3:4:3}"),
        "not a copy of one box|is no operand",
    ),
    "no constant": (
        ("wait_products(0)", "wait_products(step)"),
        "on a number that is not constant",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_lowered(name: str) -> None:
    (old, new), message = REFUSED[name]
    text = TEXT.replace("BARRIER", "subgroup_barrier()")
    assert old in text
    text = text.replace(old, new)
    for key, value in ALONG_K.items():
        text = re.sub(rf"\b{key}\b", lambda _, v=value: v, text)  # type: ignore[misc]
    with pytest.raises((CompilationError, UnsupportedError), match=message):
        _lowered(parse_kernel(text))


def test_older_devices_have_none_of_it() -> None:
    with pytest.raises(UnsupportedError, match="this target has no function 'mbarrier_init'"):
        lower_launches(_kernel(ALONG_K), nvidia.machine("sm_80"))


def test_registers_are_given_in_whole_portions() -> None:
    text = """
kernel k(out o: f32[32]):
  grid for g in 1:
    subgroup for s in 2:
      if s == 0:
        give_registers(COUNT)
      else:
        take_registers(232)
        lane for t in 32:
          o[t] = 1.0
"""
    for count in (24, 40):
        lower_launches(parse_kernel(text.replace("COUNT", str(count))), nvidia.machine("sm_90a"))
    for count in (20, 28, 264):
        kernel = parse_kernel(text.replace("COUNT", str(count)))
        with pytest.raises(CompilationError, match=f"{count} registers a lane[^$]*a multiple of 8"):
            lower_launches(kernel, nvidia.machine("sm_90a"))

"""Kernels to LLVM IR and PTX for NVIDIA GPUs: launches, shared memory, wide accesses, copies."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from assembly import lowered, ptx
from device_kernels import TURN
from tilewright.errors import CompilationError, UnsupportedError
from tilewright.machines import nvidia
from tilewright.targets.llvm.module import Launch
from tilewright.targets.nvidia.assemble import to_ptx

# Rows of 4, of which the copy of one is masked, two steps ahead of their use.
AHEAD = """kernel ahead(
    in src: f32[8, 32, 4],
    out dst: f32[32, 4],
):
  grid for g in 1:
    alloc s: f32[2, 32, 4] workgroup
    lane for l in 32:
      alloc sum: f32[4] private
      vector for i in 4:
        sum[i] = 0.0
      vector for i in 4:
        copy_async(&s[0, l, i], &src[0, l, i | l < 30])
      commit_copies()
      for k in 8:
        if k < 7:
          vector for i in 4:
            copy_async(&s[(k + 1) % 2, l, i], &src[k + 1, l, i | l < 30])
        commit_copies()
        wait_copies(1)
        barrier()
        vector for i in 4:
          sum[i] = sum[i] + s[k % 2, l, i]
        barrier()
      vector for i in 4:
        dst[l, i] = sum[i]
"""


def body(*lines: str, params: str = "inout x: f32[64]") -> str:
    """A kernel of the lines, on ``x``."""
    return "\n".join([f"kernel k({params}):", *("  " + line for line in lines), ""])


@pytest.mark.parametrize(("name", "text"), [("turn", TURN), ("ahead", AHEAD)])
def test_the_text(name: str, text: str, golden: Callable[[str, str], None]) -> None:
    module = lowered(text)
    golden(f"nvidia_{name}", module.text)
    golden(f"nvidia_{name}_ptx", to_ptx(module.text, "sm_80"))


def test_a_launch_has_groups_items_and_shared_memory() -> None:
    module = lowered(TURN)
    assert module.launches == (Launch("turn_0", groups=12, items=256, shared=1024),)
    assert '"nvvm.reqntid"="256"' in module.text
    assert ".reqntid 256" in ptx(TURN)


def test_shared_memory_is_one_dynamic_array() -> None:
    text = body(
        "grid for g in 2:",
        "  alloc a: f32[5] workgroup",
        "  alloc b: f32[20000] workgroup",
        "  lane for l in 4:",
        "    a[l] = x[l]",
        "    b[l] = x[l]",
        "    x[l] = a[l] + b[l]",
    )
    module = lowered(text)
    # The second one begins at the next multiple of 128; the sum is above the static 48 KiB.
    assert module.launches == (Launch("k_0", 2, 4, 128 + 80000),)
    assert "@shared, i64 128)" in module.text
    assert ".extern .shared .align 128 .b8 shared[];" in ptx(text)


def test_what_is_allocated_without_a_grid_is_shared_memory_too() -> None:
    module = lowered(
        body("alloc s: f32[8] workgroup", "lane for l in 8:", "  s[l] = x[l]", "  x[l] = s[7 - l]")
    )
    assert module.launches == (Launch("k_0", 1, 8, 32),)
    assert module.workspaces == ()


@pytest.mark.parametrize(
    ("dtype", "lanes"), [("f32", 4), ("f64", 2), ("f16", 8), ("bf16", 8), ("s8", 16)]
)
def test_accesses_of_16_bytes(dtype: str, lanes: int) -> None:
    text = ptx(
        f"""kernel k(in x: {dtype}[512], out y: {dtype}[512]):
  grid for g in 1:
    alloc s: {dtype}[512] workgroup
    lane for l in {512 // lanes}:
      vector for i in {lanes}:
        s[l * {lanes} + i] = x[l * {lanes} + i]
      barrier()
      vector for i in {lanes}:
        y[l * {lanes} + i] = s[l * {lanes} + i]
"""
    )
    wide = r"v2\.b64" if dtype == "f64" else r"v4\.b32"
    for access in (r"ld\.global\.nc", r"st\.shared", r"ld\.shared", r"st\.global"):
        assert len(re.findall(rf"{access}\.{wide}", text)) == 1


def test_accesses_that_are_not_aligned_are_narrow() -> None:
    text = ptx(body("lane for l in 12:", "  vector for i in 4:", "    x[l * 5 + i] = 0.0"))
    assert "v4" not in text
    assert "v2" not in text
    text = ptx(body("lane for l in 12:", "  vector for i in 4:", "    x[l * 4 + i + 2] = 0.0"))
    assert "v4" not in text


def test_digits_of_neighbours_are_one_access() -> None:
    """Rows of 6 lie behind one another: what two dims made one counts is contiguous."""
    at = "x[(l * 4 + g * 128 + i) // 6, (l * 4 + g * 2 + i) % 6]"
    text = body(
        "grid for g in 3:",
        "  lane for l in 32:",
        "    vector for i in 4:",
        f"      {at} = 1.0",
        params="inout x: f32[64, 6]",
    )
    assert "st.global.v4" in ptx(text)


def test_what_is_only_read_is_read_through_the_other_cache() -> None:
    text = ptx(
        body("lane for l in 8:", "  y[l] = x[l] + y[l]", params="in x: f32[8], inout y: f32[8]")
    )
    assert text.count("ld.global.nc.b32") == 1
    assert text.count("ld.global.b32") == 1


def test_copies_are_asynchronous() -> None:
    text = ptx(AHEAD)
    assert len(re.findall(r"cp\.async\.cg\.shared\.global .*, 16, %r\d+;", text)) == 2
    assert text.count("cp.async.commit_group") == 2
    assert re.search(r"cp\.async\.wait_group\s+1;", text)


COPY = """kernel k(in x: {dtype}[{size}], out y: {dtype}[64]):
  grid for g in 1:
    alloc s: {dtype}[64] workgroup
    lane for l in 4:
{lines}
      commit_copies()
      wait_copies(0)
      barrier()
      y[l] = s[l]
"""


def copied(dtype: str, *lines: str, size: int = 64) -> list[str]:
    """The bytes of each asynchronous copy."""
    text = "\n".join("      " + line for line in lines)
    result = ptx(COPY.format(dtype=dtype, size=size, lines=text))
    return re.findall(r"cp\.async\.c[ag]\.shared\.global \S+ \S+ (\d+)[,;]", result)


def test_how_much_is_copied_at_a_time() -> None:
    vector = "vector for i in {}:", "  copy_async(&s[{}], &x[{}])"

    def pieces(dtype: str, lanes: int, into: str, out_of: str) -> list[str]:
        return copied(dtype, vector[0].format(lanes), vector[1].format(into, out_of))

    assert pieces("f32", 8, "l * 8 + i", "l * 8 + i") == ["16", "16"]
    assert pieces("f32", 7, "l * 8 + i", "l * 8 + i") == ["16", "8", "4"]
    assert pieces("f16", 8, "l * 8 + i", "l * 8 + i") == ["16"]
    # 8 and 4 bytes from where 16 begin.
    assert pieces("f32", 4, "l * 8 + i", "l * 8 + i + 2") == ["8", "8"]
    assert pieces("f32", 4, "l * 8 + i", "l * 7 + i") == ["4"] * 4
    # Not side by side in shared memory.
    assert pieces("f32", 4, "l + i * 4", "l * 4 + i") == ["4"] * 4
    # Less than 4 bytes: loaded and stored.
    assert pieces("f16", 4, "l + i * 4", "l * 4 + i") == []


def test_a_lane_that_is_off_copies_nothing() -> None:
    result = ptx(
        COPY.format(
            dtype="f32",
            size=64,
            lines="      vector for i in 4:\n        if i < l:\n"
            "          copy_async(&s[l * 4 + i], &x[l * 4 + i])",
        )
    )
    assert len(re.findall(r"cp\.async\.ca\.shared\.global \S+ \S+ 4;", result)) == 4
    assert len(re.findall(r"@%p\d+ bra", result)) >= 3


def test_atomics_and_barriers() -> None:
    text = ptx(
        body(
            "grid for g in 4:",
            "  subgroup for s in 2:",
            "    lane for l in 32:",
            "      atomic_add(&x[l + s * 32], 1.0)",
            "      subgroup_barrier()",
            "      barrier()",
        )
    )
    assert re.search(r"(atom|red)\.global\.add\.f32", text)
    assert re.search(r"bar\.warp\.sync\s+-1;", text)
    assert re.search(r"bar\.sync\s+0;", text)


@pytest.mark.parametrize("level", nvidia.LEVELS)
def test_every_capability(level: str) -> None:
    text = ptx(TURN, level)
    assert f".target {level}\n" in text
    assert ("async_copy" in nvidia.machine(level).features) == (level not in ("sm_70", "sm_75"))


@pytest.mark.parametrize(
    ("text", "level", "message"),
    [
        (AHEAD, "sm_75", "this target has no function 'copy_async'"),
        (
            body("lane for l in 2048:", "  x[l % 64] = 0.0"),
            "sm_80",
            "a workgroup has 2048 work-items",
        ),
        (
            body(
                "grid for g in 2:",
                "  alloc s: f32[60000] workgroup",
                "  lane for l in 4:",
                "    s[l] = x[l]",
                "    x[l] = s[l]",
            ),
            "sm_90a",
            "nvidia-sm_90a has 232448",
        ),
        (
            body("grid for g in 3000000000:", "  lane for l in 4:", "    x[l] = 1.0"),
            "sm_80",
            "nvidia-sm_80 takes at most 2147483647",
        ),
        (
            COPY.format(
                dtype="f32", size=64, lines="      copy_async(&s[l], &x[l])\n      wait_copies(l)"
            ),
            "sm_80",
            "wait_copies on a number that is not constant",
        ),
        (
            body(
                "grid for g in 2:",
                "  lane for l in 4:",
                "    alloc p: f32[4] private",
                "    copy_async(&p[0], &x[l])",
            ),
            "sm_80",
            "this target copies from global to workgroup memory only",
        ),
    ],
)
def test_what_cannot_be_lowered(text: str, level: str, message: str) -> None:
    with pytest.raises((CompilationError, UnsupportedError)) as raised:
        lowered(text, level)
    assert message in str(raised.value)


def test_unknown_capabilities() -> None:
    with pytest.raises(UnsupportedError, match="unknown compute capability 'sm_60'"):
        nvidia.machine("sm_60")


def test_more_than_a_work_item_has_room_for() -> None:
    """A launch would fail: a device has local memory for all work-items that run at once."""
    text = """kernel rows(in x: f32[64, 8], out y: f32[64, 8]):
  grid for g in 64:
    workgroup for l in 1:
      alloc s: f32[65536] private
      alloc t: f32[SIZE] private
      for k in 8:
        s[k * 8191] = x[g, k]
        t[k * 8191] = x[g, k]
      for k in 8:
        y[g, k] = s[(7 - k) * 8191] + t[(7 - k) * 8191]
"""
    assert ".local .align 64 .b8" in ptx(text.replace("SIZE", "65536"))
    with pytest.raises(CompilationError, match="'t' takes 262148 bytes of a thread's stack") as e:
        lowered(text.replace("SIZE", "65537"))
    assert "it has 524288 bytes, and 262144 are taken" in str(e.value)

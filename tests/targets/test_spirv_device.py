"""OpenCL devices: found and refused, programs on them, and everything around a kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from compiled import check, inputs, packed, small
from measurements import PEAKS
from needs import needs_opencl
from tilewright.cli import benchmarking
from tilewright.dtypes import f32
from tilewright.engine import compile
from tilewright.errors import CompilationError, DeviceError, UnsupportedError
from tilewright.ir import to_text
from tilewright.targets.llvm.module import Launch
from tilewright.targets.program import Abi, Parameter
from tilewright.targets.registry import find_target
from tilewright.targets.spirv import device as opencl
from tilewright.targets.spirv import target as targets
from tilewright.targets.spirv.assemble import assemble
from tilewright.targets.spirv.device import Device, devices, find_device, load_opencl
from tilewright.targets.spirv.driver import KernelProgram
from workgroup_configs import workgroup_config

# Two launches, and what is between them in a workspace: out = 2 * (x + 1).
TWICE = """target triple = "spirv64-unknown-unknown"
declare i64 @_Z13get_global_idj(i32)
define spir_kernel void @more(ptr addrspace(1) %x, ptr addrspace(1) %out, ptr addrspace(1) %w) {
  %i = call i64 @_Z13get_global_idj(i32 0)
  %p = getelementptr float, ptr addrspace(1) %x, i64 %i
  %q = getelementptr float, ptr addrspace(1) %w, i64 %i
  %v = load float, ptr addrspace(1) %p, align 4
  %s = fadd float %v, 1.0
  store float %s, ptr addrspace(1) %q, align 4
  ret void
}
define spir_kernel void @twice(ptr addrspace(1) %x, ptr addrspace(1) %out, ptr addrspace(1) %w) {
  %i = call i64 @_Z13get_global_idj(i32 0)
  %p = getelementptr float, ptr addrspace(1) %w, i64 %i
  %q = getelementptr float, ptr addrspace(1) %out, i64 %i
  %v = load float, ptr addrspace(1) %p, align 4
  %s = fmul float %v, 2.0
  store float %s, ptr addrspace(1) %q, align 4
  ret void
}
"""
SIZE = 1024
ABI = Abi(
    "twice",
    (
        Parameter("x", f32, (SIZE,), "in", 4 * SIZE),
        Parameter("out", f32, (SIZE,), "out", 4 * SIZE),
    ),
    (4 * SIZE,),
    (Launch("more", SIZE // 16, 16, 0), Launch("twice", SIZE // 32, 32, 0)),
)


@pytest.fixture
def looked_anew() -> Iterator[None]:
    """Forgets which devices there are, before and after."""
    caches = (opencl.devices, targets._target)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, looked_anew: None) -> None:
    """As if pyopencl were not installed."""
    monkeypatch.setattr(opencl, "load_opencl", lambda: None)


def _separate(device: Device) -> Device:
    """The device as if it had memory of its own."""
    return replace(device, shares_memory=False)


def _twice(program: KernelProgram, threads: int, start: float = 0) -> bool:
    """Whether the program of `TWICE` does what it should."""
    x, out = np.arange(SIZE, dtype=np.float32) + start, np.zeros(SIZE, np.float32)
    program.run([x.ctypes.data, out.ctypes.data], threads)
    return bool((out == 2 * (x + 1)).all())


# Which devices there are.


@needs_opencl
def test_a_device() -> None:
    first = devices()[0]
    assert first.name and first.cores >= 1 and first.workgroup >= 1 and first.shared > 0
    assert find_device(first.name[1:].upper()) == first
    for name in ("spirv", "spirv:cpu", "spirv:gpu", f"spirv:{first.platform}"):
        target = find_target(name)
        assert target.name == name and target.runs_here and first.name in target.place
    hierarchy = find_target("spirv").machine.hierarchy
    assert hierarchy is not None and hierarchy.workgroup == first.workgroup


@needs_opencl
def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="there is no OpenCL device 'abacus'") as caught:
        find_target("spirv:abacus")
    assert devices()[0].name in str(caught.value.cure)
    monkeypatch.setenv("TILEWRIGHT_OPENCL_DEVICE", "abacus")
    with pytest.raises(DeviceError, match="TILEWRIGHT_OPENCL_DEVICE"):
        find_target("spirv")
    monkeypatch.setenv("TILEWRIGHT_OPENCL_DEVICE", devices()[0].platform.lower())
    assert find_target("spirv").runs_here


def test_without_pyopencl(nothing: None, own_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"pyopencl is not installed[^$]*tilewright\[opencl\]"):
        find_target("spirv")
    for kind in ("cpu", "gpu"):
        kernel = tw.compile(small(), target=f"spirv:{kind}")
        assert not kernel.target.runs_here
        assert "spir_kernel" in kernel.source("llvm") and "OpFunction" in kernel.source("asm")
        assert (kernel.export(tmp_path / kind, "conv_fwd_b") / "conv_fwd_b.spv").is_file()
        with pytest.raises(UnsupportedError, match=r"do not run here[^$]*tilewright\[opencl\]"):
            kernel(**packed(kernel, inputs(kernel)))


def test_commands_without_pyopencl(nothing: None, tilewright: Command, tmp_path: Path) -> None:
    ended = tilewright("verify", "conv", "--target", "spirv", "mb1ic3ih4oc5kh3ph1")
    assert ended.code == 2 and "tilewright[opencl]" in ended.err
    ended = tilewright("targets")
    assert ended.code == 0 and "spirv: there is no OpenCL device" in ended.out
    assert "tilewright[opencl]" in tilewright("doctor").out
    build = ("build", "conv", "--target", "spirv:cpu", "-o", str(tmp_path), "mb1ic3ih4oc5kh3ph1")
    assert tilewright(*build).code == 0


def test_no_devices() -> None:
    """Where the user says where OpenCL looks for devices, it looks there alone."""
    code = (
        "import os\n"
        "from tilewright.targets.spirv.device import devices\n"
        "from tilewright.targets.registry import find_target\n"
        "assert devices() == ()\n"
        "assert os.environ['OCL_ICD_VENDORS'] == '/nowhere'\n"
        "find_target('spirv')\n"
    )
    environment = os.environ | {"OCL_ICD_VENDORS": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert "there is no OpenCL device" in done.stderr, done.stderr
    assert "AssertionError" not in done.stderr


@needs_opencl
def test_the_environment_stays() -> None:
    load_opencl()
    assert "OCL_ICD_VENDORS" not in os.environ


# Programs.


@needs_opencl
@pytest.mark.parametrize("shares", [True, False])
def test_launches_in_turn(shares: bool) -> None:
    device = find_device() if shares else _separate(find_device())
    program = KernelProgram(device, assemble(TWICE), ABI)
    for threads in (1, 2, 1000):
        assert _twice(program, threads)
        x, out = np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)
        call = program.bound([x.ctypes.data, out.ctypes.data], threads)
        call()
        assert (out == 4).all()
        x += 1
        call()
        assert (out == 6).all()


@needs_opencl
@pytest.mark.parametrize("shares", [True, False])
def test_many_threads_in_one_kernel(shares: bool) -> None:
    device = find_device() if shares else _separate(find_device())
    program = KernelProgram(device, assemble(TWICE), ABI)
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(50):
            if not _twice(program, 1 + number % 2, number + turn):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_opencl
@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (Launch("more", 1, 1 << 20, 0), "more needs workgroups of 1048576 work-items"),
        (Launch("more", 1, 1, 1 << 30), "more needs workgroups of 1073741824 bytes of shared"),
    ],
)
def test_too_large_for_the_device(launch: Launch, message: str) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        KernelProgram(find_device(), assemble(TWICE), replace(ABI, launches=(launch,)))
    assert "why: the device has" in str(caught.value)


@needs_opencl
def test_code_that_the_device_refuses() -> None:
    unknown = replace(ABI, launches=(Launch("other", 1, 1, 0),))
    for binary, abi, why in (
        (assemble(TWICE), unknown, "other: "),
        (b"no code", ABI, "it is not SPIR-V"),
    ):
        with pytest.raises(CompilationError, match=why) as caught:
            KernelProgram(find_device(), binary, abi)
        kept = Path(str(caught.value.where))
        assert kept.suffix == ".spv" and kept.read_bytes() == binary
        kept.unlink()


@needs_opencl
def test_a_device_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(device: Device, cores: int) -> None:
        raise load_opencl().LogicError("clCreateContext failed: DEVICE_NOT_AVAILABLE")

    monkeypatch.setattr(opencl, "_context", busy)
    with pytest.raises(DeviceError, match=r"cannot be used[^$]*DEVICE_NOT_AVAILABLE"):
        KernelProgram(find_device(), assemble(TWICE), ABI)


@needs_opencl
def test_a_part_that_does_not_take_the_code_of_the_whole() -> None:
    program = KernelProgram(find_device(), assemble(TWICE), ABI)
    program._native = b"nothing"
    program._built.clear()
    assert _twice(program, 1)


@needs_opencl
def test_a_launch_that_fails_names_its_arguments() -> None:
    """There is no memory for the workspace; the process goes on."""
    device = _separate(find_device())
    program = KernelProgram(device, assemble(TWICE), replace(ABI, workspaces=(1 << 50,)))
    with pytest.raises(DeviceError, match="twice failed on") as caught:
        _twice(program, 2)
    assert "x: f32[1024], out: f32[1024]" in str(caught.value)
    assert _twice(KernelProgram(device, assemble(TWICE), ABI), 2)


@needs_opencl
def test_the_abi_as_json() -> None:
    assert Abi.from_json(ABI.as_json()) == ABI
    for name in ("entry", "parameters", "workspaces", "launches"):
        broken = {key: value for key, value in ABI.as_json().items() if key != name}
        with pytest.raises(KeyError):
            Abi.from_json(broken)


_FORKED = """
import os, sys
import numpy as np
import tilewright as tw

kernel = tw.compile(tw.matmul("8x8:8x32"), target="spirv", threads=2)
a, b = np.full((8, 8), 2.0, np.float32), np.full((8, 32), 3.0, np.float32)
packed = kernel.pack("weights", b)
bound = kernel.bind(src=a, weights=packed, dst=np.zeros((8, 32), np.float32))
child = os.fork()
if child == 0:
    refused = 0
    for call in (
        lambda: kernel(src=a, weights=packed),
        bound,
        lambda: tw.compile(tw.matmul("4x8:8x32"), target="spirv"),
    ):
        try:
            call()
        except tw.TilewrightError as error:
            refused += "was forked" in str(error)
    host = tw.compile(tw.matmul("8x8:8x32"), threads=1)
    right = (host(src=a, weights=host.pack("weights", b)) == 48).all()
    os._exit(0 if refused == 3 and right else 1)
_, status = os.waitpid(child, 0)
assert (kernel(src=a, weights=packed) == 48).all()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@needs_opencl
def test_the_child_of_a_fork() -> None:
    subprocess.run([sys.executable, "-c", _FORKED], check=True, timeout=120)


# Kernels.


@needs_opencl
@pytest.mark.parametrize("target", ["spirv", "spirv:cpu", "spirv:gpu"])
@pytest.mark.parametrize("threads", [1, None])
def test_a_kernel(own_cache: Path, target: str, threads: int | None) -> None:
    kernel = tw.compile(small(), target=target, threads=threads)
    check(kernel)
    arrays = packed(kernel, inputs(kernel))
    out = kernel.signature.forms["dst"].empty()
    kernel.bind(**arrays, out=out)()
    np.testing.assert_array_equal(out, kernel(**arrays))


@needs_opencl
@pytest.mark.parametrize("fill", ["copy", "registers"])
def test_swizzled_tiles(own_cache: Path, fill: str) -> None:
    op = tw.matmul("32x64:64x32")
    config = workgroup_config(
        "fma_f32x4",
        lanes="n",
        group={"m": 16, "n": 16},
        item={"m": 4, "n": 4},
        order=("m", "n"),
        step={"k": 8},
        vector=4,
        stages=2 if fill == "registers" else 1,
        fill=fill,
        swizzle={"a": (2, 1, 3), "b": (2, 2, 2)},
    )
    kernel = tw.compile(op, target="spirv:gpu", config=config)
    shared = to_text(kernel.stages["staged"])
    assert "^2:1:3} workgroup" in shared and "^2:2:2} workgroup" in shared
    check(kernel)


@needs_opencl
def test_arrays_that_stay_where_they_are(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides, blocks and sums into a result, on a device with memory of its own."""
    monkeypatch.setattr(targets, "find_device", lambda text="": _separate(find_device(text)))
    targets._target.cache_clear()
    try:
        for op in (
            tw.convolution("mb2ic8ih6oc20kh3ph1", dst="nChw16c", epilogue=[tw.sum()]),
            tw.matmul("5x6:6x7", dst=(11, 1)),
        ):
            kernel = tw.compile(op, target="spirv:gpu", threads=1)
            host = tw.compile(op, target="x86", threads=1)
            values = inputs(kernel)
            wanted = host(**packed(host, {name: a.copy("K") for name, a in values.items()}))
            np.testing.assert_array_equal(kernel(**packed(kernel, values)), wanted)
    finally:
        targets._target.cache_clear()


_PROCESS = """
import numpy as np
import tilewright as tw
kernel = tw.compile(tw.matmul("8x8:8x32"), target="spirv:cpu", threads=2)
a, b = np.full((8, 8), 2.0, np.float32), np.full((8, 32), 3.0, np.float32)
assert (kernel(src=a, weights=kernel.pack("weights", b)) == 48).all()
"""


@needs_opencl
def test_the_disk_cache(own_cache: Path) -> None:
    """Another process's kernel; the one of the other kind of machine is not it."""
    subprocess.run([sys.executable, "-c", _PROCESS], check=True)
    kernel = tw.compile(tw.matmul("8x8:8x32"), target="spirv:cpu")
    assert kernel.from_cache
    check(kernel)
    assert not tw.compile(tw.matmul("8x8:8x32"), target="spirv:gpu").from_cache
    compile.forget()
    again = tw.compile(tw.matmul("8x8:8x32"), target="spirv:cpu")
    assert again.from_cache and again.code.abi == kernel.code.abi


@needs_opencl
def test_export(own_cache: Path, tmp_path: Path) -> None:
    folder = tw.compile(small(), target="spirv:cpu").export(tmp_path / "kernel", "conv_fwd_b")
    assert sorted(path.name for path in folder.iterdir()) == [
        "conv_fwd_b.ll",
        "conv_fwd_b.md",
        "conv_fwd_b.spv",
        "conv_fwd_b_pack_weights.spv",
    ]
    words = (folder / "conv_fwd_b.md").read_text()
    assert "| 0 | src | in | f32 | (1, 8, 6, 6) | (288, 1, 48, 8) |" in words
    assert "| 1 | weights_packed | in | f32 | (2304,) | (1,) |" in words
    assert "pointers to global memory: src, weights_packed, bias, dst." in words
    assert "| `conv_fwd_b_0` | " in words and "| `conv_fwd_b_pack_weights_0` | " in words


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="needs spirv-val")
@pytest.mark.parametrize("target", ["spirv:cpu", "spirv:gpu"])
def test_the_export_is_valid(own_cache: Path, tmp_path: Path, target: str) -> None:
    paths = list(tw.compile(small(), target=target).export(tmp_path).glob("*.spv"))
    assert paths
    for path in paths:
        subprocess.run(["spirv-val", str(path)], check=True)


# Commands.


@needs_opencl
def test_verify(tilewright: Command) -> None:
    ended = tilewright("verify", "conv", "--target", "spirv", "mb1ic3ih4oc5kh3ph1")
    assert ended.code == 0 and "PASSED conv --target=spirv" in ended.out
    ended = tilewright("verify", "conv", "--target", "spirv:abacus", "mb1ic3ih4oc5kh3ph1")
    assert ended.code == 2 and "abacus" in ended.err and devices()[0].name in ended.err


@needs_opencl
def test_a_failure_on_the_device(tilewright: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, pointers: Any, threads: int) -> None:
        raise DeviceError("the device fell asleep")

    monkeypatch.setattr(KernelProgram, "run", refuse)
    compile.forget()
    ended = tilewright("verify", "matmul", "--target", "spirv", "3x4:4x5", "2x4:4x5")
    compile.forget()
    assert ended.code == 1 and ended.out.count("FAILED (DeviceError: the device fell asleep)") == 2


@needs_opencl
def test_bench_beside_another_target(tilewright: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarking, "measure_peaks", lambda threads: PEAKS)
    case = ("--threads", "1", "--seconds", "0", "mb1ic16ih8oc16kh3ph1")
    ended = tilewright("bench", "conv", "--target", "spirv", "--peer", "x86", *case)
    assert ended.code == 0 and "peer x86: geometric mean" in ended.out
    ended = tilewright("bench", "conv", "--peer", "none", *case)
    assert ended.code == 0 and "nothing to compare with" in ended.out
    assert tilewright("bench", "conv", "--peer", "abacus", *case).code == 2


@needs_opencl
def test_what_is_here(tilewright: Command) -> None:
    name = devices()[0].name
    assert f"spirv: 64-byte vectors, runs on {name}" in tilewright("targets").out
    assert name in tilewright("doctor").out


@needs_opencl
def test_the_cost_of_spirv() -> None:
    cost = tw.compile(small(), target="spirv:cpu").cost()
    assert cost.instructions > 50 and "OpLoad" in cost.mix and "OpName" not in cost.mix
    assert cost.vector_registers is None and cost.spills is None

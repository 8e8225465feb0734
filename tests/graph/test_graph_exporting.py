"""Programs of graphs for callers without Python: linked, called, and the same bit for bit."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright as tw
from commands import Command
from graph_texts import CONTROL
from needs import needs_nvidia, needs_opencl, needs_x86
from plan_replay import replayed, replayed_on_gpu
from tilewright.errors import ArgumentError, UnsupportedError
from tilewright.graph.exporting import export_programs, packed_here
from tilewright.graph.graph import Graph
from tilewright.graph.program import GraphProgram
from tilewright.tensor.contractions import matmul
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Builder

needs_c = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]


def layers() -> Graph:
    """Two products with constant weights, which are packed."""
    builder, rng = Builder("layers"), np.random.default_rng(0)
    x = builder.input("x", "f32", (33, 48))
    weights = [
        builder.constant(rng.standard_normal(shape).astype(np.float32))
        for shape in ((48, 80), (80, 56))
    ]
    hidden = elementwise(lambda a: a * a, matmul(x, weights[0]), name="square")
    builder.output("y", matmul(hidden, weights[1]))
    return Graph(builder.kernel())


@cache
def programs(target: str = "x86", threads: int = 3) -> dict[str, GraphProgram]:
    graphs = {"layers": layers(), "control": Graph(tw.parse_kernel(CONTROL))}
    compiled = {name: tw.compile(g, target=target, threads=threads) for name, g in graphs.items()}
    assert all(isinstance(program, GraphProgram) for program in compiled.values())
    return compiled  # type: ignore[return-value]


def drawn(name: str) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    if name == "layers":
        return {"x": rng.standard_normal((33, 48)).astype(np.float32)}
    a = rng.standard_normal((8, 8)).astype(np.float32)
    return {"a": a, "limit": np.array([1000], np.float32)}


class Linked:
    """The functions of a library, linked into this process without a C compiler."""

    def __init__(self, path: Path, names: list[str]) -> None:
        data, at = path.read_bytes(), 8
        builder = llvm.JITLibraryBuilder().add_current_process()
        while at < len(data):
            head = data[at : at + 60]
            size = int(head[48:58])
            if re.match(rb"/\d", head):
                builder.add_object_img(data[at + 60 : at + 60 + size])
            at += 60 + size + size % 2
        for name in names:
            builder.export_symbol(name)
        self._linker = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
        self._library = builder.link(self._linker, path.stem)
        self.functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(self._library[name])
            for name in names
        }

    def __getattr__(self, name: str) -> Any:
        return self.functions[name]


NAMES = ["net_open", "net_close", "net_use_pool", "net_layers", "net_control"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_programs(programs(), tmp_path_factory.mktemp("built"), "net")


@pytest.fixture(scope="module")
def net(folder: Path) -> Linked:
    return Linked(folder / "net.a", NAMES)


def opened(net: Linked, folder: Path, threads: int) -> ctypes.c_void_p:
    program = ctypes.c_void_p()
    path = ctypes.create_string_buffer(str(folder / "net.bin").encode())
    assert net.net_open(ctypes.addressof(program), path, threads) == 0
    return program


def called(net: Linked, program: Any, name: str, arena: Any = None) -> dict[str, Any]:
    """The results of a call on `drawn` arrays."""
    compiled, arrays = programs()[name], drawn(name)
    for result in compiled.signature.results:
        form = compiled.signature.forms[result]
        arrays[result] = np.full(form.shape, 7, form.dtype.numpy)
    order = [arrays[param.name] for param in compiled.signature.arguments]
    pointers = (ctypes.c_void_p * len(order))(*(array.ctypes.data for array in order))
    assert net.functions[f"net_{name}"](program, pointers, arena) == 0
    return {result: arrays[result] for result in compiled.signature.results}


def same_bits(found: dict[str, Any], wanted: Any) -> None:
    wanted = wanted if isinstance(wanted, dict) else {next(iter(found)): wanted}
    for name, array in found.items():
        assert array.tobytes() == np.asarray(wanted[name]).tobytes(), name


@needs_x86
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_the_same_bits_as_in_python(net: Linked, folder: Path, threads: int) -> None:
    program = opened(net, folder, threads)
    for name, compiled in programs().items():
        wanted = compiled(**drawn(name))
        arena = np.empty(compiled.arena_room, np.uint8)
        start = -(-arena.ctypes.data // 64) * 64
        for _ in range(3):
            same_bits(called(net, program, name), wanted)
            same_bits(called(net, program, name, start), wanted)
    net.net_close(program, None, None)


@needs_x86
def test_several_threads_call_at_once(net: Linked, folder: Path) -> None:
    program = opened(net, folder, 2)
    wanted = {name: compiled(**drawn(name)) for name, compiled in programs().items()}
    with ThreadPoolExecutor(4) as threads:
        names = ["layers", "control"] * 40
        for name, found in zip(
            names, threads.map(lambda name: called(net, program, name), names), strict=True
        ):
            same_bits(found, wanted[name])
    net.net_close(program, None, None)


@needs_x86
def test_threads_of_the_callers(net: Linked, folder: Path) -> None:
    program = opened(net, folder, 3)
    phase_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    counts = []

    def parallel(pool: int, phase: Any, args: int, threads: int) -> None:
        counts.append((pool, threads))
        for thread in reversed(range(threads)):
            phase(args, thread, threads)

    passed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, phase_type, ctypes.c_void_p, ctypes.c_int64)(
        parallel
    )
    net.net_use_pool(program, ctypes.cast(passed, ctypes.c_void_p), 42)
    same_bits(called(net, program, "layers"), programs()["layers"](**drawn("layers")))
    assert counts and set(counts) == {(42, 3)}
    net.net_close(program, None, None)


@needs_x86
def test_errors_have_numbers(net: Linked, folder: Path, tmp_path: Path) -> None:
    null, bad_threads, file, other, alignment = 1, 2, 3, 4, 6
    program = ctypes.c_void_p(5)
    place = ctypes.addressof(program)

    def open_(path: Path | None, threads: int = 2) -> int:
        text = None if path is None else ctypes.create_string_buffer(str(path).encode())
        return int(net.net_open(place, text, threads))

    right = folder / "net.bin"
    assert net.net_open(None, None, 1) == null and open_(None) == null
    assert open_(right, 0) == open_(right, -1) == open_(right, 257) == bad_threads
    assert open_(tmp_path / "none") == file
    data = bytearray(right.read_bytes())
    for name, contents in (
        ("short", data[:-1]),
        ("empty", b""),
        ("other", data[:20] + b"x" + data[21:]),
    ):
        (tmp_path / name).write_bytes(contents)
        assert open_(tmp_path / name) == other
    assert program.value is None
    net.net_close(None, None, None)
    assert open_(right) == 0 and program.value
    x, y = np.zeros(33 * 48 + 1, np.float32), np.zeros(33 * 56, np.float32)
    for pointers, arena, error in (
        ((x.ctypes.data, None), None, null),
        ((x.ctypes.data + 2, y.ctypes.data), None, alignment),
        ((x.ctypes.data, y.ctypes.data), 8, alignment),
        ((x.ctypes.data + 4, y.ctypes.data), None, 0),
    ):
        assert net.net_layers(program, (ctypes.c_void_p * 2)(*pointers), arena) == error
    assert net.net_layers(program, None, None) == net.net_layers(None, None, None) == null
    net.net_close(program, None, None)


@needs_c
@needs_x86
def test_the_example_runs(folder: Path) -> None:
    text = (folder / "net_example.c").read_text()
    (command,) = re.findall(r"^ +cc (.*)$", text, re.MULTILINE)
    subprocess.run(["cc", *STRICT, *command.split()], cwd=folder, check=True)
    outputs = set()
    for threads in ("1", "2", "4"):
        ended = subprocess.run(
            ["./net_example", threads], cwd=folder, check=True, capture_output=True, text=True
        )
        outputs.add(ended.stdout)
    (printed,) = outputs
    x = np.ones((33, 48), np.float32)
    first = programs()["layers"](x=x)[0, :4]
    assert f"net_layers y: {' '.join(f'{value:g}' for value in first)}\n" in printed
    ended = subprocess.run(
        ["./net_example", "1", "none.bin"], cwd=folder, capture_output=True, text=True
    )
    assert ended.returncode == 1 and "net_open: error 3" in ended.stderr


@needs_c
@needs_x86
def test_the_header_is_for_c_plus_plus_and_symbols_are_hidden(folder: Path) -> None:
    (folder / "a.cpp").write_text(
        '#include "net.h"\nint main() { return net_open(0, 0, 1) - 1; }\n'
    )
    build = ["cc", "-x", "c++", "-pedantic", "-Wall", "-Wextra", "-Werror", "-c", "a.cpp"]
    subprocess.run(build, cwd=folder, check=True)
    whole = ["-Wl,--whole-archive", "net.a", "-Wl,--no-whole-archive", "-lm", "-lpthread"]
    subprocess.run(["cc", "-shared", "-o", "net.so", *whole], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "net.so"))
    assert library.net_open(None, None, 1) == 1
    with pytest.raises(AttributeError):
        _ = library.net_kernel_0


@needs_x86
def test_kernels_and_constants_are_written_once(folder: Path, tmp_path: Path) -> None:
    twice = {"one": programs()["layers"], "two": programs()["layers"]}
    export_programs(twice, tmp_path, "net")
    alone = export_programs({"one": programs()["layers"]}, tmp_path / "alone", "net")
    assert (tmp_path / "net.bin").read_bytes() == (alone / "net.bin").read_bytes()
    members = [
        sorted(re.findall(rb"net_kernel_\d+\.o/", (path / "net.a").read_bytes()))
        for path in (tmp_path, alone)
    ]
    assert members[0] == members[1] and members[0]


@needs_opencl
def test_a_plan_replays_on_opencl(tmp_path: Path) -> None:
    compiled = programs("spirv", 2)
    export_programs(compiled, tmp_path, "net")
    for name, program in compiled.items():
        arrays = drawn(name)
        same_bits(replayed(tmp_path / "net.json", f"net_{name}", arrays), program(**arrays))


@needs_nvidia
def test_a_plan_replays_on_an_nvidia_gpu(tmp_path: Path) -> None:
    compiled = programs("nvidia:sm_80", 2)
    export_programs(compiled, tmp_path, "net")
    for name, program in compiled.items():
        arrays = drawn(name)
        same_bits(replayed_on_gpu(tmp_path / "net.json", f"net_{name}", arrays), program(**arrays))


@pytest.mark.parametrize("target", ["nvidia:sm_80", "x86:amx"])
def test_targets_that_are_not_here(target: str, tmp_path: Path) -> None:
    program = tw.compile(layers(), target=target, threads=2)
    program.export(tmp_path)
    assert (tmp_path / "layers.bin").stat().st_size > 4 * 48 * 80
    if target.startswith("nvidia"):
        plan = json.loads((tmp_path / "layers.json").read_text())
        (function,) = plan["functions"].values()
        assert [step["entry"] for step in function["steps"]]
        assert all((tmp_path / file).exists() for files in plan["modules"] for file in files)


@needs_opencl
def test_this_processor_packs_as_the_device_does() -> None:
    program = programs("spirv:gpu", 2)["layers"]
    packs = [(group.compiled, name) for group in program.groups for name in group.compiled.packed]
    assert packs
    for kernel, name in packs:
        form = kernel.signature.form(name)
        array = np.arange(form.extent, dtype=np.float32).reshape(form.shape)
        wanted = kernel.pack(name, array)
        for one, other in zip(packed_here(kernel, name, array), wanted.data, strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    packed = tw.compile(Graph(tw.parse_kernel(PRODUCT), ("w",)), threads=1)
    if packed.packed:
        with pytest.raises(UnsupportedError, match="takes packed arguments"):
            packed.export(tmp_path)
    with pytest.raises(ArgumentError, match="cannot be the name of a function in C"):
        packed.export(tmp_path, "a-b")
    assert list(tmp_path.iterdir()) == []


PRODUCT = """
kernel product(in x: f32[64, 64], in w: f32[64, 64], out y: f32[64, 64]):
  compute zero(m in 64, n in 64):
    y[m, n] = 0.0
  compute product(m in 64, n in 64, k in 64):
    a = x[m, k]
    b = w[k, n]
    y[m, n] add= a * b
"""

MODULE = """
func.func public @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func public @open(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.multiply %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@needs_x86
def test_on_the_command_line(tilewright: Command, tmp_path: Path) -> None:
    (tmp_path / "module.mlir").write_text(MODULE)
    file, out = str(tmp_path / "module.mlir"), tmp_path / "out"
    ended = tilewright("build", "graph", file, "-o", str(out))
    assert ended.code == 0 and "module_twice (twice)" in ended.out
    header = (out / "module.h").read_text()
    assert "int module_twice(" in header and "int module_open_2(" in header
    assert {path.name for path in out.iterdir()} == {
        *("module.a", "module.h", "module.md", "module_example.c")
    }
    for arguments, code, said in (
        (("--constant=x", file), 2, "what packs arguments"),
        ((file, file.replace("module", "none")), 2, "No such file"),
        (("--name=a b", file), 2, "cannot be the name of a function in C"),
        (("--target=interpreter", file), 2, "interpreter makes no program of a graph"),
    ):
        ended = tilewright("build", "graph", *arguments, "-o", str(out))
        assert ended.code == code and said in ended.err, ended

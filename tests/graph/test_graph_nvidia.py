"""Programs on an NVIDIA GPU, on a driver that stands for NVIDIA's: the interpreter does what each
kernel would; and what is compiled for one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from graph_texts import transformer
from nvidia_driver import Driver, Interface, Status, aligned, standing_in
from tilewright.errors import DeviceError, UnsupportedError
from tilewright.graph.graph import Graph
from tilewright.graph.program import GraphProgram
from tilewright.interpret import run as interpret
from tilewright.ir.constants import digest_of
from tilewright.ir.stmt import Kernel


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    result = Driver()
    with standing_in(monkeypatch, result):
        yield result


TEXT = """
kernel power(
    in x: f32[8, 16], in ids: s32[8], constant table: f32[16] = {digest}, out y: f32[8, 16],
):
  alloc total: f32[8]
  compute zero(i in 8):
    total[i] = 0.0
  compute sum(i in 8, j in 16):
    v = x[i, j]
    total[i] add= v
  while total[0] < 20.0:
    compute double(i in 8):
      v = total[i]
      total[i] = v * 2.0
  compute last(i in 8, j in 16):
    e = ids[i]
    v = x[s64(e), j]
    s = total[i]
    c = table[15 - j]
    y[i, j] = v + s * c
"""


def runs(kernel: Kernel) -> Any:
    """What a launch of ``kernel`` would do."""

    def run(value: Any) -> None:
        memory = {}
        for position, param in enumerate(kernel.arrays):
            address = ctypes.c_void_p.from_address(value(position)).value or 0
            raw = (ctypes.c_uint8 * param.buffer.bytes).from_address(address)
            memory[param.name] = np.ctypeslib.as_array(raw).view(param.dtype.numpy)
        interpret(kernel, memory)

    return run


def compiled(driver: Driver) -> GraphProgram:
    """The program, with the interpreter behind the last launch of each kernel."""
    table = np.arange(16, dtype=np.float32)
    digest = digest_of(table)
    kernel = tw.parse_kernel(TEXT.format(digest=digest), constants={digest: table})
    program = tw.compile(Graph(kernel), "nvidia")
    assert isinstance(program, GraphProgram)
    for group in program.groups:
        entry = group.compiled.code.abi.launches[-1].entry
        assert entry not in driver.kernels, "each has a name of its own here"
        driver.kernels[entry] = runs(group.kernel)
    return program


def arguments() -> dict[str, Any]:
    x = np.random.default_rng(0).random((8, 16)).astype(np.float32)
    return {"x": x, "ids": np.array([3, 1, 0, 7, 6, 5, 2, 4], np.int32)}


def expected(x: Any, ids: Any) -> Any:
    total = x.sum(axis=1)
    while total[0] < 20:
        total = total * 2
    return x[ids] + total[:, None] * np.arange(15, -1, -1, dtype=np.float32)


def test_calls_on_arrays_of_the_host(driver: Driver) -> None:
    program, values = compiled(driver), arguments()
    kept = len(driver.memory)
    for _ in range(3):
        np.testing.assert_allclose(program(**values), expected(**values), rtol=1e-5)
        assert len(driver.memory) == kept, "all that a call takes is given back"
    out = np.zeros((8, 16), np.float32)
    program.bind(**values, out=out)()
    np.testing.assert_allclose(out, expected(**values), rtol=1e-5)


def test_calls_on_arrays_of_the_device(driver: Driver) -> None:
    """They are taken as they are, on the caller's stream: only the condition waits."""
    program, values = compiled(driver), arguments()
    x, ids = aligned((8, 16), np.float32), aligned((8,), np.int32)
    y = aligned((8, 16), np.float32)
    x[...], ids[...] = values["x"], values["ids"]
    driver.calls.clear()
    program(x=Interface(x), ids=Interface(ids), out=Interface(y), stream=55)
    np.testing.assert_allclose(y, expected(**values), rtol=1e-5)
    copies = driver.named("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")
    waits = driver.named("cuStreamSynchronize")
    assert {name for name, *_ in copies} == {"cuMemcpyDtoHAsync"}
    assert len(copies) == len(waits) == 3  # 10, 20, 40: the condition was looked at three times
    assert all(stream == 55 for _, stream in waits)


def test_what_a_gpu_refuses(driver: Driver) -> None:
    program, values = compiled(driver), arguments()
    with pytest.raises(UnsupportedError, match="no arena of the host"):
        program.in_arena(np.empty(program.arena_room, np.uint8))
    with pytest.raises(UnsupportedError, match="are not timed"):
        program.timed(**values)
    driver.failing["cuLaunchKernel"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    driver.failing["cuLaunchKernelEx"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError):
        program(**values)


@pytest.mark.sweep  # it takes 20 seconds
def test_a_transformer_is_compiled_for_one() -> None:
    graph = Graph(tw.parse_kernel(transformer(1, rows=32, size=64, heads=2, hidden=128)))
    program = tw.compile(graph, "nvidia:sm_80")
    assert isinstance(program, GraphProgram)
    for group in program.groups:
        assert ".target sm_80" in group.compiled.source("asm")

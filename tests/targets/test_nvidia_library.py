"""What the package ``cuda-bindings`` has, beside what we ask the driver for: it can be looked at
without a GPU. What a GPU would do with it is not tested here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nvidia_driver import Driver, standing_in
from test_tensor_map import EVERYWHERE, program
from tilewright.dtypes import u8
from tilewright.targets.llvm.module import Launch
from tilewright.targets.nvidia import device as here
from tilewright.targets.nvidia import launch, memory
from tilewright.targets.nvidia.launch import Launcher
from tilewright.targets.program import Abi, Parameter, Placement


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with standing_in(monkeypatch, Driver()) as result:
        yield result


def test_the_real_library_has_what_is_asked_for(driver: Driver) -> None:
    """Each function with as many arguments, each constant and each structure's fields."""
    real = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    result = program()
    result.run_placed([0x1000, 0x2000, 0x3000], EVERYWHERE)
    result.run_placed([0x1000, 0x2000, 0x3000], Placement((True,) * 3, None, (7,)))
    result.bound_placed([0x1000, 0x2000, 0x3000], Placement((True,) * 3, 7, (8,)))()
    result.memory(16)
    x, y = ((ctypes.c_uint8 * 512)() for _ in range(2))
    host = Abi("k", (Parameter("x", u8, (16,), "in", 16), Parameter("y", u8, (16,), "out", 16)), ())
    program(host).run([ctypes.addressof(x), ctypes.addressof(y)], 1)
    del result
    for name, *arguments in driver.calls:
        signature = getattr(real, name).__doc__.partition(")")[0].partition("(")[2]
        assert len(arguments) == len(
            [argument for argument in signature.split(",") if argument.strip()]
        ), name
    asked = {name for name, *_ in driver.calls}
    assert {"cuMemAllocFromPoolAsync", "cuLaunchKernelEx", "cuStreamWaitEvent"} <= asked
    assert {"cuMemFree", "cuStreamDestroy", "cuModuleUnload", "cuGetProcAddress"} <= asked
    for name, value in vars(Driver).items():
        if isinstance(value, SimpleNamespace):
            results = getattr(real, name)
            assert {key: int(getattr(results, key)) for key in vars(value)} == vars(value)
    kinds = {
        "CU_EVENT": real.CUevent_flags,
        "CU_STREAM": real.CUstream_flags,
        "CU_FUNC": real.CUfunction_attribute,
        "CU_DEVICE": real.CUdevice_attribute,
        "CU_MEMPOOL": real.CUmemPool_attribute,
        "CU_GET": real.CUdriverProcAddress_flags,
    }
    words = {argument for call in driver.calls for argument in call if isinstance(argument, str)}
    constants = {word for word in words if word.startswith("CU_")}
    assert len(constants) >= 10
    for constant in constants:
        kind = next(kind for prefix, kind in kinds.items() if constant.startswith(prefix))
        assert hasattr(kind, constant), constant


def test_the_real_structures(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    device = here.find_device()
    launcher = Launcher(b"", Launch("k", 132, 384, 200_000, cluster=2))
    for module in (launch, memory):
        monkeypatch.setattr(module, "load_cuda", lambda: real)
    config = launcher._with_cluster(7, 132)
    assert (config.gridDimX, config.blockDimX, config.blockDimZ) == (132, 384, 1)
    assert (config.sharedMemBytes, int(config.hStream), config.numAttrs) == (200_000, 7, 1)
    cluster = config.attrs[0].value.clusterDim
    assert (cluster.x, cluster.y, cluster.z) == (2, 1, 1)
    asked: list[Any] = []
    monkeypatch.setattr(memory, "ask", lambda *call: asked.append(call))
    memory._pool(device)
    (_, wanted), (_, _, kept, size) = asked
    assert wanted.location.type == real.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    assert (wanted.location.id, int(size)) == (0, 1 << 30)
    assert kept == real.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

"""The host's steps and scalars on NVIDIA's driver, by one that stands for it: no GPU runs here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nvidia_driver import Driver, Status, standing_in
from tilewright.dtypes import boolean, f32, s64
from tilewright.errors import DeviceError
from tilewright.ir.expr import var
from tilewright.runtime.steps import ForStep, IfStep, LetStep, ReadStep, WhileStep
from tilewright.targets.llvm.module import Launch
from tilewright.targets.nvidia import device as here
from tilewright.targets.nvidia.driver import KernelProgram
from tilewright.targets.program import Abi, Parameter, Placement, Scalar
from tilewright.targets.registry import find_target

BINARY = b".version 7.0\0\x7fELF"
Place = Callable[[int], int]

# k(n: s64, alpha: f32, inout x: f32[n]) with a workspace of n floats and a flag.
ABI = Abi(
    "k",
    (Scalar("n", s64, 0, 8), Scalar("alpha", f32), Parameter("x", f32, ("n",), "inout", "n * 4")),
    ("n * 4", 1),
    (
        Launch("add", "n", 32, 0, values=("t", "f")),
        Launch("test", 1, 1, 0, result=1),
        Launch("halve", "(n + 1) // 2", 32, 0),
    ),
    (
        ForStep(
            var("t"),
            "3",
            (LetStep(var("f", f32), "f32(t) * 0.5"), IfStep("t == 1", (), (0,))),
        ),
        WhileStep((ReadStep(var("go", boolean), 1),), "go", (2,)),
    ),
)


def scalar(place: int, type_: Any) -> Any:
    return type_.from_address(place).value


def array(place: Place, position: int, count: int) -> Any:
    address = scalar(place(position) or 0, ctypes.c_void_p)
    return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)


def add(place: Place) -> None:
    """x += alpha * t + f"""
    n, alpha = scalar(place(0), ctypes.c_int64), scalar(place(1), ctypes.c_float)
    t, f = scalar(place(5), ctypes.c_int64), scalar(place(6), ctypes.c_float)
    array(place, 2, n)[:] += alpha * t + f


def check(place: Place) -> None:
    """flag = x[0] > 1"""
    flag = scalar(place(4), ctypes.c_void_p)
    ctypes.c_uint8.from_address(flag).value = int(array(place, 2, 1)[0] > 1)


def halve(place: Place) -> None:
    array(place, 2, scalar(place(0), ctypes.c_int64))[:] /= 2


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    result = Driver()
    result.kernels |= {"add": add, "test": check, "halve": halve}
    with standing_in(monkeypatch, result):
        yield result


def expected(x: Any, alpha: float) -> Any:
    for t in (0, 2):
        x = x + np.float32(alpha * t + t * 0.5)
    while x[0] > 1:
        x = x / 2
    return x


def passed(x: Any, alpha: float) -> list[int | float]:
    return [len(x), alpha, x.ctypes.data]


def launches(driver: Driver) -> list[tuple[Any, ...]]:
    return [(call[1], call[2]) for call in driver.named("cuLaunchKernel")]


def test_steps_in_order(driver: Driver) -> None:
    program = KernelProgram(here.find_device(), BINARY, ABI)
    x = np.array([0, 5, -3, 2], np.float32)
    wanted = expected(x, 0.5)
    program.run(passed(x, 0.5), 1)
    np.testing.assert_array_equal(x, wanted)
    # Each test is waited for; 2.0 is halved once.
    assert launches(driver) == [("add", 4), ("add", 4), ("test", 1), ("halve", 2), ("test", 1)]
    assert len(driver.named("cuStreamSynchronize")) == 3
    kinds = {"cuLaunchKernel": "l", "cuMemcpyDtoHAsync": "c"}
    assert "".join(kinds.get(call[0], "") for call in driver.calls) == "lllcllcc"


def test_sizes_are_those_of_the_call(driver: Driver) -> None:
    program = KernelProgram(here.find_device(), BINARY, ABI)
    for count in (4, 7, 1):
        driver.calls.clear()
        x = np.arange(count).astype(np.float32)
        wanted = expected(x, 1.5)
        program.run(passed(x, 1.5), 1)
        np.testing.assert_array_equal(x, wanted)
        assert [call[1] for call in driver.named("cuMemAllocFromPoolAsync")] == [
            count * 4,
            count * 4,
            1,
        ]
        sizes = {call[3] for call in driver.named("cuMemcpyHtoDAsync")}
        assert sizes == {count * 4}


def test_launches_without_workgroups_are_left_out(driver: Driver) -> None:
    program = KernelProgram(here.find_device(), BINARY, ABI)
    driver.kernels["test"] = lambda place: None
    x = np.array([9], np.float32)
    program.run([0, 1.0, x.ctypes.data], 1)
    assert launches(driver) == [("test", 1)]


def test_a_bound_call_keeps_scalars(driver: Driver) -> None:
    program = KernelProgram(here.find_device(), BINARY, ABI)
    x = np.array([0.25, 5, -3, 2], np.float32)
    call = program.bound(passed(x, 0.5), 1)
    for _ in range(2):
        wanted = expected(x, 0.5)
        call()
        np.testing.assert_array_equal(x, wanted)


def test_arrays_on_the_device(driver: Driver) -> None:
    program = KernelProgram(here.find_device(), BINARY, ABI)
    memory = program.memory(16)
    program.run_placed([4, 0.5, memory.pointer], Placement((True,), 7))
    assert driver.named("cuMemcpyHtoDAsync") == []
    # What the host reads is waited for on the caller's stream.
    assert {call[1] for call in driver.named("cuStreamSynchronize")} >= {7}


def test_a_read_that_fails(driver: Driver) -> None:
    program = KernelProgram(here.find_device(), BINARY, ABI)
    driver.failing["cuStreamSynchronize"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(
        DeviceError, match=r"k failed on(.|\n)*where: n: s64, alpha: f32, x: f32\[n\]"
    ):
        program.run(passed(np.zeros(4, np.float32), 0.5), 1)


def test_what_a_target_says_of_them() -> None:
    words = find_target("nvidia:sm_80").calling(ABI)
    assert "pointers to global memory, and scalars by value: n: s64, alpha: f32, x" in words
    assert words.endswith(
        "```text\n"
        "for t in 3:\n"
        "  f: f32 = f32(t) * 0.5\n"
        "  if t == 1:\n"
        "  else:\n"
        "    run add\n"
        "repeat:\n"
        "  run test\n"
        "  go: bool = workspace 1\n"
        "  leave unless go\n"
        "  run halve\n"
        "```"
    )
    assert "- `add`: t, f\n" in words

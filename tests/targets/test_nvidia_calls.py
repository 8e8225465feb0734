"""Arrays in a GPU's memory, and streams: what a kernel does with them, on a driver and on libraries
that stand for the real ones. Nothing here runs on a GPU.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from nvidia_driver import Driver, Interface, Status, aligned, standing_in
from tilewright.dtypes import bf16
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError, DeviceError
from tilewright.runtime import dlpack
from tilewright.runtime.device_arrays import describe_resident, is_resident, stream_handle

M = N = K = 32
CURRENT = 55


class Capsule:
    """Has DLPack only, as on a GPU. The memory is the host's."""

    def __init__(self, array: np.ndarray[Any, Any], kind: int = 2, device: int = 0) -> None:
        self.array = array
        self.place = (kind, device)
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, copy: Any = None) -> Any:
        self.asked.append(stream)
        capsule = self.array.__dlpack__(max_version=max_version, copy=copy)
        address = dlpack._pointer(capsule, b"dltensor_versioned")
        dlpack._Versioned.from_address(address).tensor.device_type = self.place[0]
        return capsule


class Tensor:
    """Stands for torch's, on a GPU. The memory is the host's."""

    is_cpu, is_nested, requires_grad, layout = False, False, False, "torch.strided"

    def __init__(self, array: np.ndarray[Any, Any], device: int = 0) -> None:
        self.array = array
        self.is_cuda = True
        self.device = SimpleNamespace(type="cuda", index=device)
        self.dtype = sys.intern("torch." + array.dtype.name)
        self.shape = array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def get_device(self) -> int:
        return self.device.index

    def is_neg(self) -> bool:
        return False

    def new_empty(self, count: int, dtype: Any) -> Tensor:
        return Tensor(aligned((count,), dtype), self.device.index)

    def as_strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        steps = [stride * self.array.itemsize for stride in strides]
        self.array = np.lib.stride_tricks.as_strided(self.array, shape, steps)
        self.shape = shape
        return self

    def detach(self) -> Tensor:
        return self

    def copy_(self, other: Tensor) -> Tensor:
        self.array[...] = other.array
        return self


Tensor.__module__ = "torch"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    result = Driver()
    entered: list[Any] = []

    @contextmanager
    def on(stream: Any) -> Iterator[None]:
        entered.append(stream)
        yield

    cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=CURRENT),
        ExternalStream=lambda handle, device: (handle, device.index),
        stream=on,
        entered=entered,
    )
    torch = SimpleNamespace(float32=np.float32, cuda=cuda, is_grad_enabled=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with standing_in(monkeypatch, result):
        yield result


def compiled(driver: Driver, tag: str = "ab") -> CompiledKernel:
    """A matmul whose launches are numpy's; what it packs stays in its order."""
    op = tw.matmul(f"{M}x{K}:{K}x{N}", src=tag, dst="ab")
    kernel = tw.compile(op, target="nvidia")
    (launch,) = kernel.code.abi.launches

    def run(value: Any) -> None:
        pointers = [ctypes.c_void_p.from_address(value(i)).value for i in range(3)]
        src, weights, dst = (
            np.ctypeslib.as_array((ctypes.c_float * (32 * 32)).from_address(p or 0)).reshape(32, 32)
            for p in pointers
        )
        dst[...] = (src if tag == "ab" else src.T) @ weights

    def pack(value: Any) -> None:
        weights, packed = (ctypes.c_void_p.from_address(value(i)).value or 0 for i in (0, 1))
        ctypes.memmove(packed, weights, 4 * K * N)

    driver.kernels[launch.entry] = run
    for packing in kernel._packs["weights"].code.abi.launches:
        driver.kernels[packing.entry] = pack
    return kernel


def data() -> tuple[np.ndarray[Any, Any], ...]:
    """Two factors and their product, and room for it."""
    rng = np.random.default_rng(0)
    arrays = [aligned((M, K), np.float32) for _ in range(3)]
    for array in arrays[:2]:
        array[...] = rng.integers(-4, 5, array.shape)
    return (*arrays, arrays[0] @ arrays[1])


def copies(driver: Driver) -> list[str]:
    result = driver.named("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")
    return [call[0][8:12] for call in result]


def streams(driver: Driver) -> set[Any]:
    """Those that kernels were launched on."""
    return {call[-3] for call in driver.named("cuLaunchKernel")}


def waits(driver: Driver) -> list[tuple[int, int]]:
    """Which stream waits for which other."""
    events = {call[1]: call[2] for call in driver.named("cuEventRecord")}
    return [(call[1], events[call[2]]) for call in driver.named("cuStreamWaitEvent")]


def synchronized(driver: Driver) -> bool:
    return bool(driver.named("cuStreamSynchronize"))


def plain(kernel: CompiledKernel, weights: Any) -> Any:
    return kernel.pack("weights", weights)


# Which arrays are taken as they are, and on which stream.


def test_tensors_on_the_device(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, Tensor(b))
    driver.calls.clear()
    result = Tensor(c)
    assert kernel(src=Tensor(a), weights=weights, dst=result) is result
    assert (c == product).all()
    # Nothing is copied, nothing waits: all of it is in the order of torch's stream.
    assert copies(driver) == []
    assert streams(driver) == {CURRENT}
    assert not synchronized(driver)
    assert {call[0] for call in driver.calls} == {
        *("cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent")
    }


def test_a_new_result_is_a_tensor_on_the_device(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, _, product = data()
    result = kernel(src=Tensor(a), weights=plain(kernel, b))
    assert isinstance(result, Tensor)
    assert result.dtype == "torch.float32"
    assert (result.array == product).all()
    # On another stream, torch is told: it reuses memory in the order of one.
    external = sys.modules["torch"].cuda.entered
    assert external == []
    result = kernel(src=Tensor(a), weights=plain(kernel, b), stream=9)
    assert (result.array == product).all()
    assert external == [(9, 0)]
    weights = plain(kernel, Interface(b))
    with pytest.raises(ArgumentError) as raised:
        kernel(src=Interface(a), weights=weights)
    assert "where only torch makes new ones for us" in str(raised.value)
    assert "pass dst=..., or out=..." in str(raised.value)


@pytest.mark.parametrize(("given", "expected"), [(7, 7), (0, 1), (2, 2)])
def test_the_streams_of_an_interface(driver: Driver, given: int, expected: int) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    driver.calls.clear()
    kernel(src=Interface(a, stream=given), weights=weights, dst=Interface(c))
    assert (c == product).all()
    assert streams(driver) == {expected}
    assert not synchronized(driver) and not waits(driver)


def test_arrays_of_no_stream(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    driver.calls.clear()
    kernel(src=Interface(a), weights=weights, dst=Interface(c))
    assert (c == product).all()
    # On a stream of ours, which nobody could wait for.
    (stream,) = streams(driver)
    assert driver.named("cuStreamSynchronize") == [("cuStreamSynchronize", stream)]
    assert copies(driver) == []
    # Before version 3, the default stream was meant.
    kernel(src=Interface(a, version=2), weights=weights, dst=Interface(c))
    assert streams(driver) == {stream, 1}


def test_capsules(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    driver.calls.clear()
    src, dst = Capsule(a), Capsule(c, kind=13)
    kernel(src=src, weights=weights, dst=dst)
    assert (c == product).all()
    # Their library makes the default stream wait for what it did, and we wait for that.
    assert src.asked == dst.asked == [1]
    (stream,) = streams(driver)
    assert waits(driver) == [(stream, 1)]
    assert synchronized(driver)
    kernel(src=src, weights=weights, dst=dst, stream=9)
    assert src.asked == [1, 9]
    assert waits(driver) == [(stream, 1)]


def test_several_streams(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    driver.calls.clear()
    kernel(src=Interface(a, stream=7), weights=weights, dst=Tensor(c))
    assert (c == product).all()
    # torch's goes first; the other waits, and is waited for.
    assert streams(driver) == {CURRENT}
    assert waits(driver) == [(CURRENT, 7), (7, CURRENT)]
    assert not synchronized(driver)
    names = [call[0] for call in driver.calls]
    assert names.index("cuStreamWaitEvent") < names.index("cuLaunchKernel")
    assert names.count("cuEventCreate") == names.count("cuEventDestroy") == 2


def test_a_stream_that_is_given(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    driver.calls.clear()
    kernel(src=Interface(a, stream=7), weights=weights, dst=Tensor(c), stream=9)
    assert (c == product).all()
    # The caller's word: nothing else is waited for, so that graphs can be captured.
    assert streams(driver) == {9}
    assert not waits(driver) and not synchronized(driver)


def test_host_and_device_in_one_call(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    driver.calls.clear()
    kernel(src=a, weights=weights, dst=Tensor(c))
    assert (c == product).all()
    assert copies(driver) == ["HtoD"]
    assert streams(driver) == {CURRENT}
    assert driver.named("cuStreamSynchronize") == [("cuStreamSynchronize", CURRENT)]
    assert len(driver.named("cuMemAllocFromPoolAsync")) == 1
    c[...] = 0
    result = kernel(src=Interface(a, stream=7), weights=weights, dst=c)
    assert result is c and (c == product).all()
    # The result as well, as a kernel may leave parts of it out.
    assert copies(driver) == ["HtoD", "HtoD", "DtoH"]


def test_host_arrays_on_a_stream(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, _, product = data()
    assert (kernel(src=a, weights=plain(kernel, b), stream=9) == product).all()
    assert 9 in streams(driver)
    assert driver.named("cuStreamSynchronize")[-1] == ("cuStreamSynchronize", 9)


def test_packed_arguments_stay_on_the_device(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    assert kernel.packed == ("weights",)
    turned = b.T.copy().T  # of the host, and of torch on the device, it is put in order
    for weights in (b, Tensor(b), Interface(b, stream=7), turned, Tensor(turned)):
        driver.calls.clear()
        packed = kernel.pack("weights", weights)
        assert packed.device == 0 and packed.pointers[0] % 256 == 0
        assert synchronized(driver)
        driver.calls.clear()
        c[...] = 0
        kernel(src=Tensor(a), weights=packed, dst=Tensor(c))
        assert (c == product).all()
        assert copies(driver) == []
    held = len(driver.memory)
    del packed
    assert len(driver.memory) == held - 1
    with pytest.raises(ArgumentError, match="weights has strides"):
        kernel.pack("weights", Interface(turned))
    host = tw.compile(kernel.what, target="x86")
    with pytest.raises(ArgumentError):
        host(src=a, weights=kernel.pack("weights", b))


def test_bound(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    call = kernel.bind(src=Interface(a, stream=7), weights=weights, dst=Tensor(c))
    driver.calls.clear()
    for _ in range(2):
        c[...] = 0
        call()
        assert (c == product).all()
    assert streams(driver) == {CURRENT}
    assert waits(driver) == [(CURRENT, 7), (7, CURRENT)] * 2
    assert not synchronized(driver)
    call = kernel.bind(src=Tensor(a), weights=weights, dst=Tensor(c), stream=9)
    call()
    assert streams(driver) == {CURRENT, 9}


def test_a_fault_on_the_device(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, _ = data()
    weights = plain(kernel, b)
    driver.failing["cuLaunchKernel"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match="start the process again"):
        kernel(src=Tensor(a), weights=weights, dst=Tensor(c))
    with pytest.raises(DeviceError, match="start the process again"):
        kernel.bind(src=Tensor(a), weights=weights, dst=Tensor(c))()


# What is refused.


@pytest.mark.parametrize(
    ("wrong", "text", "cure"),
    [
        (lambda a: Tensor(a, 1), "src is on device 1, the kernel on device 0", "x.to('cuda:0')"),
        (lambda a: Interface(a, 3), "src is on device 3, the kernel on", "CUDA_VISIBLE_DEVICES"),
        (lambda a: Capsule(a, device=1), "src is on device 1, the kernel on", "x.to('cuda:0')"),
        (
            lambda a: Tensor(aligned(a.shape, np.float32, 4)),
            "expected one aligned to 16 bytes",
            "x.clone()",
        ),
        (
            lambda a: Tensor(a.astype(ml_dtypes.bfloat16)),
            "src has bf16 elements, expected f32",
            "src.to(torch.float32)",
        ),
        (
            lambda a: Capsule(a.astype(np.float16)),
            "src has f16 elements, expected f32",
            "src.astype('float32')",
        ),
        (lambda a: Interface(a.astype("c8")), "unknown type: type '<c8'", "convert it"),
        (lambda a: Interface(a, typestr="|V0"), "unknown type: type '|V0'", "convert it"),
        (
            lambda a: Interface(a, typestr=">f4"),
            "src has elements in the other byte order, '>f4'",
            "newbyteorder",
        ),
        (
            lambda a: Tensor(a.T),
            "src has strides (1, 32) (in elements), expected (32, 1)",
            "pass src.contiguous()",
        ),
        (lambda a: Tensor(a[:16]), "src has shape (16, 32), expected (32, 32)", "of shape"),
        (lambda a: Interface(a, mask=a), "src is a masked array", ""),
        (lambda a: Interface(a, typestr="nonsense"), "faulty __cuda_array_interface__", ""),
        (lambda a: Interface(a, data=None), "faulty __cuda_array_interface__", ""),
        (lambda a: Interface(a, strides=(130, 4)), "not multiples of its 4-byte elements", ""),
    ],
)
def test_arrays_that_do_not_fit(driver: Driver, wrong: Any, text: str, cure: str) -> None:
    kernel = compiled(driver)
    a, b, c, _ = data()
    with pytest.raises(ArgumentError) as raised:
        kernel(src=wrong(a), weights=plain(kernel, b), dst=Tensor(c))
    assert text in str(raised.value)
    assert cure in str(raised.value)
    assert not driver.named("cuLaunchKernel")[1:]


def test_tensors_that_do_not_fit_after_one_that_does(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    for _ in range(2):
        c[...] = 0
        kernel(src=Tensor(a), weights=weights, dst=Tensor(c))
        assert (c == product).all()
    grad, negated = Tensor(a), Tensor(a)
    grad.requires_grad = True
    negated.is_neg = lambda: True  # type: ignore[method-assign]
    for wrong, text in (
        (Tensor(a, 1), "src is on device 1"),
        (Tensor(aligned(a.shape, np.float32, 4)), "aligned to 16 bytes"),
        (Tensor(a.astype(np.float16)), "src has f16 elements"),
        (Tensor(a.T), "src has strides"),
        (Tensor(a[:16]), "src has shape"),
        (grad, "requires grad"),
        (negated, "a lazily negated view"),
    ):
        with pytest.raises(ArgumentError, match=text):
            kernel(src=wrong, weights=weights, dst=Tensor(c))
    c[...] = 0
    kernel(src=a, weights=weights, dst=Tensor(c))
    assert (c == product).all()


def test_how_a_tensor_gets_another_layout(driver: Driver) -> None:
    kernel = compiled(driver, "ba")
    a, b, c, product = data()
    with pytest.raises(ArgumentError) as raised:
        kernel(src=Tensor(a), weights=plain(kernel, b), dst=Tensor(c))
    assert "pass src.permute(1, 0).contiguous().permute(1, 0)" in str(raised.value)
    kernel(src=Tensor(np.asfortranarray(a)), weights=plain(kernel, b), dst=Tensor(c))
    assert (c == product).all()


def test_results_that_cannot_be_written(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, _ = data()
    weights = plain(kernel, b)
    c.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only memory"):
        kernel(src=Tensor(a), weights=weights, dst=Interface(c))
    with pytest.raises(ArgumentError, match="shares memory with"):
        kernel(src=Tensor(a), weights=weights, dst=Tensor(a))
    with pytest.raises(ArgumentError, match="'src' is missing"):
        kernel(weights=weights, dst=Tensor(b))
    with pytest.raises(ArgumentError, match="no argument 'source'"):
        kernel(source=Tensor(a), src=Tensor(a), weights=weights, dst=Tensor(b))


def test_weights_of_another_device(driver: Driver) -> None:
    kernel = compiled(driver)
    a, b, c, _ = data()
    driver.calls.clear()
    with pytest.raises(ArgumentError, match="weights is on device 1"):
        kernel.pack("weights", Tensor(b, 1))
    packed = kernel.pack("weights", b)
    object.__setattr__(packed, "device", 1)
    with pytest.raises(ArgumentError, match="weights is on device 1"):
        kernel(src=Tensor(a), weights=packed, dst=Tensor(c))
    with pytest.raises(ArgumentError, match="weights is not packed"):
        kernel(src=Tensor(a), weights=Tensor(b), dst=Tensor(c))


def test_a_kernel_of_the_host_takes_none_of_it() -> None:
    kernel = tw.compile(tw.matmul(f"{M}x{K}:{K}x{N}"), target="x86")
    a, b, _, _ = data()
    weights = kernel.pack("weights", b)
    for array in (Interface(a), Capsule(a), Tensor(a)):
        with pytest.raises(ArgumentError, match=r"not in the CPU's memory|on device"):
            kernel(src=array, weights=weights)
    with pytest.raises(ArgumentError, match="there are no streams for x86"):
        kernel(src=a, weights=weights, stream=1)
    with pytest.raises(ArgumentError, match="there are no streams for x86"):
        kernel.bind(src=a, weights=weights, stream=1)


# Streams and arrays by themselves.


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (7, 7),
        (0, 1),
        (SimpleNamespace(cuda_stream=9), 9),
        (SimpleNamespace(ptr=0), 1),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 11)), 11),
        (SimpleNamespace(__cuda_stream__=(0, 12)), 12),
    ],
)
def test_stream_handles(stream: Any, handle: int) -> None:
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("stream", ["7", 7.0, True, object(), SimpleNamespace(ptr=None), -1])
def test_what_is_no_stream(stream: Any) -> None:
    with pytest.raises(ArgumentError, match=r"stream is no stream but|is no handle"):
        stream_handle(stream)


def test_arrays_of_bf16() -> None:
    # An interface has no name for bf16; DLPack has, where an array speaks both.
    array = aligned((4, 4), np.float16)

    class Both(Capsule):
        __cuda_array_interface__ = Interface(array, typestr="<V2").__cuda_array_interface__

        def __dlpack__(self, **options: Any) -> Any:
            capsule = super().__dlpack__(**options)
            address = dlpack._pointer(capsule, b"dltensor_versioned")
            dlpack._Versioned.from_address(address).tensor.code = 4
            return capsule

    result = describe_resident(Both(array), "x", 5)
    assert result is not None
    assert (result.info.dtype, result.device, result.stream, result.waiting) == (bf16, 0, None, 5)
    with pytest.raises(ArgumentError, match="unknown type"):
        describe_resident(Interface(array, typestr="<V2"), "x")


def test_an_interface_that_its_library_refuses() -> None:
    class Refusing(Capsule):
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("not for this type")

    result = describe_resident(Refusing(aligned((4,), np.float32)), "x")
    assert result is not None and result.waiting == 1


def test_tensors_without_memory(driver: Driver) -> None:
    """In the fast path as well, and before torch is asked for a result like them."""

    class Wrapped(Tensor):
        def data_ptr(self) -> int:
            raise RuntimeError("doesn't have storage")

        def new_empty(self, count: int, dtype: Any) -> Tensor:
            raise RuntimeError("not while tracing")

    class Empty(Tensor):
        def data_ptr(self) -> int:
            return 0

        def numel(self) -> int:
            return self.array.size

    kernel = compiled(driver)
    a, b, c, product = data()
    weights = plain(kernel, b)
    for _ in range(2):
        for kind in (Wrapped, Empty):
            with pytest.raises(ArgumentError, match="src has no memory"):
                kernel(src=kind(a), weights=weights, dst=Tensor(c))
            with pytest.raises(ArgumentError, match="src has no memory"):
                kernel(src=kind(a), weights=weights)
            with pytest.raises(ArgumentError, match="src has no memory"):
                kernel.bind(src=kind(a), weights=weights, dst=Tensor(c))
        tensor = Tensor(a)
        kernel(src=tensor, weights=weights, dst=Tensor(c))
        assert (c == product).all()
    # One that was taken before.
    tensor.data_ptr = lambda: 0  # type: ignore[method-assign]
    tensor.numel = lambda: 1  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match="src has no memory"):
        kernel(src=tensor, weights=weights, dst=Tensor(c))


def test_what_is_not_on_a_device() -> None:
    a = np.zeros(3)
    for array in (a, Capsule(a, kind=1), Capsule(a, kind=3), memoryview(a), 3):
        assert not is_resident(array, "x")
        assert describe_resident(array, "x") is None

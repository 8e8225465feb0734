"""NVIDIA GPUs that are here, by CUDA's driver (package ``cuda-bindings``)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tilewright.errors import DeviceError

INSTALL = "pip install 'tilewright[nvidia]', and NVIDIA's driver"


@dataclass(frozen=True)
class Device:
    """A GPU as the driver reports it. ``shared`` are the bytes that a workgroup can have at most;
    ``handle`` is the driver's number of it."""

    name: str
    capability: tuple[int, int]
    cores: int
    workgroup: int
    shared: int
    handle: Any = field(repr=False)

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name} (compute capability {major}.{minor})"

    @contextmanager
    def current(self) -> Iterator[None]:
        """Calls of the driver meanwhile, in this thread, are for this device."""
        ask("cuCtxPushCurrent", _context(self.handle))
        try:
            yield
        finally:
            ask("cuCtxPopCurrent")


@cache
def load_cuda() -> Any:
    """The module ``cuda.bindings.driver``, or None where it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    return driver


def ask(function: str, *arguments: Any) -> Any:
    """What the driver's ``function`` gives. Raises `DeviceError` with what the driver says."""
    cuda = load_cuda()
    try:
        status, *values = getattr(cuda, function)(*arguments)
    except (RuntimeError, AttributeError) as error:
        # The library of the driver is not there, or has no such function.
        raise DeviceError(
            "NVIDIA's driver cannot be used",
            where=function,
            why=str(error),
            cure="install or update the driver; `nvidia-smi` shows it",
        ) from error
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise DeviceError(
            "NVIDIA's driver reports an error", where=function, why=_text(cuda, status)
        )
    return values[0] if len(values) == 1 else tuple(values)


def _text(cuda: Any, status: Any) -> str:
    """The name of an error, and the driver's words for it."""
    _, words = cuda.cuGetErrorString(status)
    name = getattr(status, "name", str(status))
    return f"{name}: {words.decode()}" if words else name


@cache
def _found() -> tuple[tuple[Device, ...], str]:
    """The devices, in the driver's order, and why there are none."""
    _first_process()
    cuda = load_cuda()
    if cuda is None:
        return (), "cuda-bindings is not installed"
    try:
        ask("cuInit", 0)
        devices = tuple(_describe(cuda, each) for each in range(ask("cuDeviceGetCount")))
    except DeviceError as error:
        return (), (error.why or error.what).rstrip(".")
    return devices, "" if devices else "the driver finds no device"


def devices() -> tuple[Device, ...]:
    """The devices that are here; none without a driver."""
    return _found()[0]


def why_none() -> str:
    """Why there is no device."""
    return _found()[1]


def _describe(cuda: Any, number: int) -> Device:
    handle = ask("cuDeviceGet", number)
    kinds = cuda.CUdevice_attribute

    def attribute(name: str) -> int:
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(ask("cuDeviceGetAttribute", kind, handle))

    name: bytes = ask("cuDeviceGetName", 256, handle)
    return Device(
        name=name.partition(b"\0")[0].decode(),
        capability=(
            attribute("COMPUTE_CAPABILITY_MAJOR"),
            attribute("COMPUTE_CAPABILITY_MINOR"),
        ),
        cores=attribute("MULTIPROCESSOR_COUNT"),
        workgroup=attribute("MAX_THREADS_PER_BLOCK"),
        shared=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        handle=handle,
    )


@cache
def _context(handle: Any) -> Any:
    """The context that all libraries of this process share."""
    return ask("cuDevicePrimaryCtxRetain", handle)


def find_device() -> Device:
    """The first device. Raises `DeviceError` where there is none."""
    check_process()
    if not devices():
        raise DeviceError("there is no NVIDIA GPU", why=why_none(), cure=INSTALL)
    return devices()[0]


# CUDA does not work in the child of a fork whose parent has used it.


@cache
def _first_process() -> int:
    """The process that looked for devices."""
    return os.getpid()


def check_process() -> None:
    """Raises `DeviceError` in the child of a fork whose parent has used CUDA."""
    if _found.cache_info().currsize and _first_process() != os.getpid():
        raise DeviceError(
            "CUDA was in use when this process was forked",
            why="its state stays with the parent",
            cure="start processes by spawn (multiprocessing.get_context('spawn')), or let only the "
            "children run kernels",
        )

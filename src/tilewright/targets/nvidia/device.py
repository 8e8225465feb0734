"""NVIDIA GPUs of this machine, by CUDA's driver (package ``cuda-bindings``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tilewright.errors import DeviceError

INSTALL = "pip install 'tilewright[nvidia]', and NVIDIA's driver"
_DRIVER = "install or update the driver; `nvidia-smi` shows it"
_HIDDEN = "look for it with `nvidia-smi`; CUDA_VISIBLE_DEVICES hides those that it does not name"
# Required by packages of CUDA 12 and later, clusters and tensor maps.
_LEAST_DRIVER = 12000

# Cures for errors, by a pattern of their names.
_CURES = (
    (
        "OUT_OF_MEMORY",
        "choose a smaller problem, or free memory of the device, also what other libraries keep "
        "(torch.cuda.empty_cache())",
    ),
    ("NO_DEVICE", _HIDDEN),
    ("DRIVER|NOT_FOUND|NOT_SUPPORTED|UNSUPPORTED_PTX|NO_BINARY|JIT_COMPILER", _DRIVER),
    ("CAPTURE", "while a graph is captured, pass arrays on the device only, and the stream"),
    (
        "INVALID_(HANDLE|CONTEXT)",
        "pass a stream of this device, one that still exists; after a reset of the device, start "
        "the process again",
    ),
    (
        "ILLEGAL|MISALIGNED|LAUNCH_(FAILED|TIMEOUT)|HARDWARE|INVALID_(PC|ADDRESS)|ECC|ASSERT",
        "start the process again, as the device forgets all of it after a fault; if this kernel "
        "did it, it is a defect of Tilewright: `tilewright check` looks for it without the device",
    ),
)


@dataclass(frozen=True)
class Device:
    """A GPU as the driver reports it. ``shared`` are the bytes that a workgroup can have at most;
    ``pools``: it can allocate in the order of a stream (some virtual ones cannot); ``number`` is
    its number in all libraries of this process, ``handle`` the driver's handle."""

    name: str
    capability: tuple[int, int]
    cores: int
    workgroup: int
    shared: int
    pools: bool
    number: int
    handle: Any = field(repr=False)

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name} (compute capability {major}.{minor})"

    @contextmanager
    def current(self) -> Iterator[None]:
        """Directs the driver's calls of this thread to this device, in the ``with`` block."""
        ask("cuCtxPushCurrent", _context(self.handle))
        try:
            yield
        finally:
            ask("cuCtxPopCurrent")


@cache
def load_cuda() -> Any:
    """The module ``cuda.bindings.driver``, or None if it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    return driver


def ask(function: str, *arguments: Any) -> Any:
    """The result of the driver's ``function``. Raises `DeviceError` with the driver's message."""
    cuda = load_cuda()
    try:
        status, *values = getattr(cuda, function)(*arguments)
    except (RuntimeError, AttributeError) as error:
        # The driver's library is missing, or has no such function.
        raise DeviceError(
            "NVIDIA's driver cannot be used", where=function, why=str(error), cure=_DRIVER
        ) from error
    check_status(status, function)
    return values[0] if len(values) == 1 else tuple(values)


def check_status(status: Any, function: str, subject: str = "") -> None:
    """Raises `DeviceError` unless ``function`` (for ``subject``) succeeded."""
    cuda = load_cuda()
    if status == cuda.CUresult.CUDA_SUCCESS:
        return
    _, message = cuda.cuGetErrorString(status)
    name: str = getattr(status, "name", str(status))
    raise DeviceError(
        "NVIDIA's driver reports an error" + (f" for the {subject}" if subject else ""),
        where=function,
        why=f"{name}: {message.decode()}" if message else name,
        cure=next((cure for names, cure in _CURES if re.search(names, name)), None),
    )


@cache
def driver_version() -> int:
    """The driver's release of CUDA: 12080 is 12.8."""
    return int(ask("cuDriverGetVersion"))


def driver_release() -> str:
    """The same in words: ``CUDA 12.8``."""
    return f"CUDA {driver_version() // 1000}.{driver_version() % 1000 // 10}"


@cache
def _search() -> tuple[tuple[Device, ...], str, str]:
    """The devices, in the driver's order; why there are none; and what to do about it."""
    _first_process()
    cuda = load_cuda()
    if cuda is None:
        return (), "cuda-bindings is not installed", INSTALL
    try:
        ask("cuInit", 0)
        if driver_version() < _LEAST_DRIVER:
            return (), f"the driver is for {driver_release()}, older than 12.0", _DRIVER
        devices = tuple(_describe(cuda, number) for number in range(ask("cuDeviceGetCount")))
    except DeviceError as error:
        return (), (error.why or error.what).rstrip("."), error.cure or _DRIVER
    return devices, "" if devices else "the driver finds no device", _HIDDEN


def devices() -> tuple[Device, ...]:
    """The devices of this machine; none without a driver."""
    return _search()[0]


def why_none() -> tuple[str, str]:
    """The reason why there is no device, and the cure."""
    return _search()[1:]


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
        pools=bool(attribute("MEMORY_POOLS_SUPPORTED")),
        number=number,
        handle=handle,
    )


@cache
def _context(handle: Any) -> Any:
    """The context that all libraries of this process share."""
    return ask("cuDevicePrimaryCtxRetain", handle)


def find_device() -> Device:
    """The first device. Raises `DeviceError` if there is none."""
    check_process()
    if not devices():
        why, cure = why_none()
        raise DeviceError("there is no NVIDIA GPU", why=why, cure=cure)
    return devices()[0]


# CUDA does not work in the child of a fork whose parent has used it.


@cache
def _first_process() -> int:
    """The process that first looked for devices."""
    return os.getpid()


def check_process() -> None:
    """Raises `DeviceError` in the child of a fork whose parent has used CUDA."""
    if _search.cache_info().currsize and _first_process() != os.getpid():
        raise DeviceError(
            "CUDA was in use when this process was forked",
            why="its state stays with the parent",
            cure="start processes by spawn (multiprocessing.get_context('spawn')), or let only the "
            "children run kernels",
        )

"""OpenCL devices that take SPIR-V: finding them, and contexts to run on them.

The system's devices are found as usual. The packages of the extra ``opencl`` add the processor
itself; but their file for OpenCL's loader names a path of another machine, and the library does not
find those that it depends on. Both are repaired here.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import site
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.config import opencl_vendors, settings
from tilewright.errors import DeviceError

_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
_LIBRARY = "libintelocl.so"
# In the order of their dependences.
_NEEDED = ("libintlc.so.5", "libirng.so", "libsvml.so", "libimf.so")
INSTALL = "pip install 'tilewright[opencl]', which brings a device: the processor itself"

_contexts = threading.Lock()


@dataclass(frozen=True)
class Device:
    """A device as OpenCL reports it. ``shared`` is in bytes, ``driver`` the version of its compiler
    and runtime; ``handle`` is pyopencl's.

    ``shares_memory``: kernels take pointers to the host's memory (fine-grained system sharing).
    """

    name: str
    platform: str
    kind: str
    cores: int
    workgroup: int
    shared: int
    shares_memory: bool
    driver: str
    handle: Any = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.platform})"

    def context(self, threads: int) -> tuple[Any, Any]:
        """A context on ``threads`` of a processor's cores, and the device in it; on all cores if
        the device cannot be divided. Raises `DeviceError`."""
        check_process()
        cores = min(threads, self.cores) if self.kind == "cpu" else self.cores
        try:
            with _contexts:
                return _context(self, cores)
        except load_opencl().Error as error:
            raise DeviceError(
                f"{self} cannot be used",
                why=str(error),
                cure="choose another device with the setting TILEWRIGHT_OPENCL_DEVICE",
            ) from error


@cache
def _context(device: Device, cores: int) -> tuple[Any, Any]:
    cl = load_opencl()
    handle = device.handle
    if cores < device.cores:
        by_counts = cl.device_partition_property.BY_COUNTS
        with suppress(cl.Error):
            (handle,) = handle.create_sub_devices([by_counts, cores])
    return cl.Context([handle]), handle


@cache
def load_opencl() -> Any:
    """The module ``pyopencl``, or None if it is not installed."""
    folder = next((path for path in _library_folders() if (path / _LIBRARY).exists()), None)
    if folder is not None:
        for name in _NEEDED:
            with suppress(OSError):
                ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    try:
        import pyopencl as cl
    except ImportError:
        return None
    with tempfile.TemporaryDirectory(prefix="tilewright-opencl-") as vendors:
        for file in _SYSTEM_VENDORS.glob("*.icd"):
            with suppress(OSError):
                shutil.copy(file, vendors)
        if folder is not None:
            # Its name sorts after those of the system, whose devices come first.
            Path(vendors, "zz-tilewright.icd").write_text(str(folder / _LIBRARY))
        # The loader reads the folder at the first query.
        with opencl_vendors(Path(vendors)), suppress(cl.Error):
            cl.get_platforms()
    return cl


def _library_folders() -> list[Path]:
    return [Path(prefix) / "lib" for prefix in (sys.prefix, site.getuserbase())]


@cache
def devices() -> tuple[Device, ...]:
    """The devices that take SPIR-V, in OpenCL's order; none without pyopencl."""
    cl = load_opencl()
    takers: list[Device] = []
    if cl is not None:
        with suppress(cl.Error):
            for platform in cl.get_platforms():
                with suppress(cl.Error):
                    handles = platform.get_devices()
                    takers += [_describe(cl, handle) for handle in handles if _takes(cl, handle)]
    _first_process()
    return tuple(takers)


def _takes(cl: Any, handle: Any) -> bool:
    """Whether a device takes SPIR-V; old ones lack the query."""
    try:
        return "SPIR-V" in handle.il_version
    except (cl.Error, AttributeError):
        return False


def _describe(cl: Any, handle: Any) -> Device:
    shares = False
    with suppress(cl.Error):
        system = cl.device_svm_capabilities.FINE_GRAIN_SYSTEM
        shares = bool(handle.svm_capabilities & system)
    return Device(
        name=handle.name.strip(),
        platform=handle.platform.name.strip(),
        kind="cpu" if handle.type & cl.device_type.CPU else "gpu",
        cores=handle.max_compute_units,
        workgroup=min(handle.max_work_group_size, handle.max_work_item_sizes[0]),
        shared=handle.local_mem_size,
        shares_memory=shares,
        driver=handle.driver_version.strip(),
        handle=handle,
    )


def why_none() -> str:
    """The reason why there is no device."""
    missing = load_opencl() is None
    return "pyopencl is not installed" if missing else "OpenCL finds none that takes SPIR-V"


def find_device(text: str = "") -> Device:
    """The first device with ``text`` in its own or its platform's name, in any case.

    By default the text is the setting ``TILEWRIGHT_OPENCL_DEVICE``. Raises `DeviceError` with the
    list of devices if there is none.
    """
    check_process()
    name = text or settings().opencl_device
    available = devices()
    if not available:
        raise DeviceError("there is no OpenCL device", why=why_none(), cure=INSTALL)
    for device in available:
        if name.lower() in str(device).lower():
            return device
    raise DeviceError(
        f"there is no OpenCL device {name!r}",
        where="the target" if text else "environment variable TILEWRIGHT_OPENCL_DEVICE",
        cure="choose one of " + ", ".join(map(str, available)) + "; a part of the name will do",
    )


# The threads and locks of OpenCL's libraries do not work in the child of a fork.


@cache
def _first_process() -> int:
    """The process that first looked for devices."""
    return os.getpid()


def check_process() -> None:
    """Raises `DeviceError` in the child of a fork whose parent has used OpenCL."""
    if devices.cache_info().currsize and _first_process() != os.getpid():
        raise DeviceError(
            "OpenCL was in use when this process was forked",
            why="its threads and locks stay with the parent",
            cure="start processes by spawn (multiprocessing.get_context('spawn')), or let only the "
            "children run kernels",
        )

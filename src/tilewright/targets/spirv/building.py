"""SPIR-V to a device's native code: by its compiler in this process, or in a child process.

Intel's compiler refuses some modules, and crashes on others. So users' modules are compiled in a
child process, and this one only loads the result.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tilewright.errors import CompilationError
from tilewright.newest import Newest
from tilewright.targets.child_process import ChildProcess, NotStartedError, kept
from tilewright.targets.llvm.emitter import DONE, FAILED, serve
from tilewright.targets.spirv.device import Device, devices, load_opencl

_MAGIC = b"\x03\x02\x23\x07"
_builder = ChildProcess(
    lambda: "from tilewright.targets.spirv.building import main; main()", "the device's compiler"
)
# Code from the child process, until a program takes it.
_ready: Newest[tuple[Device, bytes], bytes] = Newest(16)


class RefusedError(Exception):
    """The device's compiler refuses the module."""


def begin() -> None:
    """Starts the child process without waiting for it, unless it runs already."""
    _builder.begin()


def build_apart(device: Device, binary: bytes, entry: str) -> None:
    """Compiles in the child process; `native_code` then gives the result. Raises
    `CompilationError` if the device refuses the module, or its compiler crashes."""
    data = devices().index(device).to_bytes(4, "little") + binary
    try:
        status, reply = _builder.ask(b"b", data)
    except NotStartedError:
        return
    if status != DONE:
        raise refusal(device, binary, entry, reply.decode(errors="replace"))
    _ready[device, binary] = reply


def native_code(device: Device, context: Any, handle: Any, binary: bytes) -> bytes:
    """The device's native code. Raises `RefusedError`."""
    code = _ready.get((device, binary))
    return _built(context, handle, binary) if code is None else code


def _built(context: Any, handle: Any, binary: bytes) -> bytes:
    cl = load_opencl()
    # Intel's library crashes on data that is not SPIR-V.
    if binary[:4] != _MAGIC or len(binary) % 4:
        raise RefusedError("it is not SPIR-V")
    program = cl.Program(context, binary)
    try:
        program.compile()
        linked = cl.link_program(context, [program])
        (native,) = linked.get_info(cl.program_info.BINARIES)
        return bytes(native)
    except cl.Error as error:
        log = ""
        with suppress(cl.Error):
            log = program.get_build_info(handle, cl.program_build_info.LOG)
        raise RefusedError("\n".join(filter(None, (str(error), log.strip())))) from error


def refusal(device: Device, binary: bytes, entry: str, why: str) -> CompilationError:
    """The error for a module that the device refuses, with the name of a file that holds it."""
    return CompilationError(
        f"{device} refused the generated code of {entry}",
        where=kept(binary, ".spv"),
        why=why,
        cure="this is a defect of Tilewright: report it with that file and the device, or compile "
        "for another target",
    )


def main() -> None:
    """Serves requests until stdin ends."""
    serve(_answer)


def _answer(kind: bytes, data: bytes) -> tuple[bytes, bytes]:
    del kind
    device = devices()[int.from_bytes(data[:4], "little")]
    context, handle = device.context(device.cores)
    try:
        return DONE, _built(context, handle, data[4:])
    except RefusedError as error:
        return FAILED, str(error).encode()

"""The process that emits SPIR-V: it has LLVM loaded, and forks a child for each module.

LLVM's SPIR-V backend keeps state for the whole process under the addresses of objects that are
gone. From the second module on, its output is now and then malformed. The first one of a process
is always right, and the same each time. So this process never emits itself.

Run as a program, it serves requests on stdin until that ends: a byte (``o`` for the binary, ``a``
for text), the length of the LLVM IR in 8 bytes, and the IR. The reply on stdout: a byte (``=`` for
the result, ``!`` for an error), a length, and the result or the message. It imports nothing of the
package, which would take longer to load than all the rest.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from typing import IO

import llvmlite.binding as llvm

TRIPLE = "spirv64-unknown-unknown"
DONE, FAILED = b"=", b"!"


def main() -> None:
    """Serves requests until stdin ends."""
    # An interrupt is for whoever asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Loop strength reduction counts in integers of 4 bits, say, which the backend makes 8 without
    # regard for what wraps. Our loops advance pointers themselves.
    llvm.set_option("tilewright", "-disable-lsr")
    while kind := sys.stdin.buffer.read(1):
        text = receive(sys.stdin.buffer)
        status, reply = _in_child(kind, text)
        send(sys.stdout.buffer, status, reply)


def send(stream: IO[bytes], kind: bytes, data: bytes) -> None:
    """Writes one request or reply."""
    stream.write(kind + len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """The data of a request or reply, of which the first byte is read. Raises `EOFError`."""
    head = stream.read(8)
    data = stream.read(int.from_bytes(head, "little")) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < int.from_bytes(head, "little"):
        raise EOFError
    return data


def _in_child(kind: bytes, text: bytes) -> tuple[bytes, bytes]:
    """Status and reply of a child that does nothing else."""
    source, sink = os.pipe()
    # Where LLVM writes before it ends the process.
    with tempfile.TemporaryFile() as complaints:
        child = os.fork()
        if child == 0:
            os.close(source)
            os.dup2(complaints.fileno(), 2)
            _emit(sink, kind, text)
        os.close(sink)
        with open(source, "rb") as stream:
            reply = stream.read()
        _, status = os.waitpid(child, 0)
        complaints.seek(0)
        said = complaints.read()
    if os.waitstatus_to_exitcode(status) == 0:
        return reply[:1], reply[1:]
    ending = f"LLVM ended its process ({os.waitstatus_to_exitcode(status)})\n"
    return FAILED, ending.encode() + said


def _emit(sink: int, kind: bytes, text: bytes) -> None:
    """Writes status and reply to ``sink``, and ends the process."""
    try:
        with open(sink, "wb") as stream:
            try:
                stream.write(DONE + _emitted(kind, text.decode()))
            except RuntimeError as error:
                stream.write(FAILED + str(error).encode())
        os._exit(0)
    finally:
        os._exit(1)


def _emitted(kind: bytes, text: str) -> bytes:
    """What LLVM makes of a module. Raises `RuntimeError`."""
    module = llvm.parse_assembly(text)
    module.verify()
    # Code generation looks for no function that a kernel does not call.
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(opt=1)
    if kind == b"o":
        code: bytes = machine.emit_object(module)
        return code
    assembly: str = machine.emit_assembly(module)
    return assembly.encode()


if __name__ == "__main__":
    main()

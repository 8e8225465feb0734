"""The process that runs LLVM for another one (`targets.child_process`).

Run as a program, it serves requests on stdin until that ends. A request is a byte (``o`` for object
code, ``a`` for text), the length in 8 bytes, and the data: the target machine (JSON), a zero byte,
and LLVM IR. A byte on stdout says that it is ready. A reply is a byte (``=`` for the result, ``!``
for an error), a length, and the result or the message. It imports nothing of the package, which
would take longer to load than all the rest.

With the argument ``fork`` it forks a child for each module. LLVM's SPIR-V backend keeps state for
the whole process under the addresses of freed objects: from the second module on, its output is
sometimes malformed. The first output of a process is always right and the same, so a new child
emits each module, which takes about 10 ms more.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from typing import IO, Any

import llvmlite.binding as llvm

READY, DONE, FAILED = b"+", b"=", b"!"


def main(forks: bool) -> None:
    """Serves requests until stdin ends."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # for inline assembly
    # Loop strength reduction may count in integers of, say, 4 bits, which the SPIR-V backend widens
    # to 8 without regard for wrapping. Our loops advance pointers themselves.
    llvm.set_option("tilewright", "-disable-lsr")
    serve(_in_child if forks else _here)


def serve(answer: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
    """Answers requests, each a kind and data, with a status and data, until stdin ends."""
    # An interrupt is meant for the process that asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    while kind := sys.stdin.buffer.read(1):
        send(sys.stdout.buffer, *answer(kind, receive(sys.stdin.buffer)))


def send(stream: IO[bytes], kind: bytes, data: bytes) -> None:
    """Writes one request or reply."""
    stream.write(kind + len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """The data of a request or reply, after its first byte. Raises `EOFError`."""
    head = stream.read(8)
    data = stream.read(int.from_bytes(head, "little")) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < int.from_bytes(head, "little"):
        raise EOFError
    return data


def request(ir_text: str, triple: str, **machine: Any) -> bytes:
    """The data of a request; ``machine`` are the arguments of LLVM's target machine."""
    return json.dumps([triple, machine]).encode() + b"\0" + ir_text.encode()


def _here(kind: bytes, data: bytes) -> tuple[bytes, bytes]:
    try:
        return DONE, _emitted(kind, data)
    except RuntimeError as error:
        return FAILED, str(error).encode()


def _in_child(kind: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Status and reply of a child that serves this request only."""
    source, sink = os.pipe()
    # LLVM writes messages there before it ends the process.
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            os.close(source)
            os.dup2(log.fileno(), 2)
            _emit(sink, kind, data)
        os.close(sink)
        with open(source, "rb") as stream:
            reply = stream.read()
        _, status = os.waitpid(child, 0)
        log.seek(0)
        messages = log.read()
    if os.waitstatus_to_exitcode(status) == 0:
        return reply[:1], reply[1:]
    ending = f"LLVM ended its process ({os.waitstatus_to_exitcode(status)})\n"
    return FAILED, ending.encode() + messages


def _emit(sink: int, kind: bytes, data: bytes) -> None:
    """Writes status and reply to ``sink``, and ends the process."""
    try:
        with open(sink, "wb") as stream:
            stream.write(b"".join(_here(kind, data)))
        os._exit(0)
    finally:
        os._exit(1)


def _emitted(kind: bytes, data: bytes) -> bytes:
    """The object code or text that LLVM makes of a module. Raises `RuntimeError`."""
    head, _, text = data.partition(b"\0")
    # A new context for each module: the global one keeps every type and constant.
    context = llvm.create_context()
    try:
        with llvm.parse_assembly(text.decode(), context) as module:
            module.verify()
            # No library info is needed: code generation adds no calls of library functions.
            machine = _machine(head)
            if kind == b"o":
                code: bytes = machine.emit_object(module)
                return code
            assembly: str = machine.emit_assembly(module)
            return assembly.encode()
    finally:
        context.close()


@cache
def _machine(head: bytes) -> Any:
    triple, machine = json.loads(head)
    return llvm.Target.from_triple(triple).create_target_machine(**machine)


if __name__ == "__main__":
    main("fork" in sys.argv[1:])

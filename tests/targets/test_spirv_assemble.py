"""LLVM IR to SPIR-V, in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tilewright.errors import CompilationError
from tilewright.ir.parser import parse_kernel
from tilewright.machines import spirv
from tilewright.targets.child_process import ChildProcess
from tilewright.targets.llvm import emitter
from tilewright.targets.llvm.emitter import request
from tilewright.targets.llvm.emitter_client import program_of
from tilewright.targets.spirv import assemble as module
from tilewright.targets.spirv.assemble import assemble, assembly
from tilewright.targets.spirv.lower import TRIPLE, lower_launches

MAGIC = (0x07230203).to_bytes(4, "little")


def ir(name: str, extent: int = 8) -> str:
    text = f"""kernel {name}(
    inout x: f32[{extent * 16}],
    out y: f32[{extent * 16}],
):
  grid for g in {extent}:
    alloc s: f32[16] workgroup
    lane for l in 16:
      s[l] = x[g * 16 + l]
      barrier()
      y[g * 16 + l] = exp(s[15 - l])
"""
    return lower_launches(parse_kernel(text), spirv.machine("cpu")).text


@pytest.fixture
def fresh() -> Iterator[ChildProcess]:
    """An emitter of the test's own."""
    own = ChildProcess(partial(program_of, "fork"), "LLVM")
    yield own
    own.close()


def process_of(own: ChildProcess) -> subprocess.Popen[bytes]:
    assert own._process is not None
    return own._process


def test_the_same_bytes_each_time(fresh: ChildProcess) -> None:
    texts = [ir(f"k{n}", n) for n in range(1, 6)]
    first = [assemble(text) for text in texts]
    assert all(code.startswith(MAGIC) for code in first)
    for _ in range(5):
        assert [assemble(text) for text in texts] == first
    assert [fresh.ask(b"o", request(text, TRIPLE, opt=1)) for text in texts] == [
        (b"=", code) for code in first
    ]


def test_the_text_form() -> None:
    text = assembly(ir("named"))
    assert "OpEntryPoint Kernel" in text
    assert "OpControlBarrier" in text
    assert "OpExecutionMode" in text and "LocalSize 16 1 1" in text


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="has no spirv-val")
def test_the_module_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "k.spv"
    file.write_bytes(assemble(ir("valid")))
    subprocess.run(["spirv-val", file], check=True)


def refused(text: str) -> CompilationError:
    with pytest.raises(CompilationError) as raised:
        assemble(text)
    error = raised.value
    assert error.what == "LLVM refused the generated code"
    assert isinstance(error.where, str)
    kept = Path(error.where)
    assert kept.read_text(encoding="utf-8") == text
    kept.unlink()
    return error


def test_what_does_not_parse_is_kept() -> None:
    error = refused("define void @f() { nonsense }")
    assert error.why is not None and "expected instruction opcode" in error.why
    assert error.cure is not None and "the target, SPIR-V" in error.cure


def test_what_ends_llvm_ends_no_more() -> None:
    """LLVM ends its process on what it cannot select."""
    error = refused(
        "define spir_kernel void @f(ptr addrspace(1) %p, i1 %b) {\n"
        "  %v = load <5 x i37>, ptr addrspace(1) %p\n"
        "  %w = mul <5 x i37> %v, %v\n"
        "  store <5 x i37> %w, ptr addrspace(1) %p\n"
        "  ret void\n"
        "}\n"
    )
    assert error.why is not None and error.why.startswith("LLVM ended its process (")
    assert assemble(ir("after")).startswith(MAGIC)


def test_an_unknown_intrinsic() -> None:
    error = refused(
        "declare void @llvm.no.such.thing()\n"
        "define spir_kernel void @f() {\n"
        "  call void @llvm.no.such.thing()\n"
        "  ret void\n"
        "}\n"
    )
    assert error.why is not None and "llvm.no.such.thing" in error.why


def test_a_killed_emitter_is_started_again(fresh: ChildProcess) -> None:
    text = request(ir("again"), TRIPLE, opt=1)
    wanted = fresh.ask(b"o", text)
    first = process_of(fresh)
    first.kill()
    first.wait()
    assert fresh.ask(b"o", text) == wanted
    assert process_of(fresh) is not first


def test_an_emitter_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_emitter", ChildProcess(lambda: "raise SystemExit", "LLVM"))
    with pytest.raises(CompilationError) as raised:
        assemble("")
    assert str(raised.value) == (
        "the process that emits SPIR-V ended\n"
        "  why: it was killed, or cannot run\n"
        f"  cure: run `{sys.executable} {emitter.__file__}` to see whether it starts"
    )


def test_an_interrupt_is_not_for_the_emitter(fresh: ChildProcess) -> None:
    text = request(ir("interrupted"), TRIPLE, opt=1)
    wanted = fresh.ask(b"o", text)
    process = process_of(fresh)
    process.send_signal(signal.SIGINT)
    assert fresh.ask(b"o", text) == wanted
    assert process_of(fresh) is process


def test_from_several_threads() -> None:
    texts = [ir(f"t{n}", n + 1) for n in range(4)]
    wanted = [assemble(text) for text in texts]
    result: list[list[bytes]] = [[] for _ in texts]

    def work(number: int) -> None:
        result[number] = [assemble(texts[number]) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result == [[code] * 5 for code in wanted]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_each_has_its_own() -> None:
    text = ir("forked")
    wanted = assemble(text)
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(sink, b"=" if assemble(text) == wanted else b"!")
            module._emitter.close()
        finally:
            os._exit(0)
    os.close(sink)
    # The parent's emitter serves on while the child has one too.
    assert assemble(text) == wanted
    with open(source, "rb") as stream:
        assert stream.read() == b"="
    os.waitpid(child, 0)
    assert assemble(text) == wanted


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_ends_with_its_parent() -> None:
    code = (
        "from tilewright.targets.spirv import assemble as m\n"
        "m._emitter.ask(b'o', b'')\n"
        "print(m._emitter._process.pid, flush=True)\n"
        "import os\n"
        "os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    deadline = time.monotonic() + 60
    while _runs(int(done.stdout)):
        assert time.monotonic() < deadline, "it runs on"
        time.sleep(0.1)
    assert not _runs(int(done.stdout))

"""PTX to cubin by ptxas, where it is here; the target's files; what a kernel says of its code."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from assembly import lowered
from commands import Command
from device_kernels import TURN
from skips import lacking
from test_nvidia_lower import AHEAD
from tilewright.engine.compile import compile_kernel
from tilewright.engine.cost import cost_of
from tilewright.engine.request import request_of
from tilewright.engine.trace import Trace
from tilewright.errors import CompilationError, DeviceError, UnsupportedError
from tilewright.machines import nvidia
from tilewright.problems import parse
from tilewright.targets.nvidia import ptxas as program
from tilewright.targets.nvidia.assemble import assemble, assembly, split_binary, to_ptx
from tilewright.targets.nvidia.ptxas import Ptxas, Usage, find_ptxas, run_ptxas
from tilewright.targets.program import Abi
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case

needs_ptxas = pytest.mark.skipif(find_ptxas("sm_80") is None, reason="no ptxas is here")


def test_the_same_text_each_time() -> None:
    texts = [lowered(text).text for text in (TURN, AHEAD)]
    first = [to_ptx(text, "sm_80") for text in texts]
    for _ in range(20):
        assert [to_ptx(text, "sm_80") for text in texts] == first


def test_an_intrinsic_that_llvm_does_not_have() -> None:
    text = "declare void @llvm.nvvm.sing()\ndefine ptx_kernel void @k() {\n"
    text += "  call void @llvm.nvvm.sing()\n  ret void\n}\n"
    with pytest.raises(CompilationError, match=r"no intrinsic llvm\.nvvm\.sing"):
        to_ptx(text, "sm_80")


# The program.


@needs_ptxas
@pytest.mark.parametrize("level", nvidia.LEVELS)
def test_every_capability_is_assembled(level: str) -> None:
    ptxas = find_ptxas(level)
    if ptxas is None:
        pytest.skip(f"no ptxas here knows {level}")
    result = run_ptxas(ptxas, to_ptx(lowered(TURN, level).text, level), level)
    assert result.cubin.startswith(b"\x7fELF")
    (usage,) = result.usage
    assert (usage.entry, usage.spilled, usage.stack) == ("turn_0", 0, 0)
    assert 8 <= usage.registers <= 64
    assert result.remarks == ()


@needs_ptxas
def test_a_binary_holds_both() -> None:
    text = lowered(TURN).text
    ptx, cubin = split_binary(assemble(text, "sm_80"))
    assert ptx.decode() == to_ptx(text, "sm_80")
    assert cubin.startswith(b"\x7fELF")


@needs_ptxas
def test_what_ptxas_refuses_is_kept() -> None:
    ptxas = find_ptxas("sm_80")
    assert ptxas is not None
    with pytest.raises(CompilationError) as raised:
        run_ptxas(ptxas, ".version 7.0\n.target sm_80\nnonsense\n", "sm_80")
    error = raised.value
    assert f"{ptxas} refused the generated code for sm_80" in str(error)
    assert "nonsense" in (error.why or "")
    assert isinstance(error.where, str)
    assert "nonsense" in Path(error.where).read_text()


def _script(folder: Path, text: str) -> str:
    path = folder / "ptxas"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_what_it_says_is_read(tmp_path: Path) -> None:
    said = [
        "ptxas info    : 0 bytes gmem",
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async ...",
        "ptxas info    : Compiling entry function 'one' for 'sm_90a'",
        "ptxas info    : Function properties for one",
        "    16 bytes stack frame, 24 bytes spill stores, 8 bytes spill loads",
        "ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size",
        "ptxas info    : Compiling entry function 'two' for 'sm_90a'",
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
        "ptxas info    : Used 12 registers",
    ]
    lines = "\n".join(f'echo "{line}" >&2' for line in said)
    path = _script(tmp_path, f'{lines}\nwhile [ "$1" != -o ]; do shift; done\necho made > $2\n')
    result = run_ptxas(Ptxas(path, (13, 0)), "", "sm_90a")
    assert result.cubin == b"made\n"
    assert result.usage == (Usage("one", 255, 16, 32), Usage("two", 12, 0, 0))
    assert result.remarks == (said[1],)


def test_a_program_that_does_not_run() -> None:
    with pytest.raises(CompilationError, match=r"ptxas 13\.0 refused"):
        run_ptxas(Ptxas("/nowhere/ptxas", (13, 0)), "", "sm_80")


def test_the_program_has_to_know_the_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Ptxas("old", (12, 4)), Ptxas("new", (13, 0))
    monkeypatch.setattr(program, "assemblers", lambda: (old, new))
    result = {level: find_ptxas(level) for level in nvidia.LEVELS}
    assert result == {**dict.fromkeys(nvidia.LEVELS, new), "sm_70": old}
    monkeypatch.setattr(program, "assemblers", lambda: (old,))
    assert find_ptxas("sm_100a") is None


def test_the_program_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = _script(tmp_path, "echo 'Cuda compilation tools, release 12.9, V12.9.86'\n")
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    monkeypatch.setattr(program.shutil, "which", lambda name: path)
    program.assemblers.cache_clear()
    assert program.assemblers() == (Ptxas(path, (12, 9)),)
    program.assemblers.cache_clear()


# Without it, the PTX is what there is.


@pytest.fixture
def without_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "assemblers", lambda: ())


@pytest.mark.usefixtures("without_ptxas")
def test_ptx_alone(own_cache: Path, tmp_path: Path, tilewright: Command) -> None:
    text = lowered(TURN).text
    assert split_binary(assemble(text, "sm_80")) == (to_ptx(text, "sm_80").encode(), b"")
    assert assembly(text, "sm_80").endswith(
        "// not assembled: no ptxas here knows sm_80; pip install nvidia-cuda-nvcc, or put ptxas "
        "on the PATH\n"
    )
    assert "nvidia-cuda-nvcc-cu12" in assembly(text, "sm_70")
    target = find_target("nvidia:sm_80")
    assert "no ptxas" in target.identity
    folder = tmp_path / "out"
    ended = tilewright("build", "eltwise", "--target", "nvidia:sm_80", "64", "-o", str(folder))
    assert ended.code == 0
    assert {path.suffix for path in folder.iterdir()} == {".ptx", ".ll", ".md"}
    assert (
        "the driver assembles it, as no ptxas was at hand" in next(folder.glob("*.md")).read_text()
    )


@needs_ptxas
def test_parts_that_are_assembled_side_by_side_keep_their_order(
    own_cache: Path, tmp_path: Path
) -> None:
    trace = Trace(0)
    kernel = compile_kernel(Case(parse("matmul", "64x64:64x64")).op(), "nvidia:sm_80", trace=trace)
    kernel.export(tmp_path, "matmul_fwd_d")
    parts = [step.name for step in trace.steps if step.kind == "part"]
    assert parts == ["schedule", "lower", "lower", "assemble", "assemble"]
    for path in tmp_path.glob("*.ptx"):
        assert f".entry {path.stem}_0" in path.read_text()
    assert {path.stem for path in tmp_path.glob("*.cubin")} == {
        "matmul_fwd_d",
        "matmul_fwd_d_pack_weights",
    }


@needs_ptxas
def test_files(own_cache: Path, tmp_path: Path, tilewright: Command) -> None:
    folder = tmp_path / "out"
    ended = tilewright(
        "build",
        "matmul",
        "--name=matmul_fwd_d",
        "--target=nvidia:sm_80",
        "64x64:64x64",
        "-o",
        str(folder),
    )
    assert ended.code == 0
    names = {path.name for path in folder.iterdir() if "pack" not in path.name}
    entry = "matmul_fwd_d"
    assert names == {f"{entry}.ptx", f"{entry}.cubin", f"{entry}.ll", f"{entry}.md"}
    abi = (folder / f"{entry}.md").read_text()
    assert "is a module for sm_80 (cuModuleLoadData)" in abi
    assert f"| `{entry}_0` | 1 |" in abi


@needs_ptxas
def test_what_code_costs() -> None:
    request = request_of(Case(parse("matmul", "256x256:256x256")).op())
    text = assembly(lowered(AHEAD).text, "sm_80")
    cost = cost_of(request, request.signature(), text)
    assert cost.vector_registers is not None and 8 <= cost.vector_registers <= 64
    assert cost.spills == 0
    assert cost.mix["cp.async.cg.shared.global"] == 2
    spilled = text.replace(" 0 bytes spilled", " 24 bytes spilled")
    assert cost_of(request, request.signature(), spilled).spills == 6


def test_what_nobody_says_of_code_is_unknown() -> None:
    request = request_of(Case(parse("matmul", "256x256:256x256")).op())
    text = """//
.version 8.4
.visible .entry f(
\t.param .u64 p
)
{
\t.reg .b32 \t%r<5>;
\t@%p6 bra \t$L__BB0_6;
\t// begin inline asm
\tmbarrier.init.shared::cta.b64 [%r8], %r9;
\t// end inline asm
\t// begin inline asm
\t{
 .reg .pred over;
waiting_0:
 mbarrier.try_wait.parity.shared::cta.b64 over, [%r43], %r44;
 @!over bra waiting_0;
}
\t// end inline asm
\t// begin inline asm
\t{
 .reg .pred adds;
 setp.ne.b32 adds, 1, 0;
 wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1, %r2}, %rd12, %rd13, adds, 1, 1, 0, 1;
}
\t// end inline asm
$L__BB0_6:
\tret;
}
"""
    cost = cost_of(request, request.signature(), text)
    assert cost.vector_registers is None and cost.spills is None
    assert cost.mix == {
        "bra": 2,
        "mbarrier.init.shared": 1,
        "mbarrier.try_wait.parity.shared": 1,
        "setp.ne.b32": 1,
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16": 1,
        "ret": 1,
    }
    said = "// f: 42 registers, 8 bytes spilled, 16 bytes of stack\n"
    known = cost_of(request, request.signature(), text + said + said.replace("42", "50"))
    assert (known.vector_registers, known.spills) == (50, 4)


# Devices, of which none need be here.


def test_kernels_for_other_devices_do_not_run() -> None:
    target = find_target("nvidia:sm_80")
    if target.runs_here:
        lacking("there is a GPU, so all code runs here")
    with pytest.raises(UnsupportedError) as raised:
        target.load(b"\0", Abi("k", (), ()))
    assert "kernels for nvidia:sm_80 do not run here" in str(raised.value)
    with pytest.raises(DeviceError, match="there is no NVIDIA GPU"):
        find_target("nvidia")


def test_a_full_disk_has_the_name_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, text: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CompilationError, match=r"cannot write \S+kernel\.ptx, [^$]*No space left"):
        run_ptxas(Ptxas("ptxas", (13, 0)), "", "sm_80")

"""LLVM IR to object code and into the process."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from needs import needs_x86
from tilewright.errors import CompilationError
from tilewright.targets.child_process import ChildProcess
from tilewright.targets.llvm import emitter_client
from tilewright.targets.x86.assemble import assemble, assembly, host_cpu, host_features
from tilewright.targets.x86.driver import PROGRAMS_PER_LINKER, Program

pytestmark = needs_x86

# A call of libm, one of libc, a constant table, and a global variable.
KERNEL = """
@table = private constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]
@counter = global i64 0
declare float @{function}(float)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @kernel(ptr %data, i64 %count) nounwind {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %data, i64 %i
  %x = load float, ptr %at
  %y = call float @{function}(float %x)
  %factor_at = getelementptr float, ptr @table, i64 %i
  %factor = load float, ptr %factor_at
  %z = fmul float %y, %factor
  store float %z, ptr %at
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 4
  br i1 %more, label %loop, label %done
done:
  %rest = getelementptr i8, ptr %data, i64 16
  %bytes = sub i64 %count, 16
  call void @llvm.memset.p0.i64(ptr %rest, i8 0, i64 %bytes, i1 false)
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  ret void
}}
"""


def check(program: Program, function: str = "expf") -> None:
    data = (ctypes.c_float * 8)(*[0.5] * 8)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(program.address("kernel"))
    kernel(ctypes.addressof(data), 32)
    reference = getattr(math, function.removesuffix("f"))(0.5)
    assert list(data[:4]) == pytest.approx([reference * k for k in (1, 2, 3, 4)], rel=1e-6)
    assert list(data[4:]) == [0.0] * 4


@pytest.mark.parametrize("function", ["expf", "tanhf", "erff"])
@pytest.mark.parametrize("opt", [0, 1, 2, 3])
def test_runs_with_libm(function: str, opt: int) -> None:
    code = assemble(KERNEL.format(function=function), host_cpu(), host_features(), opt)
    assert code.startswith(b"\x7fELF")
    with Program(code, ("kernel", "counter")) as program:
        check(program, function)
        check(program, function)
        assert ctypes.c_int64.from_address(program.address("counter")).value == 2


def test_is_deterministic() -> None:
    text = KERNEL.format(function="expf")
    assert assemble(text, "znver4") == assemble(text, "znver4")


def test_assembly_text_is_for_the_cpu_asked_for() -> None:
    text = """
    define <16 x float> @f(<16 x float> %a, <16 x float> %b) {
      %c = fadd <16 x float> %a, %b
      ret <16 x float> %c
    }"""
    assert "zmm" in assembly(text, "znver4")
    assert "zmm" not in assembly(text, "haswell")
    assert "ymm" in assembly(text, "haswell")
    assert "ymm" not in assembly(text, "nehalem")
    assert "zmm" not in assembly(text, "znver4", "-avx512f")


def test_amx_is_assembled_without_having_it() -> None:
    text = """
    declare void @llvm.x86.tilezero(i8)
    declare void @llvm.x86.tdpbf16ps(i8, i8, i8)
    define void @f() {
      call void @llvm.x86.tilezero(i8 0)
      call void @llvm.x86.tdpbf16ps(i8 0, i8 1, i8 2)
      ret void
    }"""
    assert "tdpbf16ps\t%tmm2, %tmm1, %tmm0" in assembly(text, "sapphirerapids")


def test_inline_assembly() -> None:
    text = """
    define i64 @f(i64 %x) {
      %y = call i64 asm sideeffect "leaq 1($1), $0", "=r,r"(i64 %x)
      ret i64 %y
    }"""
    with Program(assemble(text, "x86-64"), ("f",)) as program:
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(program.address("f"))(41) == 42


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("define void @f(", "expected type"),
        ("define i32 @f() {\n %x = add i32 %y, 1\n ret i32 %x\n}", "use of undefined value '%y'"),
        (
            "define i32 @f(i1 %c) {\n br i1 %c, label %a, label %b\na:\n %x = add i32 1, 2\n"
            " br label %b\nb:\n ret i32 %x\n}",
            "does not dominate",
        ),
        (
            "declare void @llvm.no.such.thing()\n"
            "define void @f() {\n call void @llvm.no.such.thing()\n ret void\n}",
            "no intrinsic llvm.no.such.thing",
        ),
    ],
)
def test_refusals_keep_the_ir(text: str, why: str) -> None:
    with pytest.raises(CompilationError) as caught:
        assemble(text, "x86-64")
    error = caught.value
    assert error.why and why in error.why
    assert error.cure and "defect" in error.cure
    kept = Path(str(error.where))
    assert kept.read_text() == text
    kept.unlink()


UNKNOWN = """
declare void @llvm.no.such.thing()
define void @f() {
  call void @llvm.no.such.thing()
  ret void
}
"""
# An instruction that the processor does not have: LLVM ends its process.
DEADLY = """
declare <16 x i1> @llvm.x86.avx512.fpclass.ps.512(<16 x float>, i32)
define i1 @f(<16 x float> %x) {
  %y = call <16 x i1> @llvm.x86.avx512.fpclass.ps.512(<16 x float> %x, i32 32)
  %z = extractelement <16 x i1> %y, i64 0
  ret i1 %z
}
"""


def test_what_ends_llvm_ends_another_process() -> None:
    for _ in range(2):
        with pytest.raises(CompilationError) as raised:
            assemble(DEADLY, "haswell", apart=True)
        error = raised.value
        assert error.why is not None and error.why.startswith("LLVM ended its process (-")
        assert "Do not know how to promote this operator" in error.why
        Path(str(error.where)).unlink()
    text = KERNEL.format(function="expf")
    assert assemble(text, "haswell", apart=True) == assemble(text, "haswell")


def test_refusals_of_another_process() -> None:
    for text, why in (("nonsense", "expected top-level entity"), (UNKNOWN, "no.such.thing")):
        with pytest.raises(CompilationError, match=why) as raised:
            assemble(text, "haswell", apart=True)
        Path(str(raised.value.where)).unlink()


def test_where_no_other_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then LLVM runs in this one."""
    monkeypatch.setattr(
        emitter_client, "_emitter", ChildProcess(lambda: "raise SystemExit", "LLVM")
    )
    text = KERNEL.format(function="expf")
    assert assemble(text, "haswell", apart=True) == assemble(text, "haswell")


def test_what_cannot_be_loaded() -> None:
    code = assemble(KERNEL.format(function="expf"), "x86-64")
    for broken in (b"", b"no object", code[:100], code[: len(code) // 2]):
        with pytest.raises(CompilationError, match="cannot be loaded"):
            Program(broken, ("kernel",))
    with pytest.raises(CompilationError, match="absent"):
        Program(code, ("kernel", "absent"))
    unknown = assemble("declare void @nowhere()\ndefine void @f() {\n call void @nowhere()\n"
                       " ret void\n}", "x86-64")  # fmt: skip
    with pytest.raises(CompilationError, match=r"nowhere|materialize"):
        Program(unknown, ("f",))


def test_closed_programs_have_no_addresses() -> None:
    program = Program(assemble(KERNEL.format(function="expf"), "x86-64"), ("kernel",))
    with pytest.raises(CompilationError, match="not loaded for it"):
        program.address("table")
    program.close()
    program.close()
    with pytest.raises(CompilationError, match="closed"):
        program.address("kernel")


def test_programs_outlive_their_linker_and_each_other() -> None:
    code = assemble(KERNEL.format(function="expf"), host_cpu())
    programs = [Program(code, ("kernel",)) for _ in range(2 * PROGRAMS_PER_LINKER + 3)]
    del programs[1::2]
    gc.collect()
    assert len(programs) > PROGRAMS_PER_LINKER
    for program in programs:
        check(program)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_is_kept() -> None:
    text = KERNEL.format(function="expf")

    def round_trip(times: int) -> None:
        for _ in range(times):
            Program(assemble(text, "znver4"), ("kernel",)).close()

    round_trip(2 * PROGRAMS_PER_LINKER)
    before = resident_bytes()
    round_trip(4 * PROGRAMS_PER_LINKER)
    assert resident_bytes() - before < 3 * 2**20


def test_threads_at_once() -> None:
    functions = ["expf", "tanhf", "erff", "sinf"]
    failures: list[BaseException] = []

    def work(function: str) -> None:
        try:
            for _ in range(10):
                code = assemble(KERNEL.format(function=function), host_cpu(), host_features())
                with Program(code, ("kernel",)) as program:
                    check(program, function)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to link with")
def test_links_into_a_shared_library(tmp_path: Path) -> None:
    (tmp_path / "kernel.o").write_bytes(assemble(KERNEL.format(function="expf"), "x86-64"))
    library = tmp_path / "libkernel.so"
    subprocess.run(
        ["cc", "-shared", "-Wl,-z,text", "-o", library, tmp_path / "kernel.o", "-lm"], check=True
    )
    data = (ctypes.c_float * 8)(*[0.5] * 8)
    ctypes.CDLL(str(library)).kernel(ctypes.byref(data), ctypes.c_int64(32))
    assert data[0] == pytest.approx(math.exp(0.5), rel=1e-6)

"""Kernels from text: compiled, called like ops, and equal to what the interpreter makes of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from kernel_examples import EXAMPLES, PRODUCT, SCALE, Example
from needs import DEVICES, need_device, needs_opencl
from sweeps import in_turns
from tilewright.engine import CompiledKernel
from tilewright.engine.compile import forget
from tilewright.errors import (
    ArgumentError,
    CompilationError,
    ParseError,
    ScheduleError,
    UnsupportedError,
    VerificationError,
)
from tilewright.interpret import run as interpret
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import bind_scalars
from tilewright.passes import run as run_passes
from tilewright.targets.child_process import ChildProcess
from tilewright.targets.llvm import emitter_client
from tilewright.targets.llvm.module import Module
from tilewright.targets.spirv import building
from tilewright.targets.x86.target import X86Target

ADD = """
kernel add(in a: f32[4, 20], in b: f32[4, 20], out c: f32[4, 20]):
  compute add(i in 4, j in 20):
    c[i, j] = a[i, j] + b[i, j]
"""
A, B = np.arange(80, dtype=np.float32).reshape(4, 20), np.ones((4, 20), np.float32)


def results(run: CompiledKernel, arguments: dict[str, Any]) -> dict[str, Any]:
    """What ``run`` gives, by name; the arguments stay as they are."""
    copied = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arguments.items()}
    values = run(**copied)
    return values if isinstance(values, dict) else {run.signature.results[0]: values}


def check(example: Example, got: dict[str, Any], arguments: dict[str, Any]) -> None:
    wanted = example.wanted(**arguments)
    assert got.keys() == wanted.keys()
    for name, want in wanted.items():
        if example.exact:
            np.testing.assert_array_equal(got[name], want, err_msg=name)
        else:
            np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("name", "target"),
    in_turns(2, EXAMPLES, ["interpreter", "x86", "x86:avx2", "spirv", "spirv:gpu", "nvidia"]),
)
def test_examples_run(name: str, target: str) -> None:
    need_device(target)
    example = EXAMPLES[name]
    arguments = example.arguments(np.random.default_rng(1))
    kernel = tw.parse_kernel(example.text)
    check(example, results(tw.compile(kernel, target, threads=2), arguments), arguments)


@pytest.mark.parametrize("name", in_turns(2, EXAMPLES))
def test_examples_for_nvidia(name: str) -> None:
    """Assembled, where ptxas is there; and what the target gets runs in the interpreter."""
    example = EXAMPLES[name]
    arguments = example.arguments(np.random.default_rng(1))
    result = tw.compile(tw.parse_kernel(example.text), "nvidia:sm_80")
    assert ".visible .entry" in result.source("asm")
    scheduled = run_passes(result.schedule.kernel)
    check(example, interpreted(scheduled, arguments), arguments)


def interpreted(kernel: Kernel, arguments: dict[str, Any]) -> dict[str, Any]:
    """The results of a stage of a kernel in the interpreter, in row-major arrays."""
    numbers = {
        size.name: arguments[array.name].shape[dim]
        for array in kernel.arrays
        if array.name in arguments
        for dim, size in enumerate(array.buffer.sizes)
        if isinstance(size, Var)
    }
    kernel = bind_scalars(kernel, numbers)
    memory = {scalar.name: arguments[scalar.name] for scalar in kernel.scalars}
    for param in kernel.arrays:
        values = arguments.get(param.name, np.zeros(param.buffer.shape, param.dtype.numpy))
        memory[param.name] = values.copy().reshape(-1)
    interpret(kernel, memory)
    return {
        array.name: memory[array.name].reshape(array.buffer.shape)
        for array in kernel.arrays
        if array.access != "in"
    }


def test_a_kernel_is_called_like_an_op() -> None:
    run = tw.compile(tw.parse_kernel(ADD), threads=1)
    np.testing.assert_array_equal(run(a=A, b=B), A + 1)
    np.testing.assert_array_equal(run(A, B), A + 1)
    out = np.empty_like(A)
    assert run(A, b=B, out=out) is out
    np.testing.assert_array_equal(out, A + 1)
    out[...] = 0
    run.bind(A, B, out=out)()
    np.testing.assert_array_equal(out, A + 1)
    assert repr(run) == (
        f"<add kernel for {run.target.name}: a: f32[4, 20], b: f32[4, 20], c: f32[4, 20]>"
    )


def test_the_kernel_of_an_op_compiles_as_a_kernel() -> None:
    op = tw.convolution("ic8ih6oc16kh3ph1", src="nhwc", dst="nhwc", epilogue=[tw.bias(), tw.relu()])
    generator = np.random.default_rng(0)
    run = tw.compile(op.kernel(), threads=2)
    values = {
        argument.name: run.signature.forms[argument.name].empty()
        for argument in run.signature.arguments
        if argument.access == "in"
    }
    for array in values.values():
        array[...] = generator.integers(-3, 4, array.shape)
    wanted = tw.compile(op.kernel(), "interpreter")(**values)
    np.testing.assert_array_equal(run(**values), wanted)


def test_the_second_compile_comes_from_the_caches() -> None:
    kernel = tw.parse_kernel(ADD.replace("add(", "cached("))
    assert tw.compile(kernel, threads=1).schedule.kernel is not None
    again = tw.compile(tw.parse_kernel(ADD.replace("add(", "cached(")), threads=1)
    assert again.from_cache
    forget()
    from_disk = tw.compile(kernel, threads=1)
    assert from_disk.from_cache
    np.testing.assert_array_equal(from_disk(A, B), A + 1)
    other = tw.parse_kernel(ADD.replace("add(", "cached(").replace(" + ", " * "))
    np.testing.assert_array_equal(tw.compile(other, threads=1)(A, B), A)
    renamed = tw.parse_kernel(ADD.replace("a[", "x[").replace("a:", "x:"))
    np.testing.assert_array_equal(tw.compile(renamed, threads=1)(x=A, b=B), A + 1)


PLACED = """
kernel placed(in a: f32[64], out c: f32[64]):
  grid for g in 4:
    workgroup for i in 16:
      c[g * 16 + i] = a[g * 16 + i] + 1.0
"""


def test_a_kernel_that_places_its_work_is_left_as_it_is() -> None:
    kernel = tw.parse_kernel(PLACED)
    result = tw.compile(kernel, "nvidia:sm_80")
    assert result.schedule.kernel is kernel
    (launch,) = result.code.abi.launches
    assert (launch.groups, launch.items) == (4, 16)
    a = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(tw.compile(kernel, "interpreter")(a), a + 1)


@pytest.mark.parametrize("target", ["x86", "interpreter"])
def test_bad_calls_are_refused(target: str) -> None:
    run = tw.compile(tw.parse_kernel(ADD), target)
    with pytest.raises(ArgumentError, match=r"'b' is missing[^$]*pass a=..., b=..., c=..."):
        run(a=A)
    with pytest.raises(ArgumentError, match="there is no argument 'd'"):
        run(A, B, d=B)
    with pytest.raises(ArgumentError, match=r"b has shape \(20, 4\), expected \(4, 20\)"):
        run(A, np.ones((20, 4), np.float32))
    with pytest.raises(ArgumentError, match="b has f64 elements, expected f32"):
        run(A, B.astype(np.float64))
    with pytest.raises(ArgumentError, match="c shares memory with a"):
        run(A, B, out=A)


@pytest.mark.parametrize("target", ["x86", "interpreter"])
def test_sizes_and_numbers_of_a_call(target: str) -> None:
    run = tw.compile(tw.parse_kernel(SCALE.text), target, threads=1)
    assert run.signature.names == ("alpha", "a", "c")
    for shape in ((1, 1), (3, 70), (80, 5)):
        a = np.ones(shape, np.float32)
        np.testing.assert_array_equal(run(2.0, a), 2 * a)
        np.testing.assert_array_equal(run(a=a, alpha=2, m=shape[0], n=shape[1]), 2 * a)
        out = np.zeros(shape, np.float32)
        bound = run.bind(4.0, a, out=out)
        bound()
        np.testing.assert_array_equal(out, 4 * a)


def test_one_code_for_all_sizes() -> None:
    run = tw.compile(tw.parse_kernel(SCALE.text.replace("scale(", "scale1(")), threads=1)
    again = tw.compile(tw.parse_kernel(SCALE.text.replace("scale(", "scale1(")), threads=1)
    assert again.from_cache and again.code is run.code
    forget()
    assert tw.compile(tw.parse_kernel(SCALE.text.replace("scale(", "scale1("))).from_cache


@pytest.mark.parametrize("target", ["x86", "interpreter"])
def test_promises_are_kept_at_the_call(target: str) -> None:
    run = tw.compile(tw.parse_kernel(PRODUCT.text), target)
    a, b = np.ones((3, 8), np.float32), np.ones((8, 12), np.float32)
    np.testing.assert_array_equal(run(a, b), a @ b)
    with pytest.raises(ArgumentError, match=r"n is 10, but it must be a multiple of 4[^$]*cure"):
        run(a, b[:, :10].copy())
    with pytest.raises(ArgumentError, match=r"m is 513, but it must be at most 512[^$]*dim 0 of a"):
        run.bind(np.ones((513, 8), np.float32), b)
    with pytest.raises(ArgumentError, match=r"k is 8 and 7[^$]*dim 1 of a, and dim 0 of b"):
        run(a, b[:7])
    with pytest.raises(ArgumentError, match=r"n is 12 and 8[^$]*dim 1 of b, and dim 1 of c"):
        run(a, b, out=np.ones((3, 8), np.float32))
    with pytest.raises(ArgumentError, match=r"a has shape \(3, 8\), expected \(4, 8\)"):
        run(a, b, m=4)
    with pytest.raises(ArgumentError, match=r"m is 3.5, but it must be an integer"):
        run(a, b, m=3.5)
    scale = tw.compile(tw.parse_kernel(SCALE.text), target)
    with pytest.raises(ArgumentError, match=r"'alpha' is missing[^$]*pass alpha="):
        scale(a=a)
    with pytest.raises(ArgumentError, match=r"the argument 'a' is missing[^$]*pass an array, a="):
        scale(1.0)
    with pytest.raises(ArgumentError, match=r"a is None[^$]*`a: f32\[m, n\]`"):
        scale(1.0, None)
    fill = "kernel fill(n: s64 in 1..9, out c: f32[n]):\n  compute fill(i in n):\n    c[i] = 1.0\n"
    with pytest.raises(
        ArgumentError, match=r"'n' is missing[^$]*no array is given whose shape tells it: c"
    ):
        tw.compile(tw.parse_kernel(fill), target)()
    with pytest.raises(ArgumentError, match=r"alpha is 'x', but it must be a number"):
        scale("x", a)


def test_what_cannot_be_compiled() -> None:
    with pytest.raises(ArgumentError, match=r"cannot be compiled[^$]*tw.parse_kernel"):
        tw.compile(ADD)  # type: ignore[arg-type]
    with pytest.raises(ParseError, match=r"kernel.txt:3:3"):
        tw.parse_kernel(ADD.replace("compute", "computes"), file="kernel.txt")
    wrong = tw.parse_kernel(ADD.replace("c[i, j] =", "a[i, j] ="))
    with pytest.raises(VerificationError):
        tw.compile(wrong)
    kernel = tw.parse_kernel(ADD)
    with pytest.raises(ArgumentError, match=r"'c' cannot be constant[^$]*it is a result"):
        tw.compile(kernel, constant=("c",))
    with pytest.raises(ArgumentError, match=r"'w' cannot be constant[^$]*choose some of a, b"):
        tw.compile(kernel, constant="w")
    with pytest.raises(ScheduleError, match=r"is no contraction[^$]*use a ReductionConfig"):
        tw.compile(kernel, config="ElementwiseConfig(vector=8)")
    with pytest.raises(UnsupportedError, match="no variant 'fast'"):
        tw.compile(kernel, "interpreter:fast")


@pytest.mark.parametrize("name", ["out", "stream"])
def test_arguments_may_be_called_as_options_are(name: str) -> None:
    run = tw.compile(tw.parse_kernel(ADD.replace("a[", f"{name}[").replace("a:", f"{name}:")))
    c = np.zeros_like(A)
    assert (run(A, B) == A + 1).all()
    assert (run(b=B, **{name: A}) == A + 1).all()
    assert run(A, B, out={"c": c} if name == "out" else c) is c
    run.bind(**{name: A}, b=B, c=c)()
    assert (c == A + 1).all()
    with pytest.raises(ArgumentError, match=f"{name} is given twice"):
        run(A, B, **{name: A})


def test_results_may_be_called_out() -> None:
    run = tw.compile(tw.parse_kernel(ADD.replace("c[", "out[").replace("c:", "out:")))
    out = np.zeros_like(A)
    assert run(A, B, out=out) is out and (out == A + 1).all()
    empty = tw.compile(tw.parse_kernel("kernel none(in a: f32[4]):\n  pass\n"))
    with pytest.raises(ArgumentError, match="the kernel has no results"):
        empty(np.ones(4, np.float32), out=out)


def test_a_config_says_how_wide_vectors_are() -> None:
    text = {
        vector: tw.compile(
            tw.parse_kernel(ADD), "x86:avx2", config=f"PlainConfig(vector={vector})"
        ).source("llvm")
        for vector in (1, 8)
    }
    assert re.search("<8 x float>", text[8]) and not re.search("<8 x float>", text[1])


def test_faults_in_the_interpreter_are_errors() -> None:
    kernel = tw.parse_kernel(EXAMPLES["gather"].text)
    arguments = EXAMPLES["gather"].arguments(np.random.default_rng(0))
    arguments["index"][7] = 200
    with pytest.raises(tw.TilewrightError, match="out of bounds"):
        tw.compile(kernel, "interpreter")(**arguments)


@pytest.mark.parametrize("target", ["x86", *DEVICES, "spirv:gpu"])
def test_kernels_of_narrow_types(target: str) -> None:
    """Vectors have as many lanes as a target can have, also where all elements are bytes."""
    need_device(target)
    kernel = tw.parse_kernel("""
kernel invert(n: s64 in 1..4096, in a: u8[n], out c: u8[n]):
  compute invert(i in n):
    x = a[i]
    c[i] = not x
""")
    a = np.arange(200, dtype=np.uint8)
    np.testing.assert_array_equal(tw.compile(kernel, target)(a=a), ~a)


def test_layouts_that_are_no_strides_take_the_memory_as_it_is() -> None:
    """Element 0 of the first lies behind the address: an array of the shape would be too short."""
    text = """
kernel moved(in a: f32[32]{0:32:1 +8}, in b: f32[32]{0:32:1 ^2:2:2}, out c: f32[32]):
  compute add(i in 32):
    c[i] = a[i] + b[i]
"""
    kernel = tw.parse_kernel(text)
    run = tw.compile(kernel)
    with pytest.raises(ArgumentError, match=r"a has shape \(32,\), expected \(40,\)"):
        run(np.ones(32, np.float32), np.ones(32, np.float32))
    a, b = np.arange(40, dtype=np.float32), np.arange(32, dtype=np.float32)
    got = run(a, b)
    np.testing.assert_array_equal(got, tw.compile(kernel, "interpreter")(a, b))
    np.testing.assert_array_equal(got[:5], [8, 10, 12, 14, 16])
    symbolic = text.replace(":32:", ":n:").replace("[32]", "[n]").replace("in 32", "in n")
    symbolic = symbolic.replace("(in", "(n: s64 in 1..64, in").replace("^2:2:2", "+2")
    run = tw.compile(tw.parse_kernel(symbolic))
    assert run.signature.sizes == {"n": (("c", 0),)}


# What ends a compiler's process.

DEADLY = """
declare <16 x i1> @llvm.x86.avx512.fpclass.ps.512(<16 x float>, i32)
define i1 @f(<16 x float> %x) {
  %y = call <16 x i1> @llvm.x86.avx512.fpclass.ps.512(<16 x float> %x, i32 32)
  %z = extractelement <16 x i1> %y, i64 0
  ret i1 %z
}
"""


def test_a_kernel_that_ends_llvm_is_refused_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    lower, asked = X86Target.lower, []

    def deadly(self: X86Target, kernel: Kernel) -> Module:
        asked.append(kernel.name)
        return replace(lower(self, kernel), text=DEADLY)

    kernel = tw.parse_kernel(
        "kernel deadly(in x: f32[8], out y: f32[8]):\n  for i in 8:\n    y[i] = x[7 - i]\n"
    )
    monkeypatch.setattr(X86Target, "lower", deadly)
    result = []
    for _ in range(2):
        with pytest.raises(CompilationError) as raised:
            tw.compile(kernel, target="x86:avx2")
        result.append(str(raised.value))
    assert result[0] == result[1] and asked == ["deadly"]
    assert result[0].startswith("deadly: LLVM refused the generated code\n")
    assert "LLVM ended its process (-6)" in result[0] and "compile for another target" in result[0]
    # What it is for counts, and others compile.
    monkeypatch.setattr(X86Target, "lower", lower)
    tw.compile(kernel, target="x86:sse42")
    with pytest.raises(CompilationError):
        tw.compile(kernel, target="x86:avx2")
    Path(str(raised.value.where)).unlink()


def test_ops_compile_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their code is known."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    monkeypatch.setattr(emitter_client, "_emitter", None)
    assert tw.compile(tw.matmul("7x9:9x11"), target="x86:avx2").source("asm")


@needs_opencl
def test_a_kernel_that_ends_the_devices_compiler_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    program = (
        "from tilewright.targets.llvm.emitter import serve; import os; "
        "serve(lambda kind, data: (print('cannot go on', file=sys.stderr), os.abort()))"
    )
    monkeypatch.setattr(
        building, "_builder", ChildProcess(lambda: program, "the device's compiler")
    )
    kernel = tw.parse_kernel(
        "kernel deadly(in x: f32[8], out y: f32[8]):\n  for i in 8:\n    y[i] = x[7 - i]\n"
    )
    with pytest.raises(CompilationError, match="refused the generated code of deadly") as raised:
        tw.compile(kernel, target="spirv")
    assert "ended its process (-6)" in str(raised.value) and "cannot go on" in str(raised.value)
    monkeypatch.undo()
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    with pytest.raises(CompilationError, match="refused the generated code of deadly"):
        tw.compile(kernel, target="spirv")
    Path(str(raised.value.where)).unlink()


@pytest.mark.parametrize("target", ["x86", *DEVICES])
def test_a_prefetch_of_a_register_does_nothing(target: str) -> None:
    need_device(target)
    kernel = tw.parse_kernel(
        "kernel sums(in x: f32[4], out y: f32[4]):\n"
        "  alloc total: f32[1] private\n"
        "  total[0] = f32(0)\n"
        "  for i in 4:\n"
        "    prefetch(&total[0])\n"
        "    total[0] = total[0] + x[i]\n"
        "    y[i] = total[0]\n"
    )
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(tw.compile(kernel, target=target)(x), np.cumsum(x))

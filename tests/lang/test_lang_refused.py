"""What is no kernel: each refusal has a place in the source, and a cure; and random ones."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import fuzz_lang
import tilewright as tw
from commands import Command
from lang_texts import defined
from tilewright.cli.python_files import python_kernels
from tilewright.errors import (
    ArgumentError,
    CompilationError,
    InterpreterFault,
    KernelError,
    TilewrightError,
    UnsupportedError,
)

HEAD = "@tw.kernel\ndef k(x: tw.array('f32', 1), n: tw.s32):\n"

# A body, where it is marked by ^, and what is said.
REFUSED = [
    ("    try:\n        pass\n    except E:\n        pass", "try:", "a kernel has no `try`"),
    ("    yield n", "yield n", "a kernel has no yield"),
    ("    import math", "import math", "a kernel has no `import`"),
    ("    with n:\n        pass", "with n:", "a kernel has no `with`"),
    ("    raise ValueError(n)", "raise ValueError(n)", "a kernel has no `raise`"),
    ("    n.x = 1", "n.x", "neither a name nor an element"),
    ("    x[0] = n.real", "n.real", "has no attribute real"),
    ("    x[0] = n and 5", "n", "`and` of s32, whose value is used"),
    ("    x[0] = x[1] > 0 or x[2]", "x[2]", "`or` of f32, whose value is used"),
    ("    x[0] = float('much')", "float('much')", "float of 'much'"),
    ("    x[0] = unknown", "unknown", "unknown has no value here"),
    ("    x[0] = [i for i in range(3)]", "[i for i in range(3)]", "comprehensions"),
    ("    x[0] = (y := 1.0)", "(y := 1.0)"[1:-1], "assignments inside of expressions"),
    ("    x[0] = {}", "{}", "a kernel has no dicts"),
    ("    x[0] = f'{n}'", "f'{n}'", "no strings with values in them"),
    ("    x[0] = n @ n", "n @ n", "a kernel has no operator @"),
    ("    x[0] = n in (1, 2)", "n in (1, 2)", "a kernel has no `in`"),
    ("    x[0] = x", "x", "the value is the array x"),
    ("    x[0, 0] = 1.0", "0, 0", "x has 1 dims, and 2 indices are given"),
    ("    x[1.5] = 1.0", "1.5", "the index is f32"),
    ("    x[0:2] = 1.0", "0:2", "a kernel has no slices of arrays"),
    ("    x[0] = tw.global_id(1)", "tw.global_id(1)", "the dim of tw.global_id is 1"),
    ("    x[0] = tw.global_id()", "tw.global_id()", "missing a required argument: 'dim'"),
    ("    x[0] = tw.nothing(1)", "tw.nothing", "has no attribute 'nothing'"),
    ("    x[0] = open('f')", "open", "open is a builtin_function_or_method"),
    ("    x[0] = n / 2", "n / 2", "`/` of s32"),
    ("    x[0] = 1 // 0", "1 // 0", "`//` of 1 and 0"),
    ("    x[0] = tw.exp(n)", "tw.exp(n)", "exp of s32"),
    ("    i = 0\n    y = tw.local(4, 's32')\n    y[i] = x[0]", "y[i]", "an element of y is s32"),
    ("    y = tw.private(n, 'f32')", "tw.private(n, 'f32')", "the size of tw.private"),
    ("    y = tw.private(4, 'f99')", "tw.private(4, 'f99')", "unknown element type 'f99'"),
    ("    x[0] = tw.lane_id()", "tw.lane_id()", "in a kernel without subgroups"),
    ("    return n", "def k(x: tw.array('f32', 1), n: tw.s32):", "k returns a value"),
    ("    y = n\n    y = x\n    if n:\n        y = x", "y", "y is the array x on some path only"),
    ("    y = tw.u64(1)\n    y = tw.s64(n)", "y", "y is u64 on one path, and s64 here"),
    ("    for i in x:\n        pass", "for i in x:", "a loop over the array x"),
    (
        "    for i in range(n):\n        pass\n    else:\n        pass",
        "for i",
        "a loop with an else",
    ),
    (
        "    for i in tw.static_range(n):\n        pass",
        "tw.static_range(n)",
        "that work-items compute",
    ),
    ("    for i in range(0, n, 0):\n        pass", "for i in range(0, n, 0):", "in steps of 0"),
    ("    assert 1 > 2, 'never'", "assert 1 > 2, 'never'", "this does not hold: 1 > 2"),
    ("    tw.printf('{} {}', n)", "tw.printf('{} {}', n)", "for 1 values"),
    ("    tw.printf('{:d}', x[0])", "tw.printf('{:d}', x[0])", "'d' for object of type 'float'"),
    ("    tw.atomic_add(x, 0, 'a')", "tw.atomic_add(x, 0, 'a')", "is 'a'"),
    (
        "    y = tw.local(4, 'bool')\n    tw.atomic_sub(y, 0, True)",
        "tw.atomic_sub(y, 0, True)",
        "tw.atomic_sub of bool",
    ),
    ("    x[0] = tw.group_scan(x[0], 'add', n)", "tw.group_scan", "exclusive= of tw.group_scan is"),
    ("    n", "n", "an expression whose value is not used"),
]


@pytest.mark.parametrize(("body", "marked", "what"), REFUSED, ids=[r[1] for r in REFUSED])
def test_refusals(body: str, marked: str, what: str) -> None:
    with pytest.raises(KernelError) as caught:
        defined(HEAD + body + "\n")["k"].over(local=(16,))
    error = caught.value
    assert what in error.what, error
    assert error.span is not None and error.span.file.startswith("<cell ")
    assert error.span.text[error.span.start : error.span.end].startswith(marked)
    assert error.cure
    assert f"{error.span.line}:{error.span.column}" in str(error)


HEADS = [
    ("def k(x): pass", "the parameter x has no type"),
    ("def k(x: int): pass", "the parameter x is annotated with <class 'int'>"),
    ("def k(*x): pass", "the parameter x is not a plain positional one"),
    ("def k(n: tw.s32 = 1): pass", "a parameter has a default"),
]


@pytest.mark.parametrize(("head", "what"), HEADS)
def test_refused_parameters(head: str, what: str) -> None:
    with pytest.raises(KernelError, match="parameter") as caught:
        defined(f"@tw.kernel\n{head}\n")
    assert what in str(caught.value)
    assert caught.value.span is not None


def test_calls_outside_of_kernels_have_a_place() -> None:
    with pytest.raises(KernelError, match="called outside of a kernel") as caught:
        defined("@tw.kernel\ndef k(x: tw.f32, y=tw.local(3, 'f32')): pass\n")
    span = caught.value.span
    assert span is not None and span.text[span.start : span.end] == "tw.local(3, 'f32')"
    with pytest.raises(KernelError, match="outside of a kernel"):
        eval("tw.lane_id()", {"tw": tw})


@pytest.mark.parametrize(
    ("call", "cure"),
    [
        ("sum(x)", "total += x[k]"),
        ("any((n > 0, n > 1))", "write `or`"),
        ("divmod(n, 3)[0]", "a // b and a % b"),
        ("np.sqrt(x[0])", "write tw.sqrt"),
        ("open('f')", "decorate it with @tw.function"),
    ],
)
def test_what_to_write_for_functions_of_others(call: str, cure: str) -> None:
    with pytest.raises(KernelError) as caught:
        defined(HEAD + f"    x[0] = {call}", np=np)["k"].as_kernel()
    assert caught.value.cure and cure in caught.value.cure


def test_recursion() -> None:
    text = "@tw.function\ndef f(n):\n    return f(n - 1)\n" + HEAD + "    x[0] = f(n)\n"
    with pytest.raises(KernelError, match="f calls itself") as caught:
        defined(text)["k"].over()
    assert caught.value.span.line == 3


def test_values_from_outside_do_not_change() -> None:
    text = "factor = 2.0\n" + HEAD + "    i = tw.global_id(0)\n    x[i] = factor\n"
    space = defined(text)
    x = np.zeros(4, np.float32)
    space["k"].launch(4, x, 0, target="interpreter")
    assert x.tolist() == [2, 2, 2, 2]
    space["factor"] = 3.0
    with pytest.raises(KernelError, match=r"factor was 2.0 when k was compiled, and is 3.0"):
        space["k"].launch(4, x, 0, target="interpreter")
    space["factor"] = np.zeros(3)
    with pytest.raises(KernelError, match="factor is a builtin"):
        defined(text.replace("factor = 2.0", "factor = open"))["k"].over()


def test_a_source_that_changed_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "changing.py"
    file.write_text("import tilewright as tw\n" + HEAD + "    x[0] = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("changing")
    file.write_text("import tilewright as tw\n" + HEAD + "    x[0] = 12.0\n")
    with pytest.raises(KernelError, match="the source of k has changed since Python loaded it"):
        tw.kernel(module.k.__wrapped__)
    sys.modules.pop("changing")


def test_no_source() -> None:
    space: dict[str, object] = {"tw": tw}
    with pytest.raises(KernelError, match="the source of k is not available"):
        exec(HEAD + "    x[0] = 1.0\n", space)


@tw.kernel
def some(x: tw.array("T", 1), m: tw.constant) -> None:
    if tw.global_id(0) < m:
        x[tw.global_id(0)] = m


def test_refused_launches() -> None:
    x = np.zeros(4, np.float32)
    for range_, values, options, what in [
        ((4,), (x,), {}, "1 arguments are given for 2 parameters"),
        ((), (x, 1), {}, "the range is ()"),
        ((1, 2, 3, 4), (x, 1), {}, "the range is (1, 2, 3, 4)"),
        ((-1,), (x, 1), {}, "the range is (-1,)"),
        ((6,), (x, 1), {"local": 4}, "the local size (4,) does not divide the range (6,)"),
        ((6,), (x, 1), {"local": (2, 2)}, "the local size (2, 2) for the range (6,)"),
        ((6,), (x, 1), {"offset": (2, 2)}, "the offset (2, 2) for the range (6,)"),
        ((6,), (x, x), {}, "the constant m is"),
    ]:
        with pytest.raises(ArgumentError) as caught:
            some.launch(range_, *values, **options, target="interpreter")
        assert what in str(caught.value)
    with pytest.raises(ArgumentError, match="T is open"):
        some.over(m=3)
    with pytest.raises(ArgumentError, match="there is no type and no constant q"):
        some.over(m=3, T="f32", q=1)
    with pytest.raises(KernelError, match="the kernel some is called as a function"):
        some(x, 1)
    with pytest.raises(KernelError, match=r"tw.global_id is called outside of a kernel"):
        tw.global_id(0)


@tw.kernel
def meeting(x: tw.array("f32", 1)) -> None:
    tw.barrier()
    x[0] = 1.0


def test_barriers_need_a_local_size() -> None:
    with pytest.raises(KernelError, match="launched without a local size") as caught:
        meeting.launch(64, np.zeros(1, np.float32), target="interpreter")
    assert caught.value.span.caret().splitlines()[0] == "    tw.barrier()"


APART = {
    "if tw.local_id(0) < 3: tw.barrier()": "if tw.local_id(0) < 3:",
    "if l >= 40:\n        return\n    x[0] = tw.group_reduce(x[0], 'add')": "if l >= 40:",
    "for k in range(l): tw.barrier()": "for k in range(l):",
    "if tw.lane_id() < 3: x[l] = tw.shuffle(x[l], 0)": "if tw.lane_id() < 3:",
    "if l % 2 == 0:\n        if n > 3: tw.barrier('subgroup')": "if l % 2 == 0:",
}


@pytest.mark.parametrize("body", APART)
def test_who_cannot_meet(body: str) -> None:
    """Of all targets: those who wait are told apart by their ids."""
    text = HEAD.replace("kernel", "kernel(subgroup=16)") + "    l = tw.local_id(0)\n    " + body
    with pytest.raises(KernelError, match="only some work-items of a") as caught:
        defined(text + "\n")["k"].over(local=64)
    span = caught.value.span
    assert span is not None and span.text[span.start : span.end] == APART[body]


def test_who_meets_all_the_same() -> None:
    """Subgroups apart from each other, conditions that hold for all, and what a launch decides."""
    for body in (
        "if tw.subgroup_id() < 1: x[l] = tw.subgroup_reduce(x[l], 'add')",
        "if l < 64: tw.barrier()",
        "if n < 3: tw.barrier()",
        "for k in range(n): tw.barrier()",
        "if l < 3: x[l] = 1.0\n    tw.barrier()",
    ):
        text = HEAD.replace("kernel", "kernel(subgroup=16)") + "    l = tw.local_id(0)\n    " + body
        assert defined(text + "\n")["k"].over(local=64).params


@pytest.mark.parametrize("target", ["x86", "spirv:cpu", "nvidia:sm_80"])
def test_local_memory_beyond_the_machine(target: str) -> None:
    body = "    t = tw.local(1 << 22, 'f32')\n    t[n] = x[0]\n    tw.barrier()\n    x[0] = t[0]\n"
    kernel = defined(HEAD + body)["k"].over(local=64)
    with pytest.raises(CompilationError, match="16777216 bytes") as caught:
        tw.compile(kernel, target).source("asm")
    span = caught.value.span
    assert span is not None and span.text[span.start : span.end] == "t = tw.local(1 << 22, 'f32')"


@pytest.mark.parametrize("lanes", [2, 4, 64, 128])
def test_subgroups_that_cannot_exchange_values(lanes: int) -> None:
    """OpenCL's processor takes any size, and gives lanes wrong values in some."""
    text = HEAD.replace("kernel", f"kernel(subgroup={lanes})")
    body = "    i = tw.global_id(0)\n    x[i] = tw.shuffle_xor(x[i], 1)\n"
    kernel = defined(text + body)["k"].over(local=256)
    if lanes in (4, 64):
        assert tw.compile(kernel, "spirv:cpu").source("llvm")
        return
    with pytest.raises(UnsupportedError, match=f"a subgroup of {lanes} lanes") as caught:
        tw.compile(kernel, "spirv:cpu")
    assert "cure: choose a subgroup of 4, 8, 16, 32, 64" in str(caught.value)
    span = caught.value.span
    assert span is not None and "tw.shuffle_xor(x[i], 1)" in span.text


def test_private_memory_beyond_the_machine() -> None:
    body = "    t = tw.private(1 << 22, 'f32')\n    t[n] = x[tw.global_id(0)]\n    x[0] = t[0]\n"
    with pytest.raises(CompilationError, match="of a thread's stack") as caught:
        tw.compile(defined(HEAD + body)["k"].over(local=64), "x86")
    assert "tw.private(1 << 22, 'f32')" in caught.value.span.caret()


BAD = """
import tilewright as tw

@tw.kernel(local=32)
def race(x: tw.array("f32", ("n",)), n: tw.s32):
    t = tw.local(1, "f32")
    t[0] = 1.0
    tw.barrier()
    x[min(tw.global_id(0), n - 1)] = t[0]

@tw.kernel
def outside(x: tw.array("f32", ("n",)), n: tw.s32):
    i = tw.global_id(0)
    if i <= n:
        x[i] = 1.0

@tw.kernel(local=32)
def missing(x: tw.array("f32", ("n",)), n: tw.s32):
    t = tw.local(32, "f32")
    i = tw.global_id(0)
    t[tw.local_id(0)] = 1.0 if i < n else 0.0
    if i < n:
        x[i] = t[31 - tw.local_id(0)]

@tw.kernel
def fine(x: tw.array("f32", ("n",)), n: tw.s32):
    i = tw.global_id(0)
    if i < n:
        x[i] = 1.0
"""


def test_check_finds_what_is_planted(tmp_path: Path, tilewright: Command) -> None:
    file = tmp_path / "bad.py"
    file.write_text(BAD)
    names = ("race", "outside", "missing", "fine")
    settings = ("--set=n=40", "--set=global_0=64")
    ended = tilewright("check", *settings, "kernel", *(f"{file}:{name}" for name in names))
    assert ended.code == 1
    said = ended.out
    for text in (
        *("data race on 't'", "bad.py:7:5", "t[0] = 1.0"),
        *("out of bounds: x[", "bad.py:15:9", "x[i] = 1.0"),
        *("data race on 't'", "bad.py:23:9", "x[i] = t[31 - tw.local_id(0)]"),
    ):
        assert text in said
    assert not re.search(r"FAILED.*:fine", said)
    assert re.search(r"PASSED.*:fine", said)


def test_python_files_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "none.py"
    for text, what in [("1 / 0", "does not run: ZeroDivisionError"), ("x = 1", "has no kernels")]:
        file.write_text(text)
        with pytest.raises(TilewrightError, match=what):
            python_kernels(file, "")
    with pytest.raises(TilewrightError, match="cannot read the kernel file"):
        python_kernels(tmp_path / "nowhere.py", "")


def test_mutated_kernels_are_refused_with_a_place() -> None:
    assert fuzz_lang.fuzz(60, 0) == []


TYPED = [
    ("t = n\nu = t // 2\nt = t * 0.5\nx[u] = t", "t // 2", "line 5, `t = t * 0.5`"),
    ("t = n\nfor i in range(3):\n    x[t] = 1.0\n    t *= 0.5", "t", "line 6, `t *= 0.5`"),
    ("t = 0\nt = x[0]\nfor i in range(t): x[i] = 1.0", "range(t)", "t is f32 because of line 4"),
    ("t = n\nt = t & 1\nt = x[0]", "t & 1", "t is f32 because of line 5"),
    (
        "y = tw.local(4, 's32')\nt = 0\nt = x.shape[0]\ny[0] = t",
        "y[0]",
        "t is s64 because of line 5",
    ),
]


@pytest.mark.parametrize(("body", "marked", "why"), TYPED)
def test_types_that_an_assignment_decides(body: str, marked: str, why: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    with pytest.raises(KernelError) as caught:
        defined(HEAD + lines)["k"].over(local=(16,))
    error = caught.value
    assert error.span.text[error.span.start : error.span.end].startswith(marked)
    assert error.why is not None and why in error.why


RACES = [
    ("x[0] = 1.0", "workgroups run in any order", "write its own part of x, or"),
    ("if i < 64: x[i // 2] += 1.0", "the work-items of a workgroup run", "its own x, or"),
]


@pytest.mark.parametrize(("body", "why", "cure"), RACES)
def test_races_quote_the_source_and_name_atomics(body: str, why: str, cure: str) -> None:
    kernel = defined(HEAD + f"    i = tw.global_id(0)\n    {body}\n")["k"]
    with pytest.raises(InterpreterFault, match="data race on 'x'") as caught:
        kernel.launch(128, np.zeros(128, np.float32), 0, target="interpreter")
    error = caught.value
    assert "group_0 * 64" not in str(error) and body.split(": ")[-1] in str(error)
    assert error.why is not None and why in error.why
    assert error.cure is not None and cure in error.cure and "tw.atomic_add" in error.cure


@pytest.mark.parametrize("target", ["x86", "interpreter"])
def test_cures_name_the_parameter_at_fault(target: str) -> None:
    text = "@tw.kernel\ndef k(x: tw.array('f32', 1), y: tw.array('f32', 1)):\n    y[0] = x[0]\n"
    x = np.zeros(8, np.float32)
    with pytest.raises(ArgumentError, match="y has f64 elements, expected f32") as caught:
        defined(text)["k"].launch(1, x, x.astype(np.float64), target=target)
    cure = "convert it, as in y.astype('float32'), and copy that back to y after the call"
    assert caught.value.cure == cure

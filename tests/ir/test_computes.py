"""Structured ops with several results, combiners, ordered dims and loaded places: the text, what
the verifier refuses, and what the interpreter gives, as they are and lowered to loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from assembly import assembled
from compute_cases import CASES, Case, check
from needs import needs_opencl
from tilewright.interpret import computes
from tilewright.ir import Buffer, const, difference, parse_kernel, to_text, var, verify
from tilewright.ir.stmt import Compute, For, Kernel, LoopKind
from tilewright.ir.visit import replace_buffer, rewrite_exprs, substitute_stmt, walk_stmts
from tilewright.passes import pipeline as passes
from tilewright.schedule.loops.lower import lower_computes
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.program import abi_of
from tilewright.targets.registry import find_target

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@every_case
def test_the_text_comes_back(case: Case) -> None:
    kernel = parse_kernel(case.text)
    verify(kernel)
    again = parse_kernel(to_text(kernel))
    assert difference(kernel, again) is None
    assert to_text(again) == to_text(kernel)


@every_case
def test_the_interpreter_agrees_with_numpy(case: Case) -> None:
    for seed in range(3):
        check(parse_kernel(case.text), case, seed)


@every_case
def test_points_in_many_boxes_give_the_same(case: Case, monkeypatch) -> None:
    monkeypatch.setattr(computes, "POINT_LIMIT", 16)
    check(parse_kernel(case.text), case)


@every_case
def test_loops_and_stores_give_the_same(case: Case) -> None:
    lowered = lower_computes(parse_kernel(case.text))
    assert not any(isinstance(stmt, Compute) for stmt in walk_stmts(lowered.body))
    verify(lowered)
    assert difference(parse_kernel(to_text(lowered)), lowered) is None
    check(lowered, case)


# The dim of each compute that runs in lanes; three lanes, so that the last ones are masked.
LANES = {
    "argmax": {"argmax": "m"},
    "welford": {"moments": "i"},
    "log_sum_exp": {"sums": "i"},
    "inclusive": {"scan": "m"},
    "exclusive": {"scan": "m"},
    "recurrence": {"recur": "m"},
    "gather": {"rows": "m"},
    "scatter_add": {"add_rows": "n"},
    "scatter": {"rows": "m"},
    "swap": {"swap": "j"},
}


@pytest.mark.parametrize("name", LANES)
def test_lanes_give_the_same(name: str) -> None:
    lowered = lower_computes(parse_kernel(CASES[name].text), vector=LANES[name], lanes=4)
    verify(lowered)
    assert "vector for" in to_text(lowered)
    check(lowered, CASES[name])


def _compiled(kernel: Kernel, case: Case, target_name: str) -> None:
    """Runs ``kernel`` as machine code, and checks what it gives."""
    target = find_target(target_name)
    module = target.lower(passes.run(kernel, check=True))
    program = target.load(target.assemble(module), abi_of(kernel, module))
    arrays = case.arrays(np.random.default_rng(1))
    wanted = case.wanted(arrays)
    memory = {name: array.copy() for name, array in arrays.items()}
    program.run([memory[p.name].ctypes.data for p in kernel.params], 1)
    tolerance = case.tolerance
    assert wanted
    for name, want in wanted.items():
        np.testing.assert_allclose(memory[name], want, tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_a_user_compiles_it(name: str) -> None:
    case = CASES[name]
    kernel = parse_kernel(case.text)
    arrays = case.arrays(np.random.default_rng(2))
    wanted = case.wanted({name: array.copy() for name, array in arrays.items()})
    out = {p.name: arrays[p.name] for p in kernel.arrays if p.access == "out"}
    values = {name: array for name, array in arrays.items() if name not in out}
    tw.compile(kernel, target="x86", threads=2)(
        **values, out=out if len(out) != 1 else next(iter(out.values()))
    )
    assert wanted
    for name, want in wanted.items():
        np.testing.assert_allclose(arrays[name], want, case.tolerance, case.tolerance)


def _on_a_grid(kernel: Kernel) -> Kernel:
    return replace(kernel, body=For(var("only"), const(1), kernel.body, LoopKind.GRID))


def _variants(name: str) -> list[Kernel]:
    kernel = parse_kernel(CASES[name].text)
    lowered = [lower_computes(kernel)]
    if name in LANES:
        lowered.append(lower_computes(kernel, vector=LANES[name], lanes=4))
    return lowered


@pytest.mark.parametrize("name", CASES)
def test_x86_gives_the_same(name: str) -> None:
    kernels = _variants(name)
    assert len(kernels) == 1 + (name in LANES)
    for kernel in kernels:
        _compiled(kernel, CASES[name], "x86")


@needs_opencl
@pytest.mark.parametrize("name", CASES)
def test_spirv_gives_the_same(name: str) -> None:
    kernels = _variants(name)
    assert kernels
    for kernel in kernels:
        _compiled(_on_a_grid(kernel), CASES[name], "spirv:cpu")


@pytest.mark.parametrize("name", CASES)
def test_nvidia_is_assembled(name: str) -> None:
    kernels = _variants(name)
    assert kernels
    for kernel in kernels:
        module = find_target("nvidia:sm_80").lower(passes.run(_on_a_grid(kernel), check=True))
        ptx = to_ptx(module.text, "sm_80")
        assert ".target sm_80\n" in ptx
        assembled(ptx, "sm_80")


CHANGED = {
    "ordered": ("scan(m in 6, ordered k", "scan(m in 6, k", "inclusive", "ordered differs"),
    "unique": ("unique dst[i, n] =", "dst[i, n] add=", "scatter", "combiner differs"),
    "promise": ("unique dst[i, n] =", "dst[i, n] =", "scatter", "unique differs"),
    "combiner": ("(-inf, 1000)", "(-inf, 1001)", "argmax", "combiner differs"),
    "value": ("first= x, k", "first= x, k + 1", "argmax", "body differs"),
    "output": ("columns[k] add=", "columns[9 - k] add=", "sums", "out differs"),
}


@pytest.mark.parametrize(("old", "new", "name", "said"), CHANGED.values(), ids=CHANGED.keys())
def test_what_differs_is_said(old: str, new: str, name: str, said: str) -> None:
    text = CASES[name].text
    assert old in text
    result = difference(parse_kernel(text), parse_kernel(text.replace(old, new)))
    assert result is not None and said in result


@every_case
def test_walks_keep_what_they_do_not_change(case: Case) -> None:
    body = parse_kernel(case.text).body
    assert rewrite_exprs(body, lambda expr: expr) is body
    assert substitute_stmt(body, {var("nobody"): const(0)}) is body


def test_buffers_are_replaced_in_all_results() -> None:
    kernel = parse_kernel(CASES["argmax"].text)
    old = kernel.params[2].buffer
    new = Buffer("where", old.dtype, old.shape, old.layout)
    text = to_text(replace_buffer(kernel.body, old, new))
    assert "best[m], where[m] first= x, k" in text and "where[i] = 1000" in text
    assert "place" not in text


def test_dims_are_replaced_in_all_that_a_compute_has() -> None:
    (scatter,) = (
        s for s in walk_stmts(parse_kernel(CASES["sums"].text).body) if isinstance(s, Compute)
    )
    free = replace(scatter, dims=scatter.dims[1:])
    text = to_text(substitute_stmt(free, {scatter.dims[0].var: const(3)}))
    assert text.splitlines()[1:] == [
        "  x = src[3, k]",
        "  rows[3] add= x",
        "  columns[k] add= x * x",
        "  most[3] max= x",
    ]

"""Random kernels whose computes have what computes may have: the text comes back, and loops and
stores, and machine code, give what the interpreter gives."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_computes import Variation
from random_ir import random_buffer, random_kernel
from sweeps import in_turns
from tilewright.dtypes import DType, boolean, s8, s32, s64, u8
from tilewright.engine.program import Code
from tilewright.interpret import run
from tilewright.ir import (
    Block,
    Compute,
    Dim,
    Expr,
    Kernel,
    Operand,
    Param,
    Stmt,
    Var,
    View,
    binary,
    cast,
    const,
    difference,
    parse_kernel,
    select,
    to_text,
    var,
    variables,
    verify,
)
from tilewright.ir.stmt import Combiner
from tilewright.ir.visit import walk_stmts
from tilewright.passes import pipeline as passes
from tilewright.schedule.loops.lower import lower_computes
from tilewright.targets.program import abi_of
from tilewright.targets.x86.target import x86_target

# Sums of integers do not depend on their order.
TYPES = (s64, s32, s8, u8)


def _kernel(seed: int, statements: int = 10) -> Kernel:
    return random_kernel(Random(seed), statements, types=TYPES)


class Small:
    """Draws expressions of small numbers: s64 counts as unbounded for the simplifier and in
    addresses, and they stay far from its ends."""

    def __init__(self, rng: Random, variables: Sequence[Var]) -> None:
        self.rng, self.variables = rng, variables

    def expr(self, type: DType, depth: int) -> Expr:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            fitting = [v for v in self.variables if type is not boolean]
            if fitting and rng.random() < 0.8:
                return cast(type, rng.choice(fitting))
            return const(rng.randint(0, 9), type) if type is not boolean else const(True)
        if type is boolean:
            op = rng.choice(("lt", "le", "eq", "ne"))
            return binary(op, self.expr(s64, depth - 1), self.expr(s64, depth - 1))
        if rng.random() < 0.2:
            parts = (self.expr(type, depth - 1), self.expr(type, depth - 1))
            return select(self.expr(boolean, depth - 1), *parts)
        op = rng.choice(("add", "sub", "mul", "min", "max"))
        return binary(op, self.expr(type, depth - 1), self.expr(type, depth - 1))

    def index(self, shape: Sequence[int], depth: int) -> tuple[Expr, ...]:
        return tuple(self.expr(s64, depth) % size for size in shape)


def _computes(seed: int) -> Kernel:
    """Computes in a row, most of them varied."""
    rng = Random(seed)
    counts: dict[str, int] = {}

    def name(stem: str) -> str:
        counts[stem] = counts.get(stem, 0) + 1
        return f"{stem}{counts[stem]}"

    types = (s32, s8, u8)
    buffers = [random_buffer(rng, f"arg{i}", types=types) for i in range(rng.randint(2, 5))]
    variation = Variation(rng, name, lambda v: Small(rng, v), buffers, buffers)
    body: list[Stmt] = []
    for _ in range(rng.randint(1, 5)):
        out = rng.choice(buffers)
        dims = [Dim(var(name("d")), const(size)) for size in out.shape]
        index = tuple(d.var for d in dims)
        combiner = rng.choice((None, "add", "min", "max"))
        if combiner is not None:
            dims.append(Dim(var(name("k")), const(rng.randint(1, 5))))
        inside = [d.var for d in dims]
        operands: list[Operand] = []
        for buffer in rng.sample(buffers, 2):
            if buffer is not out:
                mask = Small(rng, inside).expr(boolean, 2) if rng.random() < 0.3 else None
                view = View(buffer, Small(rng, inside).index(buffer.shape, 2), mask)
                operands.append(Operand(var(name("e"), buffer.dtype), view))
        values = [*inside, *(o.var for o in operands)]
        mask = Small(rng, inside).expr(boolean, 2) if rng.random() < 0.2 else None
        value = Small(rng, values).expr(out.dtype, 3)
        result = Compute.single(
            name("op"), tuple(dims), View(out, index, mask), tuple(operands), value, combiner
        )
        body.append(variation.vary(result) if rng.random() < 0.8 else result)
    return Kernel("random", tuple(Param(b, "inout") for b in buffers), Block(tuple(body)))


def _memory(kernel: Kernel, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        p.name: rng.integers(-9 if p.dtype.kind == "int" else 0, 10, p.buffer.layout.extent).astype(
            p.dtype.numpy
        )
        for p in kernel.params
    }


def _same(kernel: Kernel, memory: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert wanted
    for name, values in wanted.items():
        np.testing.assert_array_equal(memory[name], values, err_msg=f"{name}\n{to_text(kernel)}")


def test_all_is_drawn() -> None:
    results: set[str] = set()
    for seed in range(40):
        for stmt in (*walk_stmts(_kernel(seed).body), *walk_stmts(_computes(seed).body)):
            if isinstance(stmt, Compute):
                results |= {"results"} if len(stmt.results) > 1 else set()
                results |= {"ordered"} if stmt.is_ordered else set()
                for result in stmt.results:
                    results |= {"unique"} if result.unique else set()
                    if isinstance(result.combiner, Combiner):
                        results.add(f"combiner of {len(result.views)}")
                    own = {o.var for o in stmt.operands}
                    if any(own & _names(index) for v in result.views for index in v.index):
                        results.add("scatter")
                for operand in stmt.operands:
                    if any({o.var for o in stmt.operands} & _names(i) for i in operand.view.index):
                        results.add("gather")
    kinds = {"results", "ordered", "unique", "combiner of 1", "combiner of 2", "scatter", "gather"}
    assert results == kinds


def _names(index: Any) -> set[Any]:
    return set(variables(index))


@pytest.mark.parametrize("part", in_turns(2, range(2)))
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_lowering_is_interpretation(seed: int, part: int) -> None:
    kernel = _computes(seed)
    verify(kernel)
    assert difference(parse_kernel(to_text(kernel)), kernel) is None
    lowered = lower_computes(kernel)
    verify(lowered)
    memory = _memory(kernel, seed)
    wanted = {name: array.copy() for name, array in memory.items()}
    run(kernel, wanted)
    run(lowered, memory)
    _same(kernel, memory, wanted)


@pytest.mark.parametrize("part", in_turns(2, range(2)))
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_lowering_among_other_statements(seed: int, part: int) -> None:
    kernel = _kernel(seed)
    # Before it is simplified: for that, s64 is unbounded, and these expressions wrap.
    lowered = lower_computes.__wrapped__(kernel)
    verify(lowered)
    memory = _memory(kernel, seed)
    wanted = {name: array.copy() for name, array in memory.items()}
    run(kernel, wanted)
    run(lowered, memory)
    _same(kernel, memory, wanted)


@pytest.mark.parametrize("seed", [*range(20), 75, 265])
def test_machine_code_is_interpretation(seed: int) -> None:
    kernel = _computes(seed)
    target = x86_target("")
    module = target.lower(passes.run(lower_computes(kernel), check=True))
    code = Code(target, target.assemble(module), abi_of(kernel, module))
    memory = _memory(kernel, seed)
    wanted = {name: array.copy() for name, array in memory.items()}
    run(kernel, wanted)
    code.run([memory[p.name].ctypes.data for p in kernel.params], 1)
    _same(kernel, memory, wanted)

"""Hypothesis strategies over the generators of `random_ir`."""

from __future__ import annotations

from hypothesis import strategies as st

from random_ir import random_expr, random_kernel
from tilewright.dtypes import ALL, bf16, boolean, f32, s64
from tilewright.ir import Buffer, Expr, Kernel, LoopKind, buffer, var

VARIABLES = (
    var("i"),
    var("j"),
    var("n.0"),
    var("x", f32),
    var("h", bf16),
    var("b", boolean),
    var("odd name", s64),
    var("for", f32),
)
BUFFERS: tuple[Buffer, ...] = (
    buffer("ints", s64, (4, 3)),
    buffer("floats", f32, (5,)),
    buffer("flags", boolean, (2,)),
    buffer("scalar", bf16, ()),
)

randoms = st.randoms(use_true_random=False)


@st.composite
def exprs(draw: st.DrawFn, depth: int = 5) -> Expr:
    """Any expression over `VARIABLES` and `BUFFERS`."""
    type_ = draw(st.sampled_from(ALL))
    return random_expr(draw(randoms), type_, VARIABLES, BUFFERS, depth)


@st.composite
def kernels(draw: st.DrawFn, statements: int = 12) -> Kernel:
    """Kernels that verify, with loops of every kind."""
    return random_kernel(draw(randoms), statements, tuple(LoopKind))

"""One planted fault per check of the verifier, with what it says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from strategies import kernels
from sweeps import in_turns
from tilewright.dtypes import DType, bf16, boolean, f32, s32, s64
from tilewright.errors import VerificationError
from tilewright.ir import (
    Allocate,
    Block,
    Buffer,
    Call,
    Compute,
    Dim,
    Expr,
    For,
    If,
    Kernel,
    Layout,
    Let,
    LoopKind,
    Operand,
    Param,
    Space,
    Stmt,
    Store,
    View,
    buffer,
    const,
    load,
    parse_kernel,
    var,
    verify,
)
from tilewright.ir.buffer import LayoutBlock
from tilewright.ir.functions import FUNCTIONS, Function, Parameter

src = buffer("src", f32, (4, 8))
dst = buffer("dst", f32, (4, 8))
acc = buffer("acc", f32, (8,), space=Space.PRIVATE)
flags = buffer("flags", boolean, (4,))
i, j, x = var("i"), var("j"), var("x")
zero, one = const(0), const(1.0)
store = Store(dst, (zero, zero), one)


def kernel(*body: Stmt) -> Kernel:
    params = (Param(src, "in"), Param(dst, "out"), Param(flags, "inout"))
    return Kernel("k", params, Block(body))


def loop(body: Stmt, variable=i, kind: LoopKind = LoopKind.SERIAL, extent=None) -> For:
    return For(variable, const(4) if extent is None else extent, body, kind)


def compute(
    dims: tuple[Dim, ...] = (Dim(i, const(4)), Dim(j, const(8))),
    out: View | None = None,
    operands: tuple[Operand, ...] = (),
    body: Expr = one,
    combiner: str | None = None,
    name: str = "op",
) -> Compute:
    return Compute.single(name, dims, out or View(dst, (i, j)), operands, body, combiner)


def with_layout(blocks: tuple[tuple[int, int, int], ...], shape=(4, 8), offset: int = 0) -> Kernel:
    layout = Layout(tuple(LayoutBlock(*b) for b in blocks), offset)
    return kernel(Allocate(Buffer("a", f32, shape, layout)))


FAULTS: dict[str, tuple[Kernel, str, str]] = {
    # Names.
    "variable not defined": (
        kernel(Store(dst, (i, zero), one)),
        "i is used where it is not defined",
        "`dst[i, 0] = 1.0` in kernel k",
    ),
    "variable after its loop": (
        kernel(loop(store), Store(dst, (i, zero), one)),
        "i is used where it is not defined",
        "`dst[i, 0] = 1.0` in kernel k",
    ),
    "let after its block": (
        kernel(Block((Let(x, zero), store)), Store(dst, (x, zero), one)),
        "x is used where it is not defined",
        "`dst[x, 0] = 1.0` in kernel k",
    ),
    "let in one branch": (
        kernel(If(const(True), Let(x, zero), Store(dst, (x, zero), one))),
        "x is used where it is not defined",
        "`dst[x, 0] = 1.0` in `if True:` in kernel k",
    ),
    "let used in its own value": (
        kernel(Let(x, x + 1)),
        "x is used where it is not defined",
        "`x = x + 1` in kernel k",
    ),
    "variable in a mask": (
        kernel(Store(dst, (zero, zero), load(src, (zero, zero), i < 3))),
        "i is used where it is not defined",
        "`dst[0, 0] = src[0, 0 | i < 3]` in kernel k",
    ),
    "variable of another type": (
        kernel(Let(x, zero), Store(dst, (zero, zero), var("x", f32))),
        "x is defined as s64 and used as f32",
        "`dst[0, 0] = x` in kernel k",
    ),
    "loop variable shadowed": (
        kernel(loop(loop(store))),
        "i is defined twice",
        "`for i in 4:` in `for i in 4:` in kernel k",
    ),
    "let shadows a let": (
        kernel(Let(x, zero), Let(x, const(1))),
        "x is defined twice",
        "`x = 1` in kernel k",
    ),
    "dim shadows a loop": (
        kernel(loop(compute())),
        "i is defined twice",
        "`compute op(i in 4, j in 8):` in `for i in 4:` in kernel k",
    ),
    "dim defined twice": (
        kernel(compute(dims=(Dim(i, const(4)), Dim(i, const(8))))),
        "i is defined twice",
        "`compute op(i in 4, i in 8):` in kernel k",
    ),
    "operand shadows a dim": (
        kernel(compute(operands=(Operand(var("j", f32), View(src, (i, j))),))),
        "j is defined twice",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    "operand in a view": (
        kernel(
            compute(operands=(Operand(var("s", f32), View(src, (i, var("s", s64)))),)),
        ),
        "s is used where it is not defined",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    "dim in an extent": (
        kernel(compute(dims=(Dim(i, const(4)), Dim(j, i)))),
        "i is used where it is not defined",
        "`compute op(i in 4, j in i):` in kernel k",
    ),
    "dim after its op": (
        kernel(compute(), Store(dst, (i, zero), one)),
        "i is used where it is not defined",
        "`dst[i, 0] = 1.0` in kernel k",
    ),
    "a name that does not print": (
        kernel(Let(var("a`b"), zero)),
        "'a`b' is no name",
        "``a`b` = 0` in kernel k",
    ),
    "no name": (kernel(compute(name="")), "'' is no name", "in kernel k"),
    # Buffers.
    "buffer not in scope": (
        kernel(Store(acc, (zero,), one)),
        "the buffer acc is not in scope",
        "`acc[0] = 1.0` in kernel k",
    ),
    "buffer after its block": (
        kernel(Block((Allocate(acc), store)), Store(acc, (zero,), one)),
        "the buffer acc is not in scope",
        "`acc[0] = 1.0` in kernel k",
    ),
    "another buffer of that name": (
        kernel(Store(buffer("dst", f32, (4, 8)), (zero, zero), one)),
        "dst is another buffer than the one of that name in scope",
        "`dst[0, 0] = 1.0` in kernel k",
    ),
    "buffer name taken": (
        kernel(Allocate(buffer("src", f32, (2,)))),
        "a buffer called src is in scope already",
        "`alloc src: f32[2]` in kernel k",
    ),
    "two parameters of one name": (
        Kernel("k", (Param(src, "in"), Param(src, "in")), store),
        "a buffer called src is in scope already",
        "the parameters in kernel k",
    ),
    "access of a parameter": (
        Kernel("k", (Param(src, "read"),), store),
        "the parameter src has the access 'read'",
        "the parameters in kernel k",
    ),
    "space of a parameter": (
        Kernel("k", (Param(acc, "in"),), store),
        "the parameter acc is in private memory",
        "the parameters in kernel k",
    ),
    "constant memory written": (
        kernel(Allocate(buffer("table", f32, (3,), space=Space.CONSTANT))),
        "table is written, but constant memory cannot be",
        "`alloc table: f32[3] constant` in kernel k",
    ),
    "in parameter stored to": (
        kernel(Store(src, (zero, zero), one)),
        "src is an `in` parameter, but is written",
        "`src[0, 0] = 1.0` in kernel k",
    ),
    "in parameter computed": (
        kernel(compute(out=View(src, (i, j)))),
        "src is an `in` parameter, but is written",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    # Types.
    "value stored": (
        kernel(Store(dst, (zero, zero), const(1))),
        "what dst holds must be f32, `1` is s64",
        "`dst[0, 0] = 1` in kernel k",
    ),
    "value of a let": (
        kernel(Let(x, one)),
        "the value of x must be s64, `1.0` is f32",
        "`x = 1.0` in kernel k",
    ),
    "condition": (
        kernel(If(zero, store)),
        "a condition must be bool, `0` is s64",
        "`if 0:` in kernel k",
    ),
    "extent": (
        kernel(loop(store, extent=const(4, s32))),
        "an extent must be s64, `s32(4)` is s32",
        "`for i in s32(4):` in kernel k",
    ),
    "loop variable": (
        kernel(loop(store, variable=var("i", s32))),
        "the loop variable i is s32",
        "`for i: s32 in 4:` in kernel k",
    ),
    "index": (
        kernel(Store(dst, (zero, const(0, s32)), one)),
        "an index must be s64, `s32(0)` is s32",
        "`dst[0, s32(0)] = 1.0` in kernel k",
    ),
    "index of a load inside an index": (
        kernel(Let(x, zero), If(load(flags, (const(1.0),)), store)),
        "an index must be s64, `1.0` is f32",
        "`if flags[1.0]:` in kernel k",
    ),
    "mask": (
        kernel(compute(out=View(dst, (i, j), i))),
        "a mask must be bool, `i` is s64",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    "number of indices": (
        kernel(Store(dst, (zero,), one)),
        "dst has 2 dims, but 1 indices are given",
        "`dst[0] = 1.0` in kernel k",
    ),
    "body of an op": (
        kernel(compute(body=i)),
        "what dst holds must be f32, `i` is s64",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    "operand": (
        kernel(compute(operands=(Operand(var("s", bf16), View(src, (i, j))),))),
        "s is bf16, but src holds f32",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    "extent of a dim": (
        kernel(compute(dims=(Dim(i, const(4)), Dim(j, one)))),
        "the extent of j must be s64, `1.0` is f32",
        "`compute op(i in 4, j in 1.0):` in kernel k",
    ),
    "dim": (
        kernel(compute(dims=(Dim(var("i", s32), const(4)), Dim(j, const(8))))),
        "the dim i is s32",
        "`compute op(i: s32 in 4, j in 8):` in kernel k",
    ),
    # Combiners.
    "unknown combiner": (
        kernel(compute(combiner="sub")),
        "'sub' cannot combine values",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    "logic on numbers": (
        kernel(compute(combiner="and")),
        "and cannot combine values of type f32",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    "reduction without a combiner": (
        kernel(compute(out=View(dst, (zero, j)))),
        "the dim i is reduced, but there is no combiner",
        "`compute op(i in 4, j in 8):` in kernel k",
    ),
    # Layouts.
    "layout too small": (
        with_layout(((0, 4, 4), (1, 4, 1))),
        "the layout of a holds [4, 4], less than the shape [4, 8]",
        "`alloc a: f32[4, 8] {0:4:4 1:4:1}` in kernel k",
    ),
    "block of another dim": (
        with_layout(((0, 4, 8), (1, 8, 1), (2, 1, 1))),
        "the layout of a has a block of dim 2, of 2",
        "`alloc a: f32[4, 8] {0:4:8 1:8:1 2:1:1}` in kernel k",
    ),
    "block of negative size": (
        with_layout(((0, -4, 8), (1, 8, 1))),
        "the layout of a has a block of size -4",
        "`alloc a: f32[4, 8] {0:-4:8 1:8:1}` in kernel k",
    ),
    "negative shape": (
        with_layout(((0, 1, 1),), shape=(-4,)),
        "the layout of a is for the shape [-4], with a negative size",
        "`alloc a: f32[-4] {0:1:1}` in kernel k",
    ),
    "before the start": (
        with_layout(((0, 4, 8), (1, 8, -1)), offset=6),
        "the layout of a reaches before the start of the memory",
        "`alloc a: f32[4, 8] {0:4:8 1:8:-1 +6}` in kernel k",
    ),
    "aliasing strides": (
        with_layout(((0, 4, 7), (1, 8, 1))),
        "the layout of a puts several elements at one place, but the buffer is written",
        "`alloc a: f32[4, 8] {0:4:7 1:8:1}` in kernel k",
    ),
    "aliasing that is too large to enumerate": (
        with_layout(((0, 1 << 12, 1), (1, 1 << 12, 1 << 11)), shape=(1 << 12, 1 << 12)),
        "the layout of a puts several elements at one place, but the buffer is written",
        "`alloc a: f32[4096, 4096] {0:4096:1 1:4096:2048}` in kernel k",
    ),
    "broadcast output": (
        Kernel(
            "k", (Param(Buffer("a", f32, (4,), Layout((LayoutBlock(0, 4, 0),))), "out"),), store
        ),
        "the layout of a puts several elements at one place, but the buffer is written",
        "the parameters in kernel k",
    ),
    # Loops.
    "vector loop of unknown extent": (
        kernel(Let(x, zero), loop(store, kind=LoopKind.VECTOR, extent=x)),
        "a vector loop's extent is `x`",
        "`vector for i in x:` in kernel k",
    ),
    "parallel in unrolled": (
        kernel(loop(loop(store, j, LoopKind.PARALLEL), i, LoopKind.UNROLLED)),
        "a parallel loop cannot run inside a loop that is unrolled",
        "`parallel for j in 4:` in `unrolled for i in 4:` in kernel k",
    ),
    "lane in vector": (
        kernel(loop(loop(loop(store, x, LoopKind.LANE), j), i, LoopKind.VECTOR)),
        "a lane loop cannot run inside a loop that is vector",
        "`lane for x in 4:` in `for j in 4:` in `vector for i in 4:` in kernel k",
    ),
    # Calls.
    "unknown function": (
        kernel(Call("fetch", ())),
        "there is no function fetch",
        "`fetch()` in kernel k",
    ),
    "number of arguments": (
        kernel(Call("prefetch", ())),
        "prefetch takes 1 arguments, not 0",
        "`prefetch()` in kernel k",
    ),
    "value for a view": (
        kernel(Call("prefetch", (load(src, (zero, zero)),))),
        "the argument place of prefetch must be a view",
        "`prefetch(src[0, 0])` in kernel k",
    ),
    "view in a call": (
        kernel(Call("prefetch", (View(src, (zero, i)),))),
        "i is used where it is not defined",
        "`prefetch(&src[0, i])` in kernel k",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(fault: str) -> None:
    ill_formed, what, where = FAULTS[fault]
    with pytest.raises(VerificationError) as caught:
        verify(ill_formed)
    assert caught.value.what == what
    assert isinstance(caught.value.where, str)
    assert caught.value.where.endswith(where)
    assert caught.value.cure


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that writes a view and takes a value."""
    parameters = (Parameter("place", "out"), Parameter("value", "value"))
    described = Function("fill", parameters, (), "Fills.")
    monkeypatch.setitem(FUNCTIONS, "fill", described)


@pytest.mark.usefixtures("fill")
def test_calls_that_write() -> None:
    verify(kernel(Call("fill", (View(dst, (zero, zero)), one))))
    with pytest.raises(VerificationError, match="src is an `in` parameter, but is written"):
        verify(kernel(Call("fill", (View(src, (zero, zero)), one))))
    with pytest.raises(VerificationError, match="argument value of fill must be a value"):
        verify(kernel(Call("fill", (View(dst, (zero, zero)), View(src, (zero, zero))))))
    with pytest.raises(VerificationError, match="i is used where it is not defined"):
        verify(kernel(Call("fill", (View(dst, (zero, zero)), i))))


def test_an_error_says_what_where_why_and_the_cure() -> None:
    with pytest.raises(VerificationError) as caught:
        verify(kernel(loop(compute(dims=(Dim(j, const(8)),), combiner="sub"))))
    assert str(caught.value) == (
        "'sub' cannot combine values\n"
        "  where: `compute op(j in 8):` in `for i in 4:` in kernel k\n"
        "  why: the order in which reduced dims run is free\n"
        "  cure: use one of add, mul, min, max, and, or, or declare a `combiner`"
    )


@pytest.mark.parametrize(
    "body",
    [
        # Siblings may use one name.
        "for i in 4:\n  dst[i, 0] = 1.0\nfor i in 4:\n  dst[i, 0] = 1.0",
        "block:\n  alloc a: f32[2]\n  a[0] = 1.0\nblock:\n  alloc a: f32[2]\n  a[0] = 1.0",
        # What is written may be read.
        "dst[0, 0] = 1.0\ndst[0, 1] = dst[0, 0]",
        # Other layouts: padded, blocked, reversed, permuted, empty, interleaved.
        "alloc a: f32[4, 30] {0:4:32 1:2:16 1:16:1}",
        "alloc a: f32[4, 8] {0:4:-8 1:8:-1 +31}",
        "alloc a: f32[2, 2] {0:2:3 1:2:2}",
        "alloc a: f32[0, 8]",
        "alloc a: f32[1] {0:1:0}",
        "alloc a: f32[]",
        # A dim of extent 1 need not be combined.
        "compute op(i in 1, j in 8):\n  dst[0, j] = 1.0",
        "compute op(i in 4, j in 8, l in 3):\n  s = src[i, j]\n  dst[i, j] max= s * f32(l)",
        "compute op(l in 4):\n  flags[0] and= 2 < l",
        "parallel for i in 4:\n  unrolled for j in 8:\n    vector for l in 2:\n      pass",
        "barrier()",
        "prefetch(&src[0, 1000])",
    ],
)
def test_well_formed(body: str) -> None:
    header = "kernel k(in src: f32[4, 8], out dst: f32[4, 8], inout flags: bool[4]):\n"
    verify(parse_kernel(header + "".join(f"  {line}\n" for line in body.splitlines())))


def test_an_aliasing_parameter_may_be_read() -> None:
    verify(parse_kernel("kernel k(in a: f32[4] {0:4:0}, out b: f32[4]):\n  b[0] = a[3]"))


@pytest.mark.parametrize("part", in_turns(2, range(2)))
@settings(max_examples=50, deadline=None)
@given(kernel=kernels())
def test_random_kernels_are_well_formed(kernel: Kernel, part: int) -> None:
    verify(kernel)


@pytest.mark.parametrize(
    ("dtype", "combiner"), [(boolean, "or"), (f32, "mul"), (s64, "min")], ids=str
)
def test_combiners(dtype: DType, combiner: str) -> None:
    out = buffer("out", dtype, (2,))
    op = Compute.single(
        "op", (Dim(i, const(4)),), View(out, (zero,)), (), const(1, dtype), combiner
    )
    verify(Kernel("k", (Param(out, "inout"),), op))

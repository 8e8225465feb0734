"""The text form: golden texts, round trips, and refusals with their place."""

from __future__ import annotations

import math
import textwrap
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings

from strategies import BUFFERS, VARIABLES, exprs, kernels
from tilewright.dtypes import ALL, boolean, f32, f64, s8, s64
from tilewright.errors import ParseError, Span
from tilewright.ir import (
    Allocate,
    Block,
    Call,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Layout,
    Let,
    Load,
    LoopKind,
    Param,
    Space,
    Store,
    View,
    binary,
    buffer,
    const,
    difference,
    headline,
    load,
    minimum,
    parse_expr,
    parse_kernel,
    parse_stmt,
    printer,
    same,
    select,
    to_text,
    unary,
    var,
    verify,
)
from tilewright.ir.buffer import LayoutBlock
from tilewright.ir.operators import BINARY, KINDS, UNARY

TYPES = {v.name: v.type for v in VARIABLES}
NAMES = {b.name: b for b in BUFFERS}
i, j = var("i"), var("j")
b = var("b", boolean)


# Kernels.

CONVOLUTION = """
kernel conv_fwd(
    in src: bf16[1, 64, 56, 56] {0:1:200704 1:4:50176 2:56:896 3:56:16 1:16:1},
    in weights: bf16[64, 64, 3, 3],
    out dst: f32[1, 64, 56, 56],
):
  parallel for oh in 56:
    for ow_o in 4:
      alloc acc: f32[14, 32] private
      compute fill(ow in 14, oc in 32):
        acc[ow, oc] = 0.0
      # A row of taps at a time; what lies outside the image is 0.
      for kh in 3:
        compute conv<fma.f32x16>(ow in 14, oc in 32, ic in 64, kw in 3):
          s = src[0, ic, oh + kh - 1, ow_o * 14 + ow + kw - 1 |
                  oh + kh >= 1 and oh + kh < 57 and ow_o * 14 + ow + kw >= 1]
          w = weights[oc, ic, kh, kw]
          acc[ow, oc] add= f32(s) * f32(w)
      unrolled for ow in 14:
        vector for oc in 32:
          dst[0, oc, oh, ow_o * 14 + ow] = max(acc[ow, oc], 0.0)
"""


def every_node() -> Kernel:
    """A kernel that has everything that prints."""
    src = buffer("src", s8, (4, 30))
    blocks = (LayoutBlock(0, 4, 32), LayoutBlock(1, 2, 16), LayoutBlock(1, 16, 1))
    table = buffer("table", f64, (3,), space=Space.CONSTANT)
    out = buffer("out", f32, (4, 30), Layout(blocks, 8))
    shared = buffer("shared", boolean, (), space=Space.WORKGROUP)
    x, wide = var("x"), var("wide", f64)
    d, e = var("d"), var("e")
    reverse = Layout((LayoutBlock(0, 3, -1),), 2)
    body = Block(
        (
            Let(x, const(3) * i),
            Let(wide, load(table, (const(0),)) * const(0.1, f64)),
            Allocate(shared),
            Allocate(buffer("back", f32, (3,), reverse, Space.PRIVATE)),
            Store(shared, (), (i < 3) & ~b),
            Call("prefetch", (View(src, (i, x % 30)),)),
            Call("odd function", (load(src, (i, x)), const(1), View(shared, (), b))),
            If(load(shared, ()), Block(()), Block((Let(j, x), Store(shared, (), b)))),
            Block((Let(j, x + 1), If(b, Store(shared, (), b)))),
            Block(()),
            Compute.single(
                "scale",
                (Dim(d, const(4)), Dim(e, minimum(const(30), x))),
                View(out, (d, e), e < 30),
                (),
                const(-0.0),
                "max",
                "vmulps",
            ),
        )
    )
    loops = For(i, const(4), body, LoopKind.PARALLEL)
    params = (Param(src, "in"), Param(table, "in"), Param(out, "inout"))
    return Kernel("every.node", params, Block((Let(b, const(True)), loops)))


def test_golden_kernels(golden) -> None:
    kernel = parse_kernel(CONVOLUTION)
    verify(kernel)
    golden("ir_convolution", to_text(kernel))
    golden("ir_every_node", to_text(every_node()))


def test_every_loop_kind_and_space(golden) -> None:
    loops = "\n".join(f"{k.value} for i in 2:\n  pass" for k in LoopKind if k.value != "serial")
    spaces = "\n".join(f"alloc {s.value}_: f32[2] {s.value}" for s in Space)
    stmt = parse_stmt(f"for i in 2:\n  pass\n{loops}\n{spaces}")
    golden("ir_loop_kinds", to_text(stmt))


@pytest.mark.parametrize("text", [to_text(parse_kernel(CONVOLUTION)), to_text(every_node())])
def test_the_text_of_the_parsed_text_is_the_text(text: str) -> None:
    assert to_text(parse_kernel(text)) == text


def test_parsing_gives_back_every_field() -> None:
    kernel = every_node()
    again = parse_kernel(to_text(kernel))
    assert difference(kernel, again) is None
    layouts = [p.buffer.layout for p in again.params]
    assert layouts == [p.buffer.layout for p in kernel.params]


@settings(max_examples=150, deadline=None)
@given(kernels())
def test_random_kernels_come_back(kernel: Kernel) -> None:
    text = to_text(kernel)
    again = parse_kernel(text)
    assert to_text(again) == text
    assert difference(kernel, again) is None


@settings(max_examples=500, deadline=None)
@given(exprs())
def test_random_expressions_come_back_as_the_same_object(expr) -> None:
    assert parse_expr(to_text(expr), TYPES, NAMES) is expr


# Blocks.


@pytest.mark.parametrize(
    "text",
    [
        "pass",
        "block:\n  pass",
        "block:\n  x = 1",
        "block:\n  block:\n    x = 1",
        "pass\npass",
        "block:\n  x = 1\nblock:\n  x = 2",
        "for i in 3:\n  block:\n    x = 1",
        "if True:\n  pass\nelse:\n  if False:\n    pass\n  else:\n    x = 1",
    ],
)
def test_blocks_keep_their_scopes(text: str) -> None:
    assert to_text(parse_stmt(text)) == text


def test_a_block_of_one_statement_is_that_statement() -> None:
    assert isinstance(parse_stmt("x = 1"), Let)
    assert to_text(Block((parse_stmt("x = 1"),))) == "x = 1"


def test_statements_know_where_they_came_from() -> None:
    text = "for i in 3:\n  x = i\n  y = x  # comment\n"
    loop = parse_stmt(text)
    assert isinstance(loop, For)
    assert loop.span == Span(text, 0, 10)
    assert isinstance(loop.body, Block)
    spans = [s.span for s in loop.body.body if isinstance(s, Let)]
    assert [text[s.start : s.end] for s in spans if s is not None] == ["x = i", "y = x"]


def test_indented_text_parses() -> None:
    assert same(parse_kernel(textwrap.indent(CONVOLUTION, "    ")), parse_kernel(CONVOLUTION))


def test_headlines() -> None:
    loop = parse_stmt("grid for i in 8:\n  x = i")
    assert headline(loop) == "grid for i in 8:"
    assert repr(loop) == "grid for i in 8:\n  x = i"


def test_long_programs_take_linear_time() -> None:
    def seconds(count: int) -> float:
        lines = (f"  x{n} = x{n // 2} * 2 + {n}\n  out[x{n} % 8] = x{n}\n" for n in range(1, count))
        loops = (f"  for i in 3:\n    out[i] = x{n}\n" for n in range(count))
        text = "kernel long(out out: s64[8]):\n  x0 = 1\n" + "".join(lines) + "".join(loops)
        start = time.process_time()
        kernel = parse_kernel(text)
        verify(kernel)
        again = to_text(kernel)
        elapsed = time.process_time() - start
        assert again == text.rstrip()
        return elapsed

    short, long = min(seconds(500) for _ in range(3)), seconds(5000)
    assert long < 40 * short  # ten times as long; quadratic would be a hundred


def test_long_sums() -> None:
    total = i
    for n in range(10_000):
        total = total + n
    assert parse_expr(to_text(total), TYPES) is total


# Expressions.


@pytest.mark.parametrize(
    "text",
    [
        "i + j * 2",
        "(i + j) * 2",
        "i - (j - 1)",
        "i - j - 1",
        "i // 2 % 3",
        "i // (2 % j)",
        "-i * j",
        "-(i * j)",
        "-(-i)",
        "i + -1",
        "i - -1",
        "-2 * i",
        "not i < j",
        "not (i < j and b)",
        "not not b",
        "(not b) == b",
        "i < j and j < 3 or b",
        "(b or b) and b",
        "b and (b and b)",
        "(i < j) == b",
        "i << 2 >> j",
        "i << (2 >> j)",
        "i + 1 << 2",
        "i + (1 << j)",
        "i ^ j << 1",
        "(i ^ j) << 1",
        "(i and 255) == j",
        "i and j or not i",
        "not i + j",
        "(not i) + j",
        "mulhi(i, j) + clz(i) + popcount(j)",
        "u64(18446744073709551615)",
        "u32(i) ^ u32(7)",
        "u16(i) and u16(65535)",
        "bitcast(s32, x + 1.0)",
        "bitcast(u64, i)",
        "i + j < i * 2",
        "min(i, j + 1)",
        "pow(x, 2.0)",
        "select(i < j, x, 1.0)",
        "fma(x, 2.0, x)",
        "mad(x, 2.0, x)",
        "f32(i) + x",
        "s8(3)",
        "s8(i)",
        "f64(0.1)",
        "bf16(-0.0)",
        "bool(i)",
        "bool(i) and True",
        "ints[i, j + 1]",
        "ints[i, j | i < 4 and b]",
        "scalar[]",
        "scalar[ | b]",
        "-ints[ints[0, i], 2]",
        "`odd name` + n.0",
        "`for` * 2.0",
        "exp(rsqrt(x))",
        "-9223372036854775808",
        "9223372036854775807",
        "1e-40",
        "-inf",
        "nan",
        "f8_e4m3(448.0)",
    ],
)
def test_expressions_print_as_written(text: str) -> None:
    assert to_text(parse_expr(text, TYPES, NAMES)) == text


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("((i))", "i"),
        ("i > j", "j < i"),
        ("i >= j", "j <= i"),
        ("1 + 2", "3"),
        ("f32(3)", "3.0"),
        ("f32(0.5)", "0.5"),
        ("3.", "3.0"),
        ("1e3", "1000.0"),
        ("16777217.0", "16777216.0"),
        ("s64(7)", "7"),
        ("- 3", "-3"),
        ("ints[i,\n  j]  # two lines", "ints[i, j]"),
    ],
)
def test_other_spellings(text: str, printed: str) -> None:
    assert to_text(parse_expr(text, TYPES, NAMES)) == printed


@pytest.mark.parametrize("type_", ALL, ids=str)
def test_constants_of_every_type_come_back(type_) -> None:
    values = [0, 1, type_.lowest, type_.highest]
    if type_.is_float:
        tiny = float(2.0**-149)
        values += [-0.0, 0.1, 1 / 3, -1e-5, 123456.789, math.inf, -math.inf, math.nan, tiny]
    for value in values:
        expr = const(value, type_)
        assert parse_expr(to_text(expr)) is expr


@pytest.mark.parametrize("op", sorted(BINARY))
def test_every_binary_operator_comes_back(op: str) -> None:
    operands = [var(n, TYPES[n]) for n in ("b", "i", "x") if TYPES[n].kind in KINDS[op]]
    assert operands
    for operand in operands:
        expr = binary(op, operand, operand)
        assert parse_expr(to_text(expr), TYPES) is expr


@pytest.mark.parametrize("op", sorted(UNARY))
def test_every_unary_operator_comes_back(op: str) -> None:
    operands = [var(n, TYPES[n]) for n in ("b", "i", "x") if TYPES[n].kind in KINDS[op]]
    assert operands
    for operand in operands:
        expr = unary(op, operand)
        assert parse_expr(to_text(expr), TYPES) is expr


def test_a_view_is_told_from_a_load_in_a_call() -> None:
    stmt = parse_stmt("prefetch(&ints[i, j], ints[i, j])", TYPES, NAMES)
    assert isinstance(stmt, Call)
    assert isinstance(stmt.args[0], View)
    assert isinstance(stmt.args[1], Load)


def test_variables_and_buffers_do_not_share_names() -> None:
    text = "compute copy(i in 5):\n  floats = floats[i]\n  floats[i] = floats"
    assert to_text(parse_stmt(text, {}, NAMES)) == text


def test_select_is_not_folded_by_printing() -> None:
    expr = select(b, i, i)
    assert parse_expr(to_text(expr), TYPES) is expr


# Refusals: the text, what is said, and what is marked.


def refusal(parse, text: str) -> tuple[str, str, str]:
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert isinstance(error.where, Span)
    assert error.cure, "every refusal names a cure"
    assert "^" in str(error)
    return error.what, text[error.where.start : error.where.end], error.cure


@pytest.mark.parametrize(
    ("text", "what", "marked", "cure"),
    [
        ("i +", "expected an expression, found the end of the line", "", "write a number"),
        ("", "expected an expression, found the end of the text", "", "write a number"),
        ("i + zzz", "unknown variable zzz", "zzz", "define the variable"),
        ("odd_name", "unknown variable odd_name", "odd_name", "did you mean `odd name`?"),
        ("flots[i]", "unknown buffer flots", "flots", "did you mean `floats`?"),
        ("mim(i, j)", "unknown function mim", "mim", "did you mean `min`?"),
        ("i[3]", "i is a variable, not a buffer", "i", "leave the brackets away"),
        ("ints + 1", "ints is a buffer, not a value", "ints", "give its 2 indices"),
        (
            "1 + ints[i]",
            "ints has 2 dims, but 1 indices are given",
            "ints[i]",
            "write one index per dim of ints: s64[4, 3]",
        ),
        ("floats[x]", "an index must be s64, this is f32", "x", "convert it: `s64(...)`"),
        ("floats[i | j]", "a mask must be bool, this is s64", "j", "convert it: `bool(...)`"),
        ("1 + (i + x)", "add: operands of types s64 and f32", "i + x", "cast one of them"),
        ("x // 2.0", "floordiv: not defined on f32", "x // 2.0", "convert the operands"),
        ("-b", "neg: not defined on bool", "-b", "convert the operands"),
        ("not x", "not: not defined on f32", "not x", "convert the operands"),
        (
            "bitcast(s32, i)",
            "bitcast: s64 has 64 bits, s32 has 32",
            "bitcast(s32, i)",
            "cast it to a type of as many bits first",
        ),
        ("bitcast(q8, i)", "there is no type q8", "q8", "write one of f64, f32"),
        (
            "bitcast(2, i)",
            "expected a name of the type that bitcast gives, found `2`",
            "2",
            "write a name",
        ),
        ("exp(i)", "exp: not defined on s64", "exp(i)", "convert the operands"),
        ("min(i)", "min takes 2 arguments, not 1", "min(i)", "write `min(a, b)`"),
        ("i < j < 3", "comparisons don't chain", "<", "write `a < b and b < c`"),
        ("i == j < 3", "comparisons don't chain", "<", "write `a < b and b < c`"),
        ("(i + 1", "expected `)` to close the parenthesis, found the end of the line", "", "`)`"),
        ("i j", "expected the end of the text, found `j`", "j", "remove what follows"),
        ("s8(300)", "300 does not fit s8", "300", "s8 holds -128 to 127"),
        ("u8(-1)", "-1 does not fit u8", "-1", "u8 holds 0 to 255"),
        ("9" * 5000, f"{'9' * 5000} does not fit s64", "9" * 5000, "s64 holds -92233"),
        ("s8(1.5)", "1.5 is not a constant of type s8", "1.5", "write an integer"),
        ("bool(1)", "1 is not a constant of type bool", "1", "write True or False"),
        ("1e39", "1e39 is too large for f32", "1e39", "write inf"),
        ("i ? j", "the character '?' has no meaning here", "?", "backquotes"),
        ("i\t+ j", "the character '\\t' has no meaning here", "\t", "spaces"),
        ("`i", "the character '`' has no meaning here", "`", "close the name"),
        ("(" * 2000 + "i" + ")" * 2000, "this nests too deeply", "(", "name the parts"),
    ],
)
def test_refused_expressions(text: str, what: str, marked: str, cure: str) -> None:
    said = refusal(lambda t: parse_expr(t, TYPES, NAMES), text)
    assert said[:2] == (what, marked)
    assert cure in said[2]


@pytest.mark.parametrize(
    ("text", "what", "marked", "cure"),
    [
        ("for i in 3:", "expected the body of the loop, found the end of the text", "", "indent"),
        ("for i in 3:\nx = 1", "expected the body of the loop, found `x`", "x", "indent"),
        ("for i in 3\n  pass", "expected `:` before the body of the loop", "\n", "`:`"),
        ("for i in x:\n  pass", "the extent of a loop must be s64, this is f32", "x", "`s64(...)`"),
        ("fast for i in 3:\n  pass", "unknown kind of loop fast", "fast", "serial, unrolled"),
        ("if i:\n  pass", "a condition must be bool, this is s64", "i", "compare it"),
        ("y = x", "y is s64, its value is f32", "x", "write `y: f32 = ...`"),
        ("y: f23 = x", "unknown element type f23", "f23", "write one of f64"),
        ("floats[i] = 1", "what floats holds must be f32, this is s64", "1", "`f32(...)`"),
        ("floats[i | b] = 1.0", "a store has no mask", "floats[i | b]", "`if`"),
        ("floats[i] 1.0", "expected `=` and the value to store, found `1.0`", "1.0", "`=`"),
        ("alloc a: f32[2] fast", "unknown memory space fast", "fast", "global, workgroup"),
        ("alloc a: f32[2] {1:2:1}", "a block of dim 1, but the shape has 1 dims", "1", "from 0"),
        ("alloc a: f32[2] {0:2}", "expected `:` and the stride of the block", "}", "`:`"),
        ("alloc a: f32[1.5]", "the size of a dim must be s64, this is f32", "1.5", "convert it"),
        (f"alloc a: f32[{'1' * 40}]", f"{'1' * 40} is too large", "1" * 40, "smaller"),
        ("x = 1 y = 2", "expected the end of the line, found `y`", "y", "one statement per"),
        ("3", "expected a statement, found `3`", "3", "write a loop"),
        ("", "expected a statement, found the end of the text", "", "write `pass`"),
        ("pass\n  pass", "expected a statement, found a deeper indented line", "", "a loop"),
        ("if b:\n    pass\n  pass", "this line is indented like no line", "  ", "align"),
        ("compute c(d in 3):\n  y = floats[d]", "expected the output, found the end", "", "add="),
        (
            "compute c(d in 3):\n  floats[d] add= 1",
            "what floats holds must be f32, this is s64",
            "1",
            "`f32(...)`",
        ),
        (
            "compute c(d in 3):\n  floats[d] = 1.0\n  pass",
            "expected the end of the block, found `pass`",
            "pass",
            "indent it",
        ),
        (
            "compute c(d in 3) joins loads:\n  floats[d] = 1.0",
            "unknown queue loads",
            "loads",
            "write one of copies, stores, products",
        ),
        ("compute c(d in 3) signals floats[e]:\n  pass", "unknown variable e", "e", "define"),
        ("compute c(d in 3) joins:\n  pass", "expected a name of the queue", ":", "name"),
        ("compute c(d in 3, e in d):\n  floats[d] = 1.0", "unknown variable d", "d", "define"),
        ("x = 1\nblock:\n  y = x\nz = y", "unknown variable y", "y", "define"),
    ],
)
def test_refused_statements(text: str, what: str, marked: str, cure: str) -> None:
    said = refusal(lambda t: parse_stmt(t, TYPES, NAMES), text)
    assert said[0].startswith(what)
    assert said[1] == marked
    assert cure in said[2]


@pytest.mark.parametrize(
    ("text", "what", "marked"),
    [
        ("def f():\n  pass", "expected `kernel`, found `def`", "def"),
        ("kernel k(a: f32[3]):\n  pass", "expected a parameter, found `a`", "a"),
        ("kernel k(in a: f32[3]\n  pass", "expected `)` after the parameters", "pass"),
        ("kernel k(in a: f32[3]):\n  b[0] = a[0]", "unknown buffer b", "b"),
        ("kernel k():\n  pass\nkernel l():\n  pass", "expected the end of the text", "kernel"),
    ],
)
def test_refused_kernels(text: str, what: str, marked: str) -> None:
    said = refusal(parse_kernel, text)
    assert said[0].startswith(what)
    assert said[1] == marked


def test_a_refusal_shows_the_line() -> None:
    with pytest.raises(ParseError) as caught:
        parse_kernel("kernel k(out a: f32[3]):\n  for i in 3:\n    a[i] = i\n")
    assert str(caught.value) == (
        "what a holds must be f32, this is s64\n"
        "  at line 3, column 12:\n"
        "      a[i] = i\n"
        "             ^\n"
        "  cure: convert it: `f32(...)`"
    )


def test_free_names_are_given() -> None:
    stmt = parse_stmt("floats[i] = x", {"i": s64, "x": f32}, NAMES)
    assert isinstance(stmt, Store)
    assert stmt.buffer is NAMES["floats"]
    with pytest.raises(ParseError, match="unknown variable"):
        parse_stmt("floats[i] = x", {"i": s64}, NAMES)


def test_a_kernel_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches ask for its text many times; one that differs in a statement has its own."""
    kernel = parse_kernel("kernel k(out y: f32[8]):\n  for i in 8:\n    y[i] = 0.0\n")
    other = replace(kernel, name="other")
    text = to_text(kernel)
    assert to_text(other) == text.replace("kernel k", "kernel other")
    monkeypatch.setattr(printer, "lines_of", lambda _: [])
    assert to_text(kernel) is text and to_text(replace(kernel)) == ""

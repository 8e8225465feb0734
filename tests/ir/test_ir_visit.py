"""Walking, rewriting and comparing."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings

from strategies import BUFFERS, VARIABLES, exprs, kernels
from sweeps import in_turns
from tilewright.dtypes import f32, s64
from tilewright.ir import (
    Allocate,
    Block,
    Call,
    Compute,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Space,
    Stmt,
    Store,
    Var,
    View,
    block,
    buffer,
    const,
    difference,
    load,
    map_kernel,
    parse_expr,
    parse_kernel,
    parse_stmt,
    rewrite,
    rewrite_exprs,
    rewrite_stmts,
    same,
    substitute,
    substitute_stmt,
    to_text,
    var,
    variables,
    verify,
    walk,
    walk_stmts,
)
from tilewright.ir.load import Load
from tilewright.ir.visit import (
    children,
    loads_in,
    map_exprs,
    rebuild,
    replace_buffer,
    rewrite_loads,
)

TYPES = {v.name: v.type for v in VARIABLES}
NAMES = {b.name: b for b in BUFFERS}
i, j, n = var("i"), var("j"), var("n")

KERNEL = """
kernel k(in src: f32[4, 8], out dst: f32[4, 8]):
  alloc acc: f32[8] private
  for i in 4:
    x = i * 2
    if x < 4:
      compute copy(d in 8):
        s = src[i, d | d < x]
        acc[d] = s
    else:
      prefetch(&src[i, x])
      acc[x] = src[i, x]
    dst[i, 0] = acc[x]
"""


def parsed(text: str) -> Expr:
    return parse_expr(text, TYPES, NAMES)


# Rewriting.


@settings(max_examples=200, deadline=None)
@given(exprs())
def test_rewriting_nothing_gives_the_same_expression(expr: Expr) -> None:
    assert rewrite(expr, lambda node: node) is expr
    for node in walk(expr):
        assert rebuild(node, children(node)) is node


@pytest.mark.parametrize("part", in_turns(2, range(2)))
@settings(max_examples=50, deadline=None)
@given(kernel=kernels())
def test_rewriting_nothing_gives_the_same_kernel(kernel: Kernel, part: int) -> None:
    assert map_kernel(kernel, lambda body: rewrite_stmts(body, lambda stmt: stmt)) is kernel
    assert map_kernel(kernel, lambda body: rewrite_exprs(body, lambda expr: expr)) is kernel
    assert substitute_stmt(kernel.body, {var("absent"): const(0)}) is kernel.body
    stranger = buffer("stranger", f32, (2,))
    assert replace_buffer(kernel.body, stranger, stranger) is kernel.body


@pytest.mark.parametrize("part", in_turns(2, range(2)))
@settings(max_examples=50, deadline=None)
@given(kernel=kernels())
def test_substitution_reaches_every_variable(kernel: Kernel, part: int) -> None:
    before = used(kernel.body)
    there = {v: var(v.name + "_", v.type) for v in before}
    assert used(substitute_stmt(kernel.body, there)) == set(there.values())


def used(stmt: Stmt) -> set[Var]:
    return {v for s in walk_stmts(stmt) for e in expressions(s) for v in variables(e)}


def expressions(stmt) -> list[Expr]:
    result: list[Expr] = []
    map_exprs(stmt, lambda expr: result.append(expr) or expr)
    return result


def test_rewriting_goes_bottom_up_once_per_node() -> None:
    shared = i + 1
    expr = shared * shared - shared
    seen: list[str] = []
    rewrite(expr, lambda node: seen.append(str(node)) or node)
    assert sorted(seen) == sorted(["i", "1", "i + 1", "(i + 1) * (i + 1)", str(expr)])
    assert seen.index("i + 1") < seen.index("(i + 1) * (i + 1)") < seen.index(str(expr))


def test_walking_sees_each_node_once_and_parents_first() -> None:
    shared = i + j
    nodes = list(walk(shared * shared + 1))
    assert len(nodes) == len(set(nodes)) == 6
    assert nodes.index(shared) < nodes.index(i)
    assert variables(parsed("ints[i, j | b]")) == {i, j, var("b", TYPES["b"])}


def test_loads_are_found_where_they_are() -> None:
    expr = parsed("ints[ints[i, j], j | b] * (i * j + 3) + ints[i, j]")
    result = [node for node in walk(expr) if isinstance(node, Load)]
    assert list(loads_in(expr)) == result
    assert len(result) == 2
    assert list(loads_in(parsed("i * j + 3"))) == []
    zero = rewrite_loads(expr, lambda node: const(0, node.type))
    assert zero is rewrite(
        expr, lambda node: const(0, node.type) if isinstance(node, Load) else node
    )
    assert rewrite_loads(i * j, lambda node: const(0)) is i * j


def test_substitution() -> None:
    expr = parsed("ints[i, j | i < j] + i * 2")
    swapped = substitute(expr, {i: j, j: i})
    assert swapped is parsed("ints[j, i | j < i] + j * 2")
    assert substitute(expr, {}) is expr
    assert substitute(i + 1, {i: const(2)}) is const(3)


def test_substitution_reaches_every_expression() -> None:
    text = (
        "for i in {0}:\n  x = {0}\n  if {0} < 3:\n    ints[{0}, x] = {0}\n"
        "  prefetch(&ints[{0}, {0} | {0} < 2], {0})\n"
        "  compute op(d in {0}):\n    e = ints[{0}, d | d < {0}]\n"
        "    ints[0, {0} | {0} < d] add= e * {0}"
    )
    before = parse_stmt(text.replace("{0}", "n"), {"n": s64}, NAMES)
    after = parse_stmt(text.replace("{0}", "(j + 1)"), {"j": s64}, NAMES)
    assert difference(substitute_stmt(before, {n: j + 1}), after) is None


def test_a_mask_that_became_true_goes() -> None:
    stmt = parse_stmt("compute op(d in 5):\n  floats[d | n < 3] = 1.0", {"n": s64}, NAMES)
    assert to_text(substitute_stmt(stmt, {n: const(2)})).endswith("floats[d] = 1.0")


def test_replacing_a_buffer_reaches_every_access() -> None:
    kernel = parse_kernel(KERNEL)
    for name in ("acc", "src"):
        text = to_text(kernel.body).replace(f"{name}[", "other[").replace(name, "other")
        old = next(b for b in buffers_of(kernel) if b.name == name)
        new = buffer("other", f32, old.shape, old.layout, old.space)
        assert to_text(replace_buffer(kernel.body, old, new)) == text


def test_a_buffer_is_replaced_in_what_a_nest_declares() -> None:
    kernel = parse_kernel(
        """
kernel k(in src: f32[8], in more: f32[8], out dst: f32[8]):
  opaque nest reads more, src writes dst:
    for i in 8:
      dst[i] = src[i] + more[i]
"""
    )
    src, more, dst = (param.buffer for param in kernel.arrays)
    other = buffer("other", f32, (8,))
    assert "reads more, other writes dst" in to_text(replace_buffer(kernel.body, src, other))
    assert "reads more, src writes other" in to_text(replace_buffer(kernel.body, dst, other))
    # What is written may be read, too.
    assert "reads more writes dst" in to_text(replace_buffer(kernel.body, src, dst))
    assert replace_buffer(kernel.body, other, more) is kernel.body


def test_a_rewrite_reaches_what_an_op_signals() -> None:
    text = "compute op(d in 5) signals places[n]:\n  floats[d] = 1.0"
    places = {**NAMES, "places": buffer("places", s64, (4,), space=Space.WORKGROUP)}
    stmt = parse_stmt(text, {"n": s64}, places)
    assert to_text(stmt) == text
    assert "signals places[2]:" in to_text(substitute_stmt(stmt, {n: const(2)}))
    other = buffer("other", s64, (4,), space=Space.WORKGROUP)
    assert "signals other[n]:" in to_text(replace_buffer(stmt, places["places"], other))
    assert substitute_stmt(stmt, {}) is stmt and replace_buffer(stmt, other, other) is stmt


def buffers_of(kernel: Kernel) -> list:
    allocated = [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]
    return [p.buffer for p in kernel.params] + allocated


# Blocks.


def test_blocks_flatten_unless_they_declare() -> None:
    a, b = parse_stmt("floats[0] = 1.0", {}, NAMES), parse_stmt("floats[1] = 1.0", {}, NAMES)
    let = Let(n, const(1))
    assert block(a) is a
    assert flat(block(block(a, b), a)) == [a, b, a]
    scoped = Block((let, a))
    assert flat(block(scoped, b)) == [scoped, b]
    assert flat(block(b, scoped)) == [b, let, a]


def flat(stmt) -> list:
    assert isinstance(stmt, Block)
    return list(stmt.body)


def test_statements_are_walked_in_program_order() -> None:
    kinds = [type(s) for s in walk_stmts(parse_kernel(KERNEL).body)]
    inner = [Let, If, Compute, Block, Call, Store, Store]
    assert kinds == [Block, Allocate, For, Block, *inner]


def test_ten_thousand_statements_in_a_row() -> None:
    count = 10_000
    out = buffer("out", s64, (count,))
    stores = [Store(out, (const(k),), i * k) for k in range(count)]
    body = Block((Let(i, const(3)), *stores))
    kernel = Kernel("long", parse_kernel("kernel k():\n  pass").params, body)
    assert len(list(walk_stmts(body))) == count + 2
    assert rewrite_stmts(body, lambda stmt: stmt) is body
    assert rewrite_exprs(body, lambda expr: rewrite(expr, lambda e: e)) is body
    changed = substitute_stmt(body, {i: j})
    assert len(flat(changed)) == count + 1
    assert difference(body, changed) == "`out[0] = i * 0`: value differs: `i * 0` and `j * 0`"
    assert same(kernel, kernel)


def test_deep_expressions() -> None:
    total = i
    for k in range(20_000):
        total = total + (k + 1)
    assert variables(total) == {i}
    renamed = substitute(total, {i: j})
    assert variables(renamed) == {j}
    assert substitute(renamed, {j: i}) is total
    del total, renamed
    gc.collect()  # a long chain dies without overflowing the stack


# Comparing.


def test_a_kernel_is_the_same_as_its_copy() -> None:
    a, b = parse_kernel(KERNEL), parse_kernel(KERNEL)
    assert same(a, b)
    assert not same(a, parse_kernel(KERNEL.replace("dst[i, 0]", "dst[i, 1]")))
    verify(a)


DIFFERENCES = [
    ("kernel k(", "kernel l(", "name differs: `k` and `l`"),
    ("in src", "inout src", "params differs: `in, src: f32[4, 8], out, dst: f32[4, 8]` and"),
    ("out dst: f32[4, 8]", "out dst: f32[4, 8] {0:4:8 1:8:1 +1}", "params differs:"),
    ("for i in 4", "for i in 5", "`for i in 4:`: extent differs: `4` and `5`"),
    ("for i in 4", "unrolled for i in 4", "`for i in 4:`: kind differs:"),
    ("acc: f32[8] private", "acc: f32[8]", "`alloc acc: f32[8] private`: buffer differs:"),
    ("x < 4", "x < 5", "`for i in 4:`: `if x < 4:`: condition differs: `x < 4` and `x < 5`"),
    ("i * 2", "i * 3", "`for i in 4:`: `x = i * 2`: value differs: `i * 2` and `i * 3`"),
    ("copy(d in 8)", "copied(d in 8)", "name differs: `copy` and `copied`"),
    ("copy(d in 8)", "copy<vmov>(d in 8)", "instruction differs: `None` and `vmov`"),
    ("copy(d in 8)", "copy(d in 8) joins stores", "completion differs: `None` and `Queue.STORES`"),
    ("copy(d in 8)", "copy(d in 8) signals src[i, x]", "`None` and `src[i, x]`"),
    ("copy(d in 8)", "copy(d in 7)", "dims differs: `d, 8` and `d, 7`"),
    ("| d < x", "| d < i", "operands differs: `s, src[i, d | d < x]` and"),
    (" | d < x", "", "operands differs:"),
    ("acc[d] =", "acc[d] max=", "combiner differs: `None` and `max`"),
    ("acc[d] =", "acc[d % 8] =", "out differs: `acc[d]` and `acc[d % 8]`"),
    ("acc[d] = s", "acc[d] = -s", "body differs: `s` and `-s`"),
    ("prefetch(&", "fetch(&", "function differs: `prefetch` and `fetch`"),
    ("prefetch(&", "prefetch(", "args differs: `src[i, x]` and `src[i, x]`"),
    ("acc[x] = src", "acc[x] = -src", "`else:`: `acc[x] = src[i, x]`: value differs:"),
    ("acc[x] = src", "acc[0] = src", "index differs: `x` and `0`"),
    ("    dst[i, 0] = acc[x]\n", "", "`for i in 4:`: only the first has `dst[i, 0] = acc[x]`"),
    ("    dst[i, 0] = acc[x]\n", "    barrier()\n", "statement differs: `dst[i, 0] = acc[x]` and"),
]


@pytest.mark.parametrize(("old", "new", "message"), DIFFERENCES)
def test_every_difference_is_found(old: str, new: str, message: str) -> None:
    assert KERNEL.count(old) == 1
    a, b = parse_kernel(KERNEL), parse_kernel(KERNEL.replace(old, new))
    result = difference(a, b)
    assert result is not None
    assert message in result
    assert difference(b, a) is not None


def test_else_only_on_one_side() -> None:
    a, b = parse_stmt("if True:\n  pass"), parse_stmt("if True:\n  pass\nelse:\n  pass")
    assert difference(a, b) == "`if True:`: `else:`: only the second has it"
    assert difference(b, a) == "`if True:`: `else:`: only the first has it"


def test_expressions_compare_up_to_buffers() -> None:
    one, other = buffer("a", f32, (4,)), buffer("a", f32, (4,))
    longer = buffer("a", f32, (5,))
    assert load(one, (i,)) is not load(other, (i,))
    assert same(load(one, (i,)) * 2, load(other, (i,)) * 2)
    assert not same(load(one, (i,)), load(longer, (i,)))
    assert not same(load(one, (i,)), load(other, (i,), i < 2))
    assert not same(i + 1, i - 1)
    assert difference(i + 1, i - 1) == "value differs: `i + 1` and `i - 1`"
    assert same(View(one, (i,)), View(other, (i,)))


def test_expressions_that_share_compare_fast() -> None:
    """Doubling a shared expression 200 times makes 2**200 paths, but 200 nodes."""
    one, other = buffer("a", s64, (4,)), buffer("a", s64, (4,))
    left: Expr = load(one, (i,))
    right: Expr = load(other, (i,))
    for _ in range(200):
        left, right = left + left, right + right
    assert same(left, right)

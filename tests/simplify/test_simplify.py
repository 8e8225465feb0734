"""The simplifier: examples, and the same value on random expressions in random scopes."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scopes import random_condition, random_integer, random_scope
from strategies import exprs
from tilewright.dtypes import bf16, boolean, f32, f64, s8, s16, s32, s64
from tilewright.facts import Facts, starting_from
from tilewright.ir.buffer import buffer
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import (
    Const,
    Expr,
    binary,
    cast,
    const,
    maximum,
    minimum,
    select,
    unary,
    var,
)
from tilewright.ir.load import Load, load
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import (
    Block,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Operand,
    Stmt,
    Store,
    View,
)
from tilewright.ir.visit import variables, walk
from tilewright.simplify import simplify, simplify_kernel, simplify_stmt, traced

a, b, i, j, n, t = (var(name) for name in "abijnt")
x, y = var("x", f32), var("y", f32)
p, q = var("p", boolean), var("q", boolean)
h = var("h", bf16)
TRUE, FALSE = const(True, boolean), const(False, boolean)
# a, b < 4; i < 13; j < 16; t < 100; nothing is known about n
SCOPE = ((a, 4), (b, 4), (i, 13), (j, 16), (t, 100))
# Arithmetic on s64 is not looked at where it would wrap.
SMALL = (-3, -1, 0, 1, 2, 7)
LARGE = (*SMALL, 0.5, 200, -300, 70000)
ints = buffer("ints", s64, (200,))
floats = buffer("floats", f32, (64, 64))


def scope() -> Facts:
    facts = Facts.empty()
    for name, extent in SCOPE:
        facts = facts.loop(name, const(extent))
    return facts


EXAMPLES: list[tuple[Expr, Expr]] = [
    # sums
    (i + 1 - i, const(1)),
    (j + i, i + j),
    ((i + 1) * 4 - i * 4, const(4)),
    (t // 4 * 4 + t % 4, t),
    ((t // 4) % 8 * 4 + t % 4, t % 32),
    (t - t // 4 * 4, t % 4),
    (t - t % 4, t // 4 * 4),
    # products
    (n * 2 * t - t * n * 2, const(0)),
    # div and mod
    ((n * 12 + b) // 4, n * 3),
    ((n * 12 + t) // 4, n * 3 + t // 4),
    ((n * 16 + j) % 16, j),
    ((n * 16 + j + 16) // 16, n + 1),
    ((n * 4 + b) // 8, n // 2),
    ((n * 4 + b) % 8, b + n % 2 * 4),
    (n // 4 // 8, n // 32),
    (n % 32 % 8, n % 8),
    (n % 32 // 4, n // 4 % 8),
    ((n // 4 + 3) // 2, (n + 4) // 8 + 1),
    (j // -4, -j // 4),
    (n // -4, n // -4),  # the least s64 is its own negative
    (i // 13, const(0)),
    ((i + 13) // 13, const(1)),
    (n // 0, const(0)),
    (n % n, const(0)),
    # min and max
    (minimum(i, 14), i),
    (maximum(i - 20, 0), const(0)),
    (minimum(minimum(n, 5), 3), minimum(n, 3)),
    (minimum(n, maximum(n, t)), n),
    (maximum(n + 4, n + 2), n + 4),
    (minimum(n + i, n + 3), minimum(i, 3) + n),
    # comparisons
    (n * 4 < 49, n < 13),
    (n * 4 <= 48, n < 13),
    (const(3) < n * 2, const(2) <= n),
    (n // 4 < 3, n < 12),
    (i < 13, TRUE),
    (i + j < 3, i + j < 3),
    (n + 1 < n, FALSE),
    (binary("eq", n * 4, t * 8 + 2), FALSE),
    (binary("eq", n * 4, t * 8 + 4), binary("eq", n, t * 2 + 1)),
    # logic
    ((n < 13) & (n < 10), n < 10),
    ((n < 13) | (n < 10), n < 13),
    ((n < 3) & (const(5) < n), FALSE),
    ((i < 13) & p, p),
    (p & ~p, FALSE),
    (~(n < 4), const(4) <= n),
    (p & q & p, p & q),
    # select
    (select(i < 20, n, t), n),
    (select(p, n, n), n),
    (select(n < 4, minimum(n, 5), t), select(n < 4, n, t)),
    (select(p, TRUE, FALSE), p),
    # casts
    (cast(s64, cast(s32, i)), i),
    (cast(s8, cast(s16, n)), cast(s8, n)),
    (cast(bf16, cast(f32, h)), h),
    (cast(f64, cast(f32, h)), cast(f64, h)),
    (cast(f32, cast(bf16, x)), cast(f32, cast(bf16, x))),
    # floats
    (x * 1.0, x),
    (x + const(-0.0), x),
    (x + 0.0, x + 0.0),
    (x * 0.0, x * 0.0),
    (x - x, x - x),
    (binary("eq", x, x), binary("eq", x, x)),
    (x / 4.0, x * 0.25),
    (x / 3.0, x / 3.0),
    (unary("neg", -x), x),
    (x + y + x, x + y + x),
    # what looks like something to simplify, and is not
    (n // 8 * 4 + n % 4, n // 8 * 4 + n % 4),
    (n // 4 * 8 + n % 4, n // 4 * 8 + n % 4),
    (cast(s32, cast(s8, n)), cast(s32, cast(s8, n))),
    (cast(s8, cast(f32, cast(s16, n))), cast(s8, cast(f32, cast(s16, n)))),
    (cast(s64, cast(s32, n)), cast(s64, cast(s32, n))),
    ((n * 8 + b * 3) % 8, (b * 3) % 8),
    (n % 12 // 8, n % 12 // 8),
    (n % 6 % 4, n % 6 % 4),
    (n // t * t, n // t * t),
]


@pytest.mark.parametrize(("before", "after"), EXAMPLES, ids=lambda e: repr(e))
def test_examples(before: Expr, after: Expr) -> None:
    assert simplify(before, scope()) is after
    assert simplify(after, scope()) is after


def test_other_integers_wrap() -> None:
    small = var("small", s8)
    one = const(1, s8)
    assert simplify(small + one - one) is small
    assert simplify(small < small + one) is not TRUE
    assert simplify((small * const(4, s8)) // const(4, s8)) is not small


def test_the_index_of_a_masked_load_is_simplified_under_its_mask() -> None:
    masked = load(ints, (minimum(n, 7),), n < 8)
    assert simplify(masked) is load(ints, (n,), n < 8)
    assert simplify(load(ints, (i,), i < 13), scope()) is load(ints, (i,))


def test_a_mask_stays_under_a_select() -> None:
    """Both branches are evaluated: without its mask, the load would leave the buffer."""
    inside = n < 8
    expr = select(inside, load(ints, (n,), inside), const(0))
    assert simplify(expr) is expr


def test_long_sums_do_not_overflow_the_stack() -> None:
    total: Expr = x
    for step in range(3000):
        total = total * 1.0 + var(f"x{step}", f32)
    assert not any(node is const(1.0) for node in walk(simplify(total)))


def test_every_rewrite_is_traced() -> None:
    seen: list[tuple[str, Expr, Expr]] = []
    result = simplify(minimum(i, 14) // 13, scope(), lambda *rewrite: seen.append(rewrite))
    assert result is const(0)
    assert ("min-known", minimum(i, 14), i) in seen
    assert seen[-1] == ("constant-quotient", i // 13, const(0))


def test_kernels_of_one_compilation_are_simplified_once() -> None:
    text = """kernel k(inout x: f32[100]):
  for a in 10:
    for b in 10:
      x[(b + a * 10) // 10 * 10 + (b + a * 10) % 10] = 1.0
"""
    rewrites: list[str] = []
    with starting_from(Facts.empty()), traced(lambda rule, *_: rewrites.append(rule)):
        first = simplify_kernel(parse_kernel(text))
        assert len(rewrites) > 0
        rewrites.clear()
        second = simplify_kernel(parse_kernel(text))
        assert rewrites == []
    assert to_text(first) == to_text(second) != text


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_integers_keep_their_value(seed: int) -> None:
    generator = random.Random(seed)
    place = random_scope(generator)
    names = place.variables()
    if generator.random() < 0.6:
        before = random_integer(generator, names, 4)
    else:
        before = random_condition(generator, names, 3)
    after = simplify(before, place.facts())
    for state in place.states(generator):
        assert evaluate(before, state) == evaluate(after, state), (place, before, after, state)
    assert simplify(after, place.facts()) is after


@settings(deadline=None)
@given(exprs(), st.randoms(use_true_random=False))
def test_expressions_of_all_types_keep_their_value(before: Expr, generator: random.Random) -> None:
    # Indices are far below 2**63: the simplifier takes s64 for the integers.
    assume(
        not any(
            isinstance(n, Const) and n.type is s64 and abs(n.value) >= 2**60 for n in walk(before)
        )
    )
    after = simplify(before)
    assert after.type is before.type
    assert simplify(after) is after
    if any(isinstance(node, Load) for node in walk(before)):
        return
    for _ in range(5):
        values = {
            name: const(generator.choice(SMALL if name.type is s64 else LARGE), name.type).value
            for name in sorted(variables(before), key=lambda v: (v.name, v.type.name))
        }
        old, new = evaluate(before, values), evaluate(after, values)
        assert old == new or (old != old and new != new), (before, after, values)


# Statements


def store(index: Expr, value: Expr, column: Expr | int = 0) -> Store:
    return Store(floats, (index, const(column) if isinstance(column, int) else column), value)


def same(a: Stmt, b: Stmt) -> bool:
    return repr(a) == repr(b)


def test_a_loop_that_runs_once_becomes_its_body() -> None:
    once = For(i, const(1), store(i + j, x))
    assert same(simplify_stmt(once), store(j, x))
    lanes = For(i, const(1), store(i + j, x), LoopKind.LANE)
    assert same(simplify_stmt(lanes), For(i, const(1), store(j, x), LoopKind.LANE))


def test_a_loop_that_never_runs_vanishes() -> None:
    never = For(i, const(0), store(i, x))
    assert same(simplify_stmt(never), Block(()))
    inner = For(t, const(4), For(j, minimum(14, t * 14 - 49), store(j, x)))
    assert same(simplify_stmt(inner), Block(()))
    after = Block((never, store(j, x)))
    assert same(simplify_stmt(after), store(j, x))


def test_conditions_are_resolved() -> None:
    body = If(i < 13, store(i, x), store(i, y))
    assert same(simplify_stmt(For(i, const(13), body)), For(i, const(13), store(i, x)))
    twice = If(n < 4, If(n < 5, store(n, x)))
    assert same(simplify_stmt(twice), If(n < 4, store(n, x)))
    other = If(n < 4, store(n, x), If(n < 4, store(n, y)))
    assert same(simplify_stmt(other), If(n < 4, store(n, x)))
    empty = If(n < 4, For(i, const(0), store(i, x)), store(n, y))
    assert same(simplify_stmt(empty), If(const(4) <= n, store(n, y)))


def test_lets_are_known_in_the_rest_of_their_block() -> None:
    tail = If(j < 40, store(j, x))
    body = Block((Let(j, i * 4), tail))
    expected = Block((Let(j, i * 4), store(j, x)))
    assert same(simplify_stmt(For(i, const(10), body)), For(i, const(10), expected))


def test_a_compute_loses_masks_and_dims_of_one() -> None:
    def compute(
        mask: Expr | None, *dims: Dim, row: Expr, instruction: str | None = None
    ) -> Compute:
        source = View(floats, (row, j), mask)
        out = View(floats, (row, const(0)), None)
        return Compute.single("sum", dims, out, (Operand(x, source),), x, "add", instruction)

    row, column, single = Dim(i, const(4)), Dim(j, const(16)), Dim(a, const(1))
    before = compute((i < 4) & (j < 20), row, column, single, row=i + a)
    assert same(simplify_stmt(before), compute(None, row, column, row=i))
    matched = compute(None, row, column, single, row=i + a, instruction="fma")
    after = simplify_stmt(matched)
    assert isinstance(after, Compute) and len(after.dims) == 3
    kept = compute(i + j < 9, row, column, row=i)
    assert simplify_stmt(kept) is kept


def test_a_mask_says_where_a_compute_reads_but_not_an_instruction() -> None:
    """A unit that copies a box is told its corner, which may be outside of the tensor."""

    def compute(index: Expr, instruction: str | None) -> Compute:
        source = View(floats, (const(0), index), b * 16 + j < 16)
        out, dims = View(floats, (b, j), None), (Dim(b, const(2)), Dim(j, const(16)))
        return Compute.single("copy", dims, out, (Operand(x, source),), x, None, instruction)

    assert same(simplify_stmt(compute(b * 16 + j, None)), compute(j, None))
    kept = compute(b * 16 + j, "tma_load")
    assert simplify_stmt(kept) is kept


def test_nothing_to_do_gives_the_same_object() -> None:
    body = Block((For(i, const(4), store(i, x * 2.0)), If(n < 3, store(n, x))))
    kernel = Kernel("k", (), body)
    assert simplify_kernel(kernel) is kernel


@pytest.fixture
def scopes(monkeypatch: pytest.MonkeyPatch) -> list[Expr]:
    """The conditions that are assumed while a test runs."""
    result: list[Expr] = []
    assumed = Facts.assume

    def counted(facts: Facts, condition: Expr, truth: bool = True) -> Facts:
        result.append(condition)
        return assumed(facts, condition, truth)

    monkeypatch.setattr(Facts, "assume", counted)
    return result


def test_a_chain_of_choices_is_simplified_once(scopes: list[Expr]) -> None:
    """Rows that are set one after the other: the branches were simplified without the condition
    before they were under it, twice as often with each link."""
    i, chain = var("i", s64), var("old", f32)
    for row in range(12):
        chain = select(binary("eq", i, const(row)), var(f"new{row}", f32) * 2.0, chain)
    assert simplify(chain) is chain
    assert len(scopes) < 40


def test_branches_in_branches_are_not_simplified_under_each_combination(
    scopes: list[Expr],
) -> None:
    """Steps that go on from the last where that is small, as `digamma` has them, took scopes twice
    as many with each step."""
    x: Expr = var("x", f32)
    for _ in range(12):
        x = select(binary("lt", x, const(10.0, f32)), x + const(1.0, f32), x)
    simplify(x)
    assert len(scopes) < 100
    # What a condition says of itself is known all the same.
    below = binary("lt", var("x", f32), const(10.0, f32))
    other = unary("not", var("p", boolean))
    inner = select(binary("and", below, other), const(1.0, f32), const(2.0, f32))
    result = simplify(select(below, inner, var("y", f32)))
    assert result is simplify(
        select(below, select(other, const(1.0, f32), const(2.0, f32)), var("y", f32))
    )


def test_remainders_of_a_loaded_number_keep_their_parts() -> None:
    """It may be 2^63 - 1, where the sum without the inner remainder wraps around: seed 70115 of
    `value_runs`. Indices and sizes count as small, and 2^64 is a multiple of 16."""
    kernel = parse_kernel(
        "kernel k(in place: s64[4], in x: f32[48], out y: f32[4], out z: f32[4]):\n"
        "  compute one(i in 4):\n"
        "    p = place[i]\n"
        "    e = x[(p + (i * 1000) % 48) % 48]\n"
        "    y[i] = e\n"
        "  for i in 4:\n"
        "    p = place[i]\n"
        "    z[i] = x[(p + (i * 1000) % 48) % 48] + x[(p + (i * 1000) % 16) % 16]\n"
        "    z[i] = z[i] + x[(i + (i * 1000) % 48) % 48] + x[(p // 3 + 100) // 7 % 48]\n"
    )
    text = to_text(simplify_kernel(kernel))
    assert text.count("(i * 5 % 6 * 8 + p) % 48") == 2
    assert "(i * 8 + p) % 16" in text
    assert "(p // 3 + 2) // 7" in text

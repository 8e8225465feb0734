"""Affine forms, and what follows from loops, lets and conditions."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scopes import FREE_VALUES, random_condition, random_integer, random_scope
from tilewright.dtypes import COMPUTED, DType, boolean, s8, s32, s64, u64
from tilewright.facts import Facts, affine, order_key, starting_from
from tilewright.facts.affine import flattened
from tilewright.ir import intervals
from tilewright.ir.buffer import buffer
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Var, binary, cast, const, maximum, minimum, select, unary, var
from tilewright.ir.load import load
from tilewright.ir.operators import KINDS

i, j, k, n, t = (var(name) for name in "ijknt")
seeds = st.integers(0, 2**32)


def test_an_affine_form_adds_up() -> None:
    form = affine((i * 14 + j) * 4 - (j + i) * 3 - 5)
    assert form.terms == {i: 53, j: 1}
    assert form.constant == -5
    assert affine(i - i).is_constant
    assert affine(-(i - 3)).terms == {i: -1}


def test_what_is_not_linear_is_an_atom() -> None:
    assert affine((i // 3) * 2 + 1).terms == {i // 3: 2}
    assert affine(i * j).terms == {i * j: 1}
    narrow = var("h", s32)
    assert affine(narrow + const(1, s32)).terms == {narrow + const(1, s32): 1}


def test_the_canonical_form_does_not_depend_on_the_order() -> None:
    a = affine(j * 2 + i - n + 3)
    b = affine(const(3) - n + i + j + j)
    assert a == b and hash(a) == hash(b)
    assert a.to_expr() is b.to_expr() is i + j * 2 - n + 3
    assert affine(-i - 2).to_expr() is -i - 2
    assert affine(const(3) - i * 2).to_expr() is const(3) - i * 2


def test_sums_with_shared_parts_stay_small() -> None:
    total = i
    for _ in range(200):
        total = total + total
    assert affine(total).terms == {i: 2**200}
    nested = i // 2
    for _ in range(200):
        nested = binary("max", nested // 2, nested + 1)
    assert len(order_key(nested)) < 200


def test_long_sums_do_not_overflow_the_stack() -> None:
    total = i
    for _ in range(5000):
        total = total + j
    assert affine(total).terms == {i: 1, j: 5000}


def test_a_partial_tile_stays_within_the_whole() -> None:
    facts = Facts.empty().loop(t, const(4)).loop(j, minimum(14, 49 - t * 14))
    assert facts.bounds(j) == (0, 13)
    assert facts.bounds(t * 14 + j) == (0, 48)
    assert facts.prove(t * 14 + j < 49) is True
    assert facts.prove(t * 14 + j < 48) is None


def test_conditions_are_used() -> None:
    facts = Facts.empty().loop(i, const(4)).loop(j, const(14)).assume(i * 14 + j < 49)
    assert facts.prove(i * 14 + j <= 48) is True
    assert facts.prove((i * 14 + j) // 7 < 7) is True
    assert facts.prove(const(48) < i * 14 + j) is False
    assert facts.prove(i * 14 + j < 40) is None


def test_chains_of_conditions() -> None:
    facts = Facts.empty().assume((i < j) & (j < k)).assume(~(n < k))
    assert facts.prove(i + 2 <= n) is True
    assert facts.prove(i + 3 <= n) is None
    assert facts.prove(n < i) is False


def test_what_is_found_out_is_kept_for_the_same_steps() -> None:
    outer = Facts.empty()
    with starting_from(outer):
        assert Facts.empty() is outer
        inside = Facts.empty().loop(i, n).assume(i < j)
        with starting_from(Facts.empty().bind(t, n)):
            assert Facts.empty() is outer.bind(t, n)
        assert Facts.empty().loop(i, n).assume(i < j) is inside
    assert Facts.empty() is not outer


def test_alternatives() -> None:
    either = (i < 3) | (const(8) < i)
    facts = Facts.empty().loop(i, const(10)).assume(either)
    assert facts.prove(either) is True
    assert facts.assume(const(4) < i).bounds(i) == (9, 9)


def test_lets_are_seen_through() -> None:
    facts = Facts.empty().loop(i, const(10)).bind(j, i * 4 + 2)
    assert facts.bounds(j) == (2, 38)
    assert facts.prove(i * 4 < j) is True
    assert facts.congruence(j) == (4, 2)
    assert facts.assume(j < 10).bounds(i) == (0, 1)


def test_divisibility() -> None:
    facts = Facts.empty().assume(binary("eq", n % 16, 0))
    assert facts.divisor(n) == 16
    assert facts.divisible(n * 3 + 32, 16) and not facts.divisible(n + 8, 16)
    assert facts.congruence(n // 4 + 1) == (4, 1)
    assert facts.divisor(const(0)) == 0 and facts.divisible(i - i, 7)
    assert facts.divisor(minimum(n, 24)) == 8
    assert facts.prove(binary("eq", n * 2, 31)) is False
    assert facts.bounds((n + 4) % 8) == (4, 4)


def test_names_that_are_used_again_are_forgotten() -> None:
    facts = Facts.empty().loop(i, const(4)).assume(i + j < 3).bind(k, i + 1)
    again = facts.loop(i, const(100))
    assert again.prove(i + j < 3) is None
    assert again.bounds(k) == (1, 4)
    assert again.prove(binary("eq", k, i + 1)) is None
    assert again.prove(i < 4) is None


def test_conditions_on_memory_are_not_kept() -> None:
    sizes = buffer("sizes", s64, (4,))
    element = load(sizes, (0,))
    facts = Facts.empty().assume(element < 3).bind(i, element)
    assert facts.prove(element < 3) is None
    assert facts.prove(binary("eq", i, element)) is None


def test_types_bound_what_has_them() -> None:
    small = var("h", s8)
    facts = Facts.empty()
    assert facts.bounds(cast(s64, small) * 2) == (-256, 254)
    assert facts.bounds(small + const(1, s8)) == (-128, 127)  # it wraps
    assert facts.bounds(cast(s32, small) + const(1, s32)) == (-127, 128)
    assert facts.bounds(i) == (None, None)
    assert facts.prove(var("p", boolean)) is None


def test_choices() -> None:
    facts = Facts.empty()
    assert facts.prove(minimum(i, j) <= i) is True
    assert facts.prove(maximum(i, j) < j) is False
    assert facts.prove(minimum(i, j) <= maximum(i, j)) is True
    assert facts.prove(i <= select(n < 3, i, i + n * n // (n * n))) is None
    assert facts.prove(select(n < 3, i + 1, i + 2) <= i + 2) is True


def test_unreachable_places_are_no_trouble() -> None:
    facts = Facts.empty().assume(i < 0).assume(const(3) < i).assume(i * j < i // j)
    assert facts.prove(i * i < i % 3) in (True, False, None)


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_answers_hold_wherever_a_program_can_get(seed: int) -> None:
    generator = random.Random(seed)
    scope = random_scope(generator)
    facts = scope.facts()
    expr = random_integer(generator, scope.variables(), 4)
    condition = random_condition(generator, scope.variables(), 3)
    lo, hi = facts.bounds(expr)
    modulus, remainder = facts.congruence(expr)
    known = facts.prove(condition)
    states = list(scope.states(generator))
    assume(states)
    assert known in (None, *(evaluate(condition, state) for state in states)), (scope, condition)
    for state in states:
        value = evaluate(expr, state)
        assert intervals.contains((lo, hi), value), (scope, expr, (lo, hi), state)
        assert (value - remainder) % modulus == 0 if modulus else value == remainder
        assert known in (None, evaluate(condition, state)), (scope, condition, state)


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_what_is_proved_holds(seed: int) -> None:
    generator = random.Random(seed)
    scope = random_scope(generator)
    facts = scope.facts()
    condition = random_condition(generator, scope.variables(), 3)
    # Where no program gets, anything may be proved.
    assume(list(scope.states(generator)))
    assert facts.holds(condition) is (facts.prove(condition) is True)


@given(seeds)
def test_an_affine_form_has_the_value_of_its_expression(seed: int) -> None:
    generator = random.Random(seed)
    names: list[Var] = [i, j, n]
    expr = random_integer(generator, names, 5)
    state = {name: generator.choice(FREE_VALUES) for name in names}
    assert evaluate(affine(expr).to_expr(), state) == evaluate(expr, state)


@given(seeds)
def test_flattened_is_the_same_number(seed: int) -> None:
    r = random.Random(seed)
    x, y = var("x"), var("y")
    number = x * r.randint(-20, 200) + y * r.choice([-3, 1, 14, 128]) + r.randint(-30, 30)
    other = number + y * (r.choice([7, 14]) * r.randint(-3, 3))
    by = const(r.choice([1, 7, 14]))
    digit = (number // by + y * r.randint(0, 3)) // const(r.choice([1, 3, 8]))
    expr = number // by * 14 + other % by + (x % 5) // 3 + digit % const(r.choice([2, 5]))
    form = flattened(expr).to_expr()
    for _ in range(20):
        values = {x: r.randint(-99, 99), y: r.randint(-99, 99)}
        assert evaluate(form, values) == evaluate(expr, values)


def test_flattened_adds_digits_up() -> None:
    x, g = var("x"), var("g")
    expr = (x + g * 128) // 14 * 14 + (x + g * 2) % 14
    assert flattened(expr) == affine(x + g * 128)
    # Rows and columns of an image, of whose pixels x is one.
    pixel = x // 28 % 28 * 28 + x % 28
    assert flattened(x // 784 * 1000 + pixel) == affine(x + x // 784 * 216)


def test_a_loaded_number_is_not_flattened() -> None:
    """It may be 2^63 - 1: seed 51270 of `value_runs` added multiples of its digits to it."""
    table, place = buffer("table", s64, (8,)), buffer("place", s32, (8,))
    any_number, small = load(table, (i,)), cast(s64, load(place, (i,)))
    assert flattened((any_number % 16 + 1) % 5) == affine((any_number % 16 + 1) % 5)
    assert flattened(small // 16 * 16 + small % 16) == affine(small)


_INTEGERS = [t for t in COMPUTED if t.is_integer]
_BOUNDED = sorted(op for op in {*intervals.BINARY, "mulhi"} if "int" in KINDS[op])


def _range_within(generator: random.Random, type_: DType) -> tuple[int, int]:
    ends = (type_.lowest, type_.highest, 0, generator.randint(-9, 9), generator.randint(0, 70))
    fitting = [int(n) for n in ends if type_.lowest <= n <= type_.highest]
    low, high = sorted(generator.choices(fitting, k=2))
    return low, high


# Sums and products of s64 count as unbounded.
_UNBOUNDED = {(op, s64) for op in ("add", "sub", "mul", "neg")}
_ALL_BOUNDED = [*_BOUNDED, *sorted({*intervals.UNARY, *intervals.COUNTS})]


@pytest.mark.parametrize(
    ("op", "type_"), [p for p in product(_ALL_BOUNDED, _INTEGERS) if p not in _UNBOUNDED], ids=str
)
def test_bounds_hold_under_wrapping(op: str, type_: DType) -> None:
    """Of every operator on every type, for operands of any range."""
    generator = random.Random(f"{op} {type_}")
    x, y = var("x", type_), var("y", type_)
    expr = binary(op, x, y) if op in _BOUNDED else unary(op, x)
    for _ in range(20):
        facts, ranges = Facts.empty(), {}
        for name in (x, y):
            low, high = ranges[name] = _range_within(generator, type_)
            facts = facts.assume(const(low, type_) <= name).assume(name <= const(high, type_))
        least, greatest = facts.bounds(expr)
        wide, narrow = cast(s64, expr), facts.bounds(cast(s64, expr))
        for _ in range(15):
            values = {
                name: generator.choice((low, high, generator.randint(low, high)))
                for name, (low, high) in ranges.items()
            }
            value = evaluate(expr, values)
            assert least is None or least <= value, (ranges, values)
            assert greatest is None or value <= greatest, (ranges, values)
            assert intervals.contains(narrow, evaluate(wide, values)), (ranges, values)


def test_a_cast_of_u64_to_s64_wraps() -> None:
    x = var("x", u64)
    signed = cast(s64, x)
    facts = Facts.empty()
    assert facts.prove(const(0) <= signed) is None
    assert facts.assume(x < const(100, u64)).prove(const(0) <= signed) is True
    three = cast(s64, select(var("p", boolean), const(3, u64), const(2**64 - 3, u64)))
    assert facts.bounds(three)[0] != 3

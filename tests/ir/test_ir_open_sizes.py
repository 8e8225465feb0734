"""Integers that stand for sizes that calls pass."""

from __future__ import annotations

import math

import pytest

from tilewright.ir import whole_numbers
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import as_expr, var
from tilewright.ir.open_sizes import OpenSizes, broken
from tilewright.ir.stmt import ScalarParam

N, M = var("n"), var("m")


def sizes() -> OpenSizes:
    params = (ScalarParam(N, 2, 100), ScalarParam(M, 2, 100))
    return OpenSizes(params, {"n": 13, "m": 17})


def test_sums_products_and_quotients_stand_for_theirs() -> None:
    open_sizes = sizes()
    n, m = open_sizes.size(N), open_sizes.size(M)
    assert int(n * m) == 13 * 17 and n * m is not m * n
    assert as_expr(n * m) is as_expr(m * n)
    assert as_expr(math.prod((n, 4, m)) // n) is as_expr(4 * m)
    assert as_expr((n + 1) * 2 - 2 * n) is as_expr(2)
    assert as_expr((2 * n + 1) // 2) is N and (n * m) % m == 0
    assert as_expr(-(-n // 4)) is not as_expr(n // 4)
    assert not open_sizes.decided


def test_what_promises_prove_is_not_decided_by_the_example() -> None:
    open_sizes = sizes()
    n, m = open_sizes.size(N), open_sizes.size(M)
    assert n > 1 and n != 1 and n <= 100 and n * m >= n and max(1, n) is n
    assert (n, m) == (open_sizes.size(N), open_sizes.size(M))
    assert not open_sizes.decided


def test_what_the_example_decided_is_kept() -> None:
    open_sizes = sizes()
    n, m = open_sizes.size(N), open_sizes.size(M)
    assert n < m and n != 64 and min(n, 16) is n
    decided = open_sizes.decided
    assert broken(decided, {N: 13, M: 17}) is None
    assert str(broken(decided, {N: 13, M: 9})) == "n < m"
    assert broken(decided, {N: 64, M: 65}) is not None
    # 16 and more would be another minimum.
    assert broken(decided, {N: 20, M: 30}) is not None


def test_quotients_have_one_form() -> None:
    """As convolutions count positions."""
    open_sizes = sizes()
    n = open_sizes.size(N)
    assert as_expr((n - 1) // 2 + 1) is as_expr((n + 1) // 2)
    assert n - n // 2 >= 1 and 2 * ((n + 1) // 2) >= n
    assert not open_sizes.decided


@pytest.mark.parametrize("value", [-7, -6, -1, 0, 1, 8, 9])
def test_whole_numbers_are_open_until_somebody_asks(value: int) -> None:
    open_sizes = sizes()
    x = open_sizes.size(N) - 13 + value  # of the example
    plain = (
        whole_numbers.quotient(value, 2),
        whole_numbers.remainder(value, 2),
        whole_numbers.greatest(value, 3),
        whole_numbers.least(value, 3),
        whole_numbers.sign(value),
        whole_numbers.chosen(whole_numbers.both(value < 5, value != 0), 7, value),
    )
    truth = whole_numbers.both(
        whole_numbers.less(x, 5), whole_numbers.negated(whole_numbers.equal(x, 0))
    )
    result = (
        whole_numbers.quotient(x, 2),
        whole_numbers.remainder(x, 2),
        whole_numbers.greatest(x, 3),
        whole_numbers.least(x, 3),
        whole_numbers.sign(x),
        whole_numbers.chosen(truth, 7, x),
    )
    assert plain == (int(value / 2), math.fmod(value, 2), *plain[2:])
    assert tuple(map(int, result)) == plain
    for n in (13, 26, 7):
        there = n - 13 + value
        assert evaluate(as_expr(result[0]), {N: n}) == int(there / 2)
        assert evaluate(as_expr(result[2]), {N: n}) == max(there, 3)
    assert not open_sizes.decided
    assert int(open_sizes.settled(result[3])) == plain[3] and open_sizes.decided


@pytest.mark.parametrize("number", [0, 1.5])
def test_what_is_no_size_is_like_for_any_int(number: float) -> None:
    n = sizes().size(N)
    if number:
        assert n + number == 14.5
    else:
        with pytest.raises(ZeroDivisionError):
            n // number

"""Integers that stand for sizes that calls pass."""

from __future__ import annotations

import math

import pytest

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


@pytest.mark.parametrize("number", [0, 1.5])
def test_what_is_no_size_is_like_for_any_int(number: float) -> None:
    n = sizes().size(N)
    if number:
        assert n + number == 14.5
    else:
        with pytest.raises(ZeroDivisionError):
            n // number

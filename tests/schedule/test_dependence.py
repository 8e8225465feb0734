"""What `conflict` and `numbers` claim about indices: enough to be of use, and never too much."""

from __future__ import annotations

import itertools
import textwrap
from random import Random
from typing import Any

import pytest

from tilewright.dtypes import s64
from tilewright.errors import ScheduleError
from tilewright.facts.affine import affine
from tilewright.ir import Expr, Kernel, LoopKind, parse_kernel, var
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.queries.dependence import conflict
from tilewright.schedule.queries.digits import numbers
from tilewright.schedule.queries.place import loops_named

x, y, z = (var(name, s64) for name in "xyz")


def _numbers(*index: Expr) -> list[str]:
    return [str(number.to_expr()) for number in numbers(index)]


@pytest.mark.parametrize(
    ("index", "number"),
    [
        ((x // 49, x // 7 % 7, x % 7), x),
        ((x % 7, y, x // 49, x // 7 % 7), x),
        ((x // 7, x % 7), x),
        # What was a multiple of the divisor was taken out of the division.
        ((x // 7 + y, x % 7), x + y * 7),
        ((x // 6 + 1, x // 3 % 2, x % 3), x + 6),
        # A lower digit of a number that differs by a multiple of what the digit counts.
        (((x + y * 49) // 49, x // 7 % 7, (x + z * 7) % 7), x + y * 49),
        # One digit that says nothing.
        ((x // 7, x // 7 % 1, x % 7), x),
    ],
)
def test_numbers(index: tuple[Expr, ...], number: Expr) -> None:
    assert affine(number) in numbers(index)


@pytest.mark.parametrize(
    "index",
    [
        (x // 49, x % 7),  # the middle is missing
        (x // 49, x // 7 % 6, x % 7),  # the middle is too short
        (x // 49 % 5, x // 7 % 7, x % 7),  # no end
        (x // 7, x % 6),
        (x // 7, y % 7),
        (x // 7, (x + y) % 7),  # of a number that differs by no multiple
        (x // 7 * 2, x % 7),
        (x // 7 % 7, x % 7),
        (x // 7 + y // 7, x % 7),
        (x // 7, x // 7 % 1),
        (x, y),
    ],
)
def test_no_numbers(index: tuple[Expr, ...]) -> None:
    assert numbers(index) == []


def _kernel(index: str, mask: str = "", second: str = "") -> Kernel:
    """Four nested loops around stores to ``y[index | mask]``."""
    rank = len(index.split(","))
    shape = ", ".join(["1000"] * rank)
    where = f" | {mask}" if mask else ""
    text = f"""\
    kernel f(inout y: f32[{shape}], in table: s64[4]):
      for o in 3:
        for i in 4:
          for j in 3:
            compute first(d in 2):
              y[{index}{where}] = 1.0
    """
    if second:
        text += f"        compute second(d in 2):\n              y[{second}{where}] = 2.0\n"
    return parse_kernel(textwrap.dedent(text))


def _free(kernel: Kernel, loop: str) -> bool:
    result, place = loops_named(kernel, loop)[0]
    return conflict(result, place) is None


def test_digits_in_one_index_keep_iterations_apart() -> None:
    # i and d make a digit below 8, whose end only the mask knows.
    kernel = _kernel("j * 8 + i * 3 + d", "i * 3 + d < 8")
    assert _free(kernel, "i")
    assert _free(kernel, "j")
    assert not _free(kernel, "o")
    assert not _free(_kernel("j * 8 + i * 3 + d"), "i")
    assert not _free(_kernel("j * 8 + i * 3 + d", "i * 3 + d < 10"), "i")


def test_digits_of_dims_made_one() -> None:
    number = "o * 24 + i * 6 + j * 2 + d"
    assert all(
        _free(_kernel(f"({number}) // 9, ({number}) // 3 % 3, ({number}) % 3"), loop)
        for loop in "oij"
    )
    assert not any(_free(_kernel(f"({number}) // 9, ({number}) % 3"), loop) for loop in "oij")


def test_a_mask_is_a_fact() -> None:
    assert _free(_kernel("i * 2 + j", "j < 2"), "i")
    assert not _free(_kernel("i * 2 + j"), "i")


def test_all_accesses_count() -> None:
    assert _free(_kernel("i * 4 + d", second="i * 4 + d + 2"), "i")
    assert not _free(_kernel("i * 4 + d", second="i * 4 + d + 3"), "i")
    assert not _free(_kernel("i * 4 + d", second="i * 5 + d"), "i")
    digits = "(i * 2 + d) // 3, (i * 2 + d) % 3"
    assert _free(_kernel(digits, second=digits), "i")
    assert not _free(_kernel(digits, second="(i * 2 + d) % 3, (i * 2 + d) // 3"), "i")


def test_digits_that_all_accesses_share() -> None:
    digits = "i // 3, i % 3"
    assert _free(_kernel(f"{digits}, d", second=f"{digits}, 7"), "i")
    assert not _free(_kernel(f"{digits}, d", second="i // 3, 1, 7"), "i")


def test_tables_that_do_not_change() -> None:
    assert _free(_kernel("i * 2 + d + table[o]"), "i")
    kernel = parse_kernel(
        """
        kernel f(inout y: f32[100]):
          for i in 4:
            alloc t: s64[1]
            t[0] = 8 - i * 2
            compute f(d in 2):
              y[i * 2 + d + t[0]] = 1.0
        """
    )
    with pytest.raises(ScheduleError, match="the iterations of 'i' may write the same element"):
        set_kind(kernel, "i", LoopKind.PARALLEL)


# Random indices, each loop's claim checked by counting.

_EXTENTS = {"o": 3, "i": 4, "j": 3, "d": 2}


def _random_index(r: Random) -> str:
    """A number in digits, or several numbers; often with something wrong."""
    terms = [
        f"{v} * {r.choice([1, 1, 2, 3, 6, 8, 12, 24])}" for v in r.sample("oijd", r.randint(1, 4))
    ]
    if r.random() < 0.4:
        terms = ["o * 24", "i * 6", "j * 2", "d"]
    number = " + ".join(terms)
    if r.random() < 0.2:
        return f"{number} + {r.choice([0, 1, 5])}"
    if r.random() < 0.2:
        return f"{number}, {r.choice('oijd')}"
    low, middle = r.choice([2, 3, 6]), r.choice([1, 2, 3, 4])
    weights = [low * middle, low, 1]
    parts = [f"({number}) // {weights[0]}"]
    for weight, modulus in zip(weights[1:], (middle, low), strict=True):
        own = number
        if r.random() < 0.3:  # congruent, or not
            own += f" + {r.choice('oijd')} * {weight * modulus + r.choice([0, 0, 0, 1])}"
        modulus += r.choice([0, 0, 0, 0, 1, -1])
        parts.append(f"({own}) // {weight} % {max(1, modulus)}")
    if r.random() < 0.15:
        parts.pop(r.randrange(3))
    return ", ".join(r.sample(parts, len(parts)))


def _touched(index: str, mask: str, loop: str) -> dict[tuple[Any, ...], list[set[Any]]]:
    """By what is around ``loop``, what each of its iterations touches."""
    place, condition = compile(f"({index},)", "index", "eval"), compile(mask, "mask", "eval")
    outer = "oij".index(loop)
    result: dict[tuple[Any, ...], list[set[Any]]] = {}
    for values in itertools.product(*(range(n) for n in _EXTENTS.values())):
        own = dict(zip(_EXTENTS, values, strict=True))
        sets = result.setdefault(values[:outer], [set() for _ in range(_EXTENTS[loop])])
        if eval(condition, {}, own):
            sets[values[outer]].add(eval(place, {}, own))
    return result


@pytest.mark.parametrize("seed", range(20))
def test_random_claims_are_true(seed: int) -> None:
    r = Random(seed)
    claims = 0
    for _ in range(25):
        index = _random_index(r)
        mask = r.choice(["", "", "i * 3 + d < 8", "j < 2", "o * 6 + i < 13", "i <= j"])
        kernel = _kernel(index, mask)
        for loop in "oij":
            if _free(kernel, loop):
                claims += 1
                for sets in _touched(index, mask or "True", loop).values():
                    assert sum(map(len, sets)) == len(set().union(*sets)), (index, mask, loop)
    assert claims > 3

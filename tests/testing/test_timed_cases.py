"""Kernels that are timed: the same from the same seed, of each kind, of all sizes, and compiled."""

from __future__ import annotations

import math

import pytest

from sweeps import in_turns
from tilewright.engine import compile_kernel
from tilewright.engine.request import request_of
from tilewright.errors import ProblemError
from tilewright.testing.timed_cases import KINDS, TimedCase, timed_cases

SEEDS = 11


def texts(cases: list[TimedCase]) -> list[tuple[str, str, str]]:
    return [(case.kind, case.name, request_of(case.what).identity) for case in cases]


def test_seeds() -> None:
    """What is drawn depends on the seed, the kind, and how many of it came before."""
    first = texts(list(timed_cases(2 * len(KINDS), 3)))
    assert first == texts(list(timed_cases(2 * len(KINDS), 3)))
    assert [kind for kind, _, _ in first] == [*KINDS, *KINDS]
    assert len({text for _, _, text in first}) == 2 * len(KINDS)
    others = texts(list(timed_cases(2 * len(KINDS), 4)))
    assert not {name for _, name, _ in first} & {name for _, name, _ in others}
    alone = texts(list(timed_cases(2, 3, ("softmax",))))
    assert alone == [case for case in first if case[0] == "softmax"]


def test_unknown_kind() -> None:
    with pytest.raises(ProblemError, match="there is no kind of kernels called 'sponge'") as error:
        list(timed_cases(1, 0, ("scan", "sponge")))
    assert "elementwise, binary, reorder" in str(error.value)


def test_sizes() -> None:
    """Arrays lie in the nearest cache, or in memory alone, or between."""
    moved = []
    for case in timed_cases(200, 0):
        arrays = request_of(case.what).signature().at(case.numbers)
        moved.append(sum(math.prod(array.buffer.shape) * array.dtype.bytes for array in arrays))
    assert sum(size < 2**15 for size in moved) > 10
    assert sum(2**15 < size < 2**20 for size in moved) > 40
    assert sum(2**20 < size < 2**25 for size in moved) > 40
    assert sum(size > 2**25 for size in moved) > 5
    assert max(moved) < 2**29


@pytest.mark.parametrize(("kind", "seed"), in_turns(40, KINDS, range(SEEDS)))
def test_all_compile(kind: str, seed: int) -> None:
    (case,) = timed_cases(1, seed, (kind,))
    kernel = compile_kernel(case.what, "x86", 1)
    assert {scalar.name for scalar in kernel.signature.scalars} == set(case.numbers)

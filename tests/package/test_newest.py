"""A dict of the newest entries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tilewright.newest import Newest


def test_the_first_set_goes_first() -> None:
    kept: Newest[int, str] = Newest(2)
    for key in range(4):
        kept[key] = str(key)
    assert list(kept.items()) == [(2, "2"), (3, "3")]
    # Setting an entry again does not make it newer, and drops none.
    kept[2] = "two"
    assert list(kept.items()) == [(2, "two"), (3, "3")]


def test_threads_set_at_once() -> None:
    kept: Newest[int, int] = Newest(5)

    def fill(first: int) -> None:
        for key in range(first, first + 2000):
            kept[key] = key
            kept.pop(key - 1, None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(0, 8000, 2000)))
    assert 1 <= len(kept) <= 5

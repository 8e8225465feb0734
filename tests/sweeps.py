"""Combinations of which the tests run a part, in turns, because all of them take minutes.

``pytest --sweep`` runs those that are left out otherwise, and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def in_turns(every: int, *axes: Iterable[Any]) -> list[Any]:
    """Parameters: one of so many combinations of ``axes``; the others are for sweeps.

    Those left in differ from one another along two axes at least, so that each value of an axis
    meets one of so many values of another.
    """
    numbered = itertools.product(*(tuple(enumerate(axis)) for axis in axes))
    return [
        pytest.param(
            *(value for _, value in each),
            marks=() if sum(place for place, _ in each) % every == 0 else (pytest.mark.sweep,),
        )
        for each in numbered
    ]


def add_options(parser: pytest.Parser) -> None:
    """The options of this plugin."""
    parser.addoption(
        "--sweep", action="store_true", help="run the combinations that are left out otherwise"
    )


def register(config: pytest.Config) -> None:
    """Declares the mark."""
    config.addinivalue_line("markers", "sweep: a combination that `--sweep` runs")


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves in ``items`` what is to be run."""
    sweep = bool(config.getoption("--sweep"))
    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        parts[(item.get_closest_marker("sweep") is not None) is sweep].append(item)
    items[:] = parts[True]
    if parts[False]:
        config.hook.pytest_deselected(items=parts[False])

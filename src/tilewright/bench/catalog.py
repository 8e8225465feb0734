"""The shipped sets of problems: networks' layers, and ``tails``, the limits of legal problems.

A set is a text in ``sets/``: its first line names the driver, ``# driver: conv``; then one
benchdnn descriptor per line, with comments after ``#``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from tilewright.errors import ProblemError, one_of
from tilewright.problems import Problem, parse

_HEADER = "# driver: "


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """Problems of one driver, in the network's order."""

    name: str
    driver: str
    problems: tuple[Problem, ...]


def names() -> list[str]:
    """The shipped sets, sorted."""
    files = (entry.name for entry in _folder().iterdir())
    return sorted(name.removesuffix(".txt") for name in files if name.endswith(".txt"))


def load(name: str) -> ProblemSet:
    """The set of that name. Raises `ProblemError` when there is none."""
    if name not in names():
        raise ProblemError(f"unknown set {name!r}", where="--set", cure=one_of(name, names()))
    return read(name, (_folder() / f"{name}.txt").read_text(encoding="utf-8"))


def read(name: str, text: str) -> ProblemSet:
    """The set that ``text`` lists. Raises `ProblemError` for a missing header or a bad line."""
    header, *lines = text.splitlines() or [""]
    if not header.startswith(_HEADER):
        raise ProblemError(
            f"set {name} does not name its driver",
            where=f"{name}, line 1",
            cure=f"begin it with a line such as {_HEADER}conv",
        )
    driver = header.removeprefix(_HEADER).strip()
    descriptors = (line.partition("#")[0].strip() for line in lines)
    problems = tuple(parse(driver, descriptor) for descriptor in descriptors if descriptor)
    return ProblemSet(name, driver, problems)


def _folder() -> Traversable:
    return resources.files("tilewright") / "bench" / "sets"

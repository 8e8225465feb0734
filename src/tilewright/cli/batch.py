"""Files of options and descriptors, as benchdnn reads them.

Each word is an option, ``--dir=BWD_D``, which holds for the rest of the file, ``--reset``, which
drops such options, ``--batch=FILE``, read in its place, or a descriptor. ``#`` starts a comment;
``\\`` at a line's end joins a word with the next line's first; the comment ``# driver: conv`` names
the driver of the file. The shipped sets have this form.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.cli.files import read_text
from tilewright.errors import ProblemError, TilewrightError

_DRIVER = "# driver:"
_DEEPEST = 16
# A comment, or a word, with blanks in its quoted parts, the last of which may lack its end.
_WORD = re.compile(r'#.*|(?:"[^"]*(?:"|$)|[^\s"])+')


@dataclass(frozen=True)
class Line:
    """A descriptor with the options that hold for it, and where it stands; or the ``error`` of a
    word that is neither a descriptor nor an option."""

    options: dict[str, str]
    word: str
    where: str
    error: TilewrightError | None = None


def read_batch(
    path: Path, driver: str, options: dict[str, str], known: Container[str]
) -> Iterator[Line]:
    """The descriptors of a file with the options that hold for each, which begin with ``options``.

    Raises `ProblemError` for a file that cannot be read, or is another driver's.
    """
    yield from _read(path, driver, options, dict(options), known, 0)


def _read(
    path: Path,
    driver: str,
    first: dict[str, str],
    current: dict[str, str],
    knobs: Container[str],
    depth: int,
) -> Iterator[Line]:
    """What `read_batch` says. As in benchdnn, a file that another one reads changes its options."""
    if depth > _DEEPEST:
        raise ProblemError("batch files read each other", where=str(path))
    for word, where in _words(path, driver):
        name, _, value = word.removeprefix("--").partition("=")
        ours = name.replace("_", "-")
        name = ours if ours in knobs else name
        if word.count('"') % 2:
            why = ProblemError("the line has an open quote", where=where, cure='end it with "')
            yield Line({}, word, where, why)
        elif not word.startswith("--"):
            yield Line(dict(current), word, where)
        elif name == "reset":
            current.clear()
            current.update(first)
        elif name == "batch":
            yield from _read(path.parent / value, driver, first, current, knobs, depth + 1)
        elif name not in knobs:
            cure = "see tilewright verify --help"
            why = ProblemError(f"unknown option --{name}", where=where, cure=cure)
            yield Line({}, word, where, why)
        elif value:
            current[name] = value
        else:
            current.pop(name, None)


def _words(path: Path, driver: str) -> Iterator[tuple[str, str]]:
    """The words of a file and where each ends, without comments; names keep their quotes."""
    text = read_text(path, "--batch", "choose another file", "batch file")
    last: tuple[str, str] | None = None
    goes_on = False
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}, line {number}"
        if line.startswith(_DRIVER) and line.removeprefix(_DRIVER).strip() != driver:
            raise ProblemError(
                f"the file is for {line.removeprefix(_DRIVER).strip()}, not {driver}",
                where=where,
                cure="use that driver",
            )
        for word in _WORD.findall(line):
            if word.startswith("#"):
                break
            if last is not None and (goes_on or word == "\\"):
                word = last[0] + word
            elif last is not None:
                yield last
            goes_on = word.endswith("\\")
            last = word.removesuffix("\\"), where
    if last is not None:
        yield last

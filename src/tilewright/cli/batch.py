"""Files of options and descriptors, as benchdnn reads them.

Each line is an option, ``--dir=BWD_D``, which holds for the rest of the file, ``--reset``, which
drops such options, ``--batch=FILE``, read in its place, or a descriptor. ``#`` starts a comment;
the comment ``# driver: conv`` names the driver of the file. The shipped sets have this form.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from pathlib import Path

from tilewright.cli.files import read_text
from tilewright.errors import ProblemError

_DRIVER = "# driver:"
_DEEPEST = 16
# A comment, a word (with blanks in its quoted parts), or an open quote.
_WORD = re.compile(r'#.*|(?:"[^"]*"|[^\s"])+|"')


def read_batch(
    path: Path, driver: str, texts: dict[str, str], known: Container[str], depth: int = 0
) -> Iterator[tuple[dict[str, str], str]]:
    """The descriptors of a file with the options that hold for each, which begin with ``texts``.

    Raises `ProblemError` for a file that cannot be read, an unknown option, another driver's file.
    """
    if depth > _DEEPEST:
        raise ProblemError("batch files read each other", where=str(path))
    lines = read_text(path, "--batch", "choose another file", "batch file").splitlines()
    current = dict(texts)
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        if line.startswith(_DRIVER) and line.removeprefix(_DRIVER).strip() != driver:
            raise ProblemError(
                f"the file is for {line.removeprefix(_DRIVER).strip()}, not {driver}",
                where=where,
                cure="use that driver",
            )
        for word in _words(line, where):
            if not word.startswith("--"):
                yield dict(current), word
                continue
            name, _, value = word.removeprefix("--").partition("=")
            name = name.replace("_", "-")
            if name == "reset":
                current = dict(texts)
            elif name == "batch":
                yield from read_batch(path.parent / value, driver, current, known, depth + 1)
            elif name in known:
                current[name] = value
                if not value:
                    del current[name]
            else:
                raise ProblemError(
                    f"unknown option --{name}", where=where, cure="see tilewright verify --help"
                )


def _words(line: str, where: str) -> list[str]:
    """The words of a line without its comment; names keep their quotes."""
    words = []
    for word in _WORD.findall(line):
        if word.startswith("#"):
            break
        if word == '"':
            raise ProblemError(
                "the line has an open quote", where=where, cure='end the name with "'
            )
        words.append(word)
    return words

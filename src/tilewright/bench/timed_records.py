"""Times of scheduled kernels as lines of JSON, which a fit reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tilewright.errors import ArgumentError
from tilewright.ir.arguments import Scalar
from tilewright.ir.parser import parse_kernel
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import bind_scalars


@dataclass(frozen=True)
class TimedRecord:
    """A scheduled kernel, and how long it took.

    ``problem`` of a ``kind`` was scheduled by ``config`` for ``target``, which is the ``default``
    of its recipes or is not, and ran on ``threads`` of a ``processor``: ``seconds`` a call, the
    median of many, which is known to within the part ``error`` of it, and the ``best`` of them.
    ``noise`` are the reasons to doubt the median. ``text`` is the scheduled kernel, as it prints,
    before the passes that follow, and ``numbers`` the scalars of the calls.
    """

    kind: str
    problem: str
    target: str
    processor: str
    threads: int
    config: str
    default: bool
    seconds: float
    best: float
    error: float
    text: str
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    noise: tuple[str, ...] = ()

    @cached_property
    def kernel(self) -> Kernel:
        """The scheduled kernel, with the numbers of the calls in it."""
        return bind_scalars(parse_kernel(self.text), self.numbers)

    @property
    def run(self) -> tuple[str, str, int]:
        """What all variants of one problem have in common."""
        return self.problem, self.target, self.threads

    def line(self) -> str:
        """The record as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The record that a line has. Raises `TypeError` and `KeyError` for what is none."""
        values = {part.name: data[part.name] for part in fields(cls)}
        return cls(**{**values, "noise": tuple(values["noise"])})


def read_records(path: Path) -> list[TimedRecord]:
    """The records of a file, none where there is no file. A last line that a process did not finish
    is left out. Raises `ArgumentError` for another line that is no record."""
    if not path.exists():
        return []
    records = []
    lines = path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            records.append(TimedRecord.of(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ArgumentError(
                f"line {number} is no record of a time",
                where=str(path),
                why=f"{type(error).__name__}: {error}",
                cure="name a file that the same version wrote, or remove it",
            ) from None
    return records


def append(path: Path, records: Iterable[TimedRecord]) -> None:
    """Adds ``records`` to a file, which is made where there is none. A line that was not finished
    is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        held = file.read()
        file.truncate(held.rfind(b"\n") + 1)
        file.write("".join(record.line() for record in records).encode())

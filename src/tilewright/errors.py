"""Every error that Tilewright raises, as one tree.

    TilewrightError
    ├── ProblemError        a descriptor or a problem that makes no sense
    ├── LayoutError         an unknown tag, strides that overlap
    ├── UnsupportedError    well-formed, but not available for this type, machine or build
    ├── ArgumentError       an array that does not fit the kernel's parameter
    │   └── PlacementError  ... by where it lies: its strides, or memory that another one has, too
    ├── ScheduleError       an illegal config or a transform that refused
    ├── FusionError         kernels that cannot become one
    ├── VerificationError   ill-formed IR
    ├── ParseError          IR text that does not parse
    ├── KernelError         a function in Python that is no kernel
    ├── CompilationError    a compiler refused what we generated, or ended its process (our defect;
    │                       the IR is kept)
    ├── InterpreterFault    the kernel did something illegal when run in the interpreter
    ├── DeviceError         a device that is not there, or that failed
    ├── QueueError          a queue, buffer or event that is closed, forked, or depends on a failure
    ├── DatabaseError       a database of tuning that is none, is damaged, or cannot be written
    ├── TuningError         a search for what is fastest that cannot begin, or cannot go on
    └── SettingError        an environment variable or setting with a wrong value

Each says *what* is wrong, *where* (a place in a text or in the IR), *why*, and the *cure*.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


def one_of(name: object, names: Iterable[object]) -> str:
    """The cure for an unknown name: the most similar one of ``names``, and all of them."""
    choices = list(map(str, names))
    folded = {choice.lower(): choice for choice in choices}
    word = name[:100].lower() if isinstance(name, str) else ""
    close = difflib.get_close_matches(word, folded, n=1)
    guess = f"did you mean {folded[close[0]]}? " if close else ""
    return f"{guess}choose one of {', '.join(choices)}"


def short(value: object) -> str:
    """How an error shows a value that may be anything: at most some 60 characters."""
    if isinstance(value, int) and value.bit_length() > 200:
        return "an integer of hundreds of digits"
    try:
        text = repr(value) if isinstance(value, str | int | float | bool | tuple | list) else ""
    except ValueError:  # of a number among them that is too long for Python to print
        text = ""
    if not text:
        return f"{'None' if value is None else 'a ' + type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text: characters ``start`` to ``end`` (exclusive) of ``text``, which is that of
    ``file`` where it came from one."""

    text: str
    start: int
    end: int
    file: str | None = None

    @property
    def line(self) -> int:
        """The line in which the place begins, counted from 1."""
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """The character of its line at which the place begins, counted from 1."""
        return self.start - self.text.rfind("\n", 0, self.start)

    @property
    def place(self) -> str:
        """The beginning of the place, in words. Descriptors are one line: a position is enough."""
        if self.file is not None:
            return f"{self.file}:{self.line}:{self.column}"
        if "\n" in self.text:
            return f"line {self.line}, column {self.column}"
        return f"position {self.start}"

    def caret(self) -> str:
        """The line that holds the place, and carets under it."""
        line_start = self.text.rfind("\n", 0, self.start) + 1
        line_end = self.text.find("\n", self.start)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        width = max(1, min(self.end, line_start + len(line)) - self.start)
        return f"{line}\n{' ' * (self.start - line_start)}{'^' * width}"


class TilewrightError(Exception):
    """Base of all errors of this project.

    ``what`` is one sentence; ``where`` a `Span` or a name; ``why`` and ``cure`` are optional
    sentences. ``span`` is the place in a text, also where ``where`` says it in words.
    ``str(error)`` puts them together.
    """

    def __init__(
        self,
        what: str,
        *,
        where: Span | str | None = None,
        why: str | None = None,
        cure: str | None = None,
        span: Span | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.span = where if isinstance(where, Span) else span
        self.why = why
        self.cure = cure
        super().__init__(self._format())

    def _format(self) -> str:
        lines = [self.what]
        if self.span is not None:
            lines.append(f"  at {self.span.place}:")
            lines += [f"  {line}" for line in self.span.caret().splitlines()]
        if isinstance(self.where, str):
            lines.append(f"  where: {self.where}")
        if self.why is not None:
            lines.append(f"  why: {self.why}")
        if self.cure is not None:
            lines.append(f"  cure: {self.cure}")
        return "\n".join(lines)


class ProblemError(TilewrightError):
    """A descriptor or a problem that makes no sense."""


class LayoutError(TilewrightError):
    """An unknown tag, or strides that overlap."""


class UnsupportedError(TilewrightError):
    """Well-formed, but not available for this type, machine or build."""


class ArgumentError(TilewrightError):
    """An array that does not fit the kernel's parameter."""


class PlacementError(ArgumentError):
    """An array that lies otherwise than the code expects: by its strides, or where another is."""


class ScheduleError(TilewrightError):
    """An illegal config, or a transform that refused."""


class FusionError(TilewrightError):
    """Kernels that cannot become one, or what was asked of that and is not possible."""


class VerificationError(TilewrightError):
    """Ill-formed IR."""


class ParseError(TilewrightError):
    """IR text that does not parse."""


class KernelError(TilewrightError):
    """A function in Python that is no kernel, or an `assert` of one that does not hold."""


class CompilationError(TilewrightError):
    """LLVM refused what we generated."""


class InterpreterFault(TilewrightError):
    """The kernel did something illegal when run in the interpreter: it accessed memory out of
    bounds, read what nothing wrote, wrote to an input, or raced with itself.
    """


class DeviceError(TilewrightError):
    """A device that is not there, or that failed."""


class QueueError(TilewrightError):
    """What a queue cannot do: it, or a buffer, is closed, or is of another process or device; a
    command that another one needs failed; a wait would never end.
    """


class DatabaseError(TilewrightError):
    """A database of tuning, or a row of one, that is none, is damaged, or cannot be written."""


class TuningError(TilewrightError):
    """A search for what is fastest that cannot begin, or cannot go on."""


class SettingError(TilewrightError):
    """An environment variable or setting with a wrong value."""

"""Files of a command: texts that it reads, and what it writes at the end. Whether it can write is
tested before it starts."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tilewright.errors import ArgumentError, ProblemError


def read_text(path: Path, where: str, cure: str, kind: str = "") -> str:
    """The text of a file of some ``kind`` ("kernel file"), which ``where`` names. Raises
    `ProblemError` with that ``cure`` for one that cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        name = f"the {kind} {path}" if kind else str(path)
        raise ProblemError(f"cannot read {name}", where=where, why=reason, cure=cure) from error


class OutputFile:
    """The file of ``option``, open for writing. Its contents stay until `write`.

    Raises `ArgumentError` where it cannot be opened or written.
    """

    def __init__(self, path: Path, option: str) -> None:
        self.path = path
        self._option = option
        self._created = not os.path.lexists(path)
        try:
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._refusal(error) from error
        self.replaceable = stat.S_ISREG(os.fstat(self._handle).st_mode)
        """Whether it can be rewritten: a pipe or a terminal cannot."""

    def write(self, data: bytes) -> None:
        """Replaces the contents."""
        remaining = memoryview(data)
        try:
            if self.replaceable:
                os.lseek(self._handle, 0, os.SEEK_SET)
            while remaining:
                remaining = remaining[os.write(self._handle, remaining) :]
            if self.replaceable:
                os.ftruncate(self._handle, len(data))
        except OSError as error:
            raise self._refusal(error) from error
        self._created = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._handle)
        if self._created and self.replaceable:
            # Nothing was written to it.
            with suppress(OSError):
                self.path.unlink()

    def _refusal(self, error: OSError) -> ArgumentError:
        return _refusal(self.path, self._option, error)


def open_output(stack: ExitStack, path: Path | None, option: str) -> OutputFile | None:
    """The file, if ``path`` is given, until the ``stack`` unwinds."""
    return None if path is None else stack.enter_context(OutputFile(path, option))


def make_folder(path: Path, option: str) -> None:
    """Makes a folder for files. Raises `ArgumentError` if files cannot be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise _refusal(path, option, error) from error


def _refusal(path: Path, option: str, error: OSError) -> ArgumentError:
    return ArgumentError(
        f"cannot write {path}",
        where=option,
        why=error.strerror or str(error),
        cure="choose another place",
    )

"""Kernels of the command line: read from files, with the scalars of a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.cli.arrays import load_array, typed
from tilewright.cli.files import read_text
from tilewright.cli.python_files import python_kernels
from tilewright.errors import ProblemError, one_of
from tilewright.ir.arguments import Scalar, scalar_argument
from tilewright.ir.constants import contents_of, digest_of, missing_constant
from tilewright.ir.parser import parse_kernels
from tilewright.ir.stmt import Kernel, ScalarParam
from tilewright.ir.verify import verify
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.kernel_numbers import draw_numbers

# Calls on which a kernel with unset scalars is tried.
_DRAWS = 4
_WORDS: dict[str, bool] = {"true": True, "false": False}


def kernel_cases(
    sources: Sequence[str],
    settings: Sequence[str],
    constant: tuple[str, ...],
    contents: Sequence[Path] = (),
) -> list[KernelCase]:
    """The kernels of ``sources``, each ``FILE`` (all of them) or ``FILE:NAME``, with the scalars
    in ``settings`` (``n=64``) for those that have such a parameter, and the constants whose
    ``contents`` are in files.

    Raises `ProblemError`, `ParseError`, `VerificationError`, and `ArgumentError` for a number that
    breaks a promise, and for contents of another type or length than declared.
    """
    read = [kernel for source in sources for kernel in _read(source)]
    kernels = _with_constants(read, contents) if contents else read
    values = [_setting(word) for word in settings]
    names = dict.fromkeys(scalar.name for _, kernel in kernels for scalar in kernel.scalars)
    for name, _ in values:
        if name not in names:
            raise ProblemError(
                f"there is no number {name!r}",
                where="--set",
                why=None if names else "the kernel takes none",
                cure=one_of(name, names) if names else "leave it out",
            )
    return [
        KernelCase(
            kernel,
            source,
            dict(_numbers(kernel, values)),
            constant,
            python=file_of(source)[0].suffix == ".py",
        )
        for source, kernel in kernels
    ]


def numbers_of(kernel: Kernel, settings: Sequence[str]) -> dict[str, Scalar]:
    """The scalars of ``kernel`` that ``settings`` (``n=64``) set. Raises the errors of
    `kernel_cases`."""
    return dict(_numbers(kernel, [_setting(word) for word in settings]))


def draws(case: KernelCase, count: int, seed: int) -> Iterator[KernelCase]:
    """``case`` with all scalars: ``count`` times (0: once if none is random, else a few times),
    with different contents each time. Raises `ArgumentError` for constants without contents."""
    for param in case.kernel.arrays:
        if param.digest is not None and param.digest not in case.kernel.constants:
            raise missing_constant(param)
    complete = all(scalar.name in case.numbers for scalar in case.kernel.scalars)
    for draw in range(count or (1 if complete else _DRAWS)):
        numbers = draw_numbers(case.kernel, case.numbers, seed + draw)
        yield replace(case, numbers=numbers, seed=seed + draw)


def _read(source: str) -> Iterator[tuple[str, Kernel]]:
    """The kernels that ``source`` names, each with the ``source`` for it alone."""
    path, name = file_of(source)
    kernels = _parsed(path, name)
    names = [kernel.name for kernel in kernels]
    for kernel in kernels:
        if name and kernel.name != name:
            continue
        if names.count(kernel.name) > 1:
            raise ProblemError(
                f"{path} has {names.count(kernel.name)} kernels called {kernel.name!r}",
                where=f"kernel {source}",
                cure="give each a name of its own",
            )
        verify(kernel)
        alone = len(kernels) == 1 and not name
        yield (str(path) if alone else f"{path}:{kernel.name}"), kernel
    if name and name not in names:
        raise ProblemError(
            f"{path} has no kernel {name!r}",
            where=f"kernel {source}",
            cure=one_of(name, names),
        )


def file_of(source: str) -> tuple[Path, str]:
    """The file of ``FILE`` or ``FILE:NAME``, and the name, if there is one."""
    if not Path(source).exists() and ":" in source:
        file, _, name = source.rpartition(":")
        return Path(file), name
    return Path(source), ""


def _parsed(path: Path, name: str) -> tuple[Kernel, ...]:
    if path.suffix == ".py":
        return python_kernels(path, name)
    cure = "give FILE or FILE:NAME, a file with kernels as IR text"
    text = read_text(path, f"kernel {path}", cure, "kernel file")
    return parse_kernels(text, file=str(path))


def _with_constants(
    kernels: Sequence[tuple[str, Kernel]], files: Sequence[Path]
) -> list[tuple[str, Kernel]]:
    """The kernels with the constants whose contents are in ``files``, identified by digest."""
    contents = {}
    declared = {param.digest for _, kernel in kernels for param in kernel.arrays if param.digest}
    for path in files:
        array = load_array(path, "--contents")
        contents[digest_of(array)] = array
        if digest_of(array) not in declared:
            raise ProblemError(
                f"{path} is no constant of these kernels",
                where="--contents",
                why=f"its contents have the digest {digest_of(array)}",
                cure="write that digest where the kernel declares the constant, or leave it out",
            )
    return [
        (source, replace(kernel, constants=dict(_contents(kernel, contents))))
        for source, kernel in kernels
    ]


def _contents(kernel: Kernel, contents: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for param in kernel.arrays:
        if param.digest is not None and param.digest in contents:
            array = typed(param.buffer, contents[param.digest], "--contents")
            yield param.digest, contents_of(param.buffer, array)


def _setting(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals or not value:
        raise ProblemError(
            f"{word!r} sets no number", where="--set", cure="write NAME=NUMBER, such as n=64"
        )
    return name, value


def _numbers(kernel: Kernel, values: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Scalar]]:
    params = {scalar.name: scalar for scalar in kernel.scalars}
    for name, text in values:
        if name in params:
            yield name, scalar_argument(params[name], _number(params[name], text), "--set")


def _number(param: ScalarParam, text: str) -> Scalar | str:
    """The number in ``text``; ``text`` itself if it is none, which is refused later."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        # int() refuses the longest texts, which no type holds.
        return float(text) if param.dtype.is_float else int(text)
    except ValueError:
        return text

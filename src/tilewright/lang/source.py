"""The source of a function: its text, its syntax tree, and the place of each node.

It is taken when the function is decorated. A file that has changed since Python loaded it would
give the tree of another function, so the tree is compiled and compared with what Python loaded.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, islice
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from tilewright.errors import KernelError, Span

# Most lines of a function that is typed at a prompt.
_MOST_TYPED = 500


@dataclass(frozen=True, eq=False)
class _Text:
    """The ``text`` of ``file``."""

    text: str
    file: str

    @cached_property
    def _lines(self) -> list[int]:
        """The offset of each line."""
        return list(accumulate((len(line) + 1 for line in self.text.split("\n")), initial=0))

    def offset(self, line: int, column: int) -> int:
        """The character of the text; columns of syntax trees count bytes."""
        start = self._lines[line - 1]
        end = self.text.find("\n", start)
        line_text = self.text[start : end if end >= 0 else len(self.text)]
        if not line_text.isascii():
            column = len(line_text.encode()[:column].decode(errors="ignore"))
        return start + column

    def between(self, start: int, end: int) -> Span:
        """The place between two characters."""
        return Span(self.text, start, max(end, start + 1), self.file)


@dataclass(frozen=True, eq=False)
class Source(_Text):
    """The definition of one function in the ``text`` of ``file``."""

    tree: ast.FunctionDef

    def span(self, node: ast.AST) -> Span:
        """The place of ``node``; for nodes with a body, of the part before it."""
        start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        body = getattr(node, "body", None)
        if isinstance(body, list) and body:
            end = self.text.rfind(":", start, self.offset(body[0].lineno, body[0].col_offset)) + 1
        else:
            end = self.offset(
                node.end_lineno,  # type: ignore[attr-defined]
                node.end_col_offset,  # type: ignore[attr-defined]
            )
        return self.between(start, end)


def calling_place(frame: FrameType) -> Span | None:
    """The place that ``frame`` executes, in its file; None where that is unavailable."""
    code = frame.f_code
    text = _text(code)
    line, last, first, end = next(islice(code.co_positions(), frame.f_lasti // 2, None))
    if text is None or line is None or last is None or first is None or end is None:
        return None
    whole = _Text(text, code.co_filename)
    return whole.between(whole.offset(line, first), whole.offset(last, end))


def source_of(function: FunctionType) -> Source:
    """The source of ``function``. `KernelError` where there is none, or where the file has changed
    since Python loaded it."""
    code = function.__code__
    name = function.__name__
    where = f"{code.co_filename}:{code.co_firstlineno}"
    text = _text(code) or _typed(code)
    if text is None:
        raise KernelError(
            f"the source of {name} is not available",
            where=where,
            why="a kernel is made from its text, and Python keeps none of what is executed from a "
            "string, or typed at a prompt without readline",
            cure="write it in a file or in a notebook (IPython keeps what is typed)",
        )
    tree = _definition(text, code)
    if tree is None:
        raise KernelError(
            f"the source of {name} has changed since Python loaded it",
            where=where,
            why="the kernel would not be the function that is there",
            cure="load the module again: importlib.reload, or a new process",
        )
    return Source(text, code.co_filename, tree)


def _text(code: CodeType) -> str | None:
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename)
    return "".join(lines) if lines else None


def _typed(code: CodeType) -> str | None:
    """The lines at Python's prompt that ``code`` was compiled from, as readline remembers them."""
    readline = sys.modules.get("readline")
    if readline is None or code.co_filename != "<stdin>":
        return None
    last = readline.get_current_history_length()
    lines: list[str] = []
    for number in range(last, max(0, last - _MOST_TYPED), -1):
        lines.insert(0, readline.get_history_item(number) or "")
        text = "\n".join((*lines, ""))
        if lines[0][:1].isspace() or _definition(text, code) is None:
            continue
        # The same lines at the same places: without its decorator, a function is the same code.
        if _compiled(text)[code.co_name, code.co_firstlineno].co_linetable == code.co_linetable:
            return text
    return None


@lru_cache(maxsize=64)
def _definitions(text: str) -> Mapping[tuple[str, int], ast.FunctionDef]:
    """The functions that ``text`` defines, by name and first line; none if it is no Python."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    definitions: dict[tuple[str, int], ast.FunctionDef] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            definitions.setdefault((node.name, _first_line(node)), node)
    return definitions


@lru_cache(maxsize=64)
def _compiled(text: str) -> Mapping[tuple[str, int], CodeType]:
    """The code of each function in ``text``, by its name and first line."""
    codes: dict[tuple[str, int], CodeType] = {}
    pending = [compile(text, "<source>", "exec", dont_inherit=True)]
    while pending:
        code = pending.pop()
        codes[code.co_name, code.co_firstlineno] = code
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return codes


def _definition(text: str, code: CodeType) -> ast.FunctionDef | None:
    """The definition that ``code`` was compiled from; None where the text has none."""
    key = code.co_name, code.co_firstlineno
    node = _definitions(text).get(key)
    if node is None:
        return None
    again = _compiled(text).get(key)
    return node if again is not None and _is_compiled_from(node, again, code) else None


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _is_compiled_from(node: ast.FunctionDef, again: CodeType, code: CodeType) -> bool:
    """Whether ``code`` is the code that the text compiles to now."""
    if any(isinstance(part, ast.Assert) for part in ast.walk(node)):
        # Test runners compile assertions in their own ways: names are compared instead.
        return again.co_varnames == code.co_varnames[: len(again.co_varnames)]
    return again.co_code == code.co_code and _constants(again) == _constants(code)


def _constants(code: CodeType) -> set[str]:
    return {repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)}


def captured(function: FunctionType) -> dict[str, Any]:
    """The present values of the names that ``function`` does not bind itself."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    values: dict[str, Any] = {}
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in (*code.co_names, *code.co_freevars):
            if name in cells:
                with suppress(ValueError):  # not bound yet
                    values[name] = cells[name].cell_contents
            elif name in function.__globals__:
                values[name] = function.__globals__[name]
            elif hasattr(builtins, name):
                values[name] = getattr(builtins, name)
    return values


def unchanged(function: FunctionType, names: Iterable[str]) -> Callable[[], bool]:
    """Whether these names, which ``function`` does not bind itself, still stand for the same
    objects: a call that takes a fraction of a microsecond."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    values = captured(function)
    here = [name for name in names if name in values]
    # What an array holds may change at any time.
    if any(isinstance(v, np.ndarray) and v.flags.writeable for v in map(values.get, here)):
        return lambda: False
    inner = [(cells[name], values[name]) for name in here if name in cells]
    outer = [(name, values[name]) for name in here if name not in cells]
    space = function.__globals__

    def same() -> bool:
        for name, value in outer:
            if space.get(name) is not value:
                return False
        try:
            return all(cell.cell_contents is value for cell, value in inner)
        except ValueError:  # not bound any more
            return False

    return same

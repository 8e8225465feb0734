"""Texts of schedules, as `record` prints them and people edit them, read without running them.

What may stand in them is little: calls of transforms on variables that stand for kernels, with
literals, members of a few enumerations, types, instructions by name, and names that are assigned
what a step gives. Python's own parser reads the syntax, and everything else is refused.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from difflib import get_close_matches
from enum import Enum
from typing import Any

from tilewright import dtypes
from tilewright.errors import ParseError, Span, UnsupportedError, short
from tilewright.ir.buffer import Space
from tilewright.ir.stmt import LoopKind
from tilewright.schedule.pipelines.pipeline import Fill
from tilewright.schedule.records.record import (
    FORMAT,
    HOIST,
    MAIN,
    SPLITTING,
    VALUES,
    Line,
    Named,
    Record,
)
from tilewright.schedule.records.transform import TRANSFORMS

_ENUMS: dict[str, type[Enum]] = {"Space": Space, "LoopKind": LoopKind, "Fill": Fill}
_HEADER = re.compile(
    r"# Tilewright schedule, format (\d{1,9})(?:; machine (\S+))?; kernel (\S*) ([0-9a-f]{16})"
)
# Characters, far beyond any schedule: Python's parser needs memory for what nests.
LONGEST = 200_000


def parse_schedule(text: str, file: str | None = None) -> Record:
    """The steps that ``text`` says, which is that of ``file`` where it came from one. Raises
    `ParseError`, which marks the place."""
    if not isinstance(text, str):
        raise ParseError(f"{short(text)} is no text of a schedule", cure="pass a str")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > LONGEST:
        raise ParseError(
            "the text is too long for a schedule",
            where=f"{len(text)} characters",
            cure=f"write at most {LONGEST}",
        )
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise _unparsed(text, file, error) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ParseError(
            "this is no text of a schedule",
            where=f"{text[:40]!r}",
            why=str(error) or "it nests too deeply",
            cure=f"write steps, such as {MAIN}.inline('k')",
        ) from None
    result = _HEADER.search(text.partition("\n")[0])
    if result is not None and int(result[1]) != FORMAT:
        raise ParseError(
            f"the schedule is of format {result[1]}",
            where=Span(text, result.start(1), result.end(1), file),
            why=f"this version reads format {FORMAT}",
            cure="record it again: `--stage schedule` prints the one of any kernel",
        )
    lines = _Reader(text, file).lines(tree)
    machine, kernel, digest = (result[2] or "", result[3], result[4]) if result else ("", "", "")
    return Record(machine, kernel, digest, lines)


def _unparsed(text: str, file: str | None, error: SyntaxError) -> ParseError:
    line = max(1, error.lineno or 1)
    starts = [0, *(match.end() for match in re.finditer(r"\n", text))]
    start = min(len(text), starts[min(line, len(starts)) - 1] + max(0, (error.offset or 1) - 1))
    return ParseError(
        "this is no text of a schedule",
        where=Span(text, start, start + 1, file),
        why=f"Python cannot read it: {error.msg}",
        cure=f"write steps, such as {MAIN}.inline('k')",
    )


class _Reader:
    """Turns statements into lines. ``kernels`` are variables that stand for one, ``handles`` those
    that steps gave."""

    def __init__(self, text: str, file: str | None) -> None:
        self.text, self.file = text, file
        self.starts = [0, *(match.end() for match in re.finditer(r"\n", text))]
        self.kernels, self.handles = {MAIN}, set[str]()

    def lines(self, tree: ast.Module) -> tuple[Line, ...]:
        return tuple([self._line(stmt) for stmt in tree.body])

    def _line(self, stmt: ast.stmt) -> Line:
        results: tuple[str, ...] = ()
        match stmt:
            case ast.Expr(value=ast.Call() as call):
                pass
            case ast.Assign(targets=[target], value=ast.Call() as call):
                results = self._results(target)
            case _:
                raise self._refused(
                    stmt, "this is no step", f"write {MAIN}.NAME(...), one step a line"
                )
        variable, name = self._called(call)
        args = tuple([self._value(arg) for arg in call.args])
        kwargs = {self._keyword(keyword): self._value(keyword.value) for keyword in call.keywords}
        for result in results:
            if result in self.kernels:
                raise self._refused(
                    stmt, f"'{result}' already stands for a kernel", "name it otherwise"
                )
        if name == HOIST and len(results) > 1:
            raise self._refused(
                stmt, f"{HOIST} gives one kernel", f"write pack = {variable}.{HOIST}(...)"
            )
        (self.kernels if name in SPLITTING else self.handles).update(results)
        return Line(variable, name, args, kwargs, results, self._span(stmt))

    def _results(self, target: ast.expr) -> tuple[str, ...]:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        if len(names) < len(parts) or not names:
            raise self._refused(target, "this is no name", "assign what a step gives to names")
        return tuple(names)

    def _called(self, call: ast.Call) -> tuple[str, str]:
        match call.func:
            case ast.Attribute(value=ast.Name(id=variable), attr=name):
                pass
            case _:
                raise self._refused(
                    call, "this is no step", f"write {MAIN}.NAME(...), one step a line"
                )
        if variable not in self.kernels:
            cure = "choose one of " + ", ".join(sorted(self.kernels))
            raise self._refused(call.func, f"'{variable}' stands for no kernel", cure)
        names = [*TRANSFORMS, *SPLITTING]
        if name not in names:
            near = get_close_matches(name, names) or names
            raise self._refused(
                call, f"there is no transform '{name}'", "choose one of " + ", ".join(near)
            )
        return variable, name

    def _keyword(self, keyword: ast.keyword) -> str:
        if keyword.arg is None:
            raise self._refused(keyword.value, "this is no argument", "write each argument out")
        return keyword.arg

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.List(elts=parts):
                return [self._value(part) for part in parts]
            case ast.Tuple(elts=parts):
                return tuple([self._value(part) for part in parts])
            case ast.Dict(keys=keys, values=values):
                return self._dict(node, keys, values)
            case ast.Name(id=name) if name in self.handles:
                return Named("variable", name)
            case ast.Attribute(value=ast.Name(id=kind), attr=name) if kind in _ENUMS:
                members = _ENUMS[kind].__members__
                if name not in members:
                    cure = "choose one of " + ", ".join(members)
                    raise self._refused(node, f"{kind} has no member '{name}'", cure)
                return members[name]
            case ast.Call(func=ast.Name(id=kind)) if kind in VALUES:
                return self._several(node, VALUES[kind])
            case ast.Call(func=function, args=args, keywords=[]):
                return self._made(node, function, [self._value(arg) for arg in args])
            case _:
                cure = "write literals, handles, and what records print"
                raise self._refused(node, "this is no argument of a step", cure)

    def _dict(
        self, node: ast.expr, keys: list[ast.expr | None], values: list[ast.expr]
    ) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            name = None if key is None else self._value(key)
            if not isinstance(name, str | Named):
                raise self._refused(
                    key or node, "this is no name of something", "write dicts by names"
                )
            result[name] = self._value(value)
        return result

    def _made(self, node: ast.expr, function: ast.expr, args: list[Any]) -> Any:
        match function, args:
            case ast.Name(id="dtype"), [str() as name]:
                try:
                    return dtypes.dtype(name)
                except UnsupportedError as error:
                    cure = error.cure or "choose another"
                    raise self._refused(node, error.what, cure) from None
            case ast.Attribute(value=ast.Name(id=owner), attr=kind), [str() as name]:
                if owner in self.kernels and kind in ("instruction", "tile_copy"):
                    return Named(kind, name)
            case _:
                pass
        cure = f'write dtype("f32"), Swizzle(3, 3, 3), or {MAIN}.instruction("fma_f32x8")'
        raise self._refused(node, "this is no call that an argument may be", cure)

    def _several(self, node: ast.Call, kind: type[Any]) -> Any:
        """Several values by name, or in order."""
        args = [self._value(arg) for arg in node.args]
        kwargs = {self._keyword(keyword): self._value(keyword.value) for keyword in node.keywords}
        try:
            return kind(*args, **kwargs)
        except TypeError:
            names = ", ".join(field.name for field in fields(kind))
            cure = f"write {kind.__name__}({names})"
            raise self._refused(node, f"this is no {kind.__name__}", cure) from None

    def _span(self, node: ast.stmt | ast.expr) -> Span:
        ends = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        start = self._at(node.lineno, node.col_offset)
        return Span(self.text, start, self._at(*ends), self.file)

    def _at(self, line: int, column: int) -> int:
        """The character at a place of Python's, whose columns are bytes."""
        start = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        return start + len(self.text[start:end].encode()[:column].decode(errors="ignore"))

    def _refused(self, node: ast.stmt | ast.expr, what: str, cure: str) -> ParseError:
        return ParseError(what, where=self._span(node), cure=cure)

"""Fusions as text, which parses back: what runs in order, and the kernels.

fusion fused:
  scale(a = 2.0, x = x, t = t, global_0 = n)
  add(t = t private, y = y, global_0 = n)
  promote t any
  constant n = 1024
  no barriers
  trust

kernel scale(...):
  ...
kernel add(...):
  ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.errors import ParseError, Span, one_of
from tilewright.ir.parser import parse_kernels
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.syntax import Token, quoted, tokenize
from tilewright.ir.verify import verify
from tilewright.schedule.fusion.members import Fusion, Member, Number

_WORDS: Mapping[str, Number] = {
    "True": True,
    "False": False,
    "inf": float("inf"),
    "nan": float("nan"),
}


def fusion_text(fusion: Fusion) -> str:
    """``fusion`` as text. Kernels of one name get numbers, where they are not the same."""
    texts: dict[str, str] = {}
    lines = [f"fusion {quoted(fusion.name)}:"]
    for member in fusion.members:
        name = _named(member.kernel, texts)
        words = [f"{quoted(p)} = {_argument(a)}" for p, a in member.arguments.items()]
        for number, param in enumerate(member.arguments):
            if param in member.promote:
                words[number] += f" {member.promote[param]}"
        lines.append(f"  {quoted(name)}({', '.join(words)})")
    lines += [f"  promote {quoted(name)} {scope}" for name, scope in fusion.promote.items()]
    lines += [f"  constant {quoted(n)} = {_argument(v)}" for n, v in fusion.constants.items()]
    lines += [] if fusion.barriers else ["  no barriers"]
    lines += ["  trust"] if fusion.trust else []
    return "\n".join([*lines, "", *texts.values()])


def _named(kernel: Kernel, texts: dict[str, str]) -> str:
    """The name of ``kernel`` in the text; its own text is put beside the others."""
    name, number = kernel.name, 1
    while True:
        text = to_text(replace(kernel, name=name))
        if texts.setdefault(name, text) == text:
            return name
        number += 1
        name = f"{kernel.name}_{number}"


def _argument(value: str | Number) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, bool) else json.dumps(value).replace("Infinity", "inf")


def parse_fusion(
    text: str, *, file: str | None = None, constants: Mapping[str, Any] | None = None
) -> Fusion:
    """The fusion that ``text`` spells. Raises `ParseError`, and the errors of `ir.parse_kernels`
    (which describes ``constants``), of verification, and of `Fusion`."""
    return _Reader(text, file).fusion(constants)


class _Reader:
    def __init__(self, text: str, file: str | None) -> None:
        self._text = text
        self._file = file
        self._tokens = tokenize(text, file)
        self._at = 0

    def fusion(self, constants: Mapping[str, Any] | None) -> Fusion:
        self._word("fusion")
        name = self._name()
        for kind in (":", "newline", "indent"):
            self._take(kind)
        lines: list[_Line] = []
        while self._next.kind not in ("dedent", "end"):
            lines.append(self._line())
            self._take("newline")
        rest = self._text[self._next_start() :]
        skipped = self._text[: self._next_start()].count("\n")
        kernels = {
            parse_kernel.name: parse_kernel
            for parse_kernel in parse_kernels(
                "\n" * skipped + rest, file=self._file, constants=constants
            )
        }
        for kernel in kernels.values():
            verify(kernel)
        settings: dict[str, Any] = {"promote": {}, "constants": {}}
        members: list[Member] = []
        for line in lines:
            line(members, kernels, settings)
        return Fusion(tuple(members), name=name, **settings)

    def _next_start(self) -> int:
        rest = (token for token in self._tokens[self._at :] if token.kind != "dedent")
        return next(rest).start

    def _line(self) -> _Line:
        token = self._next
        name = self._name()
        if self._next.kind == "(":
            return self._member(token, name)
        if name == "promote":
            memory, scope = self._name(), self._name()
            return lambda members, kernels, s: s["promote"].update({memory: scope})
        if name == "constant":
            constant = self._name()
            self._take("=")
            value = self._value()
            return lambda members, kernels, s: s["constants"].update({constant: value})
        if name == "no":
            self._word("barriers")
            return lambda members, kernels, s: s.update(barriers=False)
        if name == "trust":
            return lambda members, kernels, s: s.update(trust=True)
        raise self._refused(
            token,
            f"{name!r} is no line of a fusion",
            "write a kernel with its arguments, promote NAME SCOPE, constant NAME = NUMBER, "
            "no barriers, or trust",
        )

    def _member(self, token: Token, name: str) -> _Line:
        arguments: dict[str, str | Number] = {}
        promote: dict[str, str] = {}
        self._take("(")
        while self._next.kind != ")":
            param = self._name()
            self._take("=")
            arguments[param] = self._value()
            if self._next.kind == "name":
                promote[param] = self._name()
            if self._next.kind != ")":
                self._take(",")
        self._take(")")

        def add(members: list[Member], kernels: Mapping[str, Kernel], settings: Any) -> None:
            if name not in kernels:
                cure = one_of(name, kernels) if kernels else "write the kernels below"
                raise self._refused(token, f"there is no kernel {name!r}", cure)
            members.append(Member(kernels[name], arguments, promote))

        return add

    # Words.

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self, kind: str) -> Token:
        token = self._next
        if token.kind != kind:
            wanted = {"name": "a name", "newline": "the end of the line"}.get(kind, repr(kind))
            raise self._refused(token, f"{wanted} is missing here", "write it")
        self._at += 1
        return token

    def _name(self) -> str:
        return self._take("name").text

    def _word(self, word: str) -> None:
        token = self._take("name")
        if token.text != word:
            raise self._refused(token, f"{word!r} is missing here", f"write {word}")

    def _value(self) -> str | Number:
        """A name, or a number."""
        negative = self._next.kind == "-"
        self._at += negative
        token = self._next
        if token.kind == "name" and not negative:
            return self._name()
        self._at += 1
        if token.kind in ("int", "float"):
            number: Number = int(token.text) if token.kind == "int" else float(token.text)
            return -number if negative else number
        if token.kind in _WORDS:
            return -_WORDS[token.kind] if negative else _WORDS[token.kind]
        raise self._refused(token, "a name or a number is missing here", "write one")

    def _refused(self, token: Token, what: str, cure: str) -> ParseError:
        end = max(token.end, token.start + 1)
        return ParseError(what, where=Span(self._text, token.start, end, self._file), cure=cure)


_Line = Callable[[list[Member], Mapping[str, Kernel], Any], None]

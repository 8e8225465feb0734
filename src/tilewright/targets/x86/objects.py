"""Object files of ELF: a symbol under another name, and several as one static library."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_HIDDEN = 2
_MEMBER = "{name:<16}{date:<12}{user:<6}{group:<6}{mode:<8}{size:<10}`\n"


@dataclass
class _Section:
    fields: list[int]

    @property
    def kind(self) -> int:
        return self.fields[1]

    @property
    def offset(self) -> int:
        return self.fields[4]

    @property
    def size(self) -> int:
        return self.fields[5]

    @property
    def link(self) -> int:
        return self.fields[6]


def renamed(code: bytes, name: str, new: str) -> bytes:
    """The object file ``code`` with its symbol ``name`` called ``new``, and hidden: other objects
    that are linked into the same program or shared library see it, others do not.

    No byte of its instructions changes: the new name and the table of sections go to the end.
    Raises `ValueError` where there is no such symbol.
    """
    head = list(_HEADER.unpack_from(code))
    start, count = head[6], head[12]
    sections = [
        _Section(list(_SECTION.unpack_from(code, start + n * _SECTION.size))) for n in range(count)
    ]
    table = next(section for section in sections if section.kind == _SYMTAB)
    strings = sections[table.link]
    texts = code[strings.offset : strings.offset + strings.size]
    out = bytearray(code)
    place = _place(code, table, texts, name.encode())
    number, info, _, section, value, size = _SYMBOL.unpack_from(code, place)
    number = len(texts)
    _SYMBOL.pack_into(out, place, number, info, _HIDDEN, section, value, size)
    out += bytes(-len(out) % 16)
    strings.fields[4], strings.fields[5] = len(out), len(texts) + len(new) + 1
    out += texts + new.encode() + b"\0"
    out += bytes(-len(out) % 16)
    head[6] = len(out)
    for part in sections:
        out += _SECTION.pack(*part.fields)
    _HEADER.pack_into(out, 0, *head)
    return bytes(out)


def _place(code: bytes, table: _Section, texts: bytes, name: bytes) -> int:
    """Where the symbol called ``name`` stands."""
    for place in range(table.offset, table.offset + table.size, _SYMBOL.size):
        begin = _SYMBOL.unpack_from(code, place)[0]
        if texts[begin : texts.index(b"\0", begin)] == name:
            return place
    raise ValueError(f"no symbol {name.decode()}")


def library(members: Mapping[str, tuple[bytes, Sequence[str]]]) -> bytes:
    """A static library (``.a``, as GNU's ``ar`` writes it) of object files by name, each with the
    symbols that it defines."""
    symbols = [(member, symbol) for member, (_, symbols) in members.items() for symbol in symbols]
    index_size = 4 + 4 * len(symbols) + sum(len(symbol) + 1 for _, symbol in symbols)
    names = "".join(f"{member}/\n" for member in members).encode()
    names += b"\n" * (len(names) % 2)
    starts: dict[str, int] = {}
    at = 8 + 60 + index_size + index_size % 2 + 60 + len(names)
    for member, (code, _) in members.items():
        starts[member] = at
        at += 60 + len(code) + len(code) % 2
    index = struct.pack(">I", len(symbols))
    index += b"".join(struct.pack(">I", starts[member]) for member, _ in symbols)
    index += b"".join(symbol.encode() + b"\0" for _, symbol in symbols)
    out = [b"!<arch>\n", _member("/", index), _member("//", names)]
    place = 0
    for member, (code, _) in members.items():
        out.append(_member(f"/{place}", code))
        place += len(member) + 2
    return b"".join(out)


def _member(name: str, data: bytes) -> bytes:
    """No time, no owner: the same objects give the same library."""
    head = _MEMBER.format(name=name, date=0, user=0, group=0, mode=644, size=len(data))
    return head.encode() + data + b"\n" * (len(data) % 2)

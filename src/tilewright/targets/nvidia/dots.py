"""Dot products of neighbours, summed by each work-item: dp4a.

Source: NVIDIA, PTX ISA, "dp4a"; LLVM, User Guide for NVPTX Back-end.
"""

from __future__ import annotations

from tilewright.dtypes import s32
from tilewright.machines.instruction import Instruction
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer


def emit_dots(w: Writer, instruction: Instruction, out: Value, a: Value, b: Value) -> str:
    """``out`` plus dot products of 32 bits of ``a`` and ``b`` each, lane by lane."""
    factors = [_words(w, value, out.lanes) for value in (a, b)]
    result = "poison"
    for lane in range(out.lanes):
        parts = [_at(w, value, lane) for value in (*factors, out)]
        arguments = ", ".join(f"i32 {part}" for part in parts)
        total = w.call("i32", instruction.emit, arguments, "i32, i32, i32")
        if out.lanes == 1:
            return total
        result = w.assign(f"insertelement {out.type} {result}, i32 {total}, i64 {lane}")
    return result


def _words(w: Writer, value: Value, lanes: int) -> Value:
    """The neighbours of each lane as one element."""
    words = Value("", s32, lanes)
    return words._replace(text=w.assign(f"bitcast {value.typed} to {words.type}"))


def _at(w: Writer, value: Value, lane: int) -> str:
    if value.lanes == 1:
        return value.text
    return w.assign(f"extractelement {value.typed}, i64 {lane}")

"""Kernels that store matrices, on this processor: what NVIDIA's manual says of `stmatrix`.

The LLVM IR of a kernel is compiled for this processor, run for one work-item after another, and
notes which row each of them names and what it holds. Then the stores are carried out as the manual
has them.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from tilewright.targets.x86.assemble import assemble, host_cpu, host_features
from tilewright.targets.x86.driver import Program

# Lanes of a warp; rows of a matrix, which are of as many elements.
_WARP, _ROWS = 32, 8
# What one work-item may note: (offset of its row, registers).
_NOTES, _NOTE = 64, 5
_STORE = re.compile(r"declare void @nvvm\.stmatrix\S*\.x(\d)(\.trans)?\S*\(.*")


def stored(text: str, entry: str, source: Any, size: int) -> Any:
    """The workgroup memory, of ``size`` elements of 16 bits, behind the kernel ``entry``, whose
    first argument is ``source``."""
    count = int(re.search(r'"nvvm.reqntid"="(\d+)"', text).group(1))  # type: ignore[union-attr]
    way = _STORE.search(text.replace("llvm.nvvm.", "nvvm."))
    assert way is not None
    matrices, turned = int(way[1]), way[2] is not None
    program = Program(assemble(_here(text, size), host_cpu(), host_features()), [entry, "note_at"])
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(program.address(entry))
    at = ctypes.CFUNCTYPE(ctypes.c_void_p)(program.address("note_at"))()
    noted = np.ctypeslib.as_array((ctypes.c_int32 * (2 + _NOTES * _NOTE)).from_address(at))
    notes: list[Any] = []
    for item in range(count):
        noted[:2] = 0, item
        call(source.ctypes.data, None)
        notes.append(noted[2 : 2 + _NOTE * int(noted[0])].reshape(-1, _NOTE).copy())
    memory = np.zeros(size, np.uint16)
    for warp in np.split(np.array(notes), count // _WARP):
        for store in range(warp.shape[1]):
            _carry_out(memory, warp[:, store], matrices, turned)
    return memory


def _carry_out(memory: Any, lanes: Any, matrices: int, turned: bool) -> None:
    """One `stmatrix` of a warp: per lane, (offset in bytes, registers)."""
    for matrix in range(matrices):
        # Lane l holds the elements 2*(l % 4) and the next one of the row l // 4.
        held = np.ascontiguousarray(lanes[:, 1 + matrix]).view(np.uint16).reshape(_ROWS, _ROWS)
        # The lanes 8*i to 8*i + 7 name the rows of matrix i.
        for row, offset in enumerate(lanes[matrix * _ROWS : (matrix + 1) * _ROWS, 0]):
            assert offset % 16 == 0
            memory[offset // 2 :][:_ROWS] = held[:, row] if turned else held[row]


def _here(text: str, size: int) -> str:
    """A kernel's module for this processor: what it asks the device, it is told by variables."""
    text = re.sub(r'target (triple|datalayout) = ".*"\n', "", text)
    text = re.sub(r" ?addrspace\(\d\)", "", text).replace("ptx_kernel ", "")
    text = text.replace("llvm.nvvm.", "nvvm.")
    text = re.sub(
        r"(@shared = ).*", rf"\1global [{2 * size} x i8] zeroinitializer, align 128", text
    )
    text = re.sub(
        r"declare i32 @nvvm\.read\.ptx\.sreg\.tid\.x\(\).*",
        "define i32 @nvvm.read.ptx.sreg.tid.x() {\n"
        "  %at = getelementptr i32, ptr @noted, i64 1\n"
        "  %item = load i32, ptr %at\n  ret i32 %item\n}",
        text,
    )
    # All lanes of a warp hold the same value.
    text = re.sub(
        r"declare i32 (@nvvm\.shfl\.sync\.idx\.i32)\(.*",
        r"define i32 \1(i32 %mask, i32 %value, i32 %lane, i32 %clamp) {" + "\n  ret i32 %value\n}",
        text,
    )
    text = _STORE.sub(lambda found: _noting(found[0], int(found[1])), text)
    return (
        f"{text}\n@noted = global [{2 + _NOTES * _NOTE} x i32] zeroinitializer\n"
        "define ptr @note_at() {\n  ret ptr @noted\n}\n"
    )


def _noting(declared: str, registers: int) -> str:
    """The function that stands for an instruction, as it was ``declared``."""
    name = re.search(r"@[^(]*", declared)
    assert name is not None
    words = "".join(f", i32 %w{i}" for i in range(registers))
    lines = [
        f"define void {name[0]}(ptr %row{words}) {{",
        "  %count = load i32, ptr @noted",
        "  %next = add i32 %count, 1",
        "  store i32 %next, ptr @noted",
        f"  %skipped = mul i32 %count, {_NOTE}",
        "  %place = add i32 %skipped, 2",
        "  %to = getelementptr i32, ptr @noted, i32 %place",
        "  %from = ptrtoint ptr %row to i64",
        "  %begin = ptrtoint ptr @shared to i64",
        "  %far = sub i64 %from, %begin",
        "  %offset = trunc i64 %far to i32",
        "  store i32 %offset, ptr %to",
    ]
    for i in range(registers):
        lines.append(f"  %to{i} = getelementptr i32, ptr %to, i64 {i + 1}")
        lines.append(f"  store i32 %w{i}, ptr %to{i}")
    return "\n".join([*lines, "  ret void", "}"])

"""Functions of arrays made of a few instructions: what `test_llvm_*` compile and run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.targets.llvm.dialect import PLAIN, Dialect
from tilewright.targets.llvm.types import llvm_type
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer
from tilewright.targets.x86.assemble import assemble, host_cpu, host_features
from tilewright.targets.x86.device import host
from tilewright.targets.x86.driver import Program
from tilewright.targets.x86.lower import dialect_for

Emit = Callable[[Writer, tuple[Value, ...]], Value]

# LLVM's names of processors: one per level of the instruction set that the code differs in.
LEVELS = {"avx512": "", "avx2": "haswell", "sse42": "nehalem"}


def levels() -> list[str]:
    """The levels that this machine runs."""
    features = host_features().split(",")
    has = {"avx512": "+avx512vl" in features, "avx2": "+avx2" in features, "sse42": True}
    return [level for level in LEVELS if has[level]]


class LaneFunction:
    """``emit`` applied to arrays, ``lanes`` elements at a time."""

    def __init__(
        self, emit: Emit, inputs: tuple[DType, ...], out: DType, lanes: int, level: str
    ) -> None:
        self.inputs, self.out, self.lanes = inputs, out, lanes
        dialect = PLAIN if LEVELS[level] else dialect_for(host())
        self.text = module_text(emit, inputs, out, lanes, dialect)
        self.cpu = LEVELS[level] or host_cpu()
        self.features = "" if LEVELS[level] else host_features()
        self.program = Program(assemble(self.text, self.cpu, self.features), ["apply"])
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (len(inputs) + 1))
        self._apply = prototype(self.program.address("apply"))

    def __call__(self, *arrays: Any) -> Any:
        """Arrays of one length, a multiple of the lanes; of the types' numpy counterparts."""
        (size,) = {a.size for a in arrays}
        assert size % self.lanes == 0
        for array, dtype in zip(arrays, self.inputs, strict=True):
            assert array.dtype == dtype.numpy and array.flags.c_contiguous
        out = np.empty(size, self.out.numpy)
        self._apply(size, *(a.ctypes.data for a in arrays), out.ctypes.data)
        return out


def module_text(
    emit: Emit, inputs: tuple[DType, ...], out: DType, lanes: int, dialect: Dialect = PLAIN
) -> str:
    """A module whose function ``apply`` does that."""
    declarations: dict[str, str] = {}
    w = Writer(declarations, dialect)
    w.block = "loop"
    loaded = []
    for i, dtype in enumerate(inputs):
        # A bool takes a byte in memory.
        memory = "i8" if dtype.kind == "bool" else llvm_type(dtype)
        vector = memory if lanes == 1 else f"<{lanes} x {memory}>"
        pointer = w.assign(f"getelementptr {memory}, ptr %a{i}, i64 %i")
        text = w.assign(f"load {vector}, ptr {pointer}, align 1")
        if dtype.kind == "bool":
            text = w.assign(f"trunc {vector} {text} to {llvm_type(dtype, lanes)}")
        loaded.append(Value(text, dtype, lanes))
    result = emit(w, tuple(loaded))
    memory = "i8" if out.kind == "bool" else llvm_type(out)
    vector = memory if lanes == 1 else f"<{lanes} x {memory}>"
    text = result.text
    if out.kind == "bool":
        text = w.assign(f"zext {result.typed} to {vector}")
    pointer = w.assign(f"getelementptr {memory}, ptr %out, i64 %i")
    w.emit(f"store {vector} {text}, ptr {pointer}, align 1")
    parameters = "".join(f", ptr %a{i}" for i in range(len(inputs)))
    return "\n".join(
        [
            f"define void @apply(i64 %n{parameters}, ptr %out) #0 {{",
            "entry:",
            "  br label %loop",
            "loop:",
            f"  %i = phi i64 [0, %entry], [%next, %{w.block}]",
            *w.lines,
            f"  %next = add i64 %i, {lanes}",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  ret void",
            "}",
            *declarations.values(),
            'attributes #0 = { nounwind "prefer-vector-width"="512" }',
            "",
        ]
    )

"""A kernel to LLVM IR for SPIR-V: launches in OpenCL's terms.

Workgroup memory is a module variable for each buffer.
"""

from __future__ import annotations

from tilewright.dtypes import f32, f64, s32, s64
from tilewright.facts import Facts, starting_from
from tilewright.ir.stmt import Kernel, LoopKind
from tilewright.machines.machine import Machine
from tilewright.targets.llvm.atomics import ATOMICS
from tilewright.targets.llvm.calls import emit_nothing, emit_shuffle
from tilewright.targets.llvm.dialect import Dialect
from tilewright.targets.llvm.launches import Form, write_launches
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.module import Module
from tilewright.targets.llvm.plan import CallPlan
from tilewright.targets.llvm.subgroups import WorkgroupShape
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer

TRIPLE = "spirv64-unknown-unknown"

# Address spaces of LLVM's SPIR-V target.
_CROSS_WORKGROUP, _WORKGROUP = 1, 3


def _emit_barrier(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    # CLK_LOCAL_MEM_FENCE and CLK_GLOBAL_MEM_FENCE.
    memory.w.call_void("_Z7barrierj", "i32 3", "i32", "convergent")


def _emit_subgroup_barrier(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    # Execution and memory of the subgroup; sequentially consistent on workgroup and global memory.
    memory.w.call_void(
        "_Z22__spirv_ControlBarrierjjj", "i32 3, i32 3, i32 784", "i32, i32, i32", "convergent"
    )


def _attributes(access: str) -> str:
    del access
    return "noalias"


def _identity(w: Writer, kind: str) -> str:
    return w.call("i64", f"_Z12get_{kind}_idj", "i32 0", "i32")


def _header(machine: Machine, entry: str, parameters: str, shape: WorkgroupShape) -> str:
    size = f"!reqd_work_group_size !{{i32 {shape.items}, i32 1, i32 1}}"
    if shape.subgroup:
        size += f" !intel_reqd_sub_group_size !{{i32 {shape.subgroup}}}"
    # Kernels are vectorized already: a device that also makes lanes of work-items takes up to ten
    # times as long to compile them.
    hint = f"!vec_type_hint !{{<{machine.vector_bytes // 4} x float> undef, i32 0}}"
    return f"define spir_kernel void @{entry}({parameters}) nounwind {size} {hint} {{"


def _shuffled(memory: MemoryMap, value: Value, lane: Value) -> str:
    """OpenCL's sub_group_shuffle, mangled as in C++."""
    letter = {"i32": "j", "i64": "m", "float": "f", "double": "d"}[value.type]
    name = f"_Z17sub_group_shuffle{letter}j"
    arguments, types = f"{value.typed}, {lane.typed}", f"{value.type}, i32"
    return memory.w.call(value.type, name, arguments, types, "convergent")


_FORM = Form(
    TRIPLE,
    Dialect(
        arguments=_CROSS_WORKGROUP,
        workgroup=_WORKGROUP,
        masked_memory=False,
        nan_min_max=False,
        # Intel's compiler, with AVX-512.
        whole_by_truncation=True,
        defines_halves=False,
        serial_kinds=(LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.GRID),
        most_lanes=16,
        index=s32,
        double_words=False,
        # From a truncation to a quarter and an extension to a half, LLVM makes one invalid
        # operation.
        narrows_by_halves=True,
        bit_masks=False,
        word_atomics=True,
        fuses=frozenset({f32, f64}),
    ),
    {
        "prefetch": emit_nothing,
        "prefetch_second": emit_nothing,
        "barrier": _emit_barrier,
        "subgroup_barrier": _emit_subgroup_barrier,
        "shuffle": emit_shuffle(_shuffled),
        **ATOMICS,
    },
    _attributes,
    _identity,
    s64,
    _header,
    # Intel's compiler for processors crashes on workgroups of one work-item that use local memory,
    # or makes wrong code.
    alone_on_stack=True,
)


def lower_launches(kernel: Kernel, machine: Machine) -> Module:
    """The module that runs ``kernel``, which is lowered: loops, stores and instructions.

    Raises `CompilationError`, also for workgroups that are too large for ``machine``.
    """
    with starting_from(Facts.of(kernel)):
        return write_launches(kernel, machine, _FORM)

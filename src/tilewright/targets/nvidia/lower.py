"""A kernel to LLVM IR for NVIDIA GPUs: launches in CUDA's terms.

Workgroup memory is one array whose size a launch says (dynamic shared memory), because memory that
the module declares is limited to 48 KiB. Arguments are aligned to 16 bytes, so that vectors are
loaded whole.

Source: LLVM, User Guide for NVPTX Back-end.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import f32, f64, s32
from tilewright.errors import UnsupportedError
from tilewright.facts import Facts, starting_from
from tilewright.ir.stmt import Kernel, LoopKind
from tilewright.machines.machine import Machine
from tilewright.machines.nvidia.copies import COPIES as TILES
from tilewright.machines.nvidia.copies import TILE_UNIT
from tilewright.machines.nvidia.tensor_map import MAP_ALIGNMENT, MAP_BYTES
from tilewright.targets.llvm.atomics import ATOMICS
from tilewright.targets.llvm.calls import EmitCall, emit_nothing, emit_shuffle
from tilewright.targets.llvm.computes import Units
from tilewright.targets.llvm.dialect import Dialect
from tilewright.targets.llvm.launches import Form, write_launches
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.module import Module
from tilewright.targets.llvm.plan import CallPlan
from tilewright.targets.llvm.subgroups import WorkgroupShape
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer
from tilewright.targets.nvidia.copies import ALIGNMENT, COPIES
from tilewright.targets.nvidia.dots import emit_dots
from tilewright.targets.nvidia.matrices import emit_matrices
from tilewright.targets.nvidia.mbarriers import MBARRIERS
from tilewright.targets.nvidia.tensors import emit_load, emit_store

TRIPLE = "nvptx64-nvidia-cuda"

# Address spaces of LLVM's NVPTX target.
_GLOBAL, _SHARED = 1, 3
# Lanes of a warp.
_WARP = 32
# Registers with the number of the workgroup, and of the work-item in it.
_NUMBERS = {"group": "ctaid", "local": "tid"}


def _emit_barrier(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    memory.w.call_void("llvm.nvvm.barrier.cta.sync.aligned.all", "i32 0", "i32")


def _emit_subgroup_barrier(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    w, subgroup = memory.w, memory.subgroup
    if subgroup is None or memory.team == _WARP:
        w.call_void("llvm.nvvm.bar.warp.sync", f"i32 {_members(memory)}", "i32")
        return
    # Several warps have their own barrier; number 0 is that of the workgroup.
    number = w.assign(f"add {subgroup.typed}, 1")
    arguments = f"i32 {number}, i32 {memory.team}"
    w.call_void("llvm.nvvm.barrier.cta.sync.aligned.count", arguments, "i32, i32")


def _attributes(access: str) -> str:
    # Memory that no launch writes may be read through the cache that is not kept coherent.
    written = "" if access != "in" else " readonly"
    return f"noalias{written} align {ALIGNMENT}"


def _identity(w: Writer, kind: str) -> str:
    return w.call("i32", f"llvm.nvvm.read.ptx.sreg.{_NUMBERS[kind]}.x", "", "")


def _uniform(w: Writer, value: Value) -> Value:
    # Tells the compiler that lanes agree: it keeps lane 0's value in a uniform register, on which
    # branches do not diverge.
    arguments = f"i32 -1, {value.typed}, i32 0, i32 31"
    same = w.call("i32", "llvm.nvvm.shfl.sync.idx.i32", arguments, "i32, i32, i32, i32")
    return value._replace(text=same)


def _emit_cluster_barrier(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    for half in ("arrive", "wait"):
        memory.w.call_void(f"llvm.nvvm.barrier.cluster.{half}.aligned", "", "")


def _header(machine: Machine, entry: str, parameters: str, shape: WorkgroupShape) -> str:
    del machine
    # Without minctasm, ptxas spills rather than let fewer workgroups share a multiprocessor.
    sizes = f'"nvvm.reqntid"="{shape.items}" "nvvm.minctasm"="1"'
    if shape.cluster > 1:
        sizes += f' "nvvm.cluster_dim"="{shape.cluster}"'
    return f"define ptx_kernel void @{entry}({parameters}) nounwind {sizes} {{"


def _members(memory: MemoryMap) -> str:
    """The lanes of the warp that form this lane's subgroup, as bits."""
    width = memory.width
    if width > _WARP:
        raise UnsupportedError(
            f"a subgroup of {width} lanes that give each other values, or wait for each other",
            why=f"lanes of NVIDIA GPUs do so in warps of {_WARP}",
            cure=f"choose a subgroup of {_WARP} lanes or fewer",
        )
    if width in (1, _WARP):
        return "-1"
    w = memory.w
    lane = w.call("i32", "llvm.nvvm.read.ptx.sreg.laneid", "", "")
    first = w.assign(f"and i32 {lane}, {_WARP - width}")
    return w.assign(f"shl i32 {(1 << width) - 1}, {first}")


def _shuffled(memory: MemoryMap, value: Value, lane: Value) -> str:
    """A shuffle of the warp, by words."""
    name, w, members = "llvm.nvvm.shfl.sync.idx.i32", memory.w, _members(memory)
    segment = (_WARP - memory.width) << 8 | _WARP - 1
    words = []
    bits = Value(w.assign(f"bitcast {value.typed} to i{value.dtype.bits}"), value.dtype)
    for shift in range(0, value.dtype.bits, 32):
        word = bits.text
        if value.dtype.bits == 64:
            moved = w.assign(f"lshr i64 {bits.text}, {shift}")
            word = w.assign(f"trunc i64 {moved} to i32")
        arguments = f"i32 {members}, i32 {word}, i32 {lane.text}, i32 {segment}"
        words.append(w.call("i32", name, arguments, "i32, i32, i32, i32", "convergent"))
    if len(words) == 1:
        return w.assign(f"bitcast i32 {words[0]} to {value.type}")
    low, high = (w.assign(f"zext i32 {word} to i64") for word in words)
    both = w.assign(f"or i64 {low}, {w.assign(f'shl i64 {high}, 32')}")
    return w.assign(f"bitcast i64 {both} to {value.type}")


_DIALECT = Dialect(
    arguments=_GLOBAL,
    stack=512
    << 10,  # local memory of a thread (CUDA C++ Programming Guide, "Compute Capabilities")
    workgroup=_SHARED,
    shared="shared",
    alignment=ALIGNMENT,
    masked_memory=False,
    defines_halves=False,
    serial_kinds=(LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.GRID),
    index=s32,
    float_atomics=True,
    word_atomics=True,
    fuses=frozenset({f32, f64}),
    word_registers=True,
    reuses_values=True,
)
_CALLS: dict[str, EmitCall] = {
    "prefetch": emit_nothing,
    "prefetch_second": emit_nothing,
    "barrier": _emit_barrier,
    "subgroup_barrier": _emit_subgroup_barrier,
    "shuffle": emit_shuffle(_shuffled),
    **ATOMICS,
}


# The parameter for a tensor map: passed by value, but with an address.
_MAP = f'ptr byval([{MAP_BYTES} x i8]) align {MAP_ALIGNMENT} "nvvm.grid_constant"'
_UNITS = Units(
    emit_matrices, {TILE_UNIT.load.name: emit_load, TILE_UNIT.store.name: emit_store}, emit_dots
)


def lower_launches(kernel: Kernel, machine: Machine) -> Module:
    """The module that runs ``kernel``, which is lowered: loops, stores and instructions.

    Raises `CompilationError`, also for workgroups that ``machine`` has no room for, and
    `UnsupportedError` for subgroups wider than a warp.
    """
    calls = {**_CALLS}
    calls |= COPIES if "async_copy" in machine.features else {}
    clusters = machine.hierarchy.cluster > 1
    calls |= MBARRIERS if TILES in machine.features else {}
    calls |= {"cluster_barrier": _emit_cluster_barrier} if clusters else {}
    form = Form(
        TRIPLE,
        replace(_DIALECT, rounds_bf16="cvt_bf16" in machine.features),
        calls,
        _attributes,
        _identity,
        s32,
        _header,
        units=_UNITS,
        uniform=_uniform,
        clusters=clusters,
        map_type=_MAP,
    )
    with starting_from(Facts.of(kernel)):
        return write_launches(kernel, machine, form)

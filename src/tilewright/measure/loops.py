"""Loops that do one thing, as LLVM IR: multiply-adds in registers, or loads of a buffer."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.x86.assemble import assemble, host_cpu, host_features
from tilewright.targets.x86.device import host as host_machine
from tilewright.targets.x86.driver import Program

# Independent sums: enough for 6 cycles of latency at two instructions per cycle.
CHAINS = 12
ENTRY = "peak"


@dataclass(frozen=True)
class MultiplyAdd:
    """An instruction as an LLVM intrinsic with its vector types."""

    feature: str
    intrinsic: str
    out: str
    a: str
    b: str
    multiply_adds: int

    @property
    def is_fma(self) -> bool:
        return self.intrinsic.startswith("llvm.fma")

    @property
    def of_tiles(self) -> bool:
        return not self.out


def _fma(feature: str, lanes: int, name: str, type: str) -> MultiplyAdd:
    vector = f"<{lanes} x {type}>"
    return MultiplyAdd(feature, f"llvm.fma.v{lanes}{name}", vector, vector, vector, lanes)


def _tiles(feature: str, intrinsic: str, bytes: int) -> MultiplyAdd:
    """AMX: whole tiles of factors of so many ``bytes``, by the numbers of their registers."""
    return MultiplyAdd(feature, f"llvm.x86.{intrinsic}", "", "", "", 16 * 16 * 64 // bytes)


# By kind, widest first.
INSTRUCTIONS = {
    "f32": (_fma("avx512f", 16, "f32", "float"), _fma("fma", 8, "f32", "float")),
    "f64": (_fma("avx512f", 8, "f64", "double"), _fma("fma", 4, "f64", "double")),
    "bf16": (
        _tiles("amx-bf16", "tdpbf16ps", 2),
        MultiplyAdd(
            "avx512bf16",
            "llvm.x86.avx512bf16.dpbf16ps.512",
            "<16 x float>",
            "<32 x bfloat>",
            "<32 x bfloat>",
            32,
        ),
    ),
    "int8": (
        _tiles("amx-int8", "tdpbusd", 1),
        MultiplyAdd(
            "avx512vnni",
            "llvm.x86.avx512.vpdpbusd.512",
            "<16 x i32>",
            "<64 x i8>",
            "<64 x i8>",
            64,
        ),
        MultiplyAdd(
            "avxvnni", "llvm.x86.avx512.vpdpbusd.256", "<8 x i32>", "<32 x i8>", "<32 x i8>", 32
        ),
    ),
}


def instruction_for(kind: str) -> MultiplyAdd | None:
    """The widest one of this kind (``"f32"``) that this processor has, and the process may use."""
    features, usable = set(host_features().split(",")), host_machine().features
    return next(
        (
            instruction
            for instruction in INSTRUCTIONS[kind]
            if f"+{instruction.feature}" in features
            and (not instruction.of_tiles or instruction.feature in usable)
        ),
        None,
    )


def load(code: str) -> Program:
    """The code, assembled for this processor."""
    return Program(assemble(code, host_cpu(), host_features()), (ENTRY,))


# void peak(ptr args, i64 index, i64 threads), args: iterations, then a pointer for each thread.
_HEAD = """
define void @peak(ptr %args, i64 %index, i64 %threads) nounwind {
entry:
  %count = load i64, ptr %args
  %slot = add i64 %index, 1
  %place = getelementptr ptr, ptr %args, i64 %slot
  %data = load ptr, ptr %place
"""


# Palette 1: eight tiles of 16 rows of 64 bytes (Intel's manual, volume 1, "Tile configuration"):
# from byte 16 on, 64 in 16 bits for each, from byte 48 on, 16 in 8 bits.
_WHOLE_TILES = f"""
@tiles = internal constant [16 x i32] [
  i32 1, i32 0, i32 0, i32 0, {", ".join(["i32 4194368"] * 4)}, {", ".join(["i32 0"] * 4)},
  i32 269488144, i32 269488144, i32 0, i32 0], align 64
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
"""


def _tiles_code(instruction: MultiplyAdd) -> str:
    """A loop of products of tiles: six hold sums, two the factors of all."""
    name = instruction.intrinsic
    products = [f"  call void @{name}(i8 {i % 6}, i8 6, i8 7)" for i in range(CHAINS)]
    return "\n".join(
        [f"declare void @{name}(i8 immarg, i8 immarg, i8 immarg)", _WHOLE_TILES, _HEAD]
        + ["  call void @llvm.x86.ldtilecfg(ptr @tiles)"]
        + [f"  call void @llvm.x86.tilezero(i8 {i})" for i in range(8)]
        + ["  br label %loop", "loop:", "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]"]
        + [*products, "  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %count"]
        + ["  br i1 %more, label %loop, label %done", "done:"]
        + ["  call void @llvm.x86.tilerelease()", "  ret void", "}"]
    )


def compute_code(instruction: MultiplyAdd) -> str:
    """A loop of independent multiply-adds in registers."""
    if instruction.of_tiles:
        return _tiles_code(instruction)
    out, a, b, name = instruction.out, instruction.a, instruction.b, instruction.intrinsic
    types = (a, b, out) if instruction.is_fma else (out, a, b)
    order = "{a} %a, {b} %b, {out} %s{i}" if instruction.is_fma else "{out} %s{i}, {a} %a, {b} %b"
    sums = [
        f"  %s{i} = phi {out} [ zeroinitializer, %entry ], [ %n{i}, %loop ]" for i in range(CHAINS)
    ]
    steps = [
        f"  %n{i} = call {out} @{name}({order.format(a=a, b=b, out=out, i=i)})"
        for i in range(CHAINS)
    ]
    # Assembly hides from the optimizer that the operands are zero.
    hidden = [
        f'  %{x} = call {type_} asm sideeffect "", "=x,0"({type_} zeroinitializer)'
        for x, type_ in (("a", a), ("b", b))
    ]
    return "\n".join(
        [f"declare {out} @{name}({', '.join(types)})", _HEAD, *hidden, "  br label %loop", "loop:"]
        + ["  %i = phi i64 [ 0, %entry ], [ %next, %loop ]", *sums, *steps]
        + ["  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %count"]
        + ["  br i1 %more, label %loop, label %done", "done:"]
        + [f'  call void asm sideeffect "", "x"({out} %n{i})' for i in range(CHAINS)]
        + ["  ret void", "}"]
    )


def load_code(vector_bytes: int, size: int) -> str:
    """A loop that loads the thread's buffer, 8 vectors at a time, once for each iteration."""
    vector = f"<{vector_bytes // 4} x i32>"
    sums = [
        f"  %s{i} = phi {vector} [ zeroinitializer, %outer ], [ %n{i}, %loop ]" for i in range(8)
    ]
    steps = []
    for i in range(8):
        steps += [
            f"  %p{i} = getelementptr i8, ptr %p, i64 {i * vector_bytes}",
            f"  %v{i} = load volatile {vector}, ptr %p{i}, align 64",
            f"  %n{i} = or {vector} %s{i}, %v{i}",
        ]
    return "\n".join(
        [_HEAD, f"  %end = getelementptr i8, ptr %data, i64 {size}", "  br label %outer", "outer:"]
        + ["  %o = phi i64 [ 0, %entry ], [ %o_next, %latch ]", "  br label %loop", "loop:"]
        + ["  %p = phi ptr [ %data, %outer ], [ %p_next, %loop ]", *sums, *steps]
        + [f"  %p_next = getelementptr i8, ptr %p, i64 {8 * vector_bytes}"]
        + ["  %more = icmp ult ptr %p_next, %end", "  br i1 %more, label %loop, label %latch"]
        + ["latch:"]
        + [f'  call void asm sideeffect "", "x"({vector} %n{i})' for i in range(8)]
        + ["  %o_next = add i64 %o, 1", "  %again = icmp slt i64 %o_next, %count"]
        + ["  br i1 %again, label %outer, label %done", "done:", "  ret void", "}"]
    )

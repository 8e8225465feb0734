"""Instructions that every machine with vectors has in some form, on registers of its width."""

from __future__ import annotations

from tilewright.dtypes import (
    DType,
    bf16,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    f64,
    s4,
    s8,
    s16,
    s32,
    s64,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from tilewright.machines.instruction import AddressStep, Instruction, OperandForm

_MOVED = (f64, f32, f16, bf16, f8_e4m3, f8_e5m2, s64, s32, s16, s8, u64, u32, u16, u8, s4, u4)


def _multiply_add(dtype: DType, lanes: int, feature: str) -> Instruction:
    """``out[n] += a * b[n]``: without FMA (SSE4.2), a multiplication and an addition."""
    row = (AddressStep("n", lanes, 1),)
    operands = (OperandForm("a", dtype), OperandForm("b", dtype, row))
    name = f"fma_{dtype}x{lanes}"
    return Instruction(
        name, (("n", lanes),), OperandForm("c", dtype, row), operands, feature, "fma"
    )


def _multiply_add_lanes(dtype: DType, lanes: int, feature: str) -> Instruction:
    """``out[n] += a[n] * b[n]``: both operands have a value per lane."""
    row = (AddressStep("n", lanes, 1),)
    operands = (OperandForm("a", dtype, row), OperandForm("b", dtype, row))
    name = f"fma_lanes_{dtype}x{lanes}"
    return Instruction(
        name, (("n", lanes),), OperandForm("c", dtype, row), operands, feature, "fma"
    )


def multiply_adds(dtype: DType, lanes: int, feature: str) -> tuple[Instruction, ...]:
    """Both forms: one value of a for all lanes, and one per lane."""
    return _multiply_add(dtype, lanes, feature), _multiply_add_lanes(dtype, lanes, feature)


def dot(
    name: str, types: tuple[DType, DType, DType], lanes: int, group: int, feature: str, emit: str
) -> Instruction:
    """``out[n] += a[k] * b[n, k]`` where the ``group`` elements of a lane are neighbours.

    The lane of a is the same for all n: one broadcast of ``group`` elements.
    """
    out, a, b = types
    return Instruction(
        name,
        (("n", lanes), ("k", group)),
        OperandForm("c", out, (AddressStep("n", lanes, 1),)),
        (
            OperandForm("a", a, (AddressStep("k", group, 1),)),
            OperandForm("b", b, (AddressStep("n", lanes, group), AddressStep("k", group, 1))),
        ),
        feature,
        emit,
    )


def transposes(sizes: dict[int, tuple[int, ...]], feature: str) -> tuple[Instruction, ...]:
    """``out[m, n] = a[m, n]`` on squares, of ``sizes`` by the bytes of an element: in memory, rows
    of the result are contiguous along n, and those of the operand along m."""
    return tuple(
        Instruction(
            f"transpose_{dtype}x{size}",
            (("m", size), ("n", size)),
            OperandForm("c", dtype, (AddressStep("m", size, None), AddressStep("n", size, 1))),
            (OperandForm("a", dtype, (AddressStep("n", size, None), AddressStep("m", size, 1))),),
            feature,
            "transpose",
            None,
        )
        for dtype in _MOVED
        for size in sizes[dtype.bytes]
    )


def interleaves(sizes: dict[int, tuple[int, int]], feature: str) -> tuple[Instruction, ...]:
    """``out[m, n] = a[m, n]`` on a few rows, element by element in turn; ``sizes`` are those of m
    and n by the bytes of an element: the result is contiguous along n, then m, and a row of the
    operand along m."""
    return tuple(
        Instruction(
            f"interleave_{dtype}_{rows}x{size}",
            (("m", size), ("n", rows)),
            OperandForm("c", dtype, (AddressStep("m", size, rows), AddressStep("n", rows, 1))),
            (_rows(dtype, rows, size),),
            feature,
            "interleave",
            None,
        )
        for dtype in _MOVED
        if dtype.bits == 8 * dtype.bytes and dtype.bytes in sizes
        for size, rows in (sizes[dtype.bytes],)
    )


def _rows(dtype: DType, rows: int, size: int) -> OperandForm:
    """Rows that each begin anywhere."""
    steps = (AddressStep("n", rows, None), AddressStep("m", size, 1))
    return OperandForm("a", dtype, steps, aligned=1)


def across(vector_bytes: int, feature: str) -> tuple[Instruction, ...]:
    """``out combiner= a[n]``: all lanes of one vector, by halves."""
    instructions: list[Instruction] = []
    for dtype in (f64, f32, s32):
        lanes = vector_bytes // dtype.bytes
        operand = OperandForm("a", dtype, (AddressStep("n", lanes, 1),))
        for combiner in ("add", "mul", "max", "min"):
            name = f"{combiner}_across_{dtype}x{lanes}"
            out = OperandForm("c", dtype)
            instructions.append(
                Instruction(name, (("n", lanes),), out, (operand,), feature, "reduce", combiner)
            )
    return tuple(instructions)

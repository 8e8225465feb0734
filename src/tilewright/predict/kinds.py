"""What operators, casts and instructions take: kinds of work, and how many simple operations on a
vector each counts for. What a kind takes in cycles are costs of the machine (`machines.rates`)."""

from __future__ import annotations

from math import log2

from tilewright.dtypes import DType, f32
from tilewright.ir.expr import Binary, Bitcast, Cast, Const, Expr, Fma, Select, Unary
from tilewright.ir.operators import COMPARISONS, SOFTWARE
from tilewright.ir.visit import children
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine

# The least or greatest of floats, with NaN and signs of zeros as IEEE 754 has them.
_FLOAT_MINIMUM = 3.0
# A quotient by a constant: a multiplication, shifts, and an addition.
_QUOTIENT = 4.0
_DIVIDE = 20.0
# Casts to and from floats of 8 bits, and of floats to integers.
_SMALL_FLOAT = 10.0
_SATURATE = 4.0
# Steps of a polynomial, one after the other.
_FUNCTION_STEPS = 10.0


def operation(node: Expr) -> tuple[str, float]:
    """The kind of ``node``'s operator, and how much of it a vector takes."""
    match node:
        case Binary(op=op):
            return _binary(op, node)
        case Unary(op=op):
            return _unary(op)
        case Select():
            return ("simple", 1.0)
        case Fma():
            return ("multiply-add", 1.0)
        case Cast():
            return operation_of_cast(node.a.type, node.type)
        case Bitcast():
            return ("simple", 0.0)
        case _:
            return ("simple", 0.0)


def _binary(op: str, node: Binary) -> tuple[str, float]:
    if op in SOFTWARE:
        return (op, 1.0)
    if op == "div":
        return ("divide", node.type.bytes / 4)
    if op in ("floordiv", "mod"):
        return ("simple", _quotient(node.b) * (1 if op == "floordiv" else 1.5))
    if op in ("min", "max") and node.type.is_float:
        return ("simple", _FLOAT_MINIMUM)
    if op in ("and", "or", "xor") and node.type.kind == "bool":
        return ("simple", 0.5)
    if op == "mul" and node.type.bytes == 8 and not node.type.is_float:
        return ("simple", 3.0)
    return ("simple", 1.0)


def _quotient(divisor: Expr) -> float:
    if not isinstance(divisor, Const):
        return _DIVIDE
    value = int(divisor.value)
    return 1.0 if value > 0 and value & (value - 1) == 0 else _QUOTIENT


def _unary(op: str) -> tuple[str, float]:
    if op in SOFTWARE:
        return (op, 1.0)
    if op in ("sqrt", "rsqrt"):
        return ("divide", 1.0 if op == "sqrt" else 2.0)
    return ("simple", 1.0)


def operation_of_cast(old: DType, new: DType) -> tuple[str, float]:
    """The kind and the amount of work of a conversion."""
    if new.is_float:
        if old.is_float and min(old.bits, new.bits) == 8:
            return ("narrow", _SMALL_FLOAT)
        return ("narrow" if new.bits < old.bits else "widen", 1.0)
    if old.is_float:
        return ("narrow", _SATURATE)
    return ("widen" if new.bits > old.bits else "narrow", float(old.bits != new.bits))


def is_converted(node: Expr, machine: Machine) -> bool:
    """Whether ``node`` computes on floats so short that it does so in f32."""
    return (
        isinstance(node, Binary | Unary | Fma)
        and node.a.type.is_float
        and node.a.type.bytes < machine.narrowest
    )


def conversions(node: Expr) -> list[tuple[str, float]]:
    """Those of operands and result around an operation in f32."""
    operands = [operation_of_cast(part.type, f32) for part in children(node)]
    return [*operands, operation_of_cast(f32, node.type)] if node.type.is_float else operands


def executed(instruction: Instruction, vector_bytes: int) -> tuple[str, float]:
    """The kind of ``instruction``, and how much of it one execution takes."""
    out = instruction.out.dtype.bytes
    if instruction.emit in ("transpose", "interleave"):
        rows = instruction.sizes["n"]
        return ("transpose", rows * max(1.0, log2(rows)))
    if instruction.emit == "reduce":
        return ("shuffle", 2 * max(1.0, log2(instruction.sizes["n"])))
    if "m" in instruction.sizes:
        return ("tile", 1.0)
    if instruction.emit == "fma":
        return ("multiply-add", 1.0 if instruction.out.dtype.is_float else 2.0)
    vectors = instruction.sizes.get("n", 1) * out / vector_bytes
    return ("dot", max(1.0, vectors) if vectors >= 1 else 1.0)


def latency(node: Expr, machine: Machine) -> tuple[str, float]:
    """What an operation takes until its result can be used: kind and number of steps."""
    if is_converted(node, machine):
        return ("waits converted", 1.0)
    match node:
        case Binary(op=op) if op in COMPARISONS or not node.type.is_float:
            return ("waits simple", 1.0)
        case Binary(op="min" | "max"):
            return ("waits minimum", 1.0)
        case Binary(op="add" | "sub" | "mul") | Fma():
            return ("waits float", 1.0)
        case Binary(op="div") | Unary(op="sqrt" | "rsqrt"):
            return ("waits divide", 1.0)
        case Binary(op=op) | Unary(op=op):
            return ("waits float", _FUNCTION_STEPS if op in SOFTWARE else 1.0)
        case Select() | Cast():
            return ("waits simple", 1.0)
        case _:
            return ("waits simple", 0.0)

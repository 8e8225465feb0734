"""Random kernels whose sizes, strides, extents and masks depend on scalar parameters.

They verify, stay within bounds for all values that their parameters promise, and are exact: values
are integers that wrap, and floats that are small integers times powers of two. So every target has
to give the interpreter's results, bit by bit. Everything is drawn from a `random.Random`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.dtypes import DType, boolean, f32, s8, s32, u8
from tilewright.ir.arguments import Scalar
from tilewright.ir.buffer import Buffer, Layout, Part, Size, as_size, part, product, row_major
from tilewright.ir.expr import Expr, Var, as_expr, binary, cast, const, select, var
from tilewright.ir.load import load
from tilewright.ir.operators import COMPARISONS
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    Operand,
    Param,
    ScalarParam,
    Stmt,
    Store,
    View,
)

_TYPES = (s32, s32, s8, u8, f32)
_ALPHAS = (0.5, 2.0, -1.0, 4.0, 0.25)
_GREATEST = 12


def random_symbolic_kernel(rng: random.Random, statements: int = 5) -> Kernel:
    """A kernel of about ``statements`` statements. Its loops are serial; results are ``inout``."""
    return SymbolicSource(rng, statements).kernel()


def random_numbers(rng: random.Random, kernel: Kernel) -> dict[str, Scalar]:
    """Random values for the scalar parameters of ``kernel``; often the least or the greatest."""
    numbers: dict[str, Scalar] = {}
    for param in kernel.scalars:
        if param.dtype.is_float:
            numbers[param.name] = rng.choice(_ALPHAS)
            continue
        by = param.divisor
        low = -(-(param.low if param.low is not None else -9) // by)
        high = (param.high if param.high is not None else 9) // by
        drawn = rng.choice((low, high, rng.randint(low, high), rng.randint(low, high)))
        numbers[param.name] = drawn * by
    return numbers


@dataclass
class SymbolicSource:
    """Draws one kernel, see `random_symbolic_kernel`."""

    rng: random.Random
    left: int
    types: Sequence[DType] = _TYPES
    names: int = 0
    sizes: list[Var] = field(default_factory=list)  # symbols of 1 or more
    counts: list[Var] = field(default_factory=list)  # symbols of 0 or more
    indices: list[Var] = field(default_factory=list)  # s64 variables in scope
    values: list[Var] = field(default_factory=list)  # other variables in scope
    readable: list[Buffer] = field(default_factory=list)
    writable: list[Buffer] = field(default_factory=list)

    def kernel(self) -> Kernel:
        rng = self.rng
        scalars = self.scalars()
        arrays = [Param(self.buffer("result"), "inout")]
        for position in range(rng.randint(1, 3)):
            arrays.append(Param(self.buffer(f"arg{position}"), rng.choice(("in", "in", "inout"))))
        self.readable = [p.buffer for p in arrays]
        self.writable = [p.buffer for p in arrays if p.access != "in"]
        body: list[Stmt] = []
        while self.left > 0:
            body += self.statements(0)
        return Kernel("random", (*scalars, *arrays), Block(tuple(body)))

    def scalars(self) -> list[ScalarParam]:
        rng = self.rng
        scalars: list[ScalarParam] = []
        for name in ("m", "n", "k")[: rng.randint(1, 3)]:
            by = rng.choice((1, 1, 1, 2, 4))
            scalars.append(ScalarParam(var(name), rng.choice((1, 1, 2)), _GREATEST, by))
            self.sizes.append(scalars[-1].var)
        for name in ("pad", "count")[: rng.randint(0, 2)]:
            scalars.append(ScalarParam(var(name), 0, 3))
            self.counts.append(scalars[-1].var)
        if rng.random() < 0.6:
            scalars.append(ScalarParam(var("alpha", f32)))
            self.values.append(scalars[-1].var)
        if rng.random() < 0.6:
            bounded = rng.random() < 0.5
            scalars.append(
                ScalarParam(var("beta", s32), -9 if bounded else None, 9 if bounded else None)
            )
            self.values.append(scalars[-1].var)
        self.indices += self.sizes + self.counts
        return scalars

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    # Memory.

    def size(self) -> Size:
        """A size of 1 or more."""
        rng = self.rng
        symbol: Expr = rng.choice(self.sizes)
        if self.counts and rng.random() < 0.2:
            symbol = symbol + rng.choice(self.counts)
        kinds: tuple[Size, ...] = (rng.randint(1, 6), symbol, symbol, symbol + 1, (symbol + 3) // 4)
        return as_size(as_expr(rng.choice(kinds)))

    def buffer(self, name: str) -> Buffer:
        rng = self.rng
        sizes = tuple(self.size() for _ in range(rng.randint(1, 3)))
        return Buffer(name, rng.choice(self.types), sizes, self.layout(sizes))

    def layout(self, sizes: tuple[Size, ...]) -> Layout:
        """Dense; or dims in any order, some in blocks, with gaps between rows, and an offset."""
        rng = self.rng
        if rng.random() < 0.4:
            return row_major(sizes)
        outer: list[tuple[int, Size]] = []
        inner: list[tuple[int, Size]] = []
        for dim, size in enumerate(sizes):
            step = rng.choice((1, 1, 2, 4))
            blocks = (as_expr(size) + (step - 1)) // step if step > 1 else size
            outer.append((dim, as_size(as_expr(blocks))))
            if step > 1:
                inner.append((dim, step))
        rng.shuffle(outer)
        parts: list[Part] = []
        stride: Size = 1
        for dim, size in reversed(outer + inner):
            parts.append(part(dim, size, stride))
            stride = product(size, stride)
            if rng.random() < 0.3:
                gaps: list[Size] = [1, 3, *self.counts]
                stride = as_size(as_expr(stride) + rng.choice(gaps))
        starts: list[Size] = [0, 0, 5, *self.counts]
        return Layout(tuple(reversed(parts)), rng.choice(starts))

    # Expressions.

    def place(self, size: Size, point: list[Var], equal: Var | None = None) -> Expr:
        """An index below ``size``: ``equal``, which is below it, or any number modulo the size."""
        if equal is not None and self.rng.random() < 0.7:
            return equal
        return self.number(point, 2) % as_expr(size)

    def number(self, point: list[Var], depth: int) -> Expr:
        """A small s64."""
        rng = self.rng
        names = point + self.indices
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(names) if names and rng.random() < 0.8 else const(rng.randint(-4, 4))
        a, b = self.number(point, depth - 1), self.number(point, depth - 1)
        match rng.randint(0, 6):
            case 0:
                return a * rng.randint(1, 3)
            case 1:
                return a // rng.choice((2, 3, rng.choice(self.sizes)))
            case 2:
                return a * rng.choice(self.sizes)
            case 3:
                return binary(rng.choice(("min", "max")), a, b)
            case _:
                return binary(rng.choice(("add", "sub")), a, b)

    def condition(self, point: list[Var]) -> Expr:
        op = self.rng.choice(sorted(COMPARISONS))
        condition = binary(op, self.number(point, 1), self.number(point, 1))
        if self.rng.random() < 0.3:
            condition = condition & (self.number(point, 1) < self.number(point, 0))
        return condition

    def value(self, type_: DType, point: list[Var], operands: list[Var], depth: int) -> Expr:
        """The value at a point: exact in every type."""
        rng = self.rng
        if type_ is f32:
            return self.exact(point, operands)
        leaves = [v for v in (*operands, *self.values) if v.type is not f32]
        if depth == 0 or rng.random() < 0.2:
            choice = rng.random()
            if leaves and choice < 0.6:
                return cast(type_, rng.choice(leaves))
            return cast(type_, self.number(point, 1)) if choice < 0.9 else const(3, type_)
        a = self.value(type_, point, operands, depth - 1)
        b = self.value(type_, point, operands, depth - 1)
        if rng.random() < 0.2:
            return select(self.condition(point), a, b)
        op = rng.choice(("add", "sub", "mul", "min", "max", "xor"))
        # Intel's OpenCL compiler (2026.2, AVX-512) is wrong for min(~x, y) of 32 bits, so that no
        # xor stands alone.
        return binary(op, a, b) + const(3 if op == "xor" else 0, type_)

    def exact(self, point: list[Var], operands: list[Var]) -> Expr:
        rng = self.rng
        narrow = [v for v in operands if v.type in (s8, u8)]
        if narrow and rng.random() < 0.7:
            plain = cast(f32, rng.choice(narrow))
        else:
            plain = cast(f32, self.number(point, 1))
        factors = [v for v in self.values if v.type is f32]
        return plain * rng.choice(factors) if factors and rng.random() < 0.6 else plain

    # Statements.

    def statements(self, depth: int) -> list[Stmt]:
        self.left -= 1
        rng = self.rng
        if depth < 2 and rng.random() < 0.4:
            return [rng.choice((self.loop, self.branch))(depth + 1)]
        if depth == 0 and rng.random() < 0.25:
            return self.workspace()
        return rng.choice((self.compute, self.compute, self.store, self.let))()

    def block(self, depth: int) -> Stmt:
        marks = [(names, len(names)) for names in (self.indices, self.values)]
        body: list[Stmt] = []
        for _ in range(self.rng.randint(1, 2)):
            body += self.statements(depth)
        for names, mark in marks:
            del names[mark:]
        return Block(tuple(body))

    def loop(self, depth: int) -> Stmt:
        variable = var(self.name("i"))
        extent = self.extent()
        self.indices.append(variable)
        body = self.block(depth)
        self.indices.remove(variable)
        return For(variable, extent, body)

    def extent(self) -> Expr:
        rng = self.rng
        choices: list[Expr] = [as_expr(self.size()), rng.choice(self.sizes) // 2, *self.counts]
        choices.append(binary("min", rng.choice(self.sizes), const(rng.randint(1, 5))))
        return rng.choice(choices)

    def branch(self, depth: int) -> Stmt:
        condition = self.condition([])
        then = self.block(depth)
        return If(condition, then, self.block(depth) if self.rng.random() < 0.4 else None)

    def let(self) -> list[Stmt]:
        variable = var(self.name("x"))
        result = Let(variable, self.number([], 2) % 64)
        self.indices.append(variable)
        return [result]

    def store(self) -> list[Stmt]:
        out = self.rng.choice(self.writable)
        index = tuple(self.place(size, []) for size in out.sizes)
        source = self.rng.choice(self.readable)
        read = load(source, tuple(self.place(size, []) for size in source.sizes))
        value = cast(out.dtype, read) if source.dtype in (s8, u8) else read
        if value.type is not out.dtype:
            value = self.value(out.dtype, [], [], 2)
        return [Store(out, index, value)]

    def workspace(self) -> list[Stmt]:
        """A workspace, which is written before it is read."""
        buffer = self.buffer(self.name("work"))
        filling = self.filled(buffer, None)
        self.readable.append(buffer)
        self.writable.append(buffer)
        return [Allocate(buffer), filling]

    def compute(self) -> list[Stmt]:
        out = self.rng.choice(self.writable)
        return [self.filled(out, self.rng.choice((None, *self.combiners(out.dtype))))]

    def combiners(self, type_: DType) -> Sequence[str]:
        """The combiners that may reduce values of a type."""
        return ("add", "min", "max")

    def filled(self, out: Buffer, combiner: str | None) -> Stmt:
        """A structured op that writes all of ``out``, or reduces into it."""
        rng = self.rng
        dims = [Dim(var(self.name("d")), as_expr(size)) for size in out.sizes]
        index = tuple(dim.var for dim in dims)
        if combiner is not None:
            dims.append(Dim(var(self.name("r")), self.extent()))
        point = [dim.var for dim in dims]
        operands: list[Operand] = []
        for buffer in rng.sample(self.readable, min(2, len(self.readable))):
            if buffer is out:
                continue
            var_of = {dim.extent: dim.var for dim in dims}
            index_ = tuple(self.place(s, point, var_of.get(as_expr(s))) for s in buffer.sizes)
            mask = self.condition(point) if rng.random() < 0.3 else None
            operands.append(Operand(var(self.name("e"), buffer.dtype), View(buffer, index_, mask)))
        body = self.value(out.dtype, point, [o.var for o in operands], 2)
        mask = self.condition(point) if combiner is not None and rng.random() < 0.2 else None
        assert mask is None or mask.type is boolean
        view = View(out, index, mask)
        return Compute.single("op", tuple(dims), view, tuple(operands), body, combiner)

"""Random expressions and kernels: well-formed, within bounds, and free of races by construction.

Everything is drawn from a `random.Random`, so that a seed identifies a case (hypothesis provides
one that shrinks).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from random_computes import Variation
from tilewright.dtypes import (
    ALL,
    COMPUTED,
    DType,
    bf16,
    boolean,
    f32,
    f64,
    s8,
    s32,
    s64,
    tf32,
    u16,
    u32,
    u64,
)
from tilewright.ir.buffer import Buffer, Layout, LayoutBlock, Space, Swizzle, row_major
from tilewright.ir.expr import (
    Const,
    Expr,
    Var,
    binary,
    bitcast,
    cast,
    const,
    fma,
    select,
    unary,
    var,
)
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.load import load
from tilewright.ir.opaque import touched
from tilewright.ir.operators import BINARY, BITWISE, COMPARISONS, KINDS, UNARY
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Operand,
    Param,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.verify_groups import THREADS, may_nest
from tilewright.ir.visit import variables as variables_of

_ARITHMETIC = tuple(sorted(set(BINARY) - COMPARISONS))
_ODD_FLOATS = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3e38, 0.1)
_KERNEL_TYPES = (f32, s64, s32, bf16, s8, u64, u32, u16, boolean)


def random_const(rng: random.Random, type: DType) -> Const:
    """A constant: mostly small, sometimes at the limits of ``type``."""
    if type is boolean:
        return const(rng.random() < 0.5)
    if type.is_float:
        odd = rng.random() < 0.2
        return const(rng.choice(_ODD_FLOATS) if odd else rng.randint(-64, 64) / 8, type)
    if rng.random() < 0.1:
        return const(rng.choice((type.lowest, type.highest)), type)
    return const(rng.randint(-8, 8) if type.kind == "int" else rng.randint(0, 16), type)


def random_expr(
    rng: random.Random,
    type: DType = s64,
    variables: Sequence[Var] = (),
    buffers: Sequence[Buffer] = (),
    depth: int = 4,
    functions: bool = True,
) -> Expr:
    """An expression of ``type`` over the variables and buffers, at most ``depth`` operators deep.

    Loads are within bounds for any values of the variables. Without ``functions``, operators that
    round differently on different machines (``exp``, ``pow``, ...) are left out.
    """
    return ExprSource(rng, variables, buffers, functions).expr(type, depth)


@dataclass
class ExprSource:
    """Draws expressions over ``variables`` and loads of ``buffers``, see `random_expr`."""

    rng: random.Random
    variables: Sequence[Var]
    buffers: Sequence[Buffer]
    functions: bool = True

    def expr(self, type: DType, depth: int) -> Expr:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return self.leaf(type)
        kinds: tuple[str, ...] = ("cast", "select", "load", "leaf")
        if type in COMPUTED:
            kinds = ("cast", "bitcast", "select", "unary", "load", "leaf", *("binary",) * 5)
        if type in COMPUTED and type.is_float and type is not f64:
            kinds = (*kinds, "fma")
        match rng.choice(kinds):
            case "binary":
                return self.logic(depth) if type is boolean else self.arithmetic(type, depth)
            case "cast":
                return cast(type, self.expr(rng.choice(ALL), depth - 1))
            case "bitcast":
                return self.bitcast(type, depth)
            case "select":
                condition = self.expr(boolean, depth - 1)
                return select(condition, self.expr(type, depth - 1), self.expr(type, depth - 1))
            case "fma":  # (not of f64, which needs a machine with FMA)
                return fma(*(self.expr(type, depth - 1) for _ in range(3)))
            case "unary":
                return unary(self.unary_operator(type), self.expr(type, depth - 1))
            case "load":
                return self.load(type, depth)
            case _:
                return self.leaf(type)

    def bitcast(self, type: DType, depth: int) -> Expr:
        """The bits of another type; not those of NaN, which are undefined."""
        sources = [t for t in COMPUTED if t.bits == type.bits and t is not tf32]
        if type is tf32 or type is boolean:
            return self.leaf(type)
        source = self.expr(self.rng.choice(sources), depth - 1)
        if source.type.is_float and source.type is not type:
            source = select(binary("eq", source, source), source, const(0.0, source.type))
        return bitcast(type, source)

    def leaf(self, type: DType) -> Expr:
        fitting = [v for v in self.variables if v.type is type]
        if fitting and self.rng.random() < 0.7:
            return self.rng.choice(fitting)
        if type is boolean and self.variables and self.rng.random() < 0.7:
            op = self.rng.choice(sorted(COMPARISONS))
            return binary(op, self.leaf(s64), self.leaf(s64))
        return random_const(self.rng, type)

    def logic(self, depth: int) -> Expr:
        rng = self.rng
        if rng.random() < 0.4:
            op = rng.choice(sorted(BITWISE))
            return binary(op, self.expr(boolean, depth - 1), self.expr(boolean, depth - 1))
        type = rng.choice(COMPUTED)
        op = rng.choice(sorted(COMPARISONS))
        return binary(op, self.expr(type, depth - 1), self.expr(type, depth - 1))

    def arithmetic(self, type: DType, depth: int) -> Expr:
        fitting = [op for op in _ARITHMETIC if type.kind in KINDS[op]]
        op = self.rng.choice([op for op in fitting if self.functions or op != "pow"])
        return binary(op, self.expr(type, depth - 1), self.expr(type, depth - 1))

    def unary_operator(self, type: DType) -> str:
        if type.is_float and not self.functions:
            return self.rng.choice(("neg", "abs"))
        return self.rng.choice([op for op in UNARY if type.kind in KINDS[op]])

    def load(self, type: DType, depth: int) -> Expr:
        fitting = [b for b in self.buffers if b.dtype is type and 0 not in b.shape]
        if not fitting:
            return self.leaf(type)
        buffer = self.rng.choice(fitting)
        mask = self.expr(boolean, depth - 1) if self.rng.random() < 0.3 else None
        return load(buffer, self.index(buffer.shape, depth - 1), mask)

    def index(self, shape: Sequence[int], depth: int) -> tuple[Expr, ...]:
        """An index within bounds: floor modulo keeps any value there."""
        return tuple(self.expr(s64, depth) % size for size in shape)


def random_layout(rng: random.Random, shape: Sequence[int]) -> Layout:
    """A layout of ``shape``: any order of dims, blocks, padding, an offset, a swizzle."""
    if rng.random() < 0.4:
        return row_major(tuple(shape))
    parts: list[tuple[int, int]] = []
    inner: list[tuple[int, int]] = []
    for dim, size in enumerate(shape):
        step = rng.choice((1, 1, 2, 4))
        parts.append((dim, -(-size // step)))
        if step > 1:
            inner.append((dim, step))
    rng.shuffle(parts)
    stride = 1
    blocks: list[LayoutBlock] = []
    for dim, size in reversed(parts + inner):
        blocks.append(LayoutBlock(dim, size, stride))
        stride *= max(size, 1) + rng.choice((0, 0, 1))
    swizzle = None
    if rng.random() < 0.3:
        bits = rng.randint(1, 2)
        swizzle = Swizzle(bits, rng.randint(0, 2), rng.randint(bits, 3))
    return Layout(tuple(reversed(blocks)), rng.choice((0, 0, 5)), swizzle)


def random_buffer(
    rng: random.Random,
    name: str,
    space: Space = Space.GLOBAL,
    types: Sequence[DType] = _KERNEL_TYPES,
) -> Buffer:
    """A small buffer of rank 1 to 3, of one of ``types``."""
    shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 3)))
    return Buffer(name, rng.choice(types), shape, random_layout(rng, shape), space)


def random_kernel(
    rng: random.Random,
    statements: int = 12,
    kinds: Sequence[LoopKind] = (LoopKind.SERIAL, LoopKind.UNROLLED),
    types: Sequence[DType] = _KERNEL_TYPES,
) -> Kernel:
    """A kernel of about ``statements`` statements that verifies, with loops of the given kinds, and
    buffers of the given types.

    Memory is initialized where it is allocated. With serial and unrolled loops only, its results
    are defined up to the rounding of reductions.
    """
    return KernelSource(rng, kinds, statements, types).kernel()


@dataclass
class KernelSource:
    """Draws one kernel, see `random_kernel`."""

    rng: random.Random
    kinds: Sequence[LoopKind]
    left: int
    types: Sequence[DType] = _KERNEL_TYPES
    names: int = 0
    outer: list[LoopKind] = field(default_factory=list)
    variables: list[Var] = field(default_factory=list)
    readable: list[Buffer] = field(default_factory=list)
    writable: list[Buffer] = field(default_factory=list)

    def kernel(self) -> Kernel:
        rng = self.rng
        params = [Param(random_buffer(rng, "result", types=self.types), "inout")]
        for position in range(rng.randint(1, 3)):
            access = rng.choice(("in", "inout"))
            params.append(Param(random_buffer(rng, f"arg{position}", types=self.types), access))
        self.readable = [p.buffer for p in params]
        self.writable = [p.buffer for p in params if p.access != "in"]
        return Kernel("random", tuple(params), self.block(0))

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def source(self) -> ExprSource:
        return self.exprs(self.variables, self.readable)

    def exprs(self, variables: Sequence[Var], buffers: Sequence[Buffer] = ()) -> ExprSource:
        """The source of expressions over these."""
        return ExprSource(self.rng, variables, buffers, functions=False)

    def combiners(self, type: DType) -> list[str]:
        """The combiners that may reduce values of ``type``."""
        return [c for c in ("add", "min", "max", "and", "or") if type.kind in KINDS[c]]

    def block(self, depth: int) -> Stmt:
        """A block; names that it defines are out of scope afterwards."""
        marks = [(names, len(names)) for names in (self.variables, self.readable, self.writable)]
        body: list[Stmt] = []
        for _ in range(self.rng.randint(1, 4) if depth else self.left):
            if self.left <= 0:
                break
            self.left -= 1
            body += self.stmts(depth)
        for names, mark in marks:
            del names[mark:]
        return body[0] if len(body) == 1 else Block(tuple(body))

    def stmts(self, depth: int) -> list[Stmt]:
        makers = [self.store, self.store, self.let, self.compute, self.allocate, self.call]
        if depth < 3 and self.rng.random() < 0.5:
            makes = (self.loop, self.loop, self.condition, self.block, self.repeat, self.opaque)
            return [self.rng.choice(makes)(depth + 1)]
        return self.rng.choice(makers)()

    def loop(self, depth: int) -> Stmt:
        variable = var(self.name("i"))
        extent = const(self.rng.randint(1, 4))
        allowed = [k for k in self.kinds if all(may_nest(k, outer) for outer in self.outer)]
        private = any(buffer.space is Space.PRIVATE for buffer in self.readable)
        if private or any(k in THREADS for k in self.outer):
            # Work-items don't share private memory, and their loops are a perfect nest.
            allowed = [k for k in allowed if k not in THREADS]
        kind = self.rng.choice(allowed or [LoopKind.SERIAL])
        self.variables.append(variable)
        self.outer.append(kind)
        body = self.block(depth)
        self.outer.pop()
        self.variables.pop()
        return For(variable, extent, body, kind)

    def condition(self, depth: int) -> Stmt:
        condition = self.source().expr(boolean, 2)
        then = self.block(depth)
        return If(condition, then, self.block(depth) if self.rng.random() < 0.4 else None)

    def repeat(self, depth: int) -> Stmt:
        """A loop that ends: its own counter increases in each iteration, besides any other part of
        the condition."""
        if LoopKind.VECTOR in self.outer:
            return self.condition(depth)  # each lane would count for itself
        counter = Buffer(self.name("count"), s64, (1,), row_major((1,)), Space.PRIVATE)
        first, count = (const(0),), load(counter, (0,))
        condition = binary("lt", count, const(self.rng.randint(0, 4)))
        if self.rng.random() < 0.5:
            condition = condition & self.source().expr(boolean, 2)
        step = Store(counter, first, count + 1)
        # Threads do not share the counter: they come after its step.
        body = While(condition, Block((step, self.block(depth))))
        return Block((Allocate(counter), Store(counter, first, const(0)), body))

    def opaque(self, depth: int) -> Stmt:
        """A nest that declares the buffers that it touches, and sometimes more."""
        # Thread loops are a perfect nest from outside to inside: none may stand in this one.
        allowed, self.kinds = self.kinds, [k for k in self.kinds if k not in THREADS]
        body = self.block(depth)
        self.kinds = allowed
        reads, writes = touched(body)
        more = {self.rng.choice(self.readable).name} if self.rng.random() < 0.2 else set()
        return Opaque(self.name("nest"), tuple(sorted(reads | more)), tuple(sorted(writes)), body)

    def let(self) -> list[Stmt]:
        value = self.source().expr(self.rng.choice((s64, s64, f32, boolean)), 3)
        variable = var(self.name("x"), value.type)
        self.variables.append(variable)
        return [Let(variable, value)]

    def store(self) -> list[Stmt]:
        buffer = self.rng.choice(self.writable)
        source = self.source()
        return [Store(buffer, source.index(buffer.shape, 2), source.expr(buffer.dtype, 3))]

    def call(self) -> list[Stmt]:
        buffer = self.rng.choice(self.readable)
        place = View(buffer, self.source().index(buffer.shape, 1))
        return [Call(FUNCTIONS["prefetch"].name, (place,))]

    def allocate(self) -> list[Stmt]:
        buffer = random_buffer(self.rng, self.name("local"), Space.PRIVATE, self.types)
        dims = tuple(Dim(var(self.name("d")), const(size)) for size in buffer.shape)
        out = View(buffer, tuple(d.var for d in dims))
        fill = Compute.single("fill", dims, out, (), const(0, buffer.dtype))
        self.readable.append(buffer)
        self.writable.append(buffer)
        return [Allocate(buffer), fill]

    def compute(self) -> list[Stmt]:
        """A structured op: the output's dims, perhaps a reduced one, and operands elsewhere."""
        rng = self.rng
        out = rng.choice(self.writable)
        dims = [Dim(var(self.name("d")), const(size)) for size in out.shape]
        index = tuple(d.var for d in dims)
        combiner = rng.choice((None, *self.combiners(out.dtype)))
        if combiner is not None:
            dims.append(Dim(var(self.name("k")), const(rng.randint(1, 5))))
        over_dims = self.exprs([*self.variables, *(d.var for d in dims)])
        operands: list[Operand] = []
        for buffer in rng.sample(self.readable, min(2, len(self.readable))):
            if buffer is not out:
                mask = over_dims.expr(boolean, 2) if rng.random() < 0.4 else None
                view = View(buffer, over_dims.index(buffer.shape, 2), mask)
                operands.append(Operand(var(self.name("e"), buffer.dtype), view))
        over_operands = self.exprs([*over_dims.variables, *(o.var for o in operands)])
        body = over_operands.expr(out.dtype, 3)
        mask = over_dims.expr(boolean, 2) if rng.random() < 0.2 else None
        used = variables_of(body)
        kept_operands = tuple(o for o in operands if o.var in used or rng.random() < 0.5)
        name = rng.choice(("op", "matmul", "conv"))
        view = View(out, index, mask)
        result = Compute.single(name, tuple(dims), view, kept_operands, body, combiner)
        if rng.random() < 0.5:
            result = self.variation().vary(result)
        return [result]

    def variation(self) -> Variation:
        def exprs(variables: Sequence[Var]) -> ExprSource:
            return self.exprs([*self.variables, *variables])

        return Variation(self.rng, self.name, exprs, self.readable, self.writable)

"""What keeps a running maximum of rows, and what a greater one changes (see `online`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Expr, Var, binary, cast, const, minimum, select, unary, var
from tilewright.ir.stmt import Allocate, Compute, Operand, Stmt, View
from tilewright.ir.visit import substitute
from tilewright.schedule.queries.place import claim


class Rows:
    """What keeps the running maximum of the rows of ``peak``, and what that changes."""

    def __init__(self, peak: Compute, buffers: set[str], names: set[str]) -> None:
        self.peak, self.names = peak, names
        self.dims = tuple(d for d in peak.dims if d.var in index_variables(peak.out))
        held = peak.out.buffer
        memory = (
            replace(held, name=claim(f"{held.name}_{end}", buffers))
            for end in ("running", "before", "factor")
        )
        self.held, (self.running, self.before, self.factor) = held, memory
        self.x, self.y = var("x", held.dtype), var("y", held.dtype)
        self.none, self.zero = const(-math.inf, held.dtype), const(0, held.dtype)

    def _compute(self, end: str, to: Buffer, value: Expr, *sources: Buffer) -> Compute:
        index = self.peak.out.index
        pairs = zip((self.x, self.y), sources, strict=False)
        operands = tuple(Operand(x, View(source, index)) for x, source in pairs)
        name = claim(f"{self.peak.name}_{end}", self.names)
        return Compute.single(name, self.dims, View(to, index), operands, value)

    @property
    def start(self) -> tuple[Stmt, ...]:
        """What is there before the first part."""
        allocated = map(Allocate, (self.running, self.before, self.factor))
        firsts = (self._compute("start", to, self.none) for to in (self.running, self.before))
        return (*allocated, *firsts)

    def begun(self) -> Compute:
        """The maximum begins with that of the parts before."""
        return self._compute("begin", self.held, self.x, self.running)

    def kept(self) -> Compute:
        """The maximum up to here."""
        return self._compute("keep", self.running, self.x, self.held)

    def finite(self) -> Compute:
        """No difference of infinities."""
        value = select(binary("eq", self.x, self.none), self.zero, self.x)
        return self._compute("finite", self.held, value, self.held)

    def factor_of_parts(self) -> Iterator[Compute]:
        """What sums of the parts before are multiplied by. A row of which nothing has counted so
        far has sums of 0, and maybe a greater maximum."""
        value = unary("exp", minimum(self.x - self.y, self.zero))
        yield self._compute("factor", self.factor, value, self.before, self.held)
        yield self._compute("next", self.before, self.x, self.held)

    def scaled(self, total: Compute, index: Mapping[Var, Expr]) -> Compute:
        """``total`` of the parts before, relative to the new maximum; ``index`` has its dims for
        those of the rows."""
        dims = tuple(d for d in total.dims if d.var in index_variables(total.out))
        old = var("x", total.out.buffer.dtype)
        at = tuple(substitute(expr, index) for expr in self.peak.out.index)
        operands = (Operand(old, total.out), Operand(self.y, View(self.factor, at)))
        name = claim(f"{total.name}_scale", self.names)
        return Compute.single(name, dims, total.out, operands, old * cast(old.type, self.y))

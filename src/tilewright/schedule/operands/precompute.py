"""What a compute makes of one operand alone, as a compute of its own in front: the other way round
is `inline`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tilewright.dtypes import DType
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Space, buffer
from tilewright.ir.expr import Cast, Const, Expr, cast, const, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import block, children, reads_memory, rewrite, variables
from tilewright.schedule.queries.place import (
    Place,
    computes_named,
    dim_of,
    fresh,
    names_in,
    rewrite_computes,
    size_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import give, transform


@transform
@asks(compute=a_plain_compute)
def precompute(
    kernel: Kernel,
    compute: str,
    operand: str,
    *,
    cast: DType | None = None,
    order: Sequence[str] = (),
    space: Space = Space.PRIVATE,
) -> Kernel:
    """Computes what a compute makes of one operand alone in front of it, each value once.

        compute main(m in 4, n in 8, k in 2): acc[m, n] add= x * f32(q and 15)
            (x = src[m, k], q = w[k, n])
    ->  precompute("main", "q", cast=bf16, order=["n", "k"])
        alloc main_q: bf16[8, 2] private
        compute main_q(n in 8, k in 2):
          q = w[k, n]
          main_q[n, k] = bf16(f32(q and 15))
        compute main(m in 4, n in 8, k in 2): acc[m, n] add= x * f32(q)
            (x = src[m, k], q = main_q[n, k])

    That is the largest part of the value that has the operand and no other; it may have dims. The
    buffer in ``space`` has those that it varies with, in ``order``, or in that of the compute.
    ``cast``: the type of its elements, which has to be exact: of a float that is an integer, it has
    to have all of its digits. Buffer and compute are called ``<compute>_<operand>``, and ``values``
    and ``buffer`` among the results of the step.
    """
    computes_named(kernel, compute)
    buffers, computes = names_in(kernel)
    name = fresh(f"{compute}_{operand}", buffers | computes)
    give("values", "compute", name)
    give("buffer", "buffer", name)

    def change(stmt: Compute, place: Place) -> Stmt:
        apart = _Apart(stmt, operand, tuple(order), cast, name)
        return apart.stmts(space, place.facts_with(stmt.dims))

    return rewrite_computes(kernel, {compute}, change)


@dataclass(frozen=True)
class _Apart:
    """What is set apart from ``compute``: of which operand, and how it is kept."""

    compute: Compute
    name: str
    order: tuple[str, ...]
    cast: DType | None
    buffer: str

    @cached_property
    def operand(self) -> Operand:
        """The operand; refuses a value that is not made of operands."""
        compute = self.compute
        by_name = {other.var.name: other for other in compute.operands}
        if self.name not in by_name:
            raise refusal(
                f"there is no operand '{self.name}'",
                self.compute,
                "choose one of " + ", ".join(by_name),
                why="values are made of operands",
            )
        if compute.instruction or reads_memory(compute.body):
            raise refusal(
                f"an instruction carries '{compute.name}' out, or it loads in its value",
                self.compute,
                "set apart before it is tensorized, and name what is loaded as operands",
                why="its value is no expression of operands",
            )
        return by_name[self.name]

    @cached_property
    def part(self) -> Expr:
        """The part of the value that is made of the operand alone."""
        parts = set(self._parts(self.compute.body))
        if len(parts) != 1 or parts == {self.operand.var}:
            raise refusal(
                f"'{self.compute.name}' makes not one value of '{self.name}' alone",
                self.compute,
                "choose another operand, or stage it",
                why="of it alone there are: " + (", ".join(sorted(map(to_text, parts))) or "none"),
            )
        return parts.pop()

    def _parts(self, expr: Expr) -> Iterator[Expr]:
        used = variables(expr) & {operand.var for operand in self.compute.operands}
        if self.operand.var not in used:
            return
        if used == {self.operand.var}:
            yield expr
        else:
            for child in children(expr):
                yield from self._parts(child)

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """The dims that the part varies with, in the order in which it is kept."""
        varying = variables(self.part) | view_variables(self.operand.view)
        by_name = {dim.var.name: dim for dim in self.compute.dims if dim.var in varying}
        if self.order and sorted(self.order) != sorted(by_name):
            for name in self.order:
                dim_of(self.compute, name)
            raise refusal(
                f"the order {list(self.order)} has not each dim of '{self.name}' once",
                self.compute,
                "name " + ", ".join(by_name),
                why="each is a dim of its buffer",
            )
        dims = tuple(by_name[name] for name in self.order or by_name)
        if any(not isinstance(dim.extent, Const) for dim in dims):
            raise refusal(
                "the extents are not constant",
                self.compute,
                "tile by what divides the dims, or `partition` first",
                why="the values are kept in a buffer, as long as their dims",
            )
        return dims

    def check_cast(self, facts: Facts) -> None:
        """Refuses a type that has not all digits of the values."""
        if self.cast is None or self.cast is self.part.type:
            return
        expr = self.part
        while isinstance(expr, Cast) and expr.type.is_float:
            expr = expr.a
        if not self._has_digits(expr, self.cast, facts):
            raise refusal(
                f"{to_text(self.part)} is not known to be a number of {self.cast.name}",
                self.compute,
                "leave `cast` out",
                why=f"only of integers it is known, as far as {self.cast.name} has their digits",
            )

    @staticmethod
    def _has_digits(expr: Expr, type: DType, facts: Facts) -> bool:
        """Whether ``expr`` is an integer all of whose values are numbers of ``type``."""
        if not expr.type.is_integer or not type.is_float:
            return False
        if expr.type.bits <= type.digits:
            return True
        last = 1 << type.digits
        least = const(-last if expr.type.kind == "int" else 0, expr.type)
        return facts.holds((least <= expr) & (expr <= const(last, expr.type)))

    def stmts(self, space: Space, facts: Facts) -> Stmt:
        """What takes the place of the compute."""
        self.check_cast(facts)
        type = self.cast or self.part.type
        kept = buffer(self.buffer, type, tuple(map(size_of, self.dims)) or (1,), space=space)
        view = View(kept, tuple(dim.var for dim in self.dims) or (const(0),))
        value = cast(type, self.part)
        front = Compute.single(self.buffer, self.dims, view, (self.operand,), value)
        new = var(self.name, type)
        back = cast(self.part.type, new)
        operands = tuple(
            Operand(new, view) if operand is self.operand else operand
            for operand in self.compute.operands
        )
        body = rewrite(self.compute.body, lambda expr: back if expr is self.part else expr)
        rest = replace(self.compute, operands=operands).with_result(body=body)
        return block(Allocate(kept), front, rest)

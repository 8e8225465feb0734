"""The parameters of a fused kernel: those of all members, identical ones merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import lcm

from tilewright.errors import ArgumentError, FusionError
from tilewright.ir.arguments import scalar_argument
from tilewright.ir.buffer import Buffer, Size, row_major
from tilewright.ir.expr import Expr, Var, as_expr, const, var
from tilewright.ir.printer import parameter_text
from tilewright.ir.stmt import Kernel, Param, ScalarParam, Stmt, View
from tilewright.ir.symbols import substitute_scalars, substitute_size
from tilewright.ir.visit import replace_buffer, variables
from tilewright.schedule.fusion.launched import launched
from tilewright.schedule.fusion.members import Fusion, Number
from tilewright.schedule.fusion.names import named_apart, variables_in
from tilewright.schedule.groups import index_at
from tilewright.schedule.queries.access import readdress
from tilewright.schedule.queries.place import fresh


@dataclass(frozen=True, eq=False)
class Unified:
    """The members' ``bodies`` on common ``params``. ``memories`` has the arrays of each member: the
    name of the memory by the parameter."""

    params: tuple[Param | ScalarParam, ...]
    bodies: tuple[Stmt, ...]
    memories: tuple[dict[str, str], ...]


def unified(fusion: Fusion) -> Unified:
    """The members of ``fusion`` with common parameters and names of their own for all else.

    `FusionError` for an argument that is missing, numbers that break a promise, and memory or
    numbers of one name that are of different types or sizes.
    """
    if not fusion.members:
        raise FusionError(
            "no kernels to fuse", where=f"fusion {fusion.name}", cure="submit one kernel at least"
        )
    merged = _Merged(fusion)
    bodies = tuple(merged.member(number) for number in range(len(fusion.members)))
    return Unified(tuple(merged.params.values()), bodies, tuple(merged.memories))


@dataclass(eq=False)
class _Merged:
    fusion: Fusion
    params: dict[str, Param | ScalarParam] = field(default_factory=dict)
    memories: list[dict[str, str]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.taken |= {parameter.name for parameter in self.fusion.parameters()}

    def member(self, number: int) -> Stmt:
        """The body of a member, on the common parameters."""
        member, where = self.fusion.members[number], self.fusion.where(number)
        kernel = _with_scalars_of_its_own(member.kernel)
        kernel = replace(kernel, body=named_apart(kernel.body, self.taken))
        values: dict[Var, Expr] = {}
        for old_scalar, scalar in zip(member.kernel.scalars, kernel.scalars, strict=True):
            value = member.arguments.get(old_scalar.name)
            if isinstance(value, str):
                value = self.fusion.constants.get(value, value)
            if value is not None:
                _check_groups(kernel, scalar, value, where)
                values[scalar.var] = self._scalar(old_scalar, value, where)
        names: dict[str, str] = {}
        for param in kernel.arrays:
            name = member.arguments.get(param.name)
            if name is None and param.digest is not None:
                name = self._constant(param)
            if not isinstance(name, str):
                raise _missing(param, where, "the name of memory")
            names[param.name] = name
            old = self.params.get(name)
            if isinstance(old, Param):
                _learn_sizes(param.buffer, old.buffer.sizes, values)
        first: dict[str, Buffer] = {}
        for param in kernel.arrays:
            name = names[param.name]
            sizes = first.setdefault(name, param.buffer).sizes
            _learn_sizes(param.buffer, [substitute_size(s, values) for s in sizes], values)
            self._new_sizes(kernel, param.buffer, name, values)
        for old_scalar, scalar in zip(member.kernel.scalars, kernel.scalars, strict=True):
            if scalar.var not in values:
                raise _missing(old_scalar, where, "a number, or the name of one")
        bound = substitute_scalars(kernel, values)
        body = bound.body
        for param in bound.arrays:
            body = self._array(body, param, names[param.name], where)
        self.memories.append(names)
        return body

    def _constant(self, param: Param) -> str:
        """The name of memory that lies beside the kernel."""
        for name, other in self.params.items():
            if isinstance(other, Param) and other.digest == param.digest:
                return name
        return fresh(param.name, self.taken)

    def _scalar(self, scalar: ScalarParam, value: str | Number, where: str) -> Expr:
        """What stands for a number; a parameter of that name promises what all members are
        promised."""
        if not isinstance(value, str):
            try:
                return const(scalar_argument(scalar, value, where), scalar.dtype)
            except ArgumentError as error:
                raise FusionError(error.what, where=where, why=error.why, cure=error.cure) from None
        old = self.params.setdefault(value, replace(scalar, var=var(value, scalar.dtype)))
        if not isinstance(old, ScalarParam) or old.dtype is not scalar.dtype:
            raise FusionError(
                f"{value} is `{parameter_text(old)}` and `{parameter_text(scalar)}`",
                where=where,
                why="one name stands for one number, or one memory",
                cure="give them names of their own",
            )
        lows = [low for low in (old.low, scalar.low) if low is not None]
        highs = [high for high in (old.high, scalar.high) if high is not None]
        self.params[value] = replace(
            old,
            low=max(lows, default=None),
            high=min(highs, default=None),
            divisor=lcm(old.divisor, scalar.divisor),
        )
        return old.var

    def _new_sizes(
        self, kernel: Kernel, buffer: Buffer, name: str, values: dict[Var, Expr]
    ) -> None:
        """Makes parameters of the sizes of memory that is new."""
        scalars = {scalar.var: scalar for scalar in kernel.scalars}
        for dim, size in enumerate(buffer.sizes):
            if isinstance(size, Var) and size not in values:
                symbol = var(fresh(f"{name}_{dim}", self.taken), size.type)
                self.params[symbol.name] = replace(scalars[size], var=symbol)
                values[size] = symbol

    def _array(self, body: Stmt, param: Param, name: str, where: str) -> Stmt:
        """``body`` on the memory of that name in place of a parameter of its own."""
        old = self.params.get(name)
        if old is None:
            buffer = replace(param.buffer, name=name)
            self.params[name] = replace(param, buffer=buffer)
            return replace_buffer(body, param.buffer, buffer)
        same = isinstance(old, Param) and _same_memory(old.buffer, param.buffer)
        if not isinstance(old, Param) or not (same or _reshapes(old.buffer, param.buffer)):
            raise FusionError(
                f"{name} is `{parameter_text(old)}` and `{parameter_text(param)}`",
                where=where,
                why="memory of one name has one type, and as many elements, one after the other "
                "where shapes differ",
                cure="give sizes that are equal one name, or the same number; or leave them out",
            )
        if old.access == "in" and param.access != "in":
            self.params[name] = replace(old, access="inout")
        return _body_on(body, param.buffer, old.buffer)


def _body_on(body: Stmt, buffer: Buffer, memory: Buffer) -> Stmt:
    """``body`` on ``memory`` in place of its ``buffer`` buffer, which has the same elements."""
    if _same_memory(buffer, memory):
        return replace_buffer(body, buffer, memory)

    def change(view: View) -> View:
        offset = buffer.layout.offset_of(view.index)
        return View(memory, index_at(memory.layout, memory.rank, offset), view.mask)

    return readdress(body, buffer, change)


def _reshapes(a: Buffer, b: Buffer) -> bool:
    """Whether the two have the same elements in the same order, in shapes of numbers."""
    if a.symbols or b.symbols or a.dtype is not b.dtype or a.space is not b.space:
        return False
    dense = all(buffer.layout == row_major(buffer.sizes) for buffer in (a, b))
    return dense and a.layout.extent == b.layout.extent and 0 not in (*a.shape, *b.shape)


def _with_scalars_of_its_own(kernel: Kernel) -> Kernel:
    """``kernel`` with names for its numbers that no fused kernel has: expressions are interned, so
    that variables of one name are one."""
    renamed: dict[Var, Expr] = {
        s.var: var(f"{s.name} of a member", s.dtype) for s in kernel.scalars
    }
    return substitute_scalars(kernel, renamed)


def _learn_sizes(buffer: Buffer, sizes: Sequence[Size], values: dict[Var, Expr]) -> None:
    """Adds to ``values`` what the sizes of ``buffer`` are, which is memory of these ``sizes``."""
    if len(sizes) == buffer.rank:
        for size, wanted in zip(sizes, buffer.sizes, strict=True):
            if isinstance(wanted, Var) and wanted is not size:
                values.setdefault(wanted, as_expr(size))


def _check_groups(kernel: Kernel, scalar: ScalarParam, value: str | Number, where: str) -> None:
    """Refuses a range that workgroups do not divide."""
    nest = launched(kernel.body)
    counts = nest is not None and any(scalar.var in variables(n.extent) for n in nest.grid)
    if counts and isinstance(value, int) and value % scalar.divisor:
        raise FusionError(
            f"workgroups of {scalar.divisor} work-items do not divide a range of {value}",
            where=where,
            why="workgroups of a fused kernel are whole: no barrier is met by a part of one",
            cure="round the range up, and let work-items beyond it do nothing",
        )


def _same_memory(a: Buffer, b: Buffer) -> bool:
    return (a.dtype, a.sizes, a.layout, a.space) == (b.dtype, b.sizes, b.layout, b.space)


def _missing(param: Param | ScalarParam, where: str, what: str) -> FusionError:
    return FusionError(
        f"the argument {param.name} is missing",
        where=where,
        why=f"the kernel declares it as `{parameter_text(param)}`",
        cure=f"give {what}: {{'{param.name}': ...}}",
    )


def without(
    params: tuple[Param | ScalarParam, ...], dead: frozenset[str], body: Stmt
) -> tuple[Param | ScalarParam, ...]:
    """``params`` of ``body`` without the memory of the names ``dead``, and without sizes that only
    that had."""
    sizes = frozenset[Var]()
    used = variables_in(body)
    for param in params:
        if isinstance(param, Param) and param.name in dead:
            sizes |= param.buffer.symbols
        elif isinstance(param, Param):
            used |= param.buffer.symbols
    gone = {size.name for size in sizes - used} | dead
    return tuple(param for param in params if param.name not in gone)

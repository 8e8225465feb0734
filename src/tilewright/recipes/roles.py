"""What part each dim of a contraction plays, and how large dims and buffers are, as numbers that
recipes decide by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.facts.affine import affine
from tilewright.facts.usual import usual
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Cast, Const, Var, const
from tilewright.ir.stmt import Compute, Kernel, Operand, View
from tilewright.ir.symbols import substitute_buffer
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import variables, walk, walk_stmts
from tilewright.layout.roles import Role
from tilewright.layout.roles import roles as roles_of
from tilewright.schedule.queries.place import holds
from tilewright.schedule.queries.runs import strides

# Elements that lie so far apart, or less, are chosen from vectors that are loaded whole.
CLOSE = 4


@dataclass(frozen=True)
class Roles:
    """The dims of ``C[...] += A[...] * B[...]``, each list in the op's order.

    M: in C and A; N: in C and B; K: in A and B; batch: in all three.
    """

    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    batch: tuple[str, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        return self.batch + self.m + self.n


def find_compute(kernel: Kernel, name: str) -> Compute:
    """The one compute called ``name``."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Compute) and stmt.name == name:
            return stmt
    raise ScheduleError(f"the kernel {kernel.name} has no compute {name!r}")


def named_after(*words: str) -> str:
    """The name of what a recipe makes and names itself, a dim or a buffer: after what it is of."""
    return "_".join(words)


def has_compute(kernel: Kernel, name: str) -> bool:
    """Whether there is a compute called ``name``."""
    return holds(kernel.body, name)


def factor_type(compute: Compute, operand: Operand) -> DType:
    """The type to which ``compute`` rounds an operand before it multiplies: its own, mostly."""
    for node in walk(compute.body):
        if isinstance(node, Cast) and node.a is operand.var:
            total = compute.out.buffer.dtype
            return operand.var.type if node.type is total else node.type
    return operand.var.type


def extents(compute: Compute) -> dict[str, int]:
    """The size of each dim; of one that a call passes, what is usual."""
    return {dim.var.name: usual(dim.extent) for dim in compute.dims}


def roles(compute: Compute) -> Roles:
    """The roles of the dims of a compute with the operands ``a`` and ``b`` first."""
    roles_here = roles_of(compute)
    return Roles(
        *(
            tuple(name for name, role in roles_here.items() if role is part)
            for part in (Role.M, Role.N, Role.K, Role.BATCH)
        )
    )


def taps_of(compute: Compute) -> list[str]:
    """The reduced dims that index a dim of A together with one of M: taps of a convolution."""
    in_windows = frozenset[str]().union(*(reduced for _, reduced in _windows(compute)))
    return [dim for dim in roles(compute).k if dim in in_windows]


def channels_of(compute: Compute) -> list[str]:
    """The reduced dims beside the taps; none where positions are reduced."""
    if reduces_positions(compute):
        return []
    taps = taps_of(compute)
    return [dim for dim in roles(compute).k if dim not in taps]


def reduces_positions(compute: Compute) -> bool:
    """Whether what is reduced are not taps but the positions that they are moved to (gradients of
    weights)."""
    sizes = extents(compute)
    return any(
        prod(sizes[dim] for dim in reduced) > prod(sizes[dim] for dim in kept)
        for kept, reduced in _windows(compute)
    )


def tested_of(compute: Compute) -> dict[str, frozenset[str]]:
    """The reduced dims that A's mask tests together with kept ones, as the padding of a convolution
    asks for: with these."""
    mask = compute.operands[0].view.mask
    names = {v.name for v in variables(mask)} if mask is not None else set()
    return {
        dim: frozenset(kept)
        for kept, reduced in _windows(compute)
        for dim in reduced
        if {dim, *kept} <= names
    }


def windowed_of(compute: Compute) -> frozenset[str]:
    """The dims of M that index a dim of A together with reduced ones."""
    return frozenset[str]().union(*(kept for kept, _ in _windows(compute)))


def _windows(compute: Compute) -> Iterator[tuple[set[str], set[str]]]:
    """Of each index of A with dims of M and reduced ones, these."""
    parts = roles(compute)
    for index in compute.operands[0].view.index:
        names = {v.name for v in variables(index)}
        if names & set(parts.m) and names & set(parts.k):
            yield names & set(parts.m), names & set(parts.k)


def index_along(compute: Compute, dim: str) -> tuple[str, ...]:
    """The dims that, added up, index the dim of A along which neighbours along ``dim`` lie, in
    their order; none where there is no such dim of A."""
    forms = [affine(index).terms for index in compute.operands[0].view.index]
    holding = [form for form in forms if any(dim == v.name for a in form for v in variables(a))]
    if len(holding) != 1:
        return ()
    steps = {atom.name: step for atom, step in holding[0].items() if isinstance(atom, Var)}
    if len(steps) < len(holding[0]) or steps[dim] != 1:
        return ()
    return tuple(other.var.name for other in compute.dims if other.var.name in steps)


def known_sizes(compute: Compute) -> dict[str, int]:
    """How long the dims are that are numbers: they are as long in all tiles."""
    lengths = ((dim.var.name, dim.extent) for dim in compute.dims)
    return {name: int(size.value) for name, size in lengths if isinstance(size, Const)}


def bytes_of(held: Buffer) -> int:
    """How many bytes ``held`` spans."""
    return usual(held.span_bytes)


def steps_of(compute: Compute, view: View) -> dict[str, int | None]:
    """`strides`, where sizes are as usual."""
    numbers = {symbol: const(usual(symbol)) for symbol in view.buffer.symbols}
    return strides(compute, replace(view, buffer=substitute_buffer(view.buffer, numbers)))


def are_known(kernel: Kernel) -> bool:
    """Whether all sizes are numbers: none is one that a call passes."""
    if not kernel.scalars:
        return True
    computes = (stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Compute))
    extents = all(isinstance(dim.extent, Const) for compute in computes for dim in compute.dims)
    return extents and not any(held.symbols for held in buffers_in(kernel.body))

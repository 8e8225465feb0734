"""What part each dim of a contraction plays, and how far apart neighbours along it lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.facts.affine import affine
from tilewright.facts.scope import Facts
from tilewright.ir.expr import Cast, Const, Var
from tilewright.ir.stmt import Compute, Kernel, Operand, View
from tilewright.ir.visit import variables, walk, walk_stmts
from tilewright.layout.roles import Role
from tilewright.layout.roles import roles as roles_of
from tilewright.schedule.place import holds
from tilewright.schedule.runs import run_start
from tilewright.simplify import simplify

# Bytes of a run that is worth moving as one.
_RUN = 8
# The names that ops give the reduction and the compute that stores its result.
MAIN, RESULT = "main", "epilogue"


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
    """The size of each dim, all of which are constants."""
    sizes: dict[str, int] = {}
    for dim in compute.dims:
        assert isinstance(dim.extent, Const)
        sizes[dim.var.name] = int(dim.extent.value)
    return sizes


def roles(compute: Compute) -> Roles:
    """The roles of the dims of a compute with the operands ``a`` and ``b`` first."""
    found = roles_of(compute)
    return Roles(
        *(
            tuple(name for name, role in found.items() if role is part)
            for part in (Role.M, Role.N, Role.K, Role.BATCH)
        )
    )


def taps_of(compute: Compute) -> list[str]:
    """The reduced dims that index a dim of A together with one of M: taps of a convolution."""
    found = frozenset[str]().union(*(reduced for _, reduced in _windows(compute)))
    return [dim for dim in roles(compute).k if dim in found]


def channels_of(compute: Compute) -> list[str]:
    """The reduced dims beside the taps; none where what is reduced are not taps but the positions
    that they are moved to (gradients of weights)."""
    sizes, taps = extents(compute), taps_of(compute)
    for kept, reduced in _windows(compute):
        if prod(sizes[dim] for dim in reduced) > prod(sizes[dim] for dim in kept):
            return []
    return [dim for dim in roles(compute).k if dim not in taps]


def _windows(compute: Compute) -> Iterator[tuple[set[str], set[str]]]:
    """Of each index of A with dims of M and reduced ones, these."""
    parts = roles(compute)
    for index in compute.operands[0].view.index:
        names = {v.name for v in variables(index)}
        if names & set(parts.m) and names & set(parts.k):
            yield names & set(parts.m), names & set(parts.k)


def strides(compute: Compute, view: View) -> dict[str, int | None]:
    """Elements between neighbours along each dim of ``compute``, in the memory behind ``view``.

    None where they are not evenly spaced (a dim that blocks of the layout cut).
    """
    facts = Facts.empty()
    for dim in compute.dims:
        facts = facts.loop(dim.var, dim.extent)
    offset = affine(simplify(view.buffer.layout.offset_of(view.index), facts))
    uneven: set[Var] = set()
    for atom in offset.terms:
        if not isinstance(atom, Var):
            uneven |= variables(atom)
    return {
        dim.var.name: None if dim.var in uneven else offset.terms.get(dim.var, 0)
        for dim in compute.dims
    }


def runs_along(compute: Compute, view: View, dim: str) -> bool:
    """Whether neighbours along ``dim`` lie together in memory: all of them, or, where several dims
    are one, runs of which the rows of an image are multiples."""
    if strides(compute, view).get(dim) == 1:
        return True
    wide = max(1, _RUN // view.buffer.dtype.bytes)
    facts = Facts.empty()
    for each in compute.dims:
        facts = facts.loop(each.var, each.extent)
    along = [each.var for each in compute.dims if each.var.name == dim]
    return any(run_start(view, each, wide, facts) is not None for each in along)

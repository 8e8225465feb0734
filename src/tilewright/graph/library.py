"""Ops of the library as part of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.dtypes import DType, boolean, s32, s64, u8
from tilewright.ops.library import library_op
from tilewright.problems import Direction, Record
from tilewright.problems.library import SortProblem, TopKProblem
from tilewright.tensor.elementwise import convert
from tilewright.tensor.kernels import inline
from tilewright.tensor.tensor import Builder, Tensor
from tilewright.tensor.views import part


def library(
    builder: Builder,
    problem: Record,
    direction: Direction = Direction.FWD_D,
    types: Mapping[str, DType] | None = None,
    *,
    tensors: Mapping[str, Tensor] = MappingProxyType({}),
    **more: Tensor,
) -> dict[str, Tensor]:
    """The op of ``problem`` on tensors by name; gives its results by name.

    ``types`` are by role, where they are not those of the tensors given; a result without one has
    the type of the first tensor.
    """
    tensors = {**tensors, **more}
    builder.check_tensors(*tensors.values())
    types_of_roles: dict[str, DType] = {}
    for slot in problem.slots(direction):
        if slot.role and slot.name in tensors:
            types_of_roles.setdefault(slot.role, tensors[slot.name].dtype)
    usual = next(iter(tensors.values())).dtype if tensors else None
    chosen = {role: types_of_roles.get(role, usual) for role in problem.roles} | dict(types or {})
    missing = [role for role, dtype in chosen.items() if dtype is None]
    if missing:
        raise builder.refuse(f"{problem.driver} of no tensor", f"give types for {missing[0]}")
    op = library_op(problem, direction, {r: t for r, t in chosen.items() if t is not None})
    with builder.at(builder.named(problem.driver)):
        return inline(builder, op.kernel(), tensors)


def ordered(x: Tensor, dim: int, count: int, *, descending: bool) -> tuple[Tensor, Tensor]:
    """The first ``count`` elements along ``dim`` in order, and where they were (s64). Equal ones
    stay in theirs; NaN is the greatest."""
    size, truths = x.shape[dim], x.dtype is boolean
    order = "sort_descending" if descending else "sort"
    problem: Record = SortProblem(x.shape, dim, algorithm=order)
    if descending and 0 < count < size:
        problem = TopKProblem(x.shape, dim, amount=(count,))
    src = convert(x, u8) if truths else x
    results = library(x.builder, problem, types={"indices": s32}, src=src)
    values, places = convert(results["dst"], x.dtype), convert(results["indices"], s64)
    return part(values, dim, 0, count), part(places, dim, 0, count)

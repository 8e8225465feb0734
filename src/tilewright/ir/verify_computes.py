"""Well-formedness of structured ops, beside names and the types of expressions."""

from __future__ import annotations

from collections.abc import Iterator
from operator import is_

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import complication, loading, mentioned
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.functions import atomic_operator
from tilewright.ir.operators import KINDS
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Combiner, Compute, Dim, Result, View
from tilewright.ir.verify_groups import Defect
from tilewright.ir.visit import loads_in, variables

# Reduced dims run in any order, so combiners have to be commutative and associative.
COMBINERS = ("add", "mul", "min", "max", "and", "or")

_ONE_EACH = "write a compute for each result, or loops and stores"


def compute_defect(stmt: Compute) -> Defect | None:
    """What is wrong with an op whose names and types are right."""
    for result in stmt.results:
        defect = _combiner_defect(result) or _result_defect(stmt, result)
        if defect is not None:
            return defect
    return (
        _combiners_defect(stmt)
        or _overlap_defect(stmt)
        or _own_result_defect(stmt)
        or _instruction_defect(stmt)
    )


def shape_defect(stmt: Compute) -> Defect | None:
    """Whether each result has as many values as views, and as many as its combiner combines."""
    if not stmt.results:
        return Defect("the op has no result", "give it one: `buffer[...] = value`")
    for result in stmt.results:
        count, combiner = len(result.views), result.combiner
        if isinstance(combiner, Combiner):
            parts = (combiner.old, combiner.new, combiner.identity, combiner.values)
            old, new, identity, values = map(len, parts)
            if {old, new, identity, values} != {count} or count == 0:
                what = f"{combiner.name} combines {old} old and {new} new values, "
                what += f"from {identity}, to {values}, for {count} outputs"
                return Defect(what, "give it as many of each as there are outputs")
        elif count != 1:
            what = f"{combiner or 'assignment'} takes one output, here are {count}"
            return Defect(what, "make a result of each, or combine them by a combiner")
        if len(result.values) != count:
            what = f"{count} outputs, but {len(result.values)} values"
            return Defect(what, "give a value for each output")
    return None


def _combiner_defect(result: Result) -> Defect | None:
    combiner = result.combiner
    if combiner is None:
        return None
    if isinstance(combiner, Combiner):
        return _user_combiner_defect(result, combiner)
    dtype = result.views[0].buffer.dtype
    if combiner not in COMBINERS:
        why = "the order in which reduced dims run is free"
        cure = "use one of " + ", ".join(COMBINERS) + ", or declare a `combiner`"
        return Defect(f"{combiner!r} cannot combine values", cure, why)
    if dtype.kind not in KINDS[combiner]:
        fitting = [name for name in COMBINERS if dtype.kind in KINDS[name]]
        cure = "convert the values, or use one of " + ", ".join(fitting)
        return Defect(f"{combiner} cannot combine values of type {dtype}", cure)
    return None


def _user_combiner_defect(result: Result, combiner: Combiner) -> Defect | None:
    if combiner.name in COMBINERS:
        return Defect(f"{combiner.name} is a combiner already", "give yours another name")
    names = [variable.name for variable in (*combiner.old, *combiner.new)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        return Defect(f"{combiner.name} has two values {twice}", "give each a name of its own")
    types: list[tuple[DType, DType, str]] = []
    for position, view in enumerate(result.views):
        wanted = view.buffer.dtype
        for part, kind in (
            (combiner.old, "old value"),
            (combiner.new, "new value"),
            (combiner.identity, "identity"),
            (combiner.values, "combined value"),
        ):
            types.append((part[position].type, wanted, f"{kind} {position} of {combiner.name}"))
    for type_, wanted, what in types:
        if type_ is not wanted:
            cure = f"make it {wanted}, which the output holds"
            return Defect(f"the {what} is {type_}, not {wanted}", cure)
    parameters = {*combiner.old, *combiner.new}
    for value in combiner.values:
        other = sorted(v.name for v in variables(value) - parameters)
        if other:
            cure = f"use the old and the new values only: {', '.join(names)}"
            why = "values are combined with each other anywhere, not at a point of the op"
            what = f"{combiner.name} uses {other[0]}, which is none of its values"
            return Defect(what, cure, why)
        if any(loads_in(value)):
            cure = "load it as an operand, and make it a value of the tuple"
            return Defect(f"{combiner.name} loads from memory", cure)
    return None


def _combiners_defect(stmt: Compute) -> Defect | None:
    """The text declares a combiner once."""
    combiners = [r.combiner for r in stmt.results if isinstance(r.combiner, Combiner)]
    names: set[str] = set()
    for combiner in dict.fromkeys(combiners):
        if combiner.name in names:
            return Defect(f"there are two combiners {combiner.name}", "rename one of them")
        names.add(combiner.name)
    return None


def _result_defect(stmt: Compute, result: Result) -> Defect | None:
    first = result.views[0]
    for view in result.views[1:]:
        dims = {dim.var for dim in stmt.dims}
        if mentioned(stmt, view) & dims != mentioned(stmt, first) & dims or view.mask is not (
            first.mask
        ):
            what = f"{to_text(first)} and {to_text(view)} are of different points"
            cure = "let their indices depend on the same dims, and give them one mask"
            why = "what is combined together is one element of each"
            return Defect(what, cure, why)
    if result.combiner is None:
        return _assignment_defect(stmt, result)
    return None


def _assignment_defect(stmt: Compute, result: Result) -> Defect | None:
    """Without a combiner, each point of the domain has an element of the output to itself."""
    out = result.views[0]
    used = mentioned(stmt, out)
    for dim in stmt.dims:
        if dim.var not in used and not dim.ordered and not _is_single(dim):
            cure = "name one (`add=`), or use the dim in the output's index"
            return Defect(f"the dim {dim.var.name} is reduced, but there is no combiner", cure)
    in_order = all(dim.ordered or _is_single(dim) for dim in stmt.dims)
    if not result.unique and not in_order and loading(stmt, out):
        what = f"{to_text(out)} is a loaded place, and there is no combiner"
        cure = "name one (`add=`), or promise that no place comes twice (`unique`)"
        return Defect(what, cure, "two points may write one element, in any order")
    return None


def _is_single(dim: Dim) -> bool:
    return isinstance(dim.extent, Const) and dim.extent.value <= 1


def _overlap_defect(stmt: Compute) -> Defect | None:
    """Several results may share a buffer where a constant index tells them apart."""
    views = stmt.outputs
    for position, view in enumerate(views):
        for other in views[:position]:
            if other.buffer is view.buffer and not any(
                isinstance(a, Const) and isinstance(b, Const) and a is not b
                for a, b in zip(other.index, view.index, strict=True)
            ):
                what = f"{to_text(other)} and {to_text(view)} may be one element"
                cure = "write another buffer, or other constants in one dim"
                return Defect(what, cure, "all results of a point are stored at once")
    return None


def _own_result_defect(stmt: Compute) -> Defect | None:
    """An operand that reads a result reads the element that its own point writes, or the points
    are ordered; and it reads no element while that is reduced."""
    varying = {dim.var for dim in stmt.dims if not _is_single(dim)}
    varying |= {operand.var for operand in stmt.operands}
    for result in stmt.results:
        for out in result.views:
            for buffer, index in _reads(stmt):
                if buffer is not out.buffer or _elsewhere(out.index, index, varying):
                    continue
                place = to_text(View(buffer, index))
                cure = "make the dims in whose order it is done `ordered`, or use another buffer"
                same = all(map(is_, out.index, index))
                if not same and not stmt.is_ordered:
                    what = f"{place} is read, and {to_text(out)} written in any order"
                    return Defect(what, cure, "another point may have written it, or not yet")
                free = {dim.var for dim in stmt.dims if not dim.ordered and not _is_single(dim)}
                if free - mentioned(stmt, out):
                    what = f"{place} is read while it is reduced"
                    return Defect(what, cure, "its value depends on how far the reduction is")
    return None


def _reads(stmt: Compute) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    for operand in stmt.operands:
        yield operand.view.buffer, operand.view.index
    for result in stmt.results:
        for value in result.values:
            for load in loads_in(value):
                yield load.buffer, load.index


def _elsewhere(a: tuple[Expr, ...], b: tuple[Expr, ...], varying: set[Var]) -> bool:
    """Whether two indices differ in a dim that is the same for all points (which half of a double
    buffer, say): then they address different elements."""
    return any(
        one is not other
        and varying.isdisjoint(variables(one))
        and varying.isdisjoint(variables(other))
        for one, other in zip(a, b, strict=True)
    )


def _instruction_defect(stmt: Compute) -> Defect | None:
    operator = atomic_operator(stmt.instruction)
    if stmt.instruction is None and stmt.completion is None:
        return None
    who = stmt.instruction or "an asynchronous op"
    beyond = complication(stmt)
    if beyond is not None and (operator is None or beyond != "places that are loaded"):
        return Defect(f"{who} cannot carry out an op with {beyond}", _ONE_EACH)
    if operator is not None and operator != stmt.combiner:
        what = f"{stmt.instruction} does not combine by {stmt.combiner or 'assignment'}"
        return Defect(what, f"combine by {operator}, or name no function")
    return None

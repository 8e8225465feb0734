"""Splitting a loop so that its middle is free of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from tilewright.facts.affine import Affine, affine, difference
from tilewright.facts.scope import Facts
from tilewright.ir.expr import (
    Binary,
    Const,
    Expr,
    Var,
    all_of,
    const,
    maximum,
    minimum,
    select,
    var,
)
from tilewright.ir.stmt import Compute, For, If, Kernel, LoopKind, Stmt
from tilewright.ir.visit import (
    block,
    direct_exprs,
    reads_memory,
    rewrite_stmts,
    substitute_stmt,
    variables,
    walk,
    walk_stmts,
)
from tilewright.schedule.queries.place import (
    Place,
    bound_names,
    claim,
    fresh,
    names_in,
    rewrite_loops,
    walk_placed,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_compute, a_loop, asks, positive
from tilewright.schedule.records.transform import give, transform
from tilewright.simplify import simplify, simplify_stmt

# A border piece of at most this many iterations may be written out one by one.
_MOST_COPIES = 4
_IN_PIECES = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PARALLEL)


@transform
@asks(loop=a_loop, longest=positive)
def partition(
    kernel: Kernel,
    loop: str,
    split_borders: bool = False,
    *,
    longest: Mapping[str, int] | None = None,
) -> Kernel:
    """Splits a loop such that conditions on its variable hold in the middle.

        for oh in 56:
          compute f(kh in 3): ...src[oh + kh - 1 | 1 <= oh + kh and oh + kh < 57]
    ->  partition("oh")
        compute f(kh in 3): ...src[kh - 1 | 1 <= kh]
        for oh in 54:
          compute f(kh in 3): ...src[oh + kh]
        compute f(kh in 3): ...src[kh + 54 | kh < 2]

    Conditions are masks, the branches of ``if`` and the choices of ``min`` and ``max``, as far as
    they are linear in the variable. The pieces before and after are called ``<loop>_head`` and
    ``<loop>_tail``, ``head`` and ``tail`` among the results; one of a single iteration is no loop.
    With ``split_borders``, those of up to four iterations are written out; so is a loop of no more
    where all iterations have tests. Where all of a longer one have, the middle is where the choices
    are known, as lengths of tiles are; nothing changes where there is none. Loops over workgroups
    and work-items stay whole: a launch is one nest of them.

    Where the extent is no number, what holds up to some iteration counts: the loop ends there, and
    the rest stands after it, under an ``if`` where that is one iteration at most.

        for i_o in (m + 3) // 4:
          compute f(i in min(4, m - i_o*4)): ...[i_o*4 + i]
    ->  partition("i_o")
        for i_o in m // 4:
          compute f(i in 4): ...[i_o*4 + i]
        if 0 < m % 4:
          compute f(i in m % 4): ...[m // 4 * 4 + i]

    With ``longest``, all iterations are the rest where one of these dims of the computes inside is
    longer: ``partition("i_o", longest={"j": 768})`` of a loop around ``j in n`` gives

        if n <= 768:
          for i_o in m // 4: ...
        for i_o_tail in (m + 3) // 4 - select(n <= 768, m // 4, 0): ...
    """

    def change(nest: For, place: Place) -> Stmt | None:
        if nest.kind not in _IN_PIECES:
            return None
        short = _none_is_longer(nest, place, longest or {})
        return _partitioned(nest, place, split_borders, short)

    return rewrite_loops(kernel, {loop}, change)


@transform
@asks(computes=a_compute)
def name_apart(kernel: Kernel, computes: Sequence[str]) -> Kernel:
    """Of each of ``computes``, all but the first by that name get names of their own.

        for i_o in 8:
          compute f(i in 4): ...[i_o*4 + i]
        compute f(i in 3): ...[i + 32]
    ->  name_apart(["f"])
        for i_o in 8:
          compute f(i in 4): ...[i_o*4 + i]
        compute f2(i in 3): ...[i + 32]
    """
    taken = names_in(kernel)[1]
    seen: set[str] = set()

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Compute) or stmt.name not in computes:
            return stmt
        if stmt.name not in seen:
            seen.add(stmt.name)
            return stmt
        name = claim(stmt.name, taken)
        return replace(stmt, name=name)

    return replace(kernel, body=rewrite_stmts(kernel.body, change))


def _none_is_longer(loop: For, place: Place, longest: Mapping[str, int]) -> Expr | None:
    """The condition that none of the dims in ``longest`` is longer; None where none can be."""
    conditions: list[Expr] = []
    dims = [d for s in walk_stmts(loop.body) if isinstance(s, Compute) for d in s.dims]
    for name, most in longest.items():
        extents = dict.fromkeys(dim.extent for dim in dims if dim.var.name == name)
        if len(extents) != 1 or not all(_is_outside(extent, place) for extent in extents):
            differs = "several lengths in" if extents else "no length in"
            raise refusal(
                f"'{name}' has {differs} '{loop.var.name}'",
                loop,
                "name a dim that is as long in all iterations, and in all computes",
                why="one that is known before the loop says how it is split",
            )
        conditions += [extent <= most for extent in extents]
    facts = place.facts
    return all_of(condition for condition in conditions if facts.prove(condition) is not True)


def _partitioned(loop: For, place: Place, split_borders: bool, short: Expr | None) -> Stmt:
    if not isinstance(loop.extent, Const) or short is not None:
        return _begun(loop, place, short)
    extent = int(loop.extent.value)
    conditions = list(_conditions(loop, place))
    low, high = _steady(loop, conditions, extent)
    taken = place.names | bound_names(loop)
    if low >= high and extent > _MOST_COPIES:
        low, high = _steady(loop, [condition for condition in conditions if condition[2]], extent)
    elif low >= high and split_borders:
        return block(*_pieces(loop, 0, extent, loop.var.name, split_borders))
    if low >= high or (low, high) == (0, extent):
        return loop
    names = [fresh(f"{loop.var.name}_{part}", taken) for part in ("head", "tail")]
    for part, name in zip(("head", "tail"), names, strict=True):
        give(part, "loop", name)
    head = _pieces(loop, 0, low, names[0], split_borders)
    tail = _pieces(loop, high, extent, names[1], split_borders)
    return block(*head, _piece(loop, low, high, loop.var), *tail)


def _begun(loop: For, place: Place, short: Expr | None) -> Stmt:
    """``loop``, whose extent is no number, up to where its conditions hold, and the rest of it;
    where ``short`` does not hold, all of it is rest."""
    facts = place.facts
    ends = dict.fromkeys(
        end for condition in _conditions(loop, place) for end in _ends(loop, place, *condition)
    )
    if not ends and short is None:
        return loop
    # A shorter form may lose what ties it to the extent: `n // 8 % 16` for `n % 128 // 8`.
    written = reduce(minimum, ends) if ends else loop.extent
    end = simplify(written, facts)
    if facts.prove(end <= loop.extent) is not True:
        end = written
    if facts.prove(const(0) <= end) is not True:
        end = maximum(end, const(0))
    if facts.prove(end <= loop.extent) is not True:
        end = minimum(end, loop.extent)
    first: Stmt = replace(loop, extent=end)
    if end is written:
        first = replace(loop, extent=end, body=simplify_stmt(loop.body, facts.loop(loop.var, end)))
    if short is not None:
        first, end = If(short, first), select(short, end, 0)
    rest = loop.extent - end
    if facts.prove(rest <= 1) is True:
        last = substitute_stmt(loop.body, {loop.var: end})
        return block(first, If(const(0) < rest, last))
    taken = place.names | bound_names(loop)
    variable = var(fresh(f"{loop.var.name}_tail", taken))
    give("tail", "loop", variable.name)
    body = substitute_stmt(loop.body, {loop.var: variable + end})
    return block(first, replace(loop, var=variable, extent=rest, body=body))


def _ends(loop: For, place: Place, form: Affine, facts: Facts, either: bool) -> Iterator[Expr]:
    """The iteration before which ``form`` is surely not negative, where there is one that what is
    known outside of ``loop`` gives; ``either``: or surely not positive."""
    for signed in (form, -form) if either else (form,):
        step = -signed.terms.get(loop.var, 0)
        if step <= 0:
            continue
        outside = {a: c for a, c in signed.terms.items() if _is_outside(a, place)}
        inside = {a: c for a, c in signed.terms.items() if a is not loop.var and a not in outside}
        if any(loop.var in variables(a) for a in inside):
            continue
        least = facts.bounds(Affine(inside).to_expr())[0]
        if least is not None:
            yield Affine(outside, signed.constant + least).to_expr() // step + 1


def _is_outside(atom: Expr, place: Place) -> bool:
    """Whether ``atom`` has a value before the loop that stands at ``place``."""
    return {v.name for v in variables(atom)} <= place.names and not reads_memory(atom)


def _pieces(loop: For, start: int, stop: int, name: str, split: bool) -> list[Stmt]:
    if start == stop:
        return []
    if split and stop - start <= _MOST_COPIES:
        return [_piece(loop, i, i + 1, var(name)) for i in range(start, stop)]
    return [_piece(loop, start, stop, var(name))]


def _piece(loop: For, start: int, stop: int, variable: Var) -> For:
    """The iterations from ``start`` to ``stop``. One alone simplifies to its body."""
    value: Expr = variable if start == 0 else variable + start
    body = loop.body if value is loop.var else substitute_stmt(loop.body, {loop.var: value})
    return replace(loop, var=variable, extent=const(stop - start), body=body)


def _steady(
    loop: For, conditions: Iterable[tuple[Affine, Facts, bool]], extent: int
) -> tuple[int, int]:
    """The iterations in which all ``conditions`` on the loop's variable are known."""
    low, high = 0, extent
    for form, facts, either in conditions:
        first = _range(form, loop.var, facts, extent)
        if either:
            other = _range(-form, loop.var, facts, extent)
            first = max(first, other, key=lambda r: r[1] - r[0])
        if first[0] < first[1]:
            low, high = max(low, first[0]), min(high, first[1])
    return low, high


def _conditions(loop: For, place: Place) -> Iterator[tuple[Affine, Facts, bool]]:
    """Forms that it helps to know the sign of, with what is known where they stand.

    For a comparison that is "not negative"; for a choice of ``min`` or ``max``, either sign.
    """
    for stmt, here in walk_placed(loop.body, place.inside(loop)):
        facts = here.facts
        if isinstance(stmt, Compute):
            facts = here.facts_with(stmt.dims)
        for expr in direct_exprs(stmt):
            for node in walk(expr):
                if not isinstance(node, Binary) or loop.var not in variables(node):
                    continue
                form = difference(node)
                if form is not None:
                    yield form, facts, False
                elif node.op in ("min", "max") and node.type.is_integer:
                    yield affine(node.b) - affine(node.a), facts, True


def _range(form: Affine, variable: Var, facts: Facts, extent: int) -> tuple[int, int]:
    """The iterations in which ``form`` is surely not negative; (0, 0) if there are none."""
    step = form.terms.get(variable, 0)
    rest = Affine({a: c for a, c in form.terms.items() if a is not variable}, form.constant)
    if step == 0 or any(variable in variables(a) for a in rest.terms):
        return (0, 0)
    least = facts.bounds(rest.to_expr())[0]
    if least is None:
        return (0, 0)
    if step > 0:
        return (min(max(0, -(least // step)), extent), extent)
    return (0, max(0, min(extent, least // -step + 1)))

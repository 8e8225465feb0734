"""Memory that each work-item, or each workgroup, has a part of for itself: what is left of a buffer
that nothing reads afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import prod

from tilewright.errors import FusionError
from tilewright.ir.buffer import Buffer, Space, row_major
from tilewright.ir.expr import Expr, Var
from tilewright.ir.load import Load, load
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Call, For, Opaque, Stmt, Store, View
from tilewright.ir.visit import map_exprs, map_views, nested, rewrite_loads, with_nested
from tilewright.schedule.fusion.members import LOCAL, PRIVATE
from tilewright.schedule.fusion.owners import Reach, Split, apart, form_of, written_before
from tilewright.schedule.queries.place import Place

_SPACES = {PRIVATE: Space.PRIVATE, LOCAL: Space.WORKGROUP}
OWNERS = {PRIVATE: "work-item", LOCAL: "workgroup"}
# Bytes of one buffer that a work-item, or a workgroup, has at most.
_MOST = {PRIVATE: 1 << 12, LOCAL: 1 << 15}


@dataclass(frozen=True, eq=False)
class Part:
    """The ``buffer`` that an iteration of the ``owners`` has of another: it begins at ``least`` of
    the index without their terms, and without what is the same everywhere."""

    buffer: Buffer
    least: tuple[int, ...]
    owners: frozenset[Var]

    def view(self, view: View, place: Place) -> View:
        """``view`` of the whole buffer, at ``place``, on the part."""
        index: list[Expr] = []
        for expr, low in zip(view.index, self.least, strict=True):
            split = Split.of(form_of(expr, place), self.owners)
            assert split is not None
            index.append(split.rest.shifted(-low).to_expr())
        return View(self.buffer, tuple(index), view.mask)


def part_of(
    buffer: Buffer,
    scope: str,
    reaches: Sequence[Reach],
    owners: Sequence[For],
    written: Sequence[Set[Buffer]],
    trust: bool = False,
) -> Part:
    """The part of ``buffer`` that an iteration of ``owners`` (in ``scope``: a work-item or a
    workgroup) needs; ``trust``: it touches no other one's, and reads what it wrote.

    `FusionError`, with the accesses that are in the way, where one may touch what another iteration
    touches, or read what was not written, and where the buffer escapes.
    """
    for reach in reaches:
        _check_kept(buffer, reach, scope)
    if not trust:
        for a, b in combinations_with_replacement(reaches, 2):
            if (a.writes or b.writes) and not apart(a, b, owners):
                raise _refused(
                    buffer, (a, b), f"more than one {OWNERS[scope]} may touch an element"
                )
    part = _window(buffer, scope, reaches, frozenset(loop.var for loop in owners))
    writes = [reach for reach in reaches if reach.writes]
    for reach in reaches if not trust else ():
        if not reach.writes and not written_before(reach, writes, owners, written):
            raise _refused(
                buffer,
                (reach,),
                f"a {OWNERS[scope]} may read what it did not write before",
            )
    return part


def _check_kept(buffer: Buffer, reach: Reach, scope: str) -> None:
    stmt = reach.access.stmt
    if isinstance(stmt, Opaque) or (
        isinstance(stmt, Call) and not (scope == LOCAL and reach.access.atomic)
    ):
        name = stmt.name if isinstance(stmt, Opaque) else stmt.function
        raise _refused(buffer, (reach,), f"it escapes: {name} takes its address")


def _window(buffer: Buffer, scope: str, reaches: Sequence[Reach], owners: frozenset[Var]) -> Part:
    first: list[tuple[dict[Var, int], dict[Expr, int]]] = []
    least: list[int] = []
    most: list[int] = []
    for reach in reaches:
        splits = [Split.of(form, owners) for form in reach.forms]
        here = [(split.owner, split.fixed) for split in splits if split is not None]
        bounds = [split.bounds(reach) for split in splits if split is not None]
        lows = [low for low, _ in bounds if low is not None]
        highs = [high for _, high in bounds if high is not None]
        if len(here) + len(lows) + len(highs) != 3 * buffer.rank or (first and here != first):
            accesses = (reach,) if reach is reaches[0] else (reaches[0], reach)
            raise _refused(
                buffer, accesses, f"the elements of a {OWNERS[scope]} are no block of known size"
            )
        first = here
        least = list(map(min, least, lows)) if least else lows
        most = list(map(max, most, highs)) if most else highs
    shape = [high - low + 1 for low, high in zip(least, most, strict=True)]
    if prod(shape) * buffer.dtype.bytes > _MOST[scope]:
        size = " x ".join(map(str, shape))
        raise _refused(
            buffer,
            (),
            f"a {OWNERS[scope]} has {size} elements, more than {_MOST[scope]} bytes",
        )
    part = Buffer(buffer.name, buffer.dtype, tuple(shape), row_major(shape), _SPACES[scope])
    return Part(part, tuple(least), owners)


def _refused(buffer: Buffer, accesses: Sequence[Reach], why: str) -> FusionError:
    return FusionError(
        f"{buffer.name} stays in memory: {why}",
        where=described(accesses) or buffer.name,
        cure="let each element be written, and then read, by one "
        "work-item (private) or workgroup (local)",
    )


def described(accesses: Sequence[Reach]) -> str:
    """The accesses, with the statements that make them, in words."""
    return ", and ".join(
        f"{to_text(r.access.view)} in number {r.member + 1}: `{headline(r.access.stmt)}`"
        for r in accesses
    )


def on_parts(stmt: Stmt, place: Place, parts: dict[Buffer, Part]) -> Stmt:
    """``stmt``, which stands at ``place``, on ``parts`` in place of the buffers."""
    inside = zip(nested(stmt), place.within(stmt), strict=True)
    stmt = with_nested(stmt, tuple(on_parts(part, inner, parts) for part, inner in inside))

    def in_view(view: View) -> View:
        part = parts.get(view.buffer)
        return view if part is None else part.view(view, place)

    def in_load(node: Load) -> Expr:
        view = View(node.buffer, node.index, node.mask)
        new = in_view(view)
        return node if new is view else load(new.buffer, new.index, new.mask)

    stmt = map_exprs(stmt, lambda expr: rewrite_loads(expr, in_load))
    if isinstance(stmt, Store) and stmt.buffer in parts:
        new = in_view(View(stmt.buffer, stmt.index))
        return replace(stmt, buffer=new.buffer, index=new.index)
    return map_views(stmt, in_view)


def scopes_tried(scope: str) -> Iterator[str]:
    """The scopes that are tried for memory that is dead: the smallest first."""
    if scope != LOCAL:
        yield PRIVATE
    if scope != PRIVATE:
        yield LOCAL

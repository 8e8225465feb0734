"""The body of work-items, cut into pieces at the barriers of their workgroup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.functions import FUNCTIONS, Synchronize
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Block, Call, Compute, For, If, Let, Stmt, Store, While
from tilewright.ir.visit import direct_exprs, nested, reads_memory, variables, walk_stmts
from tilewright.passes.spmd.varying import Varying


@dataclass(eq=False)
class Region:
    """Statements that each work-item runs without synchronization."""

    stmts: list[Stmt]


@dataclass(eq=False)
class Once:
    """A statement that runs once for all work-items."""

    stmt: Stmt


@dataclass(eq=False)
class Around:
    """A loop, a condition or a block with a cut inside; its parts (a condition's arms) in order."""

    stmt: For | While | If | Block
    parts: list[list[Piece]]


Piece = Region | Once | Around


def synchronizes(stmt: Stmt) -> bool:
    """Whether ``stmt`` is a barrier of the workgroup, or of less."""
    return isinstance(stmt, Call) and any(
        isinstance(effect, Synchronize) for effect in FUNCTIONS[stmt.function].effects
    )


class Cutter:
    """Cuts a nest's ``body`` at barriers, at stores and lets of ``common`` names and memory (one
    for all work-items, whose values depend on when they are computed), and at the computes called
    ``whole``, of all work-items. ``barriers``: whether barriers are pieces, or left out."""

    def __init__(
        self,
        body: Stmt,
        varying: Varying,
        common: AbstractSet[Var | Buffer],
        whole: AbstractSet[str] = frozenset(),
        *,
        barriers: bool = False,
    ) -> None:
        self.body = body
        self._whole = whole
        self._varying = varying
        self._common = common
        self._barriers = barriers
        self._inner = frozenset(s.var for s in walk_stmts(body) if isinstance(s, For | Let))

    def pieces(self) -> list[Piece]:
        return self._cut(_statements(self.body), frozenset())

    def _cut(self, stmts: Sequence[Stmt], once: frozenset[Var]) -> list[Piece]:
        """``stmts`` in pieces; the names ``once`` are computed once."""
        pieces: list[Piece] = []
        region: list[Stmt] = []

        def flush() -> None:
            if region:
                pieces.append(Region(region.copy()))
                region.clear()

        for stmt in stmts:
            match stmt:
                case Call() if synchronizes(stmt):
                    flush()
                    pieces += [Once(stmt)] * self._barriers
                case Compute() if stmt.name in self._whole:
                    flush()
                    pieces.append(Once(stmt))
                case Let() if self._is_once(stmt, once):
                    if reads_memory(stmt.value):
                        flush()
                    once |= {stmt.var}
                    pieces.append(Once(stmt))
                case Store() | Allocate() if stmt.buffer in self._common:
                    if isinstance(stmt, Store):
                        flush()
                        pieces.append(Once(stmt))
                case For() | While() | If() | Block() if self._is_cut(stmt):
                    flush()
                    pieces.append(self._around(stmt, once))
                case _:
                    region.append(stmt)
        flush()
        return pieces

    def _around(self, stmt: For | While | If | Block, once: frozenset[Var]) -> Around:
        if isinstance(stmt, Block):
            return Around(stmt, [self._cut(stmt.body, once)])
        if self._varying.any_of(direct_exprs(stmt)):
            raise _divergence(stmt)
        inside = once | {stmt.var} if isinstance(stmt, For) else once
        return Around(stmt, [self._cut(_statements(part), inside) for part in nested(stmt)])

    def _is_once(self, let: Let, once: frozenset[Var]) -> bool:
        """Whether a name is computed once. Loads may give other values later: a name for them is
        computed where it stands, as a cut."""
        if self._varying.of(let.value) or not (variables(let.value) & self._inner) <= once:
            return False
        return not reads_memory(let.value) or let.var in self._common

    def _is_cut(self, stmt: Stmt) -> bool:
        for part in walk_stmts(stmt):
            if synchronizes(part) or (isinstance(part, Compute) and part.name in self._whole):
                return True
            if isinstance(part, Store) and part.buffer in self._common:
                return True
            if isinstance(part, Let) and part.var in self._common:
                return True
        return False


def _statements(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.body if isinstance(stmt, Block) else (stmt,)


def _divergence(stmt: Stmt) -> UnsupportedError:
    return UnsupportedError(
        "control around a barrier may diverge by work-item",
        where=headline(stmt),
        span=stmt.span,
        why="whether it runs, or how often, is not known to be the same for all of a workgroup",
        cure="let it depend on what they share: their group's number, arguments, one element of "
        "memory that they share, or, around what a subgroup does together, what it agreed on "
        "(tw.subgroup_any); and put into an `if` what only some of them do",
    )


def regions_of(pieces: Sequence[Piece]) -> Iterator[Region]:
    """The regions, in program order."""
    for piece in pieces:
        if isinstance(piece, Region):
            yield piece
        elif isinstance(piece, Around):
            for part in piece.parts:
                yield from regions_of(part)


def common_statements(pieces: Sequence[Piece]) -> Iterator[Stmt]:
    """The statements that run once, with control statements for their own expressions only."""
    for piece in pieces:
        if isinstance(piece, Region):
            continue
        yield piece.stmt
        if isinstance(piece, Around):
            for part in piece.parts:
                yield from common_statements(part)

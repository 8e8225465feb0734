"""What work-items do, cut into pieces at the barriers of their workgroup."""

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
    """Statements that each work-item runs without meeting others."""

    stmts: list[Stmt]


@dataclass(eq=False)
class Once:
    """A statement that is run once for all work-items."""

    stmt: Stmt


@dataclass(eq=False)
class Around:
    """A loop, a condition or a block with a cut inside; its parts, a condition's arms in order."""

    stmt: For | While | If | Block
    parts: list[list[Piece]]


Piece = Region | Once | Around


def synchronizes(stmt: Stmt) -> bool:
    """Whether ``stmt`` is a barrier of the workgroup, or of less."""
    return isinstance(stmt, Call) and any(
        isinstance(effect, Synchronize) for effect in FUNCTIONS[stmt.function].effects
    )


class Cutter:
    """Cuts a nest's ``body``. Beside barriers, what is ``common`` cuts: names and memory that are
    there once for all work-items, though they depend on when they are computed; and so do computes
    of all of them, which are called ``whole``. ``barriers`` are pieces, or left out."""

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
        self._own = frozenset(s.var for s in walk_stmts(body) if isinstance(s, For | Let))

    def pieces(self) -> list[Piece]:
        return self._cut(_statements(self.body), frozenset())

    def _cut(self, stmts: Sequence[Stmt], known: frozenset[Var]) -> list[Piece]:
        """``stmts`` in pieces; ``known`` are the names that are there once."""
        made: list[Piece] = []
        region: list[Stmt] = []

        def flush() -> None:
            if region:
                made.append(Region(region.copy()))
                region.clear()

        for stmt in stmts:
            match stmt:
                case Call() if synchronizes(stmt):
                    flush()
                    made += [Once(stmt)] * self._barriers
                case Compute() if stmt.name in self._whole:
                    flush()
                    made.append(Once(stmt))
                case Let() if self._is_once(stmt, known):
                    if reads_memory(stmt.value):
                        flush()
                    known |= {stmt.var}
                    made.append(Once(stmt))
                case Store() | Allocate() if stmt.buffer in self._common:
                    if isinstance(stmt, Store):
                        flush()
                        made.append(Once(stmt))
                case For() | While() | If() | Block() if self._is_cut(stmt):
                    flush()
                    made.append(self._around(stmt, known))
                case _:
                    region.append(stmt)
        flush()
        return made

    def _around(self, stmt: For | While | If | Block, known: frozenset[Var]) -> Around:
        if isinstance(stmt, Block):
            return Around(stmt, [self._cut(stmt.body, known)])
        if self._varying.any_of(direct_exprs(stmt)):
            raise _apart(stmt)
        inside = known | {stmt.var} if isinstance(stmt, For) else known
        return Around(stmt, [self._cut(_statements(part), inside) for part in nested(stmt)])

    def _is_once(self, let: Let, known: frozenset[Var]) -> bool:
        """Whether a name is computed once. What it loads may be another thing later: such a name
        is where it has to be, as it cuts what is around it."""
        if self._varying.of(let.value) or not (variables(let.value) & self._own) <= known:
            return False
        return not reads_memory(let.value) or let.var in self._common

    def _is_cut(self, stmt: Stmt) -> bool:
        for each in walk_stmts(stmt):
            if synchronizes(each) or (isinstance(each, Compute) and each.name in self._whole):
                return True
            if isinstance(each, Store) and each.buffer in self._common:
                return True
            if isinstance(each, Let) and each.var in self._common:
                return True
        return False


def _statements(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.body if isinstance(stmt, Block) else (stmt,)


def _apart(stmt: Stmt) -> UnsupportedError:
    return UnsupportedError(
        "work-items may go different ways around a barrier",
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
    """What runs once: statements, and control of which only its own expressions count."""
    for piece in pieces:
        if isinstance(piece, Region):
            continue
        yield piece.stmt
        if isinstance(piece, Around):
            for part in piece.parts:
                yield from common_statements(part)

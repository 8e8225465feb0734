"""Splitting a kernel in two: packing, which is done once, and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Kernel, Param, ScalarParam, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, direct_exprs, variables, walk_stmts
from tilewright.schedule.queries.access import buffers_written, readdress
from tilewright.schedule.queries.place import sequence
from tilewright.schedule.queries.refusal import refusal, running
from tilewright.simplify import simplify_kernel


@running("hoist_pack")
def hoist_pack(kernel: Kernel, buffer: str) -> tuple[Kernel, Kernel]:
    """Splits off what fills ``buffer``: a packing kernel, and one that takes the packed buffer.

        kernel conv(in src, in weights, out dst):
          alloc weights_packed
          compute w_pack(...): weights_packed[...] = weights[...]
          compute conv(...): dst[...] add= src[...] * weights_packed[...]
    ->  hoist_pack(kernel, "weights_packed")
        kernel conv_pack_weights(in weights, out weights_packed):
          compute w_pack(...): weights_packed[...] = weights[...]
        kernel conv(in src, in weights_packed, out dst):
          compute conv(...): dst[...] add= src[...] * weights_packed[...]

    The buffer is allocated at the kernel's top and filled from one input; it takes the place of
    this input. Whatever else is made of this input alone (sums of weights, for a zero point) is
    split off as well, and what is still read of that is taken after the packed buffer. Refuses
    with `ScheduleError` otherwise.
    """
    body = sequence(kernel.body)
    old = _allocated(kernel, body, buffer)
    source = _source(kernel, old, [s for s in body if old in buffers_written(s)])
    statements = [_Touching.of(s) for s in body if not isinstance(s, Allocate)]
    buffers = [s.buffer for s in body if isinstance(s, Allocate)]
    sources = _made_of(source.buffer, buffers, statements)
    filling = [s for s in statements if s.writes & sources]
    rest = [s for s in statements if not s.writes & sources]
    for touching in rest:
        if source.buffer in touching.touches:
            raise refusal(
                f"'{source.name}' is still read without packing",
                touching.stmt,
                "stage every operand that reads it first",
                why="the kernel would need both",
            )
    still = frozenset[Buffer]().union(*(touching.touches for touching in rest))
    taken = [old, *(b for b in buffers if b in sources and b in still and b is not old)]
    new = {b: replace(b, space=Space.GLOBAL) for b in taken}
    inside = [Allocate(b) for b in buffers if b in sources and b not in new]
    split = _on(block(*inside, *(touching.stmt for touching in filling)), new)
    _check_numbers(kernel, split)
    params = (source, *(Param(part, "out") for part in new.values()))
    pack = Kernel(f"{kernel.name}_pack_{source.name}", params, split)
    main_params: list[Param | ScalarParam] = []
    for param in kernel.params:
        main_params += [Param(b, "in") for b in new.values()] if param is source else [param]
    kept = [s for s in body if not isinstance(s, Allocate) or s.buffer not in sources]
    moved = {id(touching.stmt) for touching in filling}
    left = _on(block(*(s for s in kept if id(s) not in moved)), new)
    main = replace(kernel, params=tuple(main_params), body=left)
    return simplify_kernel(pack), simplify_kernel(main)


@dataclass(frozen=True)
class _Touching:
    """A statement, and the buffers that it touches, and those of them that it writes."""

    stmt: Stmt
    touches: frozenset[Buffer]
    writes: frozenset[Buffer]

    @staticmethod
    def of(stmt: Stmt) -> _Touching:
        return _Touching(stmt, frozenset(buffers_in(stmt)), frozenset(buffers_written(stmt)))


def _made_of(
    source: Buffer, buffers: list[Buffer], statements: list[_Touching]
) -> frozenset[Buffer]:
    """Those of ``buffers`` that are made of ``source`` and nothing else, before anything reads
    them that is not."""
    kept = frozenset(buffers)
    while True:
        wrong = frozenset[Buffer]().union(*_mixed(source, kept, statements))
        reached = frozenset([source])
        for statement in statements:
            if statement.touches & reached:
                reached |= statement.writes
        less = (kept - wrong) & reached
        if less == kept:
            return kept
        kept = less


def _mixed(
    source: Buffer, buffers: frozenset[Buffer], statements: list[_Touching]
) -> Iterator[frozenset[Buffer]]:
    """Buffers of ``buffers`` that something else goes into, or that are written after a reader that
    would stay."""
    read = frozenset[Buffer]()
    for statement in statements:
        if statement.touches <= buffers | {source} and statement.writes <= buffers:
            yield statement.writes & read
        else:
            yield statement.writes & buffers
            read |= statement.touches


def _on(stmt: Stmt, new: dict[Buffer, Buffer]) -> Stmt:
    """``stmt`` on the parameters that take the place of buffers."""
    for old, param in new.items():

        def moved(view: View, param: Buffer = param) -> View:
            return View(param, view.index, view.mask)

        stmt = readdress(stmt, old, moved)
    return stmt


def _check_numbers(kernel: Kernel, split: Stmt) -> None:
    """Refuses to pack by what only calls pass."""
    used = {v for held in buffers_in(split) for v in held.symbols}
    for stmt in walk_stmts(split):
        used |= {v for direct_expr in direct_exprs(stmt) for v in variables(direct_expr)}
    names = [scalar.name for scalar in kernel.scalars if scalar.var in used]
    if names:
        raise refusal(
            "what is packed depends on " + ", ".join(names),
            kernel,
            "pack in the kernel, or write a number instead",
            why="a call passes that, and packing comes before",
        )


def _allocated(kernel: Kernel, body: tuple[Stmt, ...], name: str) -> Buffer:
    buffers = {s.buffer.name: s.buffer for s in body if isinstance(s, Allocate)}
    if name not in buffers:
        raise refusal(
            f"no buffer '{name}' is allocated at the top of the kernel",
            kernel,
            "choose one of " + ", ".join(buffers) if buffers else "stage an operand first",
        )
    return buffers[name]


def _source(kernel: Kernel, buffer: Buffer, filling: list[Stmt]) -> Param:
    """The one input that the filling statements read."""
    for stmt in filling:
        others = buffers_written(stmt) - {buffer}
        if others:
            raise refusal(
                f"what fills '{buffer.name}' also writes '{min(b.name for b in others)}'",
                stmt,
                "reorder or split it first",
            )
    read = {b for stmt in filling for b in buffers_in(stmt)} - {buffer}
    params = [p for p in kernel.arrays if p.buffer in read and p.access == "in"]
    if len(params) != 1 or len(read) != 1:
        raise refusal(
            f"'{buffer.name}' is not filled from one input",
            headline(filling[0]) if filling else f"kernel {kernel.name}",
            "hoist only what was staged from an input parameter",
            why="it is made from " + (", ".join(sorted(b.name for b in read)) or "nothing"),
        )
    return params[0]

"""What a graph makes of arguments that stay the same, as a graph of its own: it runs when they
change, not in each call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.graph.passes.drop_dead import drop_dead
from tilewright.graph.passes.fold_scales import fold_scales
from tilewright.graph.passes.join_products import join_products
from tilewright.graph.passes.pipeline import optimized
from tilewright.graph.passes.values import Values, reads_of
from tilewright.graph.predicting import Deciding
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Allocate, Block, Compute, Kernel, Param, Stmt
from tilewright.ir.visit import replace_buffer
from tilewright.schedule.queries.place import fresh

# As many elements of a wider type may take so many bytes.
_SMALL = 1 << 16


@dataclass(frozen=True, eq=False)
class Prepared:
    """A graph in two. ``kernel`` runs in each call; of its arguments, ``constant`` stay the same:
    each is the argument of the whole graph that this names, or what ``before`` makes of those."""

    kernel: Kernel
    constant: Mapping[str, str]
    before: Kernel | None


def prepare(
    kernel: Kernel,
    constant: Collection[str],
    deciding: Deciding | None = None,
) -> Prepared:
    """``kernel`` after the passes over graphs, without what depends on its arguments ``constant``
    alone.

        kernel k(in x, in w, in scale, out y):         # w and scale are constant
          alloc v
          compute v: v[i] = w[i] * scale[i]
          compute y: y[i] = x[i] * v[i] + w[i]
    ->  kernel k_before(in w, in scale, out v):
          compute v: v[i] = w[i] * scale[i]
        kernel k(in x, in w, in v, out y):
          compute y: y[i] = x[i] * v[i] + w[i]

    Nothing large is made beforehand that takes more memory than what it is made of. Each compute
    reads a constant argument as one of its own, so that each can have it packed as it reads it.
    ``deciding`` is what passes decide by.
    """
    kernel = optimized(kernel, deciding=deciding)
    constants = {param.buffer for param in kernel.arrays if param.name in constant}
    constants = {buffer for buffer in constants if _access(kernel, buffer) == "in"}
    if not constants:
        return Prepared(kernel, {}, None)
    prepared = _made_of(kernel, constants)
    scaled = fold_scales(_in_front(kernel, prepared), {*constants, *prepared})
    prepared = _made_of(scaled, constants)
    joined = join_products(_in_front(scaled, prepared), deciding, {*constants, *prepared})
    kernel = drop_dead(joined)
    kernel, before = _divided(kernel, constants)
    sources = {param.name: param.name for param in kernel.arrays if param.buffer in constants}
    if before is not None:
        sources |= {param.name: param.name for param in before.arrays if param.access == "out"}
    return Prepared(*_read_apart(kernel, sources), before)


def _access(kernel: Kernel, buffer: Buffer) -> str:
    return next(param.access for param in kernel.arrays if param.buffer is buffer)


def _made_of(kernel: Kernel, constants: Collection[Buffer]) -> dict[Buffer, frozenset[Buffer]]:
    """The values that are made of the arguments ``constants`` and of constants beside the graph
    alone, each with those of the arguments."""
    values = Values.of(kernel)
    made_of = {buffer: frozenset({buffer}) for buffer in constants}
    made_of |= {param.buffer: frozenset() for param in kernel.arrays if param.digest is not None}
    prepared: dict[Buffer, frozenset[Buffer]] = {}
    for buffer, makers in values.made.items():
        reads = frozenset[Buffer]().union(*(values.reads[n] for n in makers)) - {buffer}
        alone = all(values.writes[n] == {buffer} for n in makers)
        if buffer not in values.allocated or not alone or not reads <= made_of.keys():
            continue
        sources = frozenset[Buffer]().union(*(made_of[source] for source in reads))
        if sources and _is_worth_it(buffer, sources):
            made_of[buffer] = prepared[buffer] = sources
    return prepared


def _is_worth_it(buffer: Buffer, sources: Collection[Buffer]) -> bool:
    """Whether ``buffer`` takes no more memory than what it is made of, or is as many elements."""
    if buffer.bytes <= sum(source.bytes for source in sources):
        return True
    elements = buffer.bytes // buffer.dtype.bytes
    return buffer.bytes <= _SMALL and elements <= sum(s.bytes // s.dtype.bytes for s in sources)


def _in_front(kernel: Kernel, prepared: Collection[Buffer]) -> Kernel:
    """``kernel`` with what makes ``prepared`` at its begin, so that all else may read that."""
    values = Values.of(kernel)
    early = {n for buffer in prepared for n in values.made[buffer]}
    for n, stmt in enumerate(values.stmts):
        if isinstance(stmt, Allocate) and stmt.buffer in prepared:
            early.add(n)
    order = [*sorted(early), *(n for n in range(len(values.stmts)) if n not in early)]
    return replace(kernel, body=Block(tuple(values.stmts[n] for n in order)))


def _divided(kernel: Kernel, constants: Collection[Buffer]) -> tuple[Kernel, Kernel | None]:
    """``kernel`` without what is made of ``constants`` alone, and what makes that."""
    values, prepared = Values.of(kernel), _made_of(kernel, constants)
    early = {n for buffer in prepared for n in values.made[buffer]}
    if not early:
        return kernel, None
    handed = [b for b in prepared if any(n not in early for n in values.readers.get(b, ()))]
    first: list[Stmt] = []
    rest: list[Stmt] = []
    for n, stmt in enumerate(values.stmts):
        if isinstance(stmt, Allocate) and stmt.buffer in prepared:
            first += [] if stmt.buffer in handed else [stmt]
        else:
            (first if n in early else rest).append(stmt)
    outs = [param for param in kernel.arrays if param.access != "in"]
    ins = [param for param in kernel.arrays if param.access == "in"]
    results = [Param(buffer, "out") for buffer in handed]
    before = _part(f"{kernel.name}_before", kernel, first, [*_read_by(first, ins), *results])
    prepared_before = [Param(buffer, "in") for buffer in handed]
    return _part(kernel.name, kernel, rest, [*_read_by(rest, ins), *prepared_before, *outs]), before


def _read_by(stmts: Sequence[Stmt], params: Sequence[Param]) -> list[Param]:
    read = frozenset[Buffer]().union(*map(reads_of, stmts))
    return [param for param in params if param.buffer in read]


def _part(name: str, kernel: Kernel, stmts: Sequence[Stmt], params: Sequence[Param]) -> Kernel:
    """A kernel of some statements of ``kernel``."""
    digests = {param.digest for param in params}
    held = {digest: data for digest, data in kernel.constants.items() if digest in digests}
    body = Block(tuple(stmts))
    return replace(kernel, name=name, params=tuple(params), body=body, constants=held)


def _read_apart(kernel: Kernel, sources: Mapping[str, str]) -> tuple[Kernel, dict[str, str]]:
    """``kernel`` with an argument for each compute that reads one of ``sources``."""
    values = Values.of(kernel)
    stmts, renamed = list(values.stmts), dict(sources)
    names = {x.name for x in (*kernel.params, *values.allocated)}
    params = list(kernel.params)
    for param in kernel.arrays:
        readers = values.readers.get(param.buffer, []) if param.name in sources else []
        if not all(isinstance(stmts[n], Compute) for n in readers):
            continue
        for n in readers[1:]:
            name = fresh(param.name, names)
            names.add(name)
            copy = replace(param.buffer, name=name)
            stmts[n] = replace_buffer(stmts[n], param.buffer, copy)
            params.append(Param(copy, "in"))
            renamed[name] = sources[param.name]
    if len(params) == len(kernel.params):
        return kernel, renamed
    return replace(kernel, params=tuple(params), body=Block(tuple(stmts))), renamed

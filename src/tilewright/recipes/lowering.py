"""The end of a schedule: computes as loops with vector lanes, loops on threads, workgroups or
work-items, and results that are larger than the caches past them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Binary, Const, Expr, Unary, Var, as_expr
from tilewright.ir.operators import SOFTWARE
from tilewright.ir.stmt import Compute, Kernel, Store
from tilewright.ir.visit import direct_exprs, loads_in, walk, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.reducible import computes_in, contiguous_dim
from tilewright.recipes.roles import known_sizes
from tilewright.schedule.schedule import KernelSchedule

# Statements that unrolling may make of one.
_COPIES = 128


def lower_rest(
    s: KernelSchedule,
    vector: int = 16,
    machine: Machine | None = None,
    unrolled: Callable[[Compute], Sequence[str]] | None = None,
    *,
    tails: bool = False,
) -> None:
    """Every compute that is left becomes loops, with lanes along what is contiguous; functions go
    as the ``machine`` likes. ``unrolled`` says which dims are (without it, those of what is in
    registers); with ``tails``, what follows whole vectors is apart."""
    names: dict[str, list[Compute]] = {}
    for compute in computes_in(s.kernel):
        if compute.instruction is None:
            names.setdefault(compute.name, []).append(compute)
    for name, alike in names.items():
        # Of several by one name, a border of one element has lost its dim.
        compute = next((stmt for stmt in alike if contiguous_dim(stmt) is not None), alike[0])
        dim, lanes = contiguous_dim(compute), vector
        if machine is not None:
            lengths = [known_sizes(stmt).get(dim or "", 0) for stmt in alike]
            lanes = lanes_for(compute, lengths, vector, machine, tails=tails)
        unroll = _unrollable(compute, dim, vector) if unrolled is None else unrolled(compute)
        s.lower_computes(
            [name], vector=dim, lanes=lanes, unroll=unroll, tails=vector if tails else 0
        )


def _unrollable(compute: Compute, lanes: str | None, vector: int) -> list[str]:
    """The dims that index private buffers, which are then registers; none where that is too much
    code."""
    views = [compute.out, *(operand.view for operand in compute.operands)]
    private = [view for view in views if view.buffer.space is Space.PRIVATE]
    used = frozenset[Var]().union(*map(index_variables, private))
    copies = 1
    names: list[str] = []
    for dim in compute.dims:
        if dim.var in used:
            if not isinstance(dim.extent, Const):
                return []
            extent = int(dim.extent.value)
            copies *= -(-extent // vector) if dim.var.name == lanes else extent
            names.append(dim.var.name)
    return names if copies <= _COPIES else []


def lanes_for(
    compute: Compute,
    lengths: Iterable[int],
    vector: int,
    machine: Machine,
    *,
    tails: bool = False,
) -> int:
    """The lanes of ``compute``, of which one register has ``vector``: those of several registers
    where it combines nothing, and all ``lengths`` are whole vectors of them. With ``tails``, what
    is behind whole vectors goes apart, in vectors of one register: a length may then be open (0).

    Each step of a polynomial waits for the one before, and a processor looks ahead by less than one
    vector's steps: those of several, side by side, fill its units. Constants that come from memory
    then serve them all. So do the instructions of a loop that only moves elements.
    """
    counts = list(lengths)
    combines = any(result.combiner is not None for result in compute.results)
    most = machine.core.chains
    if combines or not counts:
        return vector
    for registers in range(most, 1, -1):
        if all(n > 0 and n % (registers * vector) == 0 for n in counts):
            return registers * vector
    enough = all(n == 0 or n >= most * vector for n in counts)
    return most * vector if tails and enough else vector


def finish(s: KernelSchedule, machine: Machine, *, inside: bool = False) -> None:
    """The loops of a kernel that is lowered on all workers (`parallelize`), and stores past the
    caches."""
    parallelize(s, machine, inside=inside)
    s.mark("parallel")
    streamed(s, machine)
    s.mark("streamed")


def parallelize(s: KernelSchedule, machine: Machine, *, inside: bool = False) -> None:
    """The outermost loops of each part run on threads or workgroups, as many as give enough work;
    on work-items, one iteration each, where these are many. With ``inside``, also in loops and
    conditions around such loops, which are then the host's, where they have enough work for a
    launch each time."""
    by = machine.workers
    s.parallelize_parts(by.pieces, by.kind, items=by.items, worth=by.worth if inside else 0)


def streamed(s: KernelSchedule, machine: Machine) -> None:
    """``kernel``, which is lowered, with stores past the caches to what does not stay there:
    a line that is stored through them is read first, which is a third of what moves. Where a call
    passes sizes, both ways are written out: functions are too long for that where there is more
    than what makes these results."""
    if not machine.past_caches:
        return
    cache, facts = machine.caches[-1], Facts.of(s.kernel)
    large = {
        param.buffer
        for param in s.kernel.arrays
        if param.access == "out"
        and facts.prove(as_expr(param.buffer.span_bytes) < cache) is not True
    }
    if large:
        large -= set(_read(s.kernel))
    if not large or (
        s.kernel.scalars and _makes_others(s.kernel, large) and _has_functions(s.kernel)
    ):
        return
    s.store_non_temporally(sorted(buffer.name for buffer in large), cache)


def _makes_others(kernel: Kernel, large: Collection[Buffer]) -> bool:
    stored = {stmt.buffer for stmt in walk_stmts(kernel.body) if isinstance(stmt, Store)}
    return not stored <= set(large)


def _has_functions(kernel: Kernel) -> bool:
    nodes = (node for value in _values(kernel) for node in walk(value))
    return any(isinstance(node, Unary | Binary) and node.op in SOFTWARE for node in nodes)


def _values(kernel: Kernel) -> Iterator[Expr]:
    """All expressions."""
    return (expr for stmt in walk_stmts(kernel.body) for expr in direct_exprs(stmt))


def _read(kernel: Kernel) -> Iterator[Buffer]:
    """What is read again."""
    return (load.buffer for expr in _values(kernel) for load in loads_in(expr))

"""What straight-line code takes, once: work by kind, accesses by kind, and what it waits for.

A load or an operation is done once for all copies of it that are the same (`steps.Access.uses`),
and once for all iterations of the loop around it where it does not depend on these.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.load import Load
from tilewright.ir.stmt import Compute, Let, LoopKind, Store
from tilewright.ir.visit import children, loads_in, variables
from tilewright.machines.machine import Machine
from tilewright.predict.kinds import executed, latency
from tilewright.predict.lines import Line
from tilewright.predict.nest import FLAT, Nest
from tilewright.predict.steps import NOTHING, Access, Dependence

# Operations that a processor has under way.
_WINDOW = 400.0
# Runs of so many bytes are loaded as they lie: a gather would take more.
_RUN = 16
# Operations by which an iteration finds one more of its indices from its place in a range.
_DIGIT = 7.0
# Cycles of what is waited for, as far as that decides which chain is the longest.
_NOMINAL = {
    "waits multiply-add": 4,
    "waits dot": 5,
    "waits float": 3,
    "waits minimum": 5,
    "waits converted": 12,
    "waits memory": 8,
}


# Numbers of what there is, by kind.
Counts = defaultdict[str, float]


def counts_of(**numbers: float) -> Counts:
    """``numbers`` as counts."""
    return defaultdict(float, numbers)


@dataclass(eq=False)
class Body:
    """The code in ``nest`` that no loop inside it repeats. ``counts`` are by kind."""

    nest: Nest
    lines: list[Line]
    counts: Counts = field(default_factory=lambda: defaultdict(float))


def bodies_of(lines: Sequence[Line], held: Mapping[Buffer, float], machine: Machine) -> list[Body]:
    """The straight-line code of a kernel, in order."""
    by_nest: dict[Nest, Body] = {}
    for line in lines:
        by_nest.setdefault(line.body, Body(line.body, [])).lines.append(line)
    for body in by_nest.values():
        _count(body, held, machine)
    return list(by_nest.values())


def _count(body: Body, held: Mapping[Buffer, float], machine: Machine) -> None:
    stored = frozenset(a.buffer for line in body.lines for a in line.accesses if a.writes)
    seen: set[tuple[bool, tuple[int, tuple[Expr, ...]]]] = set()
    nest = body.nest
    turns = nest.extent if nest.var is not None and nest.extent > 1 else 1.0
    flattened = _flattened(body.lines[0].path, nest)
    if flattened > 1:
        # Nothing stays from one iteration to the next.
        turns = 1.0
        body.counts["scalar"] += _DIGIT * (flattened - 1)

    def once(uses: Dependence) -> float:
        """How often an iteration does what depends on ``uses``."""
        return 1.0 if nest.var in uses or uses & stored else 1.0 / turns

    for line in body.lines:
        for op in line.operations:
            vectors = (
                _executions(line, machine)
                if op.instruction
                else _vectors(line, op.uses, op.width, machine)
            )
            body.counts[op.kind] += (
                op.weight * vectors * line.times(op.uses, stored) * once(op.uses)
            )
        for access in line.accesses:
            outside = 1.0 - held.get(access.buffer, 0.0)
            key = (access.writes, access.key)
            if not outside or key in seen:
                continue
            seen.add(key)
            uses = access.uses if access.writes else access.uses | {access.buffer}
            often = 1.0 if access.writes else once(uses)
            for kind, number in accessed(access, machine).items():
                body.counts[kind] += number * outside * line.places(access) * often
    for kind, number in _waits(body, held, machine).items():
        body.counts[kind] += number


def _flattened(path: Sequence[Nest], nest: Nest) -> int:
    """How many parallel loops are one range whose iterations are those of ``nest``; 0 for one that
    is not the innermost of such."""
    count = 0
    for outer in path[: path.index(nest) + 1]:
        if outer.kind is LoopKind.PARALLEL:
            count += outer.extent > 1
        elif outer.var is not None or len(outer.parts) > 1:
            count = 0
            break
    return count


def _vectors(line: Line, uses: Dependence, width: int, machine: Machine) -> int:
    """Vectors that the lanes take which something depends on."""
    lanes = math.prod(size for variable, size in line.lanes.items() if variable in uses)
    return max(1, math.ceil(lanes * width / machine.vector_bytes))


def _executions(line: Line, machine: Machine) -> int:
    """How often an instruction is carried out for the dims of its compute."""
    compute = line.step.stmt
    assert isinstance(compute, Compute) and compute.instruction is not None
    instruction = machine.instruction(compute.instruction)
    if instruction.emit != "fma":
        return 1
    lanes = math.prod(line.lanes[dim.var] for dim in compute.dims)
    return max(1, math.ceil(lanes * instruction.out.dtype.bytes / machine.vector_bytes))


def accessed(access: Access, machine: Machine) -> dict[str, float]:
    """Loads or stores of an access by kind: whole vectors, masked ones, those that cross a line,
    lanes one by one; and the shuffles that choose lanes from vectors."""
    kind = "store" if access.writes else "load"
    run, apart = _run(access)
    width = access.buffer.dtype.bytes
    if apart > 1 and run * width < _RUN:
        vectors = _span(access) * width / machine.vector_bytes
        if access.writes or not machine.threaded or 2 * vectors > apart:
            return {"scatter" if access.writes else "gather": apart}
        # Chosen from vectors that are loaded whole.
        vectors = math.ceil(vectors)
        crossing = _crossing(access, machine.vector_bytes, machine)
        return {"load": vectors, "split": vectors * crossing, "shuffle": vectors}
    pieces = apart * max(1, math.ceil(run * width / machine.vector_bytes))
    counts = {f"{kind} masked" if access.masked else kind: pieces}
    if run * width >= _RUN:
        counts["split"] = pieces * _crossing(
            access, min(run * width, machine.vector_bytes), machine
        )
    return counts


def _run(access: Access) -> tuple[float, float]:
    """How many neighbours in memory lanes reach together, and how many such runs there are."""
    run, apart = 1.0, 1.0
    lanes = [(access.steps.get(variable, 0), size) for variable, size in access.lanes.items()]
    for step, size in sorted(lanes, key=lambda pair: abs(pair[0] or 0)):
        if step is None:
            apart *= size
        elif abs(step) == run:
            run *= size
        elif step:
            apart *= size
    return run, apart


def _span(access: Access) -> float:
    """The elements from the first that lanes reach to the last; infinite where that is open."""
    steps = [(access.steps.get(variable, 0), size) for variable, size in access.lanes.items()]
    return 1 + sum(math.inf if step is None else abs(step) * (size - 1) for step, size in steps)


def _crossing(access: Access, piece: float, machine: Machine) -> float:
    """Which part of accesses to ``piece`` bytes go across the end of a cache line."""
    line, width = machine.core.line, access.buffer.dtype.bytes
    others = (step or 1 for v, step in access.steps.items() if v not in access.lanes)
    even = math.gcd(line, *(step * width for step in others), access.start * width)
    return max(0.0, min(piece, line) - even) / line


def _waits(body: Body, held: Mapping[Buffer, float], machine: Machine) -> Counts:
    """What an iteration waits for: the longest chain of results. Iterations that do not wait for
    each other are under way together, as far as the processor has room for them."""
    carried: dict[Buffer, Counts] = {}
    inside: dict[Buffer, Counts] = {}
    named: dict[Var, Expr] = {}
    for line in body.lines:
        if isinstance(line.step.stmt, Let):
            named[line.step.stmt.var] = line.step.stmt.value
        for buffer, chain, repeats in _chains(body, line, named, machine):
            depth = line.step.share * math.prod(
                size for v, size in line.unrolled.items() if v not in _index_uses(line, buffer)
            )
            total = (carried if repeats else inside).setdefault(buffer, counts_of())
            for kind, number in chain.items():
                total[kind] += number * depth
            if held.get(buffer, 0.0) < 1.0:
                total["waits memory"] += depth
    longest = max(carried.values(), key=_length, default=counts_of())
    within = max(inside.values(), key=_length, default=counts_of())
    together = max(1.0, _WINDOW / max(1.0, sum(body.counts.values())))
    for kind, number in within.items():
        longest[kind] += number / together
    return longest


def _length(chain: Counts) -> float:
    return sum(_NOMINAL.get(kind, 1) * number for kind, number in chain.items())


def _index_uses(line: Line, buffer: Buffer) -> Dependence:
    return NOTHING.union(*(a.uses for a in line.accesses if a.writes and a.buffer is buffer))


def _chains(
    body: Body, line: Line, named: Mapping[Var, Expr], machine: Machine
) -> Iterator[tuple[Buffer, Counts, bool]]:
    """The buffers that a step updates by what was stored there before: the steps from one to the
    other, and whether it was the iteration before that stored it."""
    stmt, around = line.step.stmt, line.path[: line.path.index(body.nest) + 1]
    # The loop around a branch repeats it.
    loop = next((nest for nest in reversed(around) if nest.var is not None), None)
    var = loop.var if loop is not None and loop.kind not in FLAT and loop.extent > 1 else None

    # What is allocated in the loop is another buffer in each iteration.
    within = line.path[line.path.index(loop) :] if loop is not None else ()
    fresh = {buffer for nest in within for buffer in nest.allocated}

    def repeats(buffer: Buffer, indices: Sequence[Expr]) -> bool:
        stays = all(var not in variables(index) for index in indices)
        return var is not None and stays and buffer not in fresh

    match stmt:
        case Store():
            steps = _steps_from(stmt.buffer, stmt.value, named, machine)
            if steps is not None:
                beside = var is not None and _is_beside(stmt, var)
                yield stmt.buffer, steps, beside or repeats(stmt.buffer, stmt.index)
        case Compute() if stmt.instruction is not None:
            kind, _ = executed(machine.instruction(stmt.instruction), machine.vector_bytes)
            out = stmt.outputs[0]
            if kind in ("multiply-add", "dot", "tile"):
                yield (
                    out.buffer,
                    counts_of(**{f"waits {kind}": 1.0}),
                    repeats(out.buffer, out.index),
                )
        case Compute():
            for result in stmt.results:
                view = result.views[0]
                if result.combiner is not None:
                    yield (
                        view.buffer,
                        counts_of(**{"waits float": 1.0}),
                        repeats(view.buffer, view.index),
                    )
        case _:
            pass


def _is_beside(store: Store, var: Var) -> bool:
    """Whether a step reads another place along the loop than it writes, one written before."""
    return any(
        load.buffer is store.buffer
        and any(
            read is not written and var in variables(read) | variables(written)
            for read, written in zip(load.index, store.index, strict=True)
        )
        for load in loads_in(store.value)
    )


def _steps_from(
    buffer: Buffer, value: Expr, named: Mapping[Var, Expr], machine: Machine
) -> Counts | None:
    """The longest path in ``value`` from a load of ``buffer``; None without such a load."""
    done: dict[Expr, Counts | None] = {}

    def path(node: Expr) -> Counts | None:
        if node in done:
            return done[node]
        done[node] = None
        if isinstance(node, Load) and node.buffer is buffer:
            result: Counts | None = counts_of()
        elif isinstance(node, Var) and node in named:
            result = path(named[node])
        elif isinstance(node, Load):
            result = None
        else:
            paths = [p for part in children(node) if (p := path(part)) is not None]
            result = counts_of(**max(paths, key=_length)) if paths else None
            if result is not None:
                kind, number = latency(node, machine)
                result[kind] += number
        done[node] = result
        return result

    return path(value)

"""How long parts of a graph are predicted to take, and what passes decide by it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilewright.engine.choosing import predicted_seconds
from tilewright.graph.cutting import Products, Wanted, cut_graph, is_control
from tilewright.graph.fusing import fused
from tilewright.graph.parts import packable
from tilewright.graph.passes.values import Values
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Allocate, Block, Compute, Kernel, Let, Param, Stmt
from tilewright.ir.uses import buffers_in
from tilewright.machines.machine import Machine
from tilewright.predict.passing import BETWEEN
from tilewright.runtime.steps import launches
from tilewright.schedule.queries.cutting import products_of
from tilewright.schedule.queries.flow import Items, item_of

# What stands between chained products takes memory: apart, they have to be this much faster.
_CLEARLY = 0.9
# What is decided of them.
_TOGETHER, _APART = "one kernel", "apart"


# Kernels, each with the arguments that may be packed.
Tasks = Sequence[tuple[Kernel, tuple[str, ...]]]
Ahead = Callable[[Tasks], None]


@dataclass(frozen=True)
class Decision:
    """What a pass has decided of ``what`` (``how``, in a word), and ``why``."""

    what: str
    how: str
    why: str


@dataclass(frozen=True, eq=False)
class Deciding:
    """What passes decide by: times that are predicted for ``machine``, where arguments that are
    ``constant`` may be packed before; and what they have decided."""

    machine: Machine
    constant: Collection[str] = ()
    ahead: Ahead = lambda tasks: None
    """Told of kernels whose times are asked for next: it may have them predicted side by side."""
    decisions: list[Decision] = field(default_factory=list)

    @classmethod
    def on(
        cls, machine: Machine, constant: Collection[str] = (), ahead: Ahead = lambda tasks: None
    ) -> Deciding | None:
        """The same, if times are predicted for ``machine``."""
        return None if machine.costs is None else cls(machine, constant, ahead)

    def decide(self, what: str, how: str, why: str) -> None:
        """Keeps a decision."""
        self.decisions.append(Decision(what, how, why))

    def both_ways(
        self, one: Sequence[Kernel], other: Sequence[Kernel]
    ) -> tuple[float, float] | None:
        """The seconds of kernels, and of ``other`` ones that do the same, with what a program takes
        between them; None where one has no prediction."""
        self.ahead([(kernel, ()) for kernel in (*one, *other)])
        sums: list[float] = []
        for kernels in (one, other):
            times = [predicted_seconds(kernel, self.machine) for kernel in kernels]
            if None in times:
                return None
            sums.append(sum(time + BETWEEN for time in times if time is not None))
        return sums[0], sums[1]


def compared(one: tuple[str, float], other: tuple[str, float]) -> str:
    """Two ways with their predicted seconds, in words."""
    return ", ".join(f"{how}: {seconds * 1e6:.1f} us" for how, seconds in (one, other))


class Parts:
    """The statements at the top of a graph in the groups that they are cut into."""

    def __init__(self, kernel: Kernel, deciding: Deciding) -> None:
        self.kernel, self.machine, self.values = kernel, deciding.machine, Values.of(kernel)
        self.constants = {
            array.buffer
            for array in kernel.arrays
            if array.digest is not None or array.name in deciding.constant
        }

    @cached_property
    def _groups(self) -> dict[int, tuple[int, ...]]:
        """The group of each position; empty where control, or a name for what follows, is between
        them."""
        stmts = self.values.stmts
        if any(isinstance(stmt, Let) or is_control(stmt) for stmt in stmts):
            return {}
        positions = [n for n, stmt in enumerate(stmts) if not isinstance(stmt, Allocate)]
        items = Items(item_of(stmts[n]) for n in positions)
        names = {item.name for item in (*self.kernel.params, *self.values.allocated)}
        local = frozenset(self.values.allocated)
        cut = fused(items, local, products_of(items, local, names, chains=True), None)
        groups = [tuple(positions[n] for n in members.items) for members in cut]
        return {n: group for group in groups for n in group}

    def around(self, positions: Iterable[int]) -> list[int]:
        """The positions of all that is in groups with those at ``positions``."""
        return sorted({n for position in positions for n in self._groups.get(position, ())})

    def regions(self, buffers: Iterable[Buffer]) -> list[tuple[list[Buffer], list[int]]]:
        """``buffers`` in sets that share no group, with the positions of what is in groups that
        touch them."""
        region: dict[int, tuple[list[Buffer], set[int]]] = {}
        for buffer in buffers:
            members = set(self.around(self.touching(buffer)))
            joined = {id(region[n]): region[n] for n in members if n in region}.values()
            into = max(joined, key=lambda entry: len(entry[1]), default=([], set()))
            for other in joined:
                if other is not into:
                    into[0].extend(other[0])
                    into[1].update(other[1])
                    region.update(dict.fromkeys(other[1], into))
            into[0].append(buffer)
            into[1].update(members)
            region.update(dict.fromkeys(members, into))
        entries = {id(entry): entry for entry in region.values()}.values()
        return [(those, sorted(members)) for those, members in entries]

    def touching(self, buffer: Buffer) -> tuple[int, ...]:
        """The positions of what reads or writes ``buffer``."""
        values = self.values
        return (*values.writers.get(buffer, ()), *values.readers.get(buffer, ()))

    def handed(self, members: Collection[int]) -> set[Buffer]:
        """What the statements at ``members`` get of others, or leave to them."""
        inside = frozenset(members)
        touched = {b for n in members for b in buffers_in(self.values.stmts[n])}
        return {
            buffer
            for buffer in touched
            if buffer not in self.values.allocated or not inside.issuperset(self.touching(buffer))
        }

    def seconds(
        self, stmts: Sequence[Stmt], handed: Collection[Buffer], fixed: Collection[Buffer] = ()
    ) -> float | None:
        """The seconds that ``stmts`` are predicted to take as the kernels that they become by
        themselves; None where one has no prediction. ``handed`` are the buffers that others touch,
        too, of which more than the constants are ``fixed``."""
        return _Way.of(stmts, handed, self.constants.union(fixed)).seconds(self.machine)


def chains_by(deciding: Deciding | None) -> Wanted | None:
    """Which chains of products are one kernel: all but those that are predicted to take clearly
    less time apart. Those of the same sums go by the first of them, as a prediction takes a second
    or two."""
    if deciding is None:
        return None
    first: dict[object, Decision] = {}

    def ways(chain: Products) -> tuple[_Way, _Way]:
        """As one kernel, and apart."""
        constant = {buffer for buffer in chain.handed if buffer.name in deciding.constant}
        one = _Way.of(chain.stmts, chain.handed, constant)
        return one, _Way.of(chain.stmts, chain.handed, constant, lambda all: [False] * len(all))

    def wanted(chains: Sequence[Products]) -> list[bool]:
        sums_of = [_sums(chain.computes) for chain in chains]
        new = {
            sums: ways(chain)
            for sums, chain in reversed([*zip(sums_of, chains, strict=True)])
            if sums not in first
        }
        deciding.ahead([task for both in new.values() for way in both for task in way.tasks])
        for sums, chain in zip(sums_of, chains, strict=True):
            what = f"{chain.computes[0].name} to {chain.computes[-1].name}"
            if sums in first:
                deciding.decide(what, first[sums].how, f"as {first[sums].what}")
                continue
            one, apart = (way.seconds(deciding.machine) for way in new[sums])
            if one is not None and apart is not None:
                why = compared((_TOGETHER, one), (_APART, apart))
                deciding.decide(what, _TOGETHER if apart >= _CLEARLY * one else _APART, why)
                first[sums] = deciding.decisions[-1]
        return [sums not in first or first[sums].how == _TOGETHER for sums in sums_of]

    return wanted


def _sums(computes: Iterable[Compute]) -> object:
    """What tells the sums among ``computes``: what they read and write, by which dims."""
    return tuple(
        (
            *(repr(dim.extent) for dim in compute.dims),
            *(
                repr(replace(v.buffer, name=""))
                for v in (*(o.view for o in compute.operands), compute.out)
            ),
        )
        for compute in computes
        if len(compute.outputs) == 1 and compute.results[0].combiner is not None
    )


@dataclass(frozen=True, eq=False)
class _Way:
    """Kernels of ``tasks`` in the order in which they are launched: one may be there twice."""

    tasks: Tasks

    @classmethod
    def of(
        cls,
        stmts: Sequence[Stmt],
        handed: Collection[Buffer],
        constant: Collection[Buffer],
        chains: Wanted | None = None,
    ) -> _Way:
        """Those that ``stmts`` become by themselves."""
        computes = [stmt for stmt in stmts if not isinstance(stmt, Allocate)]
        if not computes:
            return cls(())
        item = item_of(Block(tuple(computes)))
        touched = dict.fromkeys(buffer for stmt in computes for buffer in _by_name(stmt))
        params = [Param(b, item.access(b)) for b in touched if b in handed]
        inside = [Allocate(b) for b in touched if b not in handed]
        cut = cut_graph(Kernel("part", tuple(params), Block((*inside, *computes))), chains)
        names = packable(cut, [b.name for b in touched if b in constant])
        numbers = [launch.kernel for launch in launches(cut.steps)]
        return cls([(cut.kernels[number], names[number]) for number in numbers])

    def seconds(self, machine: Machine) -> float | None:
        """What they are predicted to take; None where one has no prediction, or there is none."""
        times = [predicted_seconds(kernel, machine, constant) for kernel, constant in self.tasks]
        whole = sum(time for time in times if time is not None) + BETWEEN * len(times)
        return whole if times and None not in times else None


def _by_name(stmt: Stmt) -> list[Buffer]:
    """The buffers in ``stmt``."""
    return sorted(buffers_in(stmt), key=lambda buffer: buffer.name)

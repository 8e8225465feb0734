"""A graph as steps: which kernels run, on which buffers, and the control around them.

The statements at the top of a graph, and those inside of its `while` and `if` around computes, are
cut into groups (`fusing`). Each becomes a kernel under canonical names
(`canonical`); equal ones are one. Results go into operands that are not needed any more
(`in_place`).
A `while` or `if` whose condition depends on data asks a kernel of its own, which leaves the
condition in a flag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilewright.dtypes import boolean
from tilewright.graph import in_place
from tilewright.graph.canonical import canonical
from tilewright.graph.fusing import Judge, fused, handed, kernel_of
from tilewright.graph.launches import Launch
from tilewright.graph.relabels import relabeled, without_relabels
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.computes import addressing
from tilewright.ir.expr import const
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Compute,
    For,
    If,
    Kernel,
    Let,
    Opaque,
    Stmt,
    Store,
    While,
)
from tilewright.ir.uses import accesses, buffers_in
from tilewright.ir.visit import block, walk_stmts
from tilewright.recipes.tiled import in_tiles
from tilewright.runtime.steps import HostStep, IfStep, WhileStep, launches, map_steps
from tilewright.schedule.queries.access import buffers_allocated
from tilewright.schedule.queries.cutting import Members, products_of
from tilewright.schedule.queries.flow import Item, Items, item_of
from tilewright.schedule.queries.place import fresh, sequence

# Products that may be one, and bytes between them that come back from beyond a worker's part of the
# last cache.
_MOST, _LARGE = 3, 1 << 24
# Conditions hold where there is true in a buffer.
GraphStep = HostStep[Launch, Buffer]


@dataclass(frozen=True, eq=False)
class Cut:
    """A graph in ``steps`` over ``kernels``. ``between`` are the buffers that are neither arguments
    nor constants of the graph: what one step leaves to another. ``loops`` are those of them that
    are allocated inside of each loop, in the order of the text: what is in them does not last from
    one iteration to the next."""

    graph: Kernel
    kernels: tuple[Kernel, ...]
    steps: tuple[GraphStep, ...]
    between: tuple[Buffer, ...]
    loops: tuple[frozenset[Buffer], ...] = ()


@dataclass(eq=False)
class Group:
    """Statements that become a launch; ``home`` is the number of the block they stand in."""

    stmts: list[Stmt]
    home: int
    contracts: bool = False


_Step = HostStep[Group, Buffer]


@dataclass(frozen=True, eq=False)
class Products:
    """Statements with products that are chained; others touch the ``handed`` buffers, too."""

    stmts: Sequence[Stmt]
    handed: Collection[Buffer]

    @property
    def computes(self) -> list[Compute]:
        """Those among the statements."""
        return [stmt for stmt in self.stmts if isinstance(stmt, Compute)]


# Which of several are one group.
Wanted = Callable[[Sequence[Products]], Sequence[bool]]


def cut_graph(graph: Kernel, wanted: Wanted | None = None, judge: Judge | None = None) -> Cut:
    """``graph`` in groups, chains of products if they are ``wanted`` (default: all), and what else
    is faster as one to ``judge`` (default: what shares a loop). Kernels take the numbers that sizes
    of theirs depend on."""
    return _Cutting(graph, wanted, judge).run()


def groups_in(
    graph: Kernel, wanted: Wanted | None = None, judge: Judge | None = None
) -> tuple[Group, ...]:
    """The statements of each launch of `cut_graph`, in the same order."""
    return tuple(launches(_Cutting(graph, wanted, judge).groups()))


class _Cutting:
    def __init__(self, graph: Kernel, wanted: Wanted | None, judge: Judge | None) -> None:
        self.graph, self.wanted, self.judge = graph, wanted, judge
        self.params = {param.buffer for param in graph.arrays}
        self.names = {param.name for param in graph.params}
        self.numbers = graph.scalars
        self.scalars = frozenset(param.var for param in self.numbers)
        # Where each buffer is allocated, in order.
        self.homes: dict[Buffer, int] = {}
        # How many groups touch each buffer, and conditions that look at it.
        self.touches: Counter[Buffer] = Counter()
        # What is allocated inside of each loop.
        self.loops: list[frozenset[Buffer]] = []
        self.kernels: dict[str, tuple[int, Kernel]] = {}
        # Of launches, by identity: what those copy that only give memory another shape, and what
        # each writes.
        self.relabels: dict[int, tuple[Buffer, Buffer]] = {}
        self.writes: dict[int, frozenset[Buffer]] = {}
        self._blocks = 0
        self.names |= {
            stmt.buffer.name for stmt in walk_stmts(graph.body) if isinstance(stmt, Allocate)
        }

    def groups(self) -> tuple[_Step, ...]:
        return self._steps(self.graph.body)

    def run(self) -> Cut:
        groups = self.groups()
        for group in launches(groups):
            self.touches.update(_touched(group))
        steps = without_relabels(
            map_steps(groups, self._launch, lambda flag: flag),
            self.relabels,
            tuple(self.homes),
            self.writes,
        )
        used = {buffer for launch in launches(steps) for buffer in launch.buffers}
        between = tuple(buffer for buffer in self.homes if buffer in used)
        kernels = tuple(kernel for _, kernel in self.kernels.values())
        # Some were those of copies that no step makes.
        needed = sorted({launch.kernel for launch in launches(steps)})
        if len(needed) < len(kernels):
            numbers = {old: new for new, old in enumerate(needed)}
            kernels = tuple(kernels[number] for number in needed)
            steps = map_steps(steps, lambda step: step.of(numbers[step.kernel]), lambda f: f)
        loops = tuple(inside & used for inside in self.loops)
        return Cut(self.graph, kernels, steps, between, loops)

    # Groups.

    def _steps(self, body: Stmt | None) -> tuple[_Step, ...]:
        if body is None:
            return ()
        home = self._blocks
        self._blocks += 1
        steps: list[_Step] = []
        run: list[Stmt] = []
        stmts = list(_flat(body))
        if any(isinstance(stmt, Let) for stmt in stmts):
            # What is named for the rest of the block holds for all of it.
            return (Group(stmts, home),)
        runs: list[list[Stmt] | Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, Allocate):
                self.homes[stmt.buffer] = home
            elif is_control(stmt) or relabeled(stmt) is not None:
                runs += [run, stmt] if run else [stmt]
                run = []
            else:
                run.append(stmt)
        runs += [run] if run else []
        # How many of the runs touch each buffer.
        touching = Counter[Buffer]()
        for part in runs:
            touching.update(buffers_in(part) if isinstance(part, Stmt) else _of_all(part))
        for part in runs:
            if isinstance(part, list):
                steps += self._run(part, home, touching)
            elif not is_control(part):
                steps.append(Group([part], home))
            else:
                steps += self._control(part, home)
        return tuple(steps)

    def _run(self, stmts: Sequence[Stmt], home: int, touching: Counter[Buffer]) -> Iterator[Group]:
        items = Items(item_of(stmt, self.scalars) for stmt in stmts)
        local = frozenset(
            b for b in _touched_by(items) if self.homes.get(b) == home and touching[b] == 1
        )

        def wanted(chains: Sequence[tuple[int, ...]]) -> Sequence[bool]:
            if self.wanted is None:
                return [True] * len(chains)
            return self.wanted(
                [
                    Products([items[n].stmt for n in members], handed(members, items, local))
                    for members in chains
                ]
            )

        # Products that are chained are scheduled for numbers only.
        products = not self.scalars
        whole = products_of(items, local, self.names, chains=products, wanted=wanted)
        cut = fused(items, local, whole, self.judge if products else None)
        if products:
            cut = list(_in_tiles(cut, items, local))
        bodies = [[items[n].stmt for n in members.items] for members in cut]
        for members, group in zip(cut, in_place.Run(bodies, local).in_place(), strict=True):
            if group:
                yield Group(group, home, members.contraction is not None)

    def _control(self, stmt: Stmt, home: int) -> tuple[_Step, ...]:
        assert isinstance(stmt, While | If)
        name = fresh("flag", self.names)
        self.names.add(name)
        flag = buffer(name, boolean, (1,))
        self.homes[flag] = home
        self.touches[flag] += 1
        condition = Group([Store(flag, (const(0),), stmt.condition, stmt.span)], home)
        if isinstance(stmt, While):
            loop, outside = len(self.loops), len(self.homes)
            self.loops.append(frozenset())
            body = self._steps(stmt.body)
            self.loops[loop] = frozenset(list(self.homes)[outside:])
            return (WhileStep((condition,), flag, body),)
        return (condition, IfStep(flag, self._steps(stmt.then), self._steps(stmt.orelse)))

    def _launch(self, group: Group) -> Launch:
        item = item_of(block(*group.stmts), self.scalars)
        params: list[tuple[Buffer, str]] = []
        inside: list[Buffer] = []
        for touched in _touched(group):
            if touched not in self.params:
                here = self.homes.get(touched)
                if here is None:
                    continue  # it is allocated inside
                if self.touches[touched] == 1 and here == group.home:
                    inside.append(touched)
                    continue
            params.append((touched, item.access(touched)))
        kernel, numbers = canonical(_kind(group), group.stmts, params, inside, self.numbers)
        text = to_text(kernel)
        number, _ = self.kernels.setdefault(text, (len(self.kernels), kernel))
        nodes = [node for stmt in group.stmts for node in walk_stmts(stmt)]
        computes = tuple(node.name for node in nodes if isinstance(node, Compute | Opaque))
        span = next((stmt.span for stmt in group.stmts if stmt.span is not None), None)
        launch = Launch(number, tuple(buffer for buffer, _ in params), computes, span, numbers)
        self.writes[id(launch)] = frozenset(b for b, access in params if access != "in")
        pair = relabeled(group.stmts[0]) if len(group.stmts) == 1 else None
        if pair is not None:
            self.relabels[id(launch)] = pair
        return launch


def _in_tiles(cut: Sequence[Members], items: Items, local: frozenset[Buffer]) -> Iterator[Members]:
    """``cut``, where products that hand on more than stays in a cache are one, if a tile of the
    last can be made of tiles of the others: then predicted times say whether it is."""
    runs: list[list[Members]] = []
    for members in cut:
        if runs and len(runs[-1]) < _MOST and _passed(runs[-1][-1], members, items, local):
            runs[-1].append(members)
        else:
            runs.append([members])
    for run in runs:
        between = [_passed(a, b, items, local) for a, b in pairwise(run)]
        one = Members(tuple(n for members in run for n in members.items), run[-1].contraction)
        if sum(between) > _LARGE and in_tiles(kernel_of(one.items, items, local)):
            yield one
        else:
            yield from run


def _passed(one: Members, other: Members, items: Items, local: frozenset[Buffer]) -> int:
    """Bytes that a product ``one`` makes for ``other`` alone, which are no less than what both come
    from or lead to; 0 where there is something else between them."""
    if one.contraction is None or other.contraction is None:
        return 0
    written = frozenset[Buffer]().union(*(items[n].writes for n in one.items))
    read = frozenset[Buffer]().union(*(items[n].reads for n in one.items)) - written
    results = frozenset[Buffer]().union(*(items[n].writes for n in other.items))
    wanted = frozenset[Buffer]().union(*(items[n].reads for n in other.items))
    between = (written & wanted) - handed((*one.items, *other.items), items, local)
    passed = sum(buffer.bytes for buffer in between)
    return passed if passed >= min(_largest(read), _largest(results)) else 0


def _largest(buffers: Iterable[Buffer]) -> int:
    """Bytes of the largest of ``buffers``; 0 where there are none."""
    return max((buffer.bytes for buffer in buffers), default=0)


def is_control(stmt: Stmt) -> bool:
    """Whether ``stmt`` chooses or repeats computes."""
    if not isinstance(stmt, While | If):
        return False
    return any(isinstance(node, Compute | Opaque) for node in walk_stmts(stmt))


def _flat(body: Stmt) -> Iterator[Stmt]:
    """The statements of a block; those of blocks in it, too."""
    for stmt in sequence(body):
        if isinstance(stmt, Block):
            yield from _flat(stmt)
        else:
            yield stmt


def _of_all(stmts: Iterable[Stmt]) -> set[Buffer]:
    return set[Buffer]().union(*map(buffers_in, stmts))


def _touched_by(items: Iterable[Item]) -> Iterator[Buffer]:
    for item in items:
        yield from item.touches


def _touched(group: Group) -> list[Buffer]:
    """The buffers of a group that are not allocated inside it, in the order of its text."""
    inside = set[Buffer]().union(*map(buffers_allocated, group.stmts))
    nodes = (node for stmt in group.stmts for node in walk_stmts(stmt))
    touched = dict.fromkeys(buffer for node in nodes for buffer, _ in accesses(node))
    return [buffer for buffer in touched if buffer not in inside]


def _kind(group: Group) -> str:
    """What its kernel is called."""
    if group.contracts:
        return "contraction"
    nodes = [node for stmt in group.stmts for node in walk_stmts(stmt)]
    opaque = next((node.name for node in nodes if isinstance(node, Opaque)), None)
    if opaque is not None:
        return opaque
    computes = [node for node in nodes if isinstance(node, Compute)]
    if not computes:
        return "loops" if any(isinstance(node, For | While) for node in nodes) else "scalars"
    if any(addressing(compute) for compute in computes):
        return "gather"
    results = [result for compute in computes for result in compute.results]
    combined = any(result.combiner is not None for result in results)
    return "reduction" if combined or any(c.is_ordered for c in computes) else "elementwise"

"""Kernels of many computes, cut into groups that are scheduled one by one.

    kernel perceptron(x, w1, b1, w2, y):            kernel perceptron_1(x, w1, b1, hidden)
      alloc hidden                              ->    bias, first, relu as one contraction
      bias, first, relu, clear, second              kernel perceptron_2(hidden, w2, y)
                                                      clear, second as one contraction

`queries.cutting` has the rule. Each group is outlined as a kernel of its own, and what became of
them is put together again, one after the other. A loop of the host with contractions in it is cut
inside: its groups take its counter as a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from math import prod
from types import MappingProxyType

from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts, starting_from
from tilewright.ir.buffer import Buffer, Layout, Space, row_major
from tilewright.ir.expr import Const, Expr, const
from tilewright.ir.stmt import Allocate, For, Kernel, Let, LoopKind, Param, ScalarParam, Stmt, View
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import block, replace_buffer
from tilewright.schedule.queries.access import buffers_allocated, readdress
from tilewright.schedule.queries.cutting import Members, in_rows, products_of
from tilewright.schedule.queries.flow import Item, flow, item_of
from tilewright.schedule.queries.place import sequence
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify_kernel


@dataclass(frozen=True, eq=False)
class Group:
    """A part of a kernel as a kernel of its own; ``contracts``: it is a contraction, in the form of
    `contractions`. ``alone`` names the inputs that no other group reads. ``loops`` of the host are
    around it, the outermost first."""

    kernel: Kernel
    contracts: bool
    alone: tuple[str, ...]
    loops: tuple[For, ...] = ()


@dataclass(frozen=True, eq=False)
class Cut:
    """A kernel in groups. ``between`` are the buffers that one group leaves to another."""

    kernel: Kernel
    between: tuple[Buffer, ...]
    groups: tuple[Group, ...]

    @property
    def whole(self) -> bool:
        """Whether the one group is all of the kernel."""
        return len(self.groups) == 1 and not self.groups[0].loops

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of the groups, in order."""
        return tuple(group.kernel for group in self.groups)

    def together(
        self, kernels: Sequence[Kernel], packed: Mapping[str, int] = MappingProxyType({})
    ) -> Kernel:
        """The kernel that does what ``kernels``, which became of the groups, do in turn;
        ``packed`` names the arguments that some of them take packed, and says how many arrays they
        take instead of each."""
        params: dict[str, tuple[Param, ...]] = {}
        shapes: list[list[tuple[Buffer, Buffer]]] = []
        for group, kernel in zip(self.groups, kernels, strict=True):
            taken = iter(kernel.arrays)
            shapes.append([])
            for old in group.kernel.arrays:
                if old.name in packed:
                    params[old.name] = tuple(islice(taken, packed[old.name]))
                else:
                    shapes[-1].append((old.buffer, next(taken).buffer))
        # No division by sizes that a call passes: of these, all groups take the memory in one dim.
        flat = {
            old: replace(old, sizes=(old.layout.span,), layout=row_major((old.layout.span,)))
            for old, new in chain.from_iterable(shapes)
            if new is not old and old.symbols
        }
        allocated: list[Stmt] = []
        bodies: list[_Looped] = []
        for group, kernel, pairs in zip(self.groups, kernels, shapes, strict=True):
            body = kernel.body
            for first, buffer in pairs:
                if buffer is not (wanted := flat.get(first, first)):
                    body = reshaped(body, buffer, wanted)
            held, before, body = _apart(self.kernel, body)
            allocated += held
            bodies += [(group.loops, stmt) for stmt in (*before, body)]
        return simplify_kernel(
            replace(
                self.kernel,
                params=tuple(
                    new
                    for p in self.kernel.params
                    for new in params.get(p.name, (_in_shape(p, flat),))
                ),
                body=block(
                    *(Allocate(flat.get(memory, memory)) for memory in self.between),
                    *allocated,
                    *_in_loops(bodies),
                ),
            )
        )


def cut(kernel: Kernel, products: bool = False) -> Cut:
    """The groups of ``kernel``; one, as it is, where there is no contraction. With ``products``,
    those that are chained are one."""
    cut_parts = _parts(kernel, products)
    if len(cut_parts.parts) <= 1 and not any(part.contracts for part in cut_parts.parts):
        inputs = tuple(p.name for p in kernel.arrays if p.access == "in")
        return Cut(kernel, (), (Group(kernel, False, inputs),))
    parts, homes = cut_parts.parts, cut_parts.homes
    crossing = _crossing(homes, parts)
    for buffer in [b for b in crossing if b.space is not Space.GLOBAL]:
        shared = replace(buffer, space=Space.GLOBAL)
        parts = [replace(part, stmt=replace_buffer(part.stmt, buffer, shared)) for part in parts]
        crossing[crossing.index(buffer)] = shared
    touched = [buffers_in(part.stmt) for part in parts]
    groups: list[Group] = []
    for number, part in enumerate(parts, 1):
        outlined = _outlined(f"{kernel.name}_{number}", part, list(homes), crossing)
        if len(parts) == 1 and not part.loops:
            # It is called like the kernel, whatever it does not touch.
            outlined = replace(kernel, body=outlined.body)
        mine = [p for p in outlined.arrays if sum(p.buffer in buffers for buffers in touched) == 1]
        alone = tuple(p.name for p in mine if p.access == "in")
        groups.append(Group(outlined, part.contracts, alone, part.loops))
    return Cut(kernel, tuple(crossing), tuple(groups))


@dataclass(frozen=True, eq=False)
class _Part:
    """What becomes a group: statements of ``kernel``, which takes the counters of ``loops``."""

    stmt: Stmt
    contracts: bool
    kernel: Kernel
    loops: tuple[For, ...] = ()


@dataclass(frozen=True, eq=False)
class _Parts:
    """The parts of a block, in order, and the loops in which each buffer is allocated."""

    parts: list[_Part]
    homes: dict[Buffer, tuple[For, ...]]


def _parts(kernel: Kernel, products: bool, loops: tuple[For, ...] = ()) -> _Parts:
    """The parts of ``kernel``, inside of ``loops``; none where a let at the top stands for all that
    follows: no group can do without."""
    allocated, items = flow(kernel)
    homes = dict.fromkeys(allocated, loops)
    if any(isinstance(item.stmt, Let) for item in items):
        return _Parts([], homes)
    names = {param.name for param in kernel.params}
    runs: list[list[Item] | _Parts] = [[]]
    for item in items:
        inside = _inside(kernel, item.stmt, products, loops)
        if inside is not None:
            runs += [inside, []]
        else:
            runs[-1].append(item)  # type: ignore[union-attr]
    touching = Counter(b for run in runs for b in _touched(run))
    parts: list[_Part] = []
    for run in runs:
        if isinstance(run, _Parts):
            parts += run.parts
            homes |= run.homes
            continue
        buffers = [buffer for buffer in allocated if touching[buffer] <= 1]
        with starting_from(Facts.of(kernel)):
            whole = products_of(run, frozenset(buffers), names, chains=products)
        for members in in_rows(run, whole):
            contracts = members.contraction is not None
            parts.append(_Part(_stmts(members, run), contracts, kernel, loops))
    return _Parts(parts, homes)


def _inside(kernel: Kernel, stmt: Stmt, products: bool, loops: tuple[For, ...]) -> _Parts | None:
    """The parts of a loop of the host whose body has contractions; of others None."""
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.SERIAL:
        return None
    if not isinstance(stmt.extent, Const):
        return None
    counter = ScalarParam(stmt.var, 0, int(stmt.extent.value) - 1)
    inner = replace(kernel, params=(*kernel.params, counter), body=stmt.body)
    parts = _parts(inner, products, (*loops, stmt))
    return parts if any(part.contracts for part in parts.parts) else None


def _touched(run: Sequence[Item] | _Parts) -> Set[Buffer]:
    if isinstance(run, _Parts):
        return frozenset[Buffer]().union(*(buffers_in(part.stmt) for part in run.parts))
    return frozenset[Buffer]().union(*(item.touches for item in run))


# A statement, and the loops around it.
_Looped = tuple[tuple[For, ...], Stmt]


def _in_loops(stmts: Sequence[_Looped], depth: int = 0) -> list[Stmt]:
    """``stmts`` in their loops, of which the first ``depth`` are around all of them."""
    parts: list[Stmt] = []
    for loop, members in groupby(
        stmts, lambda entry: entry[0][depth] if entry[0][depth:] else None
    ):
        inside = list(members)
        if loop is None:
            parts += [stmt for _, stmt in inside]
        else:
            parts.append(replace(loop, body=block(*_in_loops(inside, depth + 1))))
    return parts


@transform
def as_contraction(kernel: Kernel) -> Kernel:
    """A kernel that is one contraction, in the form that recipes take.

        compute bias(m, h): hidden[m, h] = b[h]
        compute first(m, h, k): hidden[m, h] add= x[m, k] * w[k, h]
        compute relu(m, h): hidden[m, h] = max(hidden[m, h], 0.0)
    ->  as_contraction()
        alloc acc
        compute init(m, n): acc[m, n] = 0.0
        compute main(m, n, k): acc[m, n] add= a * b
        compute epilogue(m, n): hidden[m, n] = max(b[n] + acc[m, n], 0.0)

    Dims are called by the part that they play: ``batch``, ``m``, ``n``, ``k``, further ones by
    number. Refuses with `ScheduleError` what is no contraction, or more than one.
    """
    cutting = cut(kernel)
    if cutting.whole and cutting.groups[0].contracts:
        return cutting.groups[0].kernel
    names = ", ".join(group.kernel.name for group in cutting.groups)
    raise refusal(
        f"{kernel.name} is not one contraction",
        kernel,
        "cut it into its groups first" if len(cutting.groups) > 1 else "use other transforms",
        why=f"it has several groups: {names}"
        if len(cutting.groups) > 1
        else "it has no sum of products",
    )


def _stmts(members: Members, items: Sequence[Item]) -> Stmt:
    """What the members of a group do."""
    if members.contraction is not None:
        return block(*members.contraction.stmts)
    return block(*(items[n].stmt for n in members.items))


def _crossing(homes: Mapping[Buffer, tuple[For, ...]], parts: Sequence[_Part]) -> list[Buffer]:
    """The buffers of the kernel's own that several groups touch, or one in a loop after which they
    are there."""
    touched = [(buffers_in(part.stmt), part.loops) for part in parts]
    return [
        b
        for b, home in homes.items()
        if len(where := [loops for buffers, loops in touched if b in buffers]) > 1
        or any(loops != home for loops in where)
    ]


def _outlined(
    name: str, part: _Part, allocated: Sequence[Buffer], crossing: Sequence[Buffer]
) -> Kernel:
    """What ``part`` does as a kernel of its own, whose parameters are what it shares with others,
    and all that a call passes beside arrays."""
    kernel, item = part.kernel, item_of(part.stmt)
    params: list[Param | ScalarParam] = [*kernel.scalars]
    for buffer in [*(p.buffer for p in kernel.arrays), *crossing]:
        if buffer in item.touches:
            params.append(Param(buffer, item.access(buffer)))
    inside = item.touches - buffers_allocated(part.stmt)
    allocates = [Allocate(b) for b in allocated if b in inside and b not in crossing]
    return Kernel(name, tuple(params), block(*allocates, part.stmt), kernel.notes)


def _apart(kernel: Kernel, body: Stmt) -> tuple[list[Stmt], list[Stmt], Stmt]:
    """Of ``body``, the allocations that are the ``kernel``'s own in memory that all workers reach
    (of what goes into a prologue's results), what fills them, and the rest: each runs where no
    launch is around it."""
    names = {buffer.name for buffer in flow(kernel)[0]}
    held: list[Stmt] = []
    left: list[Stmt] = []
    for part in sequence(body):
        buffer = part.buffer if isinstance(part, Allocate) else None
        is_own = buffer is not None and buffer.name in names and buffer.space is Space.GLOBAL
        (held if is_own else left).append(part)
    if not held:
        return [], [], body
    first = next((n for n, part in enumerate(left) if isinstance(part, Allocate)), len(left) - 1)
    return held, left[:first], block(*left[first:])


def _in_shape(param: Param | ScalarParam, flat: Mapping[Buffer, Buffer]) -> Param | ScalarParam:
    """``param`` as all groups take it."""
    if isinstance(param, ScalarParam):
        return param
    return replace(param, buffer=flat.get(param.buffer, param.buffer))


def reshaped(stmt: Stmt, new: Buffer, old: Buffer) -> Stmt:
    """``stmt`` on ``old`` instead of ``new``, the same memory in another shape."""

    def change(view: View) -> View:
        offset = new.layout.offset_of(view.index)
        index = (offset,) if old.symbols else index_at(old.layout, old.rank, offset)
        return View(old, index, view.mask)

    return readdress(stmt, new, change)


def index_at(layout: Layout, rank: int, offset: Expr) -> tuple[Expr, ...]:
    """The index of the element at ``offset``, the inverse of `Layout.offset_of`. Raises
    `ScheduleError` for a layout in which elements are not nested."""
    exprs: list[Expr] = [const(0)] * rank
    rest, reach = offset - layout.offset, 0
    # Where a block of one element lies says nothing: its stride may be anything.
    blocks = [layout_block for layout_block in layout.blocks if layout_block.size != 1]
    for layout_block in sorted(blocks, key=lambda b: b.stride):
        if layout_block.stride <= reach or layout.swizzle is not None:
            raise ScheduleError(
                "elements of the layout cannot be told by where they lie",
                where=str(layout),
                why="a schedule gave its buffer another shape, and another group wants the first",
                cure="choose a layout whose dims do not run into each other",
            )
        reach += (layout_block.size - 1) * layout_block.stride
    for position, layout_block in sorted(enumerate(blocks), key=lambda pair: -pair[1].stride):
        inside = prod(b.size for b in blocks[position + 1 :] if b.dim == layout_block.dim)
        exprs[layout_block.dim] = exprs[layout_block.dim] + rest // layout_block.stride * inside
        rest = rest % layout_block.stride
    return tuple(exprs)

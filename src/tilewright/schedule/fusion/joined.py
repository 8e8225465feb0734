"""Several kernels as one that does what they do, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tilewright.errors import FusionError
from tilewright.facts.scope import Facts, starting_from
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.renaming import with_distinct_names
from tilewright.ir.stmt import Allocate, Call, For, Kernel, LoopKind, Param, ScalarParam, Stmt
from tilewright.ir.visit import block, walk_stmts
from tilewright.schedule.fusion.launched import Launched, in_one_nest, launched
from tilewright.schedule.fusion.members import ANY, LOCAL, NONE, PRIVATE, Fusion
from tilewright.schedule.fusion.names import named_apart, names_bound
from tilewright.schedule.fusion.owners import Reach, apart, reaches
from tilewright.schedule.fusion.parameters import Unified, unified, without
from tilewright.schedule.fusion.promotion import (
    Part,
    described,
    on_parts,
    part_of,
    scopes_tried,
)
from tilewright.schedule.fusion.raised import raised
from tilewright.schedule.fusion.straightened import flat, straightened
from tilewright.schedule.queries.place import Place, sequence
from tilewright.simplify import simplify_kernel

_BARRIER = Call("barrier", ())
# Memory that computes hand on in a kernel of its own.
INSIDE = "inside"


class Users(NamedTuple):
    """The members that read memory, and those that write it, counted from 0."""

    readers: frozenset[int]
    writers: frozenset[int]


@dataclass(frozen=True)
class Memory:
    """What became of memory of the members: ``promoted`` is a scope, `INSIDE` where it is the fused
    kernel's own, or None where it stays a parameter; ``why`` in words."""

    name: str
    buffer: Buffer
    promoted: str | None
    why: str
    users: Users


@dataclass(frozen=True, eq=False)
class Joined:
    """The fused ``kernel``, what became of ``memories``, and the members before which a barrier
    stands, counted from 0."""

    kernel: Kernel
    memories: tuple[Memory, ...]
    barriers: tuple[int, ...]


def joined(fusion: Fusion) -> Joined:
    """The kernel that does what the members of ``fusion`` do, one after the other.

    Members are nests of work-items, which become one nest, or kernels of computes, which become one
    kernel of computes, with nests among them that are elementwise. `FusionError` for other nests
    beside computes, for ranges that do not fit, for arguments that
    do not, and where an element may be touched by workgroups of which none waits for another.
    """
    together = unified(fusion)
    kernel = Kernel(fusion.name, together.params, block(*together.bodies))
    nests = [launched(body) for body in together.bodies]
    with starting_from(Facts.of(kernel)):
        if all(nest is not None for nest in nests):
            return _nest(fusion, together, [nest for nest in nests if nest is not None])
        return _computes(fusion, replace(together, bodies=_raised(fusion, together, nests)))


def _kernel(fusion: Fusion, params: tuple[Param | ScalarParam, ...], body: Stmt) -> Kernel:
    contents = {d: c for member in fusion.members for d, c in member.kernel.constants.items()}
    used = {param.digest for param in params if isinstance(param, Param)}
    constants = {digest: value for digest, value in contents.items() if digest in used}
    return simplify_kernel(Kernel(fusion.name, params, body, constants=constants))


def _users(together: Unified) -> dict[Buffer, Users]:
    """The arrays of all members, with those that use them."""
    reads: dict[Buffer, set[int]] = {}
    writes: dict[Buffer, set[int]] = {}
    for reach in reaches(together.bodies, Place()):
        users = writes if reach.writes else reads
        users.setdefault(reach.access.view.buffer, set()).add(reach.member)
    return {
        param.buffer: Users(
            frozenset(reads.get(param.buffer, ())), frozenset(writes.get(param.buffer, ()))
        )
        for param in together.params
        if isinstance(param, Param)
    }


# Kernels of computes.


def _raised(
    fusion: Fusion, together: Unified, nests: Sequence[Launched | None]
) -> tuple[Stmt, ...]:
    """The bodies of all members as computes."""
    taken = {param.name for param in together.params}
    for body in together.bodies:
        taken |= names_bound(body)
    bodies: list[Stmt] = []
    for number, (body, nest) in enumerate(zip(together.bodies, nests, strict=True)):
        computes: Stmt | None = body
        if nest is not None:
            computes = raised(nest, fusion.members[number].kernel.name)
            computes = computes and named_apart(computes, taken)
        kinds = [stmt.kind for stmt in walk_stmts(body) if isinstance(stmt, For)]
        if computes is None or (nest is None and LoopKind.GRID in kinds):
            raise FusionError(
                "it is launched in another way than the members beside it",
                where=fusion.where(number),
                why="nests of work-items become one nest, and computes become one kernel of "
                "computes; beside these, a work-item stores elements at its ids, and does no more",
                cure="fuse those in a row that are of one kind",
            )
        bodies.append(computes)
    return tuple(bodies)


def _computes(fusion: Fusion, together: Unified) -> Joined:
    memories: list[Memory] = []
    for buffer, users in _users(together).items():
        scope, why = _wanted(fusion, together, buffer.name, users)
        promoted = None if scope == NONE else INSIDE
        why = why or "computes hand it on inside of the kernel"
        memories.append(Memory(buffer.name, buffer, promoted, why, users))
    inside = [memory.buffer for memory in memories if memory.promoted]
    body = flat(*map(Allocate, inside), *together.bodies)
    params = without(together.params, frozenset(buffer.name for buffer in inside), body)
    return Joined(_kernel(fusion, params, body), tuple(memories), ())


# Nests of work-items.


def _nest(fusion: Fusion, together: Unified, nests: Sequence[Launched]) -> Joined:
    where = [fusion.where(number) for number in range(len(nests))]
    nest, bodies = in_one_nest(nests, where)
    bodies = _straight(nest, bodies, together)
    place = Place()
    steps: tuple[For | Allocate, ...] = (*nest.grid, *nest.shared, *nest.items)
    for step in steps:
        place = place.inside(step)
    users = _users(together)
    reaches_of: dict[Buffer, list[Reach]] = {buffer: [] for buffer in users}
    written: list[set[Buffer]] = [set() for _ in bodies]
    for reach in reaches(bodies, place):
        if reach.writes:
            written[reach.member].add(reach.access.view.buffer)
        if reach.access.view.buffer in reaches_of:
            reaches_of[reach.access.view.buffer].append(reach)
    parts: dict[Buffer, Part] = {}
    memories: list[Memory] = []
    for buffer, its_users in users.items():
        scope, why = _wanted(fusion, together, buffer.name, its_users)
        promoted = None
        if scope != NONE:
            promoted, why, part = _promoted(
                fusion, nest, buffer, scope, reaches_of[buffer], written
            )
            if part is not None:
                parts[buffer] = part
        memories.append(Memory(buffer.name, buffer, promoted, why, its_users))
    barriers = _barriers(fusion, nest, reaches_of, {m.buffer: m.promoted for m in memories})
    body = _assembled(nest, place, bodies, parts, barriers)
    params = without(together.params, frozenset(b.name for b in parts), body)
    return Joined(_kernel(fusion, params, body), tuple(memories), barriers)


def _straight(nest: Launched, bodies: Sequence[Stmt], together: Unified) -> list[Stmt]:
    """``bodies`` with each name in them defined once."""
    taken = {param.name for param in together.params} | {loop.var.name for loop in nest.owners}
    for body in bodies:
        taken |= names_bound(body)
    return [flat(with_distinct_names(body, taken)) for body in bodies]


def _wanted(fusion: Fusion, together: Unified, name: str, users: Users) -> tuple[str, str]:
    """The scope that was asked for memory of that name, and why there is none.

    Memory has that of ``fusion.promote``, or the one that all members give that use it. Where one
    gives none, there is none.
    """
    scopes = {name: fusion.promote[name]} if name in fusion.promote else {}
    for number, (member, names) in enumerate(zip(fusion.members, together.memories, strict=True)):
        for param, memory in names.items():
            if memory == name and (param in member.promote or name not in fusion.promote):
                scopes[fusion.where(number)] = member.promote.get(param, NONE)
    different = sorted(set(scopes.values()))
    if not users.writers:
        return NONE, "no member writes it"
    if len(different) == 1:
        return different[0], "" if different != [NONE] else "it may be read afterwards"
    if {PRIVATE, LOCAL} <= set(different):
        raise FusionError(
            f"{name} is promoted to private memory and to local memory",
            where=", ".join(f"{scope} by {place}" for place, scope in scopes.items()),
            why="a work-item's own memory is not that of its workgroup",
            cure="ask for one of the two",
        )
    if NONE in different:
        plain = next(place for place, scope in scopes.items() if scope == NONE)
        return NONE, f"it may be read afterwards: {plain} gives it no scope"
    return next(value for value in different if value != ANY), ""


def _promoted(
    fusion: Fusion,
    nest: Launched,
    buffer: Buffer,
    scope: str,
    touches: Sequence[Reach],
    written: Sequence[set[Buffer]],
) -> tuple[str | None, str, Part | None]:
    refused = ""
    for tried in scopes_tried(scope):
        owners = nest.owners if tried == PRIVATE else nest.grid
        try:
            part = part_of(buffer, tried, touches, owners, written, fusion.trust)
        except FusionError as error:
            refused = f"{error.what}: {error.where}"
            continue
        return tried, "as it is said" if fusion.trust else "proved", part
    return None, refused, None


def _barriers(
    fusion: Fusion,
    nest: Launched,
    touches_of: Mapping[Buffer, Sequence[Reach]],
    promoted: Mapping[Buffer, str | None],
) -> tuple[int, ...]:
    """The members before which a barrier has to stand: as few as the accesses need."""
    needs: dict[int, int] = {}  # the last member that has to be over, by the one that waits
    for a, b in _conflicts(touches_of):
        if promoted[a.access.view.buffer] == PRIVATE or apart(a, b, nest.owners):
            continue
        same_group = promoted[a.access.view.buffer] == LOCAL or apart(a, b, nest.grid)
        if not (same_group and fusion.barriers) and not fusion.trust:
            raise _race(fusion, a, b, same_group)
        if fusion.barriers:
            needs[b.member] = max(needs.get(b.member, 0), a.member)
    barriers: list[int] = []
    for waiting, over in sorted(needs.items()):
        if not any(over < barrier <= waiting for barrier in barriers):
            barriers.append(waiting)
    return tuple(barriers)


def _conflicts(touches_of: Mapping[Buffer, Sequence[Reach]]) -> Iterator[tuple[Reach, Reach]]:
    """Accesses of different members of which one writes: they have to be made in this order."""
    for touches in touches_of.values():
        for a in touches:
            for b in touches:
                atomic = a.access.atomic and b.access.atomic
                free = atomic and a.access.combiner == b.access.combiner
                if a.member < b.member and (a.writes or b.writes) and not free:
                    yield a, b


def _race(fusion: Fusion, a: Reach, b: Reach, same_group: bool) -> FusionError:
    name = a.access.view.buffer.name
    if same_group:
        return FusionError(
            f"an element of {name} goes from one work-item to another without a barrier",
            where=described((a, b)),
            why="of a workgroup, some may be ahead of others",
            cure="leave barriers=False out",
        )
    return FusionError(
        f"an element of {name} may go from one workgroup to another",
        where=described((a, b)),
        why="workgroups of one kernel do not wait for each other",
        cure=f"launch {fusion.where(b.member)} by itself; or, if you know that they never meet, "
        "trust=True",
    )


def _assembled(
    nest: Launched,
    place: Place,
    bodies: Sequence[Stmt],
    parts: dict[Buffer, Part],
    barriers: tuple[int, ...],
) -> Stmt:
    allocates_of = {part.buffer: Allocate(part.buffer) for part in parts.values()}
    private = [s for b, s in allocates_of.items() if b.space is Space.PRIVATE]
    shared = [s for b, s in allocates_of.items() if b.space is Space.WORKGROUP]
    stmts: list[Stmt] = []
    for number, body in enumerate(bodies):
        stmts += [_BARRIER] if number in barriers else []
        stmts += sequence(on_parts(body, place, parts))
    body = straightened(flat(*private, *stmts))
    return replace(nest, shared=(*nest.shared, *shared), body=body).nest()

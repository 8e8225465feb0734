"""Well-formedness of kernels of workgroups: where their loops, memory and calls may stand.

The loops over the work-items of a workgroup are one perfect nest; but where its innermost loop is
over subgroups, `lane` loops may stand anywhere inside. What stands outside of them a subgroup does
as one: instructions on matrices, which its lanes hold together, and control flow that is the same
for all of them.

A *defect* is what is wrong, the cure, and why it is wrong. ``path`` is the statement in question,
with those around it, outermost first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.dtypes import s64
from tilewright.ir.buffer import SHARED, Buffer, Space, has_parts
from tilewright.ir.expr import Const, Expr
from tilewright.ir.functions import (
    Arrive,
    Await,
    AwaitPhase,
    Commit,
    Exchange,
    Fence,
    Function,
    Group,
    Initialize,
    Queue,
    Shuffle,
    StartCopy,
    Synchronize,
    Update,
)
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Block, Call, Compute, For, LoopKind, Stmt, View
from tilewright.ir.visit import walk_stmts

# Loops over the work-items of a workgroup, in the order in which they may nest.
THREADS = (LoopKind.WORKGROUP, LoopKind.SUBGROUP, LoopKind.LANE)
# Loops that start threads or workgroups cannot run inside one instruction of another loop.
_LAUNCHES = frozenset({LoopKind.PARALLEL, LoopKind.GRID, LoopKind.CLUSTER})
_INSIDE_VECTOR = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTOR})


class Defect(NamedTuple):
    """What is wrong, how to mend it, and why it is wrong."""

    what: str
    cure: str
    why: str | None = None


def may_nest(inner: LoopKind, outer: LoopKind) -> bool:
    """Whether a loop of kind ``inner`` may stand inside one of kind ``outer``."""
    if outer is LoopKind.VECTOR:
        return inner in _INSIDE_VECTOR
    if outer in THREADS:
        in_order = inner not in THREADS or THREADS.index(inner) >= THREADS.index(outer)
        return in_order and inner not in _LAUNCHES
    if outer is LoopKind.CLUSTER:
        return inner is not LoopKind.GRID
    return outer is not LoopKind.UNROLLED or inner not in _LAUNCHES


def in_threads(path: Sequence[Stmt]) -> bool:
    """Whether work-items run the last statement of ``path``: a loop over them is around it."""
    return any(isinstance(stmt, For) and stmt.kind in THREADS for stmt in path[:-1])


def loop_defect(path: Sequence[Stmt]) -> Defect | None:
    """What is wrong with the kind of a loop, where it stands."""
    loop = path[-1]
    assert isinstance(loop, For)
    kind = loop.kind.value
    if not isinstance(loop.extent, Const) and (
        loop.kind is LoopKind.VECTOR or loop.kind in THREADS
    ):
        cure = f"split the loop by a constant, and make the inner one a {kind} loop"
        return Defect(f"a {kind} loop's extent is `{to_text(loop.extent)}`", cure)
    for outer in path[:-1]:
        if isinstance(outer, For) and not may_nest(loop.kind, outer.kind):
            return Defect(
                f"a {kind} loop cannot run inside a loop that is {outer.kind.value}",
                "exchange the two loops, or make one of them serial",
            )
    if loop.kind is LoopKind.LANE and _by_subgroups(path):
        return _lanes_defect(path)
    if loop.kind in THREADS and in_threads(path) and not _next_to_threads(path):
        return Defect(
            f"the {kind} loop over {loop.var.name} is part of what work-items run",
            "move it outwards, next to the other loops over work-items",
            "the loops over the work-items of a workgroup are one perfect nest",
        )
    return None


def _by_subgroups(path: Sequence[Stmt]) -> bool:
    """Whether subgroups run the last statement of ``path``: they are the innermost work-items."""
    threads = [s for s in path[:-1] if isinstance(s, For) and s.kind in THREADS]
    return bool(threads) and threads[-1].kind is LoopKind.SUBGROUP


def _lanes_defect(path: Sequence[Stmt]) -> Defect | None:
    loop = path[-1]
    first = next(s for s in path if isinstance(s, For) and s.kind in THREADS)
    assert isinstance(loop, For) and isinstance(loop.extent, Const)
    lanes = {loop.extent for loop in lane_loops(first)}
    if len(lanes) == 1:
        return None
    return Defect(
        f"this lane loop has {loop.extent.value} iterations, another one of the same subgroups "
        f"has {next(to_text(e) for e in lanes if e is not loop.extent)}",
        "give all of them the number of lanes of a subgroup",
        "the lanes of a subgroup are always all there",
    )


def lane_loops(stmt: Stmt) -> list[For]:
    """The loops over lanes in ``stmt``."""
    return [s for s in walk_stmts(stmt) if isinstance(s, For) and s.kind is LoopKind.LANE]


def lanes_inside(stmt: Stmt) -> int:
    """How many lanes the loops over them in ``stmt`` have; 0 where there are none."""
    extents = [loop.extent for loop in lane_loops(stmt)]
    return max((int(e.value) for e in extents if isinstance(e, Const)), default=0)


def _next_to_threads(path: Sequence[Stmt]) -> bool:
    for outer in reversed(path[:-1]):
        if isinstance(outer, For):
            return outer.kind in THREADS
        if not isinstance(outer, Block) or len(outer.body) > 1:
            return False
    return False


def allocation_defect(buffer: Buffer, path: Sequence[Stmt]) -> Defect | None:
    """What is wrong with an allocation, where it stands."""
    if buffer.space is Space.CLUSTER:
        return _parts_defect(buffer, path)
    if buffer.space is not Space.WORKGROUP or not in_threads(path):
        return None
    return Defect(
        f"{buffer.name} is in workgroup memory, but each work-item would have its own",
        "allocate it outside of the loops over work-items, or make it private",
        "what is allocated inside of loops over work-items is not shared",
    )


def sharing_defect(buffer: Buffer, path: Sequence[Stmt]) -> Defect | None:
    """What is wrong with using ``buffer``, which is allocated outside of loops over work-items."""
    if buffer.space is Space.CLUSTER:
        return _cluster_defect(buffer, path)
    if buffer.space is not Space.PRIVATE or not in_threads(path):
        return None
    return Defect(
        f"work-items use {buffer.name}, which is private but allocated for all of them",
        "allocate it inside of the loops over work-items, or in workgroup memory",
        "what is allocated outside of loops over work-items is shared by them",
    )


def clusters_around(path: Sequence[Stmt]) -> list[For]:
    """The loops over the workgroups of a cluster around the last statement of ``path``."""
    return [s for s in path[:-1] if isinstance(s, For) and s.kind is LoopKind.CLUSTER]


def _parts_defect(buffer: Buffer, path: Sequence[Stmt]) -> Defect | None:
    """What is wrong with the allocation of a cluster's memory."""
    if clusters_around(path) or in_threads(path):
        return Defect(
            f"{buffer.name} is in the cluster's memory, but allocated by one of its workgroups",
            "allocate it outside of the cluster loop, inside of the grid's",
            "all of its workgroups have a part of it",
        )
    if has_parts(buffer):
        return None
    return Defect(
        f"the parts of {buffer.name} do not lie one after the other",
        "make the dim that counts workgroups the outermost one, also in memory",
    )


def _cluster_defect(buffer: Buffer, path: Sequence[Stmt]) -> Defect | None:
    """What is wrong with the use of a cluster's memory, where it stands."""
    extent = _cluster_extent(path)
    if extent is None:
        return Defect(
            f"{buffer.name} is in the cluster's memory, but used outside of one cluster loop of "
            "constant extent",
            "use it inside of one loop over the workgroups of a cluster",
        )
    if extent != buffer.shape[0]:
        return Defect(
            f"{buffer.name} has {buffer.shape[0]} parts, but the cluster {extent} workgroups",
            "let its outermost dim count the workgroups",
        )
    return _subgroup_defect(f"the use of {buffer.name}, in the cluster's memory,", path)


def _cluster_extent(path: Sequence[Stmt]) -> int | None:
    """How many workgroups the cluster has; None without one loop of constant extent over them."""
    clusters = clusters_around(path)
    extent = clusters[0].extent if len(clusters) == 1 else None
    return int(extent.value) if isinstance(extent, Const) else None


def call_defect(function: Function, path: Sequence[Stmt]) -> Defect | None:
    """What is wrong with a call whose arguments are well-formed: its place, or their types."""
    call = path[-1]
    assert isinstance(call, Call)
    for effect in function.effects:
        match effect:
            case Synchronize(group=Group.CLUSTER):
                defect = _subgroup_defect(function.name, path) or _in_lanes(function.name, path)
                if defect is None and _cluster_extent(path) is None:
                    defect = Defect(
                        f"{function.name} stands in no cluster of a constant number of workgroups",
                        "put one loop over the workgroups of a cluster around",
                    )
            case Synchronize() if not in_threads(path) and _has_threads(path):
                return Defect(
                    f"{function.name} stands outside of the loops over work-items",
                    "move it inside of them, or leave it out",
                    "there, statements run in order, for the workgroup as a whole",
                )
            case StartCopy():
                defect = _mistyped(function, call, effect.destination, effect.source)
            case Initialize() | Arrive() | AwaitPhase():
                defect = _mbarrier_defect(function, path)
            case Fence():
                defect = _subgroup_defect(function.name, path)
            case Commit() | Await() if effect.queue is not Queue.COPIES:
                defect = _subgroup_defect(function.name, path) or _in_lanes(function.name, path)
            case Update():
                defect = _mistyped(function, call, effect.place, effect.value)
                if defect is None and effect.old is not None:
                    defect = _mistyped(function, call, effect.old, effect.value)
            case Exchange():
                defect = _mistyped(function, call, effect.place, effect.value) or _mistyped(
                    function, call, effect.old, effect.value
                )
                if defect is None and effect.expected is not None:
                    defect = _mistyped(function, call, effect.place, effect.expected)
            case Shuffle():
                defect = _mistyped(function, call, effect.destination, effect.value)
                defect = defect or _no_lanes_defect(function, path)
            case _:
                defect = None
        if defect is not None:
            return defect
    return None


def completion_defect(path: Sequence[Stmt]) -> Defect | None:
    """What is wrong with an asynchronous op whose views are well-formed."""
    compute = path[-1]
    assert isinstance(compute, Compute)
    what, completion = f"the asynchronous op {compute.name}", compute.completion
    defect = _subgroup_defect(what, path) or _in_lanes(what, path)
    if completion is Queue.COPIES:
        return Defect(
            f"{what} joins {completion.value}",
            "join another queue, or signal an mbarrier",
            "these are copies of elements, by work-items",
        )
    if defect is not None or not isinstance(completion, View):
        return defect
    out = compute.out.buffer
    if compute.combiner is not None or compute.out.mask is not None:
        return Defect(
            f"{what} signals an mbarrier, but combines or masks what it writes",
            "write each point, or join a queue",
            "an mbarrier is told the bytes of all points",
        )
    if out.space not in SHARED:
        return Defect(
            f"{what} signals an mbarrier, but writes {out.name}, which is {out.space.value}",
            f"write workgroup memory, or join {Queue.STORES.value}",
        )
    return mbarrier_place_defect(completion)


def mbarrier_place_defect(view: View) -> Defect | None:
    """Why ``view`` cannot be an mbarrier."""
    buffer = view.buffer
    if buffer.dtype is s64 and buffer.space in SHARED and view.mask is None:
        return None
    return Defect(
        f"{to_text(view)} is no mbarrier",
        f"make {buffer.name} an s64 buffer in workgroup memory, and do not mask it",
    )


def _mbarrier_defect(function: Function, path: Sequence[Stmt]) -> Defect | None:
    call = path[-1]
    assert isinstance(call, Call)
    for parameter, arg in zip(function.parameters, call.args, strict=True):
        if isinstance(arg, View):
            defect = mbarrier_place_defect(arg)
            if defect is not None:
                return defect
        elif arg.type is not s64:
            return Defect(f"the {parameter.name} of {function.name} are {arg.type}", "write an s64")
    return _subgroup_defect(function.name, path)


def _subgroup_defect(what: str, path: Sequence[Stmt]) -> Defect | None:
    """Why ``what`` cannot stand at the end of ``path``: only a subgroup as one does it, or its
    lanes in loops over them."""
    threads = [i for i, s in enumerate(path[:-1]) if isinstance(s, For) and s.kind in THREADS]
    for i in threads[1:]:
        loop = path[i]
        assert isinstance(loop, For)
        if loop.kind is LoopKind.LANE and not _next_to_threads(path[: i + 1]):
            return None  # lanes of subgroups
    if threads and _by_subgroups(path):
        return None
    return Defect(
        f"{what} stands where no subgroup acts as one",
        "let a loop over subgroups be the innermost of the nest of work-items",
        "mbarriers, and what runs asynchronously, are a subgroup's",
    )


def _in_lanes(what: str, path: Sequence[Stmt]) -> Defect | None:
    if _by_subgroups(path):
        return None
    return Defect(
        f"{what} stands in a loop over lanes",
        "move it out of the loop",
        "the subgroup does it as one",
    )


def _has_threads(path: Sequence[Stmt]) -> bool:
    """Whether the workgroup that runs the last statement of ``path`` has loops over work-items."""
    grids = [s for s in path if isinstance(s, For) and s.kind in (LoopKind.GRID, LoopKind.CLUSTER)]
    inside = walk_stmts(grids[-1] if grids else path[0])
    return any(isinstance(stmt, For) and stmt.kind in THREADS for stmt in inside)


def _no_lanes_defect(function: Function, path: Sequence[Stmt]) -> Defect | None:
    """Why ``function``, which lanes call together, cannot stand outside of lane loops."""
    if any(isinstance(stmt, For) and stmt.kind is LoopKind.LANE for stmt in path[:-1]):
        return None
    return Defect(
        f"{function.name} stands in no loop over lanes",
        "put it inside of a lane loop, in one over subgroups",
        "the lanes of a subgroup give each other values",
    )


def _mistyped(function: Function, call: Call, written: str, read: str) -> Defect | None:
    types = []
    for name in (written, read):
        arg: View | Expr = call.args[function.position(name)]
        types.append(arg.buffer.dtype if isinstance(arg, View) else arg.type)
    if types[0] is types[1]:
        return None
    return Defect(
        f"{function.name} takes a {written} of {types[0]} and a {read} of {types[1]}",
        f"convert the {read}, or use another buffer",
    )

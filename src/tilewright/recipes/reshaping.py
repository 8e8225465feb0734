"""The dims of a kernel before it is tiled: fused where neighbours are one run, split where strides
are told apart, and by the remainder of a division where that decides which terms count."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain, pairwise, product

from tilewright.facts.affine import difference
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Binary, Const, Expr, conjuncts, var
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import direct_exprs, variables, walk
from tilewright.layout.roles import MAIN
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.reducible import computes_in, counts, kept_dims, reduces
from tilewright.recipes.roles import extents, find_compute, named_after, roles
from tilewright.schedule.dims.phases import congruences
from tilewright.schedule.queries.identity import needed
from tilewright.schedule.queries.place import holds_loop, serial_loops, views_of
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule
from tilewright.tensor.places import divides


def fuse_neighbours(s: KernelSchedule) -> tuple[tuple[str, str, str], ...]:
    """Fuses neighbouring dims that can be one (positions of a 1x1 convolution, and the like), and
    gives them as (outer, inner, name)."""
    splits: list[tuple[str, str, str]] = []
    changed = True
    while changed:
        changed = False
        parts = roles(find_compute(s.kernel, MAIN))
        pairs = [
            pair for dims in (parts.m, parts.n, parts.k, parts.batch) for pair in pairwise(dims)
        ]
        for outer, inner in pairs:
            name = named_after(outer, inner)
            changed = s.attempt(partial(s.fuse_dims, [outer, inner], name))
            if changed:
                splits.append((outer, inner, name))
                break
    return tuple(splits)


def fused(s: KernelSchedule, fuse: tuple[tuple[str, str, str], ...]) -> None:
    """Fuses dims, as (outer, inner, name)."""
    for outer, inner, name in fuse:
        s.fuse_dims([outer, inner], name)


def strided(main: Compute) -> tuple[tuple[str, int], ...]:
    """The innermost position whose neighbours belong to different taps, as where a stride divides:
    split by the stride, all positions of a remainder share theirs."""
    digits: list[tuple[str, int]] = []
    for condition in conjuncts(main.operands[0].view.mask):
        for node in walk(condition):
            if isinstance(node, Binary) and node.op == "mod" and isinstance(node.b, Const):
                names = {v.name for v in variables(node.a)} & set(roles(main).m)
                digits += [(name, int(node.b.value)) for name in names]
    return tuple(sorted(digits, key=lambda pair: roles(main).m.index(pair[0]))[-1:])


def halves(dim: str) -> tuple[str, str]:
    """The dims that ``dim`` is split into: the quotient and the remainder of a division."""
    return named_after(dim, "q"), named_after(dim, "r")


def split_dims(s: KernelSchedule, split: tuple[tuple[str, int], ...]) -> None:
    """Splits dims, as (dim, factor)."""
    for dim, factor in split:
        s.split_dim(dim, factor, *halves(dim))


def with_whole_dims(s: KernelSchedule, *, quotients: bool = True) -> None:
    """Neighbouring dims become one wherever all computes allow it, and no access is harder then:
    none is cut by blocks of its layout, or reached by digits of sizes that a call passes; without
    ``quotients``, of no sizes. What is reduced stays apart from what is kept."""

    def fuse(outer: str, inner: str) -> bool:
        whole, before = named_after(outer, inner), s.kernel
        s.fuse_dims([outer, inner], whole)
        cuts = _cuts(before, outer, inner)
        if not quotients and _quotients(s.kernel) > _quotients(before):
            return False
        if _mixed(s.kernel) > _mixed(before):
            return False
        return _cuts(s.kernel, whole) <= cuts and _digits(s.kernel) <= _digits(before)

    changed = True
    while changed:
        names = ([dim.var.name for dim in compute.dims] for compute in computes_in(s.kernel))
        # What is refused changes nothing: a pair of several computes is tried once.
        pairs = dict.fromkeys(chain.from_iterable(map(pairwise, names)))
        changed = any(s.attempt(partial(fuse, outer, inner)) for outer, inner in pairs)


def _cuts(kernel: Kernel, *dims: str) -> int:
    """In how many views blocks of the layout cut one of ``dims``."""
    return sum(
        any(steps.get(dim, 0) is None for dim in dims)
        for compute in computes_in(kernel)
        for steps in (strides(compute, view) for view in views_of(compute))
    )


def _quotients(kernel: Kernel) -> int:
    """How many indices and values divide integers."""
    exprs = (e for c in computes_in(kernel) for e in direct_exprs(replace(c, dims=())))
    return sum(divides(node) for expr in exprs for node in walk(expr))


def _mixed(kernel: Kernel) -> int:
    """In how many places a dim that is reduced is counted with one that is kept: rows of them share
    no loop with what is as long as a row."""
    total = 0
    for compute in filter(reduces, computes_in(kernel)):
        kept = kept_dims(compute)
        for index in (index for view in views_of(compute) for index in view.index):
            names = {dim.name for dim in variables(index)}
            dims = {dim.var.name for dim in compute.dims} & names
            total += not (dims <= kept or dims.isdisjoint(kept))
    return total


def _digits(kernel: Kernel) -> int:
    """How many indices and values multiply or divide by what a call passes, but for those that
    count through dims."""
    if not kernel.scalars:
        return 0
    exprs = [
        expr
        for c in computes_in(kernel)
        for expr in direct_exprs(replace(c, dims=()))
        if not counts(expr, {dim.var: dim.extent for dim in c.dims})
    ]
    return sum(
        node.op in ("mul", "floordiv", "mod")
        and node.type.is_integer
        and not isinstance(node.b, Const)
        for expr in exprs
        for node in walk(expr)
        if isinstance(node, Binary)
    )


# The dim that counts the phases of all positions.
PHASE = "phase"


def by_phase(s: KernelSchedule) -> bool:
    """Whether a mask asks for phases, and they can be told apart: then the points of each phase
    are, with the taps that they take."""
    main = find_compute(s.kernel, MAIN)
    dims = list(dict.fromkeys(congruence.dim for congruence in congruences(main)))
    if PHASE in extents(main):
        return False
    while dims:
        decided: list[str] = []
        if s.attempt(partial(_apart, s, dims, decided)):
            # Along a dim no longer than the modulus, each phase has one point.
            s.drop_unit_dims()
            return True
        dims = [dim for dim in dims if dim not in decided] if decided else []
    return False


def _apart(s: KernelSchedule, dims: list[str], decided: list[str]) -> bool:
    """Whether the phases of ``dims`` are one dim. A dim of few points whose tap the phases along
    another one have ``decided`` has none."""
    names: list[str] = []
    for dim in dims:
        main = find_compute(s.kernel, MAIN)
        modulus = next(
            (congruence.modulus for congruence in congruences(main) if congruence.dim == dim), None
        )
        if modulus is None:
            decided.append(dim)
            return False
        factor = min(modulus, extents(main)[dim])
        quotient, remainder = halves(dim)
        names.append(remainder if len(dims) > 1 else PHASE)
        s.split_dim(dim, factor, quotient, names[-1], phases_of=MAIN)
    if len(dims) > 1:
        s.fuse_dims(names, PHASE, digits=True)
    return True


def leaves_out_taps(config: WorkgroupConfig) -> bool:
    """Whether each workgroup has one phase, and steps of its own number."""
    return config.tile.group.get(PHASE, 1) == 1 and not config.order.stream_k


def only_taps(s: KernelSchedule, config: WorkgroupConfig) -> None:
    """Loops of the reduction that end with the taps of the workgroup's phase, which may have
    none."""
    if not leaves_out_taps(config) or not holds_loop(s.kernel.body, PHASE):
        return
    for loop in serial_loops(s.kernel, MAIN):
        s.trim(loop, by=(PHASE,))


def taken(main: Compute) -> float:
    """Which part of the taps there are, on an average over phases: those of ``main``, whose dims
    were combined, that `only_taps` leaves."""
    sizes = extents(main)
    if PHASE not in sizes:
        return 1.0
    asked = {condition: _counted(main, condition) for condition in dict.fromkeys(needed(main))}
    conditions = {condition: dims for condition, dims in asked.items() if dims is not None}
    dims = list(dict.fromkeys(dim for dims in conditions.values() for dim in dims))
    points = [dict(zip(dims, at, strict=True)) for at in product(*(range(sizes[d]) for d in dims))]
    there = [all(_holds(condition, point) for condition in conditions) for point in points]
    return sum(there) / len(there)


def _counted(main: Compute, condition: Expr) -> list[str] | None:
    """The dims that ``condition`` is about, if these are the phases and a loop over taps."""
    names = [v.name for v in variables(condition)]
    form = difference(condition)
    taps = [name for name in names if name != PHASE]
    if PHASE not in names or len(taps) > 1 or (taps and taps[0] not in roles(main).k):
        return None
    # Taps that were joined with other reduced dims are digits: no loop ends where they do.
    if taps and (form is None or var(taps[0]) not in form.terms):
        return None
    return [PHASE, *taps]


def _holds(condition: Expr, point: dict[str, int]) -> bool:
    return bool(evaluate(condition, {v: point[v.name] for v in variables(condition)}))

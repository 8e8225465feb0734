"""Contractions whose terms count where a division has no remainder, by that remainder.

By data, a convolution of stride 2 takes one tap of four at a pixel: which ones, the phases of its
position say. Pixels of one phase take the same taps, so that they are a convolution of stride 1
with fewer taps. The phases of all positions together are one dim, `PHASE`, of which a workgroup
has one.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from tilewright.facts.affine import difference
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Expr, var
from tilewright.ir.stmt import Compute
from tilewright.ir.visit import variables
from tilewright.layout.roles import MAIN
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.reshaping import halves
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.schedule.dims.phases import congruences
from tilewright.schedule.loops.distribute import serial_loops
from tilewright.schedule.queries.identity import needed
from tilewright.schedule.queries.place import holds_loop
from tilewright.schedule.schedule import KernelSchedule

# The dim that counts the phases of all positions.
PHASE = "phase"


def by_phase(s: KernelSchedule) -> bool:
    """Whether a mask asks for phases, and they can be told apart: then the points of each phase
    are, with the taps that they take."""
    main = find_compute(s.kernel, MAIN)
    dims = list(dict.fromkeys(each.dim for each in congruences(main)))
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
        modulus = next((each.modulus for each in congruences(main) if each.dim == dim), None)
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

"""Sums that stay in the tiles of a processor's matrix unit: of contractions, and of products inside
of kernels.

Where all sums of an accumulator fit the tiles, they stay there from where they are set to zero to
the first op that needs them as numbers, which gets a copy in memory. Larger ones come into tiles
for the depth of one product, and go back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Var, const
from tilewright.ir.stmt import Compute
from tilewright.layout.roles import INIT, MAIN
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.recipes.transposed_tiles import handed_over
from tilewright.recipes.unit_model import unrolled_steps
from tilewright.schedule.queries.access import Access, accesses
from tilewright.schedule.queries.place import Place, views_of
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule

# Tiles of sums along each side of a product in a kernel: two and two, with two of each factor
# beside them, are all eight.
_TILES_PER_SIDE = 2


def sums_in_tiles(s: KernelSchedule, order: Sequence[str], rows: int, machine: Machine) -> None:
    """The sums of a contraction, whose products a unit makes, in its tiles of so many ``rows`` from
    their beginning to the epilogue, which reads a copy in the ``order`` of these dims."""
    sums = find_compute(s.kernel, MAIN).out.buffer
    if find_compute(s.kernel, INIT).body is not const(0, sums.dtype):
        return
    handed_over(s, order)
    computes = [compute for compute in computes_in(s.kernel) if compute.name == MAIN]
    moved_by_tiles(s, {compute.out.buffer for compute in computes}, machine, rows)


def moved_by_tiles(
    s: KernelSchedule, held: Collection[Buffer], machine: Machine, rows: int
) -> None:
    """What fills the tiles ``held``, of so many ``rows``, and what takes them from there, by
    instructions."""
    computes: dict[str, Compute] = {}
    for compute in computes_in(s.kernel):
        if compute.instruction is None:
            # Of several by one name, a border of one element has lost its dim.
            first = computes.setdefault(compute.name, compute)
            if len(first.dims) < len(compute.dims):
                computes[compute.name] = compute
    for name, part in computes.items():
        views = [view for view in views_of(part) if view.buffer in held]
        if not views:
            continue
        move = "tileloadd" if part.operands else "tilezero"
        move = "tilestored" if part.out.buffer not in held else move
        instruction = machine.instruction(f"{move}_{views[0].buffer.dtype}")
        steps = strides(part, views[0])
        used = [dim.var.name for dim in part.dims]
        n = next(dim for dim in used if steps[dim] == 1)
        m = min((dim for dim in used if dim != n), key=lambda dim: steps[dim] or 0)
        s.tensorize(name, instruction, {"m": m, "n": n}, lengths={"m": rows})


def unit_product(main: Compute, machine: Machine) -> Instruction | None:
    """The product of tiles for ``main``; None where the machine has none of these types, or the
    depth is no multiple of its."""
    a, b = (operand.view.buffer.dtype for operand in main.operands)
    parts, sizes = roles(main), extents(main)
    if parts.batch or any(len(dims) != 1 for dims in (parts.m, parts.n, parts.k)):
        return None
    if not all(isinstance(i, Var) for o in main.operands for i in o.view.index):
        return None
    for product in machine.products(main.out.buffer.dtype, a, b):
        if (
            "m" in product.sizes
            and product.lanes == 1
            and sizes[parts.k[0]] % product.sizes["k"] == 0
        ):
            return product
    return None


def by_unit(s: KernelSchedule, name: str, unit: Instruction, machine: Machine) -> None:
    """The product ``name`` by the ``unit``."""
    main = find_compute(s.kernel, name)
    (m,), (n,), (k,) = roles(main).m, roles(main).n, roles(main).k
    dims, sizes = {"m": m, "n": n, "k": k}, extents(main)
    _with_rows(s, main, unit, dims)
    sides = {m: _TILES_PER_SIDE * unit.sizes["m"], n: _TILES_PER_SIDE * unit.sizes["n"]}
    fit = all(sizes[dim] <= side for dim, side in sides.items())
    if not (fit and s.attempt(lambda: _in_tiles(s, main.out.buffer))):
        _tile_by_tile(s, name, sides)
    depth = unit.sizes["k"]
    s.tile(name, {k: unrolled_steps(sizes[k] // depth) * depth})
    s.tensorize(name, unit, dims)
    moved_by_tiles(s, {find_compute(s.kernel, name).out.buffer}, machine, unit.sizes["m"])


def _tile_by_tile(s: KernelSchedule, name: str, sides: dict[str, int]) -> None:
    """Sums come into tiles for one product, and go back."""
    s.tile(name, sides, tuple(reversed(sides)), tail="borders")
    s.stage_result(name, name)


def _with_rows(s: KernelSchedule, main: Compute, unit: Instruction, dims: dict[str, str]) -> None:
    """B in rows of what the unit adds up side by side, tile by tile."""
    view = main.operands[1].view
    places = {index.name: p for p, index in enumerate(view.index) if isinstance(index, Var)}
    n, k = places[dims["n"]], places[dims["k"]]
    group = unit.operands[1].steps_of("k")[-1].size or 1
    depth = unit.sizes["k"] // group
    layout = [(n, None), (k, None), (k, depth), (n, unit.sizes["n"]), (k, group)]
    s.lay_out(view.buffer.name, layout)


def _in_tiles(s: KernelSchedule, held: Buffer) -> bool:
    """Whether the sums ``held`` are in registers as long as tiles are all that is needed: no other
    op uses them in between."""
    users = [access for access in accesses(s.kernel.body, Place()) if access.view.buffer is held]
    first = next((n for n, user in enumerate(users) if not _for_tiles(user, held)), len(users))
    if any(user.combiner == "add" for user in users[first:]):
        return False
    late = users[first].stmt if first < len(users) else None
    if isinstance(late, Compute):
        s.lay_out(held.name, space=Space.WORKGROUP, since=late.name)
    elif late is not None:
        return False
    s.lay_out(held.name, space=Space.PRIVATE)
    return True


def _for_tiles(access: Access, held: Buffer) -> bool:
    """Whether products or zeros go there."""
    stmt = access.stmt
    if not isinstance(stmt, Compute) or len(stmt.outputs) != 1 or stmt.out.buffer is not held:
        return False
    if any(operand.view.buffer is held for operand in stmt.operands):
        return False
    return stmt.combiner == "add" or (stmt.body is const(0, held.dtype) and not stmt.out.mask)

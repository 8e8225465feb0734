"""Products inside of kernels that say themselves what runs in parallel: by instructions, in tiles.

A kernel of work-items multiplies what a workgroup holds (`lang`'s joint matrices), and for one
thread that is a small contraction with constant sizes. Its sums are kept in registers: where all of
them fit, from the first to the last op that touches them; otherwise a tile of them at a time, for
the depth of one product. B lies in memory in the order in which tiles read it, in the type that the
instruction takes; A is read where it lies, if its copy is for the product alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from math import prod

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Var
from tilewright.ir.stmt import Compute, Kernel, View
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.choices import Choice, choose_instruction
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.copies import interleaved, moves
from tilewright.recipes.model import default_configs, lanes_of, shape_of
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.recipes.transposed_tiles import run_of
from tilewright.recipes.unit_tiles import by_unit, unit_product
from tilewright.schedule.queries.access import accesses, buffers_allocated
from tilewright.schedule.queries.place import Place
from tilewright.schedule.schedule import KernelSchedule


def products(kernel: Kernel) -> Iterator[Compute]:
    """The computes of ``kernel`` that are sums of products of two matrices, with known sizes."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Compute) and _is_product(stmt):
            yield stmt


def _is_product(compute: Compute) -> bool:
    if len(compute.outputs) != 1 or compute.combiner != "add" or len(compute.operands) != 2:
        return False
    if compute.instruction or not all(isinstance(d.extent, Const) for d in compute.dims):
        return False
    if any(o.view.buffer.symbols for o in compute.operands) or compute.out.buffer.symbols:
        return False
    parts = roles(compute)
    return bool(parts.k) and bool(parts.m or parts.n)


def multiplied(s: KernelSchedule, machine: Machine) -> None:
    """Products by instructions; those that none fits stay what they are, which notes tell."""
    for name in [each.name for each in products(s.kernel)]:
        unit = unit_product(find_compute(s.kernel, name), machine)
        if unit is not None and s.attempt(
            partial(by_unit, s, name, unit, machine), f"{name}: not by {unit.name}"
        ):
            continue
        s.attempt(partial(_by_instructions, s, name, machine), f"{name}: loops of scalars")


def _by_instructions(s: KernelSchedule, name: str, machine: Machine) -> None:
    """The product ``name`` in tiles of registers."""
    main = find_compute(s.kernel, name)
    shape = shape_of(main, main)
    vector = machine.lanes(main.out.buffer.dtype)
    lanes = lanes_of(shape, vector)
    choice = choose_instruction(main, machine, shape, lanes, vector)
    if choice is None:
        raise ScheduleError(f"no instruction carries {name} out", cure="lower it to loops")
    chosen = default_configs(
        shape, machine, choice.instruction, lanes, vector, k=choice.k, pack_b=True
    )
    (config, _) = next(islice(chosen, 1))
    _with_factors(s, name, choice, config, vector)
    alone = _by_computes_alone(s.kernel, main)
    whole = alone and _fits(main, config, vector, machine)
    if _rows(main, {} if whole else config.tile, config.lanes) <= machine.core.ways:
        _where_it_lies(s, name)
    if whole:
        s.lay_out(main.out.buffer.name, space=Space.PRIVATE)
    else:
        if not alone:
            s.log.notes.append(f"{main.out.buffer.name}: in memory, as lanes touch single elements")
        else:
            panels = _panels(main.out, choice, config, vector)
            s.lay_out(main.out.buffer.name, panels)
        _in_tiles(s, name, config)
    step = {d: config.step.get(d, 1) for d in roles(main).k}
    s.tile(name, step, config.reduce_order, tail="borders")
    dims = {"n": lanes} | ({"k": choice.k} if choice.k else {})
    s.tensorize(name, choice.instruction, dims)


def _in_tiles(s: KernelSchedule, name: str, config: ContractionConfig) -> None:
    """A tile of the sums at a time, for the whole depth of the product."""
    main = find_compute(s.kernel, name)
    sizes = {d: config.tile.get(d, 1) for d in roles(main).kept}
    s.tile(name, sizes, config.order, tail="borders")
    s.stage_result(name, name)


def _with_factors(
    s: KernelSchedule, name: str, choice: Choice, config: ContractionConfig, vector: int
) -> None:
    """Factors in the type that the instruction takes, and in the order in which tiles read them."""
    main = find_compute(s.kernel, name)
    allocated = buffers_allocated(s.kernel.body)
    for operand, role in zip(main.operands, choice.instruction.operands, strict=True):
        held = operand.view.buffer
        if held not in allocated:
            continue
        layout = []
        if operand is main.operands[1]:
            layout = _panels(operand.view, choice, config, vector)
        wanted = role.dtype if role.dtype is not held.dtype else None
        if layout or wanted is not None:
            s.lay_out(held.name, layout, dtype=wanted)


def _rows(main: Compute, tiles: Mapping[str, int], lanes: str) -> int:
    """How many rows of A are read side by side."""
    sizes = extents(main) | dict(tiles)
    return prod(sizes[dim] for dim in roles(main).kept if dim != lanes)


def _where_it_lies(s: KernelSchedule, name: str) -> None:
    """The rows of A where they are, if all that the kernel does with them is to copy neighbours and
    to multiply. Nobody knows how far apart they lie: at worst, all are in one set of L1."""
    held = find_compute(s.kernel, name).operands[0].view.buffer
    made = [compute for compute in computes_in(s.kernel) if held in _out(compute)]
    if len(made) != 1 or not moves(made[0]):
        return
    s.attempt(lambda: s.inline(made[0].name))


def _out(compute: Compute) -> frozenset[Buffer]:
    return frozenset(view.buffer for view in compute.outputs)


def _panels(
    view: View, choice: Choice, config: ContractionConfig, vector: int
) -> list[tuple[int, int | None]]:
    """Blocks of a factor: as wide as a tile, all of the depth, and what an instruction adds up side
    by side."""
    places = {index.name: place for place, index in enumerate(view.index) if isinstance(index, Var)}
    if len(places) != len(view.index):
        return []
    width = -(-config.tile.get(config.lanes, 1) // vector) * vector
    depth = choice.instruction.sizes.get("k", 1)
    layout: list[tuple[int, int | None]] = []
    if config.lanes in places:
        layout.append((places[config.lanes], None))
    layout += [(p, None) for d, p in places.items() if d != config.lanes]
    layout += [(places[config.lanes], width)] if config.lanes in places else []
    layout += [(places[config.k], depth)] if depth > 1 and config.k in places else []
    return layout


def _by_computes_alone(kernel: Kernel, main: Compute) -> bool:
    """Whether the sums are the kernel's own, and computes are all that touches them: single
    elements, which work-items ask for, are neighbours in rows."""
    held = main.out.buffer
    users = [a for a in accesses(kernel.body, Place()) if a.view.buffer is held]
    own = held in buffers_allocated(kernel.body)
    return own and all(isinstance(each.stmt, Compute) for each in users)


def _fits(main: Compute, config: ContractionConfig, vector: int, machine: Machine) -> bool:
    """Whether the registers hold all sums."""
    sizes, kept = extents(main), roles(main).kept
    across = -(-sizes[config.lanes] // vector)
    count = prod(across if dim == config.lanes else sizes[dim] for dim in kept)
    return len(kept) <= 2 and count + across + 1 <= machine.vector_registers * 15 // 16


def in_runs(s: KernelSchedule, machine: Machine) -> None:
    """What fills memory whose neighbours are neighbours by blocks only, in vectors of these."""
    # Of sizes that tiles do not divide there are several computes of a name: transforms take all.
    for name in dict.fromkeys(compute.name for compute in computes_in(s.kernel)):
        each = find_compute(s.kernel, name)
        out = each.outputs[0].buffer
        known = all(isinstance(d.extent, Const) for d in each.dims)
        if each.instruction or each.combiner is not None or out.symbols or not known:
            continue
        if interleaved(s, each.name, machine):
            continue
        run = run_of(each, each.out)
        if run is None or not run.size or out.space is Space.PRIVATE:
            continue
        s.tile(each.name, {run.dim: run.size}, tail="apart")
        lanes = machine.lanes(out.dtype)
        s.lower_computes([each.name], vector=run.dim, lanes=lanes, unroll=[run.dim])


# Rows that a work-item adds up together: each is a register, and shares what is read of B.
_ROWS = 8


def summed_in_registers(s: KernelSchedule) -> None:
    """Sums of some rows of a product at a time in a work-item's registers; where they are not
    there, notes tell."""
    for name in [each.name for each in products(s.kernel)]:
        s.attempt(partial(_in_rows, s, name), f"{name}: sums in memory")


def _in_rows(s: KernelSchedule, name: str) -> None:
    main = find_compute(s.kernel, name)
    parts, sizes = roles(main), extents(main)
    total, own = main.out.buffer.dtype, buffers_allocated(s.kernel.body)
    for held in {operand.view.buffer for operand in main.operands} & own:
        if held.dtype is not total:
            s.lay_out(held.name, dtype=total)
    rows = parts.m[-1] if parts.m else ""
    tiles = dict.fromkeys(parts.kept, 1)
    if rows:
        most = min(_ROWS, sizes[rows])
        tiles[rows] = next(n for n in range(most, 0, -1) if sizes[rows] % n == 0)
    s.tile(name, tiles, parts.kept)
    held = s.stage_result(name, name)
    names = [name, held["load"], held["store"]]
    s.lower_computes(names, order=(*parts.k, *([rows] * bool(rows))), unroll=[rows])

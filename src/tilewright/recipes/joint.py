"""Products inside of kernels that say themselves what runs in parallel: by instructions, in tiles.

A kernel of work-items multiplies what a workgroup holds (`lang`'s joint matrices), and for one
thread that is a small contraction with constant sizes. Its sums are kept in registers: where all of
them fit, from the first to the last op that touches them; otherwise a tile of them at a time, for
the depth of one product. B lies in memory in the order in which tiles read it, in the type that the
instruction takes; A is read where it lies, if its copy is for the product alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from tilewright.recipes.interleaving import interleaved
from tilewright.recipes.joint_tiles import by_unit, unit_product
from tilewright.recipes.model import L1_WAYS, default_configs, lanes_of, shape_of
from tilewright.recipes.moving import moves
from tilewright.recipes.reordering import run_of
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.inline import inline
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.queries.access import accesses, buffers_allocated
from tilewright.schedule.queries.place import Place, holds_loop
from tilewright.schedule.staging.lay_out import lay_out
from tilewright.schedule.staging.stage_result import stage_result


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


def multiplied(kernel: Kernel, machine: Machine, notes: list[str]) -> Kernel:
    """``kernel`` with its products by instructions; those that none fits stay what they are, which
    ``notes`` tell."""
    for each in list(products(kernel)):
        unit = unit_product(each, machine)
        try:
            if unit is not None:
                kernel = by_unit(kernel, each.name, unit, machine)
                continue
        except ScheduleError as refused:
            notes.append(f"{each.name}: not by {unit and unit.name} ({refused.what})")
        try:
            kernel = _by_instructions(kernel, each.name, machine, notes)
        except ScheduleError as refused:
            notes.append(f"{each.name}: loops of scalars ({refused.what})")
    return kernel


def _by_instructions(kernel: Kernel, name: str, machine: Machine, notes: list[str]) -> Kernel:
    """``kernel`` with the product ``name`` in tiles of registers."""
    main = find_compute(kernel, name)
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
    kernel = _with_factors(kernel, name, choice, config, vector)
    alone = _by_computes_alone(kernel, main)
    whole = alone and _fits(main, config, vector, machine)
    if _rows(main, {} if whole else config.tile, config.lanes) <= L1_WAYS:
        kernel = _where_it_lies(kernel, name)
    if whole:
        kernel = lay_out(kernel, main.out.buffer.name, space=Space.PRIVATE)
    else:
        if not alone:
            notes.append(f"{main.out.buffer.name}: in memory, as lanes touch single elements")
        else:
            panels = _panels(main.out, choice, config, vector)
            kernel = lay_out(kernel, main.out.buffer.name, panels)
        kernel = _in_tiles(kernel, name, config)
    step = {d: config.step.get(d, 1) for d in roles(main).k}
    kernel = tile(kernel, name, step, config.reduce_order)
    for dim in (*config.order, *config.reduce_order):
        if holds_loop(kernel.body, f"{dim}_o"):
            kernel = partition(kernel, f"{dim}_o", split_borders=True)
    dims = {"n": lanes} | ({"k": choice.k} if choice.k else {})
    return tensorize(kernel, name, choice.instruction, dims)


def _in_tiles(kernel: Kernel, name: str, config: ContractionConfig) -> Kernel:
    """A tile of the sums at a time, for the whole depth of the product."""
    main = find_compute(kernel, name)
    sizes = {d: config.tile.get(d, 1) for d in roles(main).kept}
    return stage_result(tile(kernel, name, sizes, config.order), name, name)


def _with_factors(
    kernel: Kernel, name: str, choice: Choice, config: ContractionConfig, vector: int
) -> Kernel:
    """Factors in the type that the instruction takes, and in the order in which tiles read them."""
    main = find_compute(kernel, name)
    allocated = buffers_allocated(kernel.body)
    for operand, role in zip(main.operands, choice.instruction.operands, strict=True):
        held = operand.view.buffer
        if held not in allocated:
            continue
        layout = []
        if operand is main.operands[1]:
            layout = _panels(operand.view, choice, config, vector)
        wanted = role.dtype if role.dtype is not held.dtype else None
        if layout or wanted is not None:
            kernel = lay_out(kernel, held.name, layout, dtype=wanted)
    return kernel


def _rows(main: Compute, tiles: Mapping[str, int], lanes: str) -> int:
    """How many rows of A are read side by side."""
    sizes = extents(main) | dict(tiles)
    return prod(sizes[dim] for dim in roles(main).kept if dim != lanes)


def _where_it_lies(kernel: Kernel, name: str) -> Kernel:
    """The rows of A where they are, if all that the kernel does with them is to copy neighbours and
    to multiply. Nobody knows how far apart they lie: at worst, all are in one set of L1."""
    held = find_compute(kernel, name).operands[0].view.buffer
    made = [s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and held in _out(s)]
    if len(made) != 1 or not moves(made[0]):
        return kernel
    try:
        return inline(kernel, made[0].name)
    except ScheduleError:
        return kernel


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


def in_runs(kernel: Kernel, machine: Machine) -> Kernel:
    """What fills memory whose neighbours are neighbours by blocks only, in vectors of these."""
    # Of sizes that tiles do not divide there are several computes of a name: transforms take all.
    names = [s.name for s in walk_stmts(kernel.body) if isinstance(s, Compute)]
    for name in dict.fromkeys(names):
        each = find_compute(kernel, name)
        out = each.outputs[0].buffer
        known = all(isinstance(d.extent, Const) for d in each.dims)
        if each.instruction or each.combiner is not None or out.symbols or not known:
            continue
        side_by_side = interleaved(kernel, each.name, machine)
        if side_by_side is not None:
            kernel = side_by_side
            continue
        run = run_of(each, each.out)
        if run is None or not run.size or out.space is Space.PRIVATE:
            continue
        kernel = tile(kernel, each.name, {run.dim: run.size})
        if holds_loop(kernel.body, f"{run.dim}_o"):
            kernel = partition(kernel, f"{run.dim}_o")
        lanes = machine.lanes(out.dtype)
        kernel = lower_computes(kernel, [each.name], vector=run.dim, lanes=lanes, unroll=[run.dim])
    return kernel


# Rows that a work-item adds up together: each is a register, and shares what is read of B.
_ROWS = 8


def summed_in_registers(kernel: Kernel, notes: list[str]) -> Kernel:
    """``kernel`` where each work-item adds up some rows of its products in registers; where it
    does not, ``notes`` tell."""
    for each in list(products(kernel)):
        try:
            kernel = _in_rows(kernel, each.name)
        except ScheduleError as refused:
            notes.append(f"{each.name}: sums in memory ({refused.what})")
    return kernel


def _in_rows(kernel: Kernel, name: str) -> Kernel:
    main = find_compute(kernel, name)
    parts, sizes = roles(main), extents(main)
    total, own = main.out.buffer.dtype, buffers_allocated(kernel.body)
    for held in {operand.view.buffer for operand in main.operands} & own:
        if held.dtype is not total:
            kernel = lay_out(kernel, held.name, dtype=total)
    rows = parts.m[-1] if parts.m else ""
    tiles = dict.fromkeys(parts.kept, 1)
    if rows:
        most = min(_ROWS, sizes[rows])
        tiles[rows] = next(n for n in range(most, 0, -1) if sizes[rows] % n == 0)
    kernel = stage_result(tile(kernel, name, tiles, parts.kept), name, name)
    names = [name, f"{name}_load", f"{name}_store"]
    return lower_computes(kernel, names, order=(*parts.k, *([rows] * bool(rows))), unroll=[rows])

"""Products inside of kernels that say themselves what runs in parallel: by instructions, in tiles.

A kernel of work-items multiplies what a workgroup holds (`lang`'s joint matrices), and for one
thread that is a small contraction with constant sizes. Its sums are kept in registers: where all of
them fit, from the first to the last op that touches them; otherwise a tile of them at a time, for
the depth of one product. B lies in memory in the order in which tiles read it, in the type that the
instruction takes; A is read where it lies, if its copy is for the product alone.

Where the lanes of a subgroup carry an instruction out together, the sums of a matrix that only
whole ops touch are in their registers from the first to the last of them: each lane fills, changes
and stores those that it holds. Where lanes ask for elements of their own, or registers don't hold
all, sums come there for one product, a tile at a time, and go back. Factors lie in memory that the
lanes share, and are loaded by what the machine has for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import prod

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Var
from tilewright.ir.stmt import Compute, Kernel, View
from tilewright.ir.verify_groups import lanes_inside
from tilewright.ir.visit import walk_stmts
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.passes.spmd import split_at_matrices
from tilewright.recipes.choices import Choice, choose_instruction
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.contraction_shape import lanes_of, shape_of
from tilewright.recipes.copies import interleaved, moves
from tilewright.recipes.mma import Mma, in_fragments, on_own_registers
from tilewright.recipes.model import default_configs
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.recipes.transposed_tiles import run_of
from tilewright.recipes.unit_tiles import by_unit, unit_product
from tilewright.schedule.queries.access import accesses, buffers_allocated
from tilewright.schedule.queries.place import Place, views_of
from tilewright.schedule.records.transform import Handles
from tilewright.schedule.schedule import KernelSchedule

# Bytes of sums that a lane holds: half of its registers.
_HELD = 512
# Rows and columns of the sums that are in registers at a time, where not all are.
_SIDE = 64


@dataclass(frozen=True)
class _Product:
    """A product by ``instruction``: what it is called, and the memory of its sums."""

    name: str
    sums: Buffer
    instruction: Instruction


def by_subgroups(s: KernelSchedule, machine: Machine) -> None:
    """Products by the lanes of subgroups together; where they cannot be, notes tell."""
    s.attempt(partial(_by_subgroups, s, machine), "products by each lane for itself")


def _by_subgroups(s: KernelSchedule, machine: Machine) -> None:
    result = list(_found(s.kernel, machine))
    note = "sums in memory between products"
    if result and not s.attempt(partial(_scheduled, s, result, _held(result), machine), note):
        _scheduled(s, result, frozenset(), machine)


def _found(kernel: Kernel, machine: Machine) -> Iterator[_Product]:
    """The products that an instruction fits."""
    lanes = machine.hierarchy.subgroup
    multiplies = any(i.lanes == lanes > 1 and i.combiner for i in machine.instructions)
    if not multiplies or not 0 < lanes_inside(kernel.body) <= lanes:
        return
    # What a lane adds up shows neither rows nor columns.
    together, whole = split_at_matrices(kernel, _adds_products, (), lanes)
    for product in products(together):
        if product.name not in whole:
            continue
        a, b = (operand.view.buffer.dtype for operand in product.operands)
        sizes, dims = extents(product), _dims(product)
        for instruction in machine.products(product.out.buffer.dtype, a, b):
            forms = (instruction.out, *instruction.operands)
            if instruction.lanes != lanes or any(form.fragment is None for form in forms):
                continue
            pairs = zip(("m", "n", "k"), dims, strict=True)
            if all(sizes[dim] % instruction.sizes[name] == 0 for name, dim in pairs):
                yield _Product(product.name, product.out.buffer, instruction)
                break


def _adds_products(compute: Compute) -> bool:
    return compute.combiner == "add" and len(compute.operands) == 2


def _held(members: list[_Product]) -> frozenset[str]:
    """The sums that registers hold: of one matrix after the other, while there is room."""
    held: dict[str, int] = {}
    for product in members:
        rows, cols = product.sums.shape[-2:]
        size = rows * cols * product.sums.dtype.bytes // product.instruction.lanes
        if sum(held.values()) + size <= _HELD:
            held[product.sums.name] = size
    return frozenset(held)


def _scheduled(
    s: KernelSchedule, members: list[_Product], held: frozenset[str], machine: Machine
) -> None:
    by_name = {product.name: product for product in members}

    def wanted(compute: Compute) -> bool:
        return compute.name in by_name or any(v.buffer.name in held for v in views_of(compute))

    lanes = max(product.instruction.lanes for product in members)
    kernel, whole = split_at_matrices(s.kernel, wanted, held, lanes)
    s.begin_anew(kernel)
    for name in by_name.keys() - whole:
        raise ScheduleError(
            f"the lanes' parts of {name} are not one product", cure="lower it to loops"
        )
    registers = [name for name in whole if name not in by_name]
    for product in members:
        m, n, k = _dims(find_compute(s.kernel, product.name))
        mma = Mma(product.instruction, {"m": m, "n": n, "k": k}, machine)
        if product.sums.name not in held:
            held_by_tiles = _by_tiles(s, product.name, mma)
            registers += [held_by_tiles["load"], held_by_tiles["store"]]
        in_fragments(s, mma, product.name)
    on_own_registers(s, mma, registers)


def _dims(main: Compute) -> tuple[str, str, str]:
    """The rows, the columns and the depth of a product of two matrices."""
    parts = roles(main)
    if parts.batch or any(len(dims) != 1 for dims in (parts.m, parts.n, parts.k)):
        raise ScheduleError(f"{main.name} is no product of two matrices", cure="lower it to loops")
    return parts.m[0], parts.n[0], parts.k[0]


def _by_tiles(s: KernelSchedule, name: str, mma: Mma) -> Handles:
    """A tile of the sums at a time, for the whole depth of the product; gives what loads and stores
    them."""
    sizes = extents(find_compute(s.kernel, name))
    sides: dict[str, int] = {}
    for role in ("m", "n"):
        dim, step = mma.dims[role], mma.instruction.sizes[role]
        sides[dim] = next(n for n in range(_SIDE, 0, -step) if sizes[dim] % n == 0)
    s.tile(name, sides, tuple(sides))
    return s.stage_result(name, name)


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
    for name in [product.name for product in products(s.kernel)]:
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
    computes = [compute for compute in computes_in(s.kernel) if held in _out(compute)]
    if len(computes) != 1 or not moves(computes[0]):
        return
    s.attempt(lambda: s.inline(computes[0].name))


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
    is_held = held in buffers_allocated(kernel.body)
    return is_held and all(isinstance(user.stmt, Compute) for user in users)


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
        stmt = find_compute(s.kernel, name)
        out = stmt.outputs[0].buffer
        sized = all(isinstance(d.extent, Const) for d in stmt.dims)
        if stmt.instruction or stmt.combiner is not None or out.symbols or not sized:
            continue
        if interleaved(s, stmt.name, machine):
            continue
        run = run_of(stmt, stmt.out)
        if run is None or not run.size or out.space is Space.PRIVATE:
            continue
        s.tile(stmt.name, {run.dim: run.size}, tail="apart")
        lanes = machine.lanes(out.dtype)
        s.lower_computes([stmt.name], vector=run.dim, lanes=lanes, unroll=[run.dim])


# Rows that a work-item adds up together: each is a register, and shares what is read of B.
_ROWS = 8


def summed_in_registers(s: KernelSchedule) -> None:
    """Sums of some rows of a product at a time in a work-item's registers; where they are not
    there, notes tell."""
    for name in [product.name for product in products(s.kernel)]:
        s.attempt(partial(_in_rows, s, name), f"{name}: sums in memory")


def _in_rows(s: KernelSchedule, name: str) -> None:
    main = find_compute(s.kernel, name)
    parts, sizes = roles(main), extents(main)
    total, buffers = main.out.buffer.dtype, buffers_allocated(s.kernel.body)
    for held in {operand.view.buffer for operand in main.operands} & buffers:
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

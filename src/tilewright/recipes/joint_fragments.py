"""Products inside of kernels, by instructions that the lanes of a subgroup carry out together.

The sums of a matrix that only whole ops touch are in the lanes' registers from the first to the
last of them: each lane fills, changes and stores those that it holds. Where lanes ask for elements
of their own, or registers don't hold all, sums come there for one product, a tile at a time, and go
back. Factors lie in memory that the lanes share, and are loaded by what the machine has for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.verify_groups import lanes_inside
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.passes.spmd import split_at_matrices
from tilewright.recipes.joint import products
from tilewright.recipes.mma import Mma, in_fragments, on_own_registers
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.schedule.queries.place import views_of
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
    found = list(_found(s.kernel, machine))
    note = "sums in memory between products"
    if found and not s.attempt(partial(_scheduled, s, found, _held(found), machine), note):
        _scheduled(s, found, frozenset(), machine)


def _found(kernel: Kernel, machine: Machine) -> Iterator[_Product]:
    """The products that an instruction fits."""
    lanes = machine.hierarchy.subgroup
    multiplies = any(i.lanes == lanes > 1 and i.combiner for i in machine.instructions)
    if not multiplies or not 0 < lanes_inside(kernel.body) <= lanes:
        return
    # What a lane adds up shows neither rows nor columns.
    together, whole = split_at_matrices(kernel, _adds_products, (), lanes)
    for each in products(together):
        if each.name not in whole:
            continue
        a, b = (operand.view.buffer.dtype for operand in each.operands)
        sizes, dims = extents(each), _dims(each)
        for instruction in machine.products(each.out.buffer.dtype, a, b):
            forms = (instruction.out, *instruction.operands)
            if instruction.lanes != lanes or any(form.fragment is None for form in forms):
                continue
            pairs = zip(("m", "n", "k"), dims, strict=True)
            if all(sizes[dim] % instruction.sizes[own] == 0 for own, dim in pairs):
                yield _Product(each.name, each.out.buffer, instruction)
                break


def _adds_products(compute: Compute) -> bool:
    return compute.combiner == "add" and len(compute.operands) == 2


def _held(found: list[_Product]) -> frozenset[str]:
    """The sums that registers hold: of one matrix after the other, while there is room."""
    held: dict[str, int] = {}
    for each in found:
        rows, cols = each.sums.shape[-2:]
        size = rows * cols * each.sums.dtype.bytes // each.instruction.lanes
        if sum(held.values()) + size <= _HELD:
            held[each.sums.name] = size
    return frozenset(held)


def _scheduled(
    s: KernelSchedule, found: list[_Product], held: frozenset[str], machine: Machine
) -> None:
    by_name = {each.name: each for each in found}

    def wanted(compute: Compute) -> bool:
        return compute.name in by_name or any(v.buffer.name in held for v in views_of(compute))

    lanes = max(each.instruction.lanes for each in found)
    kernel, whole = split_at_matrices(s.kernel, wanted, held, lanes)
    s.begin_anew(kernel)
    for name in by_name.keys() - whole:
        raise ScheduleError(
            f"the lanes' parts of {name} are not one product", cure="lower it to loops"
        )
    own = [each for each in whole if each not in by_name]
    for each in found:
        m, n, k = _dims(find_compute(s.kernel, each.name))
        mma = Mma(each.instruction, {"m": m, "n": n, "k": k}, machine)
        if each.sums.name not in held:
            held_by_tiles = _by_tiles(s, each.name, mma)
            own += [held_by_tiles["load"], held_by_tiles["store"]]
        in_fragments(s, mma, each.name)
    on_own_registers(s, mma, own)


def _dims(main: Compute) -> tuple[str, str, str]:
    """The rows, the columns and the depth of a product of two matrices."""
    parts = roles(main)
    if parts.batch or any(len(each) != 1 for each in (parts.m, parts.n, parts.k)):
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

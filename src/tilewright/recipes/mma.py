"""A contraction's tiles on instructions that the lanes of a subgroup carry out together.

An item's tile is that of a subgroup then: C stays in the registers of its lanes, spread as the
instruction has it; of what a step shares, the tile's rows of A and B are loaded into fragments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.stmt import Compute, Kernel, LoopKind
from tilewright.layout.roles import MAIN
from tilewright.machines.instruction import Instruction, OperandForm
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents, find_compute, named_after
from tilewright.schedule.queries.runs import runs_along, strides
from tilewright.schedule.records.handles import Handle
from tilewright.schedule.records.transform import Handles
from tilewright.schedule.schedule import KernelSchedule


@dataclass(frozen=True)
class Mma:
    """How ``instruction`` carries out the compute `MAIN`: ``dims`` are those of the compute by its
    own, and ``machine`` has the instructions that load fragments."""

    instruction: Instruction
    dims: Mapping[str, str]
    machine: Machine

    @property
    def lanes(self) -> int:
        return self.instruction.lanes


def mma_of(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> Mma | None:
    """What of ``config`` says that subgroups multiply matrices; None: work-items do for
    themselves. Raises `ScheduleError` where the instruction does not fit the op."""
    if not config.product.instruction:
        return None
    instruction = machine.instruction(config.product.instruction)
    if instruction.lanes == 1:
        return None
    main = find_compute(kernel, MAIN)
    rows = [d for d in config.tile.item if d != config.product.lanes]
    sizes = extents(main)
    dims = {"n": config.product.lanes, "m": rows[-1] if rows else "", "k": config.product.k}
    for letter, dim in dims.items():
        needed = instruction.sizes[letter]
        has = config.reduction.step.get(dim, 1) if letter == "k" else config.tile.item.get(dim, 1)
        if dim not in sizes or has % needed:
            raise ScheduleError(
                f"{instruction.name} multiplies matrices of {needed} along {letter}",
                where=f"config {config!r}",
                why=f"{letter} is {dim or 'no dim'!r} here, of which "
                + ("a step has" if letter == "k" else "a subgroup's tile has")
                + f" {has}",
                cure="choose `lanes` (n), two dims of `item` (m and n), and `k` with a `step`, all "
                "multiples of the instruction's",
            )
    return Mma(instruction, dims, machine)


def packed_order(main: Compute, mma: Mma, order: list[str]) -> list[str]:
    """The order of B's dims in memory, the innermost last: that of ``order``, but where only rows
    along one dim can be loaded."""
    role = _role(main, mma, 1)
    along = _neighbours(mma, role)
    if _turned(mma, role) or along not in order:
        return order
    return [*(d for d in order if d != along), along]


def rows_along(main: Compute, mma: Mma, position: int) -> str:
    """The dim along which an operand's rows lie in shared memory: as in its own memory, if what
    loads fragments can turn them."""
    role = _role(main, mma, position)
    if not _turned(mma, role):
        return _neighbours(mma, role)
    k = mma.dims["k"]
    steps = strides(main, main.operands[position].view)
    kept = mma.dims["m"] if steps.get(mma.dims["m"]) else mma.dims["n"]
    turned = steps.get(k) != 1 and runs_along(main, main.operands[position].view, kept)
    return kept if turned else k


def multiplies(main: Compute, mma: Mma) -> bool:
    """Whether the operands are matrices of the instruction's dims: one may not move along a dim of
    the result at all, where all but one of its elements are masked."""
    return all(_role_of(main, mma, position) is not None for position in range(2))


def rows_in_place(main: Compute, mma: Mma) -> int:
    """How many operands lie in memory in the rows in which they are to be shared."""
    return sum(
        _role_of(main, mma, at) is not None
        and runs_along(main, main.operands[at].view, rows_along(main, mma, at))
        for at in range(2)
    )


def _role_of(main: Compute, mma: Mma, position: int) -> OperandForm | None:
    """Which of the instruction's operands one of the compute's is, by its dims."""
    steps = strides(main, main.operands[position].view)
    used = {name for name, dim in mma.dims.items() if steps.get(dim, 0) != 0}
    for role in mma.instruction.operands:
        rows = role.rows[0] if role.rows else None
        dims = {rows.along, rows.across} if rows is not None else set[str]()
        if (set(role.fragment.dims) if role.fragment is not None else dims) == used:
            return role
    return None


def _role(main: Compute, mma: Mma, position: int) -> OperandForm:
    """`_role_of`. Raises `ScheduleError` where it is none."""
    role = _role_of(main, mma, position)
    if role is None:
        raise ScheduleError(
            f"{mma.instruction.name} multiplies a matrix of m and k by one of k and n",
            where=f"compute {main.name}",
            why="the operands here depend on other dims",
            cure="choose an instruction that each work-item carries out for itself",
        )
    return role


def _neighbours(mma: Mma, role: OperandForm) -> str:
    """The dim of which a lane loads neighbours at once."""
    neighbours = role.fragment.neighbours if role.fragment is not None else ""
    return mma.dims[neighbours or "k"]


def _turned(mma: Mma, role: OperandForm) -> bool:
    """Whether rows across those neighbours may be turned on the way to registers, or are taken as
    they lie in memory."""
    return any(row.across == "k" for row in role.rows) or any(
        instruction.lanes == mma.lanes
        and instruction.loads
        and instruction.out.dtype is role.dtype
        and mma.dims[instruction.operands[0].steps[-1].dim] != _neighbours(mma, role)
        for instruction in mma.machine.instructions
    )


def rows_last(kept: list[str], reduced: list[str], along: str) -> tuple[list[str], str]:
    """The dims of a shared tile, those of its rows innermost, and the dim of which each has one."""
    if along in reduced:
        others = [d for d in reduced if d != along]
        return [*others, *kept, along], kept[-1]
    return [*reduced, *(d for d in kept if d != along), along], reduced[-1]


def in_fragments(s: KernelSchedule, mma: Mma, compute: str, *others: str) -> Handle | None:
    """The products of one step on fragments of A and B, which are loaded before each. ``others``
    add to such sums, too. Gives the loop over them, if there is more than one."""
    k = mma.dims["k"]
    steps = s.tile(compute, {k: mma.instruction.sizes["k"]})
    products: Handle | None = None
    if k in steps:
        products = steps[k]
        s.set_kind(products, LoopKind.UNROLLED)
    main = find_compute(s.kernel, compute)
    fragments: list[tuple[Handles, OperandForm]] = []
    for position, operand in enumerate(main.operands[:2]):
        name = operand.var.name
        fragment = named_after(name, "fragment")
        staged = s.stage(compute, name, compute, shape="dims", space=Space.PRIVATE, name=fragment)
        fragments.append((staged, _role(main, mma, position)))
    # The result's first: with it, loads know which tiles there are.
    held_sums(s, mma, compute, *others)
    for staged, role in fragments:
        _held(s, compute, staged["buffer"], role, mma)
    for staged, _ in fragments:
        _loaded(s, staged["copy"], mma)
    s.tensorize(compute, mma.instruction, mma.dims)
    return products


def on_own_registers(s: KernelSchedule, mma: Mma, computes: list[str]) -> None:
    """What begins and ends a tile of C, done by each lane on what it holds."""
    s.on_lanes(computes, mma.lanes)
    for name in computes:
        sizes = extents(find_compute(s.kernel, name))
        # A lane may hold one element, which has no dims.
        *_, last = ["", *sizes]
        lanes = sizes.get(last, 1)
        s.lower_computes([name], vector=last or None, lanes=lanes, unroll=list(sizes))


def held_sums(s: KernelSchedule, mma: Mma, *computes: str) -> None:
    """The tiles of C to which ``computes`` add, spread over lanes."""
    for name in computes:
        held_result(s, name, find_compute(s.kernel, name).out.buffer.name, mma)


def held_result(s: KernelSchedule, compute: str, name: str, mma: Mma) -> None:
    """The tile of C called ``name``, which ``compute`` reads, spread over lanes as the instruction
    has it."""
    _held(s, compute, name, mma.instruction.out, mma)


def _held(s: KernelSchedule, compute: str, name: str, role: OperandForm, mma: Mma) -> None:
    s.hold(compute, name, mma.instruction, role.name, mma.dims)


def _loaded(s: KernelSchedule, copy: str, mma: Mma) -> None:
    """A fragment is filled by an instruction that loads it from shared rows, or by its lanes."""
    fill = find_compute(s.kernel, copy)
    loads = [
        instruction
        for instruction in sorted(
            mma.machine.instructions, key=lambda instruction: -instruction.flops
        )
        if instruction.lanes == mma.lanes
        and instruction.loads
        and instruction.out.dtype is fill.out.buffer.dtype
    ]
    # The largest that fits.
    for load in loads:
        dims = {letter: mma.dims[letter] for letter in load.sizes}
        if s.attempt(partial(s.tensorize, fill.name, load, dims)):
            return
    on_own_registers(s, mma, [fill.name])


def finished(s: KernelSchedule, root: str, mma: Mma) -> list[str]:
    """What ``root`` stores is finished in registers, if the machine stores matrices of it: where
    lanes hold one matrix, and no operand is added up in memory. Gives the compute that does so."""
    store = find_compute(s.kernel, root)
    held = [o for o in store.operands if o.view.buffer.space is Space.PRIVATE]
    fitting = [instruction for instruction in _stores(mma) if _fits(store, instruction, mma)]
    if store.combiner is not None or store.instruction or len(held) != 1 or not fitting:
        return []
    finish = s.stage_result(root, root)["finish"]
    stored = fitting[0].operands[0].name
    copies = [compute for compute in computes_in(s.kernel) if compute.name == root]
    for held_name in dict.fromkeys(o.view.buffer.name for copy in copies for o in copy.operands):
        s.hold(root, held_name, fitting[0], stored, _dims(fitting[0], mma))
    return [finish]


def reads_rows(kernel: Kernel, root: str, mma: Mma) -> bool:
    """Whether ``root`` reads matrices besides what lanes hold, which neighbours in memory would
    better read for all: such as a residual."""
    store = find_compute(kernel, root)
    others = [o.view for o in store.operands if o.view.buffer.space is not Space.PRIVATE]
    apart = [strides(store, view) for view in others]
    return any(all(steps.get(mma.dims[letter], 0) != 0 for letter in ("m", "n")) for steps in apart)


def is_stored(kernel: Kernel, compute: str, mma: Mma) -> bool:
    """Whether `stored_as_matrices` has found an instruction for ``compute``."""
    name = find_compute(kernel, compute).instruction
    return any(store.name == name for store in _stores(mma))


def stored_as_matrices(s: KernelSchedule, copies: Sequence[str], mma: Mma) -> None:
    """Those of the ``copies`` from registers to shared memory that are rows of whole matrices there
    are carried out by instructions."""
    for name in copies:
        any(
            s.attempt(partial(s.tensorize, name, store, _dims(store, mma)))
            for store in _stores(mma)
        )


def _stores(mma: Mma) -> list[Instruction]:
    """The instructions by which its subgroups store matrices, the largest first."""
    stores = (i for i in mma.machine.instructions if i.stores and i.lanes == mma.lanes)
    return sorted(stores, key=lambda store: -store.flops)


def _fits(store: Compute, instruction: Instruction, mma: Mma) -> bool:
    """Whether ``store`` goes through whole matrices, of the type of the instruction's."""
    if store.out.buffer.dtype is not instruction.out.dtype:
        return False
    sizes, dims = extents(store), _dims(instruction, mma)
    return all(
        dim in sizes and sizes[dim] % instruction.sizes[name] == 0 for name, dim in dims.items()
    )


def _dims(instruction: Instruction, mma: Mma) -> dict[str, str]:
    return {letter: mma.dims[letter] for letter in instruction.sizes}

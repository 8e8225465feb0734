"""What a contraction on a CPU may be: configs in the order in which they should be tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import prod

from tilewright.dtypes import DType, s8
from tilewright.facts.usual import typical
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import variables
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.contraction_shape import Shape, lanes_of, rows_of, shape_of
from tilewright.recipes.model import Estimate, default_configs
from tilewright.recipes.prologues import has_prologue, packable
from tilewright.recipes.recipe import Candidate
from tilewright.recipes.reshaping import fuse_neighbours, split_dims, strided
from tilewright.recipes.roles import are_known, find_compute, index_along
from tilewright.recipes.slicing import in_slices
from tilewright.recipes.transposed_tiles import results_transposed
from tilewright.recipes.unit_model import unit_configs
from tilewright.schedule.queries.place import Place
from tilewright.schedule.queries.runs import run_start, strides
from tilewright.schedule.schedule import KernelSchedule

# Register tiles that are tried.
_TILES = 4


def candidates(
    kernel: Kernel, machine: Machine, prepack: str | None
) -> Iterator[Candidate[ContractionConfig, Estimate | None]]:
    """Configs in the order in which they should be tried: by the model, and then plain vector
    code, which takes operands as they lie. ``prepack`` names the argument that may be packed
    beforehand."""
    sized = are_known(kernel)
    kernel, fuse, split = reshaped(kernel)
    main, out = find_compute(kernel, MAIN), find_compute(kernel, RESULT)
    shape = shape_of(main, out)
    vector = machine.lanes(main.out.buffer.dtype)
    lanes = lanes_of(shape, vector)
    ready = packable(kernel, prepack)
    configs = partial(
        default_configs, shape, machine, lanes=lanes, vector=vector, fuse=fuse, split=split
    )
    by_unit = _by_unit(main, machine, shape, lanes, fuse, split) if sized else iter(())
    unit = next(by_unit, None)
    choice = choose_instruction(main, machine, shape, lanes, vector)
    widens = choice is not None and not ready and _widens(kernel, choice, shape, lanes)
    if widens:
        yield Candidate(*next(configs(None, pack_b=False)))
    if choice is not None:
        # What is computed anyway, is stored in the order in which it is read.
        computed = ready or has_prologue(kernel, 1)
        pack_b = computed or _wants_packing(main, choice.instruction, lanes)
        pack_b = pack_b or packing_pays(shape, machine)
        chosen = configs(choice.instruction, k=choice.k, pack_a=choice.pack_a, pack_b=pack_b)
        for config, estimate in islice(chosen, _TILES):
            while unit is not None and unit[1].before(estimate):
                yield Candidate(*unit)
                unit = next(by_unit, None)
            slices = list(in_slices(config, shape, estimate, machine)) if sized else []
            across = (
                results_transposed(config, shape, main.out.buffer.dtype, machine) if sized else None
            )
            if across is not None and not slices:
                yield Candidate(across, estimate)
            for contraction_config, estimated in slices or [(config, estimate)]:
                yield Candidate(contraction_config, estimated)
    if not widens:
        plain, _ = next(configs(None, pack_b=ready))
        yield Candidate(plain, None)


def _by_unit(
    main: Compute,
    machine: Machine,
    shape: Shape,
    lanes: str,
    fuse: tuple[tuple[str, str, str], ...],
    split: tuple[tuple[str, int], ...],
) -> Iterator[tuple[ContractionConfig, Estimate]]:
    """Products by a unit that multiplies tiles, and what they are estimated to take, the best
    first; none where the machine has none that takes the operands."""
    rows = rows_of(shape, lanes)
    if rows is None:
        return
    for instruction in _products(main, machine):
        result = _tiles(instruction, main, shape, lanes)
        if isinstance(result, Choice):
            configs = unit_configs(
                shape,
                machine,
                instruction,
                lanes,
                rows,
                k=result.k,
                fuse=fuse,
                split=split,
                pack_a=result.pack_a,
            )
            yield from islice(configs, _TILES)
            return


def _products(main: Compute, machine: Machine) -> Sequence[Instruction]:
    """The machine's instructions that take the types of the operands, with B as it is packed."""
    a, b = (operand.view.buffer.dtype for operand in main.operands[:2])
    return machine.products(main.out.buffer.dtype, a, as_packed(a, b))


def _tiles(instruction: Instruction, main: Compute, shape: Shape, lanes: str) -> Choice | str:
    """How the unit's ``instruction`` takes the operands; or why it does not."""
    if "m" not in instruction.sizes or instruction.lanes > 1:
        return "it multiplies no tiles"
    near: Sequence[str] = ()
    # What a mask hides differs between the rows of a tile: a copy of A has zeros there.
    if main.operands[0].view.mask is None:
        near = side_by_side(main, shape, instruction.sizes["k"])
    without = "no reduced dim indexes a dim of A alone"
    return _adding_up(instruction, main, shape, lanes, near, without)


def reshaped(
    kernel: Kernel,
) -> tuple[Kernel, tuple[tuple[str, str, str], ...], tuple[tuple[str, int], ...]]:
    """The kernel as it is looked at, and the dims that were fused and split for it."""
    trial = KernelSchedule(kernel)
    trial.drop_unit_dims()
    fuse = fuse_neighbours(trial)
    split = strided(find_compute(trial.kernel, MAIN))
    split_dims(trial, split)
    return typical(trial.kernel), fuse, split


@dataclass(frozen=True)
class Choice:
    """An instruction, the reduced dim that it adds up ("" for none), and whether A has to be copied
    for it."""

    instruction: Instruction
    k: str
    pack_a: bool


def choose_instruction(
    main: Compute, machine: Machine, shape: Shape, lanes: str, vector: int
) -> Choice | None:
    """The multiply-add for ``main`` with ``lanes`` across its lanes; None where no instruction can
    take the operands. B can always be packed, and is converted then (see `as_packed`); A can be
    copied where what is read is a box."""
    a = main.operands[0].view.buffer.dtype
    total = main.out.buffer.dtype
    step = shape.a.get(lanes)
    if step not in (0, 1):
        return None
    for candidate in _products(main, machine):
        result = _dot(candidate, main, shape, lanes, vector)
        if isinstance(result, Choice):
            return result
    form = "fma_lanes" if step == 1 and shape.b.get(lanes) != 0 else "fma"
    for candidate in machine.products(total, total, total):
        if candidate.sizes["n"] == vector and candidate.name.startswith(f"{form}_{total}"):
            return Choice(candidate, "", pack_a=a is not total)
    return None


def _dot(
    candidate: Instruction, main: Compute, shape: Shape, lanes: str, vector: int
) -> Choice | str:
    """How ``candidate``, which takes the operands' types, adds up neighbours along a reduced dim;
    or why it does not."""
    group = candidate.sizes.get("k", 1)
    if "m" in candidate.sizes:
        return "it multiplies tiles"
    if candidate.sizes["n"] != vector:
        return f"its vectors have {candidate.sizes['n']} lanes, and those of results have {vector}"
    if group == 1:
        return "it adds up no neighbours"
    near = side_by_side(main, shape, group)
    without = f"no reduced dim has {group} neighbours in A, or indexes a dim of A alone"
    return _adding_up(candidate, main, shape, lanes, near, without)


def _adding_up(
    instruction: Instruction,
    main: Compute,
    shape: Shape,
    lanes: str,
    near: Sequence[str],
    without: str,
) -> Choice | str:
    """``instruction`` along the first of ``near``, whose neighbours lie side by side in A, or along
    a dim that they lie along in a copy; or why it does not take A: ``without`` such a dim."""
    if shape.a.get(lanes) != 0:
        return f"it takes the same elements of A for all lanes, and A has others along {lanes}"
    if near:
        return Choice(instruction, near[0], pack_a=False)
    rows = own_dims(main, shape, instruction.sizes.get("k", 1))
    longest = max(rows, key=lambda dim: shape.sizes[dim], default="")
    return Choice(instruction, longest, pack_a=True) if rows else without


def refusals(kernel: Kernel, machine: Machine) -> dict[str, str]:
    """Why the instructions that take the types of a contraction's operands do not multiply them:
    those that do not, by name."""
    kernel, _, _ = reshaped(kernel)
    main, out = find_compute(kernel, MAIN), find_compute(kernel, RESULT)
    shape, vector = shape_of(main, out), machine.lanes(main.out.buffer.dtype)
    lanes = lanes_of(shape, vector)
    result: dict[str, Choice | str] = {}
    for instruction in _products(main, machine):
        if "m" in instruction.sizes:
            tiles = _tiles(instruction, main, shape, lanes)
            result[instruction.name] = tiles if isinstance(tiles, str) else "vectors take less time"
        else:
            dot = _dot(instruction, main, shape, lanes, vector)
            widens = isinstance(dot, Choice) and _widens(kernel, dot, shape, lanes)
            result[instruction.name] = "few rows read B as it lies" if widens else dot
    return {name: why for name, why in result.items() if isinstance(why, str)}


def as_packed(a: DType, b: DType) -> DType:
    """What B's elements become when it is packed: 4 bits fit into s8 and every float of A's."""
    if not b.is_nibble:
        return b
    return a if a.is_float else s8


def side_by_side(main: Compute, shape: Shape, group: int) -> list[str]:
    """The reduced dims whose neighbours lie side by side in A, in whole groups and without a
    mask."""
    mask = main.operands[0].view.mask
    masked = {v.name for v in variables(mask)} if mask is not None else set()
    near = [dim for dim in shape.roles.k if shape.a.get(dim) == 1 or _in_groups(main, dim, group)]
    return [dim for dim in near if dim not in masked and shape.sizes[dim] % group == 0]


def _in_groups(main: Compute, name: str, group: int) -> bool:
    """Whether each ``group`` of elements of A along a dim lies side by side, as in blocks of a
    layout."""
    facts, view = Place().facts_with(main.dims), main.operands[0].view
    along = next(dim.var for dim in main.dims if dim.var.name == name)
    return group > 1 and run_start(view, along, group, facts) is not None


def own_dims(main: Compute, shape: Shape, depth: int) -> list[str]:
    """The reduced dims whose neighbours a copy of A can hold side by side (channels): those that
    index a dim of A alone, or the channels of groups, if these are multiples of ``depth``."""
    result: list[str] = []
    for dim in shape.roles.k:
        indexed = index_along(main, dim)
        whole = len(indexed) == 1 or shape.sizes[dim] % depth == 0
        if indexed and whole and {*indexed} - {dim} <= {*shape.roles.batch}:
            result.append(dim)
    return result


def _wants_packing(main: Compute, instruction: Instruction, lanes: str) -> bool:
    """Whether B lies otherwise than the instruction takes it."""
    b = main.operands[1].view
    if "k" in instruction.sizes or b.buffer.dtype is not instruction.out.dtype:
        return True
    return strides(main, b).get(lanes) not in (0, 1)


# Rows for which it does not pay to pack what is as long as B.
_FEW = 8


def _widens(kernel: Kernel, choice: Choice, shape: Shape, lanes: str) -> bool:
    """Whether B, which lies in the order of lanes, is read for so few rows that its elements are
    converted as they are read: the instruction would take a copy of it."""
    b = find_compute(kernel, MAIN).operands[1].view
    if b.buffer.dtype is choice.instruction.out.dtype or has_prologue(kernel, 1):
        return False
    return shape.b.get(lanes) == 1 and prod(shape.sizes[d] for d in shape.roles.m) <= _FEW


# Rows of a register tile, about; and bytes of rows that lie together.
_HEIGHT, _TOGETHER = 6, 128
_DEEP = 32


def packing_pays(shape: Shape, machine: Machine) -> bool:
    """Whether B, whose rows lie apart, is read for so many rows of A that a copy in the order of
    reading takes less time: in place, caches and page tables hold less of it at a time."""
    reads = prod(shape.sizes[dim] for dim in shape.roles.m) / _HEIGHT
    depth = prod(shape.sizes[dim] for dim in shape.roles.k)
    elements = prod(
        shape.sizes[dim] for dim in (*shape.roles.k, *shape.roles.n, *shape.roles.batch)
    )
    step = max((shape.b.get(dim) or 0 for dim in shape.roles.k), default=0)
    apart = step * shape.bytes_b // elements
    on_pages, elsewhere = machine.core.reread
    enough = on_pages if apart >= machine.core.page else elsewhere
    return depth >= _DEEP and apart >= _TOGETHER and reads >= enough

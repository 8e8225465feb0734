"""What a config may choose for a kernel, in words; what a `ContractionConfig` may not, refused."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.errors import ScheduleError
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import variables
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.choices import as_packed
from tilewright.recipes.config import (
    Config,
    ContractionConfig,
    FactoredConfig,
    WorkgroupConfig,
)
from tilewright.recipes.factored_model import dots, product_of
from tilewright.recipes.model import shape_of
from tilewright.recipes.parts.forms import forms_of
from tilewright.recipes.parts.staging import FILLS
from tilewright.recipes.preparing import combined
from tilewright.recipes.reshaping import fuse_neighbours, fused, split_dims, strided
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.recipes.turned_results import run_across
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule


def legal(kernel: Kernel, machine: Machine, config: Config) -> dict[str, str]:
    """Of each field of ``config``, what it may be for ``kernel``, beside the other values: the dims
    are those that its ``fuse``, ``split`` and ``fused`` leave."""
    match config:
        case ContractionConfig():
            return _of_contraction(kernel, machine, config)
        case FactoredConfig():
            return forms_of(config) | _of_factored(kernel, machine)
        case WorkgroupConfig():
            return forms_of(config) | _in_workgroups(kernel, machine, config)
        case _:
            return forms_of(config)


def _of_factored(kernel: Kernel, machine: Machine) -> dict[str, str]:
    product = product_of(KernelSchedule(kernel, machine))
    if product is None:
        return {}
    sizes, group = product.sizes, product.group
    names = [dot.name for dot in dots(product, machine)]
    steps = [n for n in range(1, group + 1) if group % n == 0 and n % product.share == 0]
    return {
        "lanes": repr(product.lanes),
        "tile": "; ".join(f"{d}: 1 to {sizes[d]}" for d in (*product.rows, product.lanes)),
        "columns": f"1 or more, best a multiple of the tile's {product.lanes}",
        "step": " or ".join(map(str, steps)),
        "pack": "True or False" if product.ready else "True",
        "instruction": " or ".join(repr(each) for each in ("", *names)),
    }


def _of_contraction(kernel: Kernel, machine: Machine, config: ContractionConfig) -> dict[str, str]:
    whole = KernelSchedule(kernel, machine)
    whole.drop_unit_dims()
    default = whole.fork()
    fuse = fuse_neighbours(default)
    split = strided(find_compute(default.kernel, MAIN))
    fused(whole, config.fuse)
    split_dims(whole, config.split)
    main = find_compute(whole.kernel, MAIN)
    across = run_across(shape_of(main, find_compute(whole.kernel, RESULT)), config.lanes)
    sizes, parts = extents(main), roles(main)
    kept, reduced = parts.kept, parts.k
    fitting = [""] * (not config.k)
    for name in instructions_for(main, machine):
        each = machine.instruction(name)
        if _lies(main, each, config.lanes) and (depth_of(each) > 1) == bool(config.k):
            fitting.append(name)
    depth = 1
    lanes = list(kept)
    if config.instruction:
        instruction = machine.instruction(config.instruction)
        lanes = [dim for dim in kept if _lies(main, instruction, dim)]
        depth = depth_of(instruction)
    return {
        "instruction": _one_of(fitting),
        "lanes": _one_of(lanes),
        "tile": "; ".join(f"{dim}: 1 to {sizes[dim]}" for dim in kept),
        "order": "each once, in any order: " + ", ".join(kept),
        "step": "; ".join(
            f"{dim}: {depth} to {sizes[dim]} by {depth}"
            if depth > 1 and dim == config.k
            else f"{dim}: 1 to {sizes[dim]}"
            for dim in reduced
        ),
        "reduce_order": "each once, in any order: " + ", ".join(reduced),
        "k": _one_of(_added_up(main, depth, config.pack_a) if depth > 1 else [""]),
        "fuse": f"(), or the first of {fuse!r}" if fuse else "()",
        "split": f"a dim by a factor, as here {split!r}" if split else "a dim by a factor, or ()",
        "pack_a": "True or False",
        "pack_b": "True or False",
        "block": "; ".join(
            f"{dim}: {config.tile.get(dim, 1)} to {sizes[dim]} by {config.tile.get(dim, 1)}"
            for dim in kept
        ),
        "transpose": "True or False" if across is not None else "False",
        "slices": "one of " + "; ".join(f"{dim}: 2 to {sizes[dim]}" for dim in reduced),
    }


def _added_up(main: Compute, depth: int, copied: bool) -> list[str]:
    """The reduced dims that a dot product of ``depth`` terms may add up: whose neighbours lie side
    by side in A, in whole groups and without a mask, or do in a copy of it."""
    view, sizes = main.operands[0].view, extents(main)
    if copied:
        alone = {index.name for index in view.index if isinstance(index, Var)}
        return [dim for dim in roles(main).k if dim in alone]
    masked = {each.name for each in variables(view.mask)} if view.mask is not None else set()
    steps = strides(main, view)
    near = [dim for dim in roles(main).k if steps.get(dim) == 1 and dim not in masked]
    return [dim for dim in near if sizes[dim] % depth == 0]


def _in_workgroups(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> dict[str, str]:
    """Of the fields that name dims; whether tiles fit the machine's memory is found out by trying
    them."""
    whole = KernelSchedule(kernel, machine)
    whole.drop_unit_dims()
    combined(whole, halo=config.staging.halo, fused=config.reduction.fused)
    main = find_compute(whole.kernel, MAIN)
    sizes, parts = extents(main), roles(main)
    tiles = "whole numbers; " + ", ".join(f"{dim} has {sizes[dim]}" for dim in parts.kept)
    steps = "whole numbers; " + ", ".join(f"{dim} has {sizes[dim]}" for dim in parts.k)
    staged = ", ".join(operand.var.name for operand in main.operands[:2])
    matrices = config.product.together(machine) > 1
    return {
        "product.instruction": _one_of(["", *instructions_for(main, machine)]),
        "product.lanes": _one_of(parts.n if matrices else parts.kept),
        "product.k": _one_of(["", *parts.k]),
        "tile.group": tiles,
        "tile.item": tiles,
        "reduction.step": steps,
        "reduction.loops": "each once, in any order: " + ", ".join(parts.k),
        "staging.fill": _one_of(FILLS),
        "staging.padding": f"a dict with whole numbers of elements for some of {staged}",
        "staging.swizzle": f"a dict with (bits, base, shift) for some of {staged}",
        "order.loops": "each once, in any order: " + ", ".join(parts.kept),
    }


def _one_of(names: list[str] | tuple[str, ...]) -> str:
    return " or ".join(map(repr, names))


def instructions_for(main: Compute, machine: Machine) -> list[str]:
    """The instructions that carry products of ``main`` out: of its operands' types, or of what A
    may be copied as, and B be packed as."""
    total = main.out.buffer.dtype
    a, b = (operand.view.buffer.dtype for operand in main.operands[:2])
    found = [
        each.name
        for first in dict.fromkeys((a, total))
        for second in dict.fromkeys((as_packed(a, b), b, total))
        for each in machine.products(total, first, second)
    ]
    return list(dict.fromkeys(found))


def _check_instruction(
    config: ContractionConfig, main: Compute, machine: Machine, instruction: Instruction
) -> None:
    """Refuses an instruction of other types, and operands that do not lie as it takes them."""
    where = f"config {config!r}"
    legal = instructions_for(main, machine)
    first, second = (operand.view for operand in main.operands[:2])
    types = f"{first.buffer.dtype} and {second.buffer.dtype} added up in {main.out.buffer.dtype}"
    if instruction.name not in legal:
        raise ScheduleError(
            f"instruction={instruction.name!r} multiplies other types",
            where=where,
            why=f"this kernel has products of {types}",
            cure="choose one of " + ", ".join(map(repr, ["", *legal])),
        )
    role = instruction.operands[0]
    if role.dtype is not first.buffer.dtype and not config.pack_a:
        raise ScheduleError(
            f"instruction={instruction.name!r} takes {role.dtype}, and {first.buffer.name} has "
            f"{first.buffer.dtype}",
            where=where,
            cure="set pack_a=True, which copies and converts it, or choose another instruction",
        )
    if not _lies(main, instruction, config.lanes):
        fitting = [dim for dim in roles(main).kept if _lies(main, instruction, dim)]
        raise ScheduleError(
            f"lanes={config.lanes!r} is no dim for the lanes of {instruction.name!r}",
            where=where,
            why=f"{first.buffer.name} does not lie along it as the instruction takes it: the same "
            "element for all lanes, or neighbours",
            cure="choose one of " + ", ".join(fitting) if fitting else "choose another instruction",
        )
    if not config.pack_b and (depth_of(instruction) > 1 or not _ready(main, instruction, config)):
        raise ScheduleError(
            f"pack_b=False: {second.buffer.name} does not lie as {instruction.name!r} takes it",
            where=where,
            cure="set pack_b=True",
        )


def depth_of(instruction: Instruction) -> int:
    """How many products an instruction adds up for each element of its result."""
    return instruction.sizes.get("k", 1)


def _ready(main: Compute, instruction: Instruction, config: ContractionConfig) -> bool:
    """Whether B's elements are those that the instruction takes, and neighbours along its lanes."""
    view = main.operands[1].view
    same = view.buffer.dtype is instruction.operands[1].dtype
    return same and strides(main, view).get(config.lanes) in (0, 1)


def _lies(main: Compute, instruction: Instruction, lanes: str) -> bool:
    """Whether A has neighbours along ``lanes``, or one element for all, as the instruction takes
    it; operands may change places, and B can be packed."""
    first, second = (strides(main, operand.view).get(lanes) for operand in main.operands[:2])
    along = [bool(role.steps_of("n")) for role in instruction.operands[:2]]
    if first not in (0, 1):
        return False
    return [first != 0, second != 0] in (along, along[::-1])


def _check_slices(config: ContractionConfig, dims: Mapping[str, int]) -> None:
    """Refuses slices of slices, and more than there is to reduce."""
    where = f"config {config!r}"
    if len(config.slices) > 1:
        raise ScheduleError(
            f"slices={dict(config.slices)} divides {len(config.slices)} dims",
            where=where,
            why="the sums of slices are added up once",
            cure="divide the longest only",
        )
    if config.slices and config.transpose:
        raise ScheduleError(
            "slices and transpose do not go together",
            where=where,
            why="the result is stored where slices are added up",
            cure="leave one of them out",
        )
    for name, parts in config.slices.items():
        if not 2 <= parts <= dims[name]:
            raise ScheduleError(
                f"slices={{{name!r}: {parts}}} is no division of the dim",
                where=where,
                why=f"{name} has {dims[name]} elements",
                cure=f"choose 2 to {dims[name]}",
            )


def check(config: ContractionConfig, main: Compute, machine: Machine) -> None:
    """Refuses a config that names dims that ``main`` does not have, or what does not go together.

    Raises `ScheduleError`, and `UnsupportedError` for an instruction that the machine lacks.
    """
    instruction = machine.instruction(config.instruction) if config.instruction else None
    dims = extents(main)
    kept, reduced = set(roles(main).kept), set(roles(main).k)
    for what, names, allowed in (
        ("lanes", (config.lanes,), kept),
        ("tile", tuple(config.tile), kept),
        ("block", tuple(config.block), kept),
        ("order", config.order, kept),
        ("step", tuple(config.step), reduced),
        ("reduce_order", config.reduce_order, reduced),
        ("slices", tuple(config.slices), reduced),
        ("k", (config.k,) if config.k else (), reduced),
    ):
        for name in names:
            if name not in allowed:
                raise ScheduleError(
                    f"{what}={name!r} is no dim that this may name",
                    where=f"config {config!r}",
                    why=f"the op's dims are {dims}, of which {sorted(reduced)} are reduced",
                    cure="choose one of " + ", ".join(sorted(allowed)),
                )
    for what in ("tile", "step", "block"):
        chosen: Mapping[str, int] = getattr(config, what)
        for name, size in chosen.items():
            # A dot product's dim is padded to whole groups, which a step may take in.
            longest = dims[name] + (64 if name == config.k else 0)
            if not 1 <= size <= longest:
                raise ScheduleError(
                    f"{what}={{{name!r}: {size}}} is not a part of the dim",
                    where=f"config {config!r}",
                    why=f"{name} has {dims[name]} elements",
                    cure=f"choose 1 to {dims[name]}",
                )
    _check_slices(config, dims)
    for name, size in config.block.items():
        even = config.transpose and dims[name] % size == 0
        if size < dims[name] and size % config.tile.get(name, 1) and not even:
            raise ScheduleError(
                f"block={{{name!r}: {size}}} cuts tiles of {config.tile[name]}",
                where=f"config {config!r}",
                cure=f"choose a multiple of {config.tile[name]}",
            )
    if instruction is not None:
        _check_instruction(config, main, machine, instruction)
    if (instruction is not None and "k" in instruction.sizes) != bool(config.k):
        raise ScheduleError(
            f"the instruction {config.instruction!r} and k={config.k!r} do not go together",
            where=f"config {config!r}",
            cure="name the reduced dim for a dot product, and none for a multiply-add",
        )

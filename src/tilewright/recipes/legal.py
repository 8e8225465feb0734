"""What a `ContractionConfig` may choose for a kernel, in words, and what it may not, refused; which
instruction multiplies, and why nothing better does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from tilewright.dtypes import DType
from tilewright.ir.stmt import Compute, Kernel
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.choices import as_packed, own_dims, side_by_side
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.contraction_shape import shape_of
from tilewright.recipes.parts.forms import Asked
from tilewright.recipes.parts.product import neighbours
from tilewright.recipes.recipe import is_contraction
from tilewright.recipes.reshaping import fuse_neighbours, fused, split_dims, strided
from tilewright.recipes.roles import factor_type, find_compute, roles
from tilewright.recipes.transposed_tiles import run_across
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule


def legal(kernel: Kernel, machine: Machine, config: ContractionConfig) -> dict[str, str]:
    """What each choice of ``config`` may be for ``kernel``, beside the other choices: the dims are
    those that its ``fuse`` and ``split`` leave."""
    whole = KernelSchedule(kernel, machine)
    whole.drop_unit_dims()
    default = whole.fork()
    fuse = fuse_neighbours(default)
    split = strided(find_compute(default.kernel, MAIN))
    fused(whole, config.fuse)
    split_dims(whole, config.split)
    main = find_compute(whole.kernel, MAIN)
    shape = shape_of(main, find_compute(whole.kernel, RESULT))
    across, sizes = run_across(shape, config.lanes), shape.sizes
    kept, reduced = shape.roles.kept, shape.roles.k
    fitting = [""] * (not config.k)
    for name in instructions_for(main, machine):
        mma = machine.instruction(name)
        if lies(main, mma, config.lanes) and (depth_of(mma) > 1) == bool(config.k):
            fitting.append(name)
    depth = 1
    lanes = list(kept)
    if config.instruction:
        instruction = machine.instruction(config.instruction)
        lanes = [dim for dim in kept if lies(main, instruction, dim)]
        depth = depth_of(instruction)
    added = own_dims(main, shape, depth) if config.pack_a else side_by_side(main, shape, depth)
    return {
        "instruction": one_of(fitting),
        "lanes": one_of(lanes),
        "tile": "; ".join(f"{dim}: 1 to {sizes[dim]}" for dim in kept),
        "order": "each once, in any order: " + ", ".join(kept),
        "step": "; ".join(
            f"{dim}: {depth} to {sizes[dim]} by {depth}"
            if depth > 1 and dim == config.k
            else f"{dim}: 1 to {sizes[dim]}"
            for dim in reduced
        ),
        "reduce_order": "each once, in any order: " + ", ".join(reduced),
        "k": one_of(added if depth > 1 else [""]),
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


def one_of(names: Iterable[str]) -> str:
    """The names as they are written in a config."""
    return " or ".join(map(repr, names))


def instructions_for(main: Compute, machine: Machine) -> list[str]:
    """The instructions that carry products of ``main`` out: of its operands' types, or of what A
    may be copied as, and B be packed as."""
    total = main.out.buffer.dtype
    a, b = (operand.view.buffer.dtype for operand in main.operands[:2])
    reasons = [
        product.name
        for first in dict.fromkeys((a, total))
        for second in dict.fromkeys((as_packed(a, b), b, total))
        for product in machine.products(total, first, second)
    ]
    return list(dict.fromkeys(reasons))


def _check_instruction(asked: Asked, instruction: Instruction) -> None:
    """Refuses an instruction of other types, and operands that do not lie as it takes them."""
    config, main = asked.config, asked.main
    legal = instructions_for(main, asked.machine)
    first, second = (operand.view for operand in main.operands[:2])
    types = f"{first.buffer.dtype} and {second.buffer.dtype} added up in {main.out.buffer.dtype}"
    if instruction.name not in legal:
        raise asked.refusal(
            f"instruction={instruction.name!r} multiplies other types",
            f"this kernel has products of {types}",
            "choose one of " + ", ".join(map(repr, ["", *legal])),
        )
    role = instruction.operands[0]
    if role.dtype is not first.buffer.dtype and not config.pack_a:
        raise asked.refusal(
            f"instruction={instruction.name!r} takes {role.dtype}, and {first.buffer.name} has "
            f"{first.buffer.dtype}",
            None,
            "set pack_a=True, which copies and converts it, or choose another instruction",
        )
    if not lies(main, instruction, config.lanes):
        fitting = [dim for dim in roles(main).kept if lies(main, instruction, dim)]
        raise asked.refusal(
            f"lanes={config.lanes!r} is no dim for the lanes of {instruction.name!r}",
            f"{first.buffer.name} does not lie along it as the instruction takes it: the same "
            "element for all lanes, or neighbours",
            "choose one of " + ", ".join(fitting) if fitting else "choose another instruction",
        )
    if not config.pack_b and (
        depth_of(instruction) > 1 or not is_ready(main, instruction, config.lanes)
    ):
        raise asked.refusal(
            f"pack_b=False: {second.buffer.name} does not lie as {instruction.name!r} takes it",
            None,
            "set pack_b=True",
        )


def depth_of(instruction: Instruction) -> int:
    """How many products an instruction adds up for each element of its result."""
    return instruction.sizes.get("k", 1)


def is_ready(main: Compute, instruction: Instruction, lanes: str) -> bool:
    """Whether B's elements are those that the instruction takes, and neighbours along its lanes."""
    view = main.operands[1].view
    same = view.buffer.dtype is instruction.operands[1].dtype
    return same and strides(main, view).get(lanes) in (0, 1)


def lies(main: Compute, instruction: Instruction, lanes: str) -> bool:
    """Whether A has neighbours along ``lanes``, or one element for all, as the instruction takes
    it; operands may change places, and B can be packed."""
    first, second = (strides(main, operand.view).get(lanes) for operand in main.operands[:2])
    along = [bool(role.steps_of("n")) for role in instruction.operands[:2]]
    if first not in (0, 1):
        return False
    return [first != 0, second != 0] in (along, along[::-1])


def _check_slices(asked: Asked, instruction: Instruction | None) -> None:
    """Refuses slices of slices, of sums in tiles of a unit, and more than there is to reduce."""
    config, dims = asked.config, asked.sizes
    if len(config.slices) > 1:
        raise asked.refusal(
            f"slices={dict(config.slices)} divides {len(config.slices)} dims",
            "the sums of slices are added up once",
            "divide the longest only",
        )
    if config.slices and config.transpose:
        raise asked.refusal(
            "slices and transpose do not go together",
            "the result is stored where slices are added up",
            "leave one of them out",
        )
    if config.slices and instruction is not None and "m" in instruction.sizes:
        raise asked.refusal(
            f"slices and {instruction.name!r} do not go together",
            "the epilogue reads the sums of a tile, not those of slices",
            "leave slices out, or choose another instruction",
        )
    for name, parts in config.slices.items():
        if not 2 <= parts <= dims[name]:
            raise asked.refusal(
                f"slices={{{name!r}: {parts}}} is no division of the dim",
                f"{name} has {dims[name]} elements",
                f"choose 2 to {dims[name]}",
            )


def check(config: ContractionConfig, main: Compute, machine: Machine) -> None:
    """Refuses a config that names dims that ``main`` does not have, or what does not go together.

    Raises `ScheduleError`, and `UnsupportedError` for an instruction that the machine lacks.
    """
    instruction = machine.instruction(config.instruction) if config.instruction else None
    asked = Asked(config, main, machine)
    dims, kept, reduced = asked.sizes, asked.roles.kept, asked.roles.k
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
        asked.check_names(what, names, sorted(allowed))
    for what in ("tile", "step", "block"):
        chosen: Mapping[str, int] = getattr(config, what)
        for name, size in chosen.items():
            # A dot product's dim is padded to whole groups, which a step may take in.
            longest = dims[name] + (64 if name == config.k else 0)
            if not 1 <= size <= longest:
                raise asked.refusal(
                    f"{what}={{{name!r}: {size}}} is not a part of the dim",
                    f"{name} has {dims[name]} elements",
                    f"choose 1 to {dims[name]}",
                )
    _check_slices(asked, instruction)
    for name, size in config.block.items():
        even = config.transpose and dims[name] % size == 0
        if size < dims[name] and size % config.tile.get(name, 1) and not even:
            raise asked.refusal(
                f"block={{{name!r}: {size}}} cuts tiles of {config.tile[name]}",
                None,
                f"choose a multiple of {config.tile[name]}",
            )
    if instruction is not None:
        _check_instruction(asked, instruction)
    if (instruction is not None and "k" in instruction.sizes) != bool(config.k):
        raise asked.refusal(
            f"the instruction {config.instruction!r} and k={config.k!r} do not go together",
            None,
            "name the reduced dim for a dot product, and none for a multiply-add",
        )


def instruction_lines(
    kernel: Kernel, machine: Machine, name: str, refused: Mapping[str, str] | None = None
) -> list[str]:
    """Of a contraction: the instruction called ``name`` (empty: none), and for the best of those
    that would do more at a time with such operands, why it is another; of those that its recipe
    ``refused``, in the recipe's words. Empty for what multiplies nothing.
    """
    if not is_contraction(kernel):
        return []
    chosen = machine.instruction(name) if name else None
    lines = [_words(chosen) if chosen is not None else "no instruction: plain code"]
    # The best of what the machine has, and of what it lacks.
    for better in (machine.instructions, machine.lacks):
        lines += islice(_reasons(kernel, machine, better, chosen, refused), 1)
    return lines


def _words(instruction: Instruction) -> str:
    return f"{instruction.name} ({_products(instruction)})"


def _products(instruction: Instruction) -> str:
    count = instruction.flops // 2
    return f"{count} product{'' if count == 1 else 's'} at a time"


def _reasons(
    kernel: Kernel,
    machine: Machine,
    instructions: tuple[Instruction, ...],
    chosen: Instruction | None,
    refused: Mapping[str, str] | None,
) -> Iterator[str]:
    """Why those of ``instructions`` that do more than ``chosen`` are not it, the best first."""
    main = find_compute(kernel, MAIN)
    total = main.out.buffer.dtype
    a, b = (operand.view.buffer for operand in main.operands[:2])
    types = (a.dtype, as_packed(a.dtype, b.dtype))
    least = 0 if chosen is None else chosen.flops
    for instruction in sorted(instructions, key=lambda instruction: -instruction.flops):
        taken = tuple(role.dtype for role in instruction.operands)
        if len(taken) != 2 or instruction.out.dtype is not total or instruction.flops <= least:
            continue
        if not all(_alike(one, other) for one, other in zip(types, taken, strict=True)):
            continue
        # Longer vectors of a later machine are no other way to multiply.
        if instruction in machine.lacks and instruction.sizes.get("k", 1) == 1:
            continue
        why = []
        if taken != types:
            why.append(
                f"it multiplies {taken[0]} by {taken[1]}, and {a.name} has {a.dtype}, "
                f"{b.name} {b.dtype}"
            )
        if instruction in machine.lacks:
            why.append(f"{machine.name} has no {instruction.feature}")
        elif refused is not None and taken == types:
            why.append(refused.get(instruction.name, "no schedule with it is legal"))
        if why:
            yield f"not {_words(instruction)}: " + "; ".join(why)


def _alike(one: DType, other: DType) -> bool:
    """Whether elements could be of the other type: both are floats or both integers, of one
    size."""
    return one.is_float is other.is_float and one.bits == other.bits


def dot_of(main: Compute, machine: Machine, lanes: str, vector: int) -> Instruction | None:
    """The instruction that adds up neighbours of ``main``'s types, with ``lanes`` across vectors;
    None where the machine has none. One operand is the same for all lanes, the other is not."""
    operands = main.operands[:2]
    # What is the same for all lanes first, as in the table of instructions.
    same, other = sorted(operands, key=lambda o: strides(main, o.view).get(lanes) != 0)
    if strides(main, same.view).get(lanes) != 0 or len(main.operands) != 2:
        return None
    if any(factor_type(main, o) is not o.var.type for o in operands):
        return None
    instructions = machine.products(main.out.buffer.dtype, same.var.type, other.var.type)
    return next((i for i in instructions if neighbours(i) > 1 and i.sizes["n"] == vector), None)

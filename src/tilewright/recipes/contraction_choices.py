"""What a search may choose for a contraction on a CPU: the fields of a `ContractionConfig`, each
beside those before it.

What the model would choose (`choices.candidates`) is always among it, first; the rest is what may
be as fast or faster where the model is wrong: other shapes of register tiles that fit the
registers, other orders of loops, other steps, with and without copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any

from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.newest import Newest
from tilewright.recipes.choice import Choice, Chosen, different
from tilewright.recipes.choices import candidates, own_dims, reshaped, side_by_side
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.contraction_shape import rows_of, shape_of
from tilewright.recipes.legal import depth_of, instructions_for, is_ready, lies
from tilewright.recipes.model import (
    Estimate,
    estimate,
    reduced_order,
    second_of,
    tile_of,
)
from tilewright.recipes.roles import find_compute
from tilewright.recipes.start import Start
from tilewright.recipes.unit_model import unit_estimate, unit_tiles

# The tallest register tile, vectors of one, and rows of a second dim.
_TALLEST, _WIDEST, _SECOND = 24, 4, (1, 2, 3, 4)
# How far the innermost reduced dim may be unrolled, in what an instruction adds up.
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16)
# A shorter tap is unrolled as a whole.
_SHORT = 7
_SLICES = (2, 4, 8, 16)
_BLOCKS = (2, 4, 8, 16)


class _Space:
    """A contraction as its choices are listed for."""

    def __init__(self, start: Start, machine: Machine) -> None:
        self.start, self.machine = start, machine
        kernel, _, _ = reshaped(start.exact)
        self.main = find_compute(kernel, MAIN)
        self.shape = shape_of(self.main, find_compute(kernel, RESULT))
        self.vector = machine.lanes(self.main.out.buffer.dtype)

    def choices(self) -> tuple[Choice, ...]:
        """All fields, in the order in which they depend on each other."""
        fields: tuple[tuple[str, tuple[str, ...], Callable[[Chosen], Sequence[Any]]], ...] = (
            ("fuse", (), lambda chosen: ()),
            ("split", (), lambda chosen: ()),
            ("lanes", (), lambda chosen: self.lanes),
            ("instruction", ("lanes",), self.instructions),
            ("pack_a", ("instruction",), self.copies),
            ("k", ("lanes", "instruction", "pack_a"), self.added_up),
            ("pack_b", ("lanes", "instruction"), self.packs),
            ("tile", ("lanes", "instruction"), self.tiles),
            ("order", ("lanes",), self.orders),
            ("step", ("instruction", "k"), self.steps),
            ("reduce_order", ("k",), self.reduce_orders),
            ("transpose", ("lanes", "instruction"), lambda chosen: (False,)),
            ("block", ("lanes", "tile", "transpose"), self.blocks),
            ("slices", ("transpose",), self.slices),
        )
        return tuple(Choice(name, self._with_model(name, a, v), a) for name, a, v in fields)

    def _with_model(
        self, name: str, after: tuple[str, ...], values: Callable[[Chosen], Sequence[Any]]
    ) -> Callable[[Chosen], list[Any]]:
        """``values`` after those of the model's configs that agree in what they depend on."""

        def both(chosen: Chosen) -> list[Any]:
            offered = (
                getattr(config, name)
                for config in self.predicted
                if all(getattr(config, option) == chosen[option] for option in after)
            )
            return different([*offered, *values(chosen)])

        return both

    @cached_property
    def predicted(self) -> dict[ContractionConfig, Estimate | None]:
        """What the model chooses from, with what it says of it."""
        every = candidates(self.start.exact, self.machine, self.start.prepacked)
        return {candidate.config: candidate.prediction for candidate in every}

    @property
    def lanes(self) -> list[str]:
        """Dims that may lie across lanes: along which A is one value, or contiguous."""
        shape = self.shape
        return [dim for dim in shape.roles.kept if shape.a.get(dim) in (0, 1)]

    def instructions(self, chosen: Chosen) -> list[str]:
        """Those that take the operands as they lie along the lanes."""
        main, lanes = self.main, chosen["lanes"]
        generator = (
            self.machine.instruction(name) for name in instructions_for(main, self.machine)
        )
        # Shorter vectors are worth a try only where whole ones leave a rest.
        rest = self.shape.sizes[lanes] % self.vector
        fitting = [instruction for instruction in generator if lies(main, instruction, lanes)]
        return [
            instruction.name
            for instruction in fitting
            if rest or "m" in instruction.sizes or instruction.sizes["n"] == self.vector
        ]

    def copies(self, chosen: Chosen) -> tuple[bool, ...]:
        """Whether A is copied: it has to be where its elements have another type."""
        name = chosen["instruction"]
        view = self.main.operands[0].view
        if name and self.machine.instruction(name).operands[0].dtype is not view.buffer.dtype:
            return (True,)
        return (False, True)

    def added_up(self, chosen: Chosen) -> list[str]:
        """Reduced dims that the instruction may add up."""
        name = chosen["instruction"]
        depth = depth_of(self.machine.instruction(name)) if name else 1
        if depth == 1:
            return [""]
        main, shape = self.main, self.shape
        return (
            own_dims(main, shape, depth) if chosen["pack_a"] else side_by_side(main, shape, depth)
        )

    def packs(self, chosen: Chosen) -> tuple[bool, ...]:
        """Whether B is packed: it has to be where it does not lie as the instruction takes it."""
        instruction = self._instruction(chosen)
        ready = instruction is None or (
            depth_of(instruction) == 1 and is_ready(self.main, instruction, chosen["lanes"])
        )
        return (True, False) if ready else (True,)

    def tiles(self, chosen: Chosen) -> list[dict[str, int]]:
        """Register tiles whose sums fit the registers, beside the vectors of B and one of A."""
        shape, lanes = self.shape, chosen["lanes"]
        rows = rows_of(shape, lanes)
        columns = shape.sizes[lanes]
        instruction = self._instruction(chosen)
        if instruction is not None and "m" in instruction.sizes:
            if rows is None:
                return []
            return list(unit_tiles(shape, instruction, lanes, rows))
        vector = self.vector
        tiles: list[dict[str, int]] = []
        for vectors, (sizes, height) in product(range(1, 1 + _WIDEST), self._heights(lanes, rows)):
            fits = height * vectors + vectors + 1 <= self.machine.vector_registers
            if fits and (vectors - 1) * vector < columns:
                tiles.append({**sizes, lanes: min(vectors * vector, columns)})
        return tiles

    def _heights(self, lanes: str, rows: str | None) -> Iterator[tuple[dict[str, int], int]]:
        """Rows of register tiles by dim, and how many these are."""
        sizes = self.shape.sizes
        if rows is None:
            yield {}, 1
            return
        other = second_of(self.shape, lanes, rows)
        for second in _SECOND if other is not None else (1,):
            for first in range(1, 1 + min(_TALLEST, sizes[rows])):
                if second == 1:
                    yield {rows: first}, first
                # Rows of two images only where one is whole: otherwise they are longer.
                elif other and first == sizes[rows] and second <= sizes[other]:
                    yield {other: second, rows: first}, first * second

    def orders(self, chosen: Chosen) -> list[tuple[str, ...]]:
        """Loops over tiles: those over positions as they lie, those over columns anywhere."""
        roles, lanes = self.shape.roles, chosen["lanes"]
        columns = [d for d in (*roles.n, lanes) if d in roles.kept]
        columns = list(dict.fromkeys(columns))
        others = [d for d in roles.kept if d not in columns]
        places = range(len(others) + 1)
        return [tuple([*others[:place], *columns, *others[place:]]) for place in places]

    def steps(self, chosen: Chosen) -> list[dict[str, int]]:
        """How far reduced dims are unrolled: the innermost one, with or without a short tap."""
        shape, instruction = self.shape, self._instruction(chosen)
        depth = depth_of(instruction) if instruction is not None else 1
        order = reduced_order(shape)
        inner = chosen["k"] or order[-1]
        size = -(-shape.sizes[inner] // depth) * depth
        lengths = [n * depth for n in _STEPS if n * depth <= size]
        taps = [d for d in order if d != inner and 1 < shape.sizes[d] <= _SHORT][-1:]
        return [
            {**around, inner: length}
            for around in ({}, *({d: shape.sizes[d]} for d in taps))
            for length in lengths
        ]

    def reduce_orders(self, chosen: Chosen) -> list[tuple[str, ...]]:
        """Loops over reduced dims: taps around channels, or the other way round."""
        shape = self.shape
        order = reduced_order(shape)
        last = [chosen["k"]] if chosen["k"] else []
        taps = [d for d in order if d not in shape.channels and d not in last]
        channels = [d for d in order if d in shape.channels and d not in last]
        return different([(*taps, *channels, *last), (*channels, *taps, *last)])

    def blocks(self, chosen: Chosen) -> list[dict[str, int]]:
        """How much of the result is computed at a time: all, or so many rows of tiles."""
        if chosen["transpose"]:
            return []
        shape, tile = self.shape, chosen["tile"]
        rows = rows_of(shape, chosen["lanes"])
        heights = [] if rows is None else [n * tile.get(rows, 1) for n in _BLOCKS]
        return [{}, *({rows: n} for n in heights if rows is not None and n < shape.sizes[rows])]

    def slices(self, chosen: Chosen) -> list[dict[str, int]]:
        """In how many parts the longest reduced dim is summed up."""
        sizes = self.shape.sizes
        longest = max(reduced_order(self.shape), key=lambda dim: sizes[dim])
        if chosen["transpose"] or self.machine.cores == 1:
            return [{}]
        return [{}, *({longest: n} for n in _SLICES if 8 * n <= sizes[longest])]

    def _instruction(self, chosen: Chosen) -> Instruction | None:
        name = chosen["instruction"]
        return self.machine.instruction(name) if name else None


_spaces: Newest[tuple[int, int], _Space] = Newest(16)


def _space(start: Start, machine: Machine) -> _Space:
    """The same for the same objects, which it keeps: to compare kernels takes longer."""
    key = (id(start), id(machine))
    space = _spaces.get(key)
    if space is None:
        space = _spaces[key] = _Space(start, machine)
    return space


def contraction_choices(start: Start, machine: Machine) -> tuple[Choice, ...]:
    """All that may be chosen for the contraction of ``start``, whose sizes are known."""
    return _space(start, machine).choices()


def prediction(start: Start, machine: Machine, config: ContractionConfig) -> Estimate | None:
    """What the model says of ``config``, be it one of its own or not; None of what has no
    instruction, or names dims that there are not."""
    space = _space(start, machine)
    predicted, shape, lanes = space.predicted.get(config), space.shape, config.lanes
    if (
        predicted is not None
        or not config.instruction
        or not {lanes, *config.tile} <= set(shape.sizes)
    ):
        return predicted
    rows = rows_of(shape, lanes)
    instruction = machine.instruction(config.instruction)
    if "m" in instruction.sizes:
        return None if rows is None else unit_estimate(shape, machine, config, instruction, rows)
    tile = tile_of(shape, lanes, rows, config.tile, space.vector, machine)
    return estimate(shape, tile, lanes, rows, space.vector, machine)

"""What a recipe has to know of a machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Space
from tilewright.ir.stmt import LoopKind
from tilewright.machines.instruction import Instruction
from tilewright.machines.rates import USUAL_CORE, Core, Costs, Rates
from tilewright.machines.tile_unit import TileCopy, TileUnit

# Recipes of machines with caches, and of those whose work-items share memory in banks: that is
# faster than a cache, so that only there a copy of operands pays for itself.
CACHED = ("factored", "contraction", "elementwise", "chained", "tiled", "reductions", "plain")
BANKED = (
    "stencil", "workgroups", "contraction", "elementwise", "reductions_in_workgroups", "plain",
)  # fmt: skip


@dataclass(frozen=True)
class Hierarchy:
    """How work-items form groups on a device. Sizes in bytes.

    ``subgroup`` lanes run together; a workgroup has at most ``workgroup`` work-items and shares
    ``shared`` bytes. ``banks`` (0: memory without banks) serve ``bank`` bytes each at a time, and
    global memory moves ``segment`` bytes at a time. A launch has at most ``groups`` workgroups (0:
    no such limit), of which at most ``cluster`` reach each other's memory. Lanes wait for each
    other, and exchange values, in subgroups of the sizes ``exchanging`` (empty: of any size).
    """

    subgroup: int
    workgroup: int
    shared: int
    banks: int
    bank: int
    segment: int
    groups: int = 0
    cluster: int = 1
    exchanging: tuple[int, ...] = ()


# A thread is a workgroup of its own.
THREADS = Hierarchy(subgroup=1, workgroup=1, shared=0, banks=0, bank=0, segment=0)


@dataclass(frozen=True)
class Workers:
    """What shares the iterations of a loop.

    - ``kind``: the kind of loop that they share
    - ``pieces``: the number of workers that keeps all cores busy
    - ``items``: work-items of a workgroup that share nothing else, of which each is a worker and
      neighbours take neighbouring iterations (0: a worker is a whole thread or workgroup)
    - ``worth``: iterations that are worth a launch each time that the host's control comes by
    - ``common``: the memory that one loop's results are in where another reads them
    """

    kind: LoopKind
    pieces: int
    items: int
    worth: int
    common: Space


# Work-items of a workgroup that share nothing: a few subgroups.
_ITEMS = 128
# One thread of a processor runs few iterations sooner than all of them start; one work-item is far
# slower.
_WORTH, _WORTH_ITEMS = 4096, 64


@dataclass(frozen=True, repr=False)
class Machine:
    """One kind of processor. Sizes in bytes; ``caches`` from L1 (of one core) outwards.

    ``hierarchy`` is `THREADS` where those are all there is. No vector has more than ``most_lanes``
    elements, whatever their size (0: no such limit). ``rates`` is None where no model predicts
    times of workgroups; ``core`` and ``costs`` are what times of threads are predicted from: by
    models of a recipe, and of any kernel (None: by these only). ``tile_unit`` is None
    where nothing copies tiles by itself. IEEE's floats of ``narrowest`` bytes and more are computed
    on as they are, shorter ones in f32. With ``past_caches``, lines are asked for ahead of their
    use, and stored without a copy in the caches. ``recipes`` are the names of those that schedule
    for it, in the order in which they are asked: those that know more of a kernel first. ``lacks``
    are instructions that only later machines of its family have.
    """

    name: str
    features: frozenset[str]
    vector_bytes: int
    vector_registers: int
    caches: tuple[int, ...]
    cores: int
    instructions: tuple[Instruction, ...]
    hierarchy: Hierarchy = THREADS
    most_lanes: int = 0
    rates: Rates | None = None
    core: Core = USUAL_CORE
    costs: Costs | None = field(default=None, compare=False)
    tile_unit: TileUnit | None = None
    narrowest: int = 4
    past_caches: bool = False
    recipes: tuple[str, ...] = CACHED
    lacks: tuple[Instruction, ...] = field(default=(), repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<machine {self.name}>"

    def lanes(self, dtype: DType) -> int:
        """Elements of ``dtype`` in one vector register."""
        lanes = self.vector_bytes // dtype.bytes
        return min(lanes, self.most_lanes) if self.most_lanes else lanes

    @cached_property
    def _by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    def instruction(self, name: str) -> Instruction:
        """The instruction called ``name``. Raises `UnsupportedError` if the machine lacks it."""
        named = self._by_name.get(name)
        if named is not None:
            return named
        near = get_close_matches(name, self._by_name)
        raise UnsupportedError(
            f"{self.name} has no instruction '{name}'",
            cure="choose one of " + ", ".join(near or self.multiply_adds),
        )

    def tile_copy(self, name: str) -> TileCopy:
        """The copy of tiles called ``name``. Raises `UnsupportedError` if the machine lacks it."""
        unit = self.tile_unit
        by_name = {
            copy_.name: copy_ for copy_ in ((unit.load, unit.store) if unit is not None else ())
        }
        if name not in by_name:
            raise UnsupportedError(
                f"{self.name} has no copy of tiles '{name}'",
                cure="choose one of " + ", ".join(by_name) if by_name else "let work-items copy",
            )
        return by_name[name]

    @property
    def threaded(self) -> bool:
        """Whether threads are all there is: few, with caches of their own."""
        return self.hierarchy == THREADS

    @property
    def banked(self) -> bool:
        """Whether work-items share memory in banks: they are many then, and it is fast."""
        return self.hierarchy.banks > 0

    @cached_property
    def workers(self) -> Workers:
        """What shares the iterations of a loop."""
        pieces = 8 * self.cores
        if self.threaded:
            return Workers(LoopKind.PARALLEL, pieces, 0, _WORTH, Space.PRIVATE)
        items = 0
        if self.banked:
            pieces = self.cores * self.hierarchy.workgroup * 64
            items = min(_ITEMS, self.hierarchy.workgroup)
        return Workers(LoopKind.GRID, pieces, items, _WORTH_ITEMS, Space.GLOBAL)

    @property
    def peak_rates(self) -> Rates:
        """What a model predicts times of workgroups from. Raises `UnsupportedError` where that is
        not known."""
        if self.rates is None:
            raise UnsupportedError(
                f"no model predicts times on {self.name}",
                why="its peak figures are not known",
                cure="choose a target whose machine has rates, such as nvidia:sm_80",
            )
        return self.rates

    @property
    def copies_tiles(self) -> bool:
        """Whether a unit copies tiles by itself."""
        return self.tile_unit is not None

    @property
    def copies_ahead(self) -> bool:
        """Whether work-items have copies to shared memory made while they go on."""
        return "async_copy" in self.features

    @property
    def multiply_adds(self) -> tuple[str, ...]:
        """The names of the instructions that add up products, the least first."""
        return tuple(i.name for i in self.instructions if len(i.operands) == 2)

    def products(self, out: DType, a: DType, b: DType) -> tuple[Instruction, ...]:
        """The instructions that add products of ``a`` and ``b`` up in ``out``, largest first."""
        instructions = [
            i
            for i in self.instructions
            if i.out.dtype is out and tuple(role.dtype for role in i.operands) == (a, b)
        ]
        return tuple(sorted(instructions, key=lambda i: -i.flops))

    def transposes(self, dtype: DType) -> dict[int, Instruction]:
        """The instructions that exchange rows and lanes of a square of ``dtype``, by the length of
        a side, the largest first."""
        generator = (i for i in self.instructions if i.emit == "transpose" and i.out.dtype is dtype)
        by_side = {i.sizes["n"]: i for i in generator}
        return {side: by_side[side] for side in sorted(by_side, reverse=True)}

    def interleave(self, dtype: DType, rows: int) -> Instruction | None:
        """The instruction that puts the elements of so many rows side by side."""
        generator = (
            i for i in self.instructions if i.emit == "interleave" and i.out.dtype is dtype
        )
        return next((i for i in generator if i.sizes["n"] == rows), None)

    def reduction(self, dtype: DType, combiner: str) -> Instruction | None:
        """The instruction that combines all lanes of the widest vector; None if there is none."""
        instructions = [
            i
            for i in self.instructions
            if i.emit == "reduce" and i.out.dtype is dtype and i.combiner == combiner
        ]
        return max(instructions, key=lambda i: i.sizes["n"], default=None)

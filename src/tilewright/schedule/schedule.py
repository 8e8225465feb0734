"""A schedule: a kernel and the transforms that were applied to it, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

from tilewright.errors import ScheduleError, UnsupportedError, one_of
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.machines.tile_unit import TileCopy
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.dims.split_dim import split_dim
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.groups import Cut, as_contraction, cut
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.enclose import enclose
from tilewright.schedule.loops.fuse_nests import fuse_nests
from tilewright.schedule.loops.guard import guard, guard_select
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes, open_nests
from tilewright.schedule.loops.merge_loops import merge_loops
from tilewright.schedule.loops.narrow import narrow
from tilewright.schedule.loops.order_workgroups import order_workgroups
from tilewright.schedule.loops.parallelize_parts import parallelize_parts
from tilewright.schedule.loops.partition import name_apart, partition
from tilewright.schedule.loops.reorder import reorder
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.loops.trim import trim
from tilewright.schedule.loops.unroll_known import unroll_known
from tilewright.schedule.loops.unroll_lengths import unroll_lengths
from tilewright.schedule.loops.work_together import work_together
from tilewright.schedule.operands.fragments import hold, on_lanes
from tilewright.schedule.operands.inline import inline
from tilewright.schedule.operands.name_operands import name_operands
from tilewright.schedule.operands.precompute import precompute
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.outline import Outlines, outline
from tilewright.schedule.pipelines.multicast import multicast
from tilewright.schedule.pipelines.pipeline import pipeline
from tilewright.schedule.pipelines.specialize_warps import specialize_warps
from tilewright.schedule.records.arguments import check_arguments
from tilewright.schedule.records.handles import (
    KINDS,
    Handle,
    Names,
    Results,
    check_handles,
    names_in,
)
from tilewright.schedule.records.record import (
    CUT,
    HOIST,
    MAIN,
    OUTLINE,
    TOGETHER,
    Record,
    call_text,
    digest_of,
    lines_of,
)
from tilewright.schedule.records.transform import TRANSFORMS, Handles, Step, as_method, parts_of
from tilewright.schedule.reductions.carry import carry
from tilewright.schedule.reductions.compare_bits import compare_bits
from tilewright.schedule.reductions.divide_late import divide_late
from tilewright.schedule.reductions.divide_scan import divide_scan
from tilewright.schedule.reductions.factor_out import factor_out
from tilewright.schedule.reductions.flush_powers import flush_powers
from tilewright.schedule.reductions.in_parts import in_parts
from tilewright.schedule.reductions.online import online
from tilewright.schedule.reductions.rfactor import rfactor
from tilewright.schedule.reductions.stream_k import stream_k
from tilewright.schedule.stages import StageLog, Stages
from tilewright.schedule.staging.fill_once import fill_once
from tilewright.schedule.staging.hoist import hoist_pack
from tilewright.schedule.staging.lay_out import lay_out
from tilewright.schedule.staging.prefetch import prefetch
from tilewright.schedule.staging.read_words import read_words
from tilewright.schedule.staging.stage import stage
from tilewright.schedule.staging.stage_result import stage_result
from tilewright.schedule.staging.store_non_temporally import store_non_temporally

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Done:
    """A step that was taken, and what came of the kernel ``before``: another one, and the schedules
    of what was split off: of a pack, or of the kernels of ``apart``."""

    step: Step
    before: Kernel
    kernel: Kernel
    parts: tuple[KernelSchedule, ...] = ()
    apart: Cut | Outlines | None = None

    @cached_property
    def names(self) -> Names:
        """What stands in the kernel."""
        return names_in(self.kernel)

    def __str__(self) -> str:
        return call_text(self.step.name, self.step.args, self.step.kwargs)


class KernelSchedule:
    """A kernel that transforms are applied to, one after the other, each of them recorded.

        schedule = KernelSchedule(kernel, machine)
        loops = schedule.tile("conv", {"ic": 4})
        schedule.set_kind(loops["ic"], LoopKind.UNROLLED)
        print(schedule)          # the same steps, as Python

    Every transform is a method. It gives handles of the loops, computes and buffers that are there
    now and were not before, in program order: one by itself, several as a tuple, and `Results`
    where the transform names them. A handle can be given wherever a name can, and names of what was
    there from the start as well. What a handle stands for may be gone later: then using it raises
    `ScheduleError`, which says since when. A transform that refuses leaves the schedule as it was,
    and one that changes nothing is no step.

    ``kernel`` is what came of the steps so far, ``start`` what they began with, ``machine`` has the
    instructions, ``constant`` names the arrays that may be packed beforehand. With ``check``, the
    kernel is verified after each step.
    """

    def __init__(
        self,
        kernel: Kernel,
        machine: Machine | None = None,
        *,
        constant: Sequence[str] = (),
        check: bool = False,
    ) -> None:
        self.start = kernel
        self.machine = machine
        self.constant = tuple(constant)
        self.check = check
        self.done: list[Done] = []
        self.log = StageLog()
        self._marked = 0

    @classmethod
    def of_groups(
        cls, cutting: Cut, parts: Sequence[KernelSchedule], machine: Machine
    ) -> KernelSchedule:
        """The schedule of a kernel whose groups were scheduled as ``parts``."""
        whole = cls(cutting.kernel, machine)
        whole.mark("naive")
        for group, part in zip(cutting.groups, parts, strict=True):
            whole.log.include(part.log, group.kernel.name)
        whole._advance(Step.of(CUT, (), {}), cutting.kernel, tuple(parts), cutting)
        whole.put_together()
        whole.mark("together")
        return whole

    def begin_anew(self, kernel: Kernel) -> None:
        """Goes on with what a pass made of the kernel. That is no step: the record begins there."""
        self.start, self.done, self._marked = kernel, [], 0

    def mark(self, name: str) -> None:
        """Ends a stage called ``name``."""
        self.log.add(name, self.kernel, tuple(self.done[self._marked :]))
        self._marked = len(self.done)

    @property
    def stages(self) -> Stages:
        """The kernel at the end of each stage, by name."""
        return self.log.by_name()

    def __repr__(self) -> str:
        return f"<schedule of {self.kernel.name}: stages {', '.join(self.stages)}>"

    def _repr_html_(self) -> str:
        return self.stages._repr_html_()

    def fork(self) -> KernelSchedule:
        """Another schedule, which begins with the same steps."""
        fork = KernelSchedule(self.start, self.machine, constant=self.constant, check=self.check)
        fork.done, fork._marked = self.done[:], len(self.done)
        return fork

    def attempt(self, steps: Callable[[], object], note: str = "") -> bool:
        """Whether ``steps`` were taken. Where one of them refuses, or they give False, the schedule
        is as before; a ``note`` then says which steps were refused, and why."""
        before = self.start, self.done[:], self._marked
        entries, notes = len(self.log.entries), len(self.log.notes)
        refusal = None
        try:
            if steps() is not False:
                return True
        except (ScheduleError, UnsupportedError) as refused:
            refusal = refused
        self.start, self.done, self._marked = before
        del self.log.entries[entries:], self.log.notes[notes:]
        if note and refusal is not None:
            self.log.notes.append(f"{note} ({refusal.what})")
        return False

    def has(self, handle: Handle) -> bool:
        """Whether what ``handle`` stands for is still there."""
        return handle in self.done[-1].names[handle.kind]

    @property
    def kernel(self) -> Kernel:
        """The kernel after the last step."""
        return self.done[-1].kernel if self.done else self.start

    @property
    def packs(self) -> dict[str, KernelSchedule]:
        """The schedules of what `hoist_pack` split off, by the argument that each packs."""
        schedules: dict[str, KernelSchedule] = {}
        for done in self.done:
            for part in done.parts:
                schedules |= (
                    {part.start.arrays[0].name: part} if done.step.name == HOIST else part.packs
                )
        return schedules

    @property
    def packed(self) -> dict[str, Kernel]:
        """The kernels that pack arguments, by the name of the argument."""
        return {name: pack.kernel for name, pack in self.packs.items()}

    @property
    def prepacked(self) -> str | None:
        """The array that a recipe may pack beforehand: the first that is constant."""
        return next(iter(self.constant), None)

    def instruction(self, name: str) -> Instruction:
        """The machine's instruction called ``name``."""
        return self._machine("instruction", name).instruction(name)

    def tile_copy(self, name: str) -> TileCopy:
        """The copy of tiles called ``name`` by the machine's unit."""
        return self._machine("tile_copy", name).tile_copy(name)

    def _machine(self, method: str, name: str) -> Machine:
        """The machine, which ``method`` looks ``name`` up in."""
        if self.machine is None:
            raise ScheduleError(
                f"{method}: the schedule has no machine to look '{name}' up in",
                cure="name the machine when making the schedule",
            )
        return self.machine

    def apply(self, name: str, /, *args: Any, **kwargs: Any) -> Handles:
        """Applies the transform called ``name``. Raises `ScheduleError` for an unknown one."""
        if name not in TRANSFORMS:
            raise ScheduleError(f"there is no transform '{name}'", cure=one_of(name, TRANSFORMS))
        step = self._step(name, args, kwargs)
        kernel = TRANSFORMS[name](self.kernel, *step.args, **step.kwargs)
        if kernel is self.kernel:
            return ()
        return self._advance(step, kernel)

    def hoist_pack(self, buffer: str) -> KernelSchedule:
        """Splits off what fills ``buffer``, and gives the schedule of that. The kernel then takes
        the packed buffer instead of the argument that it was filled from.

        kernel conv(in src, in weights, out dst):
          alloc weights_packed
          compute w_pack(...): weights_packed[...] = weights[...]
          compute conv(...): dst[...] add= src[...] * weights_packed[...]
        ->  pack = hoist_pack("weights_packed")
        kernel conv_pack_weights(in weights, out weights_packed):
          compute w_pack(...): weights_packed[...] = weights[...]
        kernel conv(in src, in weights_packed, out dst):
          compute conv(...): dst[...] add= src[...] * weights_packed[...]
        """
        step = self._step(HOIST, (buffer,), {})
        split, kernel = hoist_pack(self.kernel, *step.args)
        if self.check:
            verify(split)
        pack = KernelSchedule(split, self.machine, check=self.check)
        self._advance(step, kernel, (pack,))
        return pack

    def cut(self) -> tuple[KernelSchedule, ...]:
        """Cuts the kernel into its groups (see `groups`), and gives the schedules of these: each is
        a kernel of its own. The next step is `put_together`."""
        step = self._step(CUT, (), {})
        cutting = cut(self.kernel)
        if cutting.whole:
            raise ScheduleError(
                f"cut: {self.kernel.name} is one group",
                where=f"kernel {self.kernel.name}",
                cure="schedule it as it is, or as_contraction() where it is one",
            )
        return self._taken_apart(step, cutting)

    def outline(self, compute: str) -> tuple[KernelSchedule, ...]:
        """Takes the blocks that ``compute`` stands in as kernels of their own, on tiles (see
        `outline`), and gives the schedules of these. The next step is `put_together`."""
        step = self._step(OUTLINE, (compute,), {})
        return self._taken_apart(step, outline(self.kernel, *step.args))

    def _taken_apart(self, step: Step, outlines: Cut | Outlines) -> tuple[KernelSchedule, ...]:
        parts = tuple(
            KernelSchedule(kernel, self.machine, check=self.check) for kernel in outlines.kernels
        )
        self._advance(step, self.kernel, parts, outlines)
        return parts

    def on_tiles(self, compute: str, scheduled: Callable[[Kernel], KernelSchedule]) -> None:
        """The blocks that ``compute`` stands in as ``scheduled`` has their kernels: `outline`, and
        `put_together`."""
        step = self._step(OUTLINE, (compute,), {})
        outlines = outline(self.kernel, *step.args)
        parts = tuple(scheduled(kernel) for kernel in outlines.kernels)
        for kernel, part in zip(outlines.kernels, parts, strict=True):
            self.log.include(part.log, kernel.name)
        self._advance(step, self.kernel, parts, outlines)
        self.put_together()

    def put_together(self) -> None:
        """Makes one kernel of what became of the kernels that `cut` or `outline` gave."""
        last = self.done[-1] if self.done else None
        if last is None or last.apart is None:
            raise ScheduleError(
                "put_together: there are no groups",
                where=f"step {len(self.done) + 1}",
                why="it is the step behind cut() or outline()",
                cure="cut the kernel first",
            )
        packed = {
            name: len(pack.start.arrays) - 1
            for part in last.parts
            for name, pack in part.packs.items()
        }
        kernel = last.apart.together([part.kernel for part in last.parts], packed)
        self._advance(Step.of(TOGETHER, (), {}), kernel)

    as_contraction = as_method(as_contraction)
    compare_bits = as_method(compare_bits)
    compute_at = as_method(compute_at)
    carry = as_method(carry)
    divide_late = as_method(divide_late)
    divide_scan = as_method(divide_scan)
    drop_unit_dims = as_method(drop_unit_dims)
    enclose = as_method(enclose)
    factor_out = as_method(factor_out)
    fill_once = as_method(fill_once)
    flush_powers = as_method(flush_powers)
    fuse_dims = as_method(fuse_dims)
    guard = as_method(guard)
    guard_select = as_method(guard_select)
    hold = as_method(hold)
    fuse_nests = as_method(fuse_nests)
    in_parts = as_method(in_parts)
    inline = as_method(inline)
    lay_out = as_method(lay_out)
    lower_computes = as_method(lower_computes)
    merge_loops = as_method(merge_loops)
    multicast = as_method(multicast)
    name_apart = as_method(name_apart)
    name_operands = as_method(name_operands)
    narrow = as_method(narrow)
    on_lanes = as_method(on_lanes)
    online = as_method(online)
    open_nests = as_method(open_nests)
    order_workgroups = as_method(order_workgroups)
    pad = as_method(pad)
    parallelize_parts = as_method(parallelize_parts)
    partition = as_method(partition)
    pipeline = as_method(pipeline)
    prefetch = as_method(prefetch)
    read_words = as_method(read_words)
    reorder = as_method(reorder)
    precompute = as_method(precompute)
    rfactor = as_method(rfactor)
    set_kind = as_method(set_kind)
    specialize_warps = as_method(specialize_warps)
    split_dim = as_method(split_dim)
    stage = as_method(stage)
    stage_result = as_method(stage_result)
    stream_k = as_method(stream_k)
    store_non_temporally = as_method(store_non_temporally)
    tensorize = as_method(tensorize)
    tile = as_method(tile)
    trim = as_method(trim)
    unroll_known = as_method(unroll_known)
    unroll_lengths = as_method(unroll_lengths)
    work_together = as_method(work_together)

    # Its record.

    @property
    def record(self) -> Record:
        """The steps as data, with the machine and the kernel that they are for."""
        machine = self.machine.name if self.machine is not None else ""
        lines = tuple(lines_of(self, MAIN, set()))
        return Record(machine, self.start.name, digest_of(self.start), lines)

    def text(self) -> str:
        """The record as Python: a header, and a line for each step."""
        return str(self.record)

    __str__ = text

    # Handles.

    def _step(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Step:
        """The step with names for handles, checked."""
        if self.done and self.done[-1].apart is not None:
            raise ScheduleError(
                f"{name}: the kernel is in groups",
                where=f"step {len(self.done) + 1}",
                why=f"step {len(self.done)} cut it, and nothing has put it together since",
                cure="schedule the groups by themselves, and then put_together()",
            )
        check_arguments(name, args, kwargs)
        check_handles(name, (args, kwargs), self)
        return Step.of(name, args, kwargs)

    def _advance(
        self,
        step: Step,
        kernel: Kernel,
        parts: tuple[KernelSchedule, ...] = (),
        apart: Cut | Outlines | None = None,
    ) -> Handles:
        """Takes the step, and gives handles of what it made."""
        if self.check:
            verify(kernel)
        before = self.done[-1].names if self.done else names_in(self.start)
        done = Done(step, self.kernel, kernel, parts, apart)
        self.done.append(done)
        new = [
            Handle.new(name, kind, len(self.done), done)
            for kind in KINDS
            for name in done.names[kind]
            if name not in before[kind]
        ]
        values = parts_of(kernel)
        if values:
            named = {
                part: Handle.new(name, kind, len(self.done), done)
                for part, (kind, name) in values.items()
                if name in done.names[kind]
            }
            return Results.of(new, named)
        return new[0] if len(new) == 1 else tuple(new)

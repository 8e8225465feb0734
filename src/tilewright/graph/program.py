"""A graph as something to call: kernels, a plan of memory, constants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tilewright.engine import CompiledKernel
from tilewright.engine.fitting import Fitting, PackCode
from tilewright.engine.holding import mapped_by_threads
from tilewright.engine.kept import KeptSteps
from tilewright.engine.kernel import Made
from tilewright.engine.numbers import aligned
from tilewright.engine.program import Code
from tilewright.engine.request import Request
from tilewright.errors import UnsupportedError
from tilewright.graph.cutting import Cut
from tilewright.graph.exporting import export_programs, packed_here
from tilewright.graph.launches import Launch
from tilewright.graph.memory import Arena, Live, lifetimes, plan
from tilewright.graph.parts import Group
from tilewright.ir.buffer import Buffer
from tilewright.ir.constants import missing_constant
from tilewright.ir.stmt import Kernel, Param
from tilewright.recipes.config import Config, GroupsConfig
from tilewright.runtime.steps import launches, map_steps
from tilewright.targets.c_names import unique_names
from tilewright.targets.calling import Calling
from tilewright.targets.linking import Base, HostLinked, Place, Plan, PointerArgument, Run
from tilewright.targets.program import Abi, DeviceProgram, Program, parameters_of
from tilewright.targets.target import Target

# Constants as kernels read them, by the hash of their contents and how they are packed.
Packed = dict[tuple[str, str], list[Any]]


@dataclass(frozen=True)
class Timed:
    """The launch of that number among `GraphProgram.launches`; seconds from the call's begin on."""

    launch: int
    start: float
    seconds: float


class GraphProgram(CompiledKernel):
    """A graph on one target, called like any other kernel: its steps are kernels of their own,
    which run one after the other in memory that was planned when it was compiled.

    ``groups`` are the kernels, each of which is there once, ``cut`` says which runs on what, and
    ``arena`` is the memory that lies between them: ``arena.bytes``, where each buffer lies, and
    ``arena.live``, what the step with the most needs at once. ``packed``: constants as kernels read
    them that are there already, and those that are made now.
    """

    def __init__(
        self,
        request: Request,
        target: Target,
        cut: Cut,
        groups: Sequence[Group],
        threads: int,
        compile_seconds: float,
        from_cache: bool,
        packed: Packed | None = None,
    ) -> None:
        self.cut = cut
        self.groups = tuple(groups)
        # Devices have their own ways to do several things at once.
        makers = threads if target.on_host else 1
        memory = _Memory(cut, self.groups, target.runs_here, packed, makers)
        self.arena = memory.arena
        self.plan, self.contents = memory.plan, memory.contents
        code = _LinkedCode(target, self._programs(), self.plan, self.contents, cut.graph)
        signature = request.signature()
        fitting = Fitting(signature, signature.forms, memory.packs, code, target.name)
        config = GroupsConfig(tuple(_configs(self.groups)))
        build = Made(config, code, memory.packs, signature, KeptSteps(b""), fitting)
        origin = "its kernels, one by one"
        super().__init__(request, target, build, threads, compile_seconds, from_cache, origin)

    def _programs(self) -> list[Any]:
        return [group.compiled.code.program for group in self.groups]

    def explain(self) -> str:
        """What `CompiledKernel.explain` says, of each kernel."""
        parts = (group.compiled.explain() for group in self.groups)
        return "\n\n".join((self.request.called(self.target.name), *parts))

    def in_arena(self, arena: NDArray[Any]) -> GraphProgram:
        """The program with ``arena`` as the memory between its steps, a contiguous array of numpy
        of `arena_room` bytes at least: nothing else is allocated. One call at a time runs in it.

        Raises `ArgumentError` for one that does not do.
        """
        program = object.__new__(GraphProgram)
        program.__dict__.update(self.__dict__)
        program.code = _LinkedCode(
            self.target, self._programs(), self.plan, self.contents, self.cut.graph, arena
        )
        return program

    @property
    def arena_room(self) -> int:
        """The bytes of an array that is enough for `in_arena`."""
        return self.plan.arena + 64

    def export(self, directory: str | Path, name: str | None = None) -> Path:
        """Writes the program for callers without Python: a static library with a C header, or
        modules with a plan in JSON, the constants beside it, and its ABI in words; returns the
        directory. ``name`` is what its files and functions are called, by default the graph's."""
        title = self.request.name
        name = unique_names([title])[0] if name is None else name
        return export_programs({title: self}, Path(directory), name)

    @property
    def host_contents(self) -> Sequence[NDArray[Any]]:
        """The constants as kernels read them, in memory of the host."""
        if self.target.on_host:
            return self.contents
        return _Memory(self.cut, self.groups, here=False).contents

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches, in the order of the text."""
        return tuple(launches(self.cut.steps))

    def timed(self, /, *ordered: Any, **arrays: Any) -> list[Timed]:
        """What one call on these arguments did: each launch with when it began and how long it
        took.

        Each is called by itself, from Python, which adds some microseconds.
        """
        if self.code.device is not None:
            raise UnsupportedError(
                f"the launches of {self.target.name} are not timed",
                why="they run asynchronously, in memory that the host does not reach",
                cure="use the vendor's profiler",
            )
        if ordered:
            self._name(ordered, arrays)
        fitting = self.fitting
        assert fitting is not None
        self._outputs(fitting, None, arrays, None)
        times: list[Timed] = []
        first = time.perf_counter()

        def observe(number: int, call: Callable[[], None]) -> None:
            start = time.perf_counter()
            call()
            times.append(Timed(number, start - first, time.perf_counter() - start))

        self._one_by_one.observed(fitting.pointers(arrays, None), self.threads, observe)
        return times

    @cached_property
    def _one_by_one(self) -> HostLinked:
        """Calls the kernels from Python. It keeps its arena: first touches of memory take longer
        than many a kernel."""
        return HostLinked(self._programs(), self.plan, self.contents)


def _configs(groups: Sequence[Group]) -> Iterator[Config]:
    """Those of all kernels: of one that recipes cut further, of its parts."""
    for group in groups:
        config = group.compiled.config
        yield from config.groups if isinstance(config, GroupsConfig) else (config,)


class _LinkedCode(Code):
    """The code of all groups as one program."""

    def __init__(
        self,
        target: Target,
        programs: Sequence[Program],
        plan: Plan,
        contents: Sequence[Any],
        graph: Kernel,
        arena: Any = None,
    ) -> None:
        self.binary = b""
        self.abi = Abi(graph.name, parameters_of(graph.params), (plan.arena,))
        # Code for another machine is there to be looked at: when it is called, its parts refuse.
        program = programs[0] if programs else None
        if target.runs_here or program is None:
            program = target.link(programs, plan, contents, arena)
        self.program = program
        self.run, self.bound = program.run, program.bound
        self.device = program if isinstance(program, DeviceProgram) else None


class _Memory:
    """Where everything lies that the launches of a graph touch.

    ``contents`` are the constants as kernels read them, ``packs`` how arguments are packed that a
    kernel reads in another order, by their names.
    """

    def __init__(
        self,
        cut: Cut,
        groups: Sequence[Group],
        here: bool,
        arrays: Packed | None = None,
        threads: int = 1,
    ) -> None:
        self._arrays: Packed = {} if arrays is None else arrays
        self._groups, self._here = groups, here
        self.packs: dict[str, PackCode] = {}
        self.contents: list[Any] = []
        self._packed: dict[tuple[str, str], list[int]] = {}
        self._constants = {p.buffer: p for p in cut.graph.arrays if p.digest is not None}
        missing: dict[tuple[str, str], tuple[NDArray[Any], CompiledKernel, str]] = {}
        for launch in launches(cut.steps):
            compiled = groups[launch.kernel].compiled
            for buffer, param in _pairs(launch, groups):
                pack = compiled.packing.get(param.name)
                if buffer in self._constants:
                    key = self._key(buffer, compiled, param.name)
                    if key[0] not in cut.graph.constants:
                        raise missing_constant(self._constants[buffer])
                    if key not in self._arrays:
                        missing[key] = cut.graph.constants[key[0]], compiled, param.name
                elif pack is not None:
                    self.packs[buffer.name] = pack
        read = mapped_by_threads(self._made, [*missing.values()], threads)
        self._arrays.update(zip(missing, read, strict=True))
        self._given: list[PointerArgument] = []
        self._arguments = self._numbered(cut.graph)
        self.arena, spaces = self._planned(cut)
        self._spaces = iter(spaces)
        steps = map_steps(cut.steps, self._run, self._place)
        self.plan = Plan(steps, self.arena.bytes, tuple(self._given))

    def _numbered(self, graph: Kernel) -> dict[Buffer, list[int]]:
        """Which pointers of a call an argument is."""
        numbers: dict[Buffer, list[int]] = {}
        for param in graph.arrays:
            if param.digest is not None:
                continue
            pack = self.packs.get(param.name)
            sizes = [param.buffer.bytes]
            if pack is not None:
                sizes = [form.extent * form.dtype.bytes for form in pack.forms]
            start = len(self._given)
            self._given += [PointerArgument(size, param.access != "in") for size in sizes]
            numbers[param.buffer] = list(range(start, len(self._given)))
        return numbers

    def _planned(self, cut: Cut) -> tuple[Arena, list[list[Live]]]:
        """The arena, and the workspaces of each launch."""
        things = lifetimes(cut)
        spaces: list[list[Live]] = []
        for now, launch in enumerate(launches(cut.steps)):
            sizes = self._workspaces(launch)
            workspaces = [Live((now, n), size, now, now) for n, size in enumerate(sizes)]
            spaces.append(workspaces)
            things += workspaces
        return plan(things), spaces

    def _workspaces(self, launch: Launch) -> Sequence[int]:
        """The bytes of each workspace of a launch."""
        group = self._groups[launch.kernel]
        abi = group.compiled.code.abi
        if not launch.numbers:
            return [int(size) for size in abi.workspaces]
        numbers = zip(group.kernel.scalars, launch.numbers, strict=True)
        return Calling(abi).workspace_bytes({param.var: number for param, number in numbers})

    def _run(self, launch: Launch) -> Run:
        places: list[Place] = []
        for number in launch.numbers:
            assert isinstance(number, int), "memory is planned for sizes that are known"
            places.append(Place(Base.NUMBER, number))
        compiled = self._groups[launch.kernel].compiled
        for buffer, param in _pairs(launch, self._groups):
            if buffer in self._arguments:
                places += [Place(Base.ARGUMENT, n) for n in self._arguments[buffer]]
            elif buffer in self._constants:
                numbers = self._contents(self._key(buffer, compiled, param.name))
                places += [Place(Base.CONSTANT, n) for n in numbers]
            else:
                places.append(self._place(buffer))
        spaces = [Place(Base.ARENA, self.arena.offsets[space.what]) for space in next(self._spaces)]
        return Run(launch.kernel, tuple(places), tuple(spaces))

    def _place(self, buffer: Buffer) -> Place:
        return Place(Base.ARENA, self.arena.offsets[buffer])

    def _key(self, buffer: Buffer, compiled: CompiledKernel, name: str) -> tuple[str, str]:
        """A constant as a kernel reads it: the same for all kernels that pack alike."""
        digest, pack = self._constants[buffer].digest, compiled.packing.get(name)
        assert digest is not None
        return digest, "" if pack is None else pack.key

    def _contents(self, key: tuple[str, str]) -> list[int]:
        """The numbers of the constants that are packed for ``key``."""
        if key not in self._packed:
            start = len(self.contents)
            self.contents += self._arrays[key]
            self._packed[key] = list(range(start, len(self.contents)))
        return self._packed[key]

    def _made(self, constant: tuple[NDArray[Any], CompiledKernel, str]) -> list[Any]:
        """A constant as the kernel reads it."""
        flat, compiled, name = constant
        if name not in compiled.packing:
            return [aligned(flat)]
        plain = flat.flags.aligned and flat.flags.c_contiguous
        array: Any = compiled.signature.form(name).view(flat if plain else aligned(flat))
        if self._here:
            return list(compiled.pack(name, array).data)
        return list(packed_here(compiled, name, array))


def _pairs(launch: Launch, groups: Sequence[Group]) -> Iterator[tuple[Buffer, Param]]:
    """What ``launch`` gives each parameter of its kernel."""
    return zip(launch.buffers, groups[launch.kernel].kernel.arrays, strict=True)

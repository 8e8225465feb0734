"""A graph whose sizes calls pass: kernels compiled once, memory planned for each set of sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.dtypes import s64
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.compile import checked_threads
from tilewright.engine.kept import KeptSteps
from tilewright.engine.kernel import Made
from tilewright.engine.numbers import Numbers
from tilewright.engine.program import Code
from tilewright.engine.request import request_of
from tilewright.engine.signature import Signature
from tilewright.errors import UnsupportedError
from tilewright.graph.cutting import Cut, cut_graph
from tilewright.graph.graph import Graph
from tilewright.graph.launches import Launch
from tilewright.graph.parts import compile_groups
from tilewright.graph.passes.pipeline import optimized
from tilewright.graph.program import GraphProgram, Packed
from tilewright.graph.reporting import long_compilation
from tilewright.graph.workers import Helpers
from tilewright.ir.arguments import Scalar, scalar_argument
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import const
from tilewright.ir.open_sizes import broken
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, Kernel, Param, ScalarParam
from tilewright.ir.symbols import bind_scalars, substitute_buffer, substitute_size
from tilewright.ir.visit import variables
from tilewright.newest import Newest
from tilewright.recipes.config import GroupsConfig
from tilewright.runtime.steps import map_steps
from tilewright.schedule.queries.place import fresh
from tilewright.targets.program import Abi, Passed, parameters_of
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target

# Sets of sizes whose memory stays planned.
_KEPT = 256


class OpenProgram:
    """The graph ``kernel``, which takes numbers as sizes, compiled for ``target``. `at` gives the
    program for some of them, in some milliseconds."""

    def __init__(self, kernel: Kernel, target: str, threads: int | None = None) -> None:
        """Raises `ArgumentError`, `UnsupportedError`, `ScheduleError`, `DeviceError`."""
        start = time.perf_counter()
        self.kernel, self._target = kernel, find_target(target)
        self._threads = checked_threads(threads)
        self._programs: Newest[tuple[Scalar, ...], CompiledKernel] = Newest(_KEPT)
        self._cut: Cut | None = None
        self._packed: Packed = {}
        if self._target.schedules:
            with long_compilation() as bar, Helpers() as helpers:
                self._cut = cut_graph(optimized(kernel))
                self._groups = compile_groups(self._cut, target, self._threads, (), bar, helpers)
        self.compile_seconds = time.perf_counter() - start

    @property
    def from_cache(self) -> bool:
        """Whether all kernels were compiled before."""
        return self._cut is not None and all(g.compiled.from_cache for g in self._groups)

    def at(self, numbers: Mapping[str, int]) -> CompiledKernel:
        """The program for these sizes. Raises `ArgumentError` for one that breaks a promise."""
        where = f"sizes of {self.kernel.name}"
        values = {p.name: scalar_argument(p, numbers[p.name], where) for p in self.kernel.scalars}
        key = tuple(values.values())
        compiled_kernel = self._programs.get(key)
        if compiled_kernel is None:
            compiled_kernel = self._programs[key] = self._made(values)
        return compiled_kernel

    def _made(self, numbers: Mapping[str, Scalar]) -> CompiledKernel:
        if self._cut is None:
            bound = bind_scalars(self.kernel, numbers)
            return compile_kernel(bound, self._target.name, self._threads)
        cut = closed(self._cut, numbers)
        return GraphProgram(
            request_of(cut.graph),
            self._target,
            cut,
            self._groups,
            self._threads,
            self.compile_seconds,
            self.from_cache,
            self._packed,
        )


class OpenGraphProgram(CompiledKernel):
    """A graph of open sizes on one target, called like any other kernel: shapes of arrays tell the
    sizes, or calls name them. `at` gives the program for some of them."""

    def __init__(self, graph: Graph, target: Target, threads: int, compile_other: Compile) -> None:
        start = time.perf_counter()
        self.graph = graph
        self.open_program = OpenProgram(graph.kernel, target.name, threads)
        self._compile = compile_other
        self._closed: Newest[tuple[int, ...], CompiledKernel] = Newest(_KEPT)
        # By what is closed in them: compiled for all others.
        self._others: Newest[tuple[tuple[str, int], ...], CompiledKernel] = Newest(_KEPT)
        request = request_of(graph.kernel)
        passed = {param.name: param for param in graph.scalars}
        signature = Signature(tuple(passed.get(p.name, p) for p in graph.kernel.params))
        code = _OpenCode(self)
        numbers = Numbers(signature, {}, code, target.name, request.name, graph.kernel.constants)
        whole = Made(GroupsConfig(()), code, {}, signature, KeptSteps(b""), None, numbers)
        seconds = time.perf_counter() - start
        cached = self.open_program.from_cache
        super().__init__(
            request, target, whole, threads, seconds, cached, "its kernels, one by one"
        )

    def at(self, numbers: Mapping[str, int]) -> CompiledKernel:
        """The program for these sizes. Raises `ArgumentError`, and what compiling does, for sizes
        that have a program of their own."""
        key = tuple([numbers[param.name] for param in self.graph.scalars])
        compiled_kernel = self._closed.get(key)
        if compiled_kernel is None:
            compiled_kernel = self._closed[key] = self._at(numbers)
        return compiled_kernel

    @property
    def closed(self) -> tuple[Mapping[str, int], ...]:
        """The sizes that are numbers in a program that was compiled beside that of all sizes, for
        each of these."""
        return tuple(map(dict, self._others))

    def misfit(self, numbers: Mapping[str, int]) -> tuple[str, Collection[str]] | None:
        """Why these sizes have a program of their own, and for which of them it is; None where they
        have none."""
        params = self.graph.kernel.scalars
        for param in params:
            number, low, high = numbers[param.name], param.low, param.high
            if (low is not None and number < low) or (high is not None and number > high):
                return f"kernels are promised {to_text(param)}, and it is {number}", [param.name]
        values = {param.var: numbers[param.name] for param in params}
        condition = broken(self.graph.decided, values)
        if condition is None:
            return None
        used = variables(condition)
        return f"`{condition}` comes out otherwise", [p.name for p in params if p.var in used]

    def _at(self, numbers: Mapping[str, int]) -> CompiledKernel:
        misfit = None if self.graph.closing is None else self.misfit(numbers)
        if misfit is None:
            return self.open_program.at(numbers)
        other = self._other({name: numbers[name] for name in misfit[1]}, numbers)
        self._check_shapes(other, numbers, misfit[0])
        return other.at(numbers) if isinstance(other, OpenGraphProgram) else other

    def _check_shapes(self, other: CompiledKernel, numbers: Mapping[str, int], why: str) -> None:
        """Refuses a program whose arrays have other shapes than calls pass and get here."""
        values = {p.var: const(numbers[p.name], p.dtype) for p in self.graph.kernel.scalars}
        buffers = {param.name: param.buffer for param in self.graph.kernel.arrays}
        for param in other.signature.arguments:
            shapes = [
                tuple(substitute_size(size, values) for size in memory.sizes)
                for memory in (buffers[param.name], param.buffer)
            ]
            if shapes[0] != shapes[1]:
                raise UnsupportedError(
                    f"{param.name} has another shape for these sizes than for others",
                    where=f"sizes of {self.graph.kernel.name}",
                    why=why,
                    cure="read the model again with these sizes as numbers",
                )

    def _other(self, closed: Mapping[str, int], numbers: Mapping[str, int]) -> CompiledKernel:
        """The program in which some sizes are ``closed``, or all are, where the rest cannot be open
        then."""
        key = tuple(closed.items())
        compiled_kernel = self._others.get(key)
        if compiled_kernel is None:
            assert self.graph.closing is not None
            try:
                graph = self.graph.closing(closed)
            except UnsupportedError:
                if len(closed) == len(self.graph.scalars):
                    raise
                return self._other({p.name: numbers[p.name] for p in self.graph.scalars}, numbers)
            compiled_kernel = self._others[key] = self._compile(
                graph, self.target.name, self.threads
            )
        return compiled_kernel


Compile = Callable[[Graph, str, int], CompiledKernel]


class _OpenCode(Code):
    """The code of an `OpenGraphProgram`: that of the program for the sizes of a call."""

    def __init__(self, program: OpenGraphProgram) -> None:
        kernel = program.graph.kernel
        self._open = program
        self.binary = b""
        self.abi = Abi(kernel.name, parameters_of(kernel.params), ())
        self.device = None
        self._scalars = [n for n, p in enumerate(kernel.params) if isinstance(p, ScalarParam)]
        self._names = [kernel.params[n].name for n in self._scalars]
        # What the program for some sizes takes: it has its constants itself.
        self._arrays = [
            n for n, p in enumerate(kernel.params) if isinstance(p, Param) and p.digest is None
        ]

    def _of(self, arguments: Sequence[Passed]) -> tuple[Code, list[Any]]:
        numbers = {n: int(arguments[at]) for n, at in zip(self._names, self._scalars, strict=True)}
        program = self._open.at(numbers)
        return program.code, program.with_constants([int(arguments[n]) for n in self._arrays])

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs the program on these pointers and numbers."""
        code, pointers = self._of(arguments)
        code.run(pointers, threads)

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """The same as a function of no arguments."""
        code, pointers = self._of(arguments)
        return code.bound(pointers, threads)


def closed(cut: Cut, numbers: Mapping[str, Scalar]) -> Cut:
    """``cut`` on memory of known sizes: its kernels take numbers, and launches say which. Of the
    graph, it has the parameters."""
    values = {p.var: const(numbers[p.name], p.dtype) for p in cut.graph.scalars}
    renewed: dict[Buffer, Buffer] = {}

    def of(old: Buffer) -> Buffer:
        if old not in renewed:
            renewed[old] = substitute_buffer(old, values)
        return renewed[old]

    def launch(step: Launch) -> Launch:
        value = tuple(substitute_size(number, values) for number in step.numbers)
        return step.on(tuple(map(of, step.buffers)), value)

    params = tuple(Param(of(p.buffer), p.access, p.digest) for p in cut.graph.arrays)
    nothing = buffer(fresh("nothing", {param.name for param in params}), s64, (1,))
    return Cut(
        replace(cut.graph, params=params, body=Block((Allocate(nothing),))),
        cut.kernels,
        map_steps(cut.steps, launch, of),
        tuple(map(of, cut.between)),
        tuple(frozenset(map(of, inside)) for inside in cut.loops),
    )

"""Graphs compiled: as programs of several kernels, or as the target runs them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.compile import checked_threads
from tilewright.engine.request import Request, request_of
from tilewright.graph.cutting import Cut
from tilewright.graph.graph import Graph
from tilewright.graph.open_program import OpenGraphProgram
from tilewright.graph.parts import Progress, compile_groups
from tilewright.graph.preparing import prepare
from tilewright.graph.program import GraphProgram
from tilewright.graph.reporting import long_compilation
from tilewright.graph.stored import kept_cut, kept_prepared
from tilewright.graph.workers import Helpers
from tilewright.ir.stmt import Kernel
from tilewright.targets.registry import find_target


def compile_graph(
    graph: object,
    target: str | None = None,
    threads: int | None = None,
    constant: Sequence[str] = (),
    progress: Progress | None = None,
) -> CompiledKernel:
    """Compiles a graph, or a kernel as one, for ``target`` (default: x86): as a `GraphProgram`, but
    for the interpreter, which runs it as it is.

    Sizes that calls pass are told by the shapes of arrays; memory is planned for each set of them.
    ``threads`` run it (default: all), ``constant`` names arguments whose contents stay the same, so
    that they may be packed beforehand; ``progress`` is told how far it is. Raises `ArgumentError`,
    `VerificationError`, `UnsupportedError`, `ScheduleError`, `DeviceError`.
    """
    asked = graph if isinstance(graph, Graph) and graph.scalars else None
    if isinstance(graph, Graph):
        constant = constant or graph.constant
        graph = graph.kernel
    start = time.perf_counter()
    threads = checked_threads(threads)
    name = "x86" if target is None else target
    where = find_target(name)
    if asked is not None:
        return OpenGraphProgram(asked, where, threads, compile_graph)
    if not where.schedules:
        return compile_kernel(graph, name, threads, constant=constant)
    request = request_of(graph, constant)
    kernel = request.start().kernel
    if kernel.scalars:
        whole = Graph(kernel, scalars=kernel.scalars)
        return OpenGraphProgram(whole, where, threads, compile_graph)
    with long_compilation() as bar, Helpers() as helpers:
        cut = kept_cut(request, where, helpers)
        return _program(cut, request, name, threads, progress or bar, helpers, start)


@dataclass(frozen=True, eq=False)
class Divided:
    """A graph in two programs. ``program`` runs in each call; of its arguments, ``constant`` stay
    the same: each is the argument of the whole graph that this names, or what ``before`` makes of
    those."""

    program: CompiledKernel
    constant: Mapping[str, str]
    before: CompiledKernel | None


def compile_divided(
    kernel: Kernel, constant: Collection[str], target: str, threads: int | None = None
) -> Divided:
    """Compiles a graph in two parts: what depends on its arguments ``constant`` alone, and the rest
    (`preparing`). Raises what `compile_graph` does."""
    start = time.perf_counter()
    threads = checked_threads(threads)
    where = find_target(target)
    if not where.schedules:
        prepared = prepare(kernel, constant)
        rest = compile_graph(prepared.kernel, target, threads, tuple(prepared.constant))
        first = None if prepared.before is None else compile_graph(prepared.before, target, threads)
        return Divided(rest, prepared.constant, first)
    with long_compilation() as bar, Helpers() as helpers:
        kept = kept_prepared(kernel, constant, where, helpers)
        request = request_of(kept.cut.graph, tuple(kept.constant))
        program = _program(kept.cut, request, target, threads, bar, helpers, start)
        if kept.before is None:
            return Divided(program, kept.constant, None)
        other = request_of(kept.before.graph)
        before = _program(kept.before, other, target, threads, bar, helpers, start)
        return Divided(program, kept.constant, before)


def _program(
    cut: Cut,
    request: Request,
    target: str,
    threads: int,
    progress: Progress,
    helpers: Helpers,
    start: float,
) -> GraphProgram:
    """The program of a cut; compiling it began at ``start``."""
    names = request.start().constant
    groups = compile_groups(cut, target, threads, names, progress, helpers)
    cached = all(group.compiled.from_cache for group in groups)
    seconds = time.perf_counter() - start
    return GraphProgram(request, find_target(target), cut, groups, threads, seconds, cached)

"""Functions of the public face: compiling, and parsing the text of kernels and schedules."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tilewright.calls import checked_call
from tilewright.config import database_in
from tilewright.errors import ArgumentError, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tilewright.engine import CompiledKernel, Schedule
    from tilewright.engine.trace import Trace
    from tilewright.graph.graph import Graph
    from tilewright.ir.stmt import Kernel
    from tilewright.lang.kernel import KernelFunction
    from tilewright.ops.op import Op
    from tilewright.recipes.config import Config
    from tilewright.schedule.records.record import Record


@checked_call
def compile(
    what: Op | Kernel | Graph | Schedule | KernelFunction,
    target: str | None = None,
    threads: int | None = None,
    config: Config | Mapping[str, Any] | str | None = None,
    trace: Trace | None = None,
    constant: Sequence[str] = (),
    schedule: Schedule | str | None = None,
    database: str | Path | None = None,
    tunables: Mapping[str, Any] | None = None,
) -> CompiledKernel:
    """Compiles ``what`` for ``target``, or takes the code from the caches in memory and on disk.

    ``what`` is an op, a kernel, a graph, a function with `@tw.kernel`, or a schedule of an op or a
    kernel. A graph, or a
    kernel of more than 16 computes that takes no numbers, becomes a program of several kernels
    (`GraphProgram`), unless a config, a schedule or a trace asks for one. ``target`` is a
    family, or a family and a variant (``"x86:avx2"``, ``"spirv:gpu"``); by default the
    schedule's, or ``"x86"``. ``threads``, 1 to 256, run the kernel (default: all cores); of an
    OpenCL device that is a processor, so many cores do, and any other runs it whole. ``config``
    overrides the model's choice: a config object, or its text; or some of its fields, as
    ``{"tile": {"oc": 32}}`` or as the text ``"tile={'oc': 32}"``. ``trace`` records what every
    stage and pass did. ``schedule`` replaces the schedule of the recipes: a `Schedule`, or its
    text, of the same kernel and machine. ``constant`` names arrays whose contents stay the same,
    so that they may be packed before the kernel runs; others are taken as they are, but for
    weights of an op whose layout is ``any``. ``database`` is the file in which the tuner left what
    is fastest, which is asked before the model (default: that of ``TILEWRIGHT_DB``; ``""``: none);
    ``explain`` of what comes back says what it had. ``tunables`` are the values of what `tunable`
    declares, of a function with `@tw.kernel`.

    Raises `UnsupportedError`, `ScheduleError`, `ArgumentError`, `ParseError` for the text of a
    schedule, `VerificationError` for an ill-formed kernel, or `DeviceError` for a device that is
    not there or that refuses the kernel.
    """
    # LLVM and the schedules load with the first kernel: describing ops needs neither.
    from tilewright.engine import compile_kernel
    from tilewright.graph.graph import Graph, is_graph

    check_database(database)
    if tunables is not None:
        what = _with_tunables(what, tunables)
    with database_in(database):
        if config is None and trace is None and schedule is None and is_graph(what):
            from tilewright.graph.compiling import compile_graph

            return compile_graph(what, target, threads, constant)
        if isinstance(what, Graph):
            constant = constant or what.constant
            what = what.kernel
        return compile_kernel(what, target, threads, config, trace, constant, schedule)


def check_database(database: object) -> None:
    """Raises `ArgumentError` for what is no path of a file, nor None."""
    if not isinstance(database, str | os.PathLike | None):
        raise ArgumentError(
            f"{short(database)} is no database", cure="pass the path of a file, or leave it out"
        )


def _with_tunables(what: object, tunables: Mapping[str, Any]) -> Kernel:
    from tilewright.lang import KernelFunction

    if not isinstance(what, KernelFunction):
        raise ArgumentError(
            f"tunables are given for {short(what)}",
            why="functions with @tw.kernel have them",
            cure="leave tunables= out",
        )
    return what.as_kernel(tunables)


@checked_call
def parse_kernel(
    text: str, file: str | None = None, constants: Mapping[str, Any] | None = None
) -> Kernel:
    """The kernel that ``text`` spells, in the form in which kernels print; ``file`` is where it
    came from, for errors. ``constants`` are contents by their digest, as they lie in memory.

    It is not verified: `compile` does that. Raises `ParseError`, which marks the place, and
    `ArgumentError` for a constant of another type or length.
    """
    from tilewright.ir.parser import parse_kernel as parse

    return parse(text, file=file, constants=constants)


@checked_call
def parse_schedule(text: str) -> Record:
    """The steps that ``text`` spells, in the form in which schedules print: read, not executed.

    Raises `ParseError`, which marks the place.
    """
    from tilewright.schedule.records.reading import parse_schedule as parse

    return parse(text)

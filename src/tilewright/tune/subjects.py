"""The subjects that are to be tuned for what somebody names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.config import database_in
from tilewright.engine.compile import checked_threads
from tilewright.errors import ArgumentError, UnsupportedError, short
from tilewright.graph.compiling import compile_graph
from tilewright.graph.graph import is_graph
from tilewright.graph.program import GraphProgram
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel
from tilewright.ops.op import Op
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target
from tilewright.tune.kernels import KernelSubject
from tilewright.tune.subject import Subject


@dataclass(frozen=True)
class Wanted:
    """A subject, and how much its time counts: how often a graph launches it."""

    subject: Subject
    weight: float = 1.0


def subjects_of(
    what: Any,
    target: str = "x86",
    threads: int | None = None,
    constant: Sequence[str] = (),
    numbers: Mapping[str, Scalar] | None = None,
    words: str = "",
) -> list[Wanted]:
    """What is tuned of ``what``: of a graph, each of its kernels. ``words`` are what the command
    line takes for it. Raises `UnsupportedError` for a ``target`` whose kernels cannot be timed
    here, `ArgumentError` for what cannot be tuned."""
    threads = checked_threads(threads)
    check_target(find_target(target))
    numbers = dict(numbers or {})
    if is_graph(what):
        return _of_graph(what, target, threads, constant)
    if hasattr(what, "as_kernel"):
        what = what.as_kernel()
    if not isinstance(what, Op | Kernel):
        raise ArgumentError(
            f"{short(what)} cannot be tuned",
            cure="pass an op, a kernel, a graph, or a function that is a kernel",
        )
    if isinstance(what, Kernel):
        _check_numbers(what, numbers)
    return [Wanted(KernelSubject(what, target, threads, tuple(constant), numbers, words))]


def check_target(target: Target) -> None:
    """Refuses a target whose kernels cannot be timed here."""
    why = None
    if not target.schedules:
        why = "it runs kernels as they are: there is nothing to choose"
    elif not target.runs_here:
        why = "it " + target.place
    elif not target.on_processor:
        why = "its arrays lie in the memory of a device, which the tuner does not fill"
    if why is not None:
        raise UnsupportedError(
            f"kernels for {target.name} cannot be timed",
            where="target",
            why=why,
            cure="tune for x86, or for an OpenCL device that is this processor",
        )


def _of_graph(what: Any, target: str, threads: int, constant: Sequence[str]) -> list[Wanted]:
    with database_in(""):
        program = compile_graph(what, target, threads, constant)
    assert isinstance(program, GraphProgram)
    launches = Counter(launch.kernel for launch in program.launches)
    return [
        Wanted(
            KernelSubject(group.kernel, target, threads, group.constant),
            launches[number],
        )
        for number, group in enumerate(program.groups)
    ]


def _check_numbers(kernel: Kernel, numbers: Mapping[str, Scalar]) -> None:
    for param in kernel.scalars:
        if param.name not in numbers:
            raise ArgumentError(
                f"{param.name} is not set",
                where=f"kernel {kernel.name}",
                why="the time of a call depends on it",
                cure=f'set it: numbers={{"{param.name}": 64}}, or --set {param.name}=64',
            )

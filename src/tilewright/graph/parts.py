"""The kernels of a graph, compiled: each once, the first time in processes side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.choosing import is_chosen
from tilewright.engine.compile import kept_kernel
from tilewright.errors import TilewrightError
from tilewright.graph.cutting import Cut
from tilewright.graph.launches import Launch
from tilewright.graph.workers import Helpers
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Kernel
from tilewright.runtime.steps import launches
from tilewright.targets.registry import find_target

# Told how many kernels are compiled, of how many; by several threads.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Group:
    """A kernel of a graph, compiled; ``constant`` are its parameters that may be packed."""

    kernel: Kernel
    constant: tuple[str, ...]
    compiled: CompiledKernel


def packable(cut: Cut, constant: Sequence[str]) -> list[tuple[str, ...]]:
    """Of each kernel, the parameters that are constants in every launch: those that lie beside the
    graph, and arguments that are ``constant`` and that one kernel alone reads, in one place."""
    beside = {param.buffer for param in cut.graph.arrays if param.digest is not None}
    constants = {param.buffer for param in cut.graph.arrays if param.name in constant}
    readers: dict[Buffer, set[tuple[int, int]]] = {}
    of_kernel: dict[int, list[Launch]] = {}
    for launch in launches(cut.steps):
        of_kernel.setdefault(launch.kernel, []).append(launch)
        for place, buffer in enumerate(launch.buffers):
            readers.setdefault(buffer, set()).add((launch.kernel, place))
    kept = beside | {buffer for buffer in constants if len(readers.get(buffer, ())) == 1}
    packed: list[tuple[str, ...]] = []
    for number, kernel in enumerate(cut.kernels):
        params = [
            param
            for place, param in enumerate(kernel.arrays)
            if all(launch.buffers[place] in kept for launch in of_kernel.get(number, ()))
        ]
        # Where one array alone can be packed, the largest is worth the most.
        params.sort(key=lambda param: -param.buffer.bytes)
        packed.append(tuple(param.name for param in params))
    return packed


def compile_groups(
    cut: Cut,
    target: str,
    threads: int,
    constant: Sequence[str],
    progress: Progress,
    helpers: Helpers,
) -> list[Group]:
    """The kernels of ``cut`` for ``target``, by this process and ``helpers``. An error says which
    computes of the graph it is about."""
    names = packable(cut, constant)
    first: dict[int, Launch] = {}
    for launch in launches(cut.steps):
        first.setdefault(launch.kernel, launch)
    kernels: dict[int, CompiledKernel] = {}
    missing: list[int] = []
    for number, kernel in enumerate(cut.kernels):
        kept = kept_kernel(kernel, target, threads, names[number])
        if kept is None:
            missing.append(number)
        else:
            kernels[number] = kept
    total = len(cut.kernels)
    ready = count(len(kernels) + 1)

    def compiled(number: int) -> CompiledKernel:
        try:
            return compile_kernel(cut.kernels[number], target, threads, constant=names[number])
        except TilewrightError as error:
            raise _named(error, first[number]) from error

    # What was scheduled here already, to predict its time, is not left to others.
    machine = find_target(target).machine
    missing.sort(key=lambda n: not is_chosen(cut.kernels[n], machine, names[n]))
    tasks = [(cut.kernels[number], names[number]) for number in missing]
    with helpers.at(tasks, target, threads, lambda: progress(next(ready), total)) as left:
        for place, _ in left.rest():
            kernels[missing[place]] = compiled(missing[place])
            progress(next(ready), total)
    for number in missing:
        if number not in kernels:
            # Another process has left it in the cache.
            kernels[number] = compiled(number)
    return [Group(k, names[number], kernels[number]) for number, k in enumerate(cut.kernels)]


def _named(error: TilewrightError, launch: Launch) -> TilewrightError:
    """``error`` of a group, which names what it has no more, as one of the graph's own words."""
    computes = ", ".join(launch.computes) or "a condition"
    return type(error)(
        f"a part of the graph cannot be compiled: {error.what}",
        where=f"computes {computes}",
        why=error.why,
        cure=error.cure,
        span=launch.span,
    )

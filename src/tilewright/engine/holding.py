"""A kernel with some of its arguments, for callers whose arguments are mostly the same; and what is
made of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from tilewright.engine.kernel import CompiledKernel

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


def mapped_by_threads(
    function: Callable[[_Argument], _Result], arguments: Sequence[_Argument], threads: int
) -> list[_Result]:
    """``function`` of ``arguments``, side by side: code that packs an array runs on one thread."""
    if threads == 1 or len(arguments) < 2:
        return [*map(function, arguments)]
    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(function, arguments)]


def holds_addresses(kernel: CompiledKernel) -> bool:
    """Whether `holding` needs nothing of its arrays but their addresses on the host."""
    return kernel.fitting is not None and kernel.fitting.placing is None


def holding(
    kernel: CompiledKernel, arrays: dict[str, Any], *, keeps: bool = True
) -> Callable[..., object]:
    """``kernel`` with these ``arrays``, which are checked now: a function of all other arguments by
    name, results among them. It ``keeps`` the arrays, or the caller does where it
    `holds_addresses`.

    Raises what a call does for ``arrays`` that do not fit, on the host; of a kernel that takes
    numbers or arrays of a device, each call checks them.
    """
    fitting = kernel.fitting
    if fitting is None or fitting.placing is not None:
        return partial(kernel, **arrays)
    pointers, run, threads = fitting.holding(arrays, keeps), kernel.code.run, kernel.threads
    return lambda **others: run(pointers(others), threads)

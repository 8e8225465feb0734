"""What transforms ask of their arguments beyond the type, said at the transform and checked before
it runs: computes and loops that there are, numbers that are positive.

    @transform
    @asks(compute=a_compute, sizes=positive)
    def tile(kernel: Kernel, compute: str, sizes: Mapping[str, int]) -> Kernel: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Kernel
from tilewright.schedule.queries.place import computes_named, loops_named, taken_names, unordered

P = ParamSpec("P")
Function = Callable[Concatenate[Kernel, P], Kernel]
# Raises `ScheduleError` for a kernel, the names of a transform and of its argument, and all that it
# is given, by name.
Check = Callable[[Kernel, str, str, Mapping[str, Any]], None]


def asks(**checks: Check) -> Callable[[Function[P]], Function[P]]:
    """Checks arguments of a transform before it runs, but for those that are None: of a list, each
    of it, and of a mapping, the values."""

    def decorate(function: Function[P]) -> Function[P]:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        names = [parameter.name for parameter in parameters]
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

        @functools.wraps(function)
        def run(kernel: Kernel, /, *args: P.args, **kwargs: P.kwargs) -> Kernel:
            values: dict[str, Any] = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
            for name, check in checks.items():
                if values.get(name) is not None:
                    check(kernel, function.__name__, name, values)
            return function(kernel, *args, **kwargs)

        return run

    return decorate


def a_compute(kernel: Kernel, transform: str, name: str, arguments: Mapping[str, Any]) -> None:
    """There is a compute of that name, or of each of these."""
    for part in _names(arguments[name]):
        computes_named(kernel, part, transform, any_kind=True)


def a_plain_compute(
    kernel: Kernel, transform: str, name: str, arguments: Mapping[str, Any]
) -> None:
    """`a_compute`, and all of that name are plain."""
    for part in _names(arguments[name]):
        computes_named(kernel, part, transform)


def an_unordered_compute(
    kernel: Kernel, transform: str, name: str, arguments: Mapping[str, Any]
) -> None:
    """`a_compute`, and all of that name are `unordered`."""
    for part in _names(arguments[name]):
        for compute, _ in computes_named(kernel, part, transform, any_kind=True):
            unordered(compute, transform)


def a_loop(kernel: Kernel, transform: str, name: str, arguments: Mapping[str, Any]) -> None:
    """There is a loop of that name, or of each of these."""
    for part in _names(arguments[name]):
        loops_named(kernel, part, transform)


def a_loop_of_plain_computes(
    kernel: Kernel, transform: str, name: str, arguments: Mapping[str, Any]
) -> None:
    """`a_loop`, and the computes inside are plain."""
    for part in _names(arguments[name]):
        loops_named(kernel, part, transform, any_kind=False)


def positive(kernel: Kernel, transform: str, name: str, arguments: Mapping[str, Any]) -> None:
    """A number, or each number of a mapping, is 1 or more."""
    value = arguments[name]
    numbers = value if isinstance(value, Mapping) else {"": value}
    for key, number in numbers.items():
        if number < 1:
            what = f"{name}['{key}']" if key else name
            raise ScheduleError(
                f"{transform}: {what} is {number}",
                where=f"kernel {kernel.name}",
                cure="choose 1 or more",
            )


def new_name(besides: str = "") -> Check:
    """No variable of the kernel is called so, but for those that the argument ``besides`` names."""

    def check(kernel: Kernel, transform: str, name: str, arguments: Mapping[str, Any]) -> None:
        gone = _names(arguments[besides]) if besides else ()
        if arguments[name] in taken_names(kernel) - set(gone):
            raise ScheduleError(
                f"{transform}: the name '{arguments[name]}' is taken",
                where=f"kernel {kernel.name}",
                cure="choose another name",
            )

    return check


def some(checker: Check) -> Check:
    """A list has something, and ``checker`` of it is right."""

    def check(kernel: Kernel, transform: str, name: str, arguments: Mapping[str, Any]) -> None:
        if not arguments[name]:
            raise ScheduleError(
                f"{transform}: {name} is empty",
                where=f"kernel {kernel.name}",
                cure="name one or more",
            )
        checker(kernel, transform, name, arguments)

    return check


def _names(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)

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

from tilewright.ir.stmt import Kernel
from tilewright.schedule.queries.place import computes_named, loops_named, taken_names, unordered
from tilewright.schedule.queries.refusal import refusal

P = ParamSpec("P")
Function = Callable[Concatenate[Kernel, P], Kernel]
# Raises `ScheduleError` for a kernel, the name of an argument, and all that the transform is given,
# by name.
Check = Callable[[Kernel, str, Mapping[str, Any]], None]


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
                    check(kernel, name, values)
            return function(kernel, *args, **kwargs)

        return run

    return decorate


def a_compute(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """There is a compute of that name, or of each of these."""
    for part in _names(arguments[name]):
        computes_named(kernel, part, any_kind=True)


def a_plain_compute(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """`a_compute`, and all of that name are plain."""
    for part in _names(arguments[name]):
        computes_named(kernel, part)


def an_unordered_compute(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """`a_compute`, and all of that name are `unordered`."""
    for part in _names(arguments[name]):
        for compute, _ in computes_named(kernel, part, any_kind=True):
            unordered(compute)


def a_loop(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """There is a loop of that name, or of each of these."""
    for part in _names(arguments[name]):
        loops_named(kernel, part)


def a_loop_of_plain_computes(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """`a_loop`, and the computes inside are plain."""
    for part in _names(arguments[name]):
        loops_named(kernel, part, any_kind=False)


def positive(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
    """A number, or each number of a mapping, is 1 or more."""
    value = arguments[name]
    numbers = value if isinstance(value, Mapping) else {"": value}
    for key, number in numbers.items():
        if number < 1:
            what = f"{name}['{key}']" if key else name
            raise refusal(f"{what} is {number}", kernel, "choose 1 or more")


def new_name(besides: str = "") -> Check:
    """No variable of the kernel is called so, but for those that the argument ``besides`` names."""

    def check(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
        gone = _names(arguments[besides]) if besides else ()
        if arguments[name] in taken_names(kernel) - set(gone):
            raise refusal(f"the name '{arguments[name]}' is taken", kernel, "choose another name")

    return check


def some(checker: Check) -> Check:
    """A list has something, and ``checker`` of it is right."""

    def check(kernel: Kernel, name: str, arguments: Mapping[str, Any]) -> None:
        if not arguments[name]:
            raise refusal(f"{name} is empty", kernel, "name one or more")
        checker(kernel, name, arguments)

    return check


def _names(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)

"""Where kernels came from: the transform that gave each, its arguments, and the kernel before.

It is kept beside the kernels, as long as they live, and not in them: what prints, is compared and
is cached stays the same. The record of a kernel is the chain of its origins back to the kernel that
the schedule began with. Whatever was tried and given up is on no chain.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from tilewright.ir.stmt import Kernel
from tilewright.schedule.staging.copiers import CopyUnit


@dataclass(frozen=True, eq=False)
class Step:
    """One call of a transform, whose arguments are data: names, numbers, instructions and the like.

    A step that splits a kernel in two is the same object for both parts.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @staticmethod
    def of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Step:
        """The step with copies of the arguments: who called may go on to change his."""
        return Step(name, tuple([_copied(each) for each in args]), _copied(kwargs))

    @property
    def key(self) -> Hashable:
        """What is the same for steps with the same name and arguments, in the same order."""
        return self.name, _key(self.args), _key(self.kwargs)


@dataclass(frozen=True, eq=False)
class Origin:
    """``before`` became another kernel by ``step``. Of a step that splits a kernel,
    ``split_off`` is a part that is no longer in the kernel itself; of one that puts it together
    again, ``parts`` are what became of these."""

    before: Kernel
    step: Step
    split_off: bool = False
    parts: tuple[Kernel, ...] = ()


_origins: weakref.WeakKeyDictionary[Kernel, Origin] = weakref.WeakKeyDictionary()


def remember(
    kernel: Kernel,
    before: Kernel,
    step: Step,
    *,
    split_off: bool = False,
    parts: tuple[Kernel, ...] = (),
) -> None:
    """Notes that ``step`` made ``kernel`` of ``before``. What a transform has other transforms do
    is one step, its own: it is the last to be noted."""
    _origins[kernel] = Origin(before, step, split_off, parts)


def origins(kernel: Kernel, start: Kernel | None = None) -> list[tuple[Origin, Kernel]]:
    """How ``kernel`` came about, each origin with what it gave, the first first: since ``start``
    (or the first kernel whose origin is not known), or since it was split off."""
    found: list[tuple[Origin, Kernel]] = []
    while kernel is not start:
        origin = _origins.get(kernel)
        if origin is None:
            break
        found.append((origin, kernel))
        if origin.split_off:
            break
        kernel = origin.before
    return found[::-1]


def _copied(value: Any) -> Any:
    """``value`` as it is now; sets in order, as they would print differently every time."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {_copied(key): _copied(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple([_copied(each) for each in value])
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, Set):
        return tuple(sorted(value))
    return value


def _key(value: Any) -> Hashable:
    """``value`` (a copy) for a dictionary; with its type, as numbers equal those of other types."""
    if isinstance(value, Mapping):
        return dict, tuple([(_key(key), _key(each)) for key, each in value.items()])
    if isinstance(value, tuple | list):
        return type(value), tuple([_key(each) for each in value])
    if isinstance(value, CopyUnit):
        return CopyUnit, _key(vars(value))
    return type(value), value

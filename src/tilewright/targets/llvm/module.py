"""What a kernel becomes: LLVM IR text, and how it is called and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.targets.llvm.steps import Amount, HostStep


@dataclass(frozen=True)
class LaunchMap:
    """What a device is told of the memory that a pointer is to, by value: ``argument`` is the
    pointer's place, and ``text`` is JSON that the target's driver makes the value of."""

    argument: int
    text: str


@dataclass(frozen=True)
class Launch:
    """A function that a device runs, on ``groups`` workgroups of ``items`` work-items each.

    The work-items of a group share ``shared`` bytes. The function takes the kernel's arguments in
    order, then the workspaces, then the host's ``values`` of these names, then its ``maps``, each
    as the value that the driver makes of it. Values and scalar arguments are passed by value.
    ``cluster`` neighbouring workgroups run at the same time and reach each other's shared memory.
    """

    entry: str
    groups: Amount
    items: int
    shared: int
    cluster: int = 1
    maps: tuple[LaunchMap, ...] = ()
    values: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The launch as JSON holds it."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Launch:
        """What `as_json` made. Raises `KeyError`, `TypeError` or an error of this project."""
        maps = tuple(LaunchMap(**each) for each in data["maps"])
        return Launch(**{**data, "maps": maps, "values": tuple(data["values"])})


@dataclass(frozen=True)
class Module:
    """LLVM IR text, the entry's name, and the bytes of each workspace the kernel needs.

    Where a device runs the kernel, ``launches`` are its functions, and ``steps`` what the host does
    with them; empty: it runs them in turn.
    """

    text: str = field(repr=False)
    entry: str
    workspaces: tuple[Amount, ...]
    launches: tuple[Launch, ...] = ()
    steps: tuple[HostStep, ...] = ()

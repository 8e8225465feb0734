"""The result of lowering: LLVM IR text, and how it is called and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.runtime.steps import HostStep

# A number, or the text of an expression that gives it at each call.
Amount = int | str


def times(amount: Amount, factor: int) -> Amount:
    """``amount`` so many times."""
    if isinstance(amount, int) or factor == 1:
        return amount * factor
    return f"({amount}) * {factor}"


@dataclass(frozen=True)
class LaunchMap:
    """A descriptor of the memory that a pointer argument points to (such as a tensor map), passed
    by value: ``argument`` is the pointer's position, and ``text`` is the JSON from which the
    target's driver makes the descriptor."""

    argument: int
    text: str


@dataclass(frozen=True)
class Launch:
    """A function that a device runs, on ``groups`` workgroups of ``items`` work-items each.

    The work-items of a group share ``shared`` bytes. The function takes the kernel's arguments in
    order, then the workspaces, then the host's ``values`` of these names, then its ``maps``, as the
    descriptors that the driver makes. Values and scalar arguments are passed by value.
    ``cluster`` neighbouring workgroups run at the same time and reach each other's shared memory.
    What a `ReadStep` reads is the first element of the workspace of number ``result``.
    """

    entry: str
    groups: Amount
    items: int
    shared: int
    cluster: int = 1
    maps: tuple[LaunchMap, ...] = ()
    values: tuple[str, ...] = ()
    result: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The launch as JSON."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Launch:
        """The launch of `as_json`. Raises `KeyError`, `TypeError` or an error of this project."""
        maps = tuple(LaunchMap(**map_data) for map_data in data["maps"])
        return Launch(**{**data, "maps": maps, "values": tuple(data["values"])})


# What the host does with a device's launches, each by its number; where one has no workgroups,
# nothing. Values are IR text over the kernel's scalar parameters and what steps before name.
DeviceStep = HostStep[int, str]


@dataclass(frozen=True)
class Module:
    """LLVM IR text, the entry's name, and the bytes of each workspace the kernel needs.

    Where a device runs the kernel, ``launches`` are its functions, and ``steps`` say in which order
    the host launches them (empty: one after the other).
    """

    text: str = field(repr=False)
    entry: str
    workspaces: tuple[Amount, ...]
    launches: tuple[Launch, ...] = ()
    steps: tuple[DeviceStep, ...] = ()

"""The range of a launch, in workgroups and subgroups: what a caller says, checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewright.errors import ArgumentError, short
from tilewright.lang.identities import MOST, Shape

MOST_DIMS = 3
# Work-items of a workgroup without a local size.
_USUAL = 64


class Grid(NamedTuple):
    """What a launch says: the work-items, those of a workgroup, and where ids begin. Sizes are
    numbers, tunables, or functions of what is chosen."""

    range: Any
    local: Any = None
    offset: Any = None

    @property
    def computed(self) -> bool:
        """Whether functions give its sizes: other ones each time."""
        return callable(self.range) or callable(self.local)


class Ranges:
    """Checks the sizes of launches of one kernel; ``where`` names it in errors."""

    def __init__(self, where: str) -> None:
        self._where = where

    def refused(self, what: str, cure: str, why: str | None = None) -> ArgumentError:
        """The error about a launch."""
        return ArgumentError(what, where=self._where, why=why, cure=cure)

    def sizes(self, argument: object, what: str) -> tuple[int, ...]:
        """1 to 3 whole numbers, which ``argument`` has to be."""
        sizes = (argument,) if isinstance(argument, int | np.integer) else argument
        if not isinstance(sizes, tuple | list) or not 1 <= len(sizes) <= MOST_DIMS:
            raise self.refused(
                f"the {what} is {short(argument)}",
                f"give a tuple of 1 to {MOST_DIMS} whole numbers",
            )
        for size in sizes:
            whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
            if not whole or not 0 <= size < 2**40:
                raise self.refused(
                    f"the {what} is {short(argument)}", "give whole numbers, 0 or more, below 2^40"
                )
        return tuple(map(int, sizes))

    def local(self, argument: object, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """The size of a workgroup, which divides the range."""
        local = self.sizes(argument, "local size")
        if len(local) != len(sizes):
            raise self.refused(f"the local size {local} for the range {sizes}", "give as many")
        for size, group in zip(sizes, local, strict=True):
            if group < 1 or size % group:
                raise self.refused(
                    f"the local size {local} does not divide the range {sizes}",
                    "round the range up, and let work-items beyond it do nothing; or leave the "
                    "local size out",
                    "groups are all of one size",
                )
        return local

    def offset(self, argument: object, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """The first id along each dim."""
        start = self.sizes(argument, "offset")
        if len(start) != len(sizes):
            raise self.refused(f"the offset {start} for the range {sizes}", "give as many numbers")
        return start

    def shape(
        self,
        sizes: tuple[int, ...],
        local: tuple[int, ...] | None,
        offset: tuple[int, ...] | None,
        subgroup: int,
    ) -> Shape:
        """What a kernel is compiled for."""
        most = max(sizes)
        if offset:
            most = max(s + o for s, o in zip(sizes, offset, strict=True))
        guarded = False
        if local is None:
            lanes = subgroup or _USUAL
            local = (*(1,) * (len(sizes) - 1), lanes)
            guarded = not subgroup or sizes[-1] % subgroup != 0
        if subgroup and local[-1] % subgroup:
            raise self.refused(
                f"a local size of {local} for subgroups of {subgroup}",
                f"make the last dim a multiple of {subgroup}",
                "its work-items make the lanes of subgroups",
            )
        shifted = offset is not None and any(offset)
        return Shape(local, guarded, subgroup, shifted, most + _USUAL > MOST)

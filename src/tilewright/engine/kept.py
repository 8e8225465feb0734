"""The steps of a schedule as the caches keep them beside the code: compressed, and read only when
somebody asks."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from tilewright.errors import ParseError, ScheduleError
from tilewright.machines.machine import Machine
from tilewright.recipes.start import Start
from tilewright.schedule.records.reading import LONGEST, parse_schedule
from tilewright.schedule.schedule import KernelSchedule

# A character of a text takes as many bytes at most.
_WIDEST = 4


@dataclass(frozen=True)
class KeptSteps:
    """The record of a schedule, packing kernels included: its text, as zlib compresses it."""

    data: bytes

    @classmethod
    def of(cls, scheduled: KernelSchedule) -> KeptSteps:
        """The steps of a schedule."""
        return cls(zlib.compress(scheduled.text().encode(), 1))

    def says(self, text: str) -> bool:
        """Whether this is the record with that ``text``."""
        try:
            return zlib.decompress(self.data) == text.encode()
        except zlib.error:
            return False

    def text(self, start: Start, machine: Machine) -> str | None:
        """The text; None where this is not the record of a schedule of ``start`` for ``machine``,
        which a damaged entry may say."""
        stream = zlib.decompressobj()
        try:
            data = stream.decompress(self.data, LONGEST * _WIDEST)
            if not stream.eof:
                return None
            text = data.decode()
            parse_schedule(text).start_among((start.kernel, start.exact), machine)
        except (zlib.error, UnicodeDecodeError, ParseError, ScheduleError):
            return None
        return text

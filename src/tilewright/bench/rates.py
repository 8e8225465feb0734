"""Costs of a machine from times that were measured on it, and how well its predicted times fit."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.bench.accuracy import Accuracy, accuracy
from tilewright.bench.timed_records import TimedRecord
from tilewright.errors import UnsupportedError
from tilewright.machines.machine import Machine
from tilewright.machines.rates import Costs
from tilewright.predict.fitting import fit
from tilewright.predict.time import cycles_of
from tilewright.predict.work import Work, work_of

# One problem of so many is not fitted to: it judges the fit.
_JUDGES = 4
# Times that are not known better than to this part of them say too little.
_VAGUE = 0.2
_LEAST = 20


@dataclass(frozen=True)
class Measured:
    """Records of one machine, with the work that each kernel is."""

    machine: Machine
    records: Sequence[TimedRecord]

    @cached_property
    def works(self) -> dict[str, Work]:
        """The work of kernels, by the lines of their records."""
        return {
            record.line(): work_of(record.kernel, self.machine, record.threads)
            for record in self.records
        }

    def costs(self, records: Sequence[TimedRecord]) -> Costs:
        """The costs that fit ``records``, which are some of these."""
        start = costs_of(self.machine)
        clear = [record for record in records if record.error <= _VAGUE]
        if len(clear) < _LEAST:
            raise UnsupportedError(
                f"{len(clear)} clear times are too few to fit costs to",
                why=f"it takes {_LEAST}; of {len(records)}, the others are noisy",
                cure="give it more minutes, on a machine that does nothing else",
            )
        works = [self.works[record.line()] for record in clear]
        return fit(works, [record.seconds for record in clear], start)

    def predicted(self, costs: Costs) -> Callable[[TimedRecord], float]:
        """What ``costs`` predict, in seconds."""
        return lambda record: cycles_of(self.works[record.line()], costs) / costs.clock


@dataclass(frozen=True)
class Fitted:
    """The costs that fit all records; and, on problems that they were then not fitted to, the
    accuracy of the costs from ``before``, and of those that fit the others (``after``)."""

    costs: Costs
    before: Sequence[Accuracy]
    after: Sequence[Accuracy]


def fitted(measured: Measured) -> Fitted:
    """Costs that fit ``measured``. Raises `UnsupportedError` for a machine without costs, or too
    few records."""
    judges = [record for record in measured.records if _judges(record)]
    others = [record for record in measured.records if not _judges(record)]
    before, after = costs_of(measured.machine), measured.costs(others)
    return Fitted(
        measured.costs(measured.records),
        accuracy(judges, measured.predicted(before)),
        accuracy(judges, measured.predicted(after)),
    )


def _judges(record: TimedRecord) -> bool:
    return zlib.crc32(record.problem.encode()) % _JUDGES == 0


def costs_of(machine: Machine) -> Costs:
    """The costs of ``machine``. Raises `UnsupportedError` where it has none."""
    if machine.costs is None:
        raise UnsupportedError(
            f"no times of kernels are predicted for {machine.name}",
            cure="choose a target whose kernels run on this processor: x86",
        )
    return machine.costs

"""The library of ops: each a record, of which everything else is made.

In reading order: `record` (what a record says), `wording` (pieces of kernels' texts), `draws`
(random sizes), `lists` (descriptors of lists), `normalizations` (what norms have in common); then
a file for each family. `LIBRARY` has all records by their drivers.
"""

from tilewright.problems.library.channels import PixelsProblem, ShuffleProblem
from tilewright.problems.library.moves import (
    ConcatProblem,
    SliceProblem,
    TileProblem,
    TransposeProblem,
)
from tilewright.problems.library.norms import BatchNormProblem, GroupNormProblem, LayerNormProblem
from tilewright.problems.library.pads import PadProblem, ZeroPadProblem
from tilewright.problems.library.record import Answer, Record, Slot
from tilewright.problems.library.reductions import ArgProblem, LogSumExpProblem, MomentsProblem
from tilewright.problems.library.scans import ScanProblem
from tilewright.problems.library.softmax import SoftmaxProblem

_RECORDS: tuple[type[Record], ...] = (
    SoftmaxProblem,
    LayerNormProblem,
    BatchNormProblem,
    GroupNormProblem,
    ArgProblem,
    MomentsProblem,
    LogSumExpProblem,
    ScanProblem,
    ConcatProblem,
    SliceProblem,
    TileProblem,
    TransposeProblem,
    PixelsProblem,
    ShuffleProblem,
    PadProblem,
    ZeroPadProblem,
)
LIBRARY = {record.driver: record for record in _RECORDS}

__all__ = [
    "LIBRARY",
    "Answer",
    "ArgProblem",
    "BatchNormProblem",
    "ConcatProblem",
    "GroupNormProblem",
    "LayerNormProblem",
    "LogSumExpProblem",
    "MomentsProblem",
    "PadProblem",
    "PixelsProblem",
    "Record",
    "ScanProblem",
    "ShuffleProblem",
    "SliceProblem",
    "Slot",
    "SoftmaxProblem",
    "TileProblem",
    "TransposeProblem",
    "ZeroPadProblem",
]

"""The library of ops: each a record, of which everything else is made.

In reading order: `record` (what a record says), `wording` (pieces of kernels' texts), `lists`
(descriptors of lists), `normalizations` (what norms have in common), `attention_words` (the
statements of attention), `bounded` (errors of chains of ops); then a file for each family.
`LIBRARY` has all records by their drivers.
"""

from tilewright.problems.library.attention import AttentionProblem
from tilewright.problems.library.channels import PixelsProblem, ShuffleProblem
from tilewright.problems.library.gathers import GatherProblem, OneHotProblem, ScatterProblem
from tilewright.problems.library.moves import (
    ConcatProblem,
    SliceProblem,
    TileProblem,
    TransposeProblem,
)
from tilewright.problems.library.norms import BatchNormProblem, GroupNormProblem, LayerNormProblem
from tilewright.problems.library.pads import PadProblem, ZeroPadProblem
from tilewright.problems.library.prelu import PreluProblem
from tilewright.problems.library.record import Record, Slot
from tilewright.problems.library.recurrent import RecurrentProblem
from tilewright.problems.library.reductions import ArgProblem, LogSumExpProblem, MomentsProblem
from tilewright.problems.library.resampling import ResamplingProblem
from tilewright.problems.library.scans import ScanProblem
from tilewright.problems.library.softmax import SoftmaxProblem
from tilewright.problems.library.sorts import SortProblem, TopKProblem
from tilewright.problems.library.windows import DeconvProblem, MaxPoolProblem

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
    GatherProblem,
    ScatterProblem,
    OneHotProblem,
    SortProblem,
    TopKProblem,
    ResamplingProblem,
    PreluProblem,
    DeconvProblem,
    MaxPoolProblem,
    AttentionProblem,
    RecurrentProblem,
)
LIBRARY = {record.driver: record for record in _RECORDS}

__all__ = [
    "LIBRARY",
    "ArgProblem",
    "AttentionProblem",
    "BatchNormProblem",
    "ConcatProblem",
    "DeconvProblem",
    "GatherProblem",
    "GroupNormProblem",
    "LayerNormProblem",
    "LogSumExpProblem",
    "MaxPoolProblem",
    "MomentsProblem",
    "OneHotProblem",
    "PadProblem",
    "PixelsProblem",
    "PreluProblem",
    "Record",
    "RecurrentProblem",
    "ResamplingProblem",
    "ScanProblem",
    "ScatterProblem",
    "ShuffleProblem",
    "SliceProblem",
    "Slot",
    "SoftmaxProblem",
    "SortProblem",
    "TileProblem",
    "TopKProblem",
    "TransposeProblem",
    "ZeroPadProblem",
]

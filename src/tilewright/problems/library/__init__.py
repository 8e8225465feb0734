"""The library of ops: each a record, of which everything else is made.

In reading order: `record` (what a record says), `wording` (pieces of kernels' texts) and `draws`
(random sizes), `lists` (descriptors of lists); then a file for each family: `softmax`,
`normalizations` and `norms`. `LIBRARY` has all of them by their drivers.
"""

from tilewright.problems.library.norms import BatchNormProblem, GroupNormProblem, LayerNormProblem
from tilewright.problems.library.record import Answer, Record, Slot
from tilewright.problems.library.softmax import SoftmaxProblem

_RECORDS: tuple[type[Record], ...] = (
    SoftmaxProblem,
    LayerNormProblem,
    BatchNormProblem,
    GroupNormProblem,
)
LIBRARY = {record.driver: record for record in _RECORDS}

__all__ = [
    "LIBRARY",
    "Answer",
    "BatchNormProblem",
    "GroupNormProblem",
    "LayerNormProblem",
    "Record",
    "Slot",
    "SoftmaxProblem",
]

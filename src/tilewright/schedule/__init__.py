"""Transforms on kernels: from the naive form to the fast one.

In reading order: `queries` (questions about kernels), `records` (what a transform is, and its
record), the transforms by what they change: `dims`, `loops`, `operands`, `staging`, `reductions`,
`pipelines`; `groups` (cutting a kernel of several computes), `outline` (what stands in loops as a
kernel of its own), `fusion` (several kernels as one), and
`schedule` (the `KernelSchedule`, which has every transform as a method and records its use).
"""

from tilewright.schedule.pipelines.pipeline import Fill
from tilewright.schedule.records.transform import TRANSFORMS
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.staging.copiers import CopyUnit, Threads

__all__ = ["TRANSFORMS", "CopyUnit", "Fill", "KernelSchedule", "Threads"]

"""Kernels of the kinds that suites of kernels have, each with what numpy makes of its arguments.

`case` (what a case says), `simple` (work-items that do not meet), `meeting` (local memory,
barriers, groups), `matrices` (joint matrices).
"""

from lang_kernels import matrices, meeting, simple
from lang_kernels.case import CASES, Case

__all__ = ["CASES", "Case", "matrices", "meeting", "simple"]

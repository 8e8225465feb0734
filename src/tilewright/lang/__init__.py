"""Kernels in Python: functions that work-items run, from their source to the IR.

In reading order: `kernel` (the decorators), `annotations` (types of parameters), `source` (text,
tree and places), `choice` (what a kernel is compiled for), `launch` (from a call to code; `bound`:
launches that come again);
`translation` (one kernel's), with `identities` (who a work-item is, and the loops around it),
`messages` (what work-items say) and `records` (reading it); `statements` and `loops`, with `names`
(what a function binds), `variables` (their types), `assigned` (which of them have a value) and
`exits` (return, break, continue);
`scope`, `expressions`, `elements`, `guards`, `assignments` and `blocks`, with `values` (what names
stand for), `arithmetic` (types of operators) and `emitter` (where statements go); and what kernels
call: `builtin` (how such a function is made), `ids`, `memory`, `groups`,
`matrices` with
`matrix_parts` and `matrix_types`, `vectors`, `mathematics`, `python_functions`.
"""

from tilewright.lang import groups, ids, mathematics, matrices, memory, python_functions, vectors
from tilewright.lang.annotations import array, constant, scalar
from tilewright.lang.kernel import HelperFunction, KernelFunction, function, kernel

__all__ = [
    "HelperFunction",
    "KernelFunction",
    "array",
    "constant",
    "function",
    "groups",
    "ids",
    "kernel",
    "mathematics",
    "matrices",
    "memory",
    "python_functions",
    "scalar",
    "vectors",
]

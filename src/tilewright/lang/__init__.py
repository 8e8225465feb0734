"""Kernels in Python: functions that work-items run, from their source to the IR.

In reading order: `kernel` and `functions` (the decorators), `annotations` (types of parameters),
`source` (text, tree and places), `tunables` (constants that launches choose), `parameters`
(annotations and defaults), `ranges` (sizes of launches), `specialization` (a kernel for one range,
types and constants), `launch` (from a call to code; `bound`: repeated launches; `tuned`: what a
database has for them);
`translation` (of one kernel), with `identities` (ids of work-items, and the loops around them),
`messages` (prints and assertions), `records` (reading these) and `barrier_checks`;
`statements` and `loops`, with `names` (bindings of a function), `variables` (their types),
`assigned` (definite assignment) and `exits` (return, break, continue);
`scope`, `expressions`, `elements`, `tables` (constant arrays), `guards`, `assignments` and
`blocks`, with `values` (the values of names), `arithmetic` (types of operators) and `emitter`
(statements and names); and the functions that kernels call: `builtin` (their base), `ids`,
`memory`, `groups`, `matrices` with `matrix_parts`, `matrix_types` and `boxes`, `vectors`,
`mathematics`, `formulas`, `python_functions`.
"""

from tilewright.lang import (
    formulas,
    groups,
    ids,
    mathematics,
    matrices,
    memory,
    python_functions,
    vectors,
)
from tilewright.lang.annotations import array, constant, scalar
from tilewright.lang.functions import HelperFunction, function
from tilewright.lang.kernel import KernelFunction, kernel
from tilewright.lang.tunables import Tunable, tunable

__all__ = [
    "HelperFunction",
    "KernelFunction",
    "Tunable",
    "array",
    "constant",
    "formulas",
    "function",
    "groups",
    "ids",
    "kernel",
    "mathematics",
    "matrices",
    "memory",
    "python_functions",
    "scalar",
    "tunable",
    "vectors",
]

"""Verification of kernels, and help for tests of the compiler.

In reading order: `reference` and `functions` (definitions in float64), `data` (test numbers),
`bounds` (on the rounding error of sums), `approximate` (numbers with bounds), `inputs` and
`expected` (an op's arrays, and its accepted results), `guarded` (memory that detects stray writes),
`trial` (a run and its accepted results), `verify` (all of it on one kernel), `interpreted` (a
kernel in the interpreter), `check` (its stages in the interpreter), `case` (a problem with knobs),
`random_problems` (random cases).
`timed_cases`: random kernels that are timed, ops and others (`timed_graphs`; `launched` and
`timed_launches`, in Python).

For kernels that are no ops: `kernel_numbers` (the scalars of a call), `range_numbers` (consistent
scalars for `@tw.kernel` functions, from `launch_nest`, the range, and `reach`, how far accesses
go), `influences` (what stores depend on), `kernel_data` (contents of arrays), `definition` (results
of the interpreter, and how far code may be off), `kernel_case` (a kernel with a call's scalars).
"""

"""What tests of the compiler need beyond the compiler, and how kernels are verified.

In reading order: `reference` and `functions` (definitions in float64), `data` (numbers to test
with), `bounds` (on the rounding error of sums), `approximate` (numbers with bounds), `inputs` and
`expected` (an op's arrays, and what it may make of them), `guarded` (memory that tells of stray
writes), `trial` (a run, and what may come of it), `verify` (all of it on one kernel), `interpreted`
(one that the interpreter runs), `check` (its stages in the interpreter), `case` (a problem with
knobs), `random_problems`, `random_ir` and `random_computes` (random cases, expressions and
kernels).

Of kernels that are no ops: `kernel_numbers` (those of a call), `range_numbers` (of functions with
`@tw.kernel`: numbers that go together, by `launch_nest`, the range, and `reach`, how far accesses
go), `influences` (what decides where a kernel stores), `kernel_data` (what arrays hold),
`definition` (what the interpreter makes of them, and how far code may be off), `kernel_case` (one
with a call's numbers).
"""

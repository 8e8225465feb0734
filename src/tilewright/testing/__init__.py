"""What tests of the compiler need beyond the compiler, and how kernels are verified.

In reading order: `reference` and `functions` (definitions in float64), `data` (numbers to test
with), `bounds` (on the rounding error of sums), `approximate` (numbers with bounds), `inputs` and
`expected` (an op's arrays, and what it may make of them), `guarded` (memory that tells of stray
writes), `verify` (all of it on one kernel), `interpreted` (one that the interpreter runs), `check`
(its stages in the interpreter), `case` (a problem with knobs), `random_problems`, `random_ir`
and `random_computes` (random cases, expressions and kernels).
"""

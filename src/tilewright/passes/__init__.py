"""Passes: kernels to kernels, behind the schedule and before the target.

In reading order: `pipeline` (what runs, in which order, and what is recorded of it), `lanes`
(memory that each lane of a vector loop has for itself), `steps` (conditions that neighbours share),
`hoist` (loop-invariant expressions), `lets` (names that are not needed).

What is not here, because it is done elsewhere or would do nothing:

- Common subexpressions: expressions are interned, and `targets.llvm.expressions` remembers the
  value of each in a block and all that it dominates. What unrolled iterations have in common,
  `targets.llvm.writer` writes once. What loops next to each other compute, `hoist` shares; that
  makes values live longer, so its names have a budget.
- Strength reduction: `targets.llvm.plan` turns every affine address into a pointer that its loop
  advances. What is not affine (``(ih - kh + 1) // 2``) becomes affine once `hoist` has named it.
- Peephole: a product and a sum of floats may be contracted to an FMA, and LLVM's instruction
  selection does the rest (shifts for powers of two, multiplications for constant divisors).
- Index width: indices are s64 everywhere, the width of a pointer on CPUs; there is nothing to gain.
"""

from tilewright.passes.hoist import hoist
from tilewright.passes.lets import reduce_lets
from tilewright.passes.pipeline import PASSES, Pass, Record, run
from tilewright.passes.steps import in_steps

__all__ = ["PASSES", "Pass", "Record", "hoist", "in_steps", "reduce_lets", "run"]

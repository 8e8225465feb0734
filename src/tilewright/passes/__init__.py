"""Passes: kernels to kernels, after the schedule and before the target.

In reading order: `pipeline` (the passes in order, and records of them), `lanes` (private memory of
vector loops, with a part per lane), `steps` (conditions that neighbours share), `hoist`
(loop-invariant expressions), `lets` (names that are not needed), and `spmd` (work-items as threads
and vectors).

What is not here, because it is done elsewhere or would do nothing:

- Common subexpressions: expressions are interned, and `targets.llvm.expressions` reuses the value
  of each in a block and all that it dominates. Code that unrolled iterations have in common,
  `targets.llvm.writer` writes once. Values that neighbouring loops have in common, `hoist` shares;
  that makes values live longer, so its names have a budget.
- Strength reduction: `targets.llvm.plan` turns every affine address into a pointer that its loop
  advances. An index that is not affine (``(ih - kh + 1) // 2``) is, once `hoist` has named it.
- Peephole: a product and a sum of floats may be contracted to an FMA, and LLVM's instruction
  selection does the rest (shifts for powers of two, multiplications for constant divisors).
- Index width: indices are s64 everywhere, the width of a pointer on CPUs; there is nothing to gain.
"""

from tilewright.passes.hoist import hoist
from tilewright.passes.lets import reduce_lets
from tilewright.passes.pipeline import PASSES, Pass, run
from tilewright.passes.steps import coarsen_conditions

__all__ = ["PASSES", "Pass", "coarsen_conditions", "hoist", "reduce_lets", "run"]

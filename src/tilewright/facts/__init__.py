"""Facts about integer expressions that follow from the scope around them.

In reading order: `affine` (sums of multiples of atoms), `products` (sums of products), `ranges`
(bounds and congruences that follow from a set of facts), `scope` (`Facts`: loops, lets and
conditions, and proofs from them).
"""

from tilewright.facts.affine import Affine, affine, order_key
from tilewright.facts.scope import Facts, starting_from
from tilewright.ir.intervals import Interval

__all__ = ["Affine", "Facts", "Interval", "affine", "order_key", "starting_from"]

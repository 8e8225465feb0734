"""What is known about integer expressions from the scope around them.

In reading order: `affine` (sums of multiples of atoms), `intervals` (their arithmetic), `ranges`
(bounds and congruences that follow from a set of facts), `scope` (`Facts`: loops, lets and
conditions, and proofs from them).
"""

from tilewright.facts.affine import Affine, affine, order_key
from tilewright.facts.intervals import Interval
from tilewright.facts.scope import Facts, starting_from

__all__ = ["Affine", "Facts", "Interval", "affine", "order_key", "starting_from"]

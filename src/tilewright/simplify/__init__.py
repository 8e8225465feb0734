"""The simplifier: rules as data, applied bottom-up under facts from the scope.

In reading order: `rules` (what a rule is), the families `add`, `mul`, `divmod`, `xor`, `bits`,
`minmax`, `compare`, `select_cast`, `logic` and `float`, `rewriting` (how rules are applied to an
expression), `statements` (statements and kernels).
"""

from tilewright.simplify.rewriting import Trace, all_rules, simplify, traced
from tilewright.simplify.rules import Rule
from tilewright.simplify.statements import simplify_kernel, simplify_stmt

__all__ = [
    "Rule",
    "Trace",
    "all_rules",
    "simplify",
    "simplify_kernel",
    "simplify_stmt",
    "traced",
]

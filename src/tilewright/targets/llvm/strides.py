"""Terms of an address with a stride that is known only at run time: ``i * n``, ``n`` an argument.

Each loop advances one pointer by one stride, so all that its variable is multiplied with is summed:
of ``i*n + i*4`` the term is ``(n + 4) * i``. Such a term is the product of the stride and, as the
second factor, the variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from tilewright.facts.affine import Affine
from tilewright.facts.products import factors_of, product_of
from tilewright.ir.expr import Binary, Expr, Var, binary
from tilewright.ir.visit import reads_memory, variables


def moved_by(atom: Expr) -> Expr:
    """The variable that advances a term's pointer: the term itself, or its second factor."""
    return atom.b if isinstance(atom, Binary) else atom


def stride_of(atom: Expr) -> Expr | None:
    """The factor of a term's variable; None for a variable alone."""
    return atom.a if isinstance(atom, Binary) else None


def by_variable(
    offset: Affine, levels: Mapping[Expr, int]
) -> tuple[dict[Expr, int], dict[Expr, int]]:
    """The terms of ``offset``, a sum of products: those of variables that advance pointers, one for
    each, and the others.

    ``levels`` are the scoped variables, with levels that grow inwards. Other variables are known
    while text is written, or differ by lane: terms with them are computed where they are used.
    """
    moving: dict[Expr, Affine] = {}
    loose: dict[Expr, int] = {}
    for atom, coefficient in offset.terms.items():
        innermost = _innermost(atom, levels)
        if innermost is None:
            loose[atom] = coefficient
            continue
        variable, factors = innermost
        part = Affine({product_of(factors): coefficient}) if factors else Affine({}, coefficient)
        moving[variable] = moving.get(variable, Affine({})) + part
    terms: dict[Expr, int] = {}
    for moved, stride in moving.items():
        if stride.is_constant:
            if stride.constant:
                terms[moved] = stride.constant
            continue
        common = gcd(stride.content, stride.constant)
        terms[binary("mul", stride.divided(common).to_expr(), moved)] = common
    return terms, loose


def _innermost(atom: Expr, levels: Mapping[Expr, int]) -> tuple[Var, tuple[Expr, ...]] | None:
    """The innermost variable in ``atom``, and the other factors; None where they are no product."""
    names = variables(atom)
    if reads_memory(atom) or not names or not levels.keys() >= names:
        return None
    variable = max(names, key=lambda name: levels[name])
    factors = factors_of(atom)
    others = tuple(factor for factor in factors if factor is not variable)
    hidden = any(variable in variables(factor) for factor in others)
    return None if hidden or len(others) != len(factors) - 1 else (variable, others)

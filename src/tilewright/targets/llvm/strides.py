"""Terms of an address whose stride is a value: ``i * n`` elements, where a call passes ``n``.

Each loop moves one pointer by one stride, so what its variable is multiplied with is added up: of
``i*n + i*4`` the term is ``(n + 4) * i``. Such a term is the product of the stride and, as the
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
    """The variable that moves a term's pointer: the term itself, or its second factor."""
    return atom.b if isinstance(atom, Binary) else atom


def stride_of(atom: Expr) -> Expr | None:
    """What the variable of a term is multiplied with; None for a variable alone."""
    return atom.a if isinstance(atom, Binary) else None


def by_variable(
    offset: Affine, levels: Mapping[Expr, int]
) -> tuple[dict[Expr, int], dict[Expr, int]]:
    """The terms of ``offset``, a sum of products: one for each variable that moves pointers, and
    the others.

    Those variables have ``levels`` that grow inwards. Others are known while text is written, or
    differ by lane, as what each lane has loaded: what depends on them is computed where it is used.
    """
    moving: dict[Expr, Affine] = {}
    loose: dict[Expr, int] = {}
    for atom, coefficient in offset.terms.items():
        found = _innermost(atom, levels)
        if found is None:
            loose[atom] = coefficient
            continue
        name, rest = found
        part = Affine({product_of(rest): coefficient}) if rest else Affine({}, coefficient)
        moving[name] = moving.get(name, Affine({})) + part
    terms: dict[Expr, int] = {}
    for variable, stride in moving.items():
        if stride.is_constant:
            if stride.constant:
                terms[variable] = stride.constant
            continue
        common = gcd(stride.content, stride.constant)
        terms[binary("mul", stride.divided(common).to_expr(), variable)] = common
    return terms, loose


def _innermost(atom: Expr, levels: Mapping[Expr, int]) -> tuple[Var, tuple[Expr, ...]] | None:
    """The innermost variable that moves ``atom``, and the factors beside it."""
    names = variables(atom)
    if reads_memory(atom) or not names or not levels.keys() >= names:
        return None
    variable = max(names, key=lambda name: levels[name])
    factors = factors_of(atom)
    rest = tuple(factor for factor in factors if factor is not variable)
    hidden = any(variable in variables(factor) for factor in rest)
    return None if hidden or len(rest) != len(factors) - 1 else (variable, rest)

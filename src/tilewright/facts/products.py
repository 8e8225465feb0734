"""Sums of products of variables, as symbolic strides make them: ``(i*16 + j) * n``."""

from __future__ import annotations

from tilewright.dtypes import s64
from tilewright.facts.affine import Affine, affine, integer, order_key
from tilewright.ir.expr import Binary, Expr, binary

# Most terms of a form that is multiplied out.
_TERMS = 64


def factors_of(atom: Expr) -> tuple[Expr, ...]:
    """The factors of an atom that is a product of `products`; of another atom, itself."""
    factors: list[Expr] = []
    while isinstance(atom, Binary) and atom.op == "mul" and atom.type is s64:
        factors.append(atom.b)
        atom = atom.a
    return (atom, *reversed(factors))


def product_of(factors: tuple[Expr, ...]) -> Expr:
    """The product of ``factors``, in their order; 1 for none."""
    if not factors:
        return integer(1)
    result = factors[0]
    for factor in factors[1:]:
        result = binary("mul", result, factor)
    return result


def products(form: Affine) -> Affine:
    """``form`` with products of sums multiplied out: its atoms are products of variables and other
    atoms, in the order of `order_key`. ``form`` itself where that takes too many terms."""
    result = _multiplied_out(form)
    return form if result is None else result


def _multiplied_out(form: Affine) -> Affine | None:
    if not any(isinstance(atom, Binary) and atom.op == "mul" for atom in form.terms):
        return form
    result = Affine({}, form.constant)
    for atom, coefficient in form.terms.items():
        part: Affine | None = Affine({atom: 1})
        if isinstance(atom, Binary) and atom.op == "mul" and atom.type is s64:
            part = _product(affine(atom.a), affine(atom.b))
        if part is None:
            return None
        result = result.plus(part, coefficient)
    return result if len(result.terms) <= _TERMS else None


def _product(a: Affine, b: Affine) -> Affine | None:
    one, other = _multiplied_out(a), _multiplied_out(b)
    if one is None or other is None or len(one.terms) * len(other.terms) > _TERMS:
        return None
    result = Affine({}, one.constant * other.constant)
    result = result.plus(Affine(one.terms), other.constant)
    result = result.plus(Affine(other.terms), one.constant)
    for atom, coefficient in one.terms.items():
        for by, factor in other.terms.items():
            factors = sorted((*factors_of(atom), *factors_of(by)), key=order_key)
            term = Affine({product_of(tuple(factors)): coefficient * factor})
            result = result.plus(term, 1)
    return result

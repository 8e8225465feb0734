"""Sums by Einstein's convention, of any number of tensors: two at a time, from the left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.expr import Expr, const
from tilewright.tensor.contractions import dot_general
from tilewright.tensor.places import axis
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor, builder_of, described
from tilewright.tensor.views import transpose


@dataclass(frozen=True)
class _Named:
    """A tensor whose dims have names, each another one."""

    names: tuple[str, ...]
    tensor: Tensor

    def without(self, kept: set[str]) -> _Named:
        """Dims that are not ``kept`` are summed up."""
        gone = [n for n, name in enumerate(self.names) if name not in kept]
        if not gone:
            return self
        names = tuple(name for name in self.names if name in kept)
        return _Named(names, combined(self.tensor, gone, "add"))

    def places(self, names: Sequence[str]) -> tuple[int, ...]:
        """Where dims are."""
        return tuple(map(self.names.index, names))


def einsum(equation: str, *tensors: Tensor, dtype: object = None) -> Tensor:
    """The sum of products that ``equation`` says (``"bij,jk->bik"``, ``"...i,i"``), of ``dtype``
    (that of the first tensor)."""
    builder = builder_of(tensors, "a sum of products")
    builder.check_tensors(*tensors)
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    # Numbers name the dims of the dots below.
    letters = re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", text)
    if letters is None or len(terms) != len(tensors):
        cure = "name the dims of each tensor by letters from A to Z"
        raise builder.refuse(f"the equation {text!r} of {len(tensors)} tensors", cure)
    named = [_names(term, tensor, text) for term, tensor in zip(terms, tensors, strict=True)]
    front = sorted({n for names in named for n in names if n.isdigit()}, key=int, reverse=True)
    if arrow:
        wanted = [n for part in _parted(right) for n in (front if part == "..." else part)]
    else:
        once = [n for n in sorted(set(left) - {",", "."}) if left.count(n) == 1]
        wanted = [*front, *once]
    sizes: dict[str, int] = {}
    for names, tensor in zip(named, tensors, strict=True):
        for name, size in zip(names, tensor.shape, strict=True):
            sizes[name] = size if sizes.get(name, 1) == 1 else sizes[name]
    if len(set(wanted)) < len(wanted) or not sizes.keys() >= set(wanted):
        cure = "name dims of the result once, and those that tensors have"
        raise builder.refuse(f"the equation {text!r}", cure)
    left_over = [
        _diagonal(names, tensor, sizes) for names, tensor in zip(named, tensors, strict=True)
    ]
    product = left_over.pop(0)
    while left_over:
        other = left_over.pop(0)
        later = {*wanted, *(n for factor in left_over for n in factor.names)}
        product = _multiplied(product, other, later, dtype)
    product = product.without(set(wanted))
    return transpose(product.tensor, product.places(wanted))


def _parted(term: str) -> list[str]:
    """Names, and the dots that stand for any number of dims."""
    return re.findall(r"\.\.\.|.", term)


def _names(term: str, tensor: Tensor, text: str) -> list[str]:
    """A name for each dim; those of the dots are counted from the last one."""
    parts = _parted(term)
    more = tensor.rank - sum(part != "..." for part in parts)
    if more < 0 or parts.count("...") > 1 or (more and "..." not in parts) or "." in parts:
        raise tensor.builder.refuse(
            f"the equation {text!r}, where {term!r} is {described(tensor)}", "name all of its dims"
        )
    dots = [str(n) for n in reversed(range(more))]
    return [name for part in parts for name in (dots if part == "..." else [part])]


def _diagonal(names: Sequence[str], x: Tensor, sizes: dict[str, int]) -> _Named:
    """``x`` with one dim for each name: where a name comes twice, what lies on the diagonal; where
    it is of size 1 and others are not, repeated."""
    letters = tuple(dict.fromkeys(names))
    index: list[Expr] = [
        axis(letters.index(name)) if size != 1 else const(0)
        for name, size in zip(names, x.shape, strict=True)
    ]
    if any(size not in (1, sizes[name]) for name, size in zip(names, x.shape, strict=True)):
        wanted = ", ".join(f"{name} {sizes[name]}" for name in letters)
        raise x.builder.refuse(
            f"the equation has dims {wanted}, a tensor {described(x)}",
            "give dims of one name one size",
        )
    return _Named(letters, x.viewed([sizes[name] for name in letters], index))


def _multiplied(a: _Named, b: _Named, later: set[str], dtype: object) -> _Named:
    """The product of two, without the dims that nothing has ``later``."""
    a, b = a.without({*b.names, *later}), b.without({*a.names, *later})
    both = [name for name in a.names if name in b.names]
    batch, summed = [n for n in both if n in later], [n for n in both if n not in later]
    tensor = dot_general(
        a.tensor,
        b.tensor,
        (a.places(batch), b.places(batch)),
        (a.places(summed), b.places(summed)),
        dtype=dtype,
    )
    rest = [n for named in (a, b) for n in named.names if n not in both]
    return _Named((*batch, *rest), tensor)

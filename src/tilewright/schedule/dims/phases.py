"""Phases: points of a result that take the same taps, and only the taps that they take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.facts.affine import Affine, affine, difference
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Binary, Const, Expr, Var, all_of, binary, conjuncts, const
from tilewright.ir.stmt import Compute, Dim, Kernel, Operand, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import map_compute
from tilewright.schedule.queries.access import masked, over_dims
from tilewright.schedule.queries.identity import needed
from tilewright.schedule.queries.place import rewrite_computes
from tilewright.schedule.queries.refusal import refusal


@dataclass(frozen=True)
class Congruence:
    """A condition ``(dim - step * tap + offset) % modulus == 0`` of a mask: of the points of a
    result along ``dim``, those of one phase take every so manieth ``tap``, a reduced dim ("":
    there is one)."""

    condition: Expr
    dim: str
    tap: str
    step: int
    offset: int
    modulus: int

    @property
    def common(self) -> int:
        """What divides both the steps of the taps and the modulus: phases to which it is no
        divisor take no tap."""
        return math.gcd(self.step, self.modulus)

    @property
    def period(self) -> int:
        """How far apart the taps of one phase are."""
        return self.modulus // self.common

    def first(self, phase: Expr) -> Expr:
        """The first tap that ``phase`` takes, if it takes any."""
        if self.period == 1:
            return const(0)
        inverse = pow(self.step // self.common, -1, self.period)
        return ((phase + self.offset) // self.common * inverse) % self.period

    def solvable(self, phase: Expr) -> Expr | None:
        """Where ``phase`` takes taps; None where all do."""
        if self.common == 1:
            return None
        return binary("eq", (phase + self.offset) % self.common, const(0))


def congruences(compute: Compute) -> list[Congruence]:
    """The conditions that say of a point of the result which taps it takes, by their phases, and
    without which a term is neutral."""
    result: list[Congruence] = []
    for condition in dict.fromkeys(needed(compute)):
        congruence = _congruence(compute, condition)
        if congruence is not None:
            result.append(congruence)
    return result


def _congruence(compute: Compute, condition: Expr) -> Congruence | None:
    match condition:
        case Binary(
            op="eq", a=Binary(op="mod", a=number, b=Const(value=modulus)), b=Const(value=0)
        ):
            form = affine(number)
        case _:
            return None
    assert isinstance(modulus, int)
    extents = {d.var: d.extent for d in compute.dims}
    if not all(isinstance(a, Var) and isinstance(extents.get(a), Const) for a in form.terms):
        return None
    kept = index_variables(compute.out)
    atoms = [atom for atom in form.terms if isinstance(atom, Var)]
    dims, taps = [a for a in atoms if a in kept], [a for a in atoms if a not in kept]
    if len(dims) != 1 or len(taps) > 1:
        return None
    # Either sign says the same.
    if form.terms[dims[0]] % modulus == modulus - 1:
        form = -form
    if form.terms[dims[0]] % modulus != 1:
        return None
    tap = taps[0].name if taps else ""
    step = -form.terms[taps[0]] % modulus if taps else 0
    return Congruence(condition, dims[0].name, tap, step, form.constant % modulus, modulus)


def with_phases(kernel: Kernel, compute: str, dim: str) -> Kernel:
    """``kernel`` where points along ``dim`` take those taps of ``compute`` that count for them, and
    no others (see `split_dim`)."""
    return rewrite_computes(kernel, {compute}, lambda c, _: _on_taps(c, _found(c, dim)))


def _found(compute: Compute, dim: str) -> Congruence:
    """The first congruence about ``dim``."""
    candidates = congruences(compute)
    for congruence in candidates:
        if congruence.dim == dim:
            return congruence
    raise refusal(
        f"no mask asks for phases of '{dim}'",
        compute,
        "choose one of " + ", ".join(dict.fromkeys(congruence.dim for congruence in candidates))
        if candidates
        else "split the dim without `phases_of`",
        why="no condition is (dim - step * tap + offset) % modulus == 0 with one dim of the "
        "result, one that is reduced or none, and constants, or a term without it counts",
    )


def _on_taps(compute: Compute, congruence: Congruence) -> Compute:
    """``compute`` on those taps that each of the points along ``found.dim`` takes."""
    phase = next(d.var for d in compute.dims if d.var.name == congruence.dim)
    solvable = congruence.solvable(phase)

    def view(old: View) -> View:
        if not any(c is congruence.condition for c in conjuncts(old.mask)):
            return old
        kept = [
            solvable if c is congruence.condition else _divided(c, old, congruence)
            for c in conjuncts(old.mask)
        ]
        return replace(old, mask=all_of(c for c in kept if c is not None))

    compute = map_compute(compute, view)
    if not congruence.tap:
        return compute
    taps = next(d for d in compute.dims if d.var.name == congruence.tap)
    assert isinstance(taps.extent, Const)
    count = -(-int(taps.extent.value) // congruence.period)
    value = congruence.first(phase)
    if count > 1:
        value = taps.var * congruence.period + value
    inside = value < taps.extent
    using = {o.var for o in compute.operands if taps.var in view_variables(o.view)}
    rest = [Dim(taps.var, const(count))] if count > 1 else []
    dims: list[Dim] = []
    for d in compute.dims:
        dims += rest if d is taps else (d,)
    moved = over_dims(compute, dims, {taps.var: value})
    operands = tuple(
        Operand(o.var, masked(o.view, inside)) if o.var in using else o for o in moved.operands
    )
    return replace(moved, operands=operands)


def _divided(condition: Expr, view: View, congruence: Congruence) -> Expr:
    """``condition`` on a quotient in the index of ``view``, where it is one on its dividend: this
    is a multiple of the modulus there."""
    form = difference(condition)
    if form is None:
        return condition
    assert isinstance(congruence.condition, Binary) and isinstance(congruence.condition.a, Binary)
    whole = affine(congruence.condition.a.a)
    for quotient in _quotients(view, congruence.modulus):
        dividend = affine(quotient.a)
        for sign in (1, -1):
            rest = form.plus(dividend, -sign)
            exact = any(_multiple(dividend.plus(whole, s), congruence.modulus) for s in (1, -1))
            if exact and all(c % congruence.modulus == 0 for c in rest.terms.values()):
                divided = rest.divided(congruence.modulus) + Affine({quotient: sign})
                return const(0) <= divided.to_expr()
    return condition


def _multiple(form: Affine, modulus: int) -> bool:
    return all(c % modulus == 0 for c in (*form.terms.values(), form.constant))


def _quotients(view: View, divisor: int) -> list[Binary]:
    """The quotients by ``divisor`` that the index of ``view`` adds up."""
    atoms = [atom for index in view.index for atom in affine(index).terms]
    return [
        atom
        for atom in atoms
        if isinstance(atom, Binary) and atom.op == "floordiv" and atom.b is const(divisor)
    ]

"""Sizes of a program's arguments that calls pass (``tensor<?x4xf32>``), and what it asserts
of them before it computes: that two are one, and what they are promised to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from tilewright.frontends.stablehlo import types
from tilewright.frontends.stablehlo.syntax import Value as Named
from tilewright.ir.expr import Binary, Const, Expr, Unary, Var, var
from tilewright.ir.open_sizes import plain_sum
from tilewright.ir.sizes import polynomial
from tilewright.ir.stmt import ScalarParam
from tilewright.ir.visit import substitute, variables


@dataclass(frozen=True)
class OpenDims:
    """The open ``sizes`` of arguments, by the argument's name and the dim: expressions of
    ``params``, which say what calls may pass."""

    sizes: Mapping[tuple[str, int], Expr]
    params: tuple[ScalarParam, ...]

    @classmethod
    def of(cls, arguments: Sequence[Named]) -> OpenDims:
        """Each a size of its own."""
        sizes: dict[tuple[str, int], Expr] = {}
        params: list[ScalarParam] = []
        for named in arguments:
            type_ = named.type
            for dim, size in enumerate(type_.shape if isinstance(type_, types.Tensor) else ()):
                if size is None:
                    assert isinstance(type_, types.Tensor)
                    most = type_.bounds[dim] if type_.bounds else None
                    param = ScalarParam(var(f"{named.name}_{dim}_size"), 0, most)
                    sizes[named.name, dim] = param.var
                    params.append(param)
        return cls(sizes, tuple(params))

    def shape(self, named: Named, size_of: Callable[[Expr], int]) -> tuple[int, ...]:
        """The sizes of an argument, where expressions are what ``size_of`` gives."""
        assert isinstance(named.type, types.Tensor)
        return tuple(
            size_of(self.sizes[named.name, dim]) if size is None else size
            for dim, size in enumerate(named.type.shape)
        )

    def asserting(self, condition: Expr) -> OpenDims | None:
        """The same where ``condition`` holds; None where it says nothing of a single size."""
        holds = not isinstance(condition, Unary)
        stated = condition.a if isinstance(condition, Unary) else condition
        if not isinstance(stated, Binary) or stated.op not in ("eq", "lt"):
            return None
        if stated.op == "eq":
            return self._equal(stated.a - stated.b) if holds else None
        return self._natural(stated.b - stated.a - 1 if holds else stated.a - stated.b)

    def _equal(self, difference: Expr) -> OpenDims | None:
        """Where it is 0."""
        terms = polynomial(difference)
        if len(terms) == 1:
            ((factors, _),) = terms.items()
            match factors:
                case (Binary(op="mod", a=Var() as size, b=Const(value=by)),) if by > 0:
                    return self._with(size, lambda p: replace(p, divisor=lcm(p.divisor, int(by))))
        for param in reversed(self.params):
            times = terms.get((param.var,), 0)
            rest = {factors: n for factors, n in terms.items() if factors != (param.var,)}
            expr = plain_sum({factors: -n * times for factors, n in rest.items()})
            if abs(times) == 1 and param.var not in variables(expr):
                sizes = {at: substitute(e, {param.var: expr}) for at, e in self.sizes.items()}
                return OpenDims(sizes, tuple(p for p in self.params if p is not param))
        return None

    def _natural(self, number: Expr) -> OpenDims | None:
        """Where it is not negative."""
        terms = polynomial(number)
        rest = terms.pop((), 0)
        match [*terms.items()]:
            case [((Var() as size,), times)] if times > 0:
                least = -(rest // times)
                return self._with(size, lambda p: replace(p, low=max(p.low or 0, least)))
            case [((Var() as size,), times)]:
                most = rest // -times
                return self._with(
                    size, lambda p: replace(p, high=most if p.high is None else min(p.high, most))
                )
        return None

    def _with(self, size: Var, change: Callable[[ScalarParam], ScalarParam]) -> OpenDims | None:
        params = tuple(change(p) if p.var is size else p for p in self.params)
        promises = ([(p.low, p.high, p.divisor) for p in all_] for all_ in (params, self.params))
        return None if next(promises) == next(promises) else replace(self, params=params)


class Asserted(Exception):  # noqa: N818 - a signal to read anew, not an error
    """What is known of the sizes of arguments, when a program has asserted more of them."""

    def __init__(self, dims: OpenDims) -> None:
        super().__init__()
        self.dims = dims

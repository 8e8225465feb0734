"""Networks for short rows: steps of pairs that change places, alike for all elements.

A bitonic network sorts rows of the next power of two. Where a few of them are asked for, runs no
longer than these are sorted, up and down in turns; then, of two runs side by side, the better ones
make one, which is put in order, until one is left. Source: Batcher, "Sorting Networks and Their
Applications", 1968.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.problems.library.wording import Domain, number, stored
from tilewright.problems.problem import Shape


@dataclass(frozen=True, slots=True)
class Order:
    """Rows along ``axis`` of ``shape``, the greatest first where it ``descends``, of which the
    first ``kept`` are asked for."""

    shape: Shape
    axis: int
    descends: bool
    kept: int

    @property
    def size(self) -> int:
        """How long rows are."""
        return self.shape[self.axis]

    def domain(self, size: int) -> Domain:
        """Rows of another length."""
        return Domain(tuple(size if i == self.axis else n for i, n in enumerate(self.shape)))


@dataclass(frozen=True, slots=True)
class Step:
    """Partners are ``apart`` in runs of ``run``, which go up and down in turns; ``halves``: the
    better ones of two such runs become one. ``whole`` elements are left after it."""

    whole: int
    run: int
    apart: int
    halves: bool = False


def steps(size: int, kept: int) -> Iterator[Step]:
    """Those for rows of ``size``, of which the first ``kept`` are asked for."""
    whole, longest = (1 << (n - 1).bit_length() for n in (size, kept))
    run = 2
    while run <= longest:
        yield from _merges(whole, run)
        run *= 2
    while whole > longest:
        whole //= 2
        yield Step(whole, longest, longest, halves=True)
        yield from _merges(whole, longest)


def _merges(whole: int, run: int) -> Iterator[Step]:
    apart = run // 2
    while apart:
        yield Step(whole, run, apart)
        apart //= 2


def network(order: Order, acc: DType, places: DType, result: DType) -> str:
    """The statements: from ``src`` to ``dst`` and ``indices``, compared in ``acc``."""
    axis, size = order.axis, order.size
    todo = list(steps(size, order.kept))
    whole = 1 << (size - 1).bit_length()
    d = order.domain(whole)
    # Behind all others, as places tell equal ones apart: numbers of the last rank.
    last: float = acc.lowest if order.descends else acc.highest
    if acc.is_float:
        last = float("-inf") if order.descends else float("nan")
    here = f"d{axis} < {size}"
    lines = [
        *(f"alloc v{i}: {acc}[{d.sizes()}]" for i in range(min(2, len(todo) + 1))),
        *(f"alloc p{i}: {places}[{d.sizes()}]" for i in range(min(2, len(todo) + 1))),
        f"compute load({d.dims()}):",
        f"  x = src[{d.at()} | {here}]",
        f"  v0[{d.at()}] = select({here}, {acc}(x), {number(last, acc)})",
        f"  p0[{d.at()}] = {places}(d{axis})",
    ]
    for count, step in enumerate(todo):
        lines += _step(order, acc, count, step)
    end = len(todo) % 2
    kept = order.domain(order.kept)
    return "\n".join(
        [
            *lines,
            f"compute result({kept.dims()}):",
            f"  v = v{end}[{kept.at()}]",
            f"  p = p{end}[{kept.at()}]",
            f"  dst[{kept.at()}] = {stored('v', acc, result)}",
            f"  indices[{kept.at()}] = p",
        ]
    )


def _step(order: Order, acc: DType, count: int, step: Step) -> list[str]:
    """Each element takes its partner's place where they are out of order."""
    d, axis, run = order.domain(step.whole), order.axis, step.run
    lower, up = f"d{axis} // {step.apart} % 2 == 0", f"d{axis} // {run} % 2 == 0"
    mine = f"d{axis}"
    other = f"select({lower}, d{axis} + {step.apart}, d{axis} - {step.apart})"
    if step.halves:
        mine = f"d{axis} // {run} * {2 * run} + d{axis} % {run}"
        other = f"{mine} + {run}"
    sign = "w < v" if order.descends else "v < w"
    before = f"{sign} or (p < q and v == w)"
    if acc.is_float:
        number_first = "v != v and w == w" if order.descends else "v == v and w != w"
        before = f"{sign} or ({number_first}) or (p < q and (v == w or (v != v and w != w)))"
    stays = before if step.halves else f"({before}) ^ (({lower}) ^ ({up}))"
    old, new = count % 2, 1 - count % 2
    return [
        f"compute step{count}({d.dims()}):",
        f"  v = v{old}[{d.at({axis: mine})}]",
        f"  p = p{old}[{d.at({axis: mine})}]",
        f"  w = v{old}[{d.at({axis: other})}]",
        f"  q = p{old}[{d.at({axis: other})}]",
        f"  v{new}[{d.at()}] = select({stays}, v, w)",
        f"  p{new}[{d.at()}] = select({stays}, p, q)",
    ]

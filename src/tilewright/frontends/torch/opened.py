"""Graphs of open sizes: compiled once for all of them, where that can be, or else for each set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import GraphModule

from tilewright.frontends.torch.open_parts import NUMBERS
from tilewright.frontends.torch.open_sizes import Symbol
from tilewright.frontends.torch.replacing import said
from tilewright.frontends.torch.reports import GraphReport
from tilewright.frontends.torch.shapes import BySizes, copied
from tilewright.ir.expr import Expr
from tilewright.ir.open_sizes import broken
from tilewright.newest import Newest

Run = Callable[..., Any]
Open = Callable[[GraphModule, Sequence[Symbol]], tuple[Run, Mapping[Expr, bool]]]

# Sets of sizes of which it is kept which program runs them; and programs with some sizes closed.
_KEPT, _MOST = 4096, 16


@dataclass(frozen=True)
class _Opened:
    """What runs a graph whose ``symbols`` are open, if what was ``decided`` holds."""

    symbols: tuple[Symbol, ...]
    run: Run
    decided: Mapping[Expr, bool]

    def misfit(self, numbers: Sequence[int]) -> str | None:
        """Why these sizes are not among those that it runs."""
        values = {}
        for symbol, number in zip(self.symbols, numbers, strict=True):
            param = symbol.param
            if symbol.number is not None:
                if symbol.number != number:
                    return f"{param.name} is {number}"
                continue
            assert param.low is not None and param.high is not None
            if not param.low <= number <= param.high:
                return f"{param.name} is {number}, not {param.low} to {param.high}"
            values[param.var] = number
        condition = broken(self.decided, values)
        return (
            None if condition is None else f"it was made for sizes of another kind: `{condition}`"
        )

    def bound(self, numbers: Sequence[int]) -> Run:
        """``run`` for these sizes."""
        named = {s.param.name: n for s, n in zip(self.symbols, numbers, strict=True)}

        def run(*values: Any) -> Any:
            token = NUMBERS.set(named)
            try:
                return self.run(*values)
            finally:
                NUMBERS.reset(token)

        return run


class Opened:
    """Runs a graph of open sizes: by a program of open sizes, or, where that cannot be, of open
    batches (the first sizes of inputs) and of the others as they are, or else by one for each set.
    ``report`` is told which and why."""

    def __init__(
        self,
        gm: GraphModule,
        symbols: Sequence[Symbol],
        opened: Open,
        by_sizes: BySizes,
        report: GraphReport,
    ) -> None:
        self._gm, self._symbols = gm, tuple(symbols)
        self._open, self._by_sizes, self._report = opened, by_sizes, report
        self._made: list[_Opened] = []
        # Which sizes are still to be tried to leave open: all, and the leading ones.
        self._tries = [
            True,
            any(s.leading for s in symbols) and not all(s.leading for s in symbols),
        ]
        self._known: Newest[tuple[int, ...], Run] = Newest(_KEPT)

    def __call__(self, *values: Any) -> Any:
        numbers = tuple([symbol.read(values) for symbol in self._symbols])
        run = self._known.get(numbers)
        if run is None:
            run = self._known[numbers] = self._chosen(numbers)
        return run(*values)

    def _chosen(self, numbers: Sequence[int]) -> Run:
        why = "no size can be open"
        for opened in self._made:
            misfit = opened.misfit(numbers)
            if misfit is None:
                return opened.bound(numbers)
            why = misfit
        for n in range(2):
            if self._tries[n] and len(self._made) < _MOST:
                self._tries[n] = n == 1
                opening = self._closing(numbers) if n else self._symbols
                made_now = self._opened(opening)
                if made_now is None:
                    self._tries[n] = False
                    continue
                misfit = made_now.misfit(numbers)
                if misfit is None:
                    return made_now.bound(numbers)
                why = misfit
        self._report.closed[why] += 1
        return self._by_sizes

    def _closing(self, numbers: Sequence[int]) -> tuple[Symbol, ...]:
        """The symbols of which all but the leading are these numbers."""
        return tuple(
            symbol if symbol.leading else replace(symbol, number=number)
            for symbol, number in zip(self._symbols, numbers, strict=True)
        )

    def _opened(self, symbols: tuple[Symbol, ...]) -> _Opened | None:
        try:
            run, decided = self._open(copied(self._gm), symbols)
        except Exception as error:  # what cannot be open is compiled for each set of sizes
            self._report.closed[said(error)] += 1
            return None
        self._made.append(_Opened(symbols, run, decided))
        return self._made[-1]

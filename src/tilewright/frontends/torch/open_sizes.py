"""PyTorch's symbolic sizes as ours: what stands for them while a graph is translated, and what they
are in a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx import GraphModule
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from tilewright.errors import UnsupportedError
from tilewright.ir.expr import var
from tilewright.ir.open_sizes import OpenSizes, promising
from tilewright.ir.stmt import ScalarParam


@dataclass(frozen=True)
class Symbol:
    """A size that calls pass: PyTorch's ``symbol``, what kernels are promised of it, and how to
    read it from the arguments of a call. Those that are ``leading`` are the first of an input.
    One with a ``number`` is not open: it is always that."""

    symbol: sympy.Symbol
    param: ScalarParam
    read: Callable[[Sequence[Any]], int]
    hint: int
    leading: bool
    number: int | None = None
    allowed: ScalarParam = field(kw_only=True)
    """What PyTorch promises of it, which may be less than ``param`` does."""


@dataclass(frozen=True)
class Translating:
    """What stands for PyTorch's symbols now: numbers, and integers of ``sizes``."""

    sizes: OpenSizes
    values: Mapping[sympy.Symbol, int]


_now: ContextVar[Translating | None] = ContextVar("_now", default=None)


def open_sizes_now() -> OpenSizes | None:
    """The sizes that are open in the graph that is translated now."""
    now = _now.get()
    return None if now is None else now.sizes


@contextmanager
def translating(symbols: Sequence[Symbol], example: int) -> Iterator[OpenSizes]:
    """Inside, `size_of` gives what stands for ``symbols``: with one of two examples, 0 or 1."""
    hints = {symbol.param: symbol.hint for symbol in symbols if symbol.number is None}
    sizes = OpenSizes.of_example(hints, example)
    values = {
        symbol.symbol: sizes.size(symbol.param.var) if symbol.number is None else symbol.number
        for symbol in symbols
    }
    token = _now.set(Translating(sizes, values))
    try:
        yield sizes
    finally:
        _now.reset(token)


def size_of(size: Any) -> int:
    """A size of PyTorch's as ours. Raises `UnsupportedError` for one that is not known."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    now = _now.get()
    if now is None:
        raise UnsupportedError("its sizes depend on data")
    return _value(size.node.expr, now.values)


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes of a (fake) tensor."""
    return tuple(map(size_of, tensor.shape))


def _value(expr: Any, values: Mapping[sympy.Symbol, int]) -> int:
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        if expr not in values:
            raise UnsupportedError("its sizes depend on data")
        return values[expr]
    parts = [_value(arg, values) for arg in expr.args]
    total = parts[0] if parts else 0
    if isinstance(expr, sympy.Add):
        for part in parts[1:]:
            total = total + part
    elif isinstance(expr, sympy.Mul):
        for part in parts[1:]:
            total = total * part
    elif isinstance(expr, FloorDiv) and len(parts) == 2:
        total = total // parts[1]
    elif isinstance(expr, Mod | PythonMod):
        total = total % parts[1]
    elif isinstance(expr, Max | sympy.Max):
        total = max(parts)
    elif isinstance(expr, Min | sympy.Min):
        total = min(parts)
    elif isinstance(expr, sympy.Pow) and isinstance(expr.args[1], sympy.Integer):
        for _ in range(int(expr.args[1]) - 1):
            total = total * parts[0]
        if int(expr.args[1]) < 1:
            raise UnsupportedError(f"a size is {expr}")
    else:
        raise UnsupportedError(f"a size is {expr}")
    return total


def unknown(value: Any) -> str | None:
    """Why a value, or a size of it, is not known, and nothing stands for it now; None where that is
    not so."""
    sizes: tuple[Any, ...] = ()
    if isinstance(value, torch.SymFloat | torch.SymBool):
        return "what it is depends on sizes"
    if isinstance(value, torch.SymInt):
        sizes = (value,)
    elif isinstance(value, torch.Tensor):
        sizes = (*value.shape, *value.stride(), value.storage_offset())
    elif isinstance(value, tuple | list):
        return next(filter(None, map(unknown, value)), None)
    try:
        for size in sizes:
            size_of(size)
    except UnsupportedError as error:
        return error.what
    return None


def symbols_of(gm: GraphModule, ranges: Mapping[sympy.Symbol, Any] | None = None) -> list[Symbol]:
    """The symbols of the sizes of a graph's inputs, in order; ``ranges`` are those of an exported
    program."""
    symbols: dict[sympy.Symbol, Symbol] = {}
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    sizes: list[tuple[Any, int, int]] = []
    for n, node in enumerate(placeholders):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            sizes.append((value, n, -1))
        elif isinstance(value, torch.Tensor):
            sizes += [(size, n, dim) for dim, size in enumerate(value.shape)]
    leading = {
        size.node.expr for size, _, dim in sizes if dim == 0 and isinstance(size, torch.SymInt)
    }
    for size, n, dim in sizes:
        if not isinstance(size, torch.SymInt) or not isinstance(size.node.expr, sympy.Symbol):
            continue
        symbol = size.node.expr
        if symbol not in symbols and size.node.hint is not None:
            bounds = size.node.shape_env.var_to_range
            range_ = (ranges or bounds).get(symbol, bounds[symbol])
            # (PyTorch's infinities are integers, too.)
            least = int(range_.lower) if range_.lower > -(2**31) else None
            most = int(range_.upper) if range_.upper < 2**31 else None
            allowed = ScalarParam(var(str(symbol)), least, most)
            param, hint = promising(allowed), int(size.node.hint)
            read = _reader(n, dim)
            symbols[symbol] = Symbol(symbol, param, read, hint, symbol in leading, allowed=allowed)
    return list(symbols.values())


def _reader(n: int, dim: int) -> Callable[[Sequence[Any]], int]:
    if dim < 0:
        return lambda values: int(values[n])
    return lambda values: int(values[n].shape[dim])

"""The text of expressions, statements and kernels: `parser` reads it back exactly.

Plain integers are s64 and plain numbers with a point, an exponent, ``inf`` or ``nan`` are f32;
other constants name their type, ``s8(3)``. A mask follows the index, ``src[i, j | i < 4]``. A view
that is an argument of a call is marked, ``prefetch(&src[i, j])``. A layout that is not the dense
row-major one lists its blocks (dim:size:stride), its offset and its swizzle (bits:base:shift),
``f32[4, 30] {1:2:64 0:4:16 1:16:1 +8 ^1:3:2}``. A scalar parameter names its type, and its bounds
and divisor where it has such, ``n: s64 in 1..4096 by 16`` (``1..`` is bounded below only). Symbolic
sizes are expressions, in a layout in parentheses: ``{0:m:((n + 15) // 16 * 16)}``.
Left out: the type s64 of variables (for operands: the type of the buffer), the space ``global``,
serial loop kinds, and what is no part of the program (spans, notes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.dtypes import DType, boolean, f32, s64
from tilewright.ir.buffer import Buffer, Layout, Size, Space, row_major
from tilewright.ir.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Fma,
    Select,
    Unary,
    Var,
    const,
    print_with,
)
from tilewright.ir.functions import Queue
from tilewright.ir.load import Load
from tilewright.ir.operators import COMPARISONS
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Combiner,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Param,
    Result,
    ScalarParam,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.syntax import ATOM, INFIX, KEYWORDS, NEGATION, NOT, quoted

_INDENT = "  "
_WIDTH = 100

# A line, and the statement that begins on it.
Line = tuple[str, Stmt | None]
# Text, or an expression and the least binding strength that needs no parentheses there.
Piece = str | tuple[Expr, int]
# What caches tell kernels by, and ask for many times.
_texts: WeakKeyDictionary[Kernel, str] = WeakKeyDictionary()


def to_text(node: Expr | View | Stmt | Kernel | Buffer | ScalarParam) -> str:
    """The text of ``node``, without a newline at its end."""
    if isinstance(node, Expr):
        return _expression(node)
    if isinstance(node, View):
        return _view(node)
    if isinstance(node, Buffer):
        return _declaration(node)
    if isinstance(node, ScalarParam):
        return parameter_text(node)
    if not isinstance(node, Kernel):
        return "\n".join(line for line, _ in lines_of(node))
    text = _texts.get(node)
    if text is None:
        text = _texts[node] = "\n".join(line for line, _ in lines_of(node))
    return text


def lines_of(node: Stmt | Kernel) -> list[Line]:
    """The lines of `to_text`, with the statement that begins on each, if any."""
    lines: list[Line] = []
    if isinstance(node, Kernel):
        lines += [(line, None) for line in _kernel_header(node)]
        _nested(node.body, 1, lines)
    elif isinstance(node, Block):
        _body(node, 0, lines)
    else:
        _statement(node, 0, lines)
    return lines


def headline(stmt: Stmt) -> str:
    """The first line of ``stmt``: a loop without its body, a structured op without its views."""
    return _HEADLINES[type(stmt)](stmt)


# Expressions. A stack of pieces instead of recursion: sums get thousands of terms long.


def _expression(expr: Expr, least: int = 0) -> str:
    out: list[str] = []
    stack: list[Piece] = [(expr, least)]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            out.append(piece)
        else:
            stack.extend(reversed(_PIECES[type(piece[0])](*piece)))
    return "".join(out)


def _const(expr: Const, least: int) -> list[Piece]:
    type_ = expr.type
    if type_ is boolean:
        return [str(expr.value)]
    text = str(expr.value) if type_.is_integer else _float_text(expr)
    return [text if type_ is s64 or type_ is f32 else f"{type_}({text})"]


def _float_text(expr: Const) -> str:
    """A decimal that the type rounds to this value: the shortest for f32, else Python's."""
    value = expr.value
    if expr.type is f32:
        for digits in range(1, 10):
            value = float(f"{expr.value:.{digits}g}")
            if const(value) is expr:
                break
    return repr(value)


def _binary(expr: Binary, least: int) -> list[Piece]:
    if expr.op not in INFIX:
        return [f"{expr.op}(", (expr.a, 0), ", ", (expr.b, 0), ")"]
    symbol, strength = INFIX[expr.op]
    # Comparisons don't chain, so both sides of one need parentheses around another.
    left = strength + 1 if expr.op in COMPARISONS else strength
    pieces: list[Piece] = [(expr.a, left), f" {symbol} ", (expr.b, strength + 1)]
    return _wrapped(pieces, strength, least)


def _unary(expr: Unary, least: int) -> list[Piece]:
    if expr.op == "neg":
        return _wrapped(["-", (expr.a, ATOM)], NEGATION, least)
    if expr.op == "not":
        return _wrapped(["not ", (expr.a, NOT)], NOT, least)
    return [f"{expr.op}(", (expr.a, 0), ")"]


def _wrapped(pieces: list[Piece], strength: int, least: int) -> list[Piece]:
    return pieces if strength >= least else ["(", *pieces, ")"]


def _select(expr: Select, least: int) -> list[Piece]:
    return ["select(", (expr.condition, 0), ", ", (expr.a, 0), ", ", (expr.b, 0), ")"]


def _fma(expr: Fma, least: int) -> list[Piece]:
    name = "fma(" if expr.exact else "mad("
    return [name, (expr.a, 0), ", ", (expr.b, 0), ", ", (expr.c, 0), ")"]


def _access(buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None = None) -> list[Piece]:
    pieces: list[Piece] = [f"{quoted(buffer.name)}["]
    for position, part in enumerate(index):
        pieces += [", " if position else "", (part, 0)]
    if mask is not None:
        pieces += [" | ", (mask, 0)]
    return [*pieces, "]"]


_PIECES: dict[type[Expr], Callable[[Any, int], list[Piece]]] = {
    Const: _const,
    Var: lambda expr, least: [quoted(expr.name)],
    Binary: _binary,
    Unary: _unary,
    Select: _select,
    Fma: _fma,
    Cast: lambda expr, least: [f"{expr.type}(", (expr.a, 0), ")"],
    Bitcast: lambda expr, least: [f"bitcast({expr.type}, ", (expr.a, 0), ")"],
    Load: lambda expr, least: _access(expr.buffer, expr.index, expr.mask),
}


def _joined(pieces: Iterable[Piece]) -> str:
    return "".join(p if isinstance(p, str) else _expression(*p) for p in pieces)


def _view(view: View) -> str:
    return _joined(_access(view.buffer, view.index, view.mask))


# Declarations.


def _declaration(buffer: Buffer) -> str:
    text = f"{quoted(buffer.name)}: {buffer.dtype}[{', '.join(map(_size, buffer.sizes))}]"
    if buffer.layout != row_major(buffer.sizes):
        text += f" {_layout(buffer.layout)}"
    return text if buffer.space is Space.GLOBAL else f"{text} {buffer.space.value}"


def _size(size: Size, least: int = 0) -> str:
    return str(size) if isinstance(size, int) else _expression(size, least)


def _layout(layout: Layout) -> str:
    parts = [f"{b.dim}:{_size(b.size, ATOM)}:{_size(b.stride, ATOM)}" for b in layout.parts]
    if not isinstance(layout.start, int) or layout.start:
        parts.append(f"+{_size(layout.start, ATOM)}")
    if layout.swizzle is not None:
        parts.append(f"^{layout.swizzle.bits}:{layout.swizzle.base}:{layout.swizzle.shift}")
    return "{" + " ".join(parts) + "}"


def _typed(variable: Var, usual: DType = s64) -> str:
    name = quoted(variable.name)
    return name if variable.type is usual else f"{name}: {variable.type}"


def _kernel_header(kernel: Kernel) -> list[str]:
    start = f"kernel {quoted(kernel.name)}("
    params = [parameter_text(p) for p in kernel.params]
    line = f"{start}{', '.join(params)}):"
    if len(line) <= _WIDTH:
        return [line]
    return [start, *(f"{_INDENT * 2}{p}," for p in params), "):"]


def parameter_text(param: Param | ScalarParam) -> str:
    """A parameter as it stands in the header of a kernel."""
    if isinstance(param, Param):
        if param.digest is not None:
            return f"constant {_declaration(param.buffer)} = {param.digest}"
        return f"{param.access} {_declaration(param.buffer)}"
    text = f"{quoted(param.name)}: {param.dtype}"
    if param.low is not None or param.high is not None:
        low, high = ("" if bound is None else bound for bound in (param.low, param.high))
        text += f" in {low}..{high}"
    return text if param.divisor == 1 else f"{text} by {param.divisor}"


# Statements. Recursion is as deep as loops nest.


def _body(block: Block, depth: int, lines: list[Line]) -> None:
    for stmt in block.body:
        if isinstance(stmt, Block) and stmt.body:
            lines.append((_INDENT * depth + "block:", None))
            _body(stmt, depth + 1, lines)
        else:
            _statement(stmt, depth, lines)
    if not block.body:
        lines.append((_INDENT * depth + "pass", None))


def _nested(stmt: Stmt, depth: int, lines: list[Line]) -> None:
    if isinstance(stmt, Block):
        _body(stmt, depth, lines)
    else:
        _statement(stmt, depth, lines)


def _statement(stmt: Stmt, depth: int, lines: list[Line]) -> None:
    lines.append((_INDENT * depth + headline(stmt), stmt))
    match stmt:
        case For() | While() | Opaque():
            _nested(stmt.body, depth + 1, lines)
        case If():
            _nested(stmt.then, depth + 1, lines)
            if stmt.orelse is not None:
                lines.append((_INDENT * depth + "else:", None))
                _nested(stmt.orelse, depth + 1, lines)
        case Compute():
            lines.extend((_INDENT * (depth + 1) + line, None) for line in _compute_lines(stmt))
        case _:
            pass


def _for(stmt: For) -> str:
    kind = "" if stmt.kind is LoopKind.SERIAL else f"{stmt.kind.value} "
    return f"{kind}for {_typed(stmt.var)} in {_expression(stmt.extent)}:"


def _opaque(stmt: Opaque) -> str:
    text = f"opaque {quoted(stmt.name)}"
    for verb, names in (("reads", stmt.reads), ("writes", stmt.writes)):
        if names:
            text += f" {verb} {', '.join(map(quoted, names))}"
    return f"{text}:"


def _store(stmt: Store) -> str:
    place = _joined(_access(stmt.buffer, stmt.index))
    return f"{'stream ' * stmt.stream}{place} = {_expression(stmt.value)}"


def _call(stmt: Call) -> str:
    args = [f"&{_view(a)}" if isinstance(a, View) else _expression(a) for a in stmt.args]
    return f"{quoted(stmt.function)}({', '.join(args)})"


def _compute(stmt: Compute) -> str:
    instruction = "" if stmt.instruction is None else f"<{quoted(stmt.instruction)}>"
    dims = ", ".join(map(_dim, stmt.dims))
    return f"compute {quoted(stmt.name)}{instruction}({dims}){_completion(stmt.completion)}:"


def _completion(completion: View | Queue | None) -> str:
    match completion:
        case View():
            return f" signals {_view(completion)}"
        case Queue():
            return f" joins {completion.value}"
        case None:
            return ""


def _dim(dim: Dim) -> str:
    return f"{'ordered ' * dim.ordered}{_typed(dim.var)} in {_expression(dim.extent)}"


def _compute_lines(stmt: Compute) -> list[str]:
    lines = [f"{_typed(o.var, o.view.buffer.dtype)} = {_view(o.view)}" for o in stmt.operands]
    declared: dict[Combiner, None] = {}
    for result in stmt.results:
        if isinstance(result.combiner, Combiner):
            declared[result.combiner] = None
    lines += map(_combiner, declared)
    return [*lines, *map(_result, stmt.results)]


def _combiner(combiner: Combiner) -> str:
    old, new = (", ".join(map(_typed, names)) for names in (combiner.old, combiner.new))
    identity, values = _listed(combiner.identity), _listed(combiner.values)
    return f"combiner {quoted(combiner.name)}({old}; {new}) from ({identity}) = {values}"


def _result(result: Result) -> str:
    combiner = result.combiner
    name = combiner.name if isinstance(combiner, Combiner) else combiner or ""
    if name and name not in KEYWORDS:  # `and=` cannot be taken for anything else
        name = quoted(name)
    views = ", ".join(map(_view, result.views))
    return f"{'unique ' * result.unique}{views} {name}= {_listed(result.values)}"


def _listed(exprs: Iterable[Expr]) -> str:
    return ", ".join(map(_expression, exprs))


_HEADLINES: dict[type[Stmt], Callable[[Any], str]] = {
    Block: lambda stmt: "block:" if stmt.body else "pass",
    For: _for,
    While: lambda stmt: f"while {_expression(stmt.condition)}:",
    Opaque: _opaque,
    If: lambda stmt: f"if {_expression(stmt.condition)}:",
    Let: lambda stmt: f"{_typed(stmt.var)} = {_expression(stmt.value)}",
    Allocate: lambda stmt: f"alloc {_declaration(stmt.buffer)}",
    Store: _store,
    Call: _call,
    Compute: _compute,
}

print_with(to_text)

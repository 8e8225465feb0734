"""Walking and rewriting. A rewrite that changes nothing returns the same object.

Expressions are DAGs (interned), so their walks remember what they have seen. Blocks are flat, so
recursion is as deep as the nesting of loops, not as long as the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import is_

from tilewright.ir.buffer import Buffer
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
    binary,
    bitcast,
    cast,
    fma,
    select,
    unary,
)
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    Opaque,
    Operand,
    Result,
    Stmt,
    Store,
    View,
    While,
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions."""
    match expr:
        case Binary():
            return (expr.a, expr.b)
        case Unary() | Cast() | Bitcast():
            return (expr.a,)
        case Select():
            return (expr.condition, expr.a, expr.b)
        case Fma():
            return (expr.a, expr.b, expr.c)
        case Load():
            return expr.index if expr.mask is None else (*expr.index, expr.mask)
        case _:
            return ()


def rebuild(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """``expr`` with other sub-expressions (as `children` orders them); folds constants."""
    match expr:
        case Binary():
            return binary(expr.op, *parts)
        case Unary():
            return unary(expr.op, *parts)
        case Cast() | Bitcast():
            return (cast if isinstance(expr, Cast) else bitcast)(expr.type, *parts)
        case Select() | Fma():
            return (select if isinstance(expr, Select) else partial(fma, exact=expr.exact))(*parts)
        case Load():
            rank = len(expr.index)
            return load(expr.buffer, parts[:rank], parts[rank] if len(parts) > rank else None)
        case _:
            return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """Every distinct sub-expression, ``expr`` included; parents before children."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(children(node)))


def postorder(expr: Expr) -> list[Expr]:
    """Every distinct sub-expression, ``expr`` included; children before parents, and in order."""
    order: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        parts = children(node)
        if parts and not ready:
            stack.append((node, True))
            stack.extend((part, False) for part in reversed(parts))
            continue
        order[node] = None
    return list(order)


def variables(expr: Expr) -> frozenset[Var]:
    """The variables that occur."""
    return summary(expr)[0]


def reads_memory(expr: Expr) -> bool:
    """Whether there is a load, so that a store may change the value."""
    return (expr.summary or summary(expr))[1]


def summary(expr: Expr) -> tuple[frozenset[Var], bool]:
    """The variables that occur, and whether there is a load. Each node is looked at once, ever."""
    if isinstance(expr, Var):  # not remembered: it would keep itself alive
        return (frozenset((expr,)), False)
    if expr.summary is not None:
        return expr.summary
    stack = [expr]
    while stack:
        node = stack[-1]
        parts = children(node)
        missing = [p for p in parts if p.summary is None and not isinstance(p, Var)]
        if missing:
            stack += missing
            continue
        names: frozenset[Var] = frozenset()
        reads = isinstance(node, Load)
        for part in parts:
            part_names, part_reads = summary(part)
            if not names:
                names = part_names
            elif not part_names <= names:
                names |= part_names
            reads = reads or part_reads
        node.summary = (names, reads)
        stack.pop()
    assert expr.summary is not None
    return expr.summary


def loads_in(expr: Expr) -> Iterator[Load]:
    """Every distinct load, in the order of `walk`; skips parts without loads."""
    if reads_memory(expr):
        seen: set[int] = set()
        stack = [expr]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Load):
                yield node
            stack.extend(part for part in reversed(children(node)) if reads_memory(part))


def rewrite_loads(expr: Expr, change: Callable[[Load], Expr]) -> Expr:
    """`rewrite` where ``change`` is applied to loads only."""
    if not reads_memory(expr):
        return expr
    return rewrite(expr, lambda node: change(node) if isinstance(node, Load) else node)


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Bottom-up: ``change`` is applied to every node whose children are already rewritten."""
    done: dict[Expr, Expr] = {}
    for node in postorder(expr):
        parts = children(node)
        new_parts = tuple([done[part] for part in parts])
        same = all(map(is_, new_parts, parts))
        done[node] = change(node if same else rebuild(node, new_parts))
    return done[expr]


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced. The values are not themselves substituted into."""
    if not values or variables(expr).isdisjoint(values):
        return expr
    done: dict[Expr, Expr] = dict(values.items())
    stack = [expr]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        parts = children(node)
        missing = []
        for part in parts:
            if part in done:
                continue
            if variables(part).isdisjoint(values):
                done[part] = part
            else:
                missing.append(part)
        if missing:
            stack += missing
            continue
        done[node] = rebuild(node, tuple([done[part] for part in parts]))
        stack.pop()
    return done[expr]


ExprChange = Callable[[Expr], Expr]


def map_view(view: View, change: ExprChange) -> View:
    """``view`` with ``change`` applied to index and mask; a mask that becomes true is dropped."""
    index = tuple(map(change, view.index))
    mask = change(view.mask) if view.mask is not None else None
    if mask is view.mask and all(map(is_, index, view.index)):
        return view
    if isinstance(mask, Const) and mask.value:
        mask = None
    return View(view.buffer, index, mask)


def map_exprs(stmt: Stmt, change: ExprChange) -> Stmt:
    """``stmt`` with ``change`` applied to each expression directly in it (not in nested ones)."""
    match stmt:
        case For():
            extent = change(stmt.extent)
            return stmt if extent is stmt.extent else replace(stmt, extent=extent)
        case If() | While():
            condition = change(stmt.condition)
            return stmt if condition is stmt.condition else replace(stmt, condition=condition)
        case Let():
            value = change(stmt.value)
            return stmt if value is stmt.value else replace(stmt, value=value)
        case Store():
            index = tuple(map(change, stmt.index))
            value = change(stmt.value)
            if value is stmt.value and all(map(is_, index, stmt.index)):
                return stmt
            return replace(stmt, index=index, value=value)
        case Call():
            args = tuple(
                map_view(a, change) if isinstance(a, View) else change(a) for a in stmt.args
            )
            same = all(map(is_, args, stmt.args))
            return stmt if same else replace(stmt, args=args)
        case Compute():
            return _map_compute_exprs(stmt, change)
        case _:
            return stmt


def direct_exprs(stmt: Stmt) -> list[Expr]:
    """The expressions directly in ``stmt``."""
    exprs: list[Expr] = []

    def note(expr: Expr) -> Expr:
        exprs.append(expr)
        return expr

    map_exprs(stmt, note)
    return exprs


def _map_compute_exprs(stmt: Compute, change: ExprChange) -> Compute:
    dims = tuple([_map_dim(d, change) for d in stmt.dims])
    outputs = [map_view(view, change) for view in stmt.outputs]
    operands = tuple([_map_operand(o, change) for o in stmt.operands])
    values = [change(value) for result in stmt.results for value in result.values]
    results = with_parts(stmt.results, outputs, values)
    completion = stmt.completion
    if isinstance(completion, View):
        completion = map_view(completion, change)
    same = results is stmt.results and completion is stmt.completion
    if same and all(map(is_, dims, stmt.dims)) and all(map(is_, operands, stmt.operands)):
        return stmt
    return replace(stmt, dims=dims, operands=operands, results=results, completion=completion)


def with_parts(
    results: tuple[Result, ...], views: Sequence[View], values: Sequence[Expr]
) -> tuple[Result, ...]:
    """``results`` with new views and values, listed flat in the order of the results; the same
    object when nothing changed. (A combiner has a scope of its own.)"""
    new: list[Result] = []
    start, same = 0, True
    for old in results:
        stop = start + len(old.views)
        its_views, its_values = tuple(views[start:stop]), tuple(values[start:stop])
        kept = all(map(is_, its_views, old.views)) and all(map(is_, its_values, old.values))
        same = same and kept
        new.append(old if kept else Result(its_views, its_values, old.combiner, old.unique))
        start = stop
    return results if same else tuple(new)


def _map_dim(dim: Dim, change: ExprChange) -> Dim:
    extent = change(dim.extent)
    return dim if extent is dim.extent else Dim(dim.var, extent, dim.ordered)


def _map_operand(operand: Operand, change: ExprChange) -> Operand:
    view = map_view(operand.view, change)
    return operand if view is operand.view else Operand(operand.var, view)


def nested(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside."""
    match stmt:
        case Block():
            return stmt.body
        case For() | While() | Opaque():
            return (stmt.body,)
        case If():
            return (stmt.then,) if stmt.orelse is None else (stmt.then, stmt.orelse)
        case _:
            return ()


def with_nested(stmt: Stmt, parts: tuple[Stmt, ...]) -> Stmt:
    """``stmt`` around other nested statements (as `nested` orders them)."""
    if all(map(is_, parts, nested(stmt))):
        return stmt
    match stmt:
        case Block():
            return block(*parts)
        case For() | While() | Opaque():
            return replace(stmt, body=parts[0])
        case If():
            return replace(stmt, then=parts[0], orelse=parts[1] if len(parts) > 1 else None)
        case _:
            return stmt


def block(*stmts: Stmt) -> Stmt:
    """One statement for several: nested blocks without scope of their own are flattened."""
    flat: list[Stmt] = []
    for stmt in stmts:
        # A block that declares something keeps its own scope, unless it is the last.
        declares = any(isinstance(part, Let | Allocate) for part in nested(stmt))
        if isinstance(stmt, Block) and (stmt is stmts[-1] or not declares):
            flat.extend(stmt.body)
        else:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def walk_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """Every statement, outer before inner, in program order."""
    stack = [stmt]
    while stack:
        node = stack.pop()
        yield node
        stack += nested(node)[::-1]


def rewrite_stmts(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """Bottom-up: ``change`` is applied to every statement whose nested ones are rewritten."""
    parts = tuple(rewrite_stmts(part, change) for part in nested(stmt))
    return change(with_nested(stmt, parts))


def rewrite_exprs(stmt: Stmt, change: ExprChange) -> Stmt:
    """``change`` is applied to each whole expression in ``stmt``, nested statements included."""
    return rewrite_stmts(stmt, lambda node: map_exprs(node, change))


def substitute_stmt(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """``stmt`` with free variables replaced everywhere."""
    return rewrite_exprs(stmt, lambda expr: substitute(expr, values)) if values else stmt


def replace_buffer(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """``stmt`` with every access to ``old`` going to ``new`` at the same index."""

    def in_load(node: Load) -> Expr:
        return load(new, node.index, node.mask) if node.buffer is old else node

    def in_view(view: View) -> View:
        return View(new, view.index, view.mask) if view.buffer is old else view

    def in_stmt(node: Stmt) -> Stmt:
        node = map_exprs(node, lambda expr: rewrite_loads(expr, in_load))
        match node:
            case Store() if node.buffer is old:
                return replace(node, buffer=new)
            case Allocate() if node.buffer is old:
                return replace(node, buffer=new)
            case Opaque():
                return rename_declared(node, {old.name: new.name})
            case _:
                return map_views(node, in_view)

    return rewrite_stmts(stmt, in_stmt)


def rename_declared(nest: Opaque, names: Mapping[str, str]) -> Opaque:
    """``nest`` with the buffers that it declares renamed by ``names``; itself where it declares
    none of these."""
    if not any(name in names for name in (*nest.reads, *nest.writes)):
        return nest
    writes = dict.fromkeys(names.get(name, name) for name in nest.writes)
    reads = dict.fromkeys(names.get(name, name) for name in nest.reads)
    return replace(nest, reads=tuple(n for n in reads if n not in writes), writes=tuple(writes))


def map_views(stmt: Stmt, change: Callable[[View], View]) -> Stmt:
    """``stmt`` with ``change`` applied to the views of a `Call` or a `Compute`; itself when that
    changed nothing."""
    match stmt:
        case Call():
            args = tuple(change(a) if isinstance(a, View) else a for a in stmt.args)
            same = all(map(is_, args, stmt.args))
            return stmt if same else replace(stmt, args=args)
        case Compute():
            return map_compute(stmt, change)
        case _:
            return stmt


def map_compute(compute: Compute, change: Callable[[View], View]) -> Compute:
    """``compute`` with ``change`` applied to its views; itself when that changed nothing."""
    old = (*compute.outputs, *(operand.view for operand in compute.operands))
    new = [change(view) for view in old]
    completion = compute.completion
    if isinstance(completion, View):
        completion = change(completion)
    same = completion is compute.completion
    if same and all(map(is_, old, new)):
        return compute
    count = len(compute.outputs)
    operands = tuple(Operand(o.var, v) for o, v in zip(compute.operands, new[count:], strict=True))
    values = [value for result in compute.results for value in result.values]
    results = with_parts(compute.results, new[:count], values)
    return replace(compute, operands=operands, results=results, completion=completion)


def map_kernel(kernel: Kernel, change: Callable[[Stmt], Stmt]) -> Kernel:
    """``kernel`` with ``change`` applied to its body; the same object when that changed nothing."""
    body = change(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)

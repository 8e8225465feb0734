"""Memory of a kernel's own held otherwise: in another layout, space, or a wider type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Cast, Expr, Var, cast, var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Allocate, Call, Compute, Kernel, Stmt, Store, View
from tilewright.ir.visit import (
    map_exprs,
    replace_buffer,
    rewrite,
    rewrite_stmts,
    substitute,
    walk_stmts,
)
from tilewright.schedule.queries.storage import blocked_layout
from tilewright.schedule.records.transform import transform
from tilewright.simplify.select_cast import is_exact


@transform
def lay_out(
    kernel: Kernel,
    buffer: str,
    layout: Sequence[tuple[int, int | None]] = (),
    *,
    space: Space | None = None,
    dtype: DType | None = None,
) -> Kernel:
    """Holds a buffer that the kernel allocates in another order, place or type.

        alloc t: bf16[64, 32] workgroup
        compute load(k in 64, n in 32): t[k, n] = b[k, n]
        compute mad(m in 8, n in 32, k in 64): c[m, n] add= x[m, k] * f32(y)    (y = t[k, n])
    ->  lay_out("t", [(1, None), (0, None), (1, 16)], dtype=f32)
        alloc t: f32[64, 32] {1:2:1024 0:64:16 1:16:1} workgroup
        compute load(k in 64, n in 32): t[k, n] = f32(b[k, n])
        compute mad(m in 8, n in 32, k in 64): c[m, n] add= x[m, k] * y    (y = t[k, n])

    ``layout`` has blocks of its dims, by number, as `storage.blocked_layout` takes them by name:
    indices stay what they are. A wider type holds all values of the one that there is, which are
    converted where they are stored.
    """
    allocated = [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]
    found = [each for each in allocated if each.name == buffer]
    if len(found) != 1:
        raise ScheduleError(
            f"lay_out: the kernel allocates {len(found)} buffers called '{buffer}'",
            where=f"kernel {kernel.name}",
            cure="name one of " + ", ".join(dict.fromkeys(each.name for each in allocated)),
        )
    (old,) = found
    new = replace(old, dtype=dtype or old.dtype, space=space or old.space)
    if layout:
        names = [str(place) for place in range(old.rank)]
        blocks = [(str(dim), size) for dim, size in layout]
        _, order = blocked_layout("lay_out", names, old.shape, blocks)
        new = replace(new, layout=order)
    body = kernel.body if new.dtype is old.dtype else _converted(kernel.body, old, new)
    return replace(kernel, body=replace_buffer(body, old, new))


def _converted(body: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """``body`` where values of ``old`` are converted to the type of ``new``, and back."""
    if not is_exact(old.dtype, new.dtype):
        raise ScheduleError(
            f"lay_out: {new.dtype} does not hold all values of {old.dtype}",
            where=f"the buffer {old.name}",
            cure="choose a wider type",
        )

    def in_expr(expr: Expr) -> Expr:
        def change(node: Expr) -> Expr:
            if isinstance(node, Load) and node.buffer is old:
                return cast(old.dtype, load(new, node.index, node.mask))
            return _kept(node, new)

        return rewrite(expr, change)

    def change(stmt: Stmt) -> Stmt:
        stmt = map_exprs(stmt, in_expr)
        match stmt:
            case Store() if stmt.buffer is old:
                return replace(stmt, buffer=new, value=cast(new.dtype, stmt.value))
            case Call() if any(isinstance(a, View) and a.buffer is old for a in stmt.args):
                raise _fixed(old, stmt.function)
            case Compute():
                return _in_compute(stmt, old, new)
            case _:
                return stmt

    return rewrite_stmts(body, change)


def _kept(node: Expr, new: Buffer) -> Expr:
    """A value of ``new`` itself, where it would go to a narrower type and back."""
    if isinstance(node, Cast) and node.type is new.dtype and isinstance(node.a, Cast):
        inner = node.a.a
        if isinstance(inner, Load) and inner.buffer is new:
            return inner
    return node


def _in_compute(compute: Compute, old: Buffer, new: Buffer) -> Compute:
    for result in compute.results:
        own = [view for view in result.views if view.buffer is old]
        if own and (result.combiner is not None or compute.instruction):
            raise _fixed(old, compute.name)
    wide: dict[Var, Var] = {}
    operands = list(compute.operands)
    for place, operand in enumerate(operands):
        if operand.view.buffer is old:
            if compute.instruction:
                raise _fixed(old, compute.name)
            wide[operand.var] = var(operand.var.name, new.dtype)
            view = replace(operand.view, buffer=new)
            operands[place] = replace(operand, var=wide[operand.var], view=view)
    if not wide and all(view.buffer is not old for view in compute.outputs):
        return compute
    values: dict[Var, Expr] = {v: cast(old.dtype, w) for v, w in wide.items()}
    back = {cast(new.dtype, value): wide[v] for v, value in values.items()}

    def renewed(expr: Expr) -> Expr:
        return rewrite(substitute(expr, values), lambda node: back.get(node, node))

    made = map_exprs(replace(compute, operands=()), renewed)
    assert isinstance(made, Compute)
    renewed_operands = tuple(
        replace(o, view=replace(o.view, index=tuple(map(renewed, o.view.index)))) for o in operands
    )
    results = tuple(
        replace(
            each,
            values=tuple(
                cast(new.dtype, value) if view.buffer is old else value
                for value, view in zip(each.values, each.views, strict=True)
            ),
            views=tuple(
                replace(view, buffer=new) if view.buffer is old else view for view in each.views
            ),
        )
        for each in made.results
    )
    return replace(made, operands=renewed_operands, results=results)


def _fixed(old: Buffer, user: str) -> ScheduleError:
    return ScheduleError(
        f"lay_out: '{user}' takes '{old.name}' as {old.dtype}",
        where=f"the buffer {old.name}",
        why="it combines there, or an instruction or a function gets it as it is",
        cure="keep its type",
    )

"""Memory of a kernel's own held otherwise: in another layout, space or size, or a wider type; all
along, or from some compute on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Layout, Space
from tilewright.ir.expr import Cast, Expr, Var, cast, const, var
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    Dim,
    Kernel,
    Operand,
    Stmt,
    Store,
    View,
)
from tilewright.ir.visit import (
    block,
    map_exprs,
    replace_buffer,
    rewrite,
    rewrite_stmts,
    substitute,
    walk_stmts,
)
from tilewright.schedule.queries.access import Access, accesses
from tilewright.schedule.queries.place import (
    Place,
    claim,
    fresh,
    is_called,
    names_in,
    rewrite_placed,
    sequence,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import blocked_layout, ordered_layout
from tilewright.schedule.records.asks import a_compute, asks
from tilewright.schedule.records.transform import give, transform
from tilewright.simplify.select_cast import is_exact


@transform
@asks(since=a_compute)
def lay_out(
    kernel: Kernel,
    buffer: str,
    layout: Sequence[tuple[int, int | None]] = (),
    *,
    space: Space | None = None,
    dtype: DType | None = None,
    shrink: bool = False,
    since: str | None = None,
) -> Kernel:
    """Holds a buffer that the kernel allocates in another order, place, type or size.

        alloc t: bf16[64, 32] workgroup
        compute load(k in 64, n in 32): t[k, n] = b[k, n]
        compute mad(m in 8, n in 32, k in 64): c[m, n] add= x[m, k] * f32(y)    (y = t[k, n])
    ->  lay_out("t", [(1, None), (0, None), (1, 16)], dtype=f32)
        alloc t: f32[64, 32] {1:2:1024 0:64:16 1:16:1} workgroup
        compute load(k in 64, n in 32): t[k, n] = f32(b[k, n])
        compute mad(m in 8, n in 32, k in 64): c[m, n] add= x[m, k] * y    (y = t[k, n])

    ``layout`` has blocks of its dims, by number, as `storage.blocked_layout` takes them by name:
    indices stay what they are. A wider type holds all values of the one that there is, which are
    converted where they are stored. With ``shrink``, there are no more elements along a dim than
    are reached, so that rows are near one another; what is allocated by that name in several
    places has its own size in each. A layout that is not the usual one stays then, and so does
    what has a size that a call passes.

        alloc row: f32[4, 4096] private
        compute power(i in 4, j in 768): row[i, j] = exp(x)    (x = src[i, j])
    ->  lay_out("row", shrink=True)
        alloc row: f32[4, 768] private
        compute power(i in 4, j in 768): row[i, j] = exp(x)    (x = src[i, j])

    From the compute ``since`` on, which stands in the block in which the buffer is allocated, a
    copy stands for it, and is held so. Among the results are ``copy`` and ``buffer`` then.

        alloc acc: f32[16, 16] private
        for k in 8:
          compute mad(m in 16, n in 16): acc[m, n] add= ...
        compute relu(m in 16, n in 16): acc[m, n] = max(x, 0.0)    (x = acc[m, n])
    ->  lay_out("acc", space=Space.WORKGROUP, since="relu")
        ...
        alloc acc_late: f32[16, 16] workgroup
        compute acc_copy(acc_0 in 16, acc_1 in 16): acc_late[acc_0, acc_1] = acc[acc_0, acc_1]
        compute relu(m in 16, n in 16): acc_late[m, n] = max(x, 0.0)    (x = acc_late[m, n])
    """
    allocated = {s.buffer.name: None for s in walk_stmts(kernel.body) if isinstance(s, Allocate)}
    if buffer not in allocated:
        raise refusal(
            f"the kernel allocates no '{buffer}'", kernel, "name one of " + ", ".join(allocated)
        )

    def held(old: Buffer, touching: Iterable[Access]) -> Buffer:
        new = _shrunk(old, list(touching)) if shrink else old
        order = _ordered(new, layout) if layout else new.layout
        return replace(new, layout=order, dtype=dtype or old.dtype, space=space or old.space)

    body, name = (kernel.body, buffer) if since is None else _copied(kernel, buffer, since)
    body = _held(body, name, held)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _held(body: Stmt, name: str, how: Callable[[Buffer, Iterable[Access]], Buffer]) -> Stmt:
    """``body`` with the buffers called ``name`` as ``how`` says by where they are reached."""

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Block):
            return None
        parts = [*stmt.body]
        for n, part in enumerate(stmt.body):
            if isinstance(part, Allocate) and part.buffer.name == name:
                # It is there from here on: what stands before may have allocated one of its own.
                old, rest = part.buffer, block(*parts[n:])
                new = how(old, (a for a in accesses(rest, place) if a.view.buffer is old))
                if new.dtype is not old.dtype:
                    rest = _converted(rest, old, new)
                if _form(new) != _form(old):
                    rest = replace_buffer(rest, old, new)
                parts[n:] = sequence(rest)
        if all(one is other for one, other in zip(parts, stmt.body, strict=True)):
            return None
        whole = Block(tuple(parts))
        # What is inside may allocate such, too.
        return block(*(rewrite_placed(part, here, change) for here, part in place.along(whole)))

    return rewrite_placed(body, Place(), change)


def _form(buffer: Buffer) -> tuple[object, ...]:
    return buffer.dtype, buffer.space, buffer.sizes, buffer.layout


def _ordered(buffer: Buffer, layout: Sequence[tuple[int, int | None]]) -> Layout:
    names = [str(place) for place in range(buffer.rank)]
    blocks = [(str(dim), size) for dim, size in layout]
    return blocked_layout(names, buffer.shape, blocks)[1]


def _shrunk(buffer: Buffer, reached: Sequence[Access]) -> Buffer:
    """``buffer`` with as much of it as is ``reached``."""
    if buffer.symbols or buffer.layout != ordered_layout(buffer.shape, range(buffer.rank)):
        return buffer
    shape = tuple(_reach(reached, dim, size) for dim, size in enumerate(buffer.shape))
    return replace(buffer, sizes=shape, layout=ordered_layout(shape, range(buffer.rank)))


def _reach(touching: Sequence[Access], dim: int, size: int) -> int:
    """How many elements along ``dim`` have to be there."""
    greatest = [access.facts.bounds(access.view.index[dim])[1] for access in touching]
    return max((size if most is None else min(size, most + 1) for most in greatest), default=size)


def _copied(kernel: Kernel, buffer: str, since: str) -> tuple[Stmt, str]:
    """The body with a copy that stands for ``buffer`` from the compute ``since`` on, and how the
    copy is called."""
    buffers, computes = names_in(kernel)
    late, name = fresh(f"{buffer}_late", buffers), fresh(f"{buffer}_copy", computes)

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        parts = sequence(stmt)
        at = next((n for n, s in enumerate(parts) if is_called(s, since)), None)
        if at is None:
            return None
        held = [s.buffer for s in parts[:at] if isinstance(s, Allocate)]
        old = next((other for other in held if other.name == buffer), None)
        if old is None:
            raise refusal(
                f"'{buffer}' is not allocated in the block of '{since}'",
                parts[at],
                "name a compute that stands beside the allocation, after it",
                why="in a loop, the next iteration would go on with what was there before",
            )
        new = replace(old, name=late)
        rest = replace_buffer(block(*parts[at:]), old, new)
        return block(*parts[:at], Allocate(new), _copy(name, old, new, place), rest)

    give("copy", "compute", name)
    give("buffer", "buffer", late)
    return rewrite_placed(kernel.body, Place(), change), late


def _copy(name: str, old: Buffer, new: Buffer, place: Place) -> Compute:
    """What copies all of ``old`` to ``new``."""
    taken = set(place.names)
    dims: list[Dim] = []
    for number, size in enumerate(old.shape):
        dims.append(Dim(var(claim(f"{old.name}_{number}", taken)), const(size)))
    index = tuple(dim.var for dim in dims)
    value = var(fresh("value", taken), old.dtype)
    operand = Operand(value, View(old, index))
    return Compute.single(name, tuple(dims), View(new, index), (operand,), value)


def _converted(body: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """``body`` where values of ``old`` are converted to the type of ``new``, and back."""
    if not is_exact(old.dtype, new.dtype):
        raise refusal(
            f"{new.dtype} does not hold all values of {old.dtype}",
            f"the buffer {old.name}",
            "choose a wider type",
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
        views = [view for view in result.views if view.buffer is old]
        if views and (result.combiner is not None or compute.instruction):
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

    stmt = map_exprs(replace(compute, operands=()), renewed)
    assert isinstance(stmt, Compute)
    renewed_operands = tuple(
        replace(o, view=replace(o.view, index=tuple(map(renewed, o.view.index)))) for o in operands
    )
    results = tuple(
        replace(
            result,
            values=tuple(
                cast(new.dtype, value) if view.buffer is old else value
                for value, view in zip(result.values, result.views, strict=True)
            ),
            views=tuple(
                replace(view, buffer=new) if view.buffer is old else view for view in result.views
            ),
        )
        for result in stmt.results
    )
    return replace(stmt, operands=renewed_operands, results=results)


def _fixed(old: Buffer, user: str) -> ScheduleError:
    return refusal(
        f"'{user}' takes '{old.name}' as {old.dtype}",
        f"the buffer {old.name}",
        "keep its type",
        why="it combines there, or an instruction or a function gets it as it is",
    )

"""Elementwise computes where their results are read, so that these are in no memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.errors import ScheduleError
from tilewright.facts.affine import affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import addressing
from tilewright.ir.expr import Binary, Const, Expr, Var, all_of, as_expr, conjuncts, const, select
from tilewright.ir.expr import var as variable
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Compute,
    For,
    Kernel,
    Let,
    Operand,
    Stmt,
    View,
)
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import (
    block,
    map_view,
    reads_memory,
    rewrite_stmts,
    substitute,
    walk,
    walk_stmts,
)
from tilewright.schedule.queries.access import accesses, buffers_allocated, buffers_written
from tilewright.schedule.queries.digits import digits_of
from tilewright.schedule.queries.place import (
    Place,
    claim,
    computes_named,
    rewrite_placed,
    size_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify

# Integers that are divided by 0 have no value.
_DIVISIONS = frozenset({"floordiv", "mod"})


@transform
def inline(kernel: Kernel, compute: str) -> Kernel:
    """Computes what an elementwise compute gives where it is read, and drops its buffer.

        alloc t: f32[8, 6]
        compute scaled(k in 8, n in 6): t[k, n] = f32(w[k, n]) * scale[n]
        compute b_pack(n in 8, k in 8): t_packed[n, k] = b    (b = t[k, n | n < 6])
    ->  inline("scaled")
        compute b_pack(n in 8, k in 8):
          w = w[k, n | n < 6]
          scale = scale[n | n < 6]
          t_packed[n, k] = f32(w) * scale

    Every reader computes what it reads of it: once more for each time that it is read. What a
    reader's mask hides is zero, whatever the compute gives of zeros: where that is another value,
    the reader selects.

    The compute stands in one block with all its readers, which are computes after it, and gives
    each element of its buffer once; nothing changes what it reads before they do. The buffer may be
    allocated further out.
    """
    matching = computes_named(kernel, compute)
    if len(matching) > 1:
        raise refusal(
            f"there are {len(matching)} computes called '{compute}'",
            matching[0][0],
            "inline before what partitions the kernel",
        )
    inlining = _Inlining.of(matching[0][0], kernel.body)
    body = rewrite_placed(kernel.body, Place(), inlining.on_stmt)
    held = inlining.compute.out.buffer
    return replace(kernel, body=rewrite_stmts(body, lambda stmt: _without(stmt, held)))


def _without(stmt: Stmt, held: Buffer) -> Stmt:
    """``stmt`` without the allocation of ``held``."""
    if not isinstance(stmt, Block):
        return stmt
    return block(*(s for s in stmt.body if not (isinstance(s, Allocate) and s.buffer is held)))


@dataclass(frozen=True)
class _Inlining:
    """The compute, of each dim of its buffer the dims that are the digits of its index, and how
    often anything in the kernel reaches that buffer."""

    compute: Compute
    digits: tuple[tuple[Var, ...], ...]
    uses: int

    @staticmethod
    def of(compute: Compute, body: Stmt) -> _Inlining:
        """Refuses what is not elementwise, and what goes to others than the kernel's computes."""
        if compute.combiner is not None or compute.instruction or compute.completion is not None:
            raise refusal(
                f"'{compute.name}' accumulates, or an instruction carries it out",
                compute,
                "inline what assigns, before it is tensorized",
                why="its results are not the values of its points",
            )
        if reads_memory(compute.body):
            raise refusal(
                f"'{compute.name}' loads in its value",
                compute,
                "name what it loads as operands",
                why="their views are what becomes another",
            )
        held = compute.out.buffer
        if held not in buffers_allocated(body):
            raise refusal(
                f"'{held.name}' is not allocated by the kernel",
                compute,
                "inline what goes into a buffer of the kernel's own",
                why="others may read it",
            )
        uses = sum(access.view.buffer is held for access in accesses(body, Place()))
        return _Inlining(compute, _digits(compute), uses)

    def on_stmt(self, stmt: Stmt, place: Place) -> Stmt | None:
        """The block of the compute, and of all that read it, without it."""
        if not isinstance(stmt, Block) or self.compute not in stmt.body:
            # Alone, it has no readers.
            return None if stmt is not self.compute else self._unread()
        position = stmt.body.index(self.compute)
        before, after = stmt.body[:position], stmt.body[position + 1 :]
        held = self.compute.out.buffer
        if any(held in buffers_in(s) for s in before if not isinstance(s, Allocate)):
            raise refusal(
                f"'{held.name}' is used before '{self.compute.name}'",
                self.compute,
                "inline what alone fills its buffer",
            )
        self._check(after, place)
        names = place.names.union(*map(_bound, after))
        new = [rewrite_stmts(s, lambda node: self._in_reader(node, names)) for s in after]
        return block(*before, *new)

    def _unread(self) -> Stmt:
        raise refusal(
            f"nothing reads what '{self.compute.name}' gives",
            self.compute,
            "inline a compute that has readers in its block",
        )

    def _check(self, after: Sequence[Stmt], place: Place) -> None:
        """Refuses where others than computes use the buffer, or something writes what is read."""
        held = self.compute.out.buffer
        sources = {o.view.buffer for o in self.compute.operands}
        touching = [a for s in after for a in accesses(s, place) if a.view.buffer is held]
        if not touching:
            self._unread()
        if len(touching) + 1 < self.uses:
            raise refusal(
                f"'{held.name}' is used outside of the block of '{self.compute.name}'",
                self.compute,
                "inline what is read in the same block",
                why="what is there later may be read",
            )
        for access in touching:
            reader = access.stmt
            is_operand = isinstance(reader, Compute) and any(
                o.view is access.view for o in reader.operands
            )
            taken = isinstance(reader, Compute) and (reader.instruction or reader.completion)
            if access.writes or not is_operand or taken:
                raise refusal(
                    f"'{held.name}' is used by `{headline(reader)}`",
                    self.compute,
                    "inline what computes alone read, before they are lowered or tensorized",
                    why="only the operand of a compute can become an expression",
                )
        for stmt in after:
            changed = buffers_written(stmt) & sources
            if changed:
                raise refusal(
                    f"'{min(b.name for b in changed)}' is written behind '{self.compute.name}'",
                    stmt,
                    "inline before what is read changes, or keep the buffer",
                    why="readers would compute with what is there later",
                )

    # Readers.

    def _in_reader(self, stmt: Stmt, around: frozenset[str]) -> Stmt:
        held = self.compute.out.buffer
        if not isinstance(stmt, Compute) or all(o.view.buffer is not held for o in stmt.operands):
            return stmt
        reader = stmt
        if any(o.view.buffer is held and o.var in addressing(reader) for o in reader.operands):
            raise refusal(
                f"'{reader.name}' reads '{held.name}' to know places",
                reader,
                "keep its buffer",
                why="an index has operands, and no expressions of what is loaded",
            )
        taken = {d.var.name for d in reader.dims} | {o.var.name for o in reader.operands} | around
        operands: list[Operand] = []
        values: dict[Var, Expr] = {}
        for operand in reader.operands:
            if operand.view.buffer is not held:
                operands.append(operand)
                continue
            taken -= {operand.var.name}
            read, values[operand.var] = self._value(reader, operand.view, taken)
            operands += read
            taken |= {o.var.name for o in read}
        results = tuple(
            replace(result, values=tuple(substitute(value, values) for value in result.values))
            for result in reader.results
        )
        return replace(reader, operands=tuple(operands), results=results)

    def _value(self, reader: Compute, view: View, taken: set[str]) -> tuple[list[Operand], Expr]:
        """What the compute gives at ``view``: the operands that it takes there, and its value."""
        at = dict(self._points(view))
        names = set(taken)
        operands: list[Operand] = []
        values: dict[Var, Expr] = dict(at)
        for operand in self.compute.operands:
            moved = map_view(operand.view, lambda expr: substitute(expr, at))
            moved = replace(moved, mask=all_of((*conjuncts(view.mask), *conjuncts(moved.mask))))
            new = variable(claim(operand.var.name, names), operand.var.type)
            operands.append(Operand(new, moved))
            values[operand.var] = new
        value = substitute(self.compute.body, values)
        if view.mask is None:
            return operands, value
        if any(map(_divides, walk(self.compute.body))):
            raise refusal(
                f"'{self.compute.name}' divides, and '{reader.name}' reads under a mask",
                self.compute,
                "keep its buffer",
                why="where the mask hides the divisor, that would be 0",
            )
        if self._zero_of_zeros():
            return operands, value
        return operands, select(view.mask, value, const(0, value.type))

    def _points(self, view: View) -> Iterator[tuple[Var, Expr]]:
        """Of each dim of the compute, where it is at the element at ``view``."""
        extents = {d.var: size_of(d) for d in self.compute.dims}
        for index, dims in zip(view.index, self.digits, strict=True):
            sizes = [extents[dim] for dim in dims]
            yield from zip(
                dims, digits_of(index, sizes) if len(dims) > 1 else [index], strict=False
            )

    def _zero_of_zeros(self) -> bool:
        """Whether the value is zero where all operands are."""
        zeros: Mapping[Var, Expr] = {o.var: const(0, o.var.type) for o in self.compute.operands}
        value = simplify(substitute(self.compute.body, zeros))
        return value is const(0, value.type)


def _bound(stmt: Stmt) -> frozenset[str]:
    """The names of what loops and lets inside ``stmt`` bind."""
    return frozenset(s.var.name for s in walk_stmts(stmt) if isinstance(s, For | Let))


def _divides(node: Expr) -> bool:
    """Whether ``node`` divides integers by what may be 0."""
    return isinstance(node, Binary) and node.op in _DIVISIONS and not isinstance(node.b, Const)


def _digits(compute: Compute) -> tuple[tuple[Var, ...], ...]:
    """The dims of which each index of the result has the digits, the most significant first;
    refuses where not each element is given once."""
    extents = {d.var: d.extent for d in compute.dims}
    varses: list[tuple[Var, ...]] = []
    for index, size in zip(compute.out.index, compute.out.buffer.sizes, strict=True):
        form = affine(index)
        vars_ = sorted(
            (a for a in form.terms if isinstance(a, Var)), key=lambda a: -abs(form.terms[a])
        )
        whole = 1
        right = form.constant == 0 and len(vars_) == len(form.terms)
        for dim in reversed(vars_):
            extent = extents.pop(dim, None)
            right = right and isinstance(extent, Const) and form.terms[dim] == whole
            whole *= int(extent.value) if isinstance(extent, Const) else 0
        if not right or as_expr(size) is not const(whole):
            raise _not_each(compute, index)
        varses.append(tuple(vars_))
    if extents or compute.out.mask is not None:
        raise _not_each(compute, *compute.out.index)
    return tuple(varses)


def _not_each(compute: Compute, *index: Expr) -> ScheduleError:
    return refusal(
        f"'{compute.name}' gives not each element of '{compute.out.buffer.name}' once",
        compute,
        "keep its buffer, or write it over all of its elements, with a dim for each of the buffer",
        why="where it is read, its point could not be told: it stores at "
        + ", ".join(map(to_text, index)),
    )

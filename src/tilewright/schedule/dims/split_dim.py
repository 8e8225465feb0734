"""Splitting a dim of the iteration domain in two, with the buffers that it indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Var, const, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import reads_memory, variables, walk_stmts
from tilewright.schedule.dims.pad import within
from tilewright.schedule.dims.phases import with_phases
from tilewright.schedule.queries.access import Access, accesses, masked, over_dims, readdress
from tilewright.schedule.queries.identity import vanishes
from tilewright.schedule.queries.place import Place, dim_of, plain, rewrite_placed
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.asks import a_plain_compute, asks, new_name, positive
from tilewright.schedule.records.transform import transform


@transform
@asks(factor=positive, outer=new_name("dim"), inner=new_name("dim"), phases_of=a_plain_compute)
def split_dim(
    kernel: Kernel, dim: str, factor: int, outer: str, inner: str, *, phases_of: str | None = None
) -> Kernel:
    """Makes two dims of one in every compute that has it: ``dim = outer * factor + inner``.

        alloc acc: f32[7]
        compute init(iw in 7): acc[iw] = 0.0
        compute main(iw in 7, kw in 3):
          acc[iw] add= d * w    (d = dst[(iw + 1 - kw) // 2 | (iw + 1 - kw) % 2 == 0 and ...])
        compute store(iw in 7): src[iw] = acc[iw]
    ->  split_dim("iw", 2, "x", "r")
        alloc acc: f32[4, 2]
        compute init(x in 4, r in 2): acc[x, r] = 0.0
        compute main(x in 4, r in 2, kw in 3):
          acc[x, r] add= d * w
              (d = dst[x + (r + 1 - kw) // 2 | (r + 1 - kw) % 2 == 0 and x*2 + r < 7 and ...])
        compute store(x in 4, r in 2): src[x*2 + r | x*2 + r < 7] = acc[x, r]

    An allocated buffer that only such computes touch, each at ``dim`` alone in one place, is split
    too, if it is dense: it has room for the surplus where ``factor`` does not divide the dim.
    Elsewhere the surplus is masked: outputs always, operands where they would leave their buffer.
    A dim that is reduced needs surplus terms that are neutral: an operand that makes them so is
    masked.

    A mask with ``(dim - step * k + offset) % modulus == 0`` says which taps ``k`` a point takes.
    Points whose remainder by the modulus is the same are of one *phase* and take the same ones.
    Of the compute ``phases_of``, taps that a phase does not take are left out:

        ->  split_dim("iw", 2, "x", "r", phases_of="main")
        compute main(x in 4, r in 2, kw in 2):
          acc[x, r] add= d * w
              (d = dst[x - kw + (r - (r + 1) % 2 + 1) // 2 | kw*2 + (r + 1) % 2 < 3 and ...],
               w = weights[kw*2 + (r + 1) % 2 | kw*2 + (r + 1) % 2 < 3])

    The taps of a phase begin at ``k = (inner + offset) / step``, modulo the modulus, and go on in
    steps of that; the dim is gone where each phase has one at most. Where step and modulus have a
    common divisor, some phases have no taps: ``(inner + offset) % divisor == 0`` stays, as does the
    end of the taps. The factor to choose is the modulus.
    """
    _check_names(kernel, dim, outer, inner)
    if phases_of is not None:
        kernel = with_phases(kernel, phases_of, dim)
    split = _Split(dim, factor, var(outer), var(inner), frozenset(_splittable(kernel, dim)))
    body = rewrite_placed(kernel.body, Place(), split.on_stmt)
    for buffer, position in _splittable(kernel, dim).items():
        body = _with_two_dims(body, buffer, position, factor)
    return replace(kernel, body=body)


def _has_dim(stmt: Stmt, dim: str) -> bool:
    return isinstance(stmt, Compute) and any(d.var.name == dim for d in stmt.dims)


def _check_names(kernel: Kernel, dim: str, outer: str, inner: str) -> None:
    where = f"kernel {kernel.name}"
    if not any(_has_dim(stmt, dim) for stmt in walk_stmts(kernel.body)):
        raise refusal(
            f"no compute has the dim '{dim}'", where, "split before the dim is tiled away"
        )
    if outer == inner:
        raise refusal(
            f"both dims are called '{outer}'", where, "choose two names; one may be the old one"
        )


def _splittable(kernel: Kernel, dim: str) -> dict[Buffer, int]:
    """The buffers to split, each with the number of its dim."""
    accesses_of: dict[Buffer, list[Access]] = {}
    for access in accesses(kernel.body, Place()):
        accesses_of.setdefault(access.view.buffer, []).append(access)
    positions: dict[Buffer, int] = {}
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Allocate) and _is_dense(stmt.buffer):
            position = _common_position(stmt.buffer, accesses_of.get(stmt.buffer, []), dim)
            if position is not None:
                positions[stmt.buffer] = position
    return positions


def _common_position(buffer: Buffer, touching: Sequence[Access], dim: str) -> int | None:
    """Which dim of ``buffer`` is indexed by ``dim``, in full and alone, in every access."""
    for position, size in enumerate(buffer.shape):
        if touching and all(_is_pure(access, position, size, dim) for access in touching):
            return position
    return None


def _is_pure(access: Access, position: int, size: int, dim: str) -> bool:
    view, stmt = access.view, access.stmt
    if not isinstance(stmt, Compute) or not _has_dim(stmt, dim):
        return False
    split = dim_of(stmt, dim)
    if view.index[position] is not split.var or split.extent is not const(size):
        return False
    return not any(split.var in variables(e) for i, e in enumerate(view.index) if i != position)


def _is_dense(buffer: Buffer) -> bool:
    """Whether the layout is dense, each dim of the buffer in one block."""
    order = [block.dim for block in buffer.layout.blocks]
    if sorted(order) != list(range(len(buffer.shape))):
        return False
    return ordered_layout(buffer.shape, order) == buffer.layout


def _with_two_dims(body: Stmt, old: Buffer, position: int, factor: int) -> Stmt:
    """``body`` with dim ``position`` of a dense buffer as two, next to one another in memory."""
    parts = (-(-old.shape[position] // factor), factor)
    shape = (*old.shape[:position], *parts, *old.shape[position + 1 :])
    order: list[int] = []
    for block in old.layout.blocks:
        order.append(block.dim + (block.dim > position))
        if block.dim == position:
            order.append(position + 1)
    new = Buffer(old.name, old.dtype, shape, ordered_layout(shape, order), old.space)

    def view(access: View) -> View:
        index = access.index[position]
        two = (index // factor, index % factor)
        before, after = access.index[:position], access.index[position + 1 :]
        return View(new, (*before, *two, *after), access.mask)

    return readdress(body, old, view)


@dataclass(frozen=True)
class _Split:
    """The dim, what it becomes, and the buffers that get room for the surplus."""

    dim: str
    factor: int
    outer: Var
    inner: Var
    buffers: frozenset[Buffer]

    def on_stmt(self, stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Compute) or not _has_dim(stmt, self.dim):
            return None
        plain(stmt)
        old = dim_of(stmt, self.dim)
        if stmt.instruction is not None or not isinstance(old.extent, Const):
            what = "is an instruction's" if stmt.instruction is not None else "varies in extent"
            raise refusal(f"'{self.dim}' {what}", stmt, "split before tiling and tensorizing")
        extent = int(old.extent.value)
        two = (
            Dim(self.outer, const(-(-extent // self.factor))),
            Dim(self.inner, const(self.factor)),
        )
        dims: list[Dim] = []
        for d in stmt.dims:
            dims += two if d is old else (d,)
        value = self.outer * self.factor + self.inner
        new = over_dims(stmt, dims, {old.var: value})
        if extent % self.factor == 0:
            return new
        return self._without_surplus(stmt, new, value < extent, place.facts_with(dims))

    def _without_surplus(
        self, before: Compute, after: Compute, inside: Expr, facts: Facts
    ) -> Compute:
        """``after`` with masks such that the points that are not ``inside`` do no harm."""
        variable = dim_of(before, self.dim).var
        if reads_memory(before.body) and variable in variables(before.body):
            raise refusal(
                f"'{self.dim}' indexes a load in the body",
                before,
                "choose a factor that divides the dim",
                why=f"the surplus of {to_text(before.body)} may be out of bounds",
            )
        operands: list[Operand] = []
        harmless = False
        for old, operand in zip(before.operands, after.operands, strict=True):
            kept = old.view.buffer in self.buffers or variable not in view_variables(old.view)
            if not kept and not within(operand.view, facts):
                operand = Operand(operand.var, masked(operand.view, inside))
                harmless = harmless or vanishes(before, operand.var)
            operands.append(operand)
        out = after.out
        if not any(variable in variables(e) for e in before.out.index):
            operands = operands if harmless else self._neutral(before, operands, inside)
        elif out.buffer not in self.buffers:
            out = masked(out, inside)
        return replace(after, operands=tuple(operands)).with_result(out)

    def _neutral(self, before: Compute, operands: Sequence[Operand], inside: Expr) -> list[Operand]:
        """The operands with a mask on one that makes the surplus of a reduction neutral."""
        for i, operand in enumerate(operands):
            if vanishes(before, operand.var):
                one = Operand(operand.var, masked(operand.view, inside))
                return [*operands[:i], one, *operands[i + 1 :]]
        raise refusal(
            f"the surplus of '{self.dim}' would count",
            before,
            "choose a factor that divides the dim, or split dims of sums of products",
            why=f"no operand of {to_text(before.body)} that is zero makes it neutral",
        )

"""Matching a compute with a machine instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Space
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Binary, Cast, Const, Expr, Var, const
from tilewright.ir.functions import Queue
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Call, Compute, For, Kernel, LoopKind, Operand, Stmt, View
from tilewright.ir.visit import block, rewrite_stmts, substitute, variables
from tilewright.layout.fragments import registers
from tilewright.layout.rows import growth, place_rows
from tilewright.machines.instruction import AddressStep, Instruction, OperandForm
from tilewright.schedule.loops.tile import on_tile, split_dims
from tilewright.schedule.pipelines.barriers import is_barrier
from tilewright.schedule.queries.place import Place, computes_named, dim_of, holds, rewrite_placed
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform
from tilewright.simplify import simplify


@transform
@asks(compute=a_plain_compute)
def tensorize(
    kernel: Kernel,
    compute: str,
    instruction: Instruction,
    dims: Mapping[str, str],
    order: Sequence[str] = (),
    lengths: Mapping[str, int] | None = None,
) -> Kernel:
    """Carries a compute out by an instruction, whose dims are mapped to the compute's by ``dims``.

        compute conv(oc in 32, ow in 4, ic in 8): acc[ow, oc] add= src[ow, ic] * weights[ic, oc]
    ->  tensorize("conv", fma_f32x16, {"n": "oc"})
        unrolled for ic in 8:
          unrolled for ow in 4:
            unrolled for oc_o in 2:
              compute conv<fma_f32x16>(oc in 16):
                acc[ow, oc_o*16 + oc] add= src[ow, ic] * weights[ic, oc_o*16 + oc]

    The other dims become loops, unrolled where their extent is constant, nested as in ``order``
    (names of the compute's dims, outermost first); without it, reduced dims are outside, then the
    others, then those of the instruction. Along its dims that are in ``lengths``, it takes fewer
    elements at a time: of 28 rows and ``{"m": 14}``, two tiles that are alike.

    Tails: a dim that the output has may end in a shorter piece; the compute keeps its extent of
    ``min(...)``, and targets mask lanes or shorten tiles. The operands are put in the order of the
    instruction's. A reduced dim must be a multiple of the
    instruction's: `pad` it. Masks on operands may depend on the dims that the output has.

    An asynchronous instruction takes matrices where they lie in workgroup memory, and runs by
    itself: it is started, and awaited where the compute stands, if nothing awaits it yet. What
    work-items write there is fenced before each barrier of the subgroups, as it does not see that
    otherwise.

        subgroup for s in 2:
          for k in 8:
            lane for lane in 128: ... a_packed[...] = src[...]
            barrier()
            compute main(m in 64, n in 64, k in 16): acc[m, n] add= ... a_packed[...] ...
            barrier()
    ->  tensorize("main", wgmma_m64n64k16, {"m": "m", "n": "n", "k": "k"})
        subgroup for s in 2:
          for k in 8:
            lane for lane in 128: ... a_packed[...] = src[...]
            fence_async()
            barrier()
            compute main<wgmma_m64n64k16>(m in 64, n in 64, k in 16) joins products: ...
            commit_products()
            wait_products(0)
            fence_async()
            barrier()
    """
    computes = [stmt for stmt, _ in computes_named(kernel, compute)]
    for stmt in computes:
        _check_dims(stmt, instruction, dims)
    # A border of one element has lost its dim: it stays as it is, unless all pieces lack it.
    whole = [s for s in computes if set(dims.values()) <= {d.var.name for d in s.dims}] or computes
    started = [s for s in whole if instruction.asynchronous and s.completion is None]

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Compute) or stmt not in whole:
            return None
        if stmt not in started:
            return _tensorized(stmt, place, instruction, dims, order, lengths or {})
        return _awaited(_tensorized(_started(stmt, place), place, instruction, dims, order, {}))

    body = rewrite_placed(kernel.body, Place(), change)
    return replace(kernel, body=_fenced(body, compute) if started else body)


def _started(compute: Compute, place: Place) -> Compute:
    """``compute`` as an asynchronous op of the subgroup that runs it."""
    if all(loop.kind is not LoopKind.SUBGROUP for loop in place.loops):
        raise refusal(
            f"no subgroups run '{compute.name}'",
            compute,
            "run loops around it as SUBGROUP first",
            why="a subgroup starts an asynchronous instruction",
        )
    return replace(compute, completion=Queue.PRODUCTS)


def _awaited(products: Stmt) -> Stmt:
    return block(products, Call("commit_products", ()), Call("wait_products", (const(0),)))


def _fenced(body: Stmt, compute: str) -> Stmt:
    """``body`` with a fence before each barrier of the subgroups that run ``compute``."""

    def before_barrier(stmt: Stmt) -> Stmt:
        return block(Call("fence_async", ()), stmt) if is_barrier(stmt) else stmt

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if isinstance(stmt, For) and stmt.kind is LoopKind.SUBGROUP and holds(stmt, compute):
            return rewrite_stmts(stmt, before_barrier)
        return None

    return rewrite_placed(body, Place(), change)


def _check_dims(compute: Compute, instruction: Instruction, dims: Mapping[str, str]) -> None:
    if set(dims) != set(instruction.sizes) or len(set(dims.values())) != len(dims):
        raise refusal(
            f"'{instruction.name}' has the dims " + ", ".join(instruction.sizes),
            compute,
            "map all of them, each to another dim",
            why="each needs one dim of the compute",
        )
    if compute.combiner != instruction.combiner:
        raise refusal(
            f"'{instruction.name}' combines by {instruction.combiner}",
            compute,
            "choose a compute that accumulates",
            why=f"the compute combines by {compute.combiner or 'assignment'}",
        )


def _tensorized(
    compute: Compute,
    place: Place,
    instruction: Instruction,
    dims: Mapping[str, str],
    order: Sequence[str],
    lengths: Mapping[str, int],
) -> Stmt:
    bound = _match(compute, instruction)
    kept = index_variables(compute.out)
    for role_dim, name in dims.items():
        _check_reduction(compute, place, instruction, role_dim, name, kept)
    unit_sizes = {name: lengths.get(d, instruction.sizes[d]) for d, name in dims.items()}
    sizes = {d.var.name: unit_sizes.get(d.var.name, 1) for d in compute.dims}
    splits = split_dims(compute, place, sizes, order or _default_order(compute, unit_sizes, kept))
    small = replace(on_tile(compute, splits), instruction=instruction.name)
    if instruction.lanes > 1:
        small = _in_its_order(small, instruction, dims)
    loops = [s.loop for s in splits.values() if s.loop is not None]
    here = place
    for variable, extent in loops:
        here = here.inside(For(variable, extent, small))
    forms = _Forms(small, here.facts_with(small.dims), instruction, dims)
    small = replace(small, operands=forms.in_order(bound))
    body: Stmt = small
    for variable, extent in reversed(loops):
        kind = LoopKind.UNROLLED if isinstance(extent, Const) else LoopKind.SERIAL
        body = For(variable, extent, body, kind)
    return body


def _in_its_order(compute: Compute, instruction: Instruction, dims: Mapping[str, str]) -> Compute:
    """The dims in the order of the instruction's: lanes together carry out no less than all."""
    by_name = {d.var.name: d for d in compute.dims}
    ordered = tuple(by_name[dims[role_dim]] for role_dim in instruction.sizes)
    for dim, size in zip(ordered, instruction.sizes.values(), strict=True):
        if not (isinstance(dim.extent, Const) and dim.extent.value == size):
            raise refusal(
                f"'{instruction.name}' takes {size} of '{dim.var.name}', here it is "
                f"{to_text(dim.extent)}",
                compute,
                "`pad` the dim to whole tiles first",
                why="the lanes of a subgroup carry out all of it",
            )
    return replace(compute, dims=ordered)


def _default_order(
    compute: Compute, unit_sizes: Mapping[str, int], kept: frozenset[Var]
) -> list[str]:
    names = [d.var.name for d in compute.dims]
    reduced = [d.var.name for d in compute.dims if d.var not in kept]
    rows = [n for n in names if n not in reduced and n not in unit_sizes]
    inner = [n for n in names if n not in reduced and n in unit_sizes]
    return reduced + rows + inner


def _check_reduction(
    compute: Compute,
    place: Place,
    instruction: Instruction,
    role_dim: str,
    name: str,
    kept: frozenset[Var],
) -> None:
    dim = dim_of(compute, name)
    size = instruction.sizes[role_dim]
    reduced = role_dim in instruction.reduced
    if reduced == (dim.var in kept):
        raise refusal(
            f"'{role_dim}' of '{instruction.name}' does not fit '{name}'",
            compute,
            "map reduced dims to reduced dims",
            why=f"one is reduced and the other is not: the output is {to_text(compute.out)}",
        )
    if reduced and not place.facts.divisible(dim.extent, size):
        raise refusal(
            f"'{name}' is no multiple of {size}",
            compute,
            f"stage the operands in blocks of {size}, and `pad` the dim",
            why="the last piece would add up elements that are not there",
        )


def _match(compute: Compute, instruction: Instruction) -> list[Var]:
    """The operands that take the instruction's roles, in their order."""
    bound: dict[Var, Var] = {}
    fits = compute.body.type is instruction.out.dtype
    if not fits or not _same(compute.body, instruction.body, bound):
        raise refusal(
            f"'{instruction.name}' computes {to_text(instruction.body)}",
            compute,
            "choose an instruction of these types",
            why=f"the compute's term is {to_text(compute.body)}",
        )
    return [bound[role.var] for role in instruction.operands]


def _same(body: Expr, pattern: Expr, bound: dict[Var, Var]) -> bool:
    """Whether ``body`` is ``pattern`` with other variables; products commute."""
    if isinstance(pattern, Var):
        if not isinstance(body, Var) or body.type is not pattern.type:
            return False
        return bound.setdefault(pattern, body) is body
    if isinstance(pattern, Const):
        return body is pattern
    if isinstance(pattern, Cast):
        return (
            isinstance(body, Cast) and body.type is pattern.type and _same(body.a, pattern.a, bound)
        )
    if isinstance(pattern, Binary) and isinstance(body, Binary) and body.op == pattern.op:
        for a, b in ((body.a, body.b), (body.b, body.a)):
            trial = dict(bound)
            if _same(a, pattern.a, trial) and _same(b, pattern.b, trial):
                bound.update(trial)
                return True
    return False


@dataclass(frozen=True)
class _Forms:
    """Checks that the views of a tensorized compute lie in memory as the instruction wants them."""

    compute: Compute
    facts: Facts
    instruction: Instruction
    dims: Mapping[str, str]

    def in_order(self, bound: Sequence[Var]) -> tuple[Operand, ...]:
        """The operands in the order of the instruction's; refuses where none fits.

        Operands of one type may take each other's roles.
        """
        self._refuse_if(self.wrong(self.instruction.out, self.compute.out), self.compute.out)
        operands = {o.var: o for o in self.compute.operands}
        bound_operands = tuple(operands[v] for v in bound)
        for order in permutations(bound_operands):
            pairs = list(zip(self.instruction.operands, order, strict=True))
            if any(role.dtype is not o.var.type for role, o in pairs):
                continue
            if all(self.wrong(role, o.view) is None for role, o in pairs):
                return order
        for role, operand in zip(self.instruction.operands, bound_operands, strict=True):
            self._refuse_if(self.wrong(role, operand.view), operand.view)
        return bound_operands

    def _refuse_if(self, wrong: str | None, view: View) -> None:
        if wrong is not None:
            raise refusal(
                f"'{view.buffer.name}' does not lie as '{self.instruction.name}' takes it",
                self.compute,
                "stage it with a fitting layout, or map other dims",
                why=wrong,
            )

    def wrong(self, role: OperandForm, view: View) -> str | None:
        """What is wrong with ``view`` in that role; None if nothing is."""
        held = 0
        if role.fragment is not None:
            if view.buffer.space is not Space.PRIVATE:
                return f"it is in {view.buffer.space.value} memory, not in registers"
            held = registers(view.buffer.layout, role.fragment.lanes)
        if role.rows:
            return self._wrong_rows(role, view)
        offset = simplify(view.buffer.layout.offset_of(view.index), self.facts)
        for name, name_here in self.dims.items():
            dim = next((d for d in self.compute.dims if d.var.name == name_here), None)
            if dim is None:
                continue
            if role.aligned and not self._aligned(role, name, offset, dim.var):
                return f"rows of {role.aligned} elements begin anywhere: at {to_text(offset)}"
            expected = _expected(role.steps_of(name, held), self.instruction.sizes[name])
            # Rows that each are named by where they begin may begin wherever they like.
            free = role.aligned > 0
            reason = self._wrong_along(expected, offset, dim.var, free=free)
            if reason is not None:
                return reason
            # What lanes add up has no masks, nor has a product of tiles.
            reduced = self.instruction.reduced
            whole = name in reduced or (bool(reduced) and "m" in self.instruction.sizes)
            if whole and view.mask is not None and dim.var in variables(view.mask):
                return f"its mask {to_text(view.mask)} depends on '{name_here}'"
        return None

    def _wrong_rows(self, role: OperandForm, view: View) -> str | None:
        """What is wrong with ``view`` as a matrix of rows: with the form that comes nearest."""
        if view.mask is not None:
            return f"it is masked by {to_text(view.mask)}"
        by_name = {d.var.name: d.var for d in self.compute.dims}
        dims = {
            name: (by_name[dim], self.instruction.sizes[name])
            for name, dim in self.dims.items()
            if dim in by_name
        }
        across = {rows.along for rows in role.rows} | {rows.across for rows in role.rows}
        used = index_variables(view)
        for name, (variable, _) in dims.items():
            if name not in across and variable in used:
                return f"it depends on '{variable.name}', which is '{name}'"
        same = [r for r in role.rows if r.swizzle == view.buffer.layout.swizzle]
        reasons: list[str] = []
        for rows in same or role.rows:
            placement = place_rows(rows, view, dims, self.facts)
            if not isinstance(placement, str):
                return None
            reasons.append(placement)
        return "; or ".join(dict.fromkeys(reasons))

    def _aligned(self, role: OperandForm, name: str, offset: Expr, dim: Var) -> bool:
        """Whether the rows along ``dim``, if it is theirs, begin at multiples of their length."""
        if role.steps[-1].dim != name:
            return True
        starts = range(0, self.instruction.sizes[name], role.aligned)
        generator = (simplify(substitute(offset, {dim: const(i)}), self.facts) for i in starts)
        return all(self.facts.divisible(start, role.aligned) for start in generator)

    def _wrong_along(
        self, expected: Sequence[int | None], offset: Expr, dim: Var, *, free: bool
    ) -> str | None:
        for value in range(1, len(expected)):
            if free and expected[value] is None:
                continue
            moved = growth(offset, dim, value, self.facts)
            if moved is None:
                return f"the offset {to_text(offset)} is not regular in '{dim.name}'"
            if expected[value] is not None and moved != expected[value]:
                if not any(expected):
                    return f"the offset {to_text(offset)} has to be the same for all '{dim.name}'"
                return (
                    f"the offset {to_text(offset)} has to grow by {expected[value]} from "
                    f"{dim.name} = 0 to {dim.name} = {value}"
                )
        return None


def _expected(steps: tuple[AddressStep, ...], size: int) -> list[int | None]:
    """The offset of each element along a dim from the first; None where any will do."""
    result: list[int | None] = []
    for value in range(size):
        offset: int | None = 0
        inner = 1
        for i, step in enumerate(reversed(steps)):
            digit = value // inner
            if i < len(steps) - 1 and step.size is not None:
                digit %= step.size
            inner *= step.size or 1
            if digit == 0:
                continue
            offset = None if step.stride is None or offset is None else offset + digit * step.stride
        result.append(offset)
    return result

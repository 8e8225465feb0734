"""Factors of sums of products go into constant weights: batch norm, mostly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tilewright.dtypes import DType
from tilewright.graph.passes.loaded import loaded, with_results
from tilewright.graph.passes.values import Values
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Binary, Const, Expr, Unary, Var, const
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Operand, Result, Stmt, View
from tilewright.ir.visit import loads_in, substitute, variables
from tilewright.schedule.queries.flow import whole
from tilewright.schedule.queries.place import fresh
from tilewright.simplify import simplify


def fold_scales(kernel: Kernel, fixed: Collection[Buffer] = ()) -> Kernel:
    """Where sums of products with constants are multiplied by constants, the weights are.

        compute clear(m, n): y[m, n] = 0.0
        compute y(m, n, k): y[m, n] add= x[m, k] * w[k, n]
        compute z(m, n): z[m, n] = (y[m, n] - mean[n]) * scale[n] + shift[n]
    ->  alloc w_scaled
        compute w_scaled(k, n): w_scaled[k, n] = w[k, n] * scale[n]
        alloc z_shift
        compute z_shift(n): z_shift[n] = (0.0 - mean[n]) * scale[n] + shift[n]
        compute clear(m, n): y[m, n] = 0.0
        compute y(m, n, k): y[m, n] add= x[m, k] * w_scaled[k, n]
        compute z(m, n): z[m, n] = y[m, n] + z_shift[n]

    `fold_constants` computes the new ones. Weights are rounded after they were scaled: results
    differ in their last bits. Only weights of f32 and f64 are. ``fixed`` are buffers that count as
    constants, too.
    """
    return kernel if kernel.scalars else _Folding(kernel, fixed).folded()


@dataclass(frozen=True, slots=True)
class _Step:
    """A compute after the sums: ``factor * element + shift``, in its own dims."""

    position: int
    compute: Compute
    element: Load
    factor: Expr
    shift: Expr

    @property
    def stored(self) -> tuple[Expr, ...]:
        """The index of its result."""
        return self.compute.out.index

    def moved(self, expr: Expr, index: Sequence[Expr]) -> Expr:
        """``expr`` of its dims in the dims of who stores to ``index`` what it reads."""
        places = {
            place: other
            for place, other in zip(self.element.index, index, strict=True)
            if isinstance(place, Var)
        }
        return substitute(expr, places)


class _Folding:
    def __init__(self, kernel: Kernel, fixed: Collection[Buffer]) -> None:
        self.kernel, self.values = kernel, Values.of(kernel)
        self.stmts: list[Stmt] = list(self.values.stmts)
        self.constants = {array.buffer for array in kernel.arrays if array.digest is not None}
        self.constants |= {*fixed}
        self.names = {param.name for param in kernel.params}
        self.names |= {memory.name for memory in self.values.allocated}
        self.before: dict[int, list[Stmt]] = {}

    def folded(self) -> Kernel:
        """The kernel with all that can be folded."""
        for n, stmt in enumerate(self.values.stmts):
            if isinstance(stmt, Compute):
                self._fold(n, stmt)
        if not self.before:
            return self.kernel
        stmts: list[Stmt] = []
        for n, stmt in enumerate(self.stmts):
            stmts += [*self.before.get(n, ()), stmt]
        return replace(self.kernel, body=Block(tuple(stmts)))

    def _fold(self, position: int, main: Compute) -> None:
        weight = self._weight(main)
        if weight is None:
            return
        steps = self._steps(main)
        while steps and _is_number(steps[-1].factor, 1):
            steps.pop()
        if not steps:
            return
        scale = simplify(_behind(main.out.index, steps, main.out.buffer.dtype))
        if not variables(scale) <= index_variables(weight):
            return
        self._scale(position, main, weight, scale)
        for n, step in enumerate(steps):
            factor = _behind(step.stored, steps[n + 1 :], step.element.type)
            shift = simplify(_times(step.shift, factor))
            if self._is_constant(shift) and not isinstance(shift, Const):
                shift = self._kept(step, shift)
            value = simplify(_plus(step.element, shift))
            (result,) = step.compute.results
            self.stmts[step.position] = with_results(
                step.compute, (replace(result, values=(value,)),)
            )

    def _weight(self, main: Compute) -> Load | None:
        """The constant factor of a sum of products that begins with 0, read as it lies."""
        if len(main.results) != 1 or main.results[0].combiner != "add" or main.is_ordered:
            return None
        out = main.out
        makers = self.values.makers(out.buffer)
        if len(makers) != 2 or makers[1] is not main or not _is_zero(makers[0]):
            return None
        if whole(main, out) is None:
            return None
        (result,) = loaded(main)
        body = result.values[0]
        if not isinstance(body, Binary) or body.op != "mul":
            return None
        for expr in (body.b, body.a):
            if (
                isinstance(expr, Load)
                and expr.buffer in self.constants
                # Others would keep the weights as they are, too.
                and len(self.values.readers[expr.buffer]) == 1
                and expr.type.is_float
                and expr.type.bits >= 32
                and whole(main, View(expr.buffer, expr.index, expr.mask)) is not None
            ):
                return expr
        return None

    def _steps(self, main: Compute) -> list[_Step]:
        """The computes that, one after the other, alone read what came before, and multiply it by
        constants."""
        steps: list[_Step] = []
        held = main.out.buffer
        while True:
            readers = self.values.readers.get(held, [])
            if len(readers) != 1 or held not in self.values.allocated:
                return steps
            stmt = self.stmts[readers[0]]
            step = self._step(readers[0], stmt, held) if isinstance(stmt, Compute) else None
            if step is None:
                return steps
            steps.append(step)
            held = step.compute.out.buffer
            if not self._is_constant(step.shift) or self.values.made.get(held) != (readers[0],):
                return steps

    def _step(self, position: int, compute: Compute, held: Buffer) -> _Step | None:
        if len(compute.outputs) != 1 or compute.results[0].combiner is not None:
            return None
        if compute.is_ordered or compute.out.mask is not None:
            return None
        (result,) = loaded(compute)
        (value,) = result.values
        reads = [read for read in loads_in(value) if read.buffer is held]
        if len(reads) != 1 or value.type is not held.dtype:
            return None
        element = reads[0]
        # Each element of what came before is read at one point only, so that no other has it.
        order = whole(compute, View(held, element.index, element.mask))
        if order is None or len(order) != len(compute.dims):
            return None
        line = _line(value, element)
        if line is None or not self._is_constant(line[0]):
            return None
        return _Step(position, compute, element, *line)

    def _is_constant(self, value: Expr) -> bool:
        return all(read.buffer in self.constants for read in loads_in(value))

    def _scale(self, position: int, main: Compute, weight: Load, scale: Expr) -> None:
        """Makes the weights times ``scale``, and ``main`` read them."""
        old = weight.buffer
        new = self._new(f"{old.name}_scaled", old, old.shape)
        used = index_variables(weight)
        dims = tuple(dim for dim in main.dims if dim.var in used)
        self._make(position, new, dims, weight.index, weight * scale)
        operands = tuple(
            Operand(operand.var, View(new, operand.view.index))
            if operand.view.buffer is old
            else operand
            for operand in main.operands
        )
        self.stmts[position] = replace(main, operands=operands)

    def _kept(self, step: _Step, shift: Expr) -> Expr:
        """``shift`` in a buffer of its own, over the dims on which it depends."""
        used = variables(shift)
        dims = tuple(dim for dim in step.compute.dims if dim.var in used)
        shape = [int(dim.extent.value) for dim in dims if isinstance(dim.extent, Const)]
        held = step.compute.out.buffer
        new = self._new(f"{held.name}_shift", held, shape)
        index = tuple(dim.var for dim in dims)
        self._make(step.position, new, dims, index, shift)
        return load(new, index)

    def _new(self, name: str, like: Buffer, shape: Sequence[int]) -> Buffer:
        unique = fresh(name, self.names)
        self.names.add(unique)
        return buffer(unique, like.dtype, shape)

    def _make(
        self, position: int, new: Buffer, dims: tuple[Dim, ...], index: Sequence[Expr], value: Expr
    ) -> None:
        """Puts the compute of ``new`` in front of ``position``."""
        result = Result((View(new, tuple(index)),), (value,))
        compute = with_results(Compute(new.name, dims, (), (result,)), (result,))
        self.before.setdefault(position, []).extend((Allocate(new), compute))


def _behind(index: Sequence[Expr], steps: Sequence[_Step], like: DType) -> Expr:
    """The product of the factors of ``steps``, in the dims of who stores to ``index`` what the
    first of them reads."""
    total: Expr = const(1, like)
    for step in steps:
        total = _times(total, step.moved(step.factor, index))
        index = [step.moved(expr, index) for expr in step.stored]
    return total


def _line(value: Expr, element: Load) -> tuple[Expr, Expr] | None:
    """``value`` as a factor of ``element`` and what is added to it; None where it is no such."""
    zero, one = const(0, element.type), const(1, element.type)
    if value is element:
        return one, zero
    if all(read is not element for read in loads_in(value)):
        return zero, value
    match value:
        case Unary(op="neg"):
            line = _line(value.a, element)
            return None if line is None else (-line[0], -line[1])
        case Binary(op="add" | "sub" | "mul" | "div"):
            a, b = _line(value.a, element), _line(value.b, element)
            return None if a is None or b is None else _combined(value.op, a, b)
        case _:
            return None


def _combined(op: str, a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Expr, Expr] | None:
    match op:
        case "add":
            return _plus(a[0], b[0]), _plus(a[1], b[1])
        case "sub":
            return _plus(a[0], -b[0]), _plus(a[1], -b[1])
        case "mul" if _is_number(b[0], 0):
            return _times(a[0], b[1]), _times(a[1], b[1])
        case "mul" if _is_number(a[0], 0):
            return _times(b[0], a[1]), _times(b[1], a[1])
        case "div" if _is_number(b[0], 0):
            return a[0] / b[1], a[1] if _is_number(a[1], 0) else a[1] / b[1]
        case _:
            return None


def _plus(a: Expr, b: Expr) -> Expr:
    return b if _is_number(a, 0) else a if _is_number(b, 0) else a + b


def _times(a: Expr, b: Expr) -> Expr:
    if _is_number(a, 0) or _is_number(b, 0):
        return const(0, a.type)
    return b if _is_number(a, 1) else a if _is_number(b, 1) else a * b


def _is_number(value: Expr, number: int) -> bool:
    return isinstance(value, Const) and bool(value.value == number)


def _is_zero(compute: Compute) -> bool:
    """Whether it sets all of its results to 0."""
    return all(
        result.combiner is None and _is_number(value, 0)
        for result in compute.results
        for value in result.values
    )

"""The width of vectors of work-items, by predicted time.

Times are in operations of one register. Accesses of single lanes, and lanes that wait for each
other in loops, may take longer than the same work-items one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.dtypes import s64, u64
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Binary, Cast, Const, Expr, Fma, Select, Unary, Var
from tilewright.ir.functions import FUNCTIONS, Update
from tilewright.ir.load import Load
from tilewright.ir.stmt import Call, For, If, Kernel, Let, Stmt, Store, While
from tilewright.ir.visit import children, direct_exprs, nested
from tilewright.machines.machine import Machine
from tilewright.passes.spmd.names import name_values
from tilewright.passes.spmd.nests import ItemNest, map_nests
from tilewright.passes.spmd.runs import run_lanes
from tilewright.passes.spmd.shuffles import exchanges
from tilewright.passes.spmd.strides import Strides, depends_on_data
from tilewright.passes.spmd.trips import least_trips
from tilewright.passes.spmd.varying import Varying

# Access of a lane's element: its address, and an extraction or an insertion; less where elements
# lie at a constant distance, and more under a mask.
_APART, _SPACED, _ASKED = 3.0, 1.5, 1.5
# An atomic update, and the additional time of one for a single lane of a vector.
_ATOMIC, _ALONE = 6.0, 4.0
# Iterations of a loop of unknown length; the factor for the slowest lane of a vector; the check
# whether some lane goes on; a branch that depends on data.
_ITERATIONS, _WAITING, _ENDING, _GUESSED = 16, 1.5, 4.0, 1.5
_FUNCTION, _DIVISION, _INTEGER_DIVISION = 20.0, 4.0, 20.0
# Processors have more units for single integers than for vectors; single floats wait for others.
_INTEGER, _FLOAT = 0.6, 1.5
# Of integers of 64 bits, vectors of up to so many bytes need several steps for some operations.
_LONG, _SHORT_VECTOR, _INDEX = 3.0, 32, 4
_LONG_STEPS = ("mul", "shr", "floordiv", "mod", "min", "max")
DIVISIONS = ("floordiv", "mod", "div", "rem")
SIMPLE = ("neg", "not", "abs", "floor", "ceil", "round")


def predicted_width(kernel: Kernel, machine: Machine, widest: int) -> int:
    """1 or ``widest``, whichever takes less for the work-items of ``kernel``; ``widest`` where
    lanes exchange values."""
    if exchanges(kernel.body):
        return widest
    # Names for values only make lanes faster, as more strides are constant; mostly none are needed.
    if _is_faster_wide(kernel.body, machine, widest):
        return widest
    return widest if _is_faster_wide(name_values(kernel).body, machine, widest) else 1


def _is_faster_wide(body: Stmt, machine: Machine, widest: int) -> bool:
    single = together = 0.0

    def look(nest: ItemNest) -> Stmt:
        nonlocal single, together
        times = _Times(nest, machine.vector_bytes)
        times.stmt(nest.body, 1.0, 1.0, False)
        lanes = min(widest, nest.extents[-1])
        single += times.single * lanes
        together += times.vector(lanes)
        return nest.around(nest.body)

    map_nests(body, look)
    return together <= single


@dataclass
class _Times:
    """``single`` is the time of a work-item by itself; that of a vector is the sum of ``once``, for
    uniform operations, ``wide``, for operations of registers, by the bytes of an element, and
    ``apart``, per lane, for operations of single lanes."""

    nest: ItemNest
    register: int
    single: float = 0.0
    once: float = 0.0
    wide: dict[int, float] = field(default_factory=dict)
    apart: float = 0.0

    def __post_init__(self) -> None:
        lane = self.nest.vars[-1]
        self.varying = Varying([lane], self.nest.body)
        self.strides = Strides(lane, self.varying)

    def vector(self, lanes: int) -> float:
        """The time of a vector of so many lanes."""
        wide = sum(n * -(-lanes * size // self.register) for size, n in self.wide.items())
        return self.once + wide + self.apart * lanes

    def _wide(self, size: int, times: float) -> None:
        self.wide[size] = self.wide.get(size, 0.0) + times

    def stmt(self, stmt: Stmt, single: float, vector: float, masked: bool) -> None:
        """Adds ``stmt``, which a work-item runs ``single`` times, and a vector ``vector`` times,
        ``masked`` or not."""
        times = (single, vector, masked)
        if isinstance(stmt, Let):
            self.strides.name(stmt)
        for expr in direct_exprs(stmt):
            self._expr(expr, *times)
        match stmt:
            case Store() if stmt.buffer.space is not Space.PRIVATE:
                self._access(stmt.index, stmt.buffer.dtype.bytes, *times)
            case Store() if masked and self.varying.of(stmt.value):
                self._wide(stmt.buffer.dtype.bytes, vector)
            case Call():
                if any(isinstance(e, Update) for e in FUNCTIONS[stmt.function].effects):
                    self.single += _ATOMIC * single
                    self.apart += (_ATOMIC + _ALONE) * vector
            case If() if depends_on_data(stmt.condition, self.strides):
                self.single += _GUESSED * single
                single, masked = single / 2, True
                self._wide(4, vector)
            case For() | While():
                count = self._count(stmt)
                lanes = run_lanes(stmt, self.register) if isinstance(stmt, For) else 1
                single, vector = single * count / lanes, vector * count
                if self._diverges(stmt):
                    vector, masked = vector * _WAITING, True
                    self.once += _ENDING * vector
                self.single += single
                self.once += vector
            case _:
                pass
        for part in nested(stmt):
            self.stmt(part, single, vector, masked)

    def _diverges(self, loop: For | While) -> bool:
        """Whether lanes leave ``loop`` at different times."""
        if not self.varying.any_of(direct_exprs(loop)):
            return False
        return isinstance(loop, While) or least_trips(loop.extent, self.strides, 1) is None

    def _count(self, loop: For | While) -> int:
        if isinstance(loop, For) and isinstance(loop.extent, Const):
            return min(int(loop.extent.value), _ITERATIONS)
        return _ITERATIONS

    def _expr(self, expr: Expr, single: float, vector: float, masked: bool) -> None:
        """Adds ``expr``, each sub-expression once. An integer with a constant step from lane to
        lane is mostly part of an address, which is kept in a register."""
        seen: set[int] = set()
        pending = [(expr, False)]
        while pending:
            node, index = pending.pop()
            if id(node) in seen or isinstance(node, Const | Var):
                continue
            seen.add(id(node))
            if node.type.is_integer and self.strides.of(node) is not None:
                continue
            index = index or isinstance(node, Load)
            pending += ((part, index) for part in children(node))
            if isinstance(node, Load):
                if node.buffer.space is not Space.PRIVATE:
                    self._access(node.index, node.type.bytes, single, vector, masked)
                continue
            one, many = self._operation(node, index)
            self.single += one * single
            if not self.varying.of(node):
                self.once += one * vector
            elif _divides(node):
                # No processor divides vectors of integers.
                self.apart += (one + _ALONE) * vector
            else:
                size = node.type.bytes
                self._wide(min(size, _INDEX) if index else size, many * vector)

    def _operation(self, node: Expr, index: bool) -> tuple[float, float]:
        """The time of an operation by itself, and on each register of a vector; indices mostly fit
        in less than their type."""
        long = node.type in (s64, u64) and self.register <= _SHORT_VECTOR and not index
        one = _FLOAT if node.type.is_float else _INTEGER
        match node:
            case Binary():
                if _divides(node):
                    return _INTEGER_DIVISION, _INTEGER_DIVISION
                if node.op in DIVISIONS and node.type.is_float:
                    return _DIVISION, _DIVISION
                if node.op in ("pow", "fmod"):
                    return _FUNCTION, _FUNCTION
                return one, _LONG if long and node.op in _LONG_STEPS else 1.0
            case Unary() if node.op not in SIMPLE and node.type.is_float:
                return _FUNCTION, _FUNCTION
            case Cast():
                return 1.0, _LONG if long and node.a.type.is_float else 1.0
            case Unary() | Select() | Fma():
                return one, 1.0
            case _:
                return 0.0, 0.0

    def _access(
        self, index: Sequence[Expr], size: int, single: float, vector: float, masked: bool
    ) -> None:
        self.single += single
        if not self.varying.any_of(index):
            self.once += vector
            return
        steps = [self.strides.of(part) for part in index]
        if None not in steps and all(step[1] == 0 for step in steps[:-1] if step is not None):
            last = steps[-1]
            assert last is not None
            if last[1] == 1:
                self._wide(size, vector * (2 if masked else 1))
                return
        lane = _APART if None in steps else _SPACED
        self.apart += vector * (lane + _ASKED if masked else lane)


def _divides(node: Expr) -> bool:
    """Whether ``node`` divides integers by a variable: division by a constant is multiplication."""
    if not isinstance(node, Binary) or node.op not in DIVISIONS or node.type.is_float:
        return False
    return not isinstance(node.b, Const)

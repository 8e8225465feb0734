"""Statements and kernels. Immutable, not interned; each may carry its source location.

``Let`` and ``Allocate`` scope over the rest of their block, so that a long run of them stays flat.
Loops run from 0 with step 1. A `Compute` is a structured op on views: the leaf that schedules tile,
stage and match with instructions, until it is lowered to loops or emitted as an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from numpy.typing import NDArray

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError, Span
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Printed, Var
from tilewright.ir.functions import Queue
from tilewright.notebook import text_html


class LoopKind(Enum):
    """How a loop's iterations run."""

    SERIAL = "serial"
    UNROLLED = "unrolled"
    VECTOR = "vector"
    PARALLEL = "parallel"  # over the threads of a CPU
    GRID = "grid"
    CLUSTER = "cluster"
    WORKGROUP = "workgroup"
    SUBGROUP = "subgroup"
    LANE = "lane"


class Stmt(Printed):
    """Base of all statements. ``span`` is the source location, if any: of a loop or a structured op
    its first line."""

    __slots__ = ()
    span: Span | None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Block(Stmt):
    """Statements in order."""

    body: tuple[Stmt, ...]
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class For(Stmt):
    """``var`` from 0 to ``extent`` (exclusive)."""

    var: Var
    extent: Expr
    body: Stmt
    kind: LoopKind = LoopKind.SERIAL
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class While(Stmt):
    """Repeats ``body`` while ``condition`` holds before it: the condition may load what the body
    stores. Values that the loop carries from one iteration to the next are in buffers."""

    condition: Expr
    body: Stmt
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Opaque(Stmt):
    """A nest with a name (a sort, a factorization, a user's kernel). Of the buffers allocated
    around it, ``body`` reads those of the names ``reads``, writes (and may read) those of
    ``writes``, and accesses no others. Passes that move nests rely on that; schedules open the nest
    first (`ir.opaque`)."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    body: Stmt
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class If(Stmt):
    """``then`` where ``condition`` holds, otherwise ``orelse``. Branches give results by writing to
    buffers around them."""

    condition: Expr
    then: Stmt
    orelse: Stmt | None = None
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Let(Stmt):
    """Names a value for the rest of the block."""

    var: Var
    value: Expr
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Allocate(Stmt):
    """Memory (uninitialized) for the rest of the block."""

    buffer: Buffer
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Store(Stmt):
    """``buffer[index] = value``; the types agree. ``stream`` marks a non-temporal store, of an
    element that is not read soon: a target may store past its caches."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    span: Span | None = None
    stream: bool = False


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class View(Printed):
    """A virtual tensor over the dims of an op: maps points of its domain to elements of ``buffer``.

    ``index`` has one expression per dim of the buffer, in the op's dims and the enclosing loops'
    variables. Where ``mask`` is given and false, loads give 0 and stores are dropped.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    mask: Expr | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Call(Stmt):
    """A function with effects, described in `ir.functions`, on views and expressions."""

    function: str
    args: tuple[View | Expr, ...]
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Dim:
    """One dim of an iteration domain: ``var`` from 0 to ``extent``.

    The order of points is free; but those of ``ordered`` dims run in sequence.
    """

    var: Var
    extent: Expr
    ordered: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """An input: ``var`` stands for the element that ``view`` gives, in the values of the results
    and in the views after it."""

    var: Var
    view: View


@dataclass(frozen=True, eq=False, slots=True)
class Combiner:
    """A user's reduction of tuples of values: the tuples ``old`` and ``new`` give ``values``.

    The expressions use the variables of ``old`` and ``new`` only, in a scope of their own.
    ``identity`` leaves the other tuple as it is. Values are combined in any order and grouping, so
    the combiner must be associative and commutative; where it is not quite (ties, rounding), each
    result that some order gives is right.
    """

    name: str
    old: tuple[Var, ...]
    new: tuple[Var, ...]
    identity: tuple[Const, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Result:
    """What a compute does with memory: ``views = combine(views, values)``, element by element.

    ``combiner`` is None for plain assignment, or names a binary operator (``add``, ``max``, ...);
    these have one view and one value. A `Combiner` has as many as its tuples are long: it reads all
    old values before it stores. ``unique`` promises that no two points of the compute write one
    element, where that cannot be seen (at loaded places).
    """

    views: tuple[View, ...]
    values: tuple[Expr, ...]
    combiner: str | Combiner | None = None
    unique: bool = False


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Compute(Stmt):
    """A structured op: for every point of ``dims``, its ``results`` are updated.

    At each point, the operands are loaded, the values evaluated (scalar expressions over the
    operands' variables, the dims and the enclosing loops' variables, of their views' types), and
    then all results stored. Dims that an output's index does not depend on are reduced by its
    combiner; their order is free. Where dims are ordered, that is done point by point in the
    sequence of these, for all points of the others: an operand may read what a result wrote at an
    earlier point (a scan). An index may use operands before it (a gather, a scatter).

    ``instruction`` names the machine instruction that carries the op out, once one was matched; it
    does not change what is computed. Where it names a function that updates memory atomically
    (`functions.atomic_operator`), each point is one such update: several work-items may accumulate
    in one element.

    ``completion`` makes the op asynchronous: a subgroup starts it here, as one. Until it is
    complete, its operands may not be written, nor its output accessed. It either signals an
    mbarrier, which is told the bytes of all points (of the output, masked operands included), or
    joins the newest group of a queue. Ops of one queue may accumulate in one output.
    """

    name: str
    dims: tuple[Dim, ...]
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    instruction: str | None = None
    completion: View | Queue | None = None
    span: Span | None = None

    @classmethod
    def single(
        cls,
        name: str,
        dims: tuple[Dim, ...],
        out: View,
        operands: tuple[Operand, ...],
        body: Expr,
        combiner: str | None = None,
        instruction: str | None = None,
        completion: View | Queue | None = None,
        span: Span | None = None,
    ) -> Compute:
        """The op of one result: ``out = combine(out, body)``."""
        result = Result((out,), (body,), combiner)
        return cls(name, dims, operands, (result,), instruction, completion, span)

    @property
    def out(self) -> View:
        """The view of the one result; `ScheduleError` where there are several."""
        return self._only().views[0]

    @property
    def body(self) -> Expr:
        """The value of the one result; `ScheduleError` where there are several."""
        return self._only().values[0]

    @property
    def combiner(self) -> str | None:
        """How the one result is combined; `ScheduleError` where there are several, or it is a
        user's `Combiner`."""
        combiner = self._only().combiner
        if isinstance(combiner, Combiner):
            raise ScheduleError(
                f"the compute '{self.name}' combines by '{combiner.name}', which is defined there",
                why="what asks for its combiner knows named operators only",
                cure="lower it to loops first, or combine by one of the named operators",
            )
        return combiner

    @property
    def outputs(self) -> tuple[View, ...]:
        """The views of all results."""
        if len(self.results) == 1:
            return self.results[0].views
        return tuple(view for result in self.results for view in result.views)

    @property
    def is_ordered(self) -> bool:
        """Whether some dim is ordered."""
        return any(dim.ordered for dim in self.dims)

    def _only(self) -> Result:
        results = self.results
        if len(results) != 1 or len(results[0].views) != 1:
            raise ScheduleError(
                f"the compute '{self.name}' has several results",
                why="what asks for its output takes computes of one result only",
                cure="lower it to loops first, or write a compute for each result",
            )
        return results[0]

    def with_result(
        self, out: View | None = None, body: Expr | None = None, combiner: str | None = None
    ) -> Compute:
        """The compute of one result with another output, value, or (named) combiner."""
        old = self._only()
        new = Result(
            old.views if out is None else (out,),
            old.values if body is None else (body,),
            old.combiner if combiner is None else combiner,
            old.unique,
        )
        return replace(self, results=(new,))


@dataclass(frozen=True, eq=False, slots=True)
class Param:
    """A kernel argument. ``access`` is ``"in"``, ``"out"`` or ``"inout"``. With a ``digest``, it is
    a constant: calls do not pass it, its contents lie beside the kernel (`ir.constants`)."""

    buffer: Buffer
    access: str
    digest: str | None = None

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True, eq=False, slots=True)
class ScalarParam:
    """A number that a call passes: a size, or a value. ``var`` is defined in the whole kernel.

    The bounds (inclusive, of integers) and the divisor (of s64) are promises that each call keeps:
    `ir.arguments` checks them, and proofs about the kernel start from them.
    """

    var: Var
    low: int | None = None
    high: int | None = None
    divisor: int = 1

    @property
    def name(self) -> str:
        return self.var.name

    @property
    def dtype(self) -> DType:
        return self.var.type

    @property
    def range(self) -> tuple[int | None, int | None]:
        """The least and the greatest multiple of the divisor within the bounds; None: any."""
        low = None if self.low is None else -(-self.low // self.divisor) * self.divisor
        return low, None if self.high is None else self.high // self.divisor * self.divisor


@dataclass(frozen=True, eq=False, repr=False)
class Kernel(Printed):
    """An ABI (ordered arguments) and a body. ``constants`` has contents by their digest: flat,
    read-only."""

    name: str
    params: tuple[Param | ScalarParam, ...]
    body: Stmt
    notes: dict[str, str] = field(default_factory=dict)
    span: Span | None = None
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """A line; ``str`` is the text that parses back."""
        names = ", ".join(param.name for param in self.params)
        return f"<kernel {self.name}({names}): {len(str(self).splitlines())} lines of IR>"

    __str__ = Printed.__repr__

    def _repr_html_(self) -> str:
        return text_html(str(self))

    @property
    def arrays(self) -> tuple[Param, ...]:
        """The parameters that are memory."""
        return tuple([p for p in self.params if isinstance(p, Param)])

    @property
    def scalars(self) -> tuple[ScalarParam, ...]:
        """The parameters that are numbers."""
        return tuple([p for p in self.params if isinstance(p, ScalarParam)])

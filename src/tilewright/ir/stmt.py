"""Statements and kernels. Immutable, not interned; each may carry the place it came from.

``Let`` and ``Allocate`` scope over the rest of their block, so that a long run of them stays flat.
Loops run from 0 with step 1. A `Compute` is a structured op on views: the leaf that schedules tile,
promote and match with instructions, until it is lowered to loops or emitted as an instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tilewright.dtypes import DType
from tilewright.errors import Span
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Printed, Var
from tilewright.ir.functions import Queue


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
    """Base of all statements. ``span`` is the place in a text that one came from, if any: of a loop
    or a structured op its first line."""

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
class If(Stmt):
    """``then`` where ``condition`` holds, otherwise ``orelse``."""

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
    """``buffer[index] = value``; the types agree."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class View(Printed):
    """A virtual tensor over the dims of an op: where in ``buffer`` a point of the op's domain lies.

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
    """One dim of an iteration domain: ``var`` from 0 to ``extent``."""

    var: Var
    extent: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """An input: ``var`` stands in the body for the element that ``view`` gives."""

    var: Var
    view: View


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Compute(Stmt):
    """A structured op: for every point of ``dims``, ``out = combine(out, body)``.

    ``body`` is a scalar expression over the operands' variables, the dims and the enclosing loops'
    variables; its type is the output's. ``combiner`` names a binary operator (``add``, ``max``,
    ...), or is None for plain assignment. Dims that the output's index does not mention are
    reduced; their order is free. ``instruction`` names the machine instruction that carries the op
    out, once one was matched; it does not change what is computed. Where it names a function that
    updates memory atomically (`functions.atomic_operator`), each point is one such update: several
    work-items may accumulate in one element.

    ``completion`` makes the op asynchronous: it is started here, a subgroup does it as one, and its
    operands may not be written, nor its output be accessed, until it is complete. Either it signals
    an mbarrier, which is told the bytes of all points (of the output, masked operands included); or
    it joins the newest group of a queue. Ops of one queue may accumulate in one output.
    """

    name: str
    dims: tuple[Dim, ...]
    out: View
    operands: tuple[Operand, ...]
    body: Expr
    combiner: str | None = None
    instruction: str | None = None
    completion: View | Queue | None = None
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Param:
    """A kernel argument. ``access`` is ``"in"``, ``"out"`` or ``"inout"``."""

    buffer: Buffer
    access: str

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True, eq=False, repr=False)
class Kernel(Printed):
    """An ABI (ordered arguments) and a body."""

    name: str
    params: tuple[Param, ...]
    body: Stmt
    notes: dict[str, str] = field(default_factory=dict)
    span: Span | None = None

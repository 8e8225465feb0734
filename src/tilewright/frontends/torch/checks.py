"""What PyTorch refuses because of data: places outside of a tensor, integer division by 0.

A program looks at the data that ops are given, and says in a result of its own, `NAME`, which is
the first op that eager PyTorch would refuse. What calls the program raises the error then.
"""

from __future__ import annotations

from torch.fx import Node

from tilewright.dtypes import boolean, s32, s64
from tilewright.errors import ArgumentError
from tilewright.frontends.torch.spans import span_of
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, binary, cast, const, select
from tilewright.ir.stmt import Result, View
from tilewright.tensor.tensor import Builder, Tensor, domain

NAME = "fault"
NONE = 2**31 - 1
_CURE = 'options={"checks": False} leaves such checks out: results are any numbers then'


class OutOfRangeError(ArgumentError, IndexError, RuntimeError):
    """An index that is none of a tensor's dim: of PyTorch's ops, some raise an `IndexError` for it,
    others a `RuntimeError`."""


class DivisionByZeroError(ArgumentError, ZeroDivisionError, RuntimeError):
    """An integer division by 0, for which PyTorch raises a `RuntimeError`."""


class Checks:
    """Collects what has to hold in one program; `output` gives it its result."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._faults: list[tuple[type[ArgumentError], str, Node]] = []
        self._memory: Buffer | None = None
        self._seen: set[tuple[Expr, tuple[int, ...]]] = set()

    def places(self, node: Node, index: Tensor, dim: int, size: int, wraps: bool) -> None:
        """``index`` has to be in ``0..size``, or from ``-size`` on where it ``wraps``."""
        value = cast(s64, index.value)
        wrong = value >= size
        if index.dtype.kind == "int":
            wrong = wrong | (value < (-size if wraps else 0))
        what = f"an index is out of bounds for dimension {dim} with size {size}"
        self._refuse(node, index, wrong, OutOfRangeError, what)

    def divisor(self, node: Node, divisor: Tensor) -> None:
        """No integer of ``divisor`` may be 0."""
        wrong = binary("eq", cast(s64, divisor.value), const(0))
        what = "ZeroDivisionError: an integer is divided by 0"
        self._refuse(node, divisor, wrong, DivisionByZeroError, what)

    def _refuse(
        self, node: Node, of: Tensor, wrong: Expr, error: type[ArgumentError], what: str
    ) -> None:
        wrongs = self._builder.tensor(of.shape, wrong)
        key = (wrongs.value, of.shape)
        if 0 in of.shape or wrongs.value is const(False, boolean) or key in self._seen:
            return
        self._seen.add(key)
        if self._memory is None:
            self._memory = self._builder.allocate(NAME, s32, ())
            start = self._builder.splat(NONE, s32)
            self._builder.store(self._memory, start, f"{NAME}_clear")
        number = const(len(self._faults), s32)
        value = select(wrongs.value, number, const(NONE, s32))
        result = Result((View(self._memory, ()),), (value,), "min")
        self._builder.compute(f"{NAME}_of_{node.name}", domain(of.shape), (result,))
        self._faults.append((error, what, node))

    def output(self) -> tuple[ArgumentError, ...]:
        """Makes the number a result of the graph; gives the errors that numbers mean."""
        if self._memory is None:
            return ()
        self._builder.output(NAME, self._builder.whole(self._memory))
        return tuple(
            error(what, where=f"{node.target}, node {node.name}", span=span_of(node), cure=_CURE)
            for error, what, node in self._faults
        )

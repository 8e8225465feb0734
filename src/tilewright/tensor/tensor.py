"""Tensors of a graph, and the builder that makes a graph, a kernel of computes on them.

A tensor says what its element at each place is: an expression of the place, whose loads say where
in which buffers it lies. So reshapes, transposes, slices and broadcasts are other expressions, and
cost nothing until something computes with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType
from tilewright.dtypes import dtype as type_of
from tilewright.errors import ProblemError, Span
from tilewright.facts import Facts
from tilewright.ir.buffer import MAX_EXTENT, Buffer, as_size, buffer
from tilewright.ir.constants import contents_of, digest_of_contents
from tilewright.ir.expr import Const, Expr, ExprLike, StandIn, as_expr, const
from tilewright.ir.load import Load, load
from tilewright.ir.open_sizes import OpenSizes
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Compute,
    Dim,
    Kernel,
    Param,
    Result,
    ScalarParam,
    Stmt,
    View,
)
from tilewright.ir.verify import verify
from tilewright.ir.visit import loads_in, reads_memory, substitute, walk
from tilewright.simplify import simplify
from tilewright.tensor.names import identifier, unused
from tilewright.tensor.operands import Operands
from tilewright.tensor.places import Shape, axes, axis, guarded, is_factor, linear_index
from tilewright.tensor.replacing import buffers_allocated, is_splat, with_buffers

# What the element of a tensor is made of at most, before it is put into memory.
_MOST = 64


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Tensor:
    """A value of ``shape``: ``value`` is its element at the place `axes` (s64) stand for.

    The loads in it are within their buffers for every place in the shape, or masked.
    """

    builder: Builder
    shape: Shape
    value: Expr

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.value.type

    @property
    def rank(self) -> int:
        """How many dims there are."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """How many elements there are."""
        return prod(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{list(self.shape)}: {self.value})"

    def at(self, *index: ExprLike) -> Expr:
        """The element at a place, one index (s64) for each dim; as it is, not simplified."""
        if len(index) != self.rank:
            raise TypeError(f"{self.rank} indices expected, {len(index)} given")
        return substitute(self.value, dict(zip(axes(self.rank), map(as_expr, index), strict=True)))

    def viewed(self, shape: Sequence[int], index: Sequence[ExprLike]) -> Tensor:
        """The tensor of ``shape`` whose element is the one of this at ``index``, which must be in
        it: expressions of the new tensor's `axes`."""
        return self.builder.tensor(shape, self.settled().at(*index))

    def within(
        self, shape: Sequence[int], index: Sequence[ExprLike], inside: Expr, outside: Expr
    ) -> Tensor:
        """`viewed` where ``inside`` holds, ``outside`` elsewhere, where no memory is touched."""
        return self.builder.tensor(shape, guarded(self.settled().at(*index), inside, outside))

    def settled(self) -> Tensor:
        """The tensor in memory where its element is made of so many parts that more views of it
        would compute too much at each place; otherwise itself."""
        parts = len(list(islice(walk(self.value), _MOST + 1)))
        return self if parts <= _MOST else self.builder.materialize(self)

    @property
    def constant(self) -> Const | None:
        """The one value of all elements, where it is known."""
        return self.value if isinstance(self.value, Const) else None

    @property
    def buffer(self) -> Buffer | None:
        """The buffer that it is all of, element by element; None where there is none."""
        value = self.value
        if not isinstance(value, Load) or value.mask is not None:
            return None
        shape = self.shape if self.builder.open_sizes is None else tuple(map(as_size, self.shape))
        if value.buffer.sizes != shape:
            return None
        for number, (index, size) in enumerate(zip(value.index, self.shape, strict=True)):
            if index is not axis(number) and not (size == 1 and isinstance(index, Const)):
                return None
        return value.buffer

    @property
    def is_computed(self) -> bool:
        """Whether its elements are computed from places alone: nothing is loaded for them."""
        return not reads_memory(self.value)

    @property
    def is_factor(self) -> bool:
        """Whether contractions take it as it is: one load, perhaps converted, whose place is a sum
        of multiples of dims, and 0 where it is masked."""
        return is_factor(self.value)


@dataclass(frozen=True, slots=True)
class _Place:
    """What a front end said about the op that is being translated."""

    name: str | None = None
    span: Span | None = None


@dataclass(eq=False)
class _Outputs:
    results: dict[str, Tensor] = field(default_factory=dict)
    updates: dict[str, Tensor] = field(default_factory=dict)


class Builder:
    """Collects a graph: inputs, constants, computes, outputs. `kernel` gives what came of it.

    Ops are functions in the files of `tilewright.tensor`; they take and give `Tensor`. Sizes
    are numbers, or those of ``open_sizes``, which calls pass. Front ends say by `at` what they
    translate: names and errors come from it.
    """

    def __init__(self, name: str = "graph", open_sizes: OpenSizes | None = None) -> None:
        self.name = identifier(name) or "graph"
        self._inputs: dict[str, Buffer] = {}
        self._constants: dict[tuple[str, str, Shape], Param] = {}
        self._contents: dict[str, NDArray[Any]] = {}
        self._outputs = _Outputs()
        self._body: list[Stmt] = []
        self._current = self._body
        # The names of buffers, and of computes.
        self._taken: dict[str, int] = {}
        self._computes: dict[str, int] = {}
        self._place = _Place()
        self.open_sizes = open_sizes
        self._facts = Facts.empty().promising(() if open_sizes is None else open_sizes.scalars)
        # The shapes of buffers some of whose sizes calls pass.
        self._open: dict[Buffer, Shape] = {}
        self._scopes: dict[Shape, Facts] = {}

    # What comes in and goes out.

    def input(self, name: str, dtype: object, shape: Sequence[int]) -> Tensor:
        """A tensor that a call passes, by this name."""
        if name in self._inputs:
            raise self.refuse(f"there are two inputs {name}", "give each a name of its own")
        memory = self._memory(name, type_of(dtype), self.checked(shape))
        self._inputs[name] = memory
        self._taken.setdefault(name, 2)
        return self.whole(memory)

    def constant(self, array: Any, name: str | None = None) -> Tensor:
        """A tensor of these contents. One value throughout becomes a number in the kernel; other
        arrays lie beside it, by their contents."""
        values = np.asarray(array)
        type_ = type_of(values.dtype)
        shape = self.checked(values.shape)
        if values.size and not any(values.strides):
            # One element, which a text may say to be of any size.
            return self.tensor(shape, const(values[(0,) * values.ndim].item(), type_))
        values = np.ascontiguousarray(values)
        if values.size and is_splat(values):
            return self.tensor(shape, const(values.reshape(-1)[0].item(), type_))
        if not values.size:
            return self.tensor(shape, const(0, type_))
        contents = contents_of(buffer("constant", type_, shape), values)
        digest = digest_of_contents(contents)
        if self._contents.get(digest, contents).dtype != values.dtype:
            return self._among_others(values, name)
        param = self._constants.get((digest, type_.name, shape))
        if param is None:
            held = buffer(self.fresh(name or self._place.name or "constant"), type_, shape)
            param = Param(held, "in", digest)
            self._constants[(digest, type_.name, shape)] = param
            self._contents.setdefault(digest, contents)
        return self.whole(param.buffer)

    def _among_others(self, values: NDArray[Any], name: str | None) -> Tensor:
        """A constant whose bytes are another one's of another type: a digest has one type, so it is
        all but the last element of a longer one."""
        longer = self.constant(np.append(values.reshape(-1), values.dtype.type(1)), name)
        return longer.viewed(values.shape, [linear_index(axes(values.ndim), values.shape)])

    def splat(self, value: float | bool, dtype: object, shape: Sequence[int] = ()) -> Tensor:
        """A tensor with one number everywhere."""
        return self.tensor(self.checked(shape), const(value, type_of(dtype)))

    def output(self, name: str, tensor: Tensor) -> None:
        """A result of the kernel, by this name, after those that are there."""
        self._check_result(name, tensor)
        self._outputs.results[name] = tensor

    def update(self, target: Tensor, tensor: Tensor) -> None:
        """``target``, which is an input as it came, becomes ``tensor`` when all else is done."""
        param = target.buffer
        if param is None or self._inputs.get(param.name) is not param:
            raise self.refuse("what is updated is no input", "update a whole input, as it came")
        if (tensor.shape, tensor.dtype) != (target.shape, target.dtype):
            raise self.refuse(
                f"{param.name} is {described(target)}, its update {described(tensor)}",
                "give it the same shape and type",
            )
        self._outputs.updates[param.name] = tensor

    def kernel(self) -> Kernel:
        """The graph, verified. Results are written where they are computed, where that can be."""
        if not self._outputs.results and not self._outputs.updates:
            raise self.refuse("the graph has no result", "call `output` or `update`")
        body, place = list(self._body), self._place
        self._current, self._place = body, _Place()
        try:
            renamed = self._written()
        finally:
            self._current, self._place = self._body, place
        taken = {id(old) for old in renamed}
        stmts = tuple(s for s in body if not (isinstance(s, Allocate) and id(s.buffer) in taken))
        renamed |= self._clashing(body, renamed)
        open_sizes = self.open_sizes
        params: list[Param | ScalarParam] = [] if open_sizes is None else [*open_sizes.promised]
        params += [
            Param(memory, "inout" if name in self._outputs.updates else "in")
            for name, memory in self._inputs.items()
        ]
        params += [
            replace(constant, buffer=renamed.get(constant.buffer, constant.buffer))
            for constant in self._constants.values()
        ]
        params += [Param(self._results[name], "out") for name in self._outputs.results]
        whole = with_buffers(Block(stmts), renamed)
        kernel = Kernel(self.name, tuple(params), whole, constants=dict(self._contents))
        verify(kernel)
        return kernel

    def _check_result(self, name: str, tensor: Tensor) -> None:
        self.check_tensors(tensor)
        if name in self._outputs.results or name in self._inputs:
            raise self.refuse(f"there are two parameters {name}", "give each a name of its own")

    def _written(self) -> dict[Buffer, Buffer]:
        """Emits what is missing between the tensors of the results and their parameters; gives the
        buffers that are results themselves."""
        allocated = {id(s.buffer) for s in self._body if isinstance(s, Allocate)}
        renamed: dict[Buffer, Buffer] = {}
        self._results: dict[str, Buffer] = {}
        for name, tensor in self._outputs.results.items():
            result = self._memory(name, tensor.dtype, tensor.shape)
            self._results[name] = result
            memory = tensor.buffer
            if memory is not None and id(memory) in allocated and memory not in renamed:
                renamed[memory] = result
            else:
                self.store(result, tensor, f"{identifier(name)}_copy")
        changing = {id(self._inputs[name]) for name in self._outputs.updates}
        values: dict[str, Tensor] = {}
        for name, tensor in self._outputs.updates.items():
            # One that reads what another changes is made before any changes.
            reads = any(id(read.buffer) in changing for read in loads_in(tensor.value))
            values[name] = self.materialize(tensor, f"{identifier(name)}_new") if reads else tensor
        for name, tensor in values.items():
            self.store(self._inputs[name], tensor, f"{identifier(name)}_update")
        return renamed

    def _clashing(
        self, body: Sequence[Stmt], renamed: Mapping[Buffer, Buffer]
    ) -> dict[Buffer, Buffer]:
        """Buffers inside that are called as a result is, under other names."""
        others: dict[Buffer, Buffer] = {}
        inside = (*buffers_allocated(body), *(p.buffer for p in self._constants.values()))
        for old in inside:
            if old.name in self._results and old not in renamed:
                others[old] = replace(old, name=self.fresh(old.name))
        return others

    # What the families of ops use.

    @contextmanager
    def at(self, name: str | None = None, span: Span | None = None) -> Iterator[None]:
        """What is built inside is called ``name``, and came from ``span``; None: as outside."""
        outer = self._place
        self._place = _Place(
            outer.name if name is None else identifier(name), outer.span if span is None else span
        )
        try:
            yield
        finally:
            self._place = outer

    @property
    def span(self) -> Span | None:
        """The place in the front end's text of what is built now."""
        return self._place.span

    def named(self, usual: str) -> str:
        """What the result of an op is called: as the front end said, else ``usual``."""
        return self._place.name or usual

    def refuse(self, what: str, cure: str, why: str | None = None) -> ProblemError:
        """The error about what is built now."""
        where = None if self._place.name is None else self._place.name
        return ProblemError(what, where=where, why=why, cure=cure, span=self._place.span)

    def checked(self, shape: Sequence[int]) -> Shape:
        """``shape`` as a tuple of sizes of 0 or more that memory can hold."""
        sizes = tuple(size if isinstance(size, StandIn) else int(size) for size in shape)
        if any(size < 0 for size in sizes) or prod(sizes) >= MAX_EXTENT:
            raise self.refuse(f"no tensor has the shape {list(sizes)}", "give sizes of 0 or more")
        return sizes

    def check_tensors(self, *tensors: Tensor) -> None:
        """Refuses tensors of another builder."""
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise self.refuse(f"a {type(tensor).__name__} is no tensor", "make it a constant")
            if tensor.builder is not self:
                raise self.refuse("a tensor is another graph's", "use one builder for a graph")

    def tensor(self, shape: Sequence[int], value: Expr) -> Tensor:
        """The tensor whose element at `axes` is ``value``, simplified."""
        sizes = tuple(shape)
        return Tensor(self, sizes, simplify(value, self.facts(sizes)))

    def whole(self, memory: Buffer) -> Tensor:
        """All of a buffer, as a tensor."""
        shape = self._open.get(memory)
        return Tensor(
            self, memory.shape if shape is None else shape, load(memory, axes(memory.rank))
        )

    def facts(self, shape: Shape) -> Facts:
        """What is known of `axes` in a tensor of ``shape``."""
        facts = self._scopes.get(shape)
        if facts is None:
            facts = self._facts
            for number, size in enumerate(shape):
                facts = facts.loop(axis(number), as_expr(max(1, size)))
            self._scopes[shape] = facts
        return facts

    def fresh(self, name: str) -> str:
        """A name that nothing in the graph has: ``name``, or with a number after it."""
        return unused(name, self._taken)

    def fresh_compute(self, name: str) -> str:
        """The same among the names of computes."""
        return unused(name, self._computes)

    def emit(self, *stmts: Stmt) -> None:
        """Appends statements, where the builder is now."""
        self._current += stmts

    @contextmanager
    def nested(self) -> Iterator[list[Stmt]]:
        """What is emitted inside goes to the list that this gives: for bodies of loops and arms.

        Memory allocated there lives there: what is to outlive it is stored outside.
        """
        outer, self._current = self._current, []
        try:
            yield self._current
        finally:
            self._current = outer

    def _memory(self, name: str, type_: DType, shape: Shape) -> Buffer:
        memory = buffer(name, type_, shape)
        if any(isinstance(size, StandIn) for size in shape):
            self._open[memory] = shape
        return memory

    def allocate(self, name: str, type_: DType, shape: Sequence[int]) -> Buffer:
        """New memory, from here to the end of the block."""
        memory = self._memory(self.fresh(name), type_, tuple(shape))
        self.emit(Allocate(memory, self.span))
        return memory

    def compute(self, name: str, dims: Sequence[Dim], results: Sequence[Result]) -> None:
        """Emits a compute; what values, indices and masks load becomes its operands. Without any
        point, there is nothing to do."""
        if any(dim.extent is const(0) for dim in dims):
            return
        operands = Operands({dim.var.name for dim in dims})
        changed = tuple(map(operands.result, results))
        unique = self.fresh_compute(name)
        self.emit(Compute(unique, tuple(dims), tuple(operands.found), changed, span=self.span))

    def store(self, target: Buffer, tensor: Tensor, name: str) -> None:
        """Emits ``target[...] = tensor``, element by element; shapes and types agree."""
        dims = domain(tensor.shape)
        view = View(target, axes(tensor.rank))
        self.compute(name, dims, (Result((view,), (tensor.value,)),))

    def materialize(self, tensor: Tensor, name: str | None = None) -> Tensor:
        """The tensor in memory of its own, row-major; itself where it is all of a buffer."""
        if tensor.buffer is not None:
            return tensor
        usual = name if name is not None else self.named("copy")
        memory = self.allocate(usual, tensor.dtype, tensor.shape)
        self.store(memory, tensor, usual)
        return self.whole(memory)


def builder_of(tensors: Sequence[Tensor], what: str) -> Builder:
    """The builder of ``tensors``. Raises `ProblemError` where there is none of them."""
    if not tensors:
        raise ProblemError(f"{what} of no tensor", cure="give one or more")
    return tensors[0].builder


def domain(shape: Sequence[int]) -> tuple[Dim, ...]:
    """The points of a tensor of ``shape``: a dim for each of its `axes`."""
    return tuple(Dim(axis(number), as_expr(size)) for number, size in enumerate(shape))


def described(tensor: Tensor) -> str:
    """Its type and shape, for people."""
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"

"""Buffers: named memory with an element type, a logical shape, a layout and a space.

A `Layout` maps a tensor index to an element offset through ordered *blocks*: each block takes a
part of one dim. ``aBcd16b`` on (N, C, H, W) has the blocks (0, N), (1, C/16), (2, H), (3, W),
(1, 16): the innermost block of a dim holds ``index % size``, the next ``index // size % size2``,
and the outermost the rest. A `Swizzle` then exchanges runs of elements. Tags and strides are in
`tilewright.layout`.

Sizes, strides and offsets may be *symbolic*: expressions of the kernel's scalar parameters. Code
for numbers only uses `Buffer.shape`, `Layout.blocks` and the like, which refuse symbolic ones; code
for both uses `Buffer.sizes`, `Layout.parts`, `Layout.start`, `Layout.span`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.ir.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Select,
    StandIn,
    Unary,
    Var,
    as_expr,
    const,
    maximum,
)

# A number of elements: an int, or an expression of type s64 that depends on scalar parameters.
Size = int | Expr


def as_size(size: Size) -> Size:
    """``size`` as an int where it is constant."""
    if size.__class__ is not int and isinstance(size, StandIn):
        return size.expr
    return int(size.value) if isinstance(size, Const) else size


def product(a: Size, b: Size) -> Size:
    """``a * b``, without factors of 1."""
    if isinstance(a, int) and (a == 1 or isinstance(b, int)):
        return b if a == 1 else a * b
    return a if isinstance(b, int) and b == 1 else as_size(as_expr(a) * b)


def symbols_of(*sizes: Size) -> frozenset[Var]:
    """The scalar parameters that occur in ``sizes``."""
    symbols: set[Var] = set()
    stack = [size for size in sizes if isinstance(size, Expr)]
    while stack:
        match stack.pop():
            case Var() as variable:
                symbols.add(variable)
            case Binary() as node:
                stack += (node.a, node.b)
            case Unary() | Cast() | Bitcast() as node:
                stack.append(node.a)
            case Select() as node:
                stack += (node.condition, node.a, node.b)
    return frozenset(symbols)


def _refusal(what: str, symbols: frozenset[Var]) -> UnsupportedError:
    names = ", ".join(sorted(symbol.name for symbol in symbols))
    return UnsupportedError(
        f"{what} depends on {names}, which a call passes, but a number is needed here",
        why="this is not yet done for sizes that are known at run time only",
        cure="write the size as a number, or leave out what needs it",
    )


class Space(Enum):
    """Where a buffer lives."""

    GLOBAL = "global"
    WORKGROUP = "workgroup"  # shared by the work-items of a group; on a CPU, a thread's scratch
    # Distributed shared memory: each workgroup of a cluster has one part, and accesses those of
    # the others. The outermost dim counts the parts, in memory, too.
    CLUSTER = "cluster"
    PRIVATE = "private"  # registers, or a thread's stack
    CONSTANT = "constant"


# Greatest extent of a buffer in elements: offsets in bytes are signed 64-bit numbers, and an
# element takes up to 8 bytes.
MAX_EXTENT = 2**60

# Memory that work-items share.
SHARED = (Space.WORKGROUP, Space.CLUSTER)


@dataclass(frozen=True, slots=True)
class Part:
    """`LayoutBlock` whose size or stride may be symbolic."""

    dim: int
    size: Size
    stride: Size


@dataclass(frozen=True, slots=True)
class LayoutBlock(Part):
    """``size`` consecutive steps of tensor dim ``dim``, ``stride`` elements apart."""

    dim: int
    size: int
    stride: int


def part(dim: int, size: Size, stride: Size) -> Part:
    """The block of a layout: a `LayoutBlock` where both are numbers."""
    size, stride = as_size(size), as_size(stride)
    if isinstance(size, int) and isinstance(stride, int):
        return LayoutBlock(dim, size, stride)
    return Part(dim, size, stride)


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Runs of ``2**base`` elements change places, so that columns lie in different banks.

    The number of a run in its row of ``2**bits`` runs is combined by exclusive or with the number
    of the row, rows being ``2**shift`` runs long: the element at ``o`` moves to
    ``o ^ ((o >> base + shift) & 2**bits - 1) << base``. ``Swizzle(3, 3, 3)`` is NVIDIA's of 128
    bytes for elements of 2 bytes. ``bits`` is 1 or more, and ``shift`` at least ``bits``.

    Source: `Swizzle` of CUTLASS, https://docs.nvidia.com/cutlass/media/docs/cpp/cute/index.html
    """

    bits: int
    base: int
    shift: int

    @property
    def run(self) -> int:
        """Elements that stay together."""
        return 1 << self.base

    @property
    def room(self) -> int:
        """Elements of a row of runs: an element stays in its row."""
        return 1 << (self.base + self.bits)

    @property
    def period(self) -> int:
        """Elements after which the pattern repeats."""
        return 1 << (self.base + self.shift + self.bits)

    def place(self, offset: Any) -> Any:
        """The place of the element at ``offset``: a number, or an array of integers."""
        row = (offset >> (self.base + self.shift)) & ((1 << self.bits) - 1)
        return offset ^ (row << self.base)

    def place_of(self, offset: Expr) -> Expr:
        """`place` of an expression, as arithmetic that the simplifier resolves: in rows of 64,
        ``row*64 + col`` becomes ``row*64 + (col//8 ^ row%8)*8 + col%8``."""
        runs = 1 << self.bits
        column = offset // self.run % runs
        row = offset // (1 << (self.base + self.shift)) % runs
        return offset + ((column ^ row) - column) * self.run


@dataclass(frozen=True)
class Layout:
    """Ordered blocks, outermost first, and the offset of element 0 (in elements).

    An element lies at the offset plus the place that ``swizzle`` gives to the sum of its steps. A
    kernel gets the address of offset 0, even where element 0 lies after it. ``parts`` and
    ``start`` may be symbolic; `blocks` and `offset` are the same as numbers.
    """

    parts: tuple[Part, ...]
    start: Size = 0
    swizzle: Swizzle | None = None

    @cached_property
    def symbols(self) -> frozenset[Var]:
        """The scalar parameters that the layout depends on; empty for a constant one."""
        if self.start.__class__ is int and all(p.__class__ is LayoutBlock for p in self.parts):
            return frozenset()
        return symbols_of(self.start, *(size for p in self.parts for size in (p.size, p.stride)))

    def _refuse_symbols(self) -> None:
        if self.symbols:
            raise _refusal("the layout of a buffer", self.symbols)

    @cached_property
    def blocks(self) -> tuple[LayoutBlock, ...]:
        """The blocks as numbers. `UnsupportedError` for a symbolic layout."""
        self._refuse_symbols()
        return self.parts  # type: ignore[return-value]  # without symbols, each is a LayoutBlock

    @cached_property
    def offset(self) -> int:
        """The offset of element 0 as a number. `UnsupportedError` for a symbolic layout."""
        self._refuse_symbols()
        assert isinstance(self.start, int)
        return self.start

    @cached_property
    def extent(self) -> int:
        """Elements from the start of the buffer to the end of the last one; with a swizzle, to
        the end of those that could change places with it. `UnsupportedError` for a symbolic one."""
        # Strides below 0 lead towards the start.
        reach = 1 + sum((b.size - 1) * max(0, b.stride) for b in self.blocks if b.size > 0)
        room = self.swizzle.room if self.swizzle is not None else 1
        return self.offset + -(-reach // room) * room

    @cached_property
    def span(self) -> Size:
        """`extent`, as an expression where the layout is symbolic."""
        if not self.symbols:
            return self.extent
        reach: Expr = const(1)
        for part in self.parts:
            steps = maximum(as_expr(part.size) - 1, const(0))
            reach = reach + steps * part.stride
        room = self.swizzle.room if self.swizzle is not None else 1
        whole = reach if room == 1 else (reach + (room - 1)) // room * room
        return as_size(whole + self.start)

    def padded_shape(self, rank: int) -> tuple[int, ...]:
        """The shape that the blocks hold: at least the logical one."""
        shape = [1] * rank
        for block in self.blocks:
            shape[block.dim] *= block.size
        return tuple(shape)

    def padded_sizes(self, rank: int) -> tuple[Size, ...]:
        """`padded_shape`, with expressions where the layout is symbolic."""
        sizes: list[Size] = [1] * rank
        for part in reversed(self.parts):
            sizes[part.dim] = product(part.size, sizes[part.dim])
        return tuple(sizes)

    def offset_of(self, index: tuple[Expr, ...]) -> Expr:
        """The element offset of ``index``, as an expression (not simplified)."""
        result: Expr = as_expr(self.start)
        swizzled: Expr = const(0)
        for stride, step in self._steps(index):
            if self.swizzle is not None and stride % self.swizzle.period:
                swizzled = swizzled + step
            else:
                result = result + step
        return result if self.swizzle is None else result + self.swizzle.place_of(swizzled)

    def place(self, index: Sequence[Any]) -> Any:
        """The element offset of an index of numbers, or of arrays of integers."""
        offset = self.offset
        result: Any = None
        for dim, divisor, modulus, stride in self._digits:
            # Arrays may be large: steps that change nothing are skipped, so as to copy none.
            part = index[dim]
            if divisor > 1:
                part = part // divisor
            if modulus:
                part = part % modulus
            if stride != 1:
                part = part * stride
            result = part if result is None else result + part
        if result is None:
            return offset
        if self.swizzle is not None:
            result = self.swizzle.place(result)
        return result + offset if offset else result

    def _steps(self, index: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """The stride of each block, innermost first, and how far ``index`` goes along it."""
        for dim, divisor, modulus, stride in self._digits:
            part = index[dim]
            if divisor.__class__ is not int or divisor > 1:
                part = part // divisor
            if modulus.__class__ is not int or modulus:
                part = part % modulus
            yield stride, part * stride

    @cached_property
    def _digits(self) -> tuple[tuple[int, Any, Any, Any], ...]:
        """(dim, divisor, modulus or 0, stride) per block, innermost first."""
        inner: dict[int, Size] = {}
        digits: list[tuple[int, Any, Any, Any]] = []
        for position, block in reversed([*enumerate(self.parts)]):
            divisor = inner.get(block.dim, 1)
            outermost = all(outer.dim != block.dim for outer in self.parts[:position])
            modulus: Size = 0 if outermost else block.size
            if block.stride.__class__ is not int or block.stride != 0:
                digits.append((block.dim, divisor, modulus, block.stride))
            inner[block.dim] = product(block.size, divisor)
        return tuple(digits)


def has_parts(buffer: Buffer) -> bool:
    """Whether the outermost dim counts equal parts, one after the other in memory."""
    if not buffer.shape or not buffer.shape[0]:
        return False
    outermost = [block for block in buffer.layout.blocks if block.dim == 0]
    swizzle, part_size = buffer.layout.swizzle, part_extent(buffer)
    equal = swizzle is None or part_size % swizzle.period == 0
    return equal and outermost == [LayoutBlock(0, buffer.shape[0], part_size)]


def part_extent(buffer: Buffer) -> int:
    """Elements of each workgroup's part of a buffer in cluster memory."""
    return buffer.layout.extent // buffer.shape[0]


def workgroup_bytes(buffer: Buffer) -> int:
    """Bytes of each workgroup's memory that a buffer takes, in a space that work-items share."""
    extent = part_extent(buffer) if buffer.space is Space.CLUSTER else buffer.layout.extent
    return extent * buffer.dtype.bytes


def row_major(sizes: Sequence[Size]) -> Layout:
    """The dense layout with the last dim innermost."""
    blocks: list[Part] = []
    stride: Size = 1
    for dim in reversed(range(len(sizes))):
        blocks.append(part(dim, sizes[dim], stride))
        stride = product(sizes[dim], stride)
    return Layout(tuple(reversed(blocks)))


@dataclass(frozen=True, eq=False)
class Buffer:
    """Named memory. Two buffers are the same exactly when they are the same object.

    ``sizes`` is the logical shape; ``layout`` may hold more (padding of blocks). `shape` is the
    same as numbers, and refuses symbolic ones.
    """

    name: str
    dtype: DType
    sizes: tuple[Size, ...]
    layout: Layout
    space: Space = Space.GLOBAL

    @cached_property
    def symbols(self) -> frozenset[Var]:
        """The scalar parameters that the shape and the layout depend on; empty for numbers."""
        return self.layout.symbols | symbols_of(*self.sizes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The logical shape as numbers. `UnsupportedError` for a symbolic one."""
        symbols = symbols_of(*self.sizes)
        if symbols:
            raise _refusal(f"the shape of {self}", symbols)
        return self.sizes  # type: ignore[return-value]  # without symbols, each is an int

    @property
    def rank(self) -> int:
        """How many dims there are."""
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of memory that the layout spans."""
        return self.layout.extent * self.dtype.bytes

    @property
    def span_bytes(self) -> Size:
        """`bytes`, as an expression where the layout is symbolic."""
        return product(self.layout.span, self.dtype.bytes)

    def __copy__(self) -> Buffer:
        return self

    def __deepcopy__(self, memo: object) -> Buffer:
        return self

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.sizes)}"


def buffer(
    name: str,
    dtype: DType,
    shape: Sequence[Size],
    layout: Layout | None = None,
    space: Space = Space.GLOBAL,
) -> Buffer:
    """A new buffer; row-major unless a layout is given."""
    sizes = tuple(map(as_size, shape))
    return Buffer(name, dtype, sizes, layout if layout is not None else row_major(sizes), space)

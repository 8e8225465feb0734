"""Small neighbours of an array as the parts of one larger number, which is read at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import Const, Expr, as_expr, cast, const, var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Compute, Dim, Kernel, Operand, View
from tilewright.ir.visit import block, substitute
from tilewright.schedule.queries.access import buffers_written
from tilewright.schedule.queries.place import (
    claim,
    computes_named,
    fresh,
    names_in,
    rewrite_computes,
    taken_names,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform


@transform
@asks(compute=a_plain_compute)
def read_words(kernel: Kernel, compute: str, operand: str, axis: int, dtype: DType) -> Kernel:
    """Reads neighbours along an axis of an array as one number, and takes it apart in the value.

        compute main(n in 8, k in 32): acc[n] add= x * f32(q)   (x = src[k], q = w[k, n]: u8)
    ->  read_words("main", "q", 0, u16)
        alloc w_words: u16[16, 8]
        compute w_join(i in 16, i2 in 8):
          part = w[i * 2, i2]
          part2 = w[i * 2 + 1, i2]
          w_words[i, i2] = u16(part) | u16(part2) << u16(8)
        compute main(n in 8, k in 32):
          acc[n] add= x * f32(u8(q >> u16(k % 2 * 8)))   (x = src[k], q = w_words[k // 2, n])

    The first of the neighbours has the lowest bits. Their type has no sign, ``dtype`` neither and a
    multiple of its bits; the array is a parameter that nothing writes, and is read without a mask.
    Where `stage` packs the words, `inline` of the compute that joins them makes them there.
    """
    computes = [stmt for stmt, _ in computes_named(kernel, compute)]
    reading = _Reading(kernel, tuple(computes), operand, axis, dtype)
    reading.check()
    readers = rewrite_computes(kernel, {compute}, lambda stmt, _: reading.in_reader(stmt))
    body = block(Allocate(reading.words), reading.join(), readers.body)
    return replace(kernel, body=body)


@dataclass(frozen=True)
class _Reading:
    """What ``readers`` read through ``operand``, as words of ``dtype`` along ``axis``."""

    kernel: Kernel
    readers: tuple[Compute, ...]
    operand: str
    axis: int
    dtype: DType

    def check(self) -> None:
        """Refuses what cannot be read so."""
        written = buffers_written(self.kernel.body)
        if self.parts in written or all(self.parts is not p.buffer for p in self.kernel.arrays):
            raise refusal(
                f"'{self.parts.name}' is not a parameter that nothing writes",
                self.readers[0],
                "choose an operand that reads such a parameter",
                why="the words are made where the kernel begins",
            )
        for stmt in self.readers:
            view = self._of(stmt).view
            if view.mask is not None or view.buffer is not self.parts or stmt.instruction:
                raise refusal(
                    f"'{self.operand}' is read under a mask, by an instruction, or of more arrays",
                    self.readers[0],
                    "read words before padding, and before it is tensorized",
                    why="a word is read whole, and taken apart in the value",
                )
        if not 0 <= self.axis < self.parts.rank:
            raise refusal(
                f"'{self.parts.name}' has no axis {self.axis}",
                self.readers[0],
                f"choose one of 0 to {self.parts.rank - 1}",
                why="neighbours along an axis are one word",
            )
        small, size = self.parts.dtype, as_expr(self.parts.sizes[self.axis])
        if {small.kind, self.dtype.kind} != {"uint"} or small.is_nibble or self.times < 2:
            raise refusal(
                f"{self.dtype.name} has no parts of {small.name}",
                self.readers[0],
                "choose unsigned types, a larger one for words",
                why="a word is the bits of its parts, one behind the other",
            )
        if not isinstance(size, Const) or size.value % self.times:
            raise refusal(
                f"a word would be {self.times} of {to_text(size)} elements",
                self.readers[0],
                "choose another axis, or another type",
                why="words are whole",
            )

    def _of(self, reader: Compute) -> Operand:
        by_name = {operand.var.name: operand for operand in reader.operands}
        if self.operand not in by_name:
            raise refusal(
                f"there is no operand '{self.operand}'",
                self.readers[0],
                "choose one of " + ", ".join(by_name),
                why="operands are what is read",
            )
        return by_name[self.operand]

    @cached_property
    def parts(self) -> Buffer:
        return self._of(self.readers[0]).view.buffer

    @property
    def times(self) -> int:
        return self.dtype.bits // self.parts.dtype.bits

    @cached_property
    def words(self) -> Buffer:
        sizes = list(self.parts.sizes)
        sizes[self.axis] = self.parts.shape[self.axis] // self.times
        names, _ = names_in(self.kernel)
        return buffer(fresh(f"{self.parts.name}_words", names), self.dtype, sizes)

    def join(self) -> Compute:
        """What makes the words."""
        names = set(taken_names(self.kernel))
        dims: list[Dim] = []
        for size in self.words.sizes:
            dims.append(Dim(var(claim("i", names)), as_expr(size)))
        operands: list[Operand] = []
        for number in range(self.times):
            index: list[Expr] = [dim.var for dim in dims]
            index[self.axis] = index[self.axis] * self.times + number
            part = var(claim("part", names), self.parts.dtype)
            operands.append(Operand(part, View(self.parts, tuple(index))))
        shifted = (
            cast(self.dtype, operand.var) << const(number * self.parts.dtype.bits, self.dtype)
            for number, operand in enumerate(operands)
        )
        _, computes = names_in(self.kernel)
        out = View(self.words, tuple(dim.var for dim in dims))
        name = fresh(f"{self.parts.name}_join", computes)
        return Compute.single(name, tuple(dims), out, tuple(operands), reduce(or_, shifted))

    def in_reader(self, reader: Compute) -> Compute:
        """``reader``, which reads words and takes them apart."""
        old = self._of(reader)
        word = var(self.operand, self.dtype)
        index = list(old.view.index)
        number, index[self.axis] = index[self.axis] % self.times, index[self.axis] // self.times
        first = cast(self.dtype, number * self.parts.dtype.bits)
        values = {old.var: cast(self.parts.dtype, word >> first)}
        operands = tuple(
            Operand(word, View(self.words, tuple(index))) if operand is old else operand
            for operand in reader.operands
        )
        body = substitute(reader.body, values)
        return replace(reader, operands=operands).with_result(body=body)

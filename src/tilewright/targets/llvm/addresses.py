"""Addresses as pointers: a constant offset from one that the loops around advance, and, for the
lanes of a vector, how far apart they lie."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tilewright.dtypes import s64
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.targets.llvm.expressions import Expressions
from tilewright.targets.llvm.indices import lane_indices
from tilewright.targets.llvm.lane_places import lane_places, runs_of
from tilewright.targets.llvm.plan import Address, Loads, Terms
from tilewright.targets.llvm.running import Lanes, differs
from tilewright.targets.llvm.shared import SharedMemory
from tilewright.targets.llvm.types import llvm_type, splat
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer


class AddressMap:
    """The pointers to buffers, while one function is written."""

    def __init__(self, w: Writer, exprs: Expressions) -> None:
        self.w = w
        self.exprs = exprs
        self.pointers: dict[tuple[int, Terms], Pointer] = {}
        self.shared = SharedMemory(w)
        self.lanes: Lanes | None = None

    def unrolled(self, variable: Expr) -> int:
        """The current value of an unrolled loop's variable."""
        assert isinstance(variable, Var)
        value = self.exprs.variables[variable]
        assert isinstance(value, int)
        return value

    def constant_offset(self, address: Address) -> int | None:
        """The offset in elements if it is known now, else None."""
        offset = address.constant
        for variable, coefficient in address.unrolled:
            offset += coefficient * self.unrolled(variable)
        for atom, coefficient in address.loose:
            value = self.exprs.evaluate(atom, {})
            if isinstance(value, Value):
                return None
            offset += coefficient * int(value)
        return offset

    def root(self, buffer: Buffer, text: str, space: int, align: int = 1) -> None:
        """Sets the address of ``buffer``, a multiple of ``align`` bytes."""
        align = max(align, self.w.dialect.alignment)
        self.pointers[id(buffer), ()] = Pointer(text, text, space, align)

    def share(self, buffer: Buffer, space: int) -> None:
        """Gives ``buffer`` a place in the workgroup's memory, once."""
        text = self.shared.place(buffer, space)
        if text is not None:
            self.root(buffer, text, space)

    def pointer(self, address: Address, loads: Loads, lane: int = 0) -> Pointer:
        """The pointer to the element, for lane ``lane`` of the vector loop."""
        if address.peer is not None:
            raise CompilationError(
                f"{address.buffer.name!r} of another workgroup is accessed",
                why="only arrivals at mbarriers and copies of tiles to all workgroups reach into "
                "the other workgroups of a cluster",
                cure="copy the tile to all workgroups, or let each read its own part",
            )
        return self.own_pointer(address, loads, lane)

    def own_pointer(
        self,
        address: Address,
        loads: Loads,
        lane: int = 0,
        apart: list[tuple[Value, int]] | None = None,
    ) -> Pointer:
        """As `pointer`, but in the accessing workgroup's part for an address in another one's. What
        differs from lane to lane goes to ``apart``, with its steps in elements, if that is there.
        """
        scoped = address.scoped
        base = self.pointers.get((id(address.buffer), scoped)) or self._base(address.buffer, scoped)
        size = address.buffer.dtype.bytes
        offset = address.constant
        for variable, coefficient in address.unrolled:
            offset += coefficient * self.unrolled(variable)
        if lane and self.lanes is not None:
            offset += lane * address.lane_coefficient(self.lanes.var)
        steps: list[tuple[Value, int]] = []
        for atom, coefficient in address.loose:
            value = self.exprs.evaluate(atom, loads)
            if not isinstance(value, Value):
                offset += coefficient * int(value)
                continue
            if value.lanes > 1 and apart is not None:
                apart.append((value, coefficient))
                continue
            if value.lanes > 1:
                text = self.w.assign(f"extractelement {value.typed}, i64 {lane}")
                value = Value(text, value.dtype, 1, value.range)
            steps.append((value, coefficient * size))
        total = self.exprs.total(steps) if len(steps) > 1 else None
        if total is not None:
            distance = self.exprs.value(total, s64).text
            base = self.advanced(base, distance, gcd(*(step for _, step in steps)))
        else:
            for value, step in steps:
                base = self.moved(base, value, step)
        return self.advanced(base, str(offset * size), offset * size) if offset else base

    def pointers_of_lanes(self, address: Address, loads: Loads) -> str:
        """A vector of pointers to the elements, one for each lane."""
        assert self.lanes is not None
        count, step = self.lanes.count, address.lane_coefficient(self.lanes.var)
        apart = [(lane_indices(self.w, count), step)] if step else []
        base = self.own_pointer(address, loads, 0, apart)
        type_, total = llvm_type(s64, count), "zeroinitializer"
        for value, factor in apart:
            wide = self.exprs.value(value, s64, count)
            product = self.w.assign(f"mul {wide.typed}, {splat(str(factor), s64, count)}")
            total = self.w.assign(f"add {type_} {product}, {total}")
        element = llvm_type(address.buffer.dtype)
        return self.w.assign(f"getelementptr {element}, {base.typed}, {type_} {total}", "p")

    def _base(self, buffer: Buffer, scoped: Terms) -> Pointer:
        """The pointer that the variables of ``scoped`` advance. Scopes around the buffer's
        allocation have not advanced it, because there was no pointer."""
        pointer = self.pointers.get((id(buffer), scoped))
        if pointer is not None:
            return pointer
        if not scoped:
            raise CompilationError(f"{buffer.name!r} is used outside of its allocation")
        atom, coefficient = scoped[-1]
        parent, step = self._base(buffer, scoped[:-1]), coefficient * buffer.dtype.bytes
        value = self.exprs.evaluate(atom, {})
        if isinstance(value, Value):
            return self.moved(parent, value, step)
        distance = int(value) * step
        return self.advanced(parent, str(distance), distance) if distance else parent

    def moved(
        self, pointer: Pointer, index: Value, step: int, multiple: int | None = None
    ) -> Pointer:
        """A pointer advanced by ``index * step`` bytes, a multiple of ``multiple`` (default: of
        ``step``)."""
        scaled = self.w.assign(f"mul {self.exprs.value(index, s64).typed}, {step}")
        return self.advanced(pointer, scaled, step if multiple is None else multiple)

    def advanced(self, pointer: Pointer, offset: str, step: int) -> Pointer:
        """A pointer advanced by ``offset`` bytes, a multiple of ``step``."""
        text = self.w.assign(f"getelementptr i8, {pointer.typed}, i64 {offset}", "p")
        return pointer.moved(text, step)

    def stride(self, address: Address) -> int | None:
        """Elements between neighbouring lanes; None if they are not evenly spaced."""
        if self.lanes is None:
            return 0
        for atom, _ in address.loose:
            if differs(atom, self.lanes, self.exprs.variables):
                return None
        return address.lane_coefficient(self.lanes.var)

    def runs(self, address: Address, loads: Loads) -> Iterator[tuple[int, int, Pointer]]:
        """The active lanes in runs whose elements lie side by side, as far as that is known now:
        the first lane, how many there are, and the pointer to the first element."""
        assert self.lanes is not None
        places = lane_places(address, self.lanes, self.exprs)
        if places is None:
            for lane in range(self.lanes.active):
                yield lane, 1, self.pointer(address, loads, lane)
            return
        for lane, size in runs_of(places):
            with self.exprs.bound(self.lanes.var, lane):
                pointer = self.pointer(address, loads, lane)
            yield lane, size, pointer

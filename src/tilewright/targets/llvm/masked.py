"""Loads and stores in which some or all lanes may be off; these do not touch memory.

With `MaskedInstructions`, a masked vector is one instruction, and a load that is off as a whole
reads zeros from a constant. With `SingleLanes`, a known number of first lanes is accessed in
vectors whose sizes are powers of 2, and lanes that are decided at run time one by one: a load that
is off reads the first element of its memory instead, which is then dropped; a store that is off is
jumped over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tilewright.dtypes import DType, boolean, f16, s8, s16, s32, u8
from tilewright.facts import Facts
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import as_expr
from tilewright.targets.llvm.casts import emit_cast
from tilewright.targets.llvm.expressions import Expressions
from tilewright.targets.llvm.lane_values import parts_on
from tilewright.targets.llvm.types import constant, lane_mask, llvm_type, splat, suffix
from tilewright.targets.llvm.values import Pointer, Value
from tilewright.targets.llvm.writer import Writer

# Where loads that are off read: zeros, as many bytes as the widest vector (64 lanes of 8 bytes).
ZEROS = "@zeros = internal constant [512 x i8] zeroinitializer, align 64"

# Bytes of a register of processors without vectors.
_WORD = 4


class Masked(Protocol):
    """Masked loads and stores. A mask is one flag for all lanes, or one for each; None: all on."""

    def load(
        self, pointer: Pointer, buffer: Buffer, active: int, count: int, mask: Value | None
    ) -> Value:
        """The first ``active`` of ``count`` consecutive elements where ``mask`` holds.

        Masked elements are 0; lanes after the active ones are undefined.
        """

    def store(self, pointer: Pointer, value: Value, active: int, mask: Value | None) -> None:
        """The first ``active`` lanes where ``mask`` holds, which has a flag for each lane."""

    def store_if(self, pointer: Pointer, value: Value, flag: str) -> None:
        """One element, where ``flag`` holds."""


def plain_load(w: Writer, pointer: Pointer, dtype: DType, lanes: int) -> Value:
    """``lanes`` consecutive elements at ``pointer``."""
    if dtype is boolean:
        return from_memory(w, plain_load(w, pointer, u8, lanes), dtype)
    align = max(dtype.bytes, pointer.align)
    text = w.assign(f"load {llvm_type(dtype, lanes)}, {pointer.typed}, align {align}")
    return Value(text, dtype, lanes)


def plain_store(w: Writer, pointer: Pointer, value: Value, how: str = "") -> None:
    """All lanes of ``value`` from ``pointer`` on; ``how`` are further words of the instruction."""
    if value.dtype is boolean:
        value = in_memory(w, value)
    align = max(value.dtype.bytes, pointer.align)
    w.emit(f"store {value.typed}, {pointer.typed}, align {align}{how}")


def more_lanes(w: Writer, value: Value, lanes: int) -> Value:
    """``value`` as the first lanes of a vector of so many, the others of which are 0."""
    if value.lanes == lanes:
        return value
    zeros = splat(constant(0, value.dtype), value.dtype, lanes)
    return placed(w, Value(zeros, value.dtype, lanes), value, 0, lanes)


def lane_of(w: Writer, value: Value, lane: int) -> Value:
    """One lane of a vector; a scalar is the same in all."""
    if value.lanes == 1:
        return value
    return Value(w.assign(f"extractelement {value.typed}, i64 {lane}"), value.dtype)


def lanes_of(w: Writer, value: Value, lane: int, count: int) -> Value:
    """So many lanes of a vector from ``lane`` on; a scalar is the same in all."""
    if value.lanes == 1 or count == 1:
        return lane_of(w, value, lane)
    return permuted_lanes(w, value, range(lane, lane + count))


def first_lanes(w: Writer, value: Value, lanes: int) -> Value:
    """The first ``lanes`` of a wider vector, such as a tail in a whole vector's register."""
    whole = as_integers(w, value)
    if lanes == 1:
        text = w.assign(f"extractelement {whole.typed}, i64 0")
    else:
        operands = f"{whole.typed}, {whole.type} poison"
        text = w.assign(f"shufflevector {operands}, {_indices(list(range(lanes)))}")
    if whole is not value:
        type_ = llvm_type(value.dtype, lanes)
        text = w.assign(f"bitcast {llvm_type(whole.dtype, lanes)} {text} to {type_}")
    return Value(text, value.dtype, lanes)


def permuted_lanes(w: Writer, value: Value, lanes: Sequence[int]) -> Value:
    """The ``lanes`` of a vector, in this order."""
    text = w.assign(f"shufflevector {value.typed}, {value.type} poison, {_indices(list(lanes))}")
    return Value(text, value.dtype, len(lanes))


def lanes_among(w: Writer, vectors: Sequence[Value], parts: Sequence[Mapping[int, int]]) -> Value:
    """The lanes that the ``vectors``, all of one length, hold: each the lanes of its part, where
    that says."""
    lanes = sum(map(len, parts))
    pieces = [as_integers(w, vector) for vector in vectors]
    whole: Value | None = None
    for number in range(0, len(pieces), 2):
        first, second = pieces[number], pieces[min(number + 1, len(pieces) - 1)]
        places = dict(parts[number])
        if second is not first:
            places |= {lane: at + first.lanes for lane, at in parts[number + 1].items()}
        pair = _shuffled(w, first, second, [places.get(lane) for lane in range(lanes)])
        if whole is not None:
            either = [lanes + lane if lane in places else lane for lane in range(lanes)]
            pair = _shuffled(w, whole, pair, either)
        whole = pair
    assert whole is not None
    dtype = vectors[0].dtype
    if whole.dtype is dtype:
        return whole
    return Value(w.assign(f"bitcast {whole.typed} to {llvm_type(dtype, lanes)}"), dtype, lanes)


def flags_at(w: Writer, flags: Value, places: Mapping[int, int], count: int) -> Value:
    """A vector of ``count`` flags: those of the lanes in ``places``, where that says; the others do
    not hold. One flag for all lanes stays one."""
    if flags.lanes == 1:
        return flags
    off = Value("zeroinitializer", flags.dtype, flags.lanes)
    lanes: list[int | None] = [flags.lanes] * count
    for lane, place in places.items():
        lanes[place] = lane
    return _shuffled(w, flags, off, lanes)


def _shuffled(w: Writer, one: Value, other: Value, lanes: Sequence[int | None]) -> Value:
    """These lanes of two vectors, counted on from the first to the second; None: any."""
    text = w.assign(f"shufflevector {one.typed}, {other.typed}, {_indices(lanes)}")
    return Value(text, one.dtype, len(lanes))


def vector_of(w: Writer, elements: Sequence[Value]) -> Value:
    """The elements as one vector."""
    dtype, count = elements[0].dtype, len(elements)
    type_ = llvm_type(dtype, count)
    text = "poison"
    for lane, element in enumerate(elements):
        text = w.assign(f"insertelement {type_} {text}, {element.typed}, i64 {lane}")
    return Value(text, dtype, count)


def placed(w: Writer, whole: Value | None, piece: Value, start: int, count: int) -> Value:
    """``whole`` (of ``count`` lanes), with ``piece`` from the lane ``start`` on."""
    type_ = llvm_type(piece.dtype, count)
    before = "poison" if whole is None else whole.text
    if piece.lanes == 1:
        text = w.assign(f"insertelement {type_} {before}, {piece.typed}, i64 {start}")
        return Value(text, piece.dtype, count)
    lanes = [lane if lane < piece.lanes else None for lane in range(count)]
    wide = w.assign(f"shufflevector {piece.typed}, {piece.type} poison, {_indices(lanes)}")
    if whole is not None:
        inside = range(start, start + piece.lanes)
        lanes = [count + lane - start if lane in inside else lane for lane in range(count)]
        wide = w.assign(f"shufflevector {whole.typed}, {type_} {wide}, {_indices(lanes)}")
    return Value(wide, piece.dtype, count)


def as_integers(w: Writer, value: Value) -> Value:
    """f16 as integers, as in memory: older processors have no f16, and LLVM would call a function
    that converts them."""
    if value.dtype is not f16:
        return value
    type_ = llvm_type(s16, value.lanes)
    return Value(w.assign(f"bitcast {value.typed} to {type_}"), s16, value.lanes)


def in_memory(w: Writer, value: Value) -> Value:
    """``value`` as it is in memory: f16 as integers, and a bool as a byte."""
    return emit_cast(w, value, u8) if value.dtype is boolean else as_integers(w, value)


def from_memory(w: Writer, stored: Value, dtype: DType) -> Value:
    """The inverse of `in_memory`."""
    if dtype is boolean:
        return emit_cast(w, stored, boolean)
    if dtype is stored.dtype:
        return stored
    type_ = llvm_type(dtype, stored.lanes)
    return Value(w.assign(f"bitcast {stored.typed} to {type_}"), dtype, stored.lanes)


class MaskedInstructions:
    """Masked vectors as one instruction each."""

    def __init__(self, exprs: Expressions) -> None:
        self._exprs, self._w = exprs, exprs.w
        self._sink: str | None = None

    def load(
        self, pointer: Pointer, buffer: Buffer, active: int, count: int, mask: Value | None
    ) -> Value:
        w, dtype = self._w, buffer.dtype
        if mask is not None and mask.lanes == 1:
            chosen = w.assign(f"select {mask.typed}, {pointer.typed}, {pointer.type} @zeros")
            pointer, mask = pointer.moved(chosen), None
        if mask is None and active == count:
            return plain_load(w, pointer, dtype, count)
        # 16-bit floats are loaded as integers, for which there are masked instructions.
        stored = {f16: s16, boolean: u8}.get(dtype, dtype)
        flags, size = self._flags(mask, active, count), w.dialect.vector_bytes // stored.bytes
        # LLVM 22 has masked loads for parts of registers of this type. Where the mask is not
        # constant, but all lanes of a register are known to be off, it loads them as if on.
        if mask is not None and stored.bytes >= _WORD and 0 < size < count:
            on = list(parts_on(mask, active, count, size))
            # It also crashes on such loads of several registers from the function's own memory.
            own_memory = buffer.space is not Space.GLOBAL
            if own_memory or not all(on):
                return from_memory(w, self._parts(pointer, stored, flags, size, on), dtype)
        return from_memory(w, self._masked(pointer, stored, flags), dtype)

    def _masked(self, pointer: Pointer, dtype: DType, flags: Value) -> Value:
        """Consecutive elements, zeros where a flag does not hold."""
        type_ = llvm_type(dtype, flags.lanes)
        text = self._w.call(
            type_,
            f"llvm.masked.load.{suffix(dtype, flags.lanes)}.p0",
            f"ptr align {dtype.bytes} {pointer.text}, {flags.typed}, {type_} zeroinitializer",
            f"ptr, {flags.type}, {type_}",
        )
        return Value(text, dtype, flags.lanes)

    def gather(
        self, pointers: str, dtype: DType, active: int, count: int, mask: Value | None
    ) -> Value:
        """As `load`, the elements at a vector of ``pointers``."""
        type_, flags = llvm_type(dtype, count), self._flags(mask, active, count)
        places = f"<{count} x ptr>"
        text = self._w.call(
            type_,
            f"llvm.masked.gather.{suffix(dtype, count)}.v{count}p0",
            f"{places} align {dtype.bytes} {pointers}, {flags.typed}, {type_} zeroinitializer",
            f"{places}, {flags.type}, {type_}",
        )
        return Value(text, dtype, count)

    def _parts(
        self, pointer: Pointer, dtype: DType, flags: Value, size: int, on: list[bool]
    ) -> Value:
        """The same in parts of ``size`` lanes; parts that are not ``on`` are zeros."""
        w, count = self._w, flags.lanes
        whole = self._exprs.value(0, dtype, count)
        for number, start in enumerate(range(0, count, size)):
            if not on[number]:
                continue
            indices = _indices(list(range(start, start + size)))
            operands = f"{flags.typed}, {flags.type} poison"
            part_flags = Value(w.assign(f"shufflevector {operands}, {indices}"), boolean, size)
            place = pointer
            if start:
                offset = start * dtype.bytes
                text = w.assign(f"getelementptr i8, {pointer.typed}, i64 {offset}", "p")
                place = pointer.moved(text, offset)
            whole = placed(w, whole, self._masked(place, dtype, part_flags), start, count)
        return whole

    def _flags(self, mask: Value | None, active: int, count: int) -> Value:
        """``mask`` for each lane, with the lanes after the active ones off."""
        tail = Value(lane_mask(active, count), boolean, count)
        if mask is None:
            return tail
        wide = self._exprs.value(mask, boolean, count)
        if active == count:
            return wide
        return Value(self._w.assign(f"and {wide.typed}, {tail.text}"), boolean, count)

    def store(self, pointer: Pointer, value: Value, active: int, mask: Value | None) -> None:
        if mask is None and active == value.lanes:
            plain_store(self._w, pointer, value)
            return
        whole = in_memory(self._w, value)
        if mask is None and active == 1:
            # LLVM 22 stores 32 bits for a masked store of one 16-bit lane that is known to be on.
            plain_store(self._w, pointer, lane_of(self._w, whole, 0))
            return
        flags = self._flags(mask, active, value.lanes)
        self._w.call_void(
            f"llvm.masked.store.{suffix(whole.dtype, value.lanes)}.p0",
            f"{whole.typed}, ptr align {whole.dtype.bytes} {pointer.text}, {flags.typed}",
            f"{whole.type}, ptr, {flags.type}",
        )

    def store_if(self, pointer: Pointer, value: Value, flag: str) -> None:
        if self._sink is None:
            self._sink = self._w.alloca("i64", 1, 8)
        chosen = self._w.assign(f"select i1 {flag}, {pointer.typed}, ptr {self._sink}")
        plain_store(self._w, pointer.moved(chosen), value)


def _least_extent(buffer: Buffer) -> int:
    """Elements that the buffer has in every call; memory without elements has room for one."""
    if not buffer.symbols:
        return buffer.layout.extent
    least = Facts.empty().bounds(as_expr(buffer.layout.span))[0]
    return max(1, 1 if least is None else least)


class SingleLanes:
    """Masked vectors, lane by lane."""

    def __init__(self, exprs: Expressions) -> None:
        self._exprs, self._w = exprs, exprs.w

    def load(
        self, pointer: Pointer, buffer: Buffer, active: int, count: int, mask: Value | None
    ) -> Value:
        if mask is None:
            return self._first_lanes(pointer, buffer.dtype, active, count)
        # The element read instead has to lie in the buffer.
        if mask.lanes == 1 and active <= _least_extent(buffer):
            loaded = self._first_lanes(self._safe(pointer, mask.text), buffer.dtype, active, count)
        else:
            loaded = self._each_lane(pointer, buffer.dtype, active, count, mask)
        if mask.lanes == 1 and self._is_words(buffer.dtype, count):
            return self._select_words(loaded, mask)
        zero = self._exprs.value(0, buffer.dtype, count)
        flags = self._exprs.value(mask, boolean, count)
        text = self._w.assign(f"select {flags.typed}, {loaded.typed}, {zero.typed}")
        return Value(text, buffer.dtype, count)

    def _is_words(self, dtype: DType, count: int) -> bool:
        """Whether these elements fill whole words, several each."""
        small = dtype in (s8, u8) or (self._w.dialect.word_registers and dtype.bytes == _WORD // 2)
        return small and count * dtype.bytes % _WORD == 0

    def _select_words(self, value: Value, mask: Value) -> Value:
        """Elements, or zeros, chosen by words: LLVM splits others, and GPUs select words."""
        count = value.lanes * value.dtype.bytes // _WORD
        words = llvm_type(s32, count)
        flags = self._exprs.value(mask, boolean, count)
        zero = self._exprs.value(0, s32, count)
        words_text = self._w.assign(f"bitcast {value.typed} to {words}")
        chosen = self._w.assign(f"select {flags.typed}, {words} {words_text}, {zero.typed}")
        return value._replace(text=self._w.assign(f"bitcast {words} {chosen} to {value.type}"))

    def _safe(self, pointer: Pointer, flag: str) -> Pointer:
        start = f"{pointer.type} {pointer.base}"
        return pointer.moved(self._w.assign(f"select i1 {flag}, {pointer.typed}, {start}", "p"))

    def _first_lanes(self, pointer: Pointer, dtype: DType, active: int, count: int) -> Value:
        w = self._w
        if active == count:
            return plain_load(w, pointer, dtype, count)
        whole: Value | None = None
        for start, lanes in _pieces(active):
            piece = plain_load(w, self._at(pointer, dtype, start), dtype, lanes)
            whole = placed(w, whole, piece, start, count)
        if whole is None:
            return self._exprs.value(0, dtype, count)
        return whole

    def _each_lane(
        self, pointer: Pointer, dtype: DType, active: int, count: int, mask: Value
    ) -> Value:
        w, type_ = self._w, llvm_type(dtype, count)
        text = splat(constant(0, dtype), dtype, count)
        for lane in range(active):
            flag = lane_of(w, mask, lane).text
            place = self._safe(self._at(pointer, dtype, lane), flag)
            element = plain_load(w, place, dtype, 1)
            if count == 1:
                return element
            text = w.assign(f"insertelement {type_} {text}, {element.typed}, i64 {lane}")
        return Value(text, dtype, count)

    def _at(self, pointer: Pointer, dtype: DType, lane: int) -> Pointer:
        if not lane:
            return pointer
        offset = lane * dtype.bytes
        place = self._w.assign(f"getelementptr i8, {pointer.typed}, i64 {offset}", "p")
        return pointer.moved(place, offset)

    def store(self, pointer: Pointer, value: Value, active: int, mask: Value | None) -> None:
        w, dtype = self._w, value.dtype
        if mask is not None:
            for lane in range(active):
                place = self._at(pointer, dtype, lane)
                self.store_if(place, lane_of(w, value, lane), lane_of(w, mask, lane).text)
            return
        for start, lanes in _pieces(active):
            piece = value
            if lanes == 1:
                piece = lane_of(w, value, start)
            elif lanes < value.lanes:
                indices = _indices(list(range(start, start + lanes)))
                operands = f"{value.typed}, {value.type} poison"
                piece = Value(w.assign(f"shufflevector {operands}, {indices}"), dtype, lanes)
            plain_store(w, self._at(pointer, dtype, start), piece)

    def store_if(self, pointer: Pointer, value: Value, flag: str) -> None:
        with self._w.where(flag):
            plain_store(self._w, pointer, value)


def _pieces(lanes: int) -> Iterator[tuple[int, int]]:
    """``lanes`` as powers of 2, largest first: the start and size of each part."""
    start = 0
    while start < lanes:
        size = 1 << ((lanes - start).bit_length() - 1)
        yield start, size
        start += size


def _indices(lanes: Sequence[int | None]) -> str:
    """A shuffle's operand; None: any lane."""
    parts = ["i32 poison" if lane is None else f"i32 {lane}" for lane in lanes]
    return f"<{len(lanes)} x i32> <" + ", ".join(parts) + ">"

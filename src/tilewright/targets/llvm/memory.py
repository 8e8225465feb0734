"""Loads and stores: vectors, masks, gathers, and registers.

A private buffer whose every index is known while the text is written is held in SSA values
(*slots*), so that accumulators are registers without any optimization pass. Whether all uses allow
that shows while emitting: where one does not, `NotInRegisters` is raised, and the function is
written again with the buffer on the stack.
"""

from __future__ import annotations

from functools import partial

from tilewright.dtypes import DType, boolean
from tilewright.errors import CompilationError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, Var
from tilewright.ir.load import Load
from tilewright.targets.llvm.addresses import AddressMap
from tilewright.targets.llvm.expressions import Expressions
from tilewright.targets.llvm.lane_places import lane_places, parts_of, runs_of, vectors_over
from tilewright.targets.llvm.lane_values import both_hold
from tilewright.targets.llvm.masked import (
    Masked,
    MaskedInstructions,
    SingleLanes,
    as_integers,
    first_lanes,
    flags_at,
    from_memory,
    lane_of,
    lanes_among,
    lanes_of,
    more_lanes,
    permuted_lanes,
    placed,
    plain_load,
    plain_store,
    vector_of,
)
from tilewright.targets.llvm.module import LaunchMap
from tilewright.targets.llvm.past_caches import prefetch_ahead, store_past_caches, streamable
from tilewright.targets.llvm.plan import Address, Loads, Terms
from tilewright.targets.llvm.running import any_lane, running
from tilewright.targets.llvm.side_by_side import Near, either, held_at_an_end, side_by_side
from tilewright.targets.llvm.types import constant, lane_mask, splat
from tilewright.targets.llvm.values import Pointer, Result, Value
from tilewright.targets.llvm.writer import Writer


class NotInRegisters(Exception):  # noqa: N818 - a signal to start over, not an error
    """The buffer cannot be held in registers; None: nor can tiles of factors, for products that
    share them."""

    def __init__(self, buffer: Buffer | None) -> None:
        super().__init__(buffer.name if buffer is not None else "factors")
        self.buffer = buffer


class MemoryMap(AddressMap):
    """The places of buffers, while one function is written."""

    def __init__(self, w: Writer, memory_only: set[Buffer | None]) -> None:
        super().__init__(w, Expressions(w, self.load))
        self.memory_only = memory_only
        self._masked: Masked = (
            MaskedInstructions(self.exprs) if w.dialect.masked_memory else SingleLanes(self.exprs)
        )
        self.registers: set[Buffer] = set()
        self.slots: dict[tuple[Buffer, int], Value] = {}
        self.tiles: dict[Buffer, dict[int, tuple[str, str]]] = {}  # shapes of matrix unit tiles
        self.passing_tiles: dict[tuple[str, str], int] = {}  # besides these, in one product
        self._extents: dict[tuple[Buffer, int], int] = {}  # elements of the buffer in each slot
        self.predicate: Value | None = None
        # Where subgroups act as one: the number of the subgroup and of the lane, the number of
        # lanes, whether lanes now run by themselves; registers that running products write.
        self.subgroup: Value | None = None
        self.lane: Value | None = None
        self.team = 0
        # Lanes of a subgroup where each work-item runs by itself (1: unknown).
        self.width = 1
        self.each_lane = False
        self.products: dict[Buffer, set[int]] = {}
        # The kernel's arguments in order, and their descriptors for a device's copy unit.
        self.arguments: list[Buffer | Var] = []
        self.maps: list[LaunchMap] = []

    # Loads.

    def load(self, node: Load, loads: Loads) -> Value:
        """The value of a load: a scalar if all lanes read the same element."""
        address = loads[id(node)]
        if node.buffer in self.registers:
            return self._masked_slot(node, address, loads)
        mask = self.mask(node.mask, loads)
        if mask is False:
            return self.exprs.value(0, node.type)
        stride = self.stride(address)
        masked_by_lane = isinstance(mask, Value) and mask.lanes > 1
        if stride == 0 and not masked_by_lane:
            return self._load_scalar(address, loads, mask)
        assert self.lanes is not None
        shared_element = stride == 0 and node.mask is None and self.w.dialect.masked_memory
        if shared_element and isinstance(mask, Value):
            # One element for all lanes, read if any lane runs.
            flag = Value(any_lane(self.w, running(self.w, self.lanes, mask)), boolean)
            return self._load_scalar(address, loads, flag)
        if stride == 1:
            return self._load_vector(address, loads, mask)
        return self._gather(address, loads, mask)

    def _masked_slot(self, node: Load, address: Address, loads: Loads) -> Value:
        """The value in registers, or 0 where the load's mask is false."""
        mask = True if node.mask is None else self.exprs.evaluate(node.mask, loads)
        if isinstance(mask, Value):
            return self.exprs.chosen(mask, self.slot(address), 0, node.type)
        return self.slot(address) if mask else self.exprs.value(0, node.type)

    def slot(self, address: Address) -> Value:
        """The value of an element or vector of a private buffer in registers."""
        stride = self.stride(address)
        if stride not in (0, 1) and address.buffer not in self.tiles:
            return self._permuted(address)
        offset = self.constant_offset(address)
        if offset is None or address.buffer in self.tiles:
            raise NotInRegisters(address.buffer)
        value = self.slots.get((address.buffer, offset))
        lanes = self.lanes.count if stride == 1 and self.lanes is not None else 1
        if value is not None and value.lanes < lanes:
            value = self._gathered(address.buffer, offset, lanes)
        if value is None:
            raise NotInRegisters(address.buffer)
        if value.lanes != lanes:
            value = first_lanes(self.w, value, lanes)
        return self._of_slot(value, address.buffer.dtype)

    def _of_slot(self, value: Value, dtype: DType) -> Value:
        return value if dtype is boolean else from_memory(self.w, value, dtype)

    def _permuted(self, address: Address) -> Value:
        """Elements of one vector in another order, known now."""
        lanes, buffer = self.lanes, address.buffer
        assert lanes is not None
        step = address.lane_coefficient(lanes.var)
        offsets: list[int] = []
        for lane in (min(lane, lanes.active - 1) for lane in range(lanes.count)):
            with self.exprs.bound(lanes.var, lane):
                offset = self.constant_offset(address)
            offsets.append(-1 if offset is None else offset + lane * step)
        for (held, start), value in self.slots.items():
            if held is buffer and all(start <= at < start + value.lanes for at in offsets):
                permuted = permuted_lanes(self.w, value, [at - start for at in offsets])
                return self._of_slot(permuted, buffer.dtype)
        raise NotInRegisters(buffer)

    def _gathered(self, buffer: Buffer, offset: int, lanes: int) -> Value | None:
        """A vector of elements that are held one by one; None if one is not held."""
        slots = [self.slots.get((buffer, offset + lane)) for lane in range(lanes)]
        elements = [value for value in slots if value is not None and value.lanes == 1]
        return vector_of(self.w, elements) if len(elements) == lanes else None

    def mask(self, mask: Expr | None, loads: Loads) -> Value | bool | None:
        """None: all active lanes; False: none; otherwise an i1 or a vector of them."""
        result: Result = True if mask is None else self.exprs.evaluate(mask, loads)
        if not isinstance(result, Value):
            return self.predicate if result else False
        if self.predicate is None:
            return result
        both = self.exprs.value(result, result.dtype, self.predicate.lanes)
        text = self.w.assign(f"and {both.typed}, {self.predicate.text}")
        return Value(text, both.dtype, both.lanes, lane_values=both_hold(result, self.predicate))

    def _load_scalar(self, address: Address, loads: Loads, mask: Value | bool | None) -> Value:
        pointer = self.pointer(address, loads)
        return self.load_lanes(pointer, address.buffer, 1, 1, mask)

    def load_at(self, pointer: Pointer, buffer: Buffer, lanes: int) -> Value:
        """``lanes`` consecutive elements at ``pointer``."""
        return plain_load(self.w, pointer, buffer.dtype, lanes)

    def _load_vector(self, address: Address, loads: Loads, mask: Value | bool | None) -> Value:
        lanes = self.lanes
        assert lanes is not None
        pointer = self.pointer(address, loads)
        return self.load_lanes(pointer, address.buffer, lanes.active, lanes.count, mask)

    def _load_from_first(self, address: Address, loads: Loads, mask: Value | bool | None) -> Value:
        """The elements that lie side by side, by the place of the first lane's."""
        lanes = self.lanes
        assert lanes is not None
        with self.exprs.bound(lanes.var, 0):
            pointer = self.pointer(address, loads)
        return self.load_lanes(pointer, address.buffer, lanes.active, lanes.count, mask)

    def load_lanes(
        self,
        pointer: Pointer,
        buffer: Buffer,
        active: int,
        count: int,
        mask: Value | bool | None = None,
    ) -> Value:
        """The first ``active`` of ``count`` consecutive elements, 0 where ``mask`` does not hold
        (it is not False). Memory of other elements is not touched."""
        flags = mask if isinstance(mask, Value) else None
        return self._masked.load(pointer, buffer, active, count, flags)

    def _gather(self, address: Address, loads: Loads, mask: Value | bool | None) -> Value:
        """Run by run of lanes, or by an instruction where that is faster."""
        assert self.lanes is not None
        count = self.lanes.count
        if self.w.dialect.masked_memory:
            chosen = self._chosen_of_vectors(address, loads, mask)
            if chosen is not None:
                return more_lanes(self.w, chosen, count)
            near = side_by_side(self.w, address, loads, self.lanes, self.exprs)
            if near is not None:
                if near.distance is None:
                    self.pointer(address, loads)  # evaluates what both ways need
                return either(
                    self.w,
                    self.exprs,
                    near.flag,
                    lambda: self._load_from_first(address, loads, mask),
                    lambda: self._load_beside_an_end(address, loads, mask, near),
                )
        return self._lane_by_lane(address, loads, mask)

    def _load_beside_an_end(
        self, address: Address, loads: Loads, mask: Value | bool | None, near: Near
    ) -> Value:
        """Lanes of which some may be held at the first one or the last one."""
        lanes, count = self.lanes, 0 if self.lanes is None else self.lanes.count
        assert lanes is not None
        # Of what a mask leaves out, the first lane or the last one may lie outside.
        held = None
        if mask is None and lanes.active == count:
            held = held_at_an_end(self.w, address, near, loads, lanes, self.exprs)
        if held is None:
            return self._lane_by_lane(address, loads, mask)

        def load() -> Value:
            pointers = []
            for lane in (0, count - 1):
                with self.exprs.bound(lanes.var, lane):
                    pointers.append(self.pointer(address, loads, lane))
            first, last = pointers
            distance = (1 - count) * address.buffer.dtype.bytes
            before = self.advanced(last, str(distance), distance)
            pairs = ((first, last), (before, first))
            end, start = (
                a.moved(self.w.assign(f"select i1 {held.first}, {a.typed}, {b.typed}"), 1)
                for a, b in pairs
            )
            one = self.load_lanes(end, address.buffer, 1, 1)
            others = self.load_lanes(start, address.buffer, count, count, held.flags)
            return self.exprs.chosen(held.flags, others, one, one.dtype)

        lane_by_lane = partial(self._lane_by_lane, address, loads, mask)
        return either(self.w, self.exprs, held.flag, load, lane_by_lane)

    def _lane_by_lane(self, address: Address, loads: Loads, mask: Value | bool | None) -> Value:
        assert self.lanes is not None
        dtype, count = address.buffer.dtype, self.lanes.count
        apart = lane_places(address, self.lanes, self.exprs) is None
        if apart and dtype in self.w.dialect.gathers:
            assert isinstance(self._masked, MaskedInstructions)
            pointers = self.pointers_of_lanes(address, loads)
            flags = mask if isinstance(mask, Value) else None
            return self._masked.gather(pointers, dtype, self.lanes.active, count, flags)
        whole = Value(splat(constant(0, dtype), dtype, count), dtype, count)
        for lane, size, pointer in self.runs(address, loads):
            flags = lanes_of(self.w, mask, lane, size) if isinstance(mask, Value) else None
            elements = self.load_lanes(pointer, address.buffer, size, size, flags)
            whole = placed(self.w, whole, elements, lane, count)
        return whole

    def _chosen_of_vectors(
        self, address: Address, loads: Loads, mask: Value | bool | None
    ) -> Value | None:
        """The active lanes, where their elements lie in a few vectors, such as every second one of
        a row: these are loaded whole, but for what a ``mask`` of lanes leaves out. What lies
        between two elements of a buffer may be read."""
        assert self.lanes is not None
        places = lane_places(address, self.lanes, self.exprs)
        if places is None:
            return None
        first, buffer = min(places), address.buffer
        starts, width = vectors_over(max(places) - first + 1, self.lanes.count)
        if width == 1:
            return None
        by_lane = isinstance(mask, Value) and mask.lanes > 1
        if by_lane and buffer.dtype.bytes < self.w.dialect.least_masked:
            return None
        if by_lane and len(set(places)) < len(places):
            return None  # lanes that share an element may not share a flag
        if 2 * len(starts) > sum(1 for _ in runs_of(places)):
            return None
        lane = places.index(first)
        with self.exprs.bound(self.lanes.var, lane):
            pointer = self.pointer(address, loads, lane)
        parts = parts_of([place - first for place in places], starts)
        vectors = []
        for start, lanes in zip(starts, parts, strict=True):
            offset = start * buffer.dtype.bytes
            piece = self.advanced(pointer, str(offset), offset) if start else pointer
            flags = flags_at(self.w, mask, lanes, width) if isinstance(mask, Value) else mask
            vectors.append(self.load_lanes(piece, buffer, width, width, flags))
        return lanes_among(self.w, vectors, parts)

    # Stores.

    def store(
        self,
        address: Address,
        result: Result,
        loads: Loads,
        free_tail: bool = False,
        past_caches: bool = False,
    ) -> None:
        """Stores ``result`` at ``address`` in the active lanes.

        With ``free_tail``, the other lanes of registers are not read; with ``past_caches``, the
        memory is not needed soon.
        """
        dtype, stride = address.buffer.dtype, self.stride(address)
        if address.buffer in self.registers:
            self.store_slot(address, result, stride, free_tail)
            return
        if self.lanes is None:
            self._store_scalar(address, self.exprs.value(result, dtype), loads)
            return
        if stride == 0 and self.lanes.active > 1 and self.predicate is None:
            uniform = not isinstance(result, Value) or result.lanes == 1
            if uniform and address.buffer.space is Space.PRIVATE:
                self._store_scalar(address, self.exprs.value(result, dtype), loads)
                return
            raise CompilationError(
                f"all lanes of {self.lanes.var.name!r} store to one element of "
                f"{address.buffer.name!r}",
                cure="vectorize a dim that the result has",
            )
        value = self.exprs.value(result, dtype, self.lanes.count)
        if stride == 1:
            self._store_vector(address, value, loads, past_caches)
        else:
            self._scatter(address, value, loads)

    def store_slot(
        self, address: Address, result: Result, stride: int | None, free_tail: bool
    ) -> None:
        """Puts a value in registers; under a predicate, only in the lanes where it holds."""
        offset = self.constant_offset(address)
        if offset is None or stride not in (0, 1) or address.buffer in self.tiles:
            raise NotInRegisters(address.buffer)
        lanes = self.lanes.count if stride == 1 and self.lanes is not None else 1
        if isinstance(result, Value) and result.lanes > lanes:
            raise NotInRegisters(address.buffer)
        key = (address.buffer, offset)
        # As integers, 16-bit floats pass from block to block without being widened.
        value = as_integers(self.w, self.exprs.value(result, address.buffer.dtype, lanes))
        old = self.slots.get(key)
        if old is None:
            active = self.lanes.active if lanes > 1 and self.lanes is not None else 1
            self._check_overlap(address.buffer, offset, active)
            self._extents[key] = active
        elif old.lanes != lanes:
            raise NotInRegisters(address.buffer)
        if self.predicate is not None:
            if old is None or self.predicate.lanes != lanes:
                raise NotInRegisters(address.buffer)
            text = self.w.assign(f"select {self.predicate.typed}, {value.typed}, {old.typed}")
            value = Value(text, value.dtype, lanes)
        if old is not None and lanes > 1 and not free_tail:
            value = self._on_active(value, old)
        self.slots[key] = value

    def put_slot(self, buffer: Buffer, offset: int, value: Value) -> None:
        """Holds all lanes of ``value`` as the elements from ``offset`` on."""
        key = (buffer, offset)
        if key not in self.slots:
            self._check_overlap(buffer, offset, value.lanes)
            self._extents[key] = value.lanes
        self.slots[key] = value

    def _on_active(self, value: Value, old: Value) -> Value:
        """``value`` in the active lanes, ``old`` in the others."""
        assert self.lanes is not None
        if self.lanes.active == value.lanes:
            return value
        flags = Value(lane_mask(self.lanes.active, value.lanes), boolean, value.lanes)
        text = self.w.assign(f"select {flags.typed}, {value.typed}, {old.typed}")
        return Value(text, value.dtype, value.lanes)

    def _check_overlap(self, buffer: Buffer, offset: int, count: int) -> None:
        """Refuses overlapping slots; lanes after the tail of a vector hold no elements."""
        for key in self.slots:
            held, start = key
            if held is buffer and start < offset + count and offset < start + self._extents[key]:
                raise NotInRegisters(buffer)

    def _store_scalar(self, address: Address, value: Value, loads: Loads) -> None:
        pointer = self.pointer(address, loads)
        plain_store(self.w, pointer, as_integers(self.w, value))

    def _store_vector(
        self, address: Address, value: Value, loads: Loads, past_caches: bool = False
    ) -> None:
        assert self.lanes is not None
        pointer, whole = self.pointer(address, loads), self.lanes.active == value.lanes
        past_caches = past_caches and bool(self.w.dialect.stream_fence)
        if past_caches and whole and self.predicate is None and streamable(pointer, value):
            store_past_caches(self.w, pointer, value)
            self._prefetch_loads(loads, value.lanes)
            return
        self._masked.store(pointer, value, self.lanes.active, self.predicate)

    def _prefetch_loads(self, loads: Loads, lanes: int) -> None:
        """Prefetches, for later iterations, arrays that the vector loop reads in order."""
        prefetched: set[tuple[int, int, Terms, Terms]] = set()
        for address in loads.values():
            key = (id(address.buffer), address.constant, address.unrolled, address.scoped)
            along = (
                address.buffer.space is Space.GLOBAL
                and self.stride(address) == 1
                and not address.loose
            )
            if not along or key in prefetched:
                continue
            prefetched.add(key)
            prefetch_ahead(self.w, self.pointer(address, loads), lanes * address.buffer.dtype.bytes)

    def _scatter(self, address: Address, value: Value, loads: Loads) -> None:
        whole, predicate = as_integers(self.w, value), self.predicate
        for lane, size, pointer in self.runs(address, loads):
            elements = lanes_of(self.w, whole, lane, size)
            if predicate is None:
                plain_store(self.w, pointer, elements)
            elif size == 1:
                flag = lane_of(self.w, predicate, lane)
                self._masked.store_if(pointer, elements, flag.text)
            else:
                flags = lanes_of(self.w, predicate, lane, size)
                self._masked.store(pointer, elements, size, flags)

"""Long rows in order, by the digits of keys: text of one length for rows of any.

A key is an integer without sign, which says where an element stands: its bits, turned so that they
order as values do, NaN the greatest, both zeros alike. Rows are sorted by one digit of eight bits
after the other, the least first: how often each comes says where its elements begin. A digit that
is the same everywhere is passed over. Where few elements are asked for, each that is before the
last of those so far is inserted among them. Where more are asked for of a long row, a bound is
taken from the least elements of as many parts, and only what comes up to it is sorted. Source:
Knuth, "The Art of Computer Programming", volume 3, 5.2.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.dtypes import DType, bf16, f16, f32, f64, u8, u16, u32, u64
from tilewright.problems.library.sort_networks import Order
from tilewright.problems.library.wording import stored

_DIGIT = 8
# Elements that are looked at together: a part of a row is passed over by its least key.
_PART = 32
# Of more, or of as many in a short row, inserting takes longer than sorting all.
_FEW = 64


@dataclass(frozen=True, slots=True)
class RadixSort:
    """From ``src`` (of ``source``) to ``dst`` (of ``result``) and ``indices`` (of ``places``)."""

    order: Order
    source: DType
    places: DType
    result: DType

    def text(self) -> str:
        """The statements."""
        kept = self.order.kept
        if kept <= _FEW and kept**2 <= 2 * self.order.size:
            return "\n".join((*self._selected(), *self._results()))
        sieved = 2 * kept <= self._parts
        return "\n".join((*(self._sieved() if sieved else self._whole()), *self._results()))

    @property
    def _parts(self) -> int:
        """How many parts a row has."""
        return -(-self.order.size // _PART)

    def _by_parts(self) -> list[str]:
        """The keys of rows in ``all``, filled up with the last there is, and of each part the
        ``least``."""
        axis, size, parts = self.order.axis, self.order.size, self._parts
        d, p = self.order.domain(parts * _PART), self.order.domain(parts)
        here = f"d{axis} < {size}"
        last = f"{self._key}({int(self._key.highest)})"
        element = self._at(f"d{axis} * {_PART} + e")
        part = self._at(f"d{axis}")
        return [
            f"alloc all: {self._key}[{self._sizes(parts * _PART)}]",
            f"alloc least: {self._key}[{self._sizes(parts)}]",
            f"compute load({d.dims()}):",
            f"  x = src[{d.at()} | {here}]",
            f"  all[{part}] = select({here}, {self._key_of_x()}, {last})",
            f"compute start({p.dims()}):",
            f"  least[{part}] = {last}",
            f"compute parts({p.dims()}, e in {_PART}):",
            f"  x = all[{element}]",
            f"  least[{part}] min= x",
        ]

    def _whole(self) -> list[str]:
        """All of a row, in ``places``."""
        axis, size = self.order.axis, self.order.size
        d = self.order.domain(size)
        return [
            f"alloc keys: {self._key}[{self._sizes(2, size)}]",
            f"alloc places: {self.places}[{self._sizes(2, size)}]",
            f"compute load({d.dims()}):",
            f"  x = src[{d.at()}]",
            f"  keys[{self._at('0', f'd{axis}')}] = {self._key_of_x()}",
            f"  places[{self._at('0', f'd{axis}')}] = {self.places}(d{axis})",
            "opaque sort writes keys, places:",
            *self._over_rows(
                (
                    *self._scratch(),
                    *self._sort(f"{size}"),
                    "if now[] == 1:",
                    f"  for i in {size}:",
                    f"    places[{self._at('0', 'i')}] = places[{self._at('1', 'i')}]",
                )
            ),
        ]

    def _selected(self) -> list[str]:
        """The first of a row, in ``places``: those so far, each of the rest in its place among
        them. What is not before the last of them is passed over, by parts where it can be."""
        size, kept, parts = self.order.size, self.order.kept, self._parts
        last = f"{self._key}({int(self._key.highest)})"
        return [
            *self._by_parts(),
            f"alloc places: {self.places}[{self._sizes(1, kept)}]",
            "opaque topk reads all, least writes places:",
            *self._over_rows(
                (
                    f"alloc best: {self._key}[{kept}] private",
                    "alloc held: s64[] private",
                    "alloc at: s64[] private",
                    "held[] = 0",
                    f"for i in {kept}:",
                    f"  best[i] = {last}",
                    f"for part in {parts}:",
                    f"  if held[] < {kept} or least[{self._at('part')}] < best[{kept - 1}]:",
                    f"    for i in min({_PART}, {size} - part * {_PART}):",
                    f"      place: s64 = part * {_PART} + i",
                    f"      key: {self._key} = all[{self._at('place')}]",
                    f"      if held[] < {kept} or key < best[{kept - 1}]:",
                    *(f"        {line}" for line in self._inserted()),
                )
            ),
        ]

    def _sieved(self) -> list[str]:
        """The first of a row, in ``places``: what is not behind the ``bound``, in order. As many
        parts have an element that is not."""
        size, kept, parts = self.order.size, self.order.kept, self._parts
        return [
            *self._by_parts(),
            f"alloc keys: {self._key}[{self._sizes(2, size)}]",
            f"alloc places: {self.places}[{self._sizes(2, size)}]",
            "opaque topk reads all, least writes keys, places:",
            *self._over_rows(
                (
                    *self._scratch(),
                    "alloc held: s64[] private",
                    f"for i in {parts}:",
                    f"  keys[{self._at('0', 'i')}] = least[{self._at('i')}]",
                    f"  places[{self._at('0', 'i')}] = {self.places}(i)",
                    *self._sort(f"{parts}"),
                    "half: s64 = now[]",
                    f"bound: {self._key} = keys[{self._at('half', f'{kept - 1}')}]",
                    "held[] = 0",
                    f"for part in {parts}:",
                    f"  if least[{self._at('part')}] <= bound:",
                    f"    for i in min({_PART}, {size} - part * {_PART}):",
                    f"      place: s64 = part * {_PART} + i",
                    f"      key: {self._key} = all[{self._at('place')}]",
                    "      if key <= bound:",
                    f"        keys[{self._at('0', 'held[]')}] = key",
                    f"        places[{self._at('0', 'held[]')}] = {self.places}(place)",
                    "        held[] = held[] + 1",
                    "many: s64 = held[]",
                    *self._sort("many"),
                    "if now[] == 1:",
                    f"  for i in {kept}:",
                    f"    places[{self._at('0', 'i')}] = places[{self._at('1', 'i')}]",
                )
            ),
        ]

    def _inserted(self) -> list[str]:
        """``key`` and ``place`` behind those of the best that are not behind it."""
        before = "at[] - 1"
        return [
            f"at[] = min(held[], {self.order.kept - 1})",
            f"held[] = min(held[] + 1, {self.order.kept})",
            f"while 0 < at[] and key < best[max({before}, 0)]:",
            f"  best[at[]] = best[{before}]",
            f"  places[{self._at('0', 'at[]')}] = places[{self._at('0', before)}]",
            f"  at[] = {before}",
            "best[at[]] = key",
            f"places[{self._at('0', 'at[]')}] = {self.places}(place)",
        ]

    def _scratch(self) -> tuple[str, ...]:
        digits = self._key.bits // _DIGIT
        return (
            f"alloc counts: {self.places}[{digits}, {1 << _DIGIT}] private",
            f"alloc sum: {self.places}[] private",
            "alloc now: s64[] private",
        )

    def _sort(self, count: str) -> list[str]:
        """The first ``count`` of ``keys`` and ``places`` in order: in the half ``now``."""
        digits, zero, one = self._key.bits // _DIGIT, f"{self.places}(0)", f"{self.places}(1)"

        def digit(key: str) -> str:
            shifted = f"{key} >> {self._key}(digit * {_DIGIT})" if digits > 1 else key
            return f"s64(({shifted}) and {self._key}({(1 << _DIGIT) - 1}))"

        element, first = f"keys[{self._at('0', 'i')}]", f"keys[{self._at('old', '0')}]"
        return [
            f"for digit in {digits}:",
            f"  for b in {1 << _DIGIT}:",
            f"    counts[digit, b] = {zero}",
            f"for i in {count}:",
            f"  unrolled for digit in {digits}:",
            f"    b: s64 = {digit(element)}",
            f"    counts[digit, b] = counts[digit, b] + {one}",
            "now[] = 0",
            f"for digit in {digits}:",
            "  old: s64 = now[]",
            f"  first: s64 = {digit(first)}",
            f"  if counts[digit, first] < {self.places}({count}):",
            f"    sum[] = {zero}",
            f"    for b in {1 << _DIGIT}:",
            f"      count: {self.places} = counts[digit, b]",
            "      counts[digit, b] = sum[]",
            "      sum[] = sum[] + count",
            f"    for i in {count}:",
            f"      key: {self._key} = keys[{self._at('old', 'i')}]",
            f"      b: s64 = {digit('key')}",
            f"      place: {self.places} = counts[digit, b]",
            f"      counts[digit, b] = place + {one}",
            f"      keys[{self._at('1 - old', 's64(place)')}] = key",
            f"      places[{self._at('1 - old', 's64(place)')}] = places[{self._at('old', 'i')}]",
            "    now[] = 1 - old",
        ]

    def _results(self) -> list[str]:
        axis, kept = self.order.axis, self.order.domain(self.order.kept)
        source = Order(self.order.shape, axis, False, 0).domain(self.order.size)
        return [
            f"compute result({kept.dims()}):",
            f"  p = places[{self._at('0', f'd{axis}')}]",
            f"  x = src[{source.at({axis: 's64(p)'})}]",
            f"  dst[{kept.at()}] = {stored('x', self.source, self.result)}",
            f"  indices[{kept.at()}] = p",
        ]

    @property
    def _key(self) -> DType:
        """The type of keys."""
        return {8: u8, 16: u16, 32: u32, 64: u64}[self._compared.bits]

    @property
    def _compared(self) -> DType:
        """What is compared: narrow floats that have no operations of their own as f32."""
        exact = self.source in (f64, f32, f16, bf16) or not self.source.is_float
        return self.source if exact else f32

    def _key_of_x(self) -> str:
        """The key of ``x``."""
        type_, key = self._compared, self._key
        half, every = f"{key}({1 << key.bits - 1})", f"{key}({int(key.highest)})"
        if type_.is_float:
            value = "x" if type_ is self.source else f"{type_}(x)"
            bits = f"bitcast({key}, {value})"
            turned = f"select({bits} < {half}, {bits} or {half}, not {bits})"
            result = f"select(x != x, {every}, select(x == {self.source}(0.0), {half}, {turned}))"
        else:
            result = f"{key}(x) ^ {half}" if type_.kind == "int" else f"{key}(x)"
        return f"not ({result})" if self.order.descends else result

    # A row lies together: its dims in front, then halves of buffers, then its elements.

    def _others(self) -> Iterable[int]:
        return (n for n in range(len(self.order.shape)) if n != self.order.axis)

    def _sizes(self, *last: int) -> str:
        return ", ".join(map(str, (*(self.order.shape[n] for n in self._others()), *last)))

    def _at(self, *last: str) -> str:
        return ", ".join((*(f"d{n}" for n in self._others()), *last))

    def _over_rows(self, lines: Iterable[str]) -> list[str]:
        """The lines of a nest, for each row."""
        loops = [f"for d{n} in {self.order.shape[n]}:" for n in self._others()]
        outer = [f"{'  ' * (n + 1)}{line}" for n, line in enumerate(loops)]
        return [*outer, *(f"{'  ' * (len(loops) + 1)}{line}" for line in lines)]

"""What the arrays of a call have to be, and how they become what a program runs on."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.engine.placing import Call, Packed, Placing
from tilewright.engine.program import Code
from tilewright.engine.signature import ArrayForm, Signature
from tilewright.errors import ArgumentError, PlacementError
from tilewright.runtime.results import Finish, maker_of, new_result


@dataclass(frozen=True)
class PackCode:
    """How one argument is packed: the code, the forms of what it makes (the argument in another
    order, and what else is made of it), and what tells packings apart."""

    code: Code
    forms: tuple[ArrayForm, ...]
    key: str


Getter = Callable[[Any], int]

# Pairs of a result and another argument that are looked at one by one.
_PAIRS = 256


class Fitting:
    """The arrays of a kernel whose forms are ``forms``; some of them are packed by ``packs``.

    Calls find here what they need without a detour: they take microseconds.
    """

    def __init__(
        self,
        signature: Signature,
        forms: Mapping[str, ArrayForm],
        packs: Mapping[str, PackCode],
        code: Code,
        target: str,
    ) -> None:
        self.forms = forms
        self.signature = signature
        self._packs = packs
        self._on_device = code.device is not None
        self._target = target
        self._specs = {
            name: form.spec(name, name in signature.results)
            for name, form in forms.items()
            if name not in packs
        }
        # One for each pointer that the code takes: of what is packed, there may be several.
        self._getters: tuple[tuple[str, Getter], ...] = tuple(
            (name, getter) for name in forms for getter in self._getters_of(name)
        )
        self._names = tuple(name for name, _ in self._getters)
        self._sized = self._sizes()
        results = sum(is_result for _, is_result in self._sized)
        self._pairs = self._may_overlap() if results * len(self._sized) <= _PAIRS else ()
        self._many = results > 0 and not self._pairs
        device = code.device
        self.placing = None if device is None else Placing(device, self._getters, self._specs)

    def passed(self, name: str) -> tuple[ArrayForm, ...]:
        """The forms of what the code gets for an argument: its own, or those of what is packed."""
        return self._packs[name].forms if name in self._packs else (self.forms[name],)

    def allocate(
        self, missing: Sequence[str], arrays: dict[str, Any], stream: Any
    ) -> dict[str, Finish]:
        """Puts new arrays for the ``missing`` results into ``arrays``: where the others are, and of
        the library that made them. What the caller gets of some is made of them by a function."""
        finish: dict[str, Finish] = {}
        maker = maker_of([arrays[name] for name in self.forms if name in arrays])
        for name in missing:
            form = self.forms[name]
            memory = None
            if self.placing is not None:
                memory = self.placing.empty(name, form, arrays, stream)
            if memory is None:
                memory, finishing = new_result(name, form, maker)
                if finishing is not None:
                    finish[name] = finishing
            arrays[name] = memory
        return finish

    def pointers(self, arrays: dict[str, Any], stream: Any) -> list[int]:
        """Of arrays of the host. Raises `ArgumentError` for one that does not fit."""
        if stream is not None:
            raise ArgumentError(
                f"there are no streams for {self._target}",
                where="stream",
                cure="leave it out: the call returns when the kernel is done",
            )
        try:
            pointers = [getter(arrays[name]) for name, getter in self._getters]
        except KeyError as error:
            raise self.signature.misnamed(arrays, error.args[0]) from None
        self._check(arrays, pointers)
        return pointers

    def holding(self, held: dict[str, Any], keeps: bool) -> Callable[[dict[str, Any]], Any]:
        """`pointers`, from now on without looking at the arrays ``held``, which it ``keeps`` or the
        caller does: a function of the others, which takes as long as there are others. Its result
        is an array of ctypes'."""
        usual, rest = [0] * len(self._getters), list[tuple[int, str, Getter]]()
        for n, (name, getter) in enumerate(self._getters):
            if name in held:
                usual[n] = getter(held[name])
            else:
                rest.append((n, name, getter))
        apart = self._apart_from(usual, [n for n, _, _ in rest])
        kind = ctypes.c_uint64 * len(usual)
        template, missing = kind(*usual), len(self.forms) - len(held)
        names = held if keeps else dict.fromkeys(held)

        def pointers(arrays: dict[str, Any]) -> Any:
            filled = kind.from_buffer_copy(template)
            try:
                for n, name, getter in rest:
                    filled[n] = getter(arrays[name])
            except KeyError as error:
                raise self.signature.misnamed(names | arrays, error.args[0]) from None
            if len(arrays) != missing or not apart(filled):
                self._check(names | arrays, list(filled))
            return filled

        return pointers

    def _apart_from(self, held: Sequence[int], rest: Sequence[int]) -> Callable[[Any], bool]:
        """Whether no result among the arguments at ``rest`` shares memory with another argument, as
        a function of all pointers. Those of the other arguments stay as in ``held``."""
        others = set(range(len(held))).difference(rest)
        if any(self._sized[n][1] for n in others):
            return lambda pointers: False  # each call looks at all of them
        starts, ends = list[int](), list[int]()
        for start, size in sorted((held[n], self._sized[n][0]) for n in others):
            if size and ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], start + size)
            elif size:
                starts.append(start)
                ends.append(start + size)
        sized = [(n, *self._sized[n]) for n in rest]
        results = [(n, size) for n, size, is_result in sized if is_result and size]

        def apart(pointers: Any) -> bool:
            for n, size in results:
                before = bisect_left(starts, pointers[n] + size)
                if before and ends[before - 1] > pointers[n]:
                    return False
            return not _some_overlap((pointers[n], (size, result)) for n, size, result in sized)

        return apart

    def place(self, placing: Placing, arrays: dict[str, Any], stream: Any) -> Call:
        """Of arrays some of which may be on the device. Raises `ArgumentError`."""
        try:
            call = placing.place(arrays, stream)
        except KeyError as error:
            raise self.signature.misnamed(arrays, error.args[0]) from None
        self._check(arrays, call.pointers)
        return call

    def _getters_of(self, name: str) -> Iterator[Getter]:
        pack = self._packs.get(name)
        if pack is None:
            yield self._specs[name].pointer
            return
        for number in range(len(pack.forms)):
            yield self._packed_getter(name, pack.key, number)

    def _packed_getter(self, name: str, key: str, number: int) -> Getter:
        on_device = self._on_device

        def pointer(array: Any) -> int:
            if type(array) is Packed and array.key == key and (on_device or array.device is None):
                return array.pointers[number]
            state = "packed for another kernel" if type(array) is Packed else "not packed"
            raise ArgumentError(
                f"{name} is {state}",
                where=f"parameter {name}",
                why="this kernel reads it in an order of its own",
                cure=f"pass kernel.pack({name!r}, {name}) and keep the result for further calls",
            )

        return pointer

    def _check(self, arrays: dict[str, Any], pointers: list[int]) -> None:
        """Whether there is one for each argument, and no result that shares memory."""
        if len(arrays) != len(self.forms):
            raise self.signature.misnamed(arrays)
        for position, other, size, other_size in self._pairs:
            start, second = pointers[position], pointers[other]
            if start < second + other_size and second < start + size:
                raise self._overlap(position, other)
        if self._many and _some_overlap(zip(pointers, self._sized, strict=True)):
            for position, other, size, other_size in self._may_overlap():
                start, second = pointers[position], pointers[other]
                if start < second + other_size and second < start + size:
                    raise self._overlap(position, other)

    def _sizes(self) -> list[tuple[int, bool]]:
        """The bytes of what each pointer is of, and whether it is of a result."""
        passed = [form for name in self.forms for form in self.passed(name)]
        # (A layout spans something without elements, too.)
        sizes = (0 if 0 in form.shape else form.extent * form.dtype.bytes for form in passed)
        results = self.signature.results
        return [(size, name in results) for name, size in zip(self._names, sizes, strict=True)]

    def _may_overlap(self) -> tuple[tuple[int, int, int, int], ...]:
        """Positions and sizes in bytes of each result and each other pointer."""
        return tuple(
            (position, other, size, other_size)
            for position, (size, is_result) in enumerate(self._sized)
            for other, (other_size, _) in enumerate(self._sized)
            if is_result and other != position and size and other_size
        )

    def _overlap(self, position: int, other: int) -> PlacementError:
        """A result must not share memory with another argument, which the code relies on."""
        name, second = self._names[position], self._names[other]
        return PlacementError(
            f"{name} shares memory with {second}",
            where=f"parameter {name}",
            why="the kernel may write a result before it has read all inputs",
            cure="pass arrays that do not overlap",
        )


def _some_overlap(spans: Iterable[tuple[int, tuple[int, bool]]]) -> bool:
    """Whether a result shares memory with another argument. ``spans`` are the arguments: pointer,
    bytes, whether it is a result. Graphs have hundreds, too many to compare in pairs."""
    ends = of_results = 0
    for start, (size, is_result) in sorted((at, span) for at, span in spans if span[0]):
        if start < (ends if is_result else of_results):
            return True
        ends = max(ends, start + size)
        if is_result:
            of_results = max(of_results, start + size)
    return False

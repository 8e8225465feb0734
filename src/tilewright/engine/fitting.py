"""What the arrays of a call have to be, and how they become what a program runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.engine.placing import Call, Packed, Placing
from tilewright.engine.program import Code
from tilewright.engine.signature import Form, Signature
from tilewright.errors import ArgumentError
from tilewright.runtime.results import Finish, maker_of, new_result


@dataclass(frozen=True)
class PackCode:
    """How one argument is packed: the code, the packed form, and what tells packings apart."""

    code: Code
    form: Form
    key: str


Getter = Callable[[Any], int]


class Fitting:
    """The arrays of a kernel whose forms are ``forms``; some of them are packed by ``packs``.

    Calls find here what they need without a detour: they take microseconds.
    """

    def __init__(
        self,
        signature: Signature,
        forms: Mapping[str, Form],
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
        self._getters: tuple[tuple[str, Getter], ...] = tuple(
            (name, self._getter(name)) for name in forms
        )
        self._pairs = self._may_overlap()
        device = code.device
        self.placing = None if device is None else Placing(device, dict(self._getters), self._specs)

    def bytes(self, name: str) -> int:
        """From the first to the last element of an argument, packed if it is to be."""
        form = self._packs[name].form if name in self._packs else self.forms[name]
        return form.extent * form.dtype.bytes

    def allocate(
        self, missing: Sequence[str], arrays: dict[str, Any], stream: Any
    ) -> dict[str, Finish]:
        """Puts new arrays for the ``missing`` results into ``arrays``: where the others are, and of
        the library that made them. What the caller gets of some is made of them by a function."""
        finish: dict[str, Finish] = {}
        maker = maker_of([arrays[name] for name in self.forms if name in arrays])
        for name in missing:
            form = self.forms[name]
            found = None
            if self.placing is not None:
                found = self.placing.empty(name, form, arrays, stream)
            if found is None:
                found, finishing = new_result(name, form, maker)
                if finishing is not None:
                    finish[name] = finishing
            arrays[name] = found
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

    def place(self, placing: Placing, arrays: dict[str, Any], stream: Any) -> Call:
        """Of arrays some of which may be on the device. Raises `ArgumentError`."""
        try:
            call = placing.place(arrays, stream)
        except KeyError as error:
            raise self.signature.misnamed(arrays, error.args[0]) from None
        self._check(arrays, call.pointers)
        return call

    def _getter(self, name: str) -> Getter:
        pack = self._packs.get(name)
        if pack is None:
            return self._specs[name].pointer
        key, on_device = pack.key, self._on_device

        def pointer(array: Any) -> int:
            if type(array) is Packed and array.key == key and (on_device or array.device is None):
                return array.pointer
            given = "packed for another kernel" if type(array) is Packed else "not packed"
            raise ArgumentError(
                f"{name} is {given}",
                where=f"parameter {name}",
                why="this kernel reads it in an order of its own",
                cure=f"pass kernel.pack({name!r}, {name}) and keep the result for further calls",
            )

        return pointer

    def _check(self, arrays: dict[str, Any], pointers: list[int]) -> None:
        """Whether there is one for each argument, and no result that shares memory."""
        if len(arrays) != len(pointers):
            raise self.signature.misnamed(arrays)
        for position, other, size, other_size in self._pairs:
            start, second = pointers[position], pointers[other]
            if start < second + other_size and second < start + size:
                raise self._overlap(position, other)

    def _may_overlap(self) -> tuple[tuple[int, int, int, int], ...]:
        """Positions and sizes in bytes of each result and each other argument."""
        names, results = tuple(self.forms), self.signature.results
        sizes = [self.bytes(name) for name in names]
        return tuple(
            (position, other, sizes[position], sizes[other])
            for position, name in enumerate(names)
            for other in range(len(names))
            if name in results and other != position
        )

    def _overlap(self, position: int, other: int) -> ArgumentError:
        """A result must not share memory with another argument, which the code relies on."""
        names = tuple(self.forms)
        name, second = names[position], names[other]
        return ArgumentError(
            f"{name} shares memory with {second}",
            where=f"parameter {name}",
            why="the kernel may write a result before it has read all inputs",
            cure="pass arrays that do not overlap",
        )

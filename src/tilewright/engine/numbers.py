"""The numbers of a call, given or told by the shapes of arrays; what arrays have to be for them;
and the constants beside the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from numpy.typing import NDArray

from tilewright.dtypes import dtype
from tilewright.engine.fitting import Fitting, PackCode
from tilewright.engine.placing import Call
from tilewright.engine.program import Code
from tilewright.engine.signature import ArrayForm, Signature, form_of
from tilewright.errors import ArgumentError
from tilewright.ir.arguments import Scalar, scalar_argument
from tilewright.ir.buffer import Buffer
from tilewright.ir.constants import missing_constant
from tilewright.ir.expr import const
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Param, ScalarParam
from tilewright.ir.symbols import substitute_buffer
from tilewright.newest import Newest
from tilewright.runtime.arrays import describe
from tilewright.runtime.results import aligned_memory

# Fittings that are kept: sizes that come again find theirs.
_KEPT = 128


class Numbers:
    """Reads the numbers of calls of a kernel that has some, and keeps what arrays have to be."""

    def __init__(
        self,
        signature: Signature,
        packs: Mapping[str, PackCode],
        code: Code,
        target: str,
        kernel: str,
        constants: Mapping[str, NDArray[Any]],
    ) -> None:
        """Raises `ArgumentError` for a constant whose contents are not among ``constants``."""
        self._signature = signature
        self._made = (packs, code, target)
        self._counts = {name: len(pack.forms) for name, pack in packs.items()}
        self._where = f"call of kernel {kernel}"
        self._names = {scalar.name for scalar in signature.scalars}
        # What is aligned for a kernel's vectors, and kept.
        self._constants: dict[str, Any] = {}
        for constant in signature.constants:
            assert constant.digest is not None
            if constant.digest not in constants:
                raise missing_constant(constant)
            self._constants[constant.name] = aligned(constants[constant.digest])
        symbols = {symbol for argument in signature.arguments for symbol in argument.buffer.symbols}
        self._symbols = [scalar for scalar in signature.scalars if scalar.var in symbols]
        self._fittings: Newest[tuple[Scalar, ...], Fitting] = Newest(_KEPT)
        # The arrays whose shapes tell numbers, and what those shapes told.
        self._tellers = tuple(dict.fromkeys(a for at in signature.sizes.values() for a, _ in at))
        self._told_by: Newest[tuple[Any, ...], dict[str, Scalar]] = Newest(_KEPT)
        # Of each parameter in order: what a call passes, the address of a constant, or how many
        # pointers.
        self._places: list[tuple[str, int]] = [self._place(param) for param in signature.params]

    def take(self, arrays: dict[str, Any]) -> dict[str, Scalar]:
        """Takes the numbers out of the arguments ``arrays``, which are the arrays then.

        Raises `ArgumentError` for one that is missing or that breaks a promise, and for arrays that
        disagree about a size.
        """
        shapes = tuple([_shape(arrays.get(name), name) for name in self._tellers])
        cached = self._told_by.get(shapes)
        if cached is None or not cached.keys().isdisjoint(arrays):
            cached = {}
        numbers: dict[str, Scalar] = {**cached}
        telling = not cached
        for param in self._signature.scalars:
            if param.name in cached:
                continue
            told = self._told(param.name, arrays)
            if param.name in arrays:
                value, where = arrays.pop(param.name), self._where
            elif told is not None:
                value, where = told
            else:
                self._check_tellers(param.name, arrays)
                raise ArgumentError(
                    f"the argument {param.name!r} is missing",
                    where=self._where,
                    why=f"the kernel declares it as `{to_text(param)}`" + self._untold(param.name),
                    cure=f"pass {param.name}=...",
                )
            numbers[param.name] = scalar_argument(param, value, where)
            telling = telling and (told is None or value is told[0])
        if telling and self._tellers:
            names = self._signature.sizes
            self._told_by[shapes] = {name: numbers[name] for name in numbers if name in names}
        return numbers

    def fitting(self, numbers: Mapping[str, Scalar]) -> Fitting:
        """What the arrays of a call with these numbers have to be."""
        key = tuple(numbers[symbol.name] for symbol in self._symbols)
        kept = self._fittings.get(key)
        if kept is None:
            values = {
                symbol.var: const(numbers[symbol.name], symbol.dtype) for symbol in self._symbols
            }
            forms = {
                argument.name: _form(substitute_buffer(argument.buffer, values))
                for argument in self._signature.arguments
            }
            self._check_forms(forms)
            kept = Fitting(self._signature, forms, *self._made)
            self._fittings[key] = kept
        return kept

    def arguments(self, pointers: list[int], numbers: Mapping[str, Scalar]) -> list[Any]:
        """What a program runs on: ``pointers`` to the arrays, to constants, and numbers, in their
        order."""
        values: list[Any] = []
        first = 0
        for name, count in self._places:
            if name in numbers:
                values.append(numbers[name])
            elif count:
                values += pointers[first : first + count]
                first += count
            else:
                values.append(self._constants[name].ctypes.data)
        return values

    def _place(self, param: Param | ScalarParam) -> tuple[str, int]:
        """The name of a parameter, and how many pointers a call has for it."""
        is_ours = param.name in self._names or param.name in self._constants
        return param.name, 0 if is_ours else self._counts.get(param.name, 1)

    def resident(self, passed: tuple[bool, ...]) -> tuple[bool, ...]:
        """Which arrays are in a device's memory: constants are not, of the others ``passed``
        says."""
        rest = iter(passed)
        flags: list[bool] = []
        for param in self._signature.params:
            if param.name in self._constants:
                flags.append(False)
            elif param.name not in self._names:
                flags += islice(rest, self._counts.get(param.name, 1))
        return tuple(flags)

    def placed(self, call: Call, numbers: Mapping[str, Scalar]) -> Call:
        """``call``, of the arrays, with constants and numbers."""
        resident = self.resident(call.placement.resident)
        return replace(
            call,
            pointers=self.arguments(call.pointers, numbers),
            placement=replace(call.placement, resident=resident),
        )

    def _told(self, name: str, arrays: Mapping[str, Any]) -> tuple[int, str] | None:
        """The size ``name`` as the shape of an array tells it, and where; None where none does."""
        first: tuple[int, str] | None = None
        for array, dim in self._signature.sizes.get(name, ()):
            shape = _shape(arrays.get(array), array)
            if shape is None or dim >= len(shape):
                continue  # what is no such array is refused later
            size, place = int(shape[dim]), f"dim {dim} of {array}"
            if first is None:
                first = size, f"{self._where}: {name} is {place}"
            elif size != first[0]:
                raise ArgumentError(
                    f"{name} is {first[0]} and {size}",
                    where=f"{first[1]}, and {place}",
                    why="arrays of one call agree about a size",
                    cure="pass arrays of shapes that fit",
                )
        return first

    def _check_forms(self, forms: Mapping[str, ArrayForm]) -> None:
        """`ArgumentError` for an array that would have less than no elements along a dim."""
        for name, form in forms.items():
            if min(form.shape, default=0) < 0:
                raise ArgumentError(
                    f"{name} would have the shape {list(form.shape)}",
                    where=self._where,
                    why="a size of it is calculated from those of other arrays",
                    cure="pass greater arrays, or compile for these sizes as numbers",
                )

    def _check_tellers(self, name: str, arrays: Mapping[str, Any]) -> None:
        """`ArgumentError` for an array that has to be there, and would tell the size ``name``."""
        for array, _ in self._signature.sizes.get(name, ()):
            argument = self._signature.argument(array)
            if arrays.get(array) is None and argument.access != "out":
                raise ArgumentError(
                    f"{array} is None" if array in arrays else f"the argument {array!r} is missing",
                    where=self._where,
                    why=f"the kernel declares it as `{argument.buffer!r}`",
                    cure=f"pass an array, {array}=...",
                )

    def _untold(self, name: str) -> str:
        places = self._signature.sizes.get(name, ())
        if not places:
            return ", and no array has a dim that is just so long"
        names = ", ".join(array for array, _ in places)
        return f", and no array is given whose shape tells it: {names}"


def call_arguments(
    fitting: Fitting | None,
    numbers: Numbers | None,
    arrays: dict[str, Any],
    missing: Iterable[str],
    allocate: Callable[[str, ArrayForm], Any],
) -> list[Any] | Call:
    """What code runs on; see `CompiledKernel.passed`. Without ``fitting``, ``numbers`` says what
    arrays have to be."""
    values: Mapping[str, Scalar] = {}
    if fitting is None:
        assert numbers is not None
        values = numbers.take(arrays)
        fitting = numbers.fitting(values)
    for name in missing:
        arrays[name] = allocate(name, fitting.forms[name])
    if fitting.placing is not None:
        call = fitting.place(fitting.placing, arrays, None)
        return call if numbers is None else numbers.placed(call, values)
    pointers = fitting.pointers(arrays, None)
    return pointers if numbers is None else numbers.arguments(pointers, values)


def _shape(array: Any, name: str) -> tuple[Any, ...] | None:
    """The shape that an array tells; None where none is given. `ArgumentError` for what is none."""
    shape = getattr(array, "shape", None)
    if isinstance(shape, tuple) or array is None:
        return shape
    return describe(array, name).shape  # of what has DLPack or a buffer, and nothing else


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """A copy of flat ``array`` at an address that is a multiple of 64."""
    result = aligned_memory(len(array), dtype(array.dtype))
    result[...] = array
    return result


def _form(buffer: Buffer) -> ArrayForm:
    return form_of(buffer.shape, buffer.dtype, buffer.layout)

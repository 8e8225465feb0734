"""Launching kernels: from a call's arguments to code, once for each choice, and then at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dtypes import DType, dtype
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.errors import ArgumentError, UnsupportedError, one_of
from tilewright.ir.stmt import Kernel
from tilewright.lang.annotations import ArrayType, Constant, ScalarType
from tilewright.lang.bound import BoundLaunches
from tilewright.lang.choice import Choice, Made
from tilewright.lang.identities import MOST, Shape
from tilewright.lang.records import new_records, tell
from tilewright.lang.values import default_type, is_literal
from tilewright.runtime.arrays import describe
from tilewright.targets.registry import find_target

if TYPE_CHECKING:
    from tilewright.lang.kernel import KernelFunction

_MOST_DIMS = 3
# Work-items of a group, where nobody says how many.
_USUAL = 64


class Launches:
    """Runs one kernel function, and keeps what was compiled."""

    def __init__(self, function: KernelFunction) -> None:
        self._function = function
        self._compiled: dict[tuple[Any, ...], tuple[CompiledKernel, Made]] = {}
        self._bound = BoundLaunches()
        self._generic = any(
            isinstance(a, Constant | ScalarType)
            or (isinstance(a, ArrayType) and isinstance(a.dtype, str))
            for a in function.parameters.values()
        )

    def run(
        self,
        range_: object,
        arguments: Sequence[Any],
        local: object,
        offset: object,
        target: str,
        threads: int | None,
    ) -> None:
        """Runs the kernel; see `KernelFunction.launch`."""
        again = self._bound.key((range_, local, offset, target, threads), arguments)
        call = self._bound.find(again, arguments)
        if call is not None:
            call()
            return
        sizes, start, choice = self._choice(range_, arguments, local, offset)
        key = (choice, target, threads)
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self._compile(choice, target, threads)
        elif found[1].captured:
            self._function.made(choice)  # refuses values from outside that have changed
        if not prod(sizes):
            return
        code, made = found
        given = self._given(made, sizes, start, arguments)
        if made.records is not None:
            given[made.records] = records = new_records()
            code(**given)
            tell(records, made.messages, len(sizes))
            return
        # A call that is bound for a device would hold its arrays; one that captured values from
        # outside has to look whether they are the same.
        plain = code.target.schedules and code.target.machine.hierarchy is None
        if again is None or not plain or made.captured or not self._bound.comes_again(again):
            code(**given)
            return
        call = code.borrow(**given)
        self._bound.keep(again, call, arguments)
        call()

    def specialized(
        self, range_: object, arguments: Sequence[Any], local: object, offset: object
    ) -> Kernel:
        """The kernel in the IR; see `KernelFunction.specialized`."""
        _, _, choice = self._choice(range_, arguments, local, offset)
        return self._function.made(choice).kernel

    def _choice(
        self, range_: object, arguments: Sequence[Any], local: object, offset: object
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None, Choice]:
        """The range, the offset, and what the kernel is compiled for."""
        names = self._function.parameters
        if len(arguments) != len(names):
            raise ArgumentError(
                f"{len(arguments)} arguments are given for {len(names)} parameters",
                where=f"launch of {self._function.name}",
                cure=f"pass {', '.join(names) or 'none'}, in this order, behind the range",
            )
        sizes = self._sizes(range_, "range")
        local = self._function.local if local is None else local
        given = None if local is None else self._local(local, sizes)
        start = None if offset is None else self._sizes(offset, "offset")
        if start is not None and len(start) != len(sizes):
            raise self._refused(f"the offset {start} for the range {sizes}", "give as many numbers")
        types, constants = self._decided(arguments) if self._generic else ((), ())
        return sizes, start, Choice(self._shape(sizes, given, start), types, constants)

    def kernel(self, dims: int | None, local: object, choices: Mapping[str, Any]) -> Kernel:
        """The kernel in the IR; see `KernelFunction.over`."""
        types, constants = self._chosen(choices)
        if local is not None:
            sizes = self._sizes(local, "local")
        else:
            if dims is None:
                lanes = self._function.subgroup
                most = (*(1,) * (_MOST_DIMS - 1), lanes or 1)
                tried = self._made(Shape(most, subgroup=lanes), types, constants)
                dims = tried.most_dim + 1
            if not isinstance(dims, int) or not 1 <= dims <= _MOST_DIMS:
                raise self._refused(f"a range of {dims!r} dims", f"give 1 to {_MOST_DIMS}")
            shape = self._shape((0,) * dims, None, None)
            return self._made(shape, types, constants).kernel
        shape = self._shape((0,) * len(sizes), sizes, None)
        return self._made(shape, types, constants).kernel

    # Ranges.

    def _refused(self, what: str, cure: str, why: str | None = None) -> ArgumentError:
        where = f"launch of {self._function.name}"
        return ArgumentError(what, where=where, why=why, cure=cure)

    def _sizes(self, given: object, what: str) -> tuple[int, ...]:
        sizes = (given,) if isinstance(given, int | np.integer) else given
        if not isinstance(sizes, tuple | list) or not 1 <= len(sizes) <= _MOST_DIMS:
            raise self._refused(
                f"the {what} is {given!r}", f"give a tuple of 1 to {_MOST_DIMS} whole numbers"
            )
        for each in sizes:
            whole = isinstance(each, int | np.integer) and not isinstance(each, bool)
            if not whole or not 0 <= each < 2**40:
                raise self._refused(
                    f"the {what} is {given!r}", "give whole numbers, 0 or more, below 2^40"
                )
        return tuple(map(int, sizes))

    def _local(self, given: object, sizes: tuple[int, ...]) -> tuple[int, ...]:
        local = self._sizes(given, "local size")
        if len(local) != len(sizes):
            raise self._refused(f"the local size {local} for the range {sizes}", "give as many")
        for size, each in zip(sizes, local, strict=True):
            if each < 1 or size % each:
                raise self._refused(
                    f"the local size {local} does not divide the range {sizes}",
                    "round the range up, and let work-items beyond it do nothing; or leave the "
                    "local size out",
                    "groups are all of one size",
                )
        return local

    def _shape(self, sizes: tuple[int, ...], local: tuple[int, ...] | None, offset: Any) -> Shape:
        subgroup = self._function.subgroup
        most = (
            max(s + o for s, o in zip(sizes, offset or sizes, strict=True))
            if offset
            else max(sizes)
        )
        wide = most + _USUAL > MOST
        shifted = offset is not None and any(offset)
        if local is None:
            lanes = subgroup or _USUAL
            local = (*(1,) * (len(sizes) - 1), lanes)
            guarded = not subgroup or sizes[-1] % subgroup != 0
        else:
            guarded = False
        if subgroup and local[-1] % subgroup:
            raise self._refused(
                f"a local size of {local} for subgroups of {subgroup}",
                f"make the last dim a multiple of {subgroup}",
                "its work-items make the lanes of subgroups",
            )
        return Shape(local, guarded, subgroup, shifted, wide)

    # Types and constants.

    def _decided(self, arguments: Sequence[Any]) -> tuple[Any, Any]:
        """The types and constants that arguments decide."""
        types: dict[str, DType] = {}
        weak: dict[str, DType] = {}
        constants: list[tuple[str, Any]] = []
        pairs = zip(self._function.parameters.items(), arguments, strict=True)
        for (name, annotation), value in pairs:
            if isinstance(annotation, Constant):
                constants.append((name, self._constant(name, value)))
            elif isinstance(annotation, ArrayType) and isinstance(annotation.dtype, str):
                found = describe(value, name).dtype
                known = types.setdefault(annotation.dtype, found)
                if known is not found:
                    raise self._refused(
                        f"{annotation.dtype} is {known}, and {found} for {name}",
                        "pass arrays of one type",
                    )
            elif isinstance(annotation, ScalarType) and is_literal(value):
                weak.setdefault(annotation.name, default_type(value))
            elif isinstance(annotation, ScalarType):
                weak.setdefault(annotation.name, dtype(getattr(value, "dtype", None)))
        return tuple(({**weak, **types}).items()), tuple(constants)

    def _constant(self, name: str, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        known = isinstance(value, bool | int | float | str | tuple | DType)
        if known or value is None or hasattr(value, "inline"):
            return value
        try:
            return dtype(value)
        except UnsupportedError:
            raise self._refused(
                f"the constant {name} is {value!r}", "pass a number, a text, a type or a function"
            ) from None

    def _chosen(self, choices: Mapping[str, Any]) -> tuple[Any, Any]:
        """Types and constants that are given by name."""
        types: dict[str, DType] = {}
        constants: dict[str, Any] = {}
        wanted: dict[str, bool] = {}
        for name, annotation in self._function.parameters.items():
            if isinstance(annotation, Constant):
                wanted[name] = True
            elif isinstance(annotation, ScalarType):
                wanted[annotation.name] = False
            elif isinstance(annotation, ArrayType) and isinstance(annotation.dtype, str):
                wanted[annotation.dtype] = False
        for name, value in choices.items():
            if name not in wanted:
                raise self._refused(
                    f"there is no type and no constant {name}",
                    one_of(name, wanted) if wanted else "leave it out",
                )
            if wanted[name]:
                constants[name] = self._constant(name, value)
            else:
                types[name] = dtype(value)
        for name, known in wanted.items():
            if name not in choices:
                raise self._refused(
                    f"{name} is open",
                    f"choose it: {self._function.name}.over({name}=...)",
                    "each value gives code of its own" if known else None,
                )
        return tuple(types.items()), tuple(constants.items())

    # Compiling and calling.

    def _made(self, shape: Shape, types: Any, constants: Any) -> Made:
        return self._function.made(Choice(shape, types, constants))

    def _compile(
        self, choice: Choice, target: str, threads: int | None
    ) -> tuple[CompiledKernel, Made]:
        made = self._function.made(choice)
        where = find_target(target)
        code = compile_kernel(made.kernel, where.name, threads)
        if not where.schedules:
            where.lower(made.kernel)  # what runs it tells faults at their places in the source
        return code, made

    def _given(
        self,
        made: Made,
        sizes: tuple[int, ...],
        offset: tuple[int, ...] | None,
        arguments: Sequence[Any],
    ) -> dict[str, Any]:
        """What the compiled kernel is called with."""
        given: dict[str, Any] = {}
        pairs = zip(self._function.parameters.items(), arguments, strict=True)
        for (name, annotation), value in pairs:
            if not isinstance(annotation, Constant):
                given[name] = value
        given.update(zip(made.sizes, sizes, strict=True))
        if made.offsets:
            given.update(zip(made.offsets, offset or (), strict=True))
        return given

"""Launching kernels: from a call's arguments to code, compiled once for each specialization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from tilewright.dtypes import DType, dtype
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.errors import ArgumentError, UnsupportedError, one_of, short
from tilewright.ir.stmt import Kernel
from tilewright.lang.annotations import ArrayType, Constant, ScalarType
from tilewright.lang.bound import BoundLaunches
from tilewright.lang.identities import MOST, Shape
from tilewright.lang.records import new_records, report
from tilewright.lang.specialization import Specialization, Specialized
from tilewright.lang.values import default_type, is_literal
from tilewright.runtime.arrays import describe
from tilewright.targets.registry import find_target

_MOST_DIMS = 3
# Work-items of a workgroup without a local size.
_USUAL = 64


class Specializes(Protocol):
    """A kernel function: its annotations by parameter, and its specializations."""

    name: str
    subgroup: int
    local: int | Sequence[int] | None

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    def specialize(self, choice: Specialization) -> Specialized: ...


class Launches:
    """Runs one kernel function, and keeps its compiled specializations."""

    def __init__(self, function: Specializes) -> None:
        self._function = function
        self._compiled: dict[tuple[Any, ...], tuple[CompiledKernel, Specialized]] = {}
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
        repeated = self._bound.key((range_, local, offset, target, threads), arguments)
        call = self._bound.find(repeated, arguments)
        if call is not None:
            call()
            return
        sizes, start, choice = self._choice(range_, arguments, local, offset)
        key = (choice, target, threads)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(choice, target, threads)
        elif compiled[1].captured:
            self._function.specialize(choice)  # refuses values from outside that have changed
        if not prod(sizes):
            return
        code, specialized = compiled
        passed = self._passed(specialized, sizes, start, arguments)
        if specialized.records is not None:
            passed[specialized.records] = records = new_records()
            code(**passed)
            report(records, specialized.messages, len(sizes))
            return
        # Calls that are bound for a device would hold its arrays; those that captured values from
        # outside have to check whether these are still the same.
        plain = code.target.schedules and code.target.machine.threaded
        if not plain or specialized.captured or not self._bound.comes_again(repeated):
            code(**passed)
            return
        call = code.borrow(**passed)
        self._bound.keep(repeated, call, arguments)
        call()

    def specialized(
        self, range_: object, arguments: Sequence[Any], local: object, offset: object
    ) -> Kernel:
        """The kernel in the IR; see `KernelFunction.specialized`."""
        _, _, choice = self._choice(range_, arguments, local, offset)
        return self._function.specialize(choice).kernel

    def _choice(
        self, range_: object, arguments: Sequence[Any], local: object, offset: object
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None, Specialization]:
        """The range, the offset, and the specialization."""
        names = self._function.parameters
        if len(arguments) != len(names):
            raise ArgumentError(
                f"{len(arguments)} arguments are given for {len(names)} parameters",
                where=f"launch of {self._function.name}",
                cure=f"pass {', '.join(names) or 'none'}, in this order, after the range",
            )
        sizes = self._sizes(range_, "range")
        local = self._function.local if local is None else local
        local_sizes = None if local is None else self._local(local, sizes)
        start = None if offset is None else self._sizes(offset, "offset")
        if start is not None and len(start) != len(sizes):
            raise self._refused(f"the offset {start} for the range {sizes}", "give as many numbers")
        types, constants = self._decided(arguments) if self._generic else ((), ())
        return (
            sizes,
            start,
            Specialization(self._shape(sizes, local_sizes, start), types, constants),
        )

    def kernel(self, dims: int | None, local: object, choices: Mapping[str, Any]) -> Kernel:
        """The kernel in the IR; see `KernelFunction.over`."""
        types, constants = self._chosen(choices)
        if local is not None:
            sizes = self._sizes(local, "local")
        else:
            if dims is None:
                lanes = self._function.subgroup
                most = (*(1,) * (_MOST_DIMS - 1), lanes or 1)
                tried = self._specialize(Shape(most, subgroup=lanes), types, constants)
                dims = tried.most_dim + 1
            if not isinstance(dims, int) or not 1 <= dims <= _MOST_DIMS:
                raise self._refused(f"a range of {short(dims)} dims", f"give 1 to {_MOST_DIMS}")
            shape = self._shape((0,) * dims, None, None)
            return self._specialize(shape, types, constants).kernel
        shape = self._shape((0,) * len(sizes), sizes, None)
        return self._specialize(shape, types, constants).kernel

    # Ranges.

    def _refused(self, what: str, cure: str, why: str | None = None) -> ArgumentError:
        where = f"launch of {self._function.name}"
        return ArgumentError(what, where=where, why=why, cure=cure)

    def _sizes(self, argument: object, what: str) -> tuple[int, ...]:
        sizes = (argument,) if isinstance(argument, int | np.integer) else argument
        if not isinstance(sizes, tuple | list) or not 1 <= len(sizes) <= _MOST_DIMS:
            raise self._refused(
                f"the {what} is {short(argument)}",
                f"give a tuple of 1 to {_MOST_DIMS} whole numbers",
            )
        for size in sizes:
            whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
            if not whole or not 0 <= size < 2**40:
                raise self._refused(
                    f"the {what} is {short(argument)}", "give whole numbers, 0 or more, below 2^40"
                )
        return tuple(map(int, sizes))

    def _local(self, argument: object, sizes: tuple[int, ...]) -> tuple[int, ...]:
        local = self._sizes(argument, "local size")
        if len(local) != len(sizes):
            raise self._refused(f"the local size {local} for the range {sizes}", "give as many")
        for size, group in zip(sizes, local, strict=True):
            if group < 1 or size % group:
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
                passed_type = describe(value, name).dtype
                chosen = types.setdefault(annotation.dtype, passed_type)
                if chosen is not passed_type:
                    raise self._refused(
                        f"{annotation.dtype} is {chosen}, and {passed_type} for {name}",
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
        is_plain = isinstance(value, bool | int | float | str | tuple | DType)
        if is_plain or value is None or hasattr(value, "inline"):
            return value
        try:
            return dtype(value)
        except UnsupportedError:
            raise self._refused(
                f"the constant {name} is {short(value)}",
                "pass a number, a text, a type or a function",
            ) from None

    def _chosen(self, choices: Mapping[str, Any]) -> tuple[Any, Any]:
        """The types and constants that are passed by name."""
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
        for name, is_constant in wanted.items():
            if name not in choices:
                raise self._refused(
                    f"{name} is open",
                    f"choose it: {self._function.name}.over({name}=...)",
                    "each value gives code of its own" if is_constant else None,
                )
        return tuple(types.items()), tuple(constants.items())

    # Compiling and calling.

    def _specialize(self, shape: Shape, types: Any, constants: Any) -> Specialized:
        return self._function.specialize(Specialization(shape, types, constants))

    def _compile(
        self, choice: Specialization, target: str, threads: int | None
    ) -> tuple[CompiledKernel, Specialized]:
        specialized = self._function.specialize(choice)
        where = find_target(target)
        code = compile_kernel(specialized.kernel, where.name, threads)
        if not where.schedules:
            where.lower(
                specialized.kernel
            )  # faults are then reported at their places in the source
        return code, specialized

    def _passed(
        self,
        specialized: Specialized,
        sizes: tuple[int, ...],
        offset: tuple[int, ...] | None,
        arguments: Sequence[Any],
    ) -> dict[str, Any]:
        """The arguments of the compiled kernel, by name."""
        passed: dict[str, Any] = {}
        pairs = zip(self._function.parameters.items(), arguments, strict=True)
        for (name, annotation), value in pairs:
            if not isinstance(annotation, Constant):
                passed[name] = value
        passed.update(zip(specialized.sizes, sizes, strict=True))
        if specialized.offsets:
            passed.update(zip(specialized.offsets, offset or (), strict=True))
        return passed

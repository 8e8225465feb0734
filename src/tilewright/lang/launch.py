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
from tilewright.lang.identities import Shape
from tilewright.lang.ranges import MOST_DIMS, Grid, Ranges
from tilewright.lang.records import new_records, report
from tilewright.lang.specialization import Specialization, Specialized
from tilewright.lang.tunables import (
    Chosen,
    Tunable,
    choose,
    in_words,
    sizes_with,
    tunables_of_sizes,
    twice,
)
from tilewright.lang.values import default_type, is_literal
from tilewright.runtime.arrays import describe
from tilewright.targets.registry import find_target


class Specializes(Protocol):
    """A kernel function: its annotations by parameter, its tunables, and its specializations."""

    name: str
    subgroup: int | Tunable
    local: Any

    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def tunables(self) -> Mapping[str, Tunable]: ...

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
        grid: Grid,
        arguments: Sequence[Any],
        target: str,
        threads: int | None,
        tunables: Chosen | None,
    ) -> None:
        """Runs the kernel; see `KernelFunction.launch`."""
        wanted = tuple(tunables.items()) if isinstance(tunables, Mapping) else tunables
        repeated = self._bound.key((grid, target, threads, wanted), arguments)
        call = None if grid.computed else self._bound.find(repeated, arguments)
        if call is not None:
            call()
            return
        sizes, start, choice = self._choice(grid, arguments, tunables)
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
        plain = code.target.schedules and code.target.machine.threaded and not grid.computed
        if not plain or specialized.captured or not self._bound.comes_again(repeated):
            code(**passed)
            return
        call = code.borrow(**passed)
        self._bound.keep(repeated, call, arguments)
        call()

    def specialized(
        self, grid: Grid, arguments: Sequence[Any], tunables: Chosen | None = None
    ) -> Kernel:
        """The kernel in the IR; see `KernelFunction.specialized`."""
        _, _, choice = self._choice(grid, arguments, tunables)
        return self._function.specialize(choice).kernel

    def _choice(
        self, grid: Grid, arguments: Sequence[Any], tunables: Chosen | None
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None, Specialization]:
        """The range, the offset, and the specialization."""
        names = self._function.parameters
        if len(arguments) != len(names):
            raise ArgumentError(
                f"{len(arguments)} arguments are given for {len(names)} parameters",
                where=self._where,
                cure=f"pass {', '.join(names) or 'none'}, in this order, after the range",
            )
        local = self._function.local if grid.local is None else grid.local
        chosen = self._chosen(tunables, grid.range, local)
        ranges = self._ranges(chosen)
        sizes = ranges.sizes(sizes_with(grid.range, chosen), "range")
        local = sizes_with(local, chosen)
        groups = None if local is None else ranges.local(local, sizes)
        start = None if grid.offset is None else ranges.offset(grid.offset, sizes)
        types, constants = self._decided(arguments) if self._generic else ((), ())
        shape = ranges.shape(sizes, groups, start, sizes_with(self._function.subgroup, chosen))
        return sizes, start, Specialization(shape, types, constants, tuple(chosen.items()))

    def kernel(
        self, dims: int | None, local: object, tunables: Chosen | None, choices: Mapping[str, Any]
    ) -> Kernel:
        """The kernel in the IR; see `KernelFunction.over`."""
        types, constants = self._named(choices)
        chosen = self._chosen(tunables, local)
        ranges, subgroup = self._ranges(chosen), sizes_with(self._function.subgroup, chosen)
        local = sizes_with(local, chosen)

        def specialize(shape: Shape) -> Specialized:
            choice = Specialization(shape, types, constants, tuple(chosen.items()))
            return self._function.specialize(choice)

        if local is not None:
            sizes = ranges.sizes(local, "local")
            return specialize(ranges.shape((0,) * len(sizes), sizes, None, subgroup)).kernel
        if dims is None:
            most = (*(1,) * (MOST_DIMS - 1), subgroup or 1)
            dims = specialize(Shape(most, subgroup=subgroup)).most_dim + 1
        if not isinstance(dims, int) or not 1 <= dims <= MOST_DIMS:
            raise self._refused(f"a range of {short(dims)} dims", f"give 1 to {MOST_DIMS}")
        return specialize(ranges.shape((0,) * dims, None, None, subgroup)).kernel

    def _chosen(self, tunables: Chosen | None, *sizes: object) -> dict[str, Any]:
        """The values of all tunables: of the function, and of the ``sizes`` of a launch."""
        declared = dict(self._function.tunables)
        for argument in sizes:
            for tunable in tunables_of_sizes(argument):
                if declared.setdefault(tunable.name, tunable) != tunable:
                    raise twice(tunable.name, self._where)
        return choose(declared, tunables, self._where) if declared or tunables is not None else {}

    # Errors.

    @property
    def _where(self) -> str:
        return f"launch of {self._function.name}"

    def _ranges(self, chosen: Chosen) -> Ranges:
        return Ranges(f"{self._where} with {in_words(chosen)}" if chosen else self._where)

    def _refused(self, what: str, cure: str, why: str | None = None) -> ArgumentError:
        return Ranges(self._where).refused(what, cure, why)

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

    def _named(self, choices: Mapping[str, Any]) -> tuple[Any, Any]:
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

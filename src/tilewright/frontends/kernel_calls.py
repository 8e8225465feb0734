"""A kernel in Python as an op of another framework: what calls give, and what they get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.dtypes import DType
from tilewright.errors import ArgumentError, one_of, short
from tilewright.ir.stmt import Kernel, Param
from tilewright.lang.annotations import ArrayType, Constant
from tilewright.lang.kernel import KernelFunction


@dataclass(eq=False)
class KernelCall:
    """How ``kernel`` is launched for an op: by as many work-items as ``range`` says of the op's
    arguments, on arrays that callers give and on those that the op makes.

    ``results`` has the names of the latter, each with a function of the op's arguments that gives
    its shape; ``changes`` are the arrays of callers that the kernel stores to. ``constants`` are
    the values of `tw.constant` parameters. The op's arguments are the parameters that are left, in
    their order.
    """

    kernel: KernelFunction
    range: Callable[..., int | Sequence[int]]
    results: Mapping[str, Callable[..., Sequence[int]]]
    changes: Sequence[str]
    constants: Mapping[str, Any]
    local: int | Sequence[int] | None
    target: str | None
    threads: int | None
    _known: set[tuple[str, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, KernelFunction):
            raise ArgumentError(
                f"{short(self.kernel)} is no kernel", cure="pass a function with @tw.kernel"
            )
        for name, function in {"range": self.range, **self.results}.items():
            if not callable(function):
                raise self._refused(
                    f"{name} is {short(function)}", "give a function of the op's arguments"
                )
        parameters = self.kernel.parameters
        arrays = [
            name for name, parameter in parameters.items() if isinstance(parameter, ArrayType)
        ]
        expected = [
            name for name, parameter in parameters.items() if isinstance(parameter, Constant)
        ]
        for names, of, what in (
            (self.results, arrays, "array"),
            (self.changes, arrays, "array"),
            (self.constants, expected, "constant"),
        ):
            for name in names:
                if name not in of:
                    raise self._refused(f"{name!r} is no {what} of it", one_of(name, of))
        for name in expected:
            if name not in self.constants:
                raise self._refused(f"the constant {name} is open", "give it in constants=")
        for name in self.changes:
            if name in self.results:
                raise self._refused(
                    f"{name} is made by the op, and given by its callers", "name it once"
                )

    def _refused(self, what: str, cure: str, why: str | None = None) -> ArgumentError:
        where = f"the op of the kernel {self.kernel.name}"
        return ArgumentError(what, where=where, why=why, cure=cure)

    @property
    def inputs(self) -> dict[str, Any]:
        """The annotations of the op's arguments by name."""
        computed = self.results.keys() | self.constants.keys()
        return {name: a for name, a in self.kernel.parameters.items() if name not in computed}

    def shapes(self, arguments: Sequence[Any]) -> dict[str, tuple[int, ...]]:
        """The shapes of what the op makes."""
        return {name: tuple(shape(*arguments)) for name, shape in self.results.items()}

    def dtype_of(self, name: str, types: Mapping[str, DType]) -> DType:
        """The element type of the array called ``name``, where those of callers are ``types``."""
        wanted = self.kernel.parameters[name].dtype
        if isinstance(wanted, DType):
            return wanted
        for other, dtype in types.items():
            if self.kernel.parameters[other].dtype == wanted:
                return dtype
        raise self._refused(
            f"the type {wanted} of {name} is open",
            "declare an element type, or that of an array that callers give",
            "no argument of the op decides it",
        )

    def launch(self, arrays: Mapping[str, Any], arguments: Sequence[Any]) -> None:
        """Runs the kernel: on ``arrays``, and for a range that ``arguments`` decide. Raises
        `ArgumentError` where it stores to an array that was not said to change."""
        size, values = self._given(arrays, arguments)
        target = "x86" if self.target is None else self.target
        self.kernel.launch(size, *values, local=self.local, target=target, threads=self.threads)

    def specialized(
        self, arrays: Mapping[str, Any], arguments: Sequence[Any]
    ) -> tuple[Kernel, dict[str, Any]]:
        """The kernel in the IR that such a `launch` runs, of which only shapes and types of
        ``arrays`` count, and the values of its numbers that no array decides."""
        size, values = self._given(arrays, arguments)
        kernel = self.kernel.specialized(size, *values, local=self.local)
        sizes = (size,) if isinstance(size, int) else size
        return kernel, {**arrays, **{f"global_{n}": length for n, length in enumerate(sizes)}}

    def _given(
        self, arrays: Mapping[str, Any], arguments: Sequence[Any]
    ) -> tuple[int | Sequence[int], list[Any]]:
        """The range, and the arguments of the kernel in its order, which are checked."""
        values_of = {**self.constants, **arrays}
        values = [values_of[name] for name in self.kernel.parameters]
        size = self.range(*arguments)
        self._check_stored(size, values)
        return size, values

    def _check_stored(self, size: int | Sequence[int], values: Sequence[Any]) -> None:
        """Once for each combination of types, which may decide what is stored."""
        types = tuple(str(getattr(value, "dtype", type(value))) for value in values)
        if types in self._known:
            return
        kernel = self.kernel.specialized(size, *values, local=self.local)
        for param in kernel.params:
            stored = isinstance(param, Param) and param.access != "in"
            named = param.name in self.kernel.parameters  # not what messages go to
            if stored and named and param.name not in {*self.results, *self.changes}:
                raise self._refused(
                    f"the kernel stores to {param.name}",
                    f"say so: name {param.name} among what it changes, or makes",
                    "a framework reorders what it takes for a read",
                )
        self._known.add(types)

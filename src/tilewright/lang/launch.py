"""Launching kernels: from a call's arguments to code, compiled once for each specialization."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tilewright.config import named_database, settings
from tilewright.dtypes import DType, dtype
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.errors import (
    ArgumentError,
    PlacementError,
    TilewrightError,
    UnsupportedError,
    one_of,
    short,
)
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.lang.annotations import ArrayType, Constant, ScalarType
from tilewright.lang.bound import BoundLaunches
from tilewright.lang.identities import Shape
from tilewright.lang.places import Placed, placed
from tilewright.lang.ranges import MOST_DIMS, Grid, Ranges
from tilewright.lang.records import new_records, report
from tilewright.lang.specialization import Decided, Specialization, Specialized
from tilewright.lang.tunables import (
    Chosen,
    Tunable,
    choose,
    in_words,
    sizes_with,
    tunables_of_sizes,
    twice,
)
from tilewright.lang.tuned import FIRST, Remembered, TunedLaunches, shapes_of, values_of
from tilewright.lang.values import default_type, is_literal
from tilewright.runtime.arrays import describe
from tilewright.runtime.remote import RemoteArray
from tilewright.targets.registry import find_target

if TYPE_CHECKING:
    from tilewright.engine.winners import Asked, Winner


class Launch(NamedTuple):
    """What a caller says: the range, the arguments in order, where it runs, and the values of
    tunables, if any; and where the arrays lie, if not in rows and apart from each other."""

    grid: Grid
    arguments: Sequence[Any]
    target: str = "x86"
    threads: int | None = None
    tunables: Chosen | None = None
    placed: Placed | None = None


class WithCopies(NamedTuple):
    """A ``launch`` on arrays that do not lie in rows; by parameter, those of them that are
    ``copies``, and the arrays that the code has ``written`` after it."""

    launch: Launch
    copies: Mapping[str, Any]
    written: Set[str]


class Ready(NamedTuple):
    """A launch that was compiled. ``origin`` says who chose the values of its tunables."""

    decided: Decided
    code: CompiledKernel
    specialized: Specialized
    origin: str


class Specializes(Protocol):
    """A kernel function: its annotations by parameter, its tunables, its text, and its
    specializations."""

    name: str
    subgroup: int | Tunable
    local: Any

    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def tunables(self) -> Mapping[str, Tunable]: ...
    @property
    def text(self) -> str: ...

    def specialize(self, choice: Specialization) -> Specialized: ...
    def unchanged(self, specialized: Specialized) -> Callable[[], bool]: ...


class Launches:
    """Runs one kernel function, and keeps its compiled specializations."""

    def __init__(self, function: Specializes) -> None:
        self._function = function
        self._compiled: dict[tuple[Any, ...], tuple[CompiledKernel, Specialized]] = {}
        self._bound = BoundLaunches()
        self._tuned = TunedLaunches()
        self._generic = any(
            isinstance(a, Constant | ScalarType)
            or (isinstance(a, ArrayType) and isinstance(a.dtype, str))
            for a in function.parameters.values()
        )

    def run(self, launch: Launch) -> None:
        """Runs the kernel; see `KernelFunction.launch`."""
        grid, arguments, target, threads, tunables, _ = launch
        wanted: Any = tuple(tunables.items()) if isinstance(tunables, Mapping) else tunables
        if tunables is None and self._function.tunables:
            wanted = named_database()
        repeated = self._bound.key((grid, target, threads, wanted), arguments)
        call = None if grid.computed else self._bound.find(repeated, arguments)
        if call is not None:
            call()
            return
        try:
            self._run(launch, repeated)
        except PlacementError as error:
            launch, copies, written = self.placed(launch, error)
        else:
            return
        assert launch.placed is not None
        views = launch.placed.copied
        try:
            self._run(launch, None if copies else repeated)
        finally:  # also of work-items whose assertions failed
            for name, copy in copies.items():
                if name in written and copy.flags.writeable:
                    np.copyto(views[name], copy)

    def placed(self, launch: Launch, error: PlacementError) -> WithCopies:
        """The launch of which ``error`` says that its arrays lie otherwise than in rows, apart; on
        copies of those that no code is right for. Raises ``error`` where that does not help."""
        pairs = [*zip(self._function.parameters.items(), launch.arguments, strict=True)]
        arrays = {name: v for (name, a), v in pairs if isinstance(a, ArrayType)}
        try:
            there = placed(arrays)
        except ArgumentError:  # not of the host
            raise error from None
        if not (there.places or there.copied) or any(
            isinstance(view, RemoteArray) for view in there.copied.values()
        ):
            raise error
        copies = {name: view.copy() for name, view in there.copied.items()}
        for name, copy in copies.items():
            copy.flags.writeable = there.copied[name].flags.writeable
        values = [copies.get(name, value) for (name, _), value in pairs]
        launch = launch._replace(arguments=values, placed=there)
        arrays_in_code = self.ready(launch).specialized.kernel.arrays
        written = {array.name for array in arrays_in_code if array.access != "in"}
        if written & there.crossed:
            raise error
        return WithCopies(launch, copies, written)

    def _run(self, launch: Launch, repeated: Hashable | None) -> None:
        """Runs the launch, and binds it if ``repeated``, its key, comes again."""
        grid, arguments = launch.grid, launch.arguments
        decided, code, specialized, _ = self.ready(launch)
        if not prod(decided.sizes):
            return
        passed = self.passed(specialized, decided, launch)
        if specialized.records is not None:
            passed[specialized.records] = records = new_records()
            code(**passed)
            report(records, specialized.messages, len(decided.sizes))
            return
        # Calls that are bound for a device would hold its arrays.
        plain = code.target.schedules and code.target.machine.threaded and not grid.computed
        if repeated is None or not plain or not self._bound.comes_again(repeated):
            code(**passed)
            return
        call = code.borrow(**passed)
        unchanged = self._function.unchanged(specialized) if specialized.captured else None
        self._bound.keep(repeated, call, arguments, unchanged)
        call()

    def ready(self, launch: Launch) -> Ready:
        """The launch, compiled: with the values of tunables that it says, else with those that a
        search found to be the fastest, else with the first ones."""
        first = self.decided(launch)
        while True:
            winner = None if launch.tunables is not None else self._winner(first, launch)
            try:
                if winner is None:
                    origin = "the caller" if launch.tunables else self._declared(first, launch)
                    return Ready(first, *self._code(first, launch), origin)
                decided = self.decided(launch._replace(tunables=values_of(winner)))
                return Ready(decided, *self._code(decided, launch), winner.origin)
            except TilewrightError as error:
                if winner is None:
                    raise
                self._tuned.set_aside(winner, error)

    def specialized(self, launch: Launch) -> Kernel:
        """The kernel in the IR; see `KernelFunction.specialized`."""
        return self._function.specialize(self.decided(launch).choice).kernel

    def asked(self, first: Decided, launch: Launch) -> Asked:
        """What rows of the database are of that are about ``launch``, whose first values make
        ``first``."""
        shapes = shapes_of(self._function.parameters, launch.arguments)
        return self._tuned.asked(
            (first, shapes, launch.target, launch.threads),
            lambda: (
                self._function.text,
                to_text(self._function.specialize(first.choice).kernel),
                sorted(self.declared(launch.grid).items()),
            ),
        )

    def remember(self, launch: Launch, tunables: Chosen, origin: str) -> None:
        """Takes these values in this process for ``launch``, where no database says others."""
        launch = launch._replace(tunables=None)
        asked = self.asked(self.decided(launch), launch)
        self._tuned.remember(asked, Remembered(tunables, origin))
        self.forget()

    def forget(self) -> None:
        """Asks the database again: it has new rows."""
        self._tuned.forget()
        self._bound = BoundLaunches()

    def _winner(self, first: Decided, launch: Launch) -> Winner | Remembered | None:
        database = settings().database
        if not first.choice.tunables or (database is None and not self._tuned.remembers):
            return None
        return self._tuned.winner(database, self.asked(first, launch))

    def _declared(self, first: Decided, launch: Launch) -> str:
        """Where the first values come from, in words."""
        database = settings().database
        if not first.choice.tunables or database is None:
            return FIRST
        return self._tuned.origin(database, self.asked(first, launch))

    def decided(self, launch: Launch) -> Decided:
        """The range, the offset, and the specialization."""
        grid, arguments, names = launch.grid, launch.arguments, self._function.parameters
        if len(arguments) != len(names):
            raise ArgumentError(
                f"{len(arguments)} arguments are given for {len(names)} parameters",
                where=self._where,
                cure=f"pass {', '.join(names) or 'none'}, in this order, after the range",
            )
        chosen = self._chosen(self.declared(grid), launch.tunables)
        ranges = self._ranges(chosen)
        sizes = ranges.sizes(self._sizes(grid.range, chosen), "range")
        local = self._sizes(self._local(grid), chosen)
        groups = None if local is None else ranges.local(local, sizes)
        start = None if grid.offset is None else ranges.offset(grid.offset, sizes)
        types, constants = self._decided(arguments) if self._generic else ((), ())
        places = () if launch.placed is None else launch.placed.places
        values = tuple(chosen.items())
        shape = ranges.shape(sizes, groups, start, self._sizes(self._function.subgroup, chosen))
        return Decided(sizes, start, Specialization(shape, types, constants, values, places))

    def kernel(
        self, dims: int | None, local: object, tunables: Chosen | None, choices: Mapping[str, Any]
    ) -> Kernel:
        """The kernel in the IR; see `KernelFunction.over`."""
        types, constants = self._named(choices)
        chosen = self._chosen(self.declared(Grid(None, local)), tunables)
        ranges, subgroup = self._ranges(chosen), self._sizes(self._function.subgroup, chosen)
        local = self._sizes(local, chosen)

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

    def declared(self, grid: Grid) -> dict[str, Tunable]:
        """The tunables of the function, and of the sizes of a launch."""
        declared = dict(self._function.tunables)
        for sizes in (grid.range, self._local(grid)):
            for tunable in tunables_of_sizes(sizes):
                if declared.setdefault(tunable.name, tunable) != tunable:
                    raise twice(tunable.name, self._where)
        return declared

    def _local(self, grid: Grid) -> Any:
        return self._function.local if grid.local is None else grid.local

    def _chosen(self, declared: Mapping[str, Tunable], tunables: Chosen | None) -> dict[str, Any]:
        return choose(declared, tunables, self._where) if declared or tunables is not None else {}

    def _sizes(self, sizes: Any, chosen: Chosen) -> Any:
        return sizes_with(sizes, chosen, self._where)

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

    def _code(self, decided: Decided, launch: Launch) -> tuple[CompiledKernel, Specialized]:
        key = (decided.choice, launch.target, launch.threads, settings().database)
        compiled = self._compiled.get(key)
        if compiled is None:
            specialized = self._function.specialize(decided.choice)
            where = find_target(launch.target)
            code = compile_kernel(specialized.kernel, where.name, launch.threads)
            if not where.schedules:
                # Faults are then reported at their places in the source.
                where.lower(specialized.kernel)
            compiled = self._compiled[key] = code, specialized
        elif compiled[1].captured:
            self._function.specialize(decided.choice)  # refuses values that have changed
        return compiled

    def passed(self, specialized: Specialized, decided: Decided, launch: Launch) -> dict[str, Any]:
        """The arguments of the compiled kernel, by name."""
        passed: dict[str, Any] = {}
        same = {name for name, place in decided.choice.places if place.same}
        pairs = zip(self._function.parameters.items(), launch.arguments, strict=True)
        for (name, annotation), value in pairs:
            if not isinstance(annotation, Constant) and name not in same:
                passed[name] = value
        if launch.placed is not None:
            gaps = launch.placed.gaps
            passed |= {name: gaps[array, dim] for array, dim, name in specialized.gaps}
        passed.update(zip(specialized.sizes, decided.sizes, strict=True))
        if specialized.offsets:
            passed.update(zip(specialized.offsets, decided.start or (), strict=True))
        return passed

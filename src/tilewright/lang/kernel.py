"""`@tw.kernel`: functions in Python that work-items run."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, update_wrapper
from types import FunctionType
from typing import Any, NoReturn, overload

from tilewright.calls import checked_call
from tilewright.config import database_in
from tilewright.errors import KernelError, Span
from tilewright.ir import expr as ir
from tilewright.ir.stmt import Kernel, Param, ScalarParam, Stmt
from tilewright.ir.verify import verify
from tilewright.lang.annotations import Constant
from tilewright.lang.arguments import Arguments, SizeOfArrays
from tilewright.lang.barrier_checks import check_barriers
from tilewright.lang.exact import exact
from tilewright.lang.functions import plain_function
from tilewright.lang.launch import Launch, Launches
from tilewright.lang.parameters import annotations_of, defaults_of
from tilewright.lang.ranges import Grid
from tilewright.lang.source import captured, source_of, unchanged
from tilewright.lang.specialization import Specialization, Specialized
from tilewright.lang.statements import Translator
from tilewright.lang.translation import Translation
from tilewright.lang.tunables import (
    Chosen,
    Tunable,
    in_words,
    tunables_in,
    tunables_of_sizes,
    twice,
)
from tilewright.lang.variables import Types

# Types settle within a few translations: each widens at least one variable.
_MOST_TRANSLATIONS = 64
# Of a range or a workgroup: numbers, or a function of what is chosen.
Sizes = int | Sequence[int] | Callable[[Chosen], int | Sequence[int]]


class KernelFunction:
    """A function with `@tw.kernel`. `launch` runs it; ``tw.compile`` takes it, too."""

    def __init__(
        self,
        function: FunctionType,
        subgroup: int | None,
        local: Any = None,
    ) -> None:
        update_wrapper(self, function)
        self.name = function.__name__
        self._python = function
        self._source = source_of(function)
        self._annotations = annotations_of(function, self._source)
        self._defaults = defaults_of(function)
        self._parameters = {
            name: annotation
            for name, annotation in self._annotations.items()
            if name not in self._defaults
        }
        for lanes in subgroup.values if isinstance(subgroup, Tunable) else (subgroup,):
            if lanes is not None and (
                not isinstance(lanes, int) or lanes not in (1, 2, 4, 8, 16, 32, 64, 128)
            ):
                raise KernelError(
                    f"a subgroup of {lanes!r} lanes",
                    where=self._source.span(self._source.tree),
                    cure="choose a power of 2 from 1 to 128",
                )
        self.subgroup: int | Tunable = subgroup or 0
        self._specialized: dict[Specialization, Specialized] = {}
        self.local = local
        self.launches = Launches(self)

    # Definition.

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The annotations of the parameters that a launch passes, by name, in order."""
        return self._parameters

    @cached_property
    def tunables(self) -> Mapping[str, Tunable]:
        """What launches choose among declared values, by name: in its code, its parameters, its
        local size and its subgroups. Raises `ArgumentError` for two of one name."""
        outside = captured(self._python)
        declared: dict[str, Tunable] = {}
        for tunable in (
            *self._defaults.values(),
            *tunables_of_sizes((self.subgroup, self.local)),
            *tunables_of_sizes(self.local),
            *tunables_in(self._source.tree, outside),
        ):
            if declared.setdefault(tunable.name, tunable) != tunable:
                raise twice(tunable.name, self.span)
        return declared

    @property
    def file(self) -> str:
        """The file that defines it."""
        return self._source.file

    @property
    def text(self) -> str:
        """Its definition, without comments."""
        return ast.unparse(self._source.tree)

    @property
    def span(self) -> Span:
        """The place of its definition."""
        return self._source.span(self._source.tree)

    def specialize(self, choice: Specialization) -> Specialized:
        """The kernel for ``choice``. Raises `KernelError`, and the errors of verification; also if
        a value from outside of the function has changed since the kernel was compiled."""
        specialized = self._specialized.get(choice)
        if specialized is None:
            specialized = self._specialized[choice] = self._translated(choice)
            verify(specialized.kernel)
        elif specialized.captured:
            self._check_captured(specialized)
        return specialized

    def unchanged(self, specialized: Specialized) -> Callable[[], bool]:
        """Whether what ``specialized`` took from outside is the same, as a quick call."""
        return unchanged(self._python, specialized.captured)

    def _check_captured(self, specialized: Specialized) -> None:
        now = captured(self._python)
        for name, value in specialized.captured.items():
            if "." not in name and name in now and exact(now[name]) != exact(value):
                raise KernelError(
                    f"{name} was {value!r} when {self.name} was compiled, and is {now[name]!r}",
                    where=self.span,
                    why="what a kernel takes from outside is part of its code",
                    cure=f"pass {name} as an argument, declared as a number or as tw.constant",
                )

    def _translated(self, choice: Specialization) -> Specialized:
        types = Types({}, {}, {})
        for _ in range(_MOST_TRANSLATIONS):
            translation, params, body = self._once(choice, types)
            if types.settled:
                break
            types = Types(types.settling, {}, types.places)
        kernel = self._kernel(translation, params, body)
        ids, messages = translation.identities, translation.messages
        return Specialized(
            kernel,
            tuple(messages.kinds),
            dict(translation.constants),
            ids.most_dim,
            ids.sizes,
            ids.offsets,
            translation.gaps,
            next((param.buffer.name for param in messages.parameters), None),
        )

    def _once(
        self, choice: Specialization, types: Types
    ) -> tuple[Translation, list[Any], list[Stmt]]:
        sizes = [size for a in self._parameters.values() for size in getattr(a, "shape", ())]
        taken = (*self._annotations, *(size for size in sizes if isinstance(size, str)))
        translation = Translation(choice.shape, types, taken, dict(choice.tunables))
        scope = Translator(self._source, translation.emitter, captured(self._python), translation)
        translation.emitter.span = self.span
        arguments = Arguments(self._parameters, self._annotations, self._defaults)
        params, values = arguments.of(translation, choice)
        with translation.emitter.inside() as body:
            for name, value in values.items():
                if isinstance(value, SizeOfArrays):
                    values[name] = translation.emitter.let(name, ir.cast(value.dtype, value.symbol))
                    translation.emitter.means(values[name], value.symbol)
            result = scope.run(values)
        if result is not None:
            raise scope.refuse(
                f"{self.name} returns a value",
                "launches have no result: work-items store theirs",
                "store it as an element of an array",
                at=self._source.tree,
            )
        return translation, params, body

    def _kernel(
        self, translation: Translation, params: Sequence[Param | ScalarParam], body: Sequence[Stmt]
    ) -> Kernel:
        emitter = translation.emitter
        emitter.span = self.span
        declared: list[Param | ScalarParam] = []
        for param in params:
            if isinstance(param, Param) and id(param.buffer) in translation.stored:
                param = replace(param, access="inout")
            declared.append(param)
        declared += translation.identities.parameters()
        declared += translation.messages.parameters
        nest = translation.identities.nest(body, emitter.shared)
        check_barriers(nest, translation.together)
        declared += translation.tables.params
        contents = translation.tables.contents
        return Kernel(self.name, tuple(declared), nest, span=self.span, constants=contents)

    # Launching.

    @checked_call
    def launch(
        self,
        range: Sizes,
        *arguments: Any,
        local: Sizes | None = None,
        offset: int | Sequence[int] | None = None,
        target: str = "x86",
        threads: int | None = None,
        tunables: Mapping[str, Any] | None = None,
        database: str | os.PathLike[str] | None = None,
    ) -> None:
        """Runs the kernel by as many work-items as ``range`` says (1 to 3 dims, the last one the
        fastest), on arrays, which it changes in place, and numbers, in the order of its parameters.

        ``local`` is the size of a workgroup, which divides the range; without it, any range goes.
        Ids begin at ``offset``. ``tunables`` has the values of what `tunable` declares, by name: of
        those that are left out, the first. Without it, those are taken that `autotune` left in the
        ``database`` for this launch (default: that of ``TILEWRIGHT_DB``), or the first. ``range``
        and ``local`` may have tunables in them, or be functions of a mapping of all values.
        Raises `KernelError`, `ArgumentError`, and what `tw.compile` does.
        """
        launch = Launch(Grid(range, local, offset), arguments, target, threads, tunables)
        if database is None:
            self.launches.run(launch)
            return
        with database_in(database):
            self.launches.run(launch)

    @checked_call
    def explain(
        self,
        range: Sizes,
        *arguments: Any,
        local: Sizes | None = None,
        offset: int | Sequence[int] | None = None,
        target: str = "x86",
        threads: int | None = None,
        tunables: Mapping[str, Any] | None = None,
        database: str | os.PathLike[str] | None = None,
    ) -> str:
        """How a `launch` with these arguments runs, in lines: the values of tunables, who chose
        them (the caller, a search, or nobody), and what its kernel explains."""
        launch = Launch(Grid(range, local, offset), arguments, target, threads, tunables)
        with database_in(database):
            ready = self.launches.ready(launch)
        lines = [f"launch of {self.name} by {' x '.join(map(str, ready.decided.sizes))} work-items"]
        if ready.decided.choice.tunables:
            lines.append(f"tunables: {in_words(dict(ready.decided.choice.tunables))}")
            lines.append(f"chosen by: {ready.origin}")
        return "\n".join([*lines, ready.code.explain()])

    @checked_call
    def tuned(
        self,
        range: Sizes,
        *arguments: Any,
        local: Sizes | None = None,
        offset: int | Sequence[int] | None = None,
        target: str = "x86",
        threads: int | None = None,
        database: str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """The values of tunables, by name, that a `launch` with these arguments takes: those that
        a search found to be the fastest, or the first."""
        launch = Launch(Grid(range, local, offset), arguments, target, threads)
        with database_in(database):
            return dict(self.launches.ready(launch).decided.choice.tunables)

    @checked_call
    def specialized(
        self,
        range: Sizes,
        *arguments: Any,
        local: Sizes | None = None,
        offset: int | Sequence[int] | None = None,
        tunables: Mapping[str, Any] | None = None,
    ) -> Kernel:
        """The kernel in the IR that a `launch` with these arguments runs."""
        launch = Launch(Grid(range, local, offset), arguments, tunables=tunables)
        return self.launches.specialized(launch)

    def as_kernel(self, tunables: Mapping[str, Any] | None = None) -> Kernel:
        """The kernel for ranges of any size, as many dims as it asks for; ``tunables`` as for a
        launch."""
        return self.launches.kernel(None, self.local, tunables, {})

    def over(
        self,
        dims: int | None = None,
        /,
        *,
        local: Sizes | None = None,
        tunables: Mapping[str, Any] | None = None,
        **choices: Any,
    ) -> Kernel:
        """The kernel in the IR, for a range of so many dims (by default as many as it asks for) and
        groups of the size ``local``. ``choices`` are types by their names, and constants: one that
        is called ``local`` is given as that, and the groups are as ``@tw.kernel(local=...)`` says.
        ``tunables`` as for a launch.
        """
        if isinstance(self._parameters.get("local"), Constant):
            choices["local"], local = local, self.local
        return self.launches.kernel(dims, local, tunables, choices)

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise self._misused("called as a function")

    def __getitem__(self, range: object) -> NoReturn:
        raise self._misused("passed a grid in brackets", "a range is of work-items, not of groups")

    def _misused(self, how: str, why: str | None = None) -> KernelError:
        arguments = ", ".join(["(size,)", *self._parameters])
        return KernelError(
            f"the kernel {self.name} is {how}",
            where=self.span,
            why=why,
            cure=f"write {self.name}.launch({arguments})",
        )

    def __reduce__(self) -> str:
        """Pickled and copied as functions are: by name, so that other processes import it."""
        return self._python.__qualname__

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self._source.file}>"


@overload
def kernel(
    function: Callable[..., Any],
    *,
    subgroup: int | None = None,
    local: Sizes | None = None,
) -> KernelFunction: ...
@overload
def kernel(
    function: None = None,
    *,
    subgroup: int | None = None,
    local: Sizes | None = None,
) -> Callable[[Callable[..., Any]], KernelFunction]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    *,
    subgroup: int | None = None,
    local: Sizes | None = None,
) -> KernelFunction | Callable[[Callable[..., Any]], KernelFunction]:
    """Makes a kernel of a function: each work-item of a range runs it.

    Parameters have types: ``tw.array("f32", 2)``, numbers (``tw.s32``), `tw.scalar`, `tw.constant`.
    The source is taken now. ``subgroup`` is how many lanes a subgroup has, a power of 2; ``local``
    the size of workgroups where a launch says none; both may be tunables. Raises `KernelError`,
    which marks the place.
    """
    if function is None:
        return partial(kernel, subgroup=subgroup, local=local)
    return KernelFunction(plain_function(function, "tw.kernel"), subgroup, local)

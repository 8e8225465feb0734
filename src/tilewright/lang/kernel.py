"""`@tw.kernel` and `@tw.function`: functions in Python that work-items run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from types import FunctionType
from typing import Any, NamedTuple, NoReturn, TypeVar, overload

from tilewright.calls import checked_call
from tilewright.dtypes import DType, s64
from tilewright.errors import KernelError, Span
from tilewright.ir import expr as ir
from tilewright.ir.buffer import buffer
from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.stmt import Kernel, Param, ScalarParam, Stmt
from tilewright.ir.verify import verify
from tilewright.lang.annotations import ArrayType, Constant, ScalarType, scalar
from tilewright.lang.builtin import Site
from tilewright.lang.choice import Choice, Made
from tilewright.lang.identities import MOST
from tilewright.lang.launch import Launches
from tilewright.lang.meetings import check_meetings
from tilewright.lang.source import Source, captured, source_of
from tilewright.lang.statements import Translator
from tilewright.lang.translation import Function, Translation
from tilewright.lang.values import Array
from tilewright.lang.variables import Types
from tilewright.problems.numbers import short

# Types settle within a few translations: each makes at least one variable's wider.
_MOST_TRANSLATIONS = 64
_MOST_SIZE = MOST
_MOST_SIZE_WIDE = 2**40


class _Size(NamedTuple):
    """A number that is the size of arrays, too: it is ``dtype``, and a symbol of s64."""

    dtype: DType
    symbol: Var


class HelperFunction:
    """A function with `@tw.function`: it is written out where kernels call it."""

    own = False

    def __init__(self, function: FunctionType) -> None:
        update_wrapper(self, function)
        self.name = function.__name__
        _check_parameters(function, source_of(function), annotated=False)
        self._python = function
        self._source = source_of(function)
        self._signature = inspect.signature(function)

    @property
    def function(self) -> Function:
        """What is translated, with what its free names stand for now."""
        return Function(self._source, captured(self._python))

    def inline(self, site: Site) -> Any:
        """What a call gives."""
        args, keywords = site.arguments()
        try:
            bound = self._signature.bind(*args, **keywords)
        except TypeError as error:
            raise site.refuse(
                f"{self.name}: {error}", cure=f"call {self.name}{self._signature}"
            ) from None
        bound.apply_defaults()
        named = {name: site.let(name, value) for name, value in bound.arguments.items()}
        return site.whole.call(self, site.scope, named)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Outside of kernels it is the function in Python."""
        return self._python(*args, **keywords)


class KernelFunction:
    """A function with `@tw.kernel`. `launch` runs it; ``tw.compile`` takes it, too."""

    def __init__(
        self,
        function: FunctionType,
        subgroup: int | None,
        local: int | Sequence[int] | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.name = function.__name__
        self._python = function
        self._source = source_of(function)
        self._parameters = _check_parameters(function, self._source, annotated=True)
        if subgroup is not None and (
            not isinstance(subgroup, int) or subgroup not in (1, 2, 4, 8, 16, 32, 64, 128)
        ):
            raise KernelError(
                f"a subgroup of {subgroup!r} lanes",
                where=self._source.span(self._source.tree),
                cure="choose a power of 2 from 1 to 128",
            )
        self.subgroup = subgroup or 0
        self._made: dict[Choice, Made] = {}
        self.local = local
        self._launches = Launches(self)

    # What it is made of.

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The annotations of its parameters, by name, in order."""
        return self._parameters

    @property
    def file(self) -> str:
        """The file that defines it."""
        return self._source.file

    @property
    def span(self) -> Span:
        """The place of its definition."""
        return self._source.span(self._source.tree)

    def made(self, choice: Choice) -> Made:
        """The kernel for ``choice``. Raises `KernelError`, and what verification finds; also where
        a value from outside of the function is another one than the kernel was made with."""
        found = self._made.get(choice)
        if found is None:
            found = self._made[choice] = self._translated(choice)
            verify(found.kernel)
        elif found.captured:
            self._check_captured(found)
        return found

    def _check_captured(self, made: Made) -> None:
        now = captured(self._python)
        for name, value in made.captured.items():
            if "." not in name and name in now and now[name] != value:
                raise KernelError(
                    f"{name} was {value!r} when {self.name} was compiled, and is {now[name]!r}",
                    where=self.span,
                    why="what a kernel takes from outside is part of its code",
                    cure=f"pass {name} as an argument, declared as a number or as tw.constant",
                )

    def _translated(self, choice: Choice) -> Made:
        types = Types({}, {}, {})
        for _ in range(_MOST_TRANSLATIONS):
            whole, params, body = self._once(choice, types)
            if types.settled:
                break
            types = Types(types.found, {}, types.places)
        kernel = self._kernel(whole, params, body)
        ids, said = whole.identities, whole.messages
        return Made(
            kernel,
            tuple(said.kinds),
            dict(whole.constants),
            ids.most_dim,
            ids.sizes,
            ids.offsets,
            next((each.buffer.name for each in said.parameters), None),
        )

    def _once(self, choice: Choice, types: Types) -> tuple[Translation, list[Any], list[Stmt]]:
        sizes = [each for a in self._parameters.values() for each in getattr(a, "shape", ())]
        taken = (*self._parameters, *(each for each in sizes if isinstance(each, str)))
        whole = Translation(choice.shape, types, taken)
        scope = Translator(self._source, whole.emitter, captured(self._python), whole)
        whole.emitter.span = self.span
        params, values = self._arguments(whole, choice)
        with whole.emitter.inside() as body:
            for name, value in values.items():
                if isinstance(value, _Size):
                    values[name] = whole.emitter.let(name, ir.cast(value.dtype, value.symbol))
                    whole.emitter.means(values[name], value.symbol)
            result = scope.run(values)
        if result is not None:
            raise scope.refuse(
                f"{self.name} returns a value",
                "nobody takes it: work-items store what they find",
                "store it as an element of an array",
                at=self._source.tree,
            )
        return whole, params, body

    def _arguments(
        self, whole: Translation, choice: Choice
    ) -> tuple[list[Param | ScalarParam], dict[str, Any]]:
        """The parameters in the IR, and what their names stand for."""
        types, constants = dict(choice.types), dict(choice.constants)
        sizes: dict[str, ScalarParam] = {}
        named = {
            each
            for a in self._parameters.values()
            if isinstance(a, ArrayType)
            for each in a.shape
            if isinstance(each, str)
        }
        params: list[Param | ScalarParam] = []
        values: dict[str, Any] = {}
        for name, annotation in self._parameters.items():
            if isinstance(annotation, Constant):
                values[name] = constants[name]
            elif isinstance(annotation, ArrayType):
                values[name] = self._array(whole, name, annotation, types, sizes)
                params.append(Param(values[name].buffer, "in"))
            else:
                dtype = annotation if isinstance(annotation, DType) else types[annotation.name]
                if name in named:
                    sizes.setdefault(name, _size(name, choice.shape.wide))
                    symbol = sizes[name].var
                    values[name] = symbol if dtype is s64 else _Size(dtype, symbol)
                else:
                    params.append(ScalarParam(var(name, dtype)))
                    values[name] = var(name, dtype)
        return [*sizes.values(), *params], values

    def _array(
        self,
        whole: Translation,
        name: str,
        annotation: ArrayType,
        types: Mapping[str, DType],
        sizes: dict[str, ScalarParam],
    ) -> Array:
        dtype = annotation.dtype
        element = types[dtype] if isinstance(dtype, str) else dtype
        extents: list[Expr | int] = []
        for dim, size in enumerate(annotation.shape):
            if isinstance(size, int):
                extents.append(size)
                continue
            symbol = size if size is not None else whole.emitter.fresh(f"{name}_{dim}")
            sizes.setdefault(symbol, _size(symbol, whole.shape.wide))
            extents.append(sizes[symbol].var)
        memory = buffer(name, element, extents)
        return Array(memory, tuple(extents), parameter=True)

    def _kernel(
        self, whole: Translation, params: Sequence[Param | ScalarParam], body: Sequence[Stmt]
    ) -> Kernel:
        emitter = whole.emitter
        emitter.span = self.span
        found: list[Param | ScalarParam] = []
        for each in params:
            if isinstance(each, Param) and id(each.buffer) in whole.stored:
                each = replace(each, access="inout")
            found.append(each)
        found += whole.identities.parameters()
        found += whole.messages.parameters
        nest = whole.identities.nest(body, emitter.shared)
        check_meetings(nest, whole.together)
        return Kernel(self.name, tuple(found), nest, span=self.span)

    # What runs it.

    def launch(
        self,
        range: int | Sequence[int],
        *arguments: Any,
        local: int | Sequence[int] | None = None,
        offset: int | Sequence[int] | None = None,
        target: str = "x86",
        threads: int | None = None,
    ) -> None:
        """Runs the kernel by as many work-items as ``range`` says (1 to 3 dims, the last one the
        fastest), on arrays, which it changes in place, and numbers, in the order of its parameters.

        ``local`` is the size of a workgroup, which divides the range; without it, any range goes.
        Ids begin at ``offset``. Raises `KernelError`, `ArgumentError`, and what `tw.compile` does.
        """
        self._launches.run(range, arguments, local, offset, target, threads)

    def specialized(
        self,
        range: int | Sequence[int],
        *arguments: Any,
        local: int | Sequence[int] | None = None,
        offset: int | Sequence[int] | None = None,
    ) -> Kernel:
        """The kernel in the IR that a `launch` with these arguments runs."""
        return self._launches.specialized(range, arguments, local, offset)

    def as_kernel(self) -> Kernel:
        """The kernel for ranges of any size, as many dims as it asks for."""
        return self.over(None, local=self.local)

    def over(
        self,
        dims: int | None = None,
        /,
        *,
        local: int | Sequence[int] | None = None,
        **choices: Any,
    ) -> Kernel:
        """The kernel in the IR, for a range of so many dims (by default as many as it asks for) and
        groups of the size ``local``. ``choices`` are types by their names, and constants: one that
        is called ``local`` is given as that, and the groups are as ``@tw.kernel(local=...)`` says.
        """
        if isinstance(self._parameters.get("local"), Constant):
            choices["local"], local = local, self.local
        return self._launches.kernel(dims, local, choices)

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise self._misused("called as a function")

    def __getitem__(self, range: object) -> NoReturn:
        raise self._misused("given a grid in brackets", "a range is of work-items, not of groups")

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


def _size(name: str, wide: bool) -> ScalarParam:
    return ScalarParam(var(name, s64), 0, _MOST_SIZE_WIDE if wide else _MOST_SIZE)


def _check_parameters(function: FunctionType, source: Source, annotated: bool) -> dict[str, Any]:
    """The annotations by name. `KernelError` for what kernels don't take."""
    args = source.tree.args
    odd = [*args.posonlyargs, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    if odd:
        raise KernelError(
            f"the parameter {odd[0].arg} is given in a way of its own",
            where=source.span(odd[0]),
            why="arguments of kernels have an order, and are all there",
            cure="declare plain parameters",
        )
    if not annotated:
        return {}
    if args.defaults:
        raise KernelError(
            "a parameter has a default",
            where=source.span(args.defaults[0]),
            why="a launch passes all arguments",
            cure="leave the default out",
        )
    found: dict[str, Any] = {}
    annotations = inspect.get_annotations(function, eval_str=True)
    for arg in args.args:
        annotation = annotations.get(arg.arg)
        if isinstance(annotation, TypeVar):
            annotation = scalar(annotation)
        if not isinstance(annotation, ArrayType | ScalarType | Constant | DType):
            raise KernelError(
                f"the parameter {arg.arg} has no type"
                if arg.arg not in annotations
                else f"the parameter {arg.arg} is annotated with {annotation!r}",
                where=source.span(arg),
                why="work-items run typed code",
                cure='annotate it: tw.f32, tw.array("f32", 1), tw.scalar("T") or tw.constant',
            )
        found[arg.arg] = annotation
    return found


@overload
def kernel(
    function: Callable[..., Any],
    *,
    subgroup: int | None = None,
    local: int | Sequence[int] | None = None,
) -> KernelFunction: ...
@overload
def kernel(
    function: None = None,
    *,
    subgroup: int | None = None,
    local: int | Sequence[int] | None = None,
) -> Callable[[Callable[..., Any]], KernelFunction]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    *,
    subgroup: int | None = None,
    local: int | Sequence[int] | None = None,
) -> KernelFunction | Callable[[Callable[..., Any]], KernelFunction]:
    """Makes a kernel of a function: each work-item of a range runs it.

    Parameters have types: ``tw.array("f32", 2)``, numbers (``tw.s32``), `tw.scalar`, `tw.constant`.
    The source is taken now. ``subgroup`` is how many lanes a subgroup has, a power of 2; ``local``
    the size of workgroups where a launch says none. Raises `KernelError`, which marks the place.
    """
    if function is None:
        return partial(kernel, subgroup=subgroup, local=local)
    return KernelFunction(_plain(function, "tw.kernel"), subgroup, local)


@checked_call
def function(function: Callable[..., Any]) -> HelperFunction:
    """Makes a function one that kernels call: it is written out at each call, for the types that it
    is called with. Raises `KernelError`."""
    return HelperFunction(_plain(function, "tw.function"))


def _plain(given: object, decorator: str) -> FunctionType:
    if not isinstance(given, FunctionType) or given.__name__ == "<lambda>":
        raise KernelError(
            f"@{decorator} of {short(given)}",
            where=f"@{decorator}",
            cure="decorate a function that def defines",
        )
    return given

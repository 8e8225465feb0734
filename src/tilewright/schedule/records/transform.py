"""What makes a function a transform: it is listed by name, and what it returns is simplified. Its
calls are the steps of a schedule."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol

from tilewright.facts import Facts, starting_from
from tilewright.ir.stmt import For, Kernel, LoopKind, Opaque
from tilewright.ir.verify_lanes import vector_defect
from tilewright.ir.visit import walk_stmts
from tilewright.schedule.queries.refusal import refusal, running
from tilewright.schedule.staging.copiers import CopyUnit
from tilewright.simplify import simplify_kernel

P = ParamSpec("P")
Transform = Callable[Concatenate[Kernel, P], Kernel]

# What was found out while a kernel was simplified: most of it stands after the next transform, too.
_facts: weakref.WeakKeyDictionary[Kernel, Facts] = weakref.WeakKeyDictionary()

# Kernels without opaque nests: most, and what transforms make of them has none either.
_open: weakref.WeakSet[Kernel] = weakref.WeakSet()

# These go into opaque nests: all that is left becomes loops.
_ENTERING = frozenset({"lower_computes", "open_nests"})

TRANSFORMS: dict[str, Callable[..., Kernel]] = {}

# What transforms gave, by the kernel and the step; None where nobody asked to keep it.
_Results = dict[tuple[Kernel, Hashable], Kernel]
_results: ContextVar[_Results | None] = ContextVar("results", default=None)


@contextmanager
def each_once() -> Iterator[None]:
    """Inside it, what a transform made of a kernel is what it makes of it with the same arguments.

    A recipe looks at a kernel's tiles before it knows the whole config, and then schedules by that:
    both have most steps in common.
    """
    results = _results.get()
    token = _results.set({} if results is None else results)
    try:
        yield
    finally:
        _results.reset(token)


# Kinds and names of the parts that transforms made, by the kernel that has them.
Parts = dict[str, tuple[str, str]]
_made: ContextVar[Parts | None] = ContextVar("made", default=None)
_parts: weakref.WeakKeyDictionary[Kernel, Parts] = weakref.WeakKeyDictionary()


def give(part: str, kind: str, name: str) -> None:
    """Says, in a transform, that ``part`` of its results is the ``kind`` (a loop, a compute, a
    buffer) called ``name``; where there are several by now, as of copies of a compute, the first
    stands for all."""
    names = _made.get()
    if names is not None:
        names.setdefault(part, (kind, name))


def parts_given() -> Parts:
    """What the running transform has given so far."""
    return dict(_made.get() or {})


def parts_of(kernel: Kernel) -> Parts:
    """The kind and the name of each part that the transform gave (see `give`) that made
    ``kernel``."""
    return _parts.get(kernel, {})


@dataclass(frozen=True, eq=False)
class Step:
    """One call of a transform, whose arguments are data: names, numbers, instructions and the
    like."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @staticmethod
    def of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Step:
        """The step with copies of the arguments: who called may go on to change his."""
        return Step(name, tuple([_copied(arg) for arg in args]), _copied(kwargs))

    @property
    def key(self) -> Hashable:
        """What is the same for steps with the same name and arguments, in the same order."""
        return self.name, _key(self.args), _key(self.kwargs)


def _copied(value: Any) -> Any:
    """``value`` as it is now; sets in order, as they would print differently every time."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {_copied(key): _copied(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple([_copied(entry) for entry in value])
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    if isinstance(value, Set):
        return tuple(sorted(value))
    return value


def _key(value: Any) -> Hashable:
    """``value`` (a copy) for a dictionary; with its type, as numbers equal those of other types."""
    if isinstance(value, Mapping):
        return dict, tuple([(_key(key), _key(entry)) for key, entry in value.items()])
    if isinstance(value, tuple | list):
        return type(value), tuple([_key(entry) for entry in value])
    if isinstance(value, CopyUnit):
        return CopyUnit, _key(vars(value))
    return type(value), value


def transform(function: Transform[P]) -> Transform[P]:
    """Lists ``function`` in `TRANSFORMS` and simplifies the kernels that it returns.

    A transform that had nothing to do returns the same object. One that leaves vector loops whose
    lanes would run something differently often is refused.
    """

    @functools.wraps(function)
    def run(kernel: Kernel, /, *args: P.args, **kwargs: P.kwargs) -> Kernel:
        results = _results.get()
        if results is None:
            return apply(kernel, *args, **kwargs)
        key = kernel, Step.of(function.__name__, args, kwargs).key
        result = results[key] = results.get(key) or apply(kernel, *args, **kwargs)
        return result

    def apply(kernel: Kernel, /, *args: P.args, **kwargs: P.kwargs) -> Kernel:
        facts = _facts.get(kernel) or Facts.of(kernel)
        parts: Parts = {}
        token = _made.set(parts)
        try:
            with running(function.__name__), starting_from(facts):
                changed = function(kernel, *args, **kwargs)
                if changed is kernel:
                    return kernel
                result = simplify_kernel(changed)
                _check_lanes(result)
                if _is_open(kernel):
                    _open.add(result)
                elif function.__name__ not in _ENTERING:
                    _check_nests(kernel, changed)
        finally:
            _made.reset(token)
        if parts:
            _parts[result] = parts
        if Facts.of(result).promised == facts.promised:
            _facts[result] = facts
        return result

    TRANSFORMS[function.__name__] = run
    return run


def _check_lanes(kernel: Kernel) -> None:
    """The lanes of a vector loop run what is inside equally often."""
    for loop in walk_stmts(kernel.body):
        if isinstance(loop, For) and loop.kind is LoopKind.VECTOR:
            defective = vector_defect(loop)
            if defective is not None:
                stmt, defect = defective
                raise refusal(
                    defect.what,
                    stmt,
                    "partition the loop that it depends on first, or make vectors of another",
                    why=defect.why,
                )


def _check_nests(kernel: Kernel, changed: Kernel) -> None:
    """What is inside of opaque nests is as it was."""
    stmts = {nest.body for nest in _nests(kernel)}
    for nest in _nests(changed):
        if nest.body not in stmts:
            raise refusal(
                f"it would change what is inside of the opaque nest '{nest.name}'",
                nest,
                "open the nest first (`ir.opaque.opened`)",
                why="the nest uses a loop or a buffer that becomes another, and schedules leave "
                "what is in it as it is",
            )


def _is_open(kernel: Kernel) -> bool:
    if kernel in _open:
        return True
    if _nests(kernel):
        return False
    _open.add(kernel)
    return True


def _nests(kernel: Kernel) -> list[Opaque]:
    return [stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Opaque)]


# What a step gives: the handle of what is new, several as a tuple in program order, or `Results`
# where it names them. Which of these, a checker of types cannot know; who writes the step does.
Handles = Any


class Applies(Protocol):
    """A schedule, which applies transforms by name."""

    def apply(self, name: str, /, *args: Any, **kwargs: Any) -> Handles: ...


def as_method(
    function: Callable[Concatenate[Kernel, P], Kernel],
) -> Callable[Concatenate[Applies, P], Handles]:
    """The transform as a method: what it is given is the same, but for the kernel."""
    name = function.__name__

    @functools.wraps(function)
    def method(self: Applies, /, *args: P.args, **kwargs: P.kwargs) -> Handles:
        return self.apply(name, *args, **kwargs)

    whole = inspect.signature(function)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [first, *list(whole.parameters.values())[1:]]
    method.__dict__["__signature__"] = whole.replace(
        parameters=parameters, return_annotation="Handle | tuple[Handle, ...]"
    )
    return method

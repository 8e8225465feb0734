"""What runs when on the host: a tree of launches, and the control around them.

A launch is what its maker says: a part of a kernel, the number of a device's function, a kernel of
a graph on buffers, a program on memory. So is a value (an extent, a condition): an expression, its
text, or the flag that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeAlias, TypeVar

from tilewright.dtypes import dtype
from tilewright.ir.expr import Var, var

L = TypeVar("L")
V = TypeVar("V")
NewL = TypeVar("NewL")
NewV = TypeVar("NewV")


@dataclass(frozen=True)
class LetStep(Generic[V]):
    """Names a value for the steps after it."""

    var: Var
    value: V


@dataclass(frozen=True)
class ReadStep(Generic[L]):
    """Runs a launch, waits for it, and names the value that it leaves for the host."""

    var: Var
    launch: L


@dataclass(frozen=True)
class ForStep(Generic[L, V]):
    """``body`` for each value of ``var`` (s64) from 0 to ``extent`` (exclusive)."""

    var: Var
    extent: V
    body: tuple[HostStep[L, V], ...]


@dataclass(frozen=True)
class WhileStep(Generic[L, V]):
    """``before``, then, where ``condition`` holds, ``body``; and so on until it does not."""

    before: tuple[HostStep[L, V], ...]
    condition: V
    body: tuple[HostStep[L, V], ...]


@dataclass(frozen=True)
class IfStep(Generic[L, V]):
    """``then`` where ``condition`` holds, otherwise ``orelse``."""

    condition: V
    then: tuple[HostStep[L, V], ...]
    orelse: tuple[HostStep[L, V], ...]


HostStep: TypeAlias = L | LetStep[V] | ReadStep[L] | ForStep[L, V] | WhileStep[L, V] | IfStep[L, V]

_KINDS = {"let": LetStep, "read": ReadStep, "for": ForStep, "while": WhileStep, "if": IfStep}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_INNER = ("before", "body", "then", "orelse")


def launches(steps: Sequence[HostStep[L, Any]]) -> Iterator[L]:
    """All launches, in the order of the text."""
    for step in steps:
        match step:
            case LetStep():
                pass
            case ReadStep():
                yield step.launch
            case ForStep():
                yield from launches(step.body)
            case WhileStep():
                yield from launches((*step.before, *step.body))
            case IfStep():
                yield from launches((*step.then, *step.orelse))
            case _:
                yield step


def map_steps(
    steps: Sequence[HostStep[L, V]], launch: Callable[[L], NewL], value: Callable[[V], NewV]
) -> tuple[HostStep[NewL, NewV], ...]:
    """The same tree of other launches and values, which are asked for in the order of the text."""

    def mapped(step: HostStep[L, V]) -> HostStep[NewL, NewV]:
        match step:
            case LetStep():
                return LetStep(step.var, value(step.value))
            case ReadStep():
                return ReadStep(step.var, launch(step.launch))
            case ForStep():
                return ForStep(step.var, value(step.extent), inner(step.body))
            case WhileStep():
                return WhileStep(inner(step.before), value(step.condition), inner(step.body))
            case IfStep():
                return IfStep(value(step.condition), inner(step.then), inner(step.orelse))
            case _:
                return launch(step)

    def inner(steps: Sequence[HostStep[L, V]]) -> tuple[HostStep[NewL, NewV], ...]:
        return tuple(map(mapped, steps))

    return inner(steps)


def run_steps(
    steps: Sequence[HostStep[L, V]], launch: Callable[[L], None], holds: Callable[[V], bool]
) -> None:
    """Does what ``steps`` say, in which nothing is named or counted: ``launch`` runs a launch,
    ``holds`` looks at a condition."""

    def run(steps: Sequence[HostStep[L, V]]) -> None:
        for step in steps:
            match step:
                case WhileStep():
                    run(step.before)
                    while holds(step.condition):
                        run(step.body)
                        run(step.before)
                case IfStep():
                    run(step.then if holds(step.condition) else step.orelse)
                case LetStep() | ReadStep() | ForStep():
                    raise TypeError(f"a step that names {step.var.name}")
                case _:
                    launch(step)

    run(steps)


def steps_in_words(
    steps: Sequence[HostStep[L, V]],
    launch: Callable[[L], str],
    value: Callable[[V], str],
    result: Callable[[L], str] = str,
) -> Iterator[str]:
    """Lines that say what runs when: ``launch`` tells a launch, ``value`` a value, ``result`` what
    is read of a launch."""

    def lines(steps: Sequence[HostStep[L, V]], indent: str) -> Iterator[str]:
        deeper = indent + "  "
        for step in steps:
            match step:
                case LetStep():
                    yield f"{indent}{_declared(step.var)} = {value(step.value)}"
                case ReadStep():
                    yield f"{indent}{launch(step.launch)}"
                    yield f"{indent}{_declared(step.var)} = {result(step.launch)}"
                case ForStep():
                    yield f"{indent}for {step.var.name} in {value(step.extent)}:"
                    yield from lines(step.body, deeper)
                case WhileStep():
                    yield f"{indent}repeat:"
                    yield from lines(step.before, deeper)
                    yield f"{deeper}leave unless {value(step.condition)}"
                    yield from lines(step.body, deeper)
                case IfStep():
                    yield f"{indent}if {value(step.condition)}:"
                    yield from lines(step.then, deeper)
                    if step.orelse:
                        yield f"{indent}else:"
                        yield from lines(step.orelse, deeper)
                case _:
                    yield f"{indent}{launch(step)}"

    return lines(steps, "")


def _declared(variable: Var) -> str:
    return f"{variable.name}: {variable.type.name}"


def steps_as_json(
    steps: Sequence[HostStep[L, V]], launch: Callable[[L], Any], value: Callable[[V], Any]
) -> list[Any]:
    """The steps as JSON holds them, with launches and values as ``launch`` and ``value`` say: no
    launch as a mapping with a key ``"step"``."""

    def content(name: str, held: Any) -> Any:
        if name in _INNER:
            return steps_as_json(held, launch, value)
        if name == "var":
            return [held.name, held.type.name]
        return launch(held) if name == "launch" else value(held)

    def data(step: Any) -> Any:
        if type(step) not in _NAMES:
            return launch(step)
        held = {field.name: getattr(step, field.name) for field in fields(step)}
        return {"step": _NAMES[type(step)], **{name: content(name, held[name]) for name in held}}

    return [data(step) for step in steps]


def steps_from_json(
    data: Sequence[Any], launch: Callable[[Any], L], value: Callable[[Any], V]
) -> tuple[HostStep[L, V], ...]:
    """What `steps_as_json` gave. Raises `LookupError`, `TypeError`, `ValueError` or an error of
    this project for anything else."""

    def content(name: str, held: Any) -> Any:
        if name in _INNER:
            return steps_from_json(held, launch, value)
        if name == "var":
            return _var(*held)
        return launch(held) if name == "launch" else value(held)

    def step(held: Any) -> HostStep[L, V]:
        if not isinstance(held, Mapping) or "step" not in held:
            return launch(held)
        kind: Any = _KINDS[held["step"]]
        result: HostStep[L, V] = kind(**{n: content(n, held[n]) for n in held if n != "step"})
        return result

    if not isinstance(data, list):
        raise TypeError("steps are a list")
    return tuple(map(step, data))


def _var(name: object, type_: str) -> Var:
    if not isinstance(name, str):
        raise TypeError("a name is text")
    return var(name, dtype(type_))

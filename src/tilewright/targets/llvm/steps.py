"""What a host does to run a kernel on a device, as data: launches in turn, and control around them.

Expressions are IR text over the kernel's scalar parameters and the host's own values: those that
loops count, and that `LetStep` and `ReadStep` name. Only `ReadStep` waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A number, or the text of an expression that gives it at each call.
Amount = int | str


def times(amount: Amount, factor: int) -> Amount:
    """``amount`` so many times."""
    if isinstance(amount, int) or factor == 1:
        return amount * factor
    return f"({amount}) * {factor}"


@dataclass(frozen=True)
class RunStep:
    """Puts the launch of that number on the queue; where it has no workgroups, nothing."""

    launch: int


@dataclass(frozen=True)
class LetStep:
    """Names a value of the type called ``dtype``."""

    name: str
    dtype: str
    value: str


@dataclass(frozen=True)
class ReadStep:
    """Runs the launch of that number, waits for it, and names what it wrote: the first element of
    the workspace of that number, of the type called ``dtype``."""

    name: str
    dtype: str
    launch: int
    workspace: int


@dataclass(frozen=True)
class ForStep:
    """``body`` for each value of ``var`` (s64) from 0 to ``extent`` (exclusive)."""

    var: str
    extent: str
    body: tuple[HostStep, ...]


@dataclass(frozen=True)
class WhileStep:
    """``before``, then, where ``condition`` holds, ``body``; and so on until it does not."""

    before: tuple[HostStep, ...]
    condition: str
    body: tuple[HostStep, ...]


@dataclass(frozen=True)
class IfStep:
    """``then`` where ``condition`` holds, otherwise ``orelse``."""

    condition: str
    then: tuple[HostStep, ...]
    orelse: tuple[HostStep, ...]


HostStep = RunStep | LetStep | ReadStep | ForStep | WhileStep | IfStep

_KINDS: dict[str, type[HostStep]] = {
    "run": RunStep,
    "let": LetStep,
    "read": ReadStep,
    "for": ForStep,
    "while": WhileStep,
    "if": IfStep,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def in_turn(launches: int) -> tuple[HostStep, ...]:
    """So many launches, one after the other."""
    return tuple(RunStep(number) for number in range(launches))


def walk_steps(steps: Sequence[HostStep]) -> Iterator[HostStep]:
    """The steps and all that are inside of them."""
    for step in steps:
        yield step
        match step:
            case ForStep():
                yield from walk_steps(step.body)
            case WhileStep():
                yield from walk_steps((*step.before, *step.body))
            case IfStep():
                yield from walk_steps((*step.then, *step.orelse))
            case _:
                pass


def steps_as_json(steps: Sequence[HostStep]) -> list[dict[str, Any]]:
    """The steps as JSON holds them."""
    return [_as_json(step) for step in steps]


def _as_json(step: HostStep) -> dict[str, Any]:
    fields: dict[str, Any] = {"step": _NAMES[type(step)]}
    for name in type(step).__dataclass_fields__:
        value = getattr(step, name)
        fields[name] = steps_as_json(value) if isinstance(value, tuple) else value
    return fields


def steps_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[HostStep, ...]:
    """What `steps_as_json` made. Raises `KeyError` or `TypeError` for anything else."""
    if not isinstance(data, list):
        raise TypeError("steps are a list")
    return tuple(_from_json(each) for each in data)


def _from_json(data: Mapping[str, Any]) -> HostStep:
    fields = {
        name: steps_from_json(value) if isinstance(value, list) else value
        for name, value in data.items()
        if name != "step"
    }
    kind: Any = _KINDS[data["step"]]
    step: HostStep = kind(**fields)
    return step

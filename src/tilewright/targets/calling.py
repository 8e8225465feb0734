"""What a driver works out for each call of a kernel: sizes that depend on scalars, and the steps of
the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tilewright.dtypes import DType, boolean, s64
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Const, Var, var
from tilewright.ir.parser import parse_expr
from tilewright.newest import Newest
from tilewright.runtime.steps import ForStep, IfStep, LetStep, ReadStep, WhileStep
from tilewright.targets.llvm.module import Amount, DeviceStep
from tilewright.targets.program import Abi, Passed, Scalar

# The values of scalars, and of the host's own variables.
Values = dict[Var, Any]
Formula = Callable[[Values], Any]
Types = Mapping[str, DType]


# Calls of other sizes whose workspaces are remembered.
_KEPT = 128


class Bits(NamedTuple):
    """A value as a function is given it: so many bytes, whose bits make a natural number."""

    bytes: int
    number: int


def bits_of(type_: DType, value: Any) -> Bits:
    """The bits of ``value``."""
    if type_.is_integer:
        return Bits(type_.bytes, value & ((1 << 8 * type_.bytes) - 1))
    raw = np.asarray(value).astype(type_.numpy).tobytes()
    return Bits(type_.bytes, int.from_bytes(raw, "little"))


class Device(Protocol):
    """What the host asks of a device, in one call."""

    def launch(self, number: int, groups: int, values: Sequence[Bits]) -> None:
        """Puts a launch on the queue, for so many workgroups, with the host's values."""

    def read(self, workspace: int, type_: DType) -> Any:
        """The first element of a workspace, once all that is on the queue is done."""


class Calling:
    """An ABI as drivers use it, made once for each program.

    ``fixed``: no scalar decides anything, and the host has nothing to do but to launch in turn.
    """

    def __init__(self, abi: Abi) -> None:
        self._abi = abi
        self._scalars = [
            (position, var(each.name, each.dtype))
            for position, each in enumerate(abi.parameters)
            if isinstance(each, Scalar)
        ]
        self.array_positions = [
            position for position, p in enumerate(abi.parameters) if not isinstance(p, Scalar)
        ]
        types = {each.name: each.dtype for each in abi.scalars}
        self._bytes = [_formula(each.bytes, types) for each in abi.arrays]
        self._spaces = [_formula(each, types) for each in abi.workspaces]
        amounts = [*(each.bytes for each in abi.arrays), *abi.workspaces]
        amounts += [each.groups for each in abi.launches]
        steps = abi.steps or tuple(range(len(abi.launches)))
        self.fixed = not abi.steps and not abi.scalars and all(isinstance(a, int) for a in amounts)
        self._run = self._sequence(steps, types)
        # What sizes are made of: whole numbers, which come again.
        self._sizing = [position for position, v in self._scalars if v.type.is_integer]
        self._known: Newest[tuple[Any, ...], list[int]] = Newest(_KEPT)

    def values(self, arguments: Sequence[Passed]) -> Values:
        """What the call passes for scalars."""
        return {variable: arguments[position] for position, variable in self._scalars}

    def scalars(self, arguments: Sequence[Passed]) -> list[tuple[int, Bits]]:
        """The position and the bits of each scalar."""
        return [(i, bits_of(variable.type, arguments[i])) for i, variable in self._scalars]

    def slots(self, arguments: Sequence[Passed]) -> list[int]:
        """All arguments as the bits of slots of 8 bytes: addresses, and scalars."""
        found = list(arguments)
        for position, variable in self._scalars:
            value = arguments[position]
            if variable.type is not s64 or value < 0:
                found[position] = bits_of(variable.type, value).number
        return found  # type: ignore[return-value]  # what is no scalar is an address

    def array_bytes(self, values: Values) -> list[int]:
        """The bytes of each array."""
        return [formula(values) for formula in self._bytes]

    def workspace_bytes(self, values: Values) -> list[int]:
        """The bytes of each workspace."""
        return [formula(values) for formula in self._spaces]

    def workspaces_of(self, arguments: Sequence[Passed]) -> list[int]:
        """`workspace_bytes` of a call; remembered, as calls are many and their sizes few."""
        key = tuple([arguments[position] for position in self._sizing])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.workspace_bytes(self.values(arguments))
        return found

    def run(self, values: Values, device: Device) -> None:
        """Does the host's steps on ``device``."""
        self._run(values, device)

    # Steps become functions: a loop of the host may launch thousands of times.

    def _sequence(
        self, steps: Sequence[DeviceStep], types: Types
    ) -> Callable[[Values, Device], None]:
        types = dict(types)
        actions: list[Callable[[Values, Device], None]] = []
        for step in steps:
            actions.append(self._action(step, types))
            types |= _named(step)

        def run(values: Values, device: Device) -> None:
            for action in actions:
                action(values, device)

        return run

    def _action(self, step: DeviceStep, types: Types) -> Callable[[Values, Device], None]:
        match step:
            case LetStep():
                name, value = step.var, _formula(step.value, types)

                def let(values: Values, device: Device) -> None:
                    values[name] = value(values)

                return let
            case ReadStep():
                return self._reading(step, types)
            case ForStep():
                return self._counting(step, types)
            case WhileStep():
                return self._repeating(step, types)
            case IfStep():
                condition = _formula(step.condition, types)
                branches = self._sequence(step.orelse, types), self._sequence(step.then, types)

                def choose(values: Values, device: Device) -> None:
                    branches[bool(condition(values))](values, device)

                return choose
            case _:
                return self._launching(step, types)

    def _launching(self, number: int, types: Types) -> Callable[[Values, Device], None]:
        launch = self._abi.launches[number]
        groups = _formula(launch.groups, types)
        names = [var(name, types[name]) for name in launch.values]

        def run(values: Values, device: Device) -> None:
            count = groups(values)
            if count > 0:
                device.launch(number, count, [bits_of(name.type, values[name]) for name in names])

        return run

    def _reading(self, step: ReadStep[int], types: Types) -> Callable[[Values, Device], None]:
        launch, name = self._launching(step.launch, types), step.var
        workspace = self._abi.launches[step.launch].result
        if workspace is None:
            raise ValueError(f"{name.name} is read of a launch that leaves no result")

        def read(values: Values, device: Device) -> None:
            launch(values, device)
            values[name] = device.read(workspace, name.type)

        return read

    def _counting(self, step: ForStep[int, str], types: Types) -> Callable[[Values, Device], None]:
        name, extent = step.var, _formula(step.extent, types)
        body = self._sequence(step.body, {**types, name.name: s64})

        def count(values: Values, device: Device) -> None:
            for iteration in range(extent(values)):
                values[name] = iteration
                body(values, device)

        return count

    def _repeating(
        self, step: WhileStep[int, str], types: Types
    ) -> Callable[[Values, Device], None]:
        before = self._sequence(step.before, types)
        inside = dict(types)
        for each in step.before:
            inside |= _named(each)
        condition = _formula(step.condition, inside)
        body = self._sequence(step.body, inside)

        def repeat(values: Values, device: Device) -> None:
            while True:
                before(values, device)
                if not condition(values):
                    return
                body(values, device)

        return repeat


def _named(step: DeviceStep) -> Types:
    """The type of what ``step`` names for those after it."""
    return {step.var.name: step.var.type} if isinstance(step, LetStep | ReadStep) else {}


def _formula(amount: Amount, types: Types) -> Formula:
    if isinstance(amount, int):
        return lambda values: amount
    expr = parse_expr(amount, types)
    match expr:
        case Const():
            constant = expr.value
            return lambda values: constant
        case Var():
            return lambda values: values[expr]
        case _:
            return lambda values: evaluate(expr, values)


def read_element(memory: bytes, type_: DType) -> Any:
    """An element as a Python number."""
    value = np.frombuffer(memory, type_.numpy)[0]
    if type_ is boolean:
        return bool(value)
    return float(value) if type_.is_float else int(value)

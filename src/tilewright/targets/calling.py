"""A driver's work for each call of a kernel: sizes that depend on scalars, and the host's steps."""

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


# Number of calls with different integers whose sizes are kept.
_KEPT = 128


class Bits(NamedTuple):
    """A value as passed to a function: the number of its bytes, and its bits as an integer."""

    bytes: int
    number: int


def bits_of(type_: DType, value: Any) -> Bits:
    """The bits of ``value``."""
    if type_.is_integer:
        return Bits(type_.bytes, value & ((1 << 8 * type_.bytes) - 1))
    raw = np.asarray(value).astype(type_.numpy).tobytes()
    return Bits(type_.bytes, int.from_bytes(raw, "little"))


class Sizes(NamedTuple):
    """What the integers of a call decide: the bytes of each array and each workspace, and the
    launches as (number, workgroups), in turn; None where the host's steps decide these."""

    arrays: list[int]
    workspaces: list[int]
    launches: list[tuple[int, int]] | None


class Device(Protocol):
    """The host's requests to a device in one call."""

    def launch(self, number: int, groups: int, values: Sequence[Bits]) -> None:
        """Queues a launch of ``groups`` workgroups, with the host's values."""

    def read(self, workspace: int, type_: DType) -> Any:
        """The first element of a workspace, after all queued launches."""


class Calling:
    """An ABI as drivers use it, built once for each program.

    ``fixed``: no size depends on a scalar, and the host's only steps are the launches in turn.
    """

    def __init__(self, abi: Abi) -> None:
        self._abi = abi
        self._scalars = [
            (position, var(parameter.name, parameter.dtype))
            for position, parameter in enumerate(abi.parameters)
            if isinstance(parameter, Scalar)
        ]
        self.array_positions = [
            position for position, p in enumerate(abi.parameters) if not isinstance(p, Scalar)
        ]
        types = {scalar.name: scalar.dtype for scalar in abi.scalars}
        self._bytes = [_formula(array.bytes, types) for array in abi.arrays]
        self._spaces = [_formula(workspace, types) for workspace in abi.workspaces]
        amounts = [*(array.bytes for array in abi.arrays), *abi.workspaces]
        amounts += [launch.groups for launch in abi.launches]
        steps = abi.steps or tuple(range(len(abi.launches)))
        self.fixed = not abi.steps and not abi.scalars and all(isinstance(a, int) for a in amounts)
        self._run = self._sequence(steps, types)
        self._groups: list[tuple[int, Formula]] | None = None
        if not any(launch.values for launch in abi.launches):
            in_turn = [step for step in steps if isinstance(step, int)]
            if len(in_turn) == len(steps):
                self._groups = [(n, _formula(abi.launches[n].groups, types)) for n in in_turn]
        # Integer scalars determine the sizes, and the same ones are passed again and again.
        self._sizing = [position for position, v in self._scalars if v.type.is_integer]
        self._kept_sizes: Newest[tuple[Any, ...], Sizes] = Newest(_KEPT)

    def values(self, arguments: Sequence[Passed]) -> Values:
        """The scalars of a call."""
        return {variable: arguments[position] for position, variable in self._scalars}

    def scalars(self, arguments: Sequence[Passed]) -> list[tuple[int, Bits]]:
        """The position and the bits of each scalar."""
        return [(i, bits_of(variable.type, arguments[i])) for i, variable in self._scalars]

    def slots(self, arguments: Sequence[Passed]) -> list[int]:
        """All arguments as the bits of slots of 8 bytes: addresses, and scalars."""
        slots = list(arguments)
        for position, variable in self._scalars:
            value = arguments[position]
            if variable.type is not s64 or value < 0:
                slots[position] = bits_of(variable.type, value).number
        return slots  # type: ignore[return-value]  # arguments other than scalars are addresses

    def array_bytes(self, values: Values) -> list[int]:
        """The bytes of each array."""
        return [formula(values) for formula in self._bytes]

    def workspace_bytes(self, values: Values) -> list[int]:
        """The bytes of each workspace."""
        return [formula(values) for formula in self._spaces]

    def sizes_of(self, arguments: Sequence[Passed]) -> Sizes:
        """The sizes of a call, kept for its integers: calls are many, and sizes few."""
        key = tuple([arguments[position] for position in self._sizing])
        sizes = self._kept_sizes.get(key)
        if sizes is None:
            sizes = self._kept_sizes[key] = self._sizes(self.values(arguments))
        return sizes

    def _sizes(self, values: Values) -> Sizes:
        launches: list[tuple[int, int]] | None = None
        if self._groups is not None:
            counts = [(number, formula(values)) for number, formula in self._groups]
            launches = [(number, count) for number, count in counts if count > 0]
        return Sizes(self.array_bytes(values), self.workspace_bytes(values), launches)

    def run(self, values: Values, device: Device) -> None:
        """Carries out the host's steps on ``device``."""
        self._run(values, device)

    # Steps become functions, because a loop of the host may launch thousands of times.

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
        inner_types = dict(types)
        for inner in step.before:
            inner_types |= _named(inner)
        condition = _formula(step.condition, inner_types)
        body = self._sequence(step.body, inner_types)

        def repeat(values: Values, device: Device) -> None:
            while True:
                before(values, device)
                if not condition(values):
                    return
                body(values, device)

        return repeat


def _named(step: DeviceStep) -> Types:
    """The type of the name that ``step`` defines for later steps; empty for other steps."""
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

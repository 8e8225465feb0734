"""A program of several kernels for a device: its modules, and what to launch when, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.runtime.steps import HostStep, IfStep, WhileStep, steps_as_json
from tilewright.targets.calling import Bits, Calling
from tilewright.targets.linking import LinkedStep, Place, Run
from tilewright.targets.program import Abi, Parameter
from tilewright.targets.standalone import HEAD, Standalone, StandaloneFunction

FORMAT = "tilewright plan 1"

Files = Callable[[bytes, Abi, str], dict[str, bytes]]
_Launched = HostStep[dict[str, Any], Place]


def plan_files(
    standalone: Standalone, target: str, made_for: str, files_of: Files
) -> dict[str, bytes]:
    """The modules of all kernels, by ``files_of``, and ``NAME.json``: the functions' arguments,
    arenas and steps."""
    files: dict[str, bytes] = {}
    modules: list[list[str]] = []
    for number, (binary, abi) in enumerate(standalone.kernels):
        name = f"{standalone.name}_kernel_{number}"
        of_kernel = files_of(binary, replace(abi, entry=name), name)
        files |= of_kernel
        modules.append(list(of_kernel))
    constants = standalone.constants
    beside = None
    if constants is not None:
        beside = {"file": constants.name, "bytes": constants.size, "head": HEAD}
    plan = {
        "format": FORMAT,
        "target": target,
        "runs_on": made_for,
        "modules": modules,
        "constants": beside,
        "functions": {
            function.name: _function(function, standalone) for function in standalone.functions
        },
    }
    return {**files, f"{standalone.name}.json": json.dumps(plan, indent=1).encode() + b"\n"}


def _function(function: StandaloneFunction, standalone: Standalone) -> dict[str, Any]:
    arguments = [
        {**asdict(argument), "dtype": argument.dtype.name} for argument in function.arguments
    ]
    steps = tuple(_launches(function.plan.steps, standalone, function.name))
    return {
        "title": function.title,
        "arguments": arguments,
        "arena": function.plan.arena,
        "steps": steps_as_json(steps, lambda launch: launch, _place),
    }


def _launches(
    steps: Sequence[LinkedStep], standalone: Standalone, function: str
) -> Iterator[_Launched]:
    """``steps`` with the launches of each kernel in its place."""

    def inner(steps: Sequence[LinkedStep]) -> tuple[_Launched, ...]:
        return tuple(_launches(steps, standalone, function))

    for step in steps:
        match step:
            case Run():
                yield from _run(step, standalone.kernels[step.program][1], function)
            case WhileStep():
                yield WhileStep(inner(step.before), step.condition, inner(step.body))
            case IfStep():
                yield IfStep(step.condition, inner(step.then), inner(step.orelse))


def _run(run: Run, abi: Abi, function: str) -> Iterator[dict[str, Any]]:
    """The launches of one kernel, each with all that it takes."""
    recorded = _Recorded(function, abi)
    Calling(abi).run({}, recorded)
    passed: list[dict[str, Any]] = []
    arrays = [parameter for parameter in abi.parameters if isinstance(parameter, Parameter)]
    for place, array in zip(run.places, arrays, strict=True):
        passed.append({**_place(place), "access": array.access, "bytes": array.bytes})
    for place, size in zip(run.workspaces, abi.workspaces, strict=True):
        passed.append({**_place(place), "access": "inout", "bytes": size})
    for number, groups, values in recorded.launches:
        launch = abi.launches[number]
        by_value = [{"value": bits.number, "bytes": bits.bytes} for bits in values]
        yield {
            "module": run.program,
            "entry": launch.entry,
            "groups": groups,
            "items": launch.items,
            "shared": launch.shared,
            "cluster": launch.cluster,
            "arguments": [*passed, *by_value],
            "maps": [{"argument": m.argument, **json.loads(m.text)} for m in launch.maps],
        }


def _place(place: Place) -> dict[str, Any]:
    """``{"argument": number}``, ``{"constant": offset}`` or ``{"arena": offset}``."""
    return {place.base.value: place.number}


@dataclass
class _Recorded:
    """Stands for a device, and remembers what it is asked for."""

    function: str
    abi: Abi
    launches: list[tuple[int, int, tuple[Bits, ...]]] = field(default_factory=list)

    def launch(self, number: int, groups: int, values: Sequence[Bits]) -> None:
        """Remembers the launch."""
        self.launches.append((number, groups, tuple(values)))

    def read(self, workspace: int, type_: DType) -> NoReturn:
        """Refuses what no plan can say beforehand."""
        del workspace, type_
        raise UnsupportedError(
            f"{self.function} has a loop on the host whose condition depends on data",
            where=f"kernel {self.abi.entry}",
            why="a plan says beforehand what is launched, and how often",
            cure="build it for x86, or take the loop out of the kernel: `while` and `if` around "
            "computes are steps of the plan",
        )

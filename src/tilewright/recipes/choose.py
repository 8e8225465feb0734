"""Which recipe an op takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Kernel
from tilewright.layout.tags import ANY
from tilewright.machines.machine import Machine
from tilewright.ops.op import Op
from tilewright.recipes import (
    choices,
    contraction,
    direct,
    streaming,
    workgroup_model,
    workgroups,
)
from tilewright.recipes.config import (
    Config,
    ContractionConfig,
    DirectConfig,
    StreamingConfig,
    WorkgroupConfig,
)
from tilewright.recipes.scheduled import ScheduledKernel


def prepacked(op: Op) -> str | None:
    """The argument that may be packed before the kernel runs: weights whose layout is ``any``."""
    for tensor in op.tensors:
        if tensor.name == "weights" and tensor.access == "in" and op.layout_of("weights") == ANY:
            return "weights"
    return None


def choose(op: Op, kernel: Kernel, machine: Machine) -> tuple[Config, ScheduledKernel]:
    """The first of the default configs for ``kernel``, the naive kernel of ``op``, that is legal,
    and the schedule that it gives."""
    if not choices.is_contraction(kernel):
        config = streaming.choose(kernel, machine)
        return config, streaming.schedule(kernel, machine, config)
    refusal: ScheduleError | None = None
    for candidate in _candidates(op, kernel, machine):
        try:
            return candidate, schedule(op, kernel, machine, candidate)
        except ScheduleError as error:
            refusal = error
    assert refusal is not None
    raise refusal


def _candidates(op: Op, kernel: Kernel, machine: Machine) -> Iterator[Config]:
    """The default configs for a contraction, the best first."""
    exact = _exact(op, kernel)
    # Memory in banks is faster than a cache: only there does a copy of operands pay for itself.
    starts = (kernel,) if kernel is exact else (kernel, exact)
    alone = direct.default_config(exact, machine)
    if alone is not None:
        yield alone
    for each in starts if machine.banked else ():
        for shared in workgroup_model.default_configs(each, machine, prepacked(op)):
            if each is exact or _multiplies_matrices(shared, machine):
                yield shared
    yield from choices.candidates(exact, machine, prepacked(op))


def _exact(op: Op, kernel: Kernel) -> Kernel:
    """``kernel``, the naive kernel of ``op``, without the rounding that its fpmath allows."""
    if op.attributes.fpmath is None:
        return kernel
    return replace(op, attributes=replace(op.attributes, fpmath=None)).kernel()


def _multiplies_matrices(config: Config, machine: Machine) -> bool:
    """Whether subgroups multiply matrices: of other types than f32, where fpmath allows it."""
    if not isinstance(config, WorkgroupConfig) or not config.instruction:
        return False
    return machine.instruction(config.instruction).lanes > 1


def schedule(op: Op, kernel: Kernel, machine: Machine, config: Config) -> ScheduledKernel:
    """Schedules ``kernel``, the naive kernel of ``op``; without its fpmath, unless the config
    multiplies matrices: rounding would only cost time. Raises `ScheduleError`."""
    if not _multiplies_matrices(config, machine):
        kernel = _exact(op, kernel)
    if isinstance(config, ContractionConfig | DirectConfig | WorkgroupConfig):
        if not choices.is_contraction(kernel):
            raise ScheduleError(
                f"{op.kind} is no contraction",
                where=f"config {config!r}",
                cure="use a StreamingConfig",
            )
        if isinstance(config, DirectConfig):
            return direct.schedule(kernel, machine, config, prepacked(op))
        if isinstance(config, WorkgroupConfig):
            return workgroups.schedule(kernel, machine, config, prepacked(op))
        return contraction.schedule(kernel, machine, config, prepacked(op))
    assert isinstance(config, StreamingConfig)
    return streaming.schedule(kernel, machine, config)

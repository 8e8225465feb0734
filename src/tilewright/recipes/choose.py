"""Which recipe an op takes, and what stands for ``any`` in its layouts."""

from __future__ import annotations

from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Kernel
from tilewright.layout.tags import ANY
from tilewright.machines.machine import Machine
from tilewright.ops.op import Op
from tilewright.problems import ConvProblem, PoolProblem
from tilewright.recipes import choices, contraction, streaming
from tilewright.recipes.config import Config, ContractionConfig, StreamingConfig
from tilewright.recipes.schedule import Schedule

_CHANNELS_LAST = {1: "nwc", 2: "nhwc", 3: "ndhwc"}
_WEIGHTS = {1: "wio", 2: "hwio", 3: "dhwio"}
_GROUPED_WEIGHTS = {1: "wigo", 2: "hwigo", 3: "dhwigo"}


def resolve(op: Op) -> Op:
    """``op`` with its ``any`` layouts chosen: channels last, and weights in one run of outputs.

    Weights that are only read stay ``any``: they are packed before the kernel runs.
    """
    problem = op.problem
    if not isinstance(problem, ConvProblem | PoolProblem):
        return op
    tag = _CHANNELS_LAST[problem.ndims]
    chosen = {
        t.name: tag for t in op.tensors if t.name in ("src", "dst") and op.layout_of(t.name) == ANY
    }
    written = any(t.name == "weights" and t.access != "in" for t in op.tensors)
    if isinstance(problem, ConvProblem) and written and op.layout_of("weights") == ANY:
        tags = _GROUPED_WEIGHTS if problem.g > 1 else _WEIGHTS
        chosen["weights"] = tags[problem.ndims]
    return op.with_layouts(**chosen) if chosen else op


def prepacked(op: Op) -> str | None:
    """The argument that may be packed before the kernel runs: weights whose layout is ``any``."""
    for tensor in op.tensors:
        if tensor.name == "weights" and tensor.access == "in" and op.layout_of("weights") == ANY:
            return "weights"
    return None


def choose(op: Op, kernel: Kernel, machine: Machine) -> tuple[Config, Schedule]:
    """The first of the default configs for ``kernel``, the naive kernel of ``op``, that is legal,
    and the schedule that it gives."""
    if not choices.is_contraction(kernel):
        config = streaming.choose(kernel, machine)
        return config, streaming.schedule(kernel, machine, config)
    refusal: ScheduleError | None = None
    for candidate in choices.candidates(kernel, machine, prepacked(op)):
        try:
            return candidate, schedule(op, kernel, machine, candidate)
        except ScheduleError as error:
            refusal = error
    assert refusal is not None
    raise refusal


def schedule(op: Op, kernel: Kernel, machine: Machine, config: Config) -> Schedule:
    """Schedules ``kernel``, the naive kernel of ``op``. Raises `ScheduleError`."""
    if isinstance(config, ContractionConfig):
        if not choices.is_contraction(kernel):
            raise ScheduleError(
                f"{op.kind} is no contraction",
                where=f"config {config!r}",
                cure="use a StreamingConfig",
            )
        return contraction.schedule(kernel, machine, config, prepacked(op))
    assert isinstance(config, StreamingConfig)
    return streaming.schedule(kernel, machine, config)

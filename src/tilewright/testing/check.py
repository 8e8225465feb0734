"""Checks the stages of a kernel in the interpreter: faults, wrong results, and slow accesses.

Each stage runs on the same integers, whose sums are exact, and has to give the results of the naive
stage. Faults are collected, so that one run reports all of them. The costs of memory accesses on
the machine are counted at the same time, and reported as notes, not as errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.dtypes import f64
from tilewright.engine.request import request_of
from tilewright.engine.signature import Signature
from tilewright.errors import ProblemError, TilewrightError, UnsupportedError
from tilewright.interpret import Findings, Line, Profile, pack, run
from tilewright.ir.arguments import Scalar
from tilewright.ir.buffer import SHARED
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Kernel, Param, Stmt
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import THREADS, Machine
from tilewright.ops.op import Op
from tilewright.passes import PASSES
from tilewright.recipes import choose
from tilewright.recipes.given import GivenConfig
from tilewright.recipes.start import Start
from tilewright.tables import aligned
from tilewright.testing.approximate import Accepted, within
from tilewright.testing.definition import MOST_REPEATS, check_length, memory_of
from tilewright.testing.expected import expected
from tilewright.testing.inputs import make_inputs
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.kernel_data import Contents, padded

# The least part of the bytes moved from global memory that a statement should use.
_COALESCED = 0.5
_NAIVE = "naive"


@dataclass(frozen=True)
class Issue:
    """An error of one stage: ``line`` counts from 1 in the stage's text (0: none), ``text`` is the
    statement there, ``message`` the first of ``count`` occurrences."""

    kind: str
    line: int
    text: str
    message: str
    count: int = 1


@dataclass(frozen=True)
class Note:
    """The cost of one statement's accesses to one buffer.

    ``conflicts`` is the mean number of turns of the banks per access (1.0: no conflicts), ``worst``
    the greatest; ``efficiency`` is the part of the moved segments of global memory that is used.
    """

    line: int
    text: str
    buffer: str
    access: str
    accesses: int
    conflicts: float = 1.0
    worst: int = 1
    efficiency: float = 1.0

    @property
    def slow(self) -> bool:
        """Whether banks conflict, or accesses do not coalesce."""
        return self.conflicts > 1.0 or self.efficiency < _COALESCED


@dataclass(frozen=True)
class StageReport:
    """The faults of one stage, the costs of its accesses, and whether it stored anything to an
    argument."""

    stage: str
    issues: tuple[Issue, ...] = ()
    notes: tuple[Note, ...] = field(default_factory=tuple)
    stored: bool = True

    @property
    def slow(self) -> tuple[Note, ...]:
        """The notes on accesses that cost more than they should."""
        return tuple(note for note in self.notes if note.slow)

    def as_json(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return asdict(self)


def check_op(
    op: Op,
    machine: Machine,
    stage: str = "",
    config: GivenConfig | None = None,
    seed: int = 0,
    costs: bool = True,
) -> list[StageReport]:
    """Schedules ``op`` for ``machine``, and checks its packing kernels, then ``stage``.

    ``stage``: its name, ``"all"``, or ``""`` for the last one, which the target gets. Without
    ``costs``, the costs of accesses are not counted, which saves a third of the time, and reports
    have no notes. Raises `UnsupportedError`, `ScheduleError`, and `ProblemError` for an unknown
    stage.
    """
    op = op.resolved()
    stages, packs = _scheduled(Start.of(op), machine, config)
    inputs = make_inputs(op, exact=True, seed=seed)
    accepted = expected(op, inputs, exact=True)
    watched = machine if costs else replace(machine, hierarchy=THREADS)
    return check_stages(stages, packs, watched, inputs, stage, accepted)


def check_kernel(
    case: KernelCase, machine: Machine, stage: str = "", config: GivenConfig | None = None
) -> list[StageReport]:
    """Schedules the kernel of ``case`` for ``machine``, and checks it as `check_op` does; for a
    function in Python, divisions of integers by 0 are faults, too."""
    check_length(case.kernel, case.numbers)
    start = request_of(case.kernel, case.constant).start()
    check = partial(
        check_stages,
        machine=machine,
        inputs=case.contents(Contents.INTEGERS),
        numbers=case.numbers,
        divisions=case.python,
    )
    try:
        stages, packs = _scheduled(start, machine, config)
    except UnsupportedError:
        # A fault of the kernel may be the reason, which the interpreter explains better.
        reports = check({_NAIVE: case.kernel}, {})
        if not any(report.issues for report in reports):
            raise
        return reports
    return check(stages, packs, stage=stage)


def _scheduled(
    start: Start, machine: Machine, config: GivenConfig | None
) -> tuple[dict[str, Kernel], dict[str, Kernel]]:
    """The stages, with those of passes, and the packing kernels."""
    if config is None:
        _, scheduled = choose.choose(start, machine)
    else:
        _, scheduled = choose.schedule_given(start, machine, config)
    stages = dict(scheduled.stages)
    last = scheduled.kernel
    for kernel_pass in PASSES:
        result = kernel_pass.function(last)
        if result is not last:
            stages[kernel_pass.name] = last = result
    return stages, scheduled.packed


def check_stages(
    stages: Mapping[str, Kernel],
    packs: Mapping[str, Kernel],
    machine: Machine,
    inputs: Mapping[str, Any],
    stage: str = "",
    accepted: Mapping[str, Accepted] | None = None,
    numbers: Mapping[str, Scalar] | None = None,
    divisions: bool = False,
) -> list[StageReport]:
    """Checks ``stages``, the first of which is the naive one, on ``inputs`` of logical shape (or of
    the padded shape) and the scalars ``numbers``.

    A result may differ from the naive stage's if it is within ``accepted``: with another rounding
    order, a step function such as ``round`` may jump. ``divisions``: integer divisions by 0 are
    faults of the naive stage.
    """
    if stage not in ("", "all", *stages):
        raise ProblemError(
            f"there is no stage {stage!r}",
            where="--stage",
            cure="choose one of " + ", ".join(["all", *stages]),
        )
    first, *others = stages
    naive, scalars = stages[first], dict(numbers or {})
    arrays = Signature(naive.params).at(scalars)
    memory: dict[str, Any] = {**scalars, **{p.name: _filled(p, inputs) for p in arrays}}
    reports = []
    for name, kernel in packs.items():
        memory |= {packed.name: _filled(packed, {}) for packed in kernel.arrays[1:]}
        reports.append(_check(f"pack {name}", kernel, machine, memory))
    reference = {**scalars, **{p.name: memory[p.name].copy() for p in arrays}}
    reports.append(_check(first, naive, machine, reference, divisions=divisions))
    # Only the naive stage's parameters have the op's shapes; later stages may change them.
    limits = {
        p.name: _limits(p, accepted[p.name])
        for p in arrays
        if accepted is not None and p.name in accepted
    }
    chosen = others if stage == "all" else [stage or list(stages)[-1]]
    groups = _Groups(machine, memory)
    for name in others:
        kernel = stages[name]
        if kernel.name != naive.name and any(stages[other].name != naive.name for other in chosen):
            reports += groups.check(name, kernel, name in chosen)
        elif name in chosen and kernel.name == naive.name:
            arguments = _arguments(kernel, memory)
            reports.append(_check(name, kernel, machine, arguments, reference, limits))
    # For kernels besides the requested ones, only faults are reported.
    return [r for r in reports if r.issues or stage == "all" or r.stage == chosen[0]]


class _Groups:
    """The stages of a kernel that is cut into groups, each with its own kernel: the results of a
    group's first stage are the reference for its others, and the inputs of later groups."""

    def __init__(self, machine: Machine, memory: Mapping[str, Any]) -> None:
        self._machine = machine
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = dict(memory)
        self._kernel = ""

    def check(self, stage: str, kernel: Kernel, requested: bool) -> list[StageReport]:
        """The report on the next stage; on one that is not ``requested``, only if others depend on
        it."""
        if kernel.name != self._kernel:
            self._kernel = kernel.name
            missing = {p.name: _filled(p, {}) for p in kernel.arrays if p.name not in self._after}
            self._before = {**self._after, **missing}
            results = _arguments(kernel, self._before)
            report = _check(stage, kernel, self._machine, results)
            self._after = {**self._before, **results}
            return [report]
        if not requested:
            return []
        arguments = _arguments(kernel, self._before)
        return [_check(stage, kernel, self._machine, arguments, self._after)]


def _arguments(kernel: Kernel, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``kernel``, with copies of the arrays, which it may write."""
    arrays = {p.name: memory[p.name].copy() for p in Signature(kernel.params).arguments}
    return {**{scalar.name: memory[scalar.name] for scalar in kernel.scalars}, **arrays}


def _filled(param: Param, inputs: Mapping[str, Any]) -> Any:
    if param.name in inputs:
        array = inputs[param.name]
        return pack(memory_of(param) if array.shape == padded(param) else param.buffer, array)
    # Stays where a kernel does not write its result, and is then reported.
    return np.full(param.buffer.layout.extent, 77).astype(param.dtype.numpy)


def _check(
    stage: str,
    kernel: Kernel,
    machine: Machine,
    memory: dict[str, Any],
    reference: Mapping[str, Any] | None = None,
    limits: Mapping[str, Limits] | None = None,
    divisions: bool = False,
) -> StageReport:
    """Runs ``kernel`` on ``memory``, in place; compares results with ``reference``."""
    findings = Findings(divisions)
    profile = None if machine.threaded else Profile(machine.hierarchy)
    places = _Places(kernel)
    ended = stored = True
    issues = []
    try:
        stored = run(
            kernel,
            memory,
            findings=findings,
            profile=profile,
            instructions=machine.instructions,
            repeats=MOST_REPEATS,
        )
    except TilewrightError as error:
        ended = False
        place = str(error.where or "").splitlines()
        issues.append(Issue("aborted", 0, place[0] if place else "", str(error)))
    faults = [
        Issue(finding.kind.value, *places.of(finding.stmt), str(finding.fault), finding.count)
        for finding in findings
    ]
    issues = faults + issues
    if ended and reference is not None:
        for param in kernel.arrays:
            if param.access != "in":
                right = _within(memory[param.name], (limits or {}).get(param.name))
                issues += _compared(param, memory[param.name], reference[param.name], right)
    lines = [] if profile is None else profile.lines
    notes = tuple(_note(line, places) for line in lines)
    return StageReport(stage, tuple(issues), notes, stored)


Limits = tuple[Any, Any]


def _limits(param: Param, accepted: Accepted) -> Limits:
    """The least and the greatest values that the reference accepts, in memory order."""
    wide = replace(param.buffer, dtype=f64)
    low, high = (
        pack(wide, np.broadcast_to(bound, param.buffer.shape))
        for bound in (accepted.low, accepted.high)
    )
    return low, high


def _within(got: Any, limits: Limits | None) -> Any:
    """Where a result in memory is within the limits of the reference."""
    right = np.zeros(len(got), np.bool_)
    if limits is not None:
        low, high = limits
        values = got[: len(low)].astype(np.float64)
        right[: len(low)] = within(values, low, high)
    return right


def _compared(param: Param, got: Any, want: Any, right: Any) -> list[Issue]:
    """The issue of a result that differs from the naive stage's where it is not ``right``."""
    tolerance = 1e-6
    if param.dtype.is_float:
        tolerance = max(tolerance, 2 * param.dtype.epsilon)
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance * (1 + np.abs(b))
    wrong = ~((a == b) | near | right | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return []
    first = int(np.argmax(wrong))
    message = (
        f"{param.name} at offset {first} is {a[first]:.9g}, the {_NAIVE} stage gives {b[first]:.9g}"
    )
    return [Issue("wrong result", 0, param.name, message, int(np.count_nonzero(wrong)))]


def _note(line: Line, places: _Places) -> Note:
    number, text = places.of(line.stmt)
    costs: dict[str, Any] = {"efficiency": line.efficiency}
    if line.buffer.space in SHARED:
        costs = {"conflicts": line.degree, "worst": line.worst}
    return Note(number, text, line.buffer.name, line.verb, line.accesses, **costs)


class _Places:
    """The lines of a kernel's statements in its text."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._numbers: dict[int, int] | None = None

    def of(self, stmt: Stmt) -> tuple[int, str]:
        """The line of ``stmt``, from 1 (0: unknown), and its text."""
        if self._numbers is None:
            self._numbers = _numbered(self._kernel)
        return self._numbers.get(id(stmt), 0), headline(stmt)


def _numbered(kernel: Kernel) -> dict[int, int]:
    """The line of each statement by its id: equal lines of text are in the order of statements."""
    lines: dict[str, list[int]] = {}
    for number, line in enumerate(to_text(kernel).splitlines(), start=1):
        lines.setdefault(line.strip(), []).append(number)
    numbers = {}
    for stmt in walk_stmts(kernel.body):
        numbers_left = lines.get(headline(stmt))
        if numbers_left:
            numbers[id(stmt)] = numbers_left.pop(0)
    return numbers


def table(notes: Sequence[Note]) -> list[str]:
    """``notes`` as a table, line by line."""
    rows = [("line", "access", "conflicts", "worst", "coalescing", "statement")]
    for note in notes:
        row = (str(note.line), f"{note.access} {note.buffer}", f"{note.conflicts:.2f}")
        rows.append((*row, str(note.worst), f"{note.efficiency:.0%}", note.text))
    return aligned(rows)

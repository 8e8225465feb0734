"""Checks the stages of a kernel in the interpreter: faults, wrong results, and slow accesses.

Each stage runs on the same integers, whose sums are exact, and has to give what the naive stage
gives. Faults are collected, so that one run tells of all of them. What accesses to memory cost on
the machine is counted on the way: that is a note, not an error.
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
from tilewright.machines.machine import Machine
from tilewright.ops.op import Op
from tilewright.passes import PASSES
from tilewright.recipes import choose
from tilewright.recipes.given import GivenConfig
from tilewright.recipes.start import Start
from tilewright.testing.approximate import Accepted
from tilewright.testing.definition import MOST_REPEATS, check_length, memory_of
from tilewright.testing.expected import expected
from tilewright.testing.inputs import make_inputs
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.kernel_data import Contents, padded

# Of a statement's accesses to global memory, at least this part of what is moved should be needed.
_COALESCED = 0.5
_NAIVE = "naive"


@dataclass(frozen=True)
class Issue:
    """An error of one stage: ``line`` counts from 1 in the stage's text (0: none), ``text`` is the
    statement there, ``message`` the fault at its first occurrence, of ``count`` accesses."""

    kind: str
    line: int
    text: str
    message: str
    count: int = 1


@dataclass(frozen=True)
class Note:
    """What the accesses of one statement to one buffer cost.

    ``conflicts`` are turns of the banks per access (1.0: none), ``worst`` of one access;
    ``efficiency`` is the part of the moved segments of global memory that is needed.
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
    """What one stage does wrong, what its accesses cost, and whether it stored anything to an
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
    """Schedules ``op`` for ``machine``, and checks its kernels that pack, then ``stage``.

    ``stage``: its name, ``"all"``, or ``""`` for the last one: what the target gets. Without
    ``costs``, nobody counts what accesses cost, which takes a third of the time, and reports have
    no notes. Raises `UnsupportedError`, `ScheduleError`, and `ProblemError` for a stage that is not
    there.
    """
    op = op.resolved()
    stages, packs = _scheduled(Start.of(op), machine, config)
    inputs = make_inputs(op, exact=True, seed=seed)
    accepted = expected(op, inputs, exact=True)
    watched = machine if costs else replace(machine, hierarchy=None)
    return check_stages(stages, packs, watched, inputs, stage, accepted)


def check_kernel(
    case: KernelCase, machine: Machine, stage: str = "", config: GivenConfig | None = None
) -> list[StageReport]:
    """Schedules the kernel of ``case`` for ``machine``, and checks it as `check_op` does; of one in
    Python, divisions of integers by 0, too."""
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
        # It may be refused for what the interpreter tells more of.
        reports = check({_NAIVE: case.kernel}, {})
        if not any(each.issues for each in reports):
            raise
        return reports
    return check(stages, packs, stage=stage)


def _scheduled(
    start: Start, machine: Machine, config: GivenConfig | None
) -> tuple[dict[str, Kernel], dict[str, Kernel]]:
    """The stages, with those of passes, and the kernels that pack."""
    if config is None:
        _, scheduled = choose.choose(start, machine)
    else:
        _, scheduled = choose.schedule_given(start, machine, config)
    stages = dict(scheduled.stages)
    last = scheduled.kernel
    for each in PASSES:
        result = each.function(last)
        if result is not last:
            stages[each.name] = last = result
    return stages, scheduled.packs


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
    """Checks ``stages``, of which the first is the naive one, on ``inputs`` of logical shape (or of
    that with padding) and ``numbers``, where the kernel takes some.

    A result may differ from the naive stage's where it is within ``accepted``: rounding errors in
    another order may end on the other side of a step, as ``round`` has them. ``divisions``: those
    of integers by 0 are faults of the naive stage.
    """
    if stage not in ("", "all", *stages):
        raise ProblemError(
            f"there is no stage {stage!r}",
            where="--stage",
            cure="choose one of " + ", ".join(["all", *stages]),
        )
    first, *others = stages
    naive, given = stages[first], dict(numbers or {})
    arguments = Signature(naive.params).at(given)
    memory: dict[str, Any] = {**given, **{p.name: _filled(p, inputs) for p in arguments}}
    reports = []
    for name, kernel in packs.items():
        memory |= {packed.name: _filled(packed, {}) for packed in kernel.arrays[1:]}
        reports.append(_check(f"pack {name}", kernel, machine, memory))
    wanted = {**given, **{p.name: memory[p.name].copy() for p in arguments}}
    reports.append(_check(first, naive, machine, wanted, divisions=divisions))
    # Later stages may give parameters another shape: only the naive ones are the op's.
    limits = {
        p.name: _limits(p, accepted[p.name])
        for p in arguments
        if accepted is not None and p.name in accepted
    }
    chosen = others if stage == "all" else [stage or list(stages)[-1]]
    groups = _Groups(machine, memory)
    for name in others:
        kernel = stages[name]
        if kernel.name != naive.name and any(stages[each].name != naive.name for each in chosen):
            reports += groups.check(name, kernel, name in chosen)
        elif name in chosen and kernel.name == naive.name:
            reports.append(_check(name, kernel, machine, _own(kernel, memory), wanted, limits))
    # Of kernels that were not asked for, only what is wrong is of interest.
    return [r for r in reports if r.issues or stage == "all" or r.stage == chosen[0]]


class _Groups:
    """The stages of kernels that are cut into groups, each group with a kernel of its own: what its
    first stage gives is what its others have to give, and what the groups behind it read."""

    def __init__(self, machine: Machine, memory: Mapping[str, Any]) -> None:
        self._machine = machine
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = dict(memory)
        self._kernel = ""

    def check(self, stage: str, kernel: Kernel, asked: bool) -> list[StageReport]:
        """The report on a stage, in their order; on one that is not ``asked`` for, only if the
        others depend on it."""
        if kernel.name != self._kernel:
            self._kernel = kernel.name
            left = {p.name: _filled(p, {}) for p in kernel.arrays if p.name not in self._after}
            self._before = {**self._after, **left}
            results = _own(kernel, self._before)
            report = _check(stage, kernel, self._machine, results)
            self._after = {**self._before, **results}
            return [report]
        if not asked:
            return []
        own = _own(kernel, self._before)
        return [_check(stage, kernel, self._machine, own, self._after)]


def _own(kernel: Kernel, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``kernel``, of which it may write the arrays."""
    arrays = {each.name: memory[each.name].copy() for each in Signature(kernel.params).arguments}
    return {**{each.name: memory[each.name] for each in kernel.scalars}, **arrays}


def _filled(param: Param, inputs: Mapping[str, Any]) -> Any:
    if param.name in inputs:
        array = inputs[param.name]
        return pack(memory_of(param) if array.shape == padded(param) else param.buffer, array)
    # Where a kernel does not write its result, this stays, and is found.
    return np.full(param.buffer.layout.extent, 77).astype(param.dtype.numpy)


def _check(
    stage: str,
    kernel: Kernel,
    machine: Machine,
    memory: dict[str, Any],
    wanted: Mapping[str, Any] | None = None,
    limits: Mapping[str, Limits] | None = None,
    divisions: bool = False,
) -> StageReport:
    """Runs ``kernel`` on ``memory``, in place; results are compared with ``wanted``."""
    findings = Findings(divisions)
    profile = None if machine.hierarchy is None else Profile(machine.hierarchy)
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
        where = str(error.where or "").splitlines()
        issues.append(Issue("aborted", 0, where[0] if where else "", str(error)))
    found = [
        Issue(each.kind.value, *places.of(each.stmt), str(each.fault), each.count)
        for each in findings
    ]
    issues = found + issues
    if ended and wanted is not None:
        for param in kernel.arrays:
            if param.access != "in":
                right = _within(memory[param.name], (limits or {}).get(param.name))
                issues += _compared(param, memory[param.name], wanted[param.name], right)
    lines = [] if profile is None else profile.lines
    notes = tuple(_note(line, places) for line in lines)
    return StageReport(stage, tuple(issues), notes, stored)


Limits = tuple[Any, Any]


def _limits(param: Param, accepted: Accepted) -> Limits:
    """The least and the greatest that the reference accepts, as they lie in memory."""
    wide = replace(param.buffer, dtype=f64)
    low, high = (
        pack(wide, np.broadcast_to(each, param.buffer.shape))
        for each in (accepted.low, accepted.high)
    )
    return low, high


def _within(got: Any, limits: Limits | None) -> Any:
    """Where the memory of a result holds what the reference accepts."""
    right = np.zeros(len(got), np.bool_)
    if limits is not None:
        low, high = limits
        values = got[: len(low)].astype(np.float64)
        right[: len(low)] = (low <= values) & (values <= high)
    return right


def _compared(param: Param, got: Any, want: Any, right: Any) -> list[Issue]:
    """The issue of a result that is not what the naive stage gives, where it is not ``right``."""
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
    """Where a kernel's statements stand in its text."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._numbers: dict[int, int] | None = None

    def of(self, stmt: Stmt) -> tuple[int, str]:
        """The line of ``stmt``, from 1 (0: not found), and its text."""
        if self._numbers is None:
            self._numbers = _numbered(self._kernel)
        return self._numbers.get(id(stmt), 0), headline(stmt)


def _numbered(kernel: Kernel) -> dict[int, int]:
    """The line of each statement by its id: texts come in the order of statements."""
    lines: dict[str, list[int]] = {}
    for number, line in enumerate(to_text(kernel).splitlines(), start=1):
        lines.setdefault(line.strip(), []).append(number)
    numbers = {}
    for stmt in walk_stmts(kernel.body):
        left = lines.get(headline(stmt))
        if left:
            numbers[id(stmt)] = left.pop(0)
    return numbers


def table(notes: Sequence[Note]) -> list[str]:
    """``notes`` as lines of columns."""
    rows = [("line", "access", "conflicts", "worst", "coalescing", "statement")]
    for note in notes:
        row = (str(note.line), f"{note.access} {note.buffer}", f"{note.conflicts:.2f}")
        rows.append((*row, str(note.worst), f"{note.efficiency:.0%}", note.text))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

"""Verifies a kernel: an op's against float64, any other against the interpreter, and both for stray
accesses to memory.

First on integers whose sums are exact, where the tolerance is zero; then on reals, within a bound
on the rounding errors; then on values at the limits of types. Each array lies between canaries, at
the least alignment that a caller may use, and results are full of NaN at first. So a kernel fails
that computes something else, does not write all of a result, leaves a block's padding other than
zero, writes outside results, or changes an input.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.ops.op import Op
from tilewright.testing.approximate import Accepted, within
from tilewright.testing.expected import expected
from tilewright.testing.guarded import Guarded
from tilewright.testing.inputs import make_inputs, make_nonfinite_inputs
from tilewright.testing.trial import Trial, UntriedError

# What an op is tried on.
TRIALS = ("integers", "reals", "infinities and NaN")


class Verifiable(Protocol):
    """The interface of a compiled kernel that `verify` uses, such as `engine.CompiledKernel`."""

    @property
    def packed(self) -> Sequence[str]:
        """The arguments that `pack` must prepare."""

    def pack(self, name: str, array: Any, /) -> Any:
        """The argument to pass for ``name``."""

    def __call__(self, **arrays: Any) -> Any:
        """Runs on arrays by argument name; ``out`` is the result, or a mapping of several."""


class Status(Enum):
    """How a case ended."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element of a result, and how wrong the worst is."""

    argument: str
    index: tuple[int, ...]
    got: float
    want: float
    tolerance: float
    wrong: int
    max_error: float

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        return (
            f"{self.argument}[{place}] is {self.got:.9g}, expected {self.want:.9g} "
            f"within {self.tolerance:.3g}; {self.wrong} wrong, max error {self.max_error:.3g}"
        )


@dataclass(frozen=True)
class Verdict:
    """``reason`` says why a case failed or was skipped; ``error`` is the largest error."""

    status: Status
    reason: str = ""
    mismatch: Mismatch | None = None
    error: float = 0.0

    def as_json(self) -> dict[str, object]:
        """Plain data, for a file."""
        return {"status": self.status.value, "reason": self.reason, "error": self.error}

    def line(self, reproduce: str) -> str:
        """One line: the status, the reason, and the command that reproduces it."""
        reason = f"({self.reason}) " if self.reason else ""
        return f"{self.status.value} {reason}{reproduce}"


def verify(
    op: Op, compile: Callable[[Op], Verifiable], *, seed: int = 0, more: Iterable[Trial] = ()
) -> Verdict:
    """Compiles ``op`` and checks the kernel against float64: on integers, on reals, and, where IEEE
    754 defines the results, on infinities and NaN; then on ``more``.

    A case that is not available (`UnsupportedError`) is skipped; any other error fails it.
    """
    return verify_on(lambda: compile(op), itertools.chain(op_trials(op, seed), more))


def verify_on(compile: Callable[[], Verifiable], trials: Iterable[Trial]) -> Verdict:
    """Compiles a kernel and checks it on ``trials``, one by one as they are generated; see
    `verify`."""

    def check() -> Verdict:
        kernel = compile()
        worst, untried = 0.0, []
        for trial in trials:
            try:
                fault, error = _check(kernel, trial)
            except UntriedError as reason:
                untried.append(f"not on {trial.name}: {reason}")
                continue
            worst = max(worst, error)
            if fault is not None:
                mismatch = fault if isinstance(fault, Mismatch) else None
                return Verdict(Status.FAILED, f"on {trial.name}: {fault}", mismatch, worst)
        return Verdict(Status.PASSED, "; ".join(untried), error=worst)

    return verdict_of(check)


def verdict_of(check: Callable[[], Verdict]) -> Verdict:
    """The verdict of ``check``, or that of the error that it raises."""
    try:
        return check()
    except UnsupportedError as error:
        return Verdict(Status.SKIPPED, one_line(error))
    except TilewrightError as error:
        return Verdict(Status.FAILED, f"{type(error).__name__}: {one_line(error)}")
    except Exception as error:
        # A defect: one case must not end the run of thousands.
        return Verdict(Status.FAILED, f"crashed: {type(error).__name__}: {error}")


def one_line(error: TilewrightError) -> str:
    """An error's message without its cure, with its place if that is in a file."""
    message = " ".join((error.what + (f": {error.why}" if error.why else "")).split())
    span = error.span
    return message if span is None or span.file is None else f"{message}, at {span.place}"


def op_trials(op: Op, seed: int, names: Sequence[str] = TRIALS) -> Iterator[Trial]:
    """The trials of an op against float64, of those with these ``names``."""
    arguments = op.resolved().arguments
    plain = replace(op, layouts=())
    for name in names:
        exact = name == "integers"
        reference = _reference(plain, name, seed)
        if reference is None:
            continue
        inputs, accepted = reference

        def accept(
            arrays: Mapping[str, Any],
            exact: bool = exact,
            inputs: Mapping[str, Any] = inputs,
            accepted: Mapping[str, Accepted] = accepted,
        ) -> Mapping[str, Accepted]:
            return accepted if arrays is inputs else expected(op, arrays, exact=exact)

        yield Trial(name, arguments, inputs, accept)


def _check(kernel: Verifiable, trial: Trial) -> tuple[Mismatch | str | None, float]:
    """Runs ``kernel`` once: the fault, if any, and the largest error."""
    inputs = trial.inputs
    guarded = {a.name: Guarded(a, inputs.get(a.name)) for a in trial.arguments}
    if not all(_same(guarded[name].values, array) for name, array in inputs.items()):
        # Strides of 0 make several elements one: the values in memory count.
        inputs = {name: guarded[name].values for name in inputs}
    accepted = trial.accepted(inputs)
    results = [a.name for a in trial.arguments if a.access != "in"]
    arguments = {name: memory.array for name, memory in guarded.items() if name not in results}
    for name in kernel.packed:
        arguments[name] = kernel.pack(name, arguments[name])
    outs = {name: guarded[name].array for name in results}
    out = {"out": outs if len(outs) > 1 else outs[results[0]]} if outs else {}
    kernel(**arguments, **trial.numbers, **out)
    worst = 0.0
    for name in results:
        mismatch, error = compare(name, guarded[name].values, accepted[name])
        worst = max(worst, error)
        if mismatch is not None:
            return mismatch, worst
    faults = (memory.fault() for memory in guarded.values())
    return next((fault for fault in faults if fault is not None), None), worst


@lru_cache(maxsize=3)
def _reference(op: Op, trial: str, seed: int) -> tuple[dict[str, Any], dict[str, Accepted]] | None:
    """Inputs and accepted results of an op, independent of its layouts, for the trial of that name;
    None if it has no such trial. Kept for the op's next layout."""
    exact = trial == "integers"
    inputs: dict[str, Any] | None
    if trial == "infinities and NaN":
        inputs = make_nonfinite_inputs(op, seed=seed)
    else:
        inputs = make_inputs(op, exact=exact, seed=seed)
    return None if inputs is None else (inputs, expected(op, inputs, exact=exact))


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a.astype(np.float64), b.astype(np.float64)))


def compare(name: str, result: Any, accepted: Accepted) -> tuple[Mismatch | None, float]:
    """Where ``result`` is not what is accepted, if anywhere, and the greatest difference."""
    got = result.astype(np.float64)
    want, low, high = (
        np.broadcast_to(np.asarray(bound).astype(np.float64), got.shape)
        for bound in (accepted.want, accepted.low, accepted.high)
    )
    with np.errstate(invalid="ignore"):
        right = within(got, low, high) | (np.isnan(got) & np.isnan(want))
        off = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, np.abs(got - want))
    if np.asarray(accepted.want).dtype.kind in "iu":
        # f64 does not hold all integers of 64 bits: without a tolerance they are compared exactly.
        right &= result == accepted.want
    worst = float(np.max(np.where(np.isnan(off), np.inf, off), initial=0.0))
    if bool(right.all()):
        return None, worst
    place = tuple(int(i) for i in np.argwhere(~right)[0])
    # The difference of equal infinities is NaN: their tolerance is 0.
    ends = (abs(float(end[place]) - float(want[place])) for end in (low, high))
    tolerance = max(0.0 if math.isnan(end) else end for end in ends)
    wrong = int(np.count_nonzero(~right))
    mismatch = Mismatch(name, place, float(got[place]), float(want[place]), tolerance, wrong, worst)
    return mismatch, worst


def summary(verdicts: Mapping[Status, int]) -> str:
    """The last line of a run: ``N passed, N failed, N skipped``."""
    return ", ".join(f"{verdicts.get(status, 0)} {status.value.lower()}" for status in Status)

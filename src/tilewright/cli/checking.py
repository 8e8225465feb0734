"""``tilewright verify``."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from tilewright.cli.against import against_torch, check_against
from tilewright.cli.cases import AnyCase, Unread, cases_of, what_of
from tilewright.cli.completing import KERNEL
from tilewright.cli.files import open_output
from tilewright.cli.knobs import Knobs, Place
from tilewright.cli.progress import brief, progress
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.trace import Trace
from tilewright.errors import (
    ArgumentError,
    LayoutError,
    ProblemError,
    ScheduleError,
    UnsupportedError,
)
from tilewright.ir.stmt import Kernel
from tilewright.measure.stamp import stamped
from tilewright.ops.op import Op
from tilewright.recipes.given import read_config
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case
from tilewright.testing.interpreted import InterpretedKernel
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.symbolic_case import SymbolicCase, verify_sizes
from tilewright.testing.verify import (
    Status,
    Verdict,
    Verifiable,
    one_line,
    summary,
    verify,
    verify_on,
)


def verify_cases(
    knobs: Knobs,
    random: int,
    seed: int,
    on: Place,
    against: str = "",
    symbolic: str = "",
    verbose: bool = False,
    json_file: Path | None = None,
) -> None:
    """Carries out ``tilewright verify``."""
    check_against(against)
    compile = compile_case if on is Place.DEVICE else interpret_case
    unread: list[Unread] = []
    cases = cases_of(replace(knobs, random=random, seed=seed), drawn=True, unread=unread)
    counts: Counter[Status] = Counter()
    if symbolic:
        reason = "PyTorch's results are compared at one size"
        check_symbolic(knobs, ("--against", bool(against), reason))
        results = _at_sizes(knobs, cases, compile, tuple(symbolic.split(",")), seed)
    else:
        results = verdicts(knobs, cases, compile, against=against)
    failing_only = brief(len(cases), verbose)
    skipped: Counter[str] = Counter()
    with verdicts_file(json_file) as written:
        for bad, verdict in unread_verdicts(unread):
            print(verdict.line(bad.arguments()), flush=True)
            counts[verdict.status] += 1
            written.append({"case": bad.arguments(), **verdict.as_json()})
        for case, verdict in progress(results, len(cases), "verify"):
            again = _again(knobs, case, on, against, symbolic)
            if verdict.status is Status.FAILED or not failing_only:
                print(verdict.line(again), flush=True)
            elif verdict.status is Status.SKIPPED:
                skipped[verdict.reason] += 1
            counts[verdict.status] += 1
            written.append({"case": again, **verdict.as_json()})
    for reason, count in skipped.most_common():
        print(f"SKIPPED {count}: {reason}")
    conclude(counts)


def unread_verdicts(unread: Sequence[Unread]) -> Iterator[tuple[Unread, Verdict]]:
    """The verdict of what makes no case in a batch file: SKIPPED where it makes sense and is not
    available."""
    for bad in unread:
        lacking = isinstance(bad.error, UnsupportedError)
        status = Status.SKIPPED if lacking else Status.FAILED
        yield bad, Verdict(status, one_line(bad.error))


@contextmanager
def verdicts_file(path: Path | None) -> Iterator[list[dict[str, Any]]]:
    """A list for the verdict of each case, which is written to ``path`` at the end, if given."""
    with ExitStack() as stack:
        output = open_output(stack, path, "--json")
        results: list[dict[str, Any]] = []
        yield results
        if output is not None:
            output.write(stamped(1, {"cases": results}))


def conclude(counts: Counter[Status]) -> None:
    """Prints how many cases there are of each status, and ends with 1 if one failed, or if every
    case was skipped, so that no kernel was verified, which it says on stderr."""
    print(summary(counts))
    if not counts[Status.PASSED] and not counts[Status.FAILED]:
        typer.echo("no kernel was run: every case was skipped, for the reasons above", err=True)
    if counts[Status.FAILED] or not counts[Status.PASSED]:
        raise typer.Exit(1)


def verdicts(
    knobs: Knobs,
    cases: Sequence[AnyCase],
    compile: Callable[[Knobs, Op | Kernel], Verifiable],
    against: str = "",
) -> Iterator[tuple[AnyCase, Verdict]]:
    """The verdict of each case; a single case that cannot be made is bad input."""
    alone = len(cases) == 1
    for case in cases:
        try:
            what = what_of(case)
        except (LayoutError, ProblemError, UnsupportedError) as error:
            if alone:
                raise
            yield case, Verdict(Status.SKIPPED, one_line(error))
            continue
        _compile_first(knobs, what, alone, compile)
        if isinstance(case, KernelCase):
            yield case, verify_on(partial(compile, knobs, what), case.trials())
        else:
            assert isinstance(what, Op)
            more = against_torch(what, 0) if against else ()
            yield case, verify(what, lambda op: compile(knobs, op), more=more)


def check_symbolic(knobs: Knobs, *others: tuple[str, bool, str]) -> None:
    """Refuses options that do not go with symbolic sizes; ``others``: options, whether they are
    given, and the reasons."""
    for option, is_set, why in (
        ("kernel", knobs.driver == KERNEL, "a kernel's own parameters say what calls pass"),
        *others,
        ("--config", knobs.config is not None, "a config is for one kernel"),
    ):
        if is_set:
            raise ProblemError(
                f"--symbolic does not go with {option}",
                where="--symbolic",
                why=why,
                cure="leave one of them out",
            )


def _at_sizes(
    knobs: Knobs,
    cases: Sequence[AnyCase],
    compile: Callable[[Knobs, Op | Kernel], Verifiable],
    names: tuple[str, ...],
    seed: int,
) -> Iterator[tuple[AnyCase, Verdict]]:
    """The verdict of each case, compiled once for all sizes ``names``."""

    def compile_for_all(kernel: Kernel, constant: Sequence[str]) -> Verifiable:
        return compile(replace(knobs, constant=tuple(constant)), kernel)

    for case in cases:
        assert isinstance(case, Case)
        try:
            verdict = verify_sizes(SymbolicCase(case, names), compile_for_all, seed=seed)
        except (LayoutError, ProblemError) as error:
            if len(cases) == 1:
                raise
            verdict = Verdict(Status.SKIPPED, one_line(error))
        yield case, verdict


def _compile_first(
    knobs: Knobs,
    what: Op | Kernel,
    alone: bool,
    compile: Callable[[Knobs, Op | Kernel], Verifiable],
) -> None:
    """Raises errors that the user has to correct: of a config, of a kernel's constants, or of a
    single case that is not available."""
    try:
        if alone or knobs.config is not None or knobs.constant:
            compile(knobs, what)
    except UnsupportedError:
        if alone:
            raise
    except ScheduleError:
        if knobs.config is not None:
            raise
    except ArgumentError:
        if isinstance(what, Kernel):
            raise
    except Exception:
        # `verify` raises and reports it again.
        pass


def compile_case(knobs: Knobs, what: Op | Kernel, trace: Trace | None = None) -> CompiledKernel:
    """Compiles with the target, threads, config and constants of the options, and fills
    ``trace``."""
    return compile_kernel(what, knobs.target, knobs.threads, knobs.config, trace, knobs.constant)


def interpret_case(knobs: Knobs, what: Op | Kernel) -> InterpretedKernel:
    """The kernel that the target would get, in the interpreter."""
    config = None if knobs.config is None else read_config(knobs.config)
    return InterpretedKernel(what, find_target(knobs.target).machine, config, knobs.constant)


def _again(knobs: Knobs, case: AnyCase, on: Place, against: str, symbolic: str) -> str:
    """The arguments of ``verify`` that reproduce one case."""
    driver, words = repeat(knobs, case).split(" ", 1)
    words = f"--symbolic={symbolic} {words}" if symbolic else words
    words = words if on is Place.DEVICE else f"--on={on.value} {words}"
    return f"{driver} --against={against} {words}" if against else f"{driver} {words}"


def repeat(knobs: Knobs, case: AnyCase) -> str:
    """The arguments that reproduce one case."""
    words = case.arguments().split(" ", 1)
    shared = []
    if knobs.target != "x86":
        shared.append(f"--target={knobs.target}")
    if knobs.threads is not None:
        shared.append(f"--threads={knobs.threads}")
    if knobs.schedule is not None:
        shared.append("--schedule=" + shlex.quote(str(knobs.schedule)))
    elif knobs.config is not None:
        shared.append("--config=" + shlex.quote(knobs.config))
    shared += ["--contents=" + shlex.quote(str(path)) for path in knobs.contents]
    return " ".join([words[0], *shared, words[1]])

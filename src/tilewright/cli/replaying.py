"""``tilewright tune --replay``: the winners of a database, measured again."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import typer

from tilewright.bench.report import geometric_mean
from tilewright.cli.cases import cases_of, what_of
from tilewright.cli.completing import KERNEL
from tilewright.cli.files import OutputFile, open_output
from tilewright.cli.kernels import numbers_of
from tilewright.cli.knobs import DEFAULTS, Knobs, refuse_options
from tilewright.cli.loading import INTERRUPTED
from tilewright.engine.overview import duration
from tilewright.engine.rows import Row
from tilewright.errors import ArgumentError, DatabaseError, ProblemError
from tilewright.ir.parser import parse_kernel
from tilewright.measure.stamp import stamped
from tilewright.targets.registry import find_target
from tilewright.testing.kernel_case import KernelCase
from tilewright.tune.budget import Budget
from tilewright.tune.campaign import local
from tilewright.tune.database import Database
from tilewright.tune.kernels import KernelSubject
from tilewright.tune.replay import (
    DEFAULT,
    FAILED,
    HOLDS,
    LIMIT,
    OURS,
    SAME,
    SKIPPED,
    SLOWER,
    TIE,
    Replayed,
    replay,
)
from tilewright.tune.subject import Subject
from tilewright.tune.subjects import check_target, subjects_of
from tilewright.tune.trials import Trials, trials_of

_SCHEMA = 1
# Seconds a side: no more are needed, and with fewer there are no rounds.
_MOST, _LEAST = 1.0, 0.05
# Sides of most kernels (winner, default, a peer), and what building and checking take beside.
_PARTS = 6
_LINE = "{:<11}  {:>6}  {:>6}  {:>9}  {:>9}  {:<6}{:<32}  {}"


def replay_database(
    knobs: Knobs, path: Path, budget: str, json_file: Path | None, others: Sequence[str]
) -> None:
    """Measures the winners of the database at ``path`` again, in about the time of the ``budget``,
    and prints a line for each. Ends with 1 where one is wrong, or slower than the default now
    (unless that is noisy); 130 after Ctrl-C. Raises `DatabaseError` where there is no winner,
    `ProblemError` for a driver and for ``others``, options of a search."""
    why = "the database is that of --replay, whose rows say the rest"
    if knobs.driver:
        raise ProblemError(
            "a replay takes no driver", where=knobs.driver, cure="leave it out", why=why
        )
    options = knobs.given("set", "batch", "config")
    refuse_options("a replay", [*others, *knobs.texts, *options], why)
    allowed = Budget.parse(budget)
    if allowed.seconds is None:
        raise ArgumentError(
            f"a replay has no trials, and the budget is {budget}",
            where="--budget",
            cure="give it a time, such as 2m",
        )
    with ExitStack() as stack:
        database = stack.enter_context(Database(path, readonly=True))
        winners = [trials for trials in trials_of(database.rows()) if trials.best is not None]
        if not winners:
            raise DatabaseError(
                f"{path} has no winner to measure again",
                why="no row of it is correct",
                cure="tune something first: tilewright tune conv --set resnet_50 --db tuned.db",
            )
        output = open_output(stack, json_file, "--json")
        seconds = allowed.seconds / (_PARTS * len(winners))
        _replay(winners, min(_MOST, max(_LEAST, seconds)), output)


def _replay(winners: Sequence[Trials], seconds: float, output: OutputFile | None) -> None:
    done: list[Replayed] = []
    interrupted = False
    print(_LINE.format("", "now", "then", "best", "default", "", "peers", "kernel"))
    try:
        with local(1, LIMIT) as (executor, _):
            for trials in winners:
                result = replay(trials, subject_of, seconds, executor)
                if result is not None:
                    done.append(result)
                    _say(result)
    except KeyboardInterrupt:
        interrupted = True
    for line in _summary(done):
        print(line)
    if output is not None:
        rows = [replayed.as_json() for replayed in done]
        complete = not interrupted
        output.write(stamped(_SCHEMA, {"complete": complete, "seconds": seconds, "rows": rows}))
    if interrupted:
        print(f"interrupted, with {len(done)} of {len(winners)} kernels", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if any(
        replayed.verdict == FAILED or (replayed.verdict == SLOWER and not replayed.noise)
        for replayed in done
    ):
        raise typer.Exit(1)


def _say(result: Replayed) -> None:
    """A line for what came of a winner; on stderr, if it was not measured."""
    title = f"row {result.row.number}: {result.row.title}"
    if result.verdict in (SKIPPED, FAILED):
        stream = sys.stderr if result.verdict == SKIPPED else sys.stdout
        print(f"{result.verdict.upper()} ({result.why}) {title}", file=stream, flush=True)
        return
    ours = result.times.get(OURS) or result.times[DEFAULT]
    peers = ", ".join(f"{_ratio(result.gain(side))} {side}" for side in result.peers)
    times = (duration(ours.median), duration(result.times[DEFAULT].median))
    gains = (_ratio(result.gain()), _ratio(result.stored))
    noisy = "noisy" if result.noise else ""
    print(_LINE.format(result.verdict, *gains, *times, noisy, peers or "-", title), flush=True)


def _summary(done: Sequence[Replayed]) -> list[str]:
    counts = Counter(replayed.verdict for replayed in done)
    order = (HOLDS, SAME, TIE, SLOWER, FAILED, SKIPPED)
    lines = [", ".join(f"{counts[name]} {name}" for name in order if counts[name])]
    noisy = [replayed for replayed in done if replayed.noise]
    if noisy:
        more = f"; and {len(noisy) - 1} more, whose reasons --json has" if len(noisy) > 1 else ""
        lines.append(f"noisy: row {noisy[0].row.number}: {'; '.join(noisy[0].noise)}{more}")
    compared = [
        (gain, replayed.stored)
        for replayed in done
        if (gain := replayed.gain()) and replayed.stored
    ]
    if compared:
        now, then = zip(*compared, strict=True)
        lines.append(
            f"beside the default: {geometric_mean(now):.3f}x now, {geometric_mean(then):.3f}x "
            f"then, geometric means of {len(compared)}"
        )
    for side in dict.fromkeys(side for replayed in done for side in replayed.peers):
        gains = [gain for replayed in done if (gain := replayed.gain(side))]
        lines.append(f"beside {side}: {geometric_mean(gains):.3f}x now, of {len(gains)}")
    return lines


def _ratio(gain: float | None) -> str:
    return "-" if gain is None else f"{gain:.2f}x"


def subject_of(row: Row) -> Subject:
    """What ``row`` is of, by what the command line took for it, or by its kernel's text. Raises
    `ProblemError` where it says neither, and errors of what it names."""
    check_target(find_target(row.target))
    first, _, rest = row.problem.partition("\n")
    if not row.problem:
        raise ProblemError(
            "its row does not say what was tuned",
            why="an op of Python, or a launch of a kernel in Python, has no words for it",
            cure="tune it by the command line",
        )
    if first.startswith("#"):
        knobs = _knobs(["kernel", *shlex.split(first.removeprefix("#"))], row)
        kernel = parse_kernel(rest)
        numbers = numbers_of(kernel, knobs.sets)
        return KernelSubject(kernel, row.target, row.threads, knobs.constant, numbers)
    knobs = _knobs(shlex.split(row.problem), row)
    case, *others = cases_of(knobs)
    if others:
        raise ProblemError("its words name several kernels", where=row.problem)
    numbers = dict(case.numbers) if isinstance(case, KernelCase) else {}
    words = (knobs.constant, numbers, row.problem)
    (wanted,) = subjects_of(what_of(case), row.target, row.threads, *words)
    return wanted.subject


def _knobs(words: Sequence[str], row: Row) -> Knobs:
    """The options that `Case.arguments` and `KernelCase.arguments` say."""
    driver, *rest = words
    knobs = Knobs(driver, target=row.target, threads=row.threads)
    for word in rest:
        name, _, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            knobs = replace(knobs, descriptors=(*knobs.descriptors, word))
        elif driver == KERNEL and name == "set":
            knobs = replace(knobs, sets=(*knobs.sets, value))
        elif driver == KERNEL and name == "constant":
            knobs = replace(knobs, constant=(*knobs.constant, value))
        elif name in DEFAULTS:
            knobs = replace(knobs, texts={**knobs.texts, name: value})
        else:
            raise ProblemError(f"its words have an unknown option --{name}", where=row.problem)
    return knobs

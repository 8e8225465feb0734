"""``tilewright tune``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tilewright.cli.cases import cases_of, what_of
from tilewright.cli.completing import GRAPH, KERNEL
from tilewright.cli.files import open_output
from tilewright.cli.graph_files import graphs_of, only
from tilewright.cli.kernels import draws
from tilewright.cli.knobs import Knobs, with_knobs
from tilewright.cli.loading import INTERRUPTED
from tilewright.cli.replaying import replay_database
from tilewright.cli.tuned_files import report_database, report_searches
from tilewright.config import settings
from tilewright.engine.overview import duration
from tilewright.errors import ProblemError, TilewrightError
from tilewright.measure.stamp import stamped
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.verify import one_line
from tilewright.tune.campaign import Campaign, Done
from tilewright.tune.database import Database
from tilewright.tune.search import Search
from tilewright.tune.session import Options, campaign
from tilewright.tune.subjects import Wanted, subjects_of

_SCHEMA = 1
_Budget = Annotated[
    str, typer.Option("--budget", help="90s, 10m, 2h in all, or '200 trials' of each kernel.")
]
_Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Trials at a time. Default: one for each core.")
]
_Db = Annotated[
    Path | None, typer.Option("--db", help="The database. Default: that of TILEWRIGHT_DB.")
]
_Json = Annotated[
    Path | None, typer.Option("--json", help="Write what came of each kernel to this file.")
]
_Replay = Annotated[
    Path | None,
    typer.Option("--replay", help="Measure the winners of this database again: no driver."),
]
_Report = Annotated[
    Path | None,
    typer.Option("--report", help="Write a page to this file; without a driver: of all rows."),
]


@partial(with_knobs, driver=False)
def tune_command(
    knobs: Knobs,
    budget: _Budget = "1m",
    jobs: _Jobs = None,
    db: _Db = None,
    strategy: Annotated[str, typer.Option("--strategy", help="What is tried next.")] = "learned",
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="Try on the workers of this Dask scheduler: HOST:PORT."),
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Time calls with nothing in the caches.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Which data, and which choices.")] = 0,
    json_file: _Json = None,
    replay: _Replay = None,
    report: _Report = None,
) -> None:
    """Search for the config with which a kernel is fastest, and keep it in a database.

    So is everything else that was measured; compile, bench and so on ask the database where
    TILEWRIGHT_DB names it.

    Each kernel's default is timed first; what is tried then is built, checked against float64 or
    the interpreter, and timed beside the fastest so far, in processes of their own: a config that
    crashes, hangs or is wrong costs that config only, and is kept as such. In the end the fastest
    meets the default once more, which stays unless it is clearly slower.

    Of a graph, each of its kernels is tuned. Numbers of a kernel from a file have to be set.

    --report writes a page with charts of how the search went, what choices are worth, and the
    schedule of each trial beside the default's; without a driver, of all rows of the database.

    --replay measures the best of each kernel of a database again, beside the default and what bench
    compares with, in turns, and says which still hold; rows of another generator, or that no longer
    replay, are skipped. It ends with 1 where one is wrong, or slower than the default.

    A line for each kernel: how many times as fast the best is as the default, the times of both,
    how many configs were tried. Ctrl-C ends the search, keeps what was tried, and prints the same.
    A run that is started again goes on where it stopped.

    Ends with 0; with 1 where the default of a kernel cannot be timed, or a case is not available; 2
    for bad input; 130 after Ctrl-C.

    Examples:

      tilewright tune conv --set resnet_50 --threads 1 --budget 10m --jobs 2 --db tuned.db

      tilewright tune matmul --budget '200 trials' --db tuned.db 256x512:512x1024

      tilewright tune kernel --set n=4096 --db tuned.db scale.tw

      tilewright tune graph --budget 5m --db tuned.db model.tw

      tilewright tune --db tuned.db --report tuned.html

      tilewright tune --replay tuned.db --json replayed.json

    With --fit or --accuracy, the model that predicts times is fitted to this machine, or judged:
    see tilewright tune --fit --help.
    """
    if replay is not None:
        others = {"db": db, "report": report, "cold": cold, "scheduler": scheduler}
        replay_database(knobs, replay, budget, json_file, [n for n, it in others.items() if it])
        return
    if not knobs.driver:
        report_database(knobs, _database(knobs, db), report)
        return
    options = Options.checked(budget, strategy, jobs, seed, cold, scheduler)
    _tune(knobs, options, _database(knobs, db), json_file, report)


def _database(knobs: Knobs, db: Path | None) -> Path:
    path = db or settings().database
    if path is None:
        raise ProblemError(
            "there is no database to keep times in",
            where="--db",
            cure="name a file, which is made where there is none: --db tuned.db",
        )
    if knobs.config is not None:
        raise ProblemError(
            "tune takes no --config, and no --schedule", where="--config", cure="leave it out"
        )
    return path


def _tune(
    knobs: Knobs, options: Options, path: Path, json_file: Path | None, report: Path | None
) -> None:
    with ExitStack() as stack:
        output = open_output(stack, json_file, "--json")
        page = open_output(stack, report, "--report")
        database = stack.enter_context(Database(path))
        wanted, refused = _wanted(knobs)
        bar = stack.enter_context(_bar())
        run = stack.enter_context(campaign(wanted, database, options, bar.told))
        bar.of(run)
        interrupted = False
        try:
            run.run()
        except KeyboardInterrupt:
            interrupted = True
        except TilewrightError:
            bar.stop()
            _report(run.searches)
            raise
        bar.stop()
        _report(run.searches)
        if output is not None:
            output.write(_json(run))
        if page is not None:
            report_searches(page, database, run.searches)
    if interrupted:
        print(f"interrupted: what was tried is in {path}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if refused or any(search.failed for search in run.searches):
        raise typer.Exit(1)


def _wanted(knobs: Knobs) -> tuple[list[Wanted], bool]:
    """What is to be tuned, and whether something of it was refused, which is said."""
    if knobs.driver == GRAPH:
        cases = only(list(graphs_of(knobs)))
        wanteds = [
            subject
            for case in cases
            for subject in subjects_of(
                case.graph, knobs.target, knobs.threads, (*case.graph.constant, *knobs.constant)
            )
        ]
        return _once(wanteds), False
    wanted: list[Wanted] = []
    refused = False
    all_cases = cases_of(knobs)
    for case in all_cases:
        numbers = None
        if isinstance(case, KernelCase):
            case = _set(case)
            numbers = case.numbers
        try:
            wanted += subjects_of(
                what_of(case),
                knobs.target,
                knobs.threads,
                knobs.constant,
                numbers,
                case.arguments(),
            )
        except TilewrightError as error:
            if len(all_cases) == 1:
                raise
            refused = True
            print(f"SKIPPED ({one_line(error)}) {case.arguments()}", file=sys.stderr)
    return _once(wanted), refused


def _set(case: KernelCase) -> KernelCase:
    """``case`` with all scalars of a call; sizes have to be set."""
    for param in case.kernel.scalars:
        if param.name not in case.numbers and not param.dtype.is_float:
            raise ProblemError(
                f"{param.name} is not set",
                where=f"{KERNEL} {case.source}",
                why="the time of a call depends on it",
                cure=f"set it: --set {param.name}=NUMBER",
            )
    return next(draws(case, 1, 0))


def _once(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Equal kernels, such as layers of one shape, as one that counts for all of them."""
    by_key: dict[str, Wanted] = {}
    for entry in wanted:
        key = entry.subject.key
        if key in by_key:
            entry = replace(by_key[key], weight=by_key[key].weight + entry.weight)
        by_key[key] = entry
    return list(by_key.values())


class _Bar:
    """How far the search is: on stderr, if that is a terminal."""

    def __init__(self) -> None:
        self._run: Campaign | None = None
        self._progress: Progress | None = None

    def of(self, run: Campaign) -> None:
        """Shows how far ``run`` is from now on."""
        self._run = run
        console = Console(stderr=True)
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[said]}"),
                console=console,
                transient=True,
            )
            self._task = self._progress.add_task("tune", total=1.0, said="the default")
            self._progress.start()

    def told(self, done: Done) -> None:
        """A trial has ended."""
        if self._progress is None or self._run is None:
            return
        run, search = self._run, done.search
        best = search.best
        rate = run.trials / max(run.clock.seconds, 1e-9)
        said = [
            f"{run.trials} trials, {rate:.1f}/s",
            f"{search.gain:.2f}x {duration(best.seconds or 0.0)}" if best is not None else "",
            search.subject.title[:40],
        ]
        self._progress.update(self._task, completed=1 - run.left, said="; ".join(said))

    def stop(self) -> None:
        """Takes the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


@contextmanager
def _bar() -> Iterator[_Bar]:
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.stop()


def _report(searches: Sequence[Search]) -> None:
    """A line for each kernel."""
    for search in searches:
        best, default = search.best, search.default_row
        if search.failed is not None:
            print(f"FAILED ({search.failed}) {search.subject.title}")
            continue
        if best is None or default is None:
            print(f"NOT TIMED {search.subject.title}")
            continue
        times = f"{duration(default.seconds or 0.0)} -> {duration(best.seconds or 0.0)}"
        print(
            f"{search.gain:.2f}x  {times}  {search.tried} tried  {search.subject.title}  "
            + ("the default" if best.config == default.config else best.config)
        )


def _json(run: Campaign) -> bytes:
    kernels: list[dict[str, Any]] = []
    for search in run.searches:
        best, default = search.best, search.default_row
        kernels.append(
            {
                "title": search.subject.title,
                "problem": search.subject.problem,
                "tried": search.tried,
                "added": search.added,
                "pruned": search.pruned,
                "failed": search.failed,
                "gain": search.gain,
                "default": None if default is None else default.as_json(),
                "best": None if best is None else best.as_json(),
            }
        )
    seconds = run.clock.seconds
    return stamped(_SCHEMA, {"seconds": seconds, "trials": run.trials, "kernels": kernels})

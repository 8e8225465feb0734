"""One run of the tuner: its options, and a campaign on processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tilewright.config import MAX_THREADS, settings
from tilewright.errors import ArgumentError, TuningError, short
from tilewright.measure.host import Host
from tilewright.tune.at_worker import Kind
from tilewright.tune.borrowed import borrowed, check_executor
from tilewright.tune.budget import Budget
from tilewright.tune.campaign import Campaign, Told, local
from tilewright.tune.database import Database
from tilewright.tune.search import Search
from tilewright.tune.strategies import Maker, maker_of
from tilewright.tune.subjects import Wanted
from tilewright.tune.trial import Measuring
from tilewright.tune.workers import workers


@dataclass(frozen=True)
class Options:
    """How to tune: for how long, by which strategy, by how many ``jobs`` at a time (default: one
    for each core), with data and choices by ``seed``, and what is read in no cache where
    ``cold``; by the workers of the Dask ``scheduler`` at that address, or by an ``executor`` of the
    caller's (None, both: in processes of this machine)."""

    budget: Budget
    strategy: Maker
    jobs: int
    seed: int = 0
    cold: bool = False
    scheduler: str | None = None
    executor: Executor | None = None

    @classmethod
    def checked(
        cls,
        budget: object,
        strategy: str | Maker,
        jobs: object = None,
        seed: object = 0,
        cold: bool = False,
        scheduler: str | None = None,
        executor: Executor | None = None,
    ) -> Options:
        """Options as a user gives them. Raises `ArgumentError`."""
        if executor is not None:
            check_executor(executor)
        if executor is not None and scheduler is not None:
            raise ArgumentError(
                "an executor and a scheduler are given",
                where="executor",
                why="one of them runs the trials",
                cure="leave one of them out",
            )
        if scheduler is not None and jobs is not None:
            raise ArgumentError(
                "jobs and a scheduler are given",
                where="jobs",
                why="each worker of a scheduler tries one point at a time",
                cure="leave jobs out, or the scheduler",
            )
        jobs = settings().threads if jobs is None else jobs
        if type(jobs) is not int or not 1 <= jobs <= MAX_THREADS:
            raise ArgumentError(
                f"jobs is {short(jobs)}",
                where="jobs",
                cure=f"pass a whole number from 1 to {MAX_THREADS}",
            )
        if type(seed) is not int or seed < 0:
            raise ArgumentError(
                f"seed is {short(seed)}", where="seed", cure="pass a whole number, 0 or more"
            )
        maker = maker_of(strategy)
        return cls(Budget.parse(budget), maker, jobs, seed, bool(cold), scheduler, executor)


@contextmanager
def campaign(
    wanted: Sequence[Wanted], database: Database, options: Options, told: Told
) -> Iterator[Campaign]:
    """A campaign, ready to run, with processes that end with it."""
    with _executor(wanted, options) as (executor, jobs, measuring):
        searches = [
            Search(
                want.subject,
                database,
                options.strategy,
                measuring,
                options.budget.trials,
                want.weight,
            )
            for want in wanted
        ]
        yield Campaign(searches, executor, jobs, options.budget, told)


@contextmanager
def _executor(
    wanted: Sequence[Wanted], options: Options
) -> Iterator[tuple[Executor, int | Callable[[], int], Measuring]]:
    """What tries the points, how many it tries at a time, and how it times them."""
    kinds = {Kind.of(want.subject.asked) for want in wanted}
    if options.scheduler is not None and wanted:
        with workers(options.scheduler, kinds) as there:
            yield there, lambda: there.count, Measuring(options.seed, options.cold)
    elif options.executor is not None and wanted:
        with borrowed(options.executor, kinds) as executor:
            yield executor, options.jobs, Measuring(options.seed, options.cold)
    else:
        with local(options.jobs) as (processes, folder):
            yield processes, options.jobs, _measuring(wanted, options, folder)


def check_searches(searches: Sequence[Search]) -> None:
    """Raises `TuningError` where nothing could be tried."""
    failed = [search for search in searches if search.failed is not None]
    if failed and len(failed) == len(searches):
        raise TuningError(
            f"the default of {failed[0].subject.title} cannot be timed",
            why=failed[0].failed,
            cure="`tilewright verify` says more of kernels that are wrong",
        )


def _measuring(wanted: Sequence[Wanted], options: Options, folder: Path) -> Measuring:
    """While a kernel is timed, others are built only where half of the cores are idle all the same:
    cores share more than memory, and times are off by half where both are busy."""
    threads = max((want.subject.asked.threads for want in wanted), default=1)
    alone = 2 * (threads + options.jobs - 1) > Host().cores
    return Measuring(options.seed, options.cold, lock=str(folder / "timing.lock"), alone=alone)

"""The function of the public face that tunes."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.calls import checked_call
from tilewright.compiling import check_database, compile
from tilewright.config import settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from tilewright.engine import CompiledKernel
    from tilewright.graph.graph import Graph
    from tilewright.ir.arguments import Scalar
    from tilewright.ir.stmt import Kernel
    from tilewright.lang.kernel import KernelFunction, Sizes
    from tilewright.ops.op import Op
    from tilewright.tune.session import Options
    from tilewright.tune.strategies import Maker
    from tilewright.tune.subjects import Wanted


@checked_call
def autotune(
    what: Op | Kernel | Graph | KernelFunction,
    target: str = "x86",
    threads: int | None = None,
    budget: str = "1m",
    database: str | Path | None = None,
    constant: Sequence[str] = (),
    numbers: Mapping[str, Scalar] | None = None,
    strategy: str | Maker = "learned",
    jobs: int | None = None,
    cold: bool = False,
    seed: int = 0,
    scheduler: str | None = None,
    executor: Executor | None = None,
    range: Sizes | None = None,
    arguments: Sequence[Any] = (),
    local: Sizes | None = None,
    offset: int | Sequence[int] | None = None,
) -> CompiledKernel:
    """Searches for the config with which ``what`` is fastest, keeps what was measured in
    ``database``, and gives what `compile` makes of it then.

    ``what`` is an op, a kernel or a graph, of which each kernel is tuned; ``target``, ``threads``
    and ``constant`` are those of `compile`, and ``numbers`` the scalars that a kernel is called
    with. ``budget`` is how long it may take: ``"90s"``, ``"10m"``, ``"2h"``, or ``"200 trials"`` of
    each kernel. ``database`` is a file, which is made where there is none; without one it is that
    of ``TILEWRIGHT_DB``, or else a new one that is gone afterwards. What an earlier call left in
    it is not tried again. ``strategy`` says what is tried next: a name of
    `tune.strategies.STRATEGIES`, or what makes one. ``jobs`` points are tried at a time (default:
    one for each core), in processes of their own: one that crashes, hangs or computes something
    wrong costs that point only. ``cold`` times calls with nothing in the caches. ``seed`` decides
    the data and the random choices.

    ``scheduler`` is the address of a Dask scheduler, whose workers try the points in place of
    processes of this machine: those of its kind. ``executor`` does that, too: anything with the
    interface of `concurrent.futures.Executor`, which gets ``jobs`` points at a time, and stays the
    caller's. Its workers have to be of this machine's kind.

    With a ``range``, ``what`` is a function with `@tw.kernel`, and what is searched for are the
    values of its tunables, for a launch with ``arguments`` in their order; ``range``, ``local`` and
    ``offset`` are those of the launch. Values are timed on copies of the arguments; their results
    are compared with the interpreter's, or with those of the first values where that would take
    long. From then on such launches take the fastest, here and where the ``database`` is named;
    what comes back is the kernel of one.

    The default stays unless another is clearly faster. Ctrl-C ends the search; its trials count.

    Raises `ArgumentError`, `UnsupportedError` for a target whose kernels cannot be timed here,
    `DatabaseError`, `TuningError` where nothing could be timed, or where what runs the trials ends,
    and what `compile` raises.
    """
    from tilewright.tune.launch_subject import launch_of, launch_subject, taken
    from tilewright.tune.session import Options
    from tilewright.tune.subjects import Wanted, subjects_of

    check_database(database)
    options = Options.checked(budget, strategy, jobs, seed, cold, scheduler, executor)
    launched = None
    if range is None and isinstance(arguments, tuple | list) and not arguments:
        wanted = subjects_of(what, target, threads, constant, numbers)
    else:
        launched = launch_of(what, range, arguments, local, offset, target, threads)
    with tempfile.TemporaryDirectory(prefix="tilewright-tune-") as folder:
        if launched is not None:
            wanted = [Wanted(launch_subject(launched, Path(folder)))]
        path = Path(database) if database else settings().database or Path(folder, "tuned.db")
        _search(wanted, path, options)
        if launched is not None:
            return taken(launched, path)
        return compile(what, target, threads, constant=constant, database=path)


def _search(wanted: Sequence[Wanted], path: Path, options: Options) -> None:
    """Searches until the budget is used up, or until Ctrl-C; raises what `autotune` does."""
    from tilewright.tune.database import Database
    from tilewright.tune.session import campaign, check_searches

    with (
        Database(path) as database,
        campaign(wanted, database, options, lambda done: None) as run,
    ):
        with suppress(KeyboardInterrupt):
            run.run()
        check_searches(run.searches)

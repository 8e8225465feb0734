"""Trials by an executor of the caller's: anything with the interface of `concurrent.futures`.

Nothing says where its workers are, so they look at what they are themselves (`at_worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from tilewright.errors import ArgumentError, TuningError, short
from tilewright.tune.at_worker import Kind, at_worker, end_processes


class Borrowed(Executor):
    """The workers that ``executor`` has, for subjects of one ``kind``. It belongs to the caller,
    who ends it."""

    def __init__(self, executor: Executor, kind: Kind) -> None:
        self._executor, self._kind = executor, kind
        self._futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs ``fn`` of a `Task` on a worker. The future raises what that of `Processes` does,
        `BrokenExecutor` where the executor takes no more, and `TuningError` where a worker is of
        another kind. Raises `TuningError` where the executor gives no future."""
        try:
            future = self._executor.submit(at_worker, self._kind, partial(fn, *args, **kwargs))
        except Exception as error:
            future = Future()
            future.set_exception(BrokenExecutor(f"{type(error).__name__}: {error}"))
        if not isinstance(future, Future):
            raise TuningError(
                f"the executor gives {short(future)}, which is no future",
                where="executor",
                why="those of concurrent.futures can be waited for",
                cure="pass an executor with the interface of concurrent.futures; of a Dask client "
                "that is `client.get_executor()`",
            )
        self._futures = [pending for pending in self._futures if not pending.done()] + [future]
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leaves the executor, which does not begin what it has not begun."""
        for future in self._futures:
            future.cancel()
        end_processes()


def check_executor(executor: object) -> None:
    """Raises `ArgumentError` for what is no executor."""
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        raise ArgumentError(
            f"executor is {short(executor)}",
            where="executor",
            cure="pass an executor, such as concurrent.futures.ThreadPoolExecutor(2)",
        )


@contextmanager
def borrowed(executor: Executor, kinds: set[Kind]) -> Iterator[Borrowed]:
    """The workers of an executor, for subjects of the one of ``kinds``."""
    (kind,) = kinds
    there = Borrowed(executor, kind)
    try:
        yield there
    finally:
        there.shutdown(wait=False)

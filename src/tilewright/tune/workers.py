"""Workers of a Dask scheduler that try what is tuned: an executor as `concurrent.futures` has them.

Each worker runs one trial at a time (`at_worker`). Workers may come and go: a trial whose worker is
lost is not repeated elsewhere, as it may be what ends workers; Dask itself would do that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any

from tilewright.errors import TuningError, UnsupportedError
from tilewright.tune.at_worker import Call, Kind, at_worker, kind_here
from tilewright.tune.processes import LostError

# Seconds in which a scheduler has to answer, workers have to arrive at one, to say what they are,
# and to come back where none is left.
_ANSWERING, _ARRIVING, _LOADING, _RETURNING = 10.0, 5.0, 120.0, 60.0
# How often it is asked which workers there are.
_ASKING = 0.5
# Of workers that do not do, so many are named.
_NAMED = 3


class Workers(Executor):
    """The workers of the ``kind`` that the scheduler at ``address`` has, now and later.

    Raises `UnsupportedError` where `distributed` is not installed, `TuningError` where no scheduler
    is, and where it has no such workers.
    """

    def __init__(self, address: str, kind: Kind) -> None:
        self._address, self._kind = address, kind
        self._client = _client(address)
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._waiting: deque[tuple[Future[Any], Call]] = deque()
        self._running: dict[str, tuple[Future[Any], Any]] = {}
        # Dask's futures of what workers say of themselves, and what they said, by their addresses:
        # the futures' results are lost with the worker.
        self._asked: dict[str, Any] = {}
        self._said: dict[str, Kind | str] = {}
        self._ended = False
        self._last = monotonic()
        try:
            self._fit = self._first()
        except BaseException:
            self._client.close()
            raise
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs ``fn`` of a `Task` on a worker. The future raises what that of `Processes` does,
        `LostError` where the worker is lost, `TuningError` where the scheduler is, or where no
        worker comes back."""
        future: Future[Any] = Future()
        with self._lock:
            if self._ended:
                raise RuntimeError("the executor was shut down")
            self._waiting.append((future, partial(fn, *args, **kwargs)))
        self._changed.set()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leaves the workers, and what they are doing."""
        self._ended = True
        self._changed.set()
        self._thread.join()
        for future, _ in self._waiting:
            future.cancel()
        for future, remote in self._running.values():
            if wait and not cancel_futures:
                with suppress(Exception):
                    remote.result()
            future.cancel()
        self._client.close()

    # Which workers there are.

    @property
    def count(self) -> int:
        """How many workers there are now; at least one, which may come back."""
        return max(1, self._fit)

    def _first(self) -> int:
        """How many workers there are to begin with, as soon as all have said what they are."""
        start = monotonic()
        while not (there := self._there()) and monotonic() - start < _ARRIVING:
            self._changed.wait(0.1)
        while not all(name in self._said for name in there):
            if monotonic() - start > _LOADING:
                break
            self._changed.wait(0.1)
            there = self._there()
        fit = [name for name in there if not self._fault(name)]
        if not fit:
            raise self._none(there)
        return len(fit)

    def _there(self) -> list[str]:
        """The addresses of all workers, which are asked what they are."""
        there = list(self._client.nthreads())
        for address in there:
            if address not in self._asked:
                self._asked[address] = self._on(address, kind_here, self._kind.target)
                self._asked[address].add_done_callback(partial(self._answered, address))
        for address in self._asked.keys() - set(there):
            self._asked.pop(address).cancel()
            self._said.pop(address, None)
        return there

    def _answered(self, worker: str, remote: Any) -> None:
        """A worker has said what it is. Called by a thread of Dask's."""
        try:
            self._said[worker] = remote.result()
        except BaseException as error:
            self._said[worker] = f"it cannot say what it is: {error}"
        self._changed.set()

    def _fault(self, worker: str) -> str:
        """Why a worker does not do; "" where it does."""
        said = self._said.get(worker, "it does not say what it is")
        return self._kind.fault(said)

    def _none(self, there: list[str]) -> TuningError:
        if not there:
            why = "it has no workers"
        else:
            named = [f"{name}: {self._fault(name)}" for name in there[:_NAMED]]
            rest = len(there) - len(named)
            why = "; ".join(named) + (f"; and {rest} others" if rest else "")
        return TuningError(
            f"no worker of {self._address} can time kernels for {self._kind.target}",
            where="scheduler",
            why=why,
            cure=f"start some: dask worker {self._address} --nthreads 1, on machines with the same "
            f"processor ({self._kind.features[:60]}...), with the same Tilewright",
        )

    def _on(self, worker: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Dask's future of what ``fn`` gives on one worker, and no other."""
        return self._client.submit(
            fn, *args, workers=[worker], allow_other_workers=False, pure=False
        )

    # What they do.

    def _serve(self) -> None:
        while not self._ended:
            self._changed.wait(_ASKING)
            self._changed.clear()
            try:
                self._turn()
            except TuningError as error:
                self._fail(error)
            except Exception as error:
                self._fail(
                    TuningError(
                        f"the scheduler at {self._address} is lost",
                        where="scheduler",
                        why=f"{type(error).__name__}: {error}",
                        cure="start it again, and then the search, which goes on where it stopped",
                    )
                )

    def _turn(self) -> None:
        """Looks which workers there are, and gives those something to do that have nothing."""
        there = self._there()
        for worker in self._running.keys() - set(there):
            self._gone(worker)
        fit = [name for name in there if not self._fault(name)]
        self._fit = len(fit)
        if fit:
            self._last = monotonic()
        elif self._waiting and monotonic() - self._last > _RETURNING:
            raise self._none(there)
        for worker in fit:
            if worker in self._running or self._ended:
                continue
            with self._lock:
                if not self._waiting:
                    return
                future, call = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                remote = self._on(worker, at_worker, self._kind, call)
                self._running[worker] = future, remote
                remote.add_done_callback(partial(self._done, worker, future))

    def _done(self, worker: str, future: Future[Any], remote: Any) -> None:
        """A worker has ended what it did. Called by a thread of Dask's."""
        with suppress(InvalidStateError):
            try:
                # Where the worker is lost with the result, this waits until `_gone` cancels it.
                result = remote.result()
            except BaseException as error:
                is_own = remote.status == "error" and type(error).__name__ != "KilledWorker"
                future.set_exception(error if is_own else _lost(worker))
            else:
                future.set_result(result)
        self._running.pop(worker, None)
        self._changed.set()

    def _gone(self, worker: str) -> None:
        running = self._running.pop(worker, None)
        if running is not None:
            future, remote = running
            with suppress(InvalidStateError):
                future.set_exception(_lost(worker))
            remote.cancel()

    def _fail(self, error: TuningError) -> None:
        """Nothing more can be done."""
        self._ended = True
        with self._lock:
            waiting = [future for future, _ in self._waiting]
            self._waiting.clear()
        for future in [*waiting, *(future for future, _ in list(self._running.values()))]:
            with suppress(InvalidStateError):
                future.set_exception(error)


def _lost(worker: str) -> LostError:
    return LostError(f"the worker {worker} was lost")


def _client(address: str) -> Any:
    distributed = load_distributed()
    why = "nothing answers there"
    try:
        return distributed.Client(address, timeout=_ANSWERING, set_as_default=False)
    except (OSError, ValueError) as error:
        why = str(error) or why
    raise TuningError(
        f"there is no Dask scheduler at {address or 'no address'}",
        where="scheduler",
        why=why,
        cure="start one with `dask scheduler`, which says its address, such as tcp://host:8786",
    )


def load_distributed() -> Any:
    """Dask's `distributed`. Raises `UnsupportedError` where it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise UnsupportedError(
            "Dask's distributed is not installed",
            where="scheduler",
            why=str(error),
            cure="python3 -m pip install 'tilewright[dask]', here and on the workers",
        ) from error
    return distributed


@contextmanager
def workers(address: str, kinds: set[Kind]) -> Iterator[Workers]:
    """The workers of a scheduler, for subjects of the one of ``kinds``."""
    (kind,) = kinds
    executor = Workers(address, kind)
    try:
        yield executor
    finally:
        executor.shutdown(wait=False)

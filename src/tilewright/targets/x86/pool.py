"""The worker pool: runs the indices of one kernel call on several threads, within a microsecond.

Workers are daemon Python threads that sit inside native code (`pool_code`) with the GIL released.
They spin for `TILEWRIGHT_SPIN_US` after their last job, then sleep. Nothing starts before the first
parallel call; that call starts them through a callback from the native code. So generated code may
call `tw_parallel` with the addresses in `Pool.entry` and `Pool.state`, which never change, and the
child of a fork, where the state is reset, gets workers of its own when it first needs them.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import threading
import time
from functools import cache

from tilewright.config import MAX_THREADS, settings
from tilewright.targets.x86 import pool_code as code
from tilewright.targets.x86.assemble import assemble
from tilewright.targets.x86.driver import Program

_Parallel = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)
_WorkerLoop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_Dismiss = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_Starter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Pool:
    """The process's workers; `worker_pool` gives the one instance.

    ``entry`` is the address of ``void tw_parallel(state, fn, args, count)``, and ``state`` that of
    its first argument.
    """

    def __init__(self) -> None:
        settings()  # a wrong setting is refused here: the callback that starts workers cannot
        # Level 0 assembles in 2 ms instead of 8; fork and join measure the same.
        self._program = Program(
            assemble(code.CODE, cpu="x86-64", opt=0),
            (code.PARALLEL, code.WORKER_LOOP, code.DISMISS),
        )
        # Private: shared memory, mmap's default, would be one state for the child of a fork and us.
        self._memory = mmap.mmap(
            -1,
            code.MAILBOX + (MAX_THREADS - 1) * code.MAILBOX_BYTES,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        )
        self.state = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.entry = self._program.address(code.PARALLEL)
        self._parallel = _Parallel(self.entry)
        self._worker_loop = _WorkerLoop(self._program.address(code.WORKER_LOOP))
        self._dismiss = _Dismiss(self._program.address(code.DISMISS))
        self._starter = _Starter(self._start)
        self._reset()
        # Code and memory must outlive every thread, and threads may outlive this module's globals.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        atexit.register(self._leave)
        os.register_at_fork(after_in_child=self._reset)

    def run(self, fn_address: int, args_address: int, threads: int) -> None:
        """Call ``void fn(ptr args, i64 index, i64 count)`` for each index below count, ``threads``.

        Returns when all are done. They run at the same time as far as workers are free, and else
        one after the other on this thread.
        """
        self._parallel(self.state, fn_address, args_address, threads)

    @property
    def threads(self) -> int:
        """The number of threads that can work on one call now, including the caller's."""
        return max(0, self._workers.value) + 1

    def stop(self) -> None:
        """Ends the workers, and waits for that. The next parallel call starts new ones."""
        self._end_workers(code.NOT_STARTED, timeout=None)

    def _end_workers(self, workers_after: int, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._dismiss(self.state):  # while another thread's region runs
            if deadline is not None and time.monotonic() > deadline:
                return
            time.sleep(0.0005)
        # The pool is locked now: calls run on their own threads, and no workers are started.
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._workers.value = workers_after
        ctypes.c_int32.from_address(self.state + code.LOCK).value = 0

    def _start(self, state: object) -> None:
        # Called from tw_parallel, which holds the pool's lock: never by two threads at once. After
        # an error here the call is still completed, on the calling thread alone.
        started = 0
        try:
            current = settings()
            ctypes.c_int64.from_address(self.state + code.SPIN_NS).value = current.spin_us * 1000
            for index in range(1, current.threads):
                self._start_worker(index)
                started = index
        except Exception:
            pass
        finally:
            self._workers.value = started

    def _start_worker(self, index: int) -> None:
        mailbox = self.state + code.MAILBOX + (index - 1) * code.MAILBOX_BYTES
        asleep = ctypes.c_int32.from_address(mailbox + code.SLEEP)
        asleep.value = code.ABSENT
        thread = threading.Thread(
            target=self._worker_loop,
            args=(self.state, mailbox, index),
            name=f"tilewright-worker-{index}",
            daemon=True,
        )
        thread.start()
        self._threads.append(thread)
        # To enter the native code it needs the GIL once. It must have done so before this returns:
        # the caller of a parallel region may hold the GIL.
        while asleep.value == code.ABSENT:
            time.sleep(0)

    def _leave(self) -> None:
        # At exit. From here on, calls of other daemon threads run on the calling thread alone. A
        # parallel region that runs now gets time to finish; then the process ends anyway.
        self._end_workers(0, timeout=2.0)

    def _reset(self) -> None:
        # At the start, and in the child of a fork: it has no workers, and no thread to unlock it.
        ctypes.memset(self.state, 0, len(self._memory))
        self._threads: list[threading.Thread] = []
        self._workers.value = code.NOT_STARTED
        starter = ctypes.cast(self._starter, ctypes.c_void_p).value
        ctypes.c_void_p.from_address(self.state + code.STARTER).value = starter

    @property
    def _workers(self) -> ctypes.c_int32:
        return ctypes.c_int32.from_address(self.state + code.WORKERS)


_creation = threading.Lock()


def worker_pool() -> Pool:
    """The pool of this process. Raises `SettingError` when a variable has a wrong value."""
    with _creation:  # @cache alone may call the constructor twice
        return _worker_pool()


@cache
def _worker_pool() -> Pool:
    return Pool()


os.register_at_fork(
    before=_creation.acquire,
    after_in_parent=_creation.release,
    after_in_child=_creation.release,
)

"""Imports that can be interrupted.

Loading takes a while (numpy, LLVM), and what is interrupted in the middle of it leaves a traceback,
or goes on half loaded. So wherever a command loads what it needs, an interrupt ends the process:
nothing is begun yet that would have to be ended. Nothing is imported here but the standard library.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

BAD_INPUT = 2  # how a command ends that cannot do what it is asked for
INTERRUPTED = 130  # what shells give for a process that ended by SIGINT


@contextmanager
def loading() -> Iterator[None]:
    """Meanwhile an interrupt ends the process: for imports, before anything is begun."""
    ours = _interrupts_reach_us()
    if ours:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupts_reach_us() -> bool:
    """Whether an interrupt raises `KeyboardInterrupt`: what runs in the background ignores it."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end(number: int, frame: object) -> NoReturn:
    os._exit(INTERRUPTED)

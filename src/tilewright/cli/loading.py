"""Imports that can be interrupted.

Loading takes a while (numpy, LLVM), and an interrupt in the middle of it would leave a traceback,
or a half-loaded module. So while a command loads modules, an interrupt ends the process: nothing
has begun yet that needs an orderly end. Only the standard library is imported here.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

BAD_INPUT = 2  # exit code of a command that cannot be carried out
INTERRUPTED = 130  # shells' code for a process that SIGINT ended


@contextmanager
def loading() -> Iterator[None]:
    """An interrupt ends the process during the ``with`` block: for imports."""
    ours = _interrupts_reach_us()
    if ours:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupts_reach_us() -> bool:
    """Whether an interrupt raises `KeyboardInterrupt`: background jobs ignore it."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end(number: int, frame: object) -> NoReturn:
    os._exit(INTERRUPTED)

"""The first steps of the command: it can be interrupted before anything is loaded.

Loading takes a while (numpy, LLVM), and what is interrupted in the middle of it leaves a traceback,
or goes on half loaded. So nothing is imported here at first but the standard library, and until the
rest is there an interrupt ends the process: nothing is begun yet that would have to be ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import NoReturn

INTERRUPTED = 130  # what shells give for a process that ended by SIGINT


def main() -> None:
    """The command ``tilewright``. Exits with 0, 1 (a case failed), 2 (bad input), or 130
    (interrupted)."""
    try:
        ours = _interrupts_reach_us()
        if ours:
            signal.signal(signal.SIGINT, _end)
        from tilewright.cli.app import run

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _interrupts_reach_us() -> bool:
    """Whether an interrupt raises `KeyboardInterrupt`: what runs in the background ignores it."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end(number: int, frame: object) -> NoReturn:
    os._exit(INTERRUPTED)

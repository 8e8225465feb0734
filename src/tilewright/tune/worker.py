"""A process of `processes.Processes`: it runs the functions that it is sent, one by one."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
from multiprocessing.connection import Connection

from tilewright.tune.marks import BEGUN, WAITS
from tilewright.tune.timing import told


def main(pipe: int) -> None:
    """Runs what comes through the connection ``pipe``, until nothing more can come."""
    # Ctrl-C in a terminal goes to all processes: the one that searches decides what is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(pipe)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, calls), daemon=True).start()
    while True:
        _run(calls.get(), connection)


def _receive(connection: Connection, calls: queue.SimpleQueue[bytes]) -> None:
    """Takes calls in. When who sends them is gone, this process ends, whatever it is doing: nobody
    else would end a kernel that hangs."""
    while True:
        try:
            calls.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)


def _run(call: bytes, connection: Connection) -> None:
    """Says that it begins, where it waits for others and goes on, and then whether the call raised
    something, and what it gave or raised."""
    begun = False
    try:
        function, arguments, keywords = pickle.loads(call)
        connection.send_bytes(BEGUN)
        begun = True
        with told(lambda waits: connection.send_bytes(WAITS if waits else BEGUN)):
            answer = pickle.dumps((False, function(*arguments, **keywords)))
    except Exception as error:
        if not begun:
            connection.send_bytes(BEGUN)
        try:
            answer = pickle.dumps((True, error))
        except Exception:
            answer = pickle.dumps((True, RuntimeError(f"{type(error).__name__}: {error}")))
    connection.send_bytes(answer)

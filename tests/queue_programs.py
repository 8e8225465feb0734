"""Random programs for queues, against the same steps by numpy, one after the other.

    python tests/queue_programs.py --count 20000 --seed 1

A program has 1 to 8 kernels, copies, fills and host tasks, on buffers, and arrays that overlap, and
synchronizations, over two queues. It fails where a buffer has other contents than the steps in turn
leave, where commands that depend on each other overlapped in time, where something is left in the
graph, or where it takes longer than a minute.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
from queue_kernels import MASK, add, scale_add, step
from tilewright.queues.scheduler import SCHEDULER

N = 32
SECONDS = 60


class Memory:
    """What a program works on: a buffer of one device, or an array; and what it has to contain."""

    def __init__(self, argument: Any, expected: np.ndarray, device: str | None) -> None:
        self.argument = argument
        self.expected = expected
        self.device = device


class Program:
    """One random program: it is run while it is drawn."""

    def __init__(self, seed: int, devices: tuple[str, ...] = ("x86",)) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.queues = [
            tw.Queue(self.random.choice(devices), in_order=self.random.random() < 0.25)
            for _ in range(2)
        ]
        self.memory: list[Memory] = []
        # Each command with what it touched: the bytes, and whether it writes them.
        self.commands: list[tuple[tw.Event, list[tuple[int, int, bool]]]] = []
        self.errors: list[str] = []

    # Memory.

    def contents(self) -> np.ndarray:
        return np.array([self.random.randrange(MASK) for _ in range(N)], np.int32)

    def prepare(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            queue = self.random.choice(self.queues)
            values = self.contents()
            if self.random.random() < 0.5:
                buffer = queue.buffer(values.copy())
            else:
                buffer = queue.buffer(shape=(N,), dtype="s32")
                with buffer.host("write") as array:
                    array[:] = values
            self.memory.append(Memory(buffer, values, queue.device))
        # Arrays, and a buffer, that overlap.
        whole = np.resize(self.contents(), 2 * N)
        expected = whole.copy()
        for start in self.random.sample(range(0, N + 1, 8), 2):
            part = slice(start, start + N)
            argument: Any = whole[part]
            device = None
            if self.random.random() < 0.3:
                queue = self.random.choice(self.queues)
                argument, device = queue.buffer(argument), queue.device
            self.memory.append(Memory(argument, expected[part], device))

    def drawn(self, queue: tw.Queue | None, *others: Memory) -> Memory | None:
        """Memory that a kernel of ``queue`` takes beside ``others``, or any."""
        fitting = [
            memory
            for memory in self.memory
            if (queue is None or memory.device in (None, queue.device))
            and not any(np.shares_memory(memory.expected, other.expected) for other in others)
        ]
        return self.random.choice(fitting) if fitting else None

    def note(self, event: tw.Event, *touched: tuple[Memory, bool]) -> None:
        spans = []
        for memory, writes in touched:
            start = memory.expected.ctypes.data
            spans.append((start, start + memory.expected.nbytes, writes))
        self.commands.append((event, spans))

    # Commands.

    def behind(self) -> list[tw.Event]:
        if self.commands and self.random.random() < 0.2:
            return [self.random.choice(self.commands)[0]]
        return []

    def kernel(self) -> None:
        queue = self.random.choice(self.queues)
        n, a = self.random.choice((N, N, 20)), self.random.randrange(1, 6)
        local = self.random.choice((None, (8,), (32,)))
        which = self.random.randrange(3)
        z = self.drawn(queue)
        if z is None:
            return
        x = self.drawn(queue, z)
        if which == 0 or x is None:
            event = queue.submit(step, (N,), n, z.argument, local=local, depends_on=self.behind())
            z.expected[:n] = (5 * z.expected[:n] + 1) & MASK
            self.note(event, (z, True))
        elif which == 1:
            argument = x.argument
            if isinstance(argument, tw.Buffer) and self.random.random() < 0.3:
                argument = argument.read()
            event = queue.submit(
                scale_add, (N,), n, a, argument, z.argument, depends_on=self.behind()
            )
            z.expected[:n] = (a * z.expected[:n] + x.expected[:n]) & MASK
            self.note(event, (x, False), (z, True))
        else:
            y = self.drawn(queue, z)
            assert y is not None
            event = queue.submit(add, (N,), N, x.argument, y.argument, z.argument, local=local)
            z.expected[:] = (x.expected + 3 * y.expected) & MASK
            self.note(event, (x, False), (y, False), (z, True))

    def copy(self) -> None:
        to, source = self.drawn(None), self.drawn(None)
        assert to is not None and source is not None
        if np.shares_memory(to.expected, source.expected):
            return
        event = self.random.choice(self.queues).copy(to.argument, source.argument)
        to.expected[:] = source.expected
        self.note(event, (source, False), (to, True))

    def fill(self) -> None:
        to, value = self.drawn(None), self.random.randrange(MASK)
        assert to is not None
        event = self.random.choice(self.queues).fill(to.argument, value)
        to.expected[:] = value
        self.note(event, (to, True))

    def host_task(self) -> None:
        to = self.drawn(None)
        assert to is not None
        seconds, value = self.random.choice((0, 0, 0.001)), self.random.randrange(9)

        def task(values: np.ndarray) -> None:
            time.sleep(seconds)
            values[:] = (3 * values + value) & MASK

        event = self.random.choice(self.queues).host_task(task, to.argument)
        to.expected[:] = (3 * to.expected + value) & MASK
        self.note(event, (to, True))

    # Synchronizations.

    def look(self) -> None:
        memory = self.drawn(None)
        assert memory is not None
        if not isinstance(memory.argument, tw.Buffer):
            return
        if self.random.random() < 0.5:
            self.compare(memory, memory.argument.numpy(), "numpy()")
            return
        mode = self.random.choice(("read", "write", "read_write"))
        with memory.argument.host(mode) as values:
            self.compare(memory, values, f"host({mode})")
            if mode != "read":
                values[3] = memory.expected[3] = 17
            self.kernel()  # it waits for this block where it touches this memory

    def wait(self) -> None:
        which = self.random.randrange(3)
        if which == 0:
            self.random.choice(self.queues).wait()
        elif self.commands:
            self.random.choice(self.commands)[0].wait()

    def drop(self) -> None:
        """Closes a buffer that shares no memory, or forgets it."""
        memory = self.drawn(None)
        assert memory is not None
        others = [other for other in self.memory if other is not memory]
        if not isinstance(memory.argument, tw.Buffer) or len(others) < 2:
            return
        self.memory = others
        if self.random.random() < 0.5:
            memory.argument.close()

    def compare(self, memory: Memory, values: np.ndarray, how: str) -> None:
        if not (values == memory.expected).all():
            self.errors.append(f"{how}: {values.tolist()}, not {memory.expected.tolist()}")

    # The whole.

    def run(self) -> list[str]:
        """What is wrong with it, in words."""
        self.prepare()
        steps: list[Callable[[], None]] = [self.kernel, self.copy, self.fill, self.host_task]
        between = [self.look, self.wait, self.drop]
        for _ in range(self.random.randint(1, 8)):
            self.random.choices(steps, (6, 1, 1, 2))[0]()
            if self.random.random() < 0.25:
                self.random.choice(between)()
        for queue in self.queues:
            queue.close()
        for memory in self.memory:
            argument = memory.argument
            values = argument.numpy() if isinstance(argument, tw.Buffer) else argument
            self.compare(memory, values, "at the end")
        self.overlaps()
        return self.errors

    def overlaps(self) -> None:
        """Commands on the same memory have to run one after the other."""
        for number, (later, touched) in enumerate(self.commands):
            for earlier, before in self.commands[:number]:
                conflict = any(
                    start < other_end and other < end and (writes or other_writes)
                    for start, end, writes in touched
                    for other, other_end, other_writes in before
                )
                if conflict and later.profile.start < earlier.profile.end:
                    self.errors.append(f"{later!r} began before {earlier!r} ended")


def faults(seed: int, devices: tuple[str, ...] = ("x86",)) -> list[str]:
    """What is wrong with the program of this seed, and with what it leaves behind."""
    program = Program(seed, devices)
    wrong = program.run()
    del program
    if left := leaks():
        wrong = [*wrong, f"left in the graph: {left}"]
    return wrong


def leaks() -> list[object]:
    """Spans of buffers and arrays that nobody has any more."""
    for attempt in range(2):
        if attempt:
            gc.collect()
        with SCHEDULER.lock:
            SCHEDULER._drop()
            left = [*SCHEDULER.spans._sorted, *SCHEDULER._open, *SCHEDULER._ready]
        if not left:
            break
    return left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--devices", default="x86", help="among which a queue chooses: x86,spirv")
    options = parser.parse_args()
    devices = tuple(options.devices.split(","))
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        wrong = faults(seed, devices)
        faulthandler.cancel_dump_traceback_later()
        for fault in wrong:
            print(f"seed {seed}: {fault}", flush=True)
        failed += bool(wrong)
    print(
        f"{options.count} programs from seed {options.seed} on {options.devices}: {failed} failed"
    )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

"""Random programs for queues, against the same steps by numpy, one after the other.

    python tests/queue_programs.py --count 20000 --seed 1

A program has 1 to 8 kernels, copies, fills and host tasks, on buffers, and arrays that overlap,
synchronizations and fusions, over two queues, of which some fuse without being told. It fails where
a buffer has other contents than the steps in turn leave, where commands that depend on each other
overlapped in time, where something is left in the graph, or where it takes longer than a minute.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tilewright as tw
from queue_kernels import MASK, add, scale_add, step
from tilewright.queues.scheduler import SCHEDULER
from tilewright.runtime.arrays import span_of

N = 32
SECONDS = 60


class Memory:
    """What a program works on: a buffer of one device, or an array; and what it has to contain."""

    def __init__(self, argument: Any, expected: np.ndarray, device: str | None) -> None:
        self.argument = argument
        self.expected = expected
        self.device = device
        # The command that writes it last.
        self.last: tw.Event | None = None


class Program:
    """One random program: it is run while it is drawn."""

    def __init__(
        self,
        seed: int,
        devices: tuple[str, ...] = ("x86",),
        queues: Sequence[tw.Queue] | None = None,
    ) -> None:
        """Programs that run at once share ``queues``, and begin no fusions."""
        self.random = random.Random(seed)
        self.seed = seed
        # Fused kernels have groups of one size.
        self.shared = queues is not None
        self.fusions = not self.shared and self.random.random() < 0.5
        self.local = self.random.choice((None, (8,), (32,)))
        # Kernels that wait become one without being told.
        self.automatic = self.random.random() < (0.1 if self.fusions else 0.7)
        self.queues = queues or [self.new_queue(devices) for _ in range(2)]
        self.memory: list[Memory] = []
        # Each command with what it touched: the bytes, and whether it writes them.
        self.commands: list[tuple[tw.Event, list[tuple[int, int, bool]]]] = []
        # What they leave lives as long, so that no two have the same address.
        self.touched: list[np.ndarray] = []
        self.errors: list[str] = []
        # The events of fusions.
        self.fusing: list[tw.Event] = []
        # How many fusions became a kernel, and how many did not.
        self.fused = self.unfused = 0

    def new_queue(self, devices: tuple[str, ...]) -> tw.Queue:
        device, in_order = self.random.choice(devices), self.random.random() < 0.25
        automatic = self.automatic and self.random.random() < 0.8
        return tw.Queue(device, in_order=in_order, fusion="auto" if automatic else None)

    # Memory.

    def contents(self) -> np.ndarray:
        return np.array([self.random.randrange(MASK) for _ in range(N)], np.int32)

    def prepare(self) -> None:
        for _ in range(self.random.randint(2, 4)):
            queue = self.random.choice(self.queues)
            values = self.contents()
            kind = self.random.randrange(3)
            if kind == 0:
                self.memory.append(Memory(values.copy(), values, None))
                continue
            if kind == 1:
                buffer = queue.buffer(values.copy())
            else:
                buffer = queue.buffer(shape=(N,), dtype="s32")
                with buffer.host("write") as array:
                    array[:] = values
            self.memory.append(Memory(buffer, values, queue.device))
        if self.random.random() < 0.4:
            self.memory.append(self.strided(self.random.choice(self.queues)))
        # Arrays, and a buffer, that overlap.
        if (self.fusions or self.automatic) and self.random.random() < 0.7:
            return
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

    def strided(self, queue: tw.Queue) -> Memory:
        """Every second or third element of an array, or all of them backwards."""
        step = self.random.choice((2, 2, 3, -1))
        whole = np.resize(self.contents(), abs(step) * N)
        expected = whole.copy()[::step]
        if self.random.random() < 0.2:
            return Memory(whole[::step], expected, None)
        return Memory(queue.buffer(whole)[::step], expected, queue.device)

    def new(self, queue: tw.Queue) -> Memory:
        """A buffer without contents, for a kernel that writes all of it: it has no memory yet."""
        buffer = queue.buffer(shape=(N,), dtype="s32")
        self.memory.append(Memory(buffer, np.zeros(N, np.int32), queue.device))
        return self.memory[-1]

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
        for memory, writes in touched:
            if writes:
                memory.last = event
        if event.name == "a fusion":
            self.fusing.append(event)
            return  # its time is that of all its commands together
        spans = []
        for memory, writes in touched:
            spans.append((*span_of(memory.expected), writes))
            self.touched.append(memory.expected)
        self.commands.append((event, spans))

    # Commands.

    def behind(self) -> list[tw.Event]:
        events = [*(event for event, _ in self.commands), *self.fusing]
        return [self.random.choice(events)] if events and self.random.random() < 0.2 else []

    def queue(self) -> tw.Queue:
        """That of a kernel: mostly the first one in a program of fusions, so that lists grow."""
        first = (self.fusions or self.automatic) and self.random.random() < 0.85
        return self.queues[0] if first else self.random.choice(self.queues)

    def kernel(self) -> None:
        queue = self.queue()
        n, a = self.random.choice((N, N, 20)), self.random.randrange(1, 6)
        fuses = self.fusions or (self.automatic and self.random.random() < 0.8)
        local = self.local if fuses else self.random.choice((None, (8,), (32,)))
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
                scale_add, (N,), n, a, argument, z.argument, local=local, depends_on=self.behind()
            )
            z.expected[:n] = (a * z.expected[:n] + x.expected[:n]) & MASK
            self.note(event, (x, False), (z, True))
        else:
            if self.random.random() < 0.3:
                z = self.new(queue)
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
        events = [*(event for event, _ in self.commands), *self.fusing]
        if self.random.random() < 0.3 or not events:
            self.random.choice(self.queues).wait()
            return
        event = self.random.choice(events)
        event.wait()
        self.look_without_asking(event)

    def look_without_asking(self, event: tw.Event) -> None:
        """An array that ``event`` writes last has its contents now."""
        for memory in self.memory:
            array = isinstance(memory.argument, np.ndarray)
            if memory.last is event and array and self.alone(memory):
                self.compare(memory, memory.argument, f"after {event!r}")

    def fusion(self) -> None:
        """Begins a fusion, or ends one; what is promoted is memory that no longer counts."""
        queue = self.random.choice(self.queues)
        if self.shared:
            return
        if not queue.fusing:
            queue.start_fusion()
        elif self.random.random() < 0.2:
            queue.cancel_fusion()
        else:
            self.complete(queue)

    def alone(self, memory: Memory) -> bool:
        """Whether it overlaps nothing else."""
        others = (other for other in self.memory if other is not memory)
        return not any(np.shares_memory(memory.expected, other.expected) for other in others)

    def complete(self, queue: tw.Queue) -> None:
        promote: dict[tw.Buffer, str] = {}
        memory = self.drawn(queue)
        chosen = len(self.memory) > 2 and self.random.random() < 0.4
        if chosen and memory and self.alone(memory) and isinstance(memory.argument, tw.Buffer):
            promote[memory.argument] = self.random.choice(("any", "private", "local"))
            self.memory.remove(memory)
        queue.complete_fusion(promote=promote, constants=self.random.random() < 0.5)
        report = queue.fusion_report
        assert report is not None
        self.fused += report.fused
        self.unfused += not report.fused

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
        between = [self.look, self.wait, self.drop, self.fusion, self.fusion]
        rate = 0.07 if self.fusions else 0.25
        weights = (20, 0.3, 0.3, 0.4) if self.fusions or self.automatic else (6, 1, 1, 2)
        if self.automatic:
            between += [self.drop] * 6
            self.hold_up()
        if self.fusions:
            for queue in self.queues:
                queue.start_fusion()
        for _ in range(self.random.randint(3 if self.fusions else 1, 8)):
            self.random.choices(steps, weights)[0]()
            if self.random.random() < rate:
                self.random.choice(between)()
        for queue in self.queues:
            if queue.fusing and self.random.random() < 0.7:
                self.complete(queue)
        for event in self.fusing:
            event.wait()
            self.look_without_asking(event)
        for queue in self.queues:
            queue.wait() if self.shared else queue.close()
        for memory in self.memory:
            argument = memory.argument
            values = argument.numpy() if isinstance(argument, tw.Buffer) else argument
            self.compare(memory, values, "at the end")
        self.overlaps()
        return self.errors

    def hold_up(self) -> None:
        """Makes kernels wait for a while, so that there are some to become one."""

        def task(*values: np.ndarray) -> None:
            time.sleep(0.001)

        some = self.random.sample(self.memory, self.random.randint(1, len(self.memory)))
        event = self.random.choice(self.queues).host_task(task, *(m.argument for m in some))
        self.note(event, *((memory, True) for memory in some))

    def joined(self) -> int:
        return sum(event.name.startswith("the fusion of") for event, _ in self.commands)

    def overlaps(self) -> None:
        """Commands on the same memory have to run one after the other."""
        for number, (later, touched) in enumerate(self.commands):
            for earlier, before in self.commands[:number]:
                conflict = any(
                    start < other_end and other < end and (writes or other_writes)
                    for start, end, writes in touched
                    for other, other_end, other_writes in before
                )
                one = same_kernel(earlier, later)
                if conflict and not one and later.profile.start < earlier.profile.end:
                    self.errors.append(f"{later!r} began before {earlier!r} ended")


def same_kernel(one: tw.Event, other: tw.Event) -> bool:
    """Whether both commands became one kernel without being told."""
    return (one.parts or (one,)) == (other.parts or (other,))


# Fusions of all programs that became a kernel, and that did not; and kernels that were made of
# several without being told.
COUNTS = Counter[str]()


def faults(seed: int, devices: tuple[str, ...] = ("x86",)) -> list[str]:
    """What is wrong with the program of this seed, and with what it leaves behind."""
    before = graph()
    program = Program(seed, devices)
    wrong = program.run()
    COUNTS.update(fused=program.fused, unfused=program.unfused, automatic=program.joined())
    del program
    if graph() - before:
        gc.collect()
    left = graph() - before
    return [*wrong, f"left in the graph: {len(left)}"] if left else wrong


def together(seeds: Sequence[int], threads: int) -> list[str]:
    """What is wrong with the programs of these seeds, run by several threads on the same queues."""
    with tw.Queue("x86", fusion="auto") as first, tw.Queue("x86", fusion="auto") as second:

        def run(own: Sequence[int]) -> list[str]:
            programs = (Program(seed, queues=(first, second)) for seed in own)
            return [wrong for program in programs for wrong in program.run()]

        with ThreadPoolExecutor(threads) as pool:
            parts = [seeds[n::threads] for n in range(threads)]
            return [wrong for wrongs in pool.map(run, parts) for wrong in wrongs]


def graph() -> set[int]:
    """Spans of buffers and arrays that somebody has, and host accesses."""
    with SCHEDULER.lock:
        SCHEDULER._drop()
        spans = [entry[3] for entry in SCHEDULER.spans._sorted]
        return set(map(id, (*spans, *SCHEDULER._open, *SCHEDULER._ready, *SCHEDULER._held)))


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
    print(f"fusions: {COUNTS['fused']} became a kernel, {COUNTS['unfused']} did not")
    print(f"without being told: {COUNTS['automatic']} kernels of several")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

"""Kills writers of a database of tuning at random moments, and looks whether every row is there
that they were told is stored.

    python tests/kill_database.py --count 1000 --seed 1
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.engine.database_file import connect
from tilewright.tune.database import Database, Row

WRITERS = 2
CONFIGS = 50  # of each writer: rows are replaced, and the file stays small
LONGEST = 0.03  # seconds until a kill


def row(writer: int, number: int) -> Row:
    """The row that a writer stores at some time; how large it is differs."""
    text = random.Random(number).randbytes(number * 997 % 20_000).hex()
    return Row(
        kernel=f"kernel {writer}",
        title="a kernel",
        target="x86",
        features="",
        generator="",
        threads=1,
        config=f"Config({number % CONFIGS})",
        outcome="correct",
        times=(float(number + 1),),
        schedule=text,
        stamp=f"{number:012}",
    )


@dataclass
class Writers:
    """Processes that write to ``path``, killed again and again. ``stored`` is the last number that
    each was told of for each of its configs, ``next`` what it begins with."""

    path: Path
    stored: dict[tuple[int, int], int] = field(default_factory=dict)
    next: list[int] = field(default_factory=lambda: [0] * WRITERS)

    def killed(self, seconds: float) -> int:
        """Lets all write for so long, and kills them; returns how many rows they stored."""
        ends: list[int] = []
        processes: list[int] = []
        for writer in range(WRITERS):
            reading, writing = os.pipe()
            process = os.fork()
            if not process:
                os.close(reading)
                self._write(writer, writing)
            os.close(writing)
            ends.append(reading)
            processes.append(process)
        time.sleep(seconds)
        for process in processes:
            os.kill(process, signal.SIGKILL)
        count = 0
        for writer, (process, reading) in enumerate(zip(processes, ends, strict=True)):
            _, status = os.waitpid(process, 0)
            assert os.WIFSIGNALED(status), "a writer ended by itself"
            with os.fdopen(reading, "rb") as pipe:
                for line in pipe.read().split(b"\n")[:-1]:
                    number = int(line)
                    self.stored[writer, number % CONFIGS] = number
                    # The next one may be stored, though nobody was told.
                    self.next[writer] = number + 2
                    count += 1
        return count

    def _write(self, writer: int, end: int) -> None:
        try:
            with Database(self.path) as database:
                for number in range(self.next[writer], 10**9):
                    database.add(row(writer, number))
                    os.write(end, f"{number}\n".encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def check(self) -> None:
        """Every row that was stored is there, or a later one in its place, whole."""
        connection = connect(self.path, write=True)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (count,) = connection.execute("SELECT count(*) FROM trials").fetchone()
        connection.close()
        with Database(self.path, readonly=True) as database:
            rows = database.rows()
        assert len(rows) == count, "a row is damaged"
        numbers: dict[tuple[int, int], int] = {}
        for stored in rows:
            writer, number = int(stored.kernel.split()[1]), int(stored.stamp)
            assert stored == row(writer, number)
            numbers[writer, number % CONFIGS] = number
        for place, number in self.stored.items():
            assert numbers.get(place, -1) >= number, f"row {number} of writer {place[0]} is lost"


def run(folder: Path, count: int, seed: int) -> int:
    """Kills ``count`` times, a fifth of them while the file is made; returns how many rows were
    stored."""
    rng = random.Random(seed)
    writers = Writers(folder / "0.db")
    stored = 0
    for number in range(count):
        if rng.random() < 0.2:
            writers = Writers(folder / f"{number}.db")
        stored += writers.killed(rng.random() * LONGEST)
        writers.check()
    return stored


def main() -> None:
    """What the module says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stored = run(Path(folder), asked.count, asked.seed)
    print(f"killed {WRITERS} writers {asked.count} times: all of {stored} rows are there")


if __name__ == "__main__":
    main()

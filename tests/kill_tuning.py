"""Kills a search with two jobs at random moments, again and again, and looks whether the database
is as it should be: consistent, with every row that the search said is stored; and whether the next
search goes on where it stopped, and processes end with the one that began them.

    python tests/kill_tuning.py --count 1000 --seed 1
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

import tilewright as tw
from tilewright.engine.database_file import connect
from tilewright.tune.database import Database
from tilewright.tune.session import Options, campaign
from tilewright.tune.subjects import subjects_of

LONGEST = 4.0  # seconds until a kill: processes start meanwhile, trials begin and end
TRIALS = 1.0  # seconds until one that is counted from the end of a trial
JOBS = 2
OP = tw.matmul("16x32:32x48")


def search(path: Path, trials: int, end: int | None) -> None:
    """Searches until so many are tried; says through ``end`` of each that it is stored."""
    options = Options.checked(f"{trials} trials", "random", JOBS, 0, False)
    with (
        Database(path) as database,
        campaign(
            subjects_of(OP, threads=1),
            database,
            options,
            lambda done: end and os.write(end, f"{done.row.key} {done.row.stamp}\n".encode()),
        ) as run,
    ):
        run.run()


@dataclass
class Searches:
    """Searches of one database. ``stored`` are the keys of rows that they said are stored, with
    their stamps. ``late`` counts those that had stored one when they were killed."""

    path: Path
    stored: dict[str, str] = field(default_factory=dict)
    late: int = 0

    def killed(self, seconds: float, begun: bool) -> None:
        """Kills one search after so long; counted from its first trial's end, if it has ``begun``
        then, or else from its start."""
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            try:
                os.setsid()  # so that what it starts can be told from others
                search(self.path, 10**6, writing)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.readline() if begun else b""
            time.sleep(seconds)
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            assert os.WIFSIGNALED(status), "the search ended by itself"
            said += pipe.read()
        for line in said.decode().split("\n")[:-1]:
            key, stamp = line.split()
            self.stored[key] = stamp
        self.late += bool(said)
        wait_for_all(process)

    def check(self) -> int:
        """Every row that was stored is there, whole; returns how many rows there are."""
        if not self.path.exists():
            assert not self.stored
            return 0
        connection = connect(self.path, write=True)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (count,) = connection.execute("SELECT count(*) FROM trials").fetchone()
        connection.close()
        with Database(self.path, readonly=True) as database:
            rows = {row.key: row for row in database.rows()}
        assert len(rows) == count, "a row is damaged"
        for key, stamp in self.stored.items():
            assert key in rows, "a row is lost"
            # What meets the default again, or is known by one that did, is stored anew.
            assert rows[key].stamp >= stamp, "an older row is back"
        return count


def wait_for_all(session: int) -> None:
    """Waits until no process of the session is left; some seconds at most."""
    end = time.monotonic() + 10
    while left := members(session):
        assert time.monotonic() < end, f"processes {left} go on without who began them"
        time.sleep(0.05)


def members(session: int) -> list[int]:
    """The processes of a session, but for those that have ended."""
    result = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[3]) == session and words[0] != "Z":
                result.append(int(entry.name))
    return result


def run(path: Path, count: int, seed: int, longest: float = LONGEST) -> int:
    """Kills ``count`` times, every other time among trials; then a search goes on for as many
    trials again as there are rows, and tries none of these again. Returns how many rows there
    were."""
    rng = random.Random(seed)
    searches = Searches(path)
    rows = searches.check()
    for number in range(1, count + 1):
        begun = number % 2 == 0
        searches.killed(rng.random() * (TRIALS if begun else longest), begun)
        now = searches.check()
        assert now >= rows, "rows are lost"
        rows = now
    print(f"{count} kills, {searches.late} of them after trials of their search; {rows} rows")
    with Database(searches.path) as database:
        before = {row.key: row.compile_seconds for row in database.rows()}
    search(searches.path, rows + 3, None)
    with Database(searches.path) as database:
        after = {row.key: row for row in database.rows()}
    assert len(after) == rows + 3, "it does not go on where it stopped"
    tried_again = [key for key in before if before[key] != after[key].compile_seconds]
    # Of those before, the fastest alone are built again, to meet the default.
    assert all("duel" in after[key].conditions for key in tried_again), "rows were tried again"
    return rows


def main() -> None:
    """What the module says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds until a kill")
    parser.add_argument("--db", type=Path, help="the database, which may be there already")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.db or Path(folder, "tuned.db")
        rows = run(path, asked.count, asked.seed, asked.longest)
    print(f"killed a search of {JOBS} jobs {asked.count} times: all of {rows} rows are there")


if __name__ == "__main__":
    main()

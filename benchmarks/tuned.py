#!/usr/bin/env python3
"""Times the layers of the sets that ship as tuned, beside what is chosen without tuning.

A layer is a problem of a set in a direction: convolutions in three, the others forward. Each is
searched for the same time or number of trials (`tilewright tune`). Then its winner is timed again
beside the default, in turns, in a process of its own (`tilewright tune --replay`). A gain is the
default's time over the winner's, and what it is above 1 is the default's regret, as far as a search
finds something better. A winner that is the default has a gain of 1.

Without ``--db``, nothing that earlier runs tried counts. ``--count`` draws so many of the layers.

Exit status: 0, 1 if a layer could not be tuned, a winner is wrong, or slower than the default.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from tilewright.bench import catalog
from tilewright.bench.report import geometric_mean
from tilewright.engine.overview import duration
from tilewright.errors import TilewrightError
from tilewright.problems import Direction
from tilewright.testing.case import Case
from tilewright.tune.campaign import local
from tilewright.tune.database import Database
from tilewright.tune.replay import DEFAULT, FAILED, LIMIT, OURS, SAME, SKIPPED, SLOWER, replay
from tilewright.tune.session import Options, campaign
from tilewright.tune.subjects import Wanted, subjects_of
from tilewright.tune.trials import trials_of

EXAMPLES = """examples:
  python benchmarks/tuned.py --sets resnet_50 --threads 1
  python benchmarks/tuned.py --count 60 --budget 8s --json tuned.json
  python benchmarks/tuned.py --target spirv --count 30
"""
DIRECTIONS = (Direction.FWD_D, Direction.BWD_D, Direction.BWD_W)


@dataclass(frozen=True)
class Tuned:
    """What came of a layer: ``gain`` over the default of a replay, whose times are ``default`` and
    ``winner`` seconds, after so many trials; ``why`` there is none."""

    set: str
    layer: str
    threads: int
    verdict: str
    why: str = ""
    gain: float | None = None
    default: float | None = None
    winner: float | None = None
    config: str = ""
    tried: int = 0
    noise: Sequence[str] = ()


def layers(names: Sequence[str]) -> Iterator[tuple[str, Case]]:
    """The layers of the sets with these ``names``, each once in all, with its set."""
    seen: set[str] = set()
    for name in names:
        chosen = catalog.load(name)
        for problem in chosen.problems:
            for direction in DIRECTIONS if chosen.driver == "conv" else DIRECTIONS[:1]:
                case = Case(problem, direction=direction)
                if case.arguments() not in seen:
                    seen.add(case.arguments())
                    yield name, case


def tuned(name: str, case: Case, values: argparse.Namespace, threads: int, rows: Database) -> Tuned:
    """Searches for the fastest config of a layer, and times it beside the default."""
    layer = case.arguments()
    try:
        (wanted,) = subjects_of(case.op(), values.target, threads, words=layer)
    except TilewrightError as error:
        return Tuned(name, layer, threads, SKIPPED, str(error))
    tried = searched(wanted, values, rows)
    if isinstance(tried, str):
        return Tuned(name, layer, threads, FAILED, tried)
    trials = trials_of(rows.rows(**asdict(wanted.subject.asked)))
    with local(1, LIMIT) as (executor, _):
        result = replay(trials[0], lambda row: wanted.subject, values.seconds, executor)
    if result is None:
        return Tuned(name, layer, threads, FAILED, "nothing was correct", tried=tried)
    times = {side: timing.median for side, timing in result.times.items()}
    default = times.get(DEFAULT)
    winner = times.get(OURS, default)
    return Tuned(
        *(name, layer, threads, result.verdict, result.why),
        gain=1.0 if result.verdict == SAME else result.gain(),
        default=default,
        winner=winner,
        config=result.row.config,
        tried=tried,
        noise=result.noise,
    )


def searched(wanted: Wanted, values: argparse.Namespace, rows: Database) -> int | str:
    """How many points were tried; why the default could not be."""
    options = Options.checked(values.budget, values.strategy, None, values.seed, False)
    with campaign([wanted], rows, options, lambda done: None) as run:
        run.run()
        (search,) = run.searches
        return search.tried if search.failed is None else search.failed


def line(result: Tuned) -> str:
    """What a reader wants to know of one layer."""
    if result.gain is None or result.default is None or result.winner is None:
        return f"{result.verdict.upper()} ({result.why}) {result.set}: {result.layer}"
    times = f"{duration(result.default):>9} -> {duration(result.winner):>9}"
    noisy = "  noisy" if result.noise else ""
    return (
        f"{result.gain:5.2f}x  {times}  {result.tried:4} tried  {result.verdict}{noisy}  "
        f"{result.set}: {result.layer}"
    )


def summary(results: Sequence[Tuned]) -> Iterator[str]:
    """A line for each set, for each number of threads, and for all."""
    parts: dict[str, list[Tuned]] = {}
    for result in results:
        parts.setdefault(result.set, []).append(result)
    for result in results:
        parts.setdefault(f"threads: {result.threads}", []).append(result)
    parts["all"] = list(results)
    width = max(map(len, parts))
    for name, chosen in parts.items():
        gains = [result.gain for result in chosen if result.gain]
        if not gains:
            yield f"{name:{width}}  nothing was measured"
            continue
        slower = sum(result.verdict == SLOWER and not result.noise for result in chosen)
        same = sum(result.verdict == SAME for result in chosen)
        regrets = [max(0.0, gain - 1) for gain in gains]
        yield (
            f"{name:{width}}  {geometric_mean(gains):.3f}x of {len(gains)}  "
            f"regret {sum(regrets) / len(regrets):.1%}, worst {max(regrets):.1%}  "
            f"{same} stay as they were, {slower} slower"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(catalog.names()), help="default: all")
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--target", default="x86")
    parser.add_argument("--budget", default="8s", help="of each search: 8s, or '40 trials'")
    parser.add_argument("--strategy", default="learned")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each side of a replay")
    parser.add_argument("--count", type=int, help="how many layers are drawn; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="stop before the next layer after so many")
    parser.add_argument("--db", type=Path, help="a database, which keeps what was measured")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    args = parser.parse_args()
    try:
        chosen = list(layers(args.sets.split(",")))
    except TilewrightError as error:
        print(error, file=sys.stderr)
        return 2
    if args.count is not None and args.count < len(chosen):
        chosen = Random(args.seed).sample(chosen, args.count)
    results: list[Tuned] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Database(args.db or Path(folder) / "tuned.db") as rows,
        suppress(KeyboardInterrupt),
    ):
        run(chosen, args, rows, results)
    if not results:
        return 1
    print("\n".join(summary(results)))
    if args.json is not None:
        figures: list[dict[str, Any]] = [asdict(result) for result in results]
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    bad = (FAILED, SLOWER)
    return 1 if any(result.verdict in bad and not result.noise for result in results) else 0


def run(
    chosen: Sequence[tuple[str, Case]],
    values: argparse.Namespace,
    rows: Database,
    results: list[Tuned],
) -> None:
    """Adds what comes of each layer to ``results``, and prints it."""
    end = None if values.minutes is None else time.monotonic() + 60 * values.minutes
    for name, case in chosen:
        for threads in values.threads or (1, 2):
            if end is not None and time.monotonic() > end:
                return
            results.append(tuned(name, case, values, threads, rows))
            print(line(results[-1]), flush=True)


if __name__ == "__main__":
    sys.exit(main())

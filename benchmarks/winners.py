#!/usr/bin/env python3
"""Runs a search again and again, and says how many of its winners are as fast as the best of them.

Each run has choices and a database of its own. Then all winners are timed in turn, beside the
default, on the same data. What ought to be: of 20 winners, 19 within 3% of the best.

Exit status: 0, 1 if fewer are.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.measure.rounds import measure
from tilewright.recipes.config import parse_config
from tilewright.tune.database import Database
from tilewright.tune.session import Options, campaign
from tilewright.tune.subjects import Wanted, subjects_of

EXAMPLES = """examples:
  python benchmarks/winners.py --only softmax
  python benchmarks/winners.py --runs 20 --budget '100 trials' --strategy evolution
"""
PROBLEMS = {
    "convolution": tw.convolution("mb1ic20ih14oc24kh3ph1"),
    "softmax": tw.softmax("64x256"),
}
# What counts as as fast, and how many of the winners are to be.
WITHIN, WANTED = 1.03, 0.95
DEFAULT = "the default"


def winner(wanted: Wanted, options: Options) -> tuple[str, float]:
    """The config with which a search ends, and how many trials it made in a second."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Database(Path(folder, "tuned.db")) as database,
        campaign([wanted], database, options, lambda done: None) as run,
    ):
        run.run()
        (search,) = run.searches
        assert search.best is not None
        return search.best.config, run.trials / run.clock.seconds


def searched(name: str, values: argparse.Namespace) -> dict[str, Any]:
    """The winners of a problem, with how often each won."""
    (wanted,) = subjects_of(PROBLEMS[name], threads=values.threads)
    won, rates = Counter[str](), []
    for seed in range(values.runs):
        options = Options.checked(values.budget, values.strategy, values.jobs, values.seed + seed)
        config, rate = winner(wanted, options)
        won[config] += 1
        rates.append(rate)
    rate = sum(rates) / len(rates)
    return {"problem": name, "threads": values.threads, "won": dict(won), "trials a second": rate}


def timed(one: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The winners with the times of all, and of the default, in microseconds."""
    (wanted,) = subjects_of(PROBLEMS[one["problem"]], threads=one["threads"])
    subject, won = wanted.subject, one["won"]
    default = repr(subject.default())
    sides = {
        config: subject.build(parse_config(config)).call(0)
        for config in dict.fromkeys([*won, default])
    }
    done = measure(sides, seconds=seconds, threads=one["threads"])
    times = {config: timing.median * 1e6 for config, timing in done.times.items()}
    best = min(times[config] for config in won)
    return {
        **one,
        "default": default,
        "us": times,
        "within": sum(n for config, n in won.items() if times[config] <= WITHIN * best),
        "worst": max(times[config] for config in won) / best,
        "gain": times[default] / best,
        "noise": list(done.noise),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PROBLEMS, action="append", help="default: all")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--budget", default="60 trials", help="of each search")
    parser.add_argument("--strategy", default="learned")
    parser.add_argument("--jobs", type=int, help="trials at a time")
    parser.add_argument("--seed", type=int, default=1, help="of the first search")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each winner")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--again", type=Path, help="time the winners of such a file again")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    earlier = [] if args.again is None else json.loads(args.again.read_text(encoding="utf-8"))
    names = [each["problem"] for each in earlier] or args.only or list(PROBLEMS)
    for place, name in enumerate(names):
        one = earlier[place] if earlier else searched(name, args)
        one = timed(one, args.seconds)
        runs = sum(one["won"].values())
        print(
            f"{name}: {one['within']} of {runs} winners within {WITHIN - 1:.0%} of the best, "
            f"the slowest {one['worst']:.3f} times its time; the best {one['gain']:.3f} times as "
            f"fast as the default; {one['trials a second']:.1f} trials a second"
            + ("".join(f"; noisy: {each}" for each in one["noise"][:1])),
            flush=True,
        )
        for config, time in sorted(one["us"].items(), key=lambda item: item[1]):
            mark = f" ({DEFAULT})" if config == one["default"] else ""
            print(f"  {time:8.2f} us  won {one['won'].get(config, 0):2}  {config}{mark}")
        rows.append(one)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(one["within"] >= WANTED * sum(one["won"].values()) for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

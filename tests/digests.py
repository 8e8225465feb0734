"""What schedules come to, as hashes: a line for each case, with its config, the kernel that the
target gets, the kernels that pack operands, the target's code, and the milliseconds that it took.

A change of the house changes no line. ``python tests/digests.py write before.tsv`` digests the sets
that ship, in directions, types and layouts, for `TARGETS`; ``python -m pytest --digests tests.tsv``
what tests compile (without caches); ``python tests/digests.py compare before.tsv after.tsv`` says
which cases differ and in what, and exits with 1 if any does. Of tests that draw kernels at random,
only kernels that both files have are compared. Most of what ships are convolutions: ``--of-each 5``
takes as many cases of every driver, and small random problems of it.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from schedule_replays import cases
from tilewright.engine import compile
from tilewright.engine.trace import Trace
from tilewright.errors import TilewrightError
from tilewright.facts import Facts, starting_from
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.passes import run
from tilewright.problems import DRIVERS
from tilewright.recipes import choose
from tilewright.recipes.config import Config
from tilewright.recipes.start import Start
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target
from tilewright.testing.case import Case
from tilewright.testing.random_problems import random_cases

TARGETS = (
    "x86:avx2",
    "x86:avx512_bf16",
    "spirv:cpu",
    "spirv:gpu",
    "nvidia:sm_80",
    "nvidia:sm_90a",
)


@dataclass(frozen=True, slots=True)
class Digest:
    """Hashes of what a case comes to; ``refusal`` is empty unless it is refused."""

    config: str = ""
    ir: str = ""
    packs: str = ""
    code: str = ""
    refusal: str = ""

    def differences(self, other: Digest) -> tuple[str, ...]:
        """The names of the columns that differ."""
        return tuple(name for name in COLUMNS if getattr(self, name) != getattr(other, name))


COLUMNS = tuple(Digest.__dataclass_fields__)


def digest(config: Config, kernels: Mapping[str, Kernel], target: Target) -> Digest:
    """Of the scheduled kernels: that named "" is the kernel, the others pack operands."""
    last = {name: run(kernel) for name, kernel in kernels.items()}
    texts = {name: to_text(kernel) for name, kernel in last.items()}
    packs = [f"{name}\n{text}" for name, text in texts.items() if name]
    codes = [target.lower(kernel).text for kernel in last.values()]
    return Digest(_hash(repr(config)), _hash(texts[""]), _hash(*packs), _hash(*codes))


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def digest_case(name: str, case: Case) -> Digest:
    """Of the default schedule of ``case`` for the target of that name."""
    target = find_target(name)
    try:
        with starting_from(Facts.empty()):
            config, scheduled = choose.choose(Start.of(case.op().resolved()), target.machine)
            return digest(config, {"": scheduled.kernel, **scheduled.packed}, target)
    except TilewrightError as error:
        return Digest(refusal=_hash(str(error)))


def line(name: str, value: Digest, seconds: float) -> str:
    """As it stands in a file."""
    hashes = (getattr(value, column) for column in COLUMNS)
    return "\t".join((name, *hashes, f"{seconds * 1e3:.1f}")) + "\n"


def read(path: Path) -> dict[str, tuple[Digest, float]]:
    """A file's digests and milliseconds, by the name of the case."""
    rows = (row.split("\t") for row in path.read_text(encoding="utf-8").splitlines())
    return {name: (Digest(*hashes), float(took)) for name, *hashes, took in rows}


def _line_of(task: tuple[str, Case]) -> str:
    target, case = task
    start = time.perf_counter()
    value = digest_case(target, case)
    seconds = time.perf_counter() - start
    return line(f"{target} {case.driver} {case.arguments()}", value, seconds)


def write(path: Path, tasks: Iterable[tuple[str, Case]], jobs: int) -> int:
    """Digests ``tasks`` in so many processes; gives their number."""
    count = 0
    # Not by a fork: what OpenCL has opened does not survive one.
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool, path.open("w", encoding="utf-8") as file:
        for count, text in enumerate(pool.imap_unordered(_line_of, tasks, chunksize=8), 1):
            file.write(text)
            if count % 1000 == 0:
                print(f"{count} cases", file=sys.stderr, flush=True)
    return count


def of_each_driver(number: int, seed: int) -> Iterator[tuple[str, Case]]:
    """``number`` cases of each driver from the sets, if they have as many, and ``number`` random
    problems of it on each target."""
    taken: Counter[str] = Counter()
    for target, case in cases(seed, TARGETS):
        taken[case.driver] += 1
        if taken[case.driver] <= number:
            yield target, case
    for driver in DRIVERS:
        for case in random_cases(driver, number, seed):
            yield from ((target, case) for target in TARGETS)


def compare(before: Path, after: Path) -> int:
    """Prints what differs; 1 if anything does."""
    old, new = read(before), read(after)
    both = [name for name in old if name in new]
    changed = {name: old[name][0].differences(new[name][0]) for name in both}
    changed = {name: columns for name, columns in changed.items() if columns}
    for name, columns in changed.items():
        print(f"{name}: {', '.join(columns)}")
    totals = Counter(column for columns in changed.values() for column in columns)
    counts = ", ".join(f"{column} {count}" for column, count in totals.items()) or "none"
    print(f"{len(both)} cases in both files, {len(changed)} differ ({counts})")
    print(f"{len(old) - len(both)} only before, {len(new) - len(both)} only after")
    ratios = [math.log(max(new[name][1], 0.1) / max(old[name][1], 0.1)) for name in both]
    if ratios:
        print(f"time after / before: {math.exp(sum(ratios) / len(ratios)):.3f} (geometric mean)")
    return 1 if changed or not both else 0


def add_options(parser: pytest.Parser) -> None:
    """The option of this plugin."""
    parser.addoption("--digests", metavar="FILE", help="appends digests of what tests compile")


def register(config: pytest.Config) -> None:
    """Digests what is compiled, where that is asked for."""
    path = config.getoption("--digests")
    if path is not None:
        compile._build = _digesting(compile._build, Path(path).absolute())


def _digesting(build: Any, path: Path) -> Any:
    @functools.wraps(build)
    def built(request: Any, target: Target, given: object, key: str, trace: Any) -> Any:
        start = time.perf_counter()
        trace = Trace() if trace is None else trace
        result = build(request, target, given, key, trace)
        seconds = time.perf_counter() - start
        names = ("", *result.packs)
        value = digest(result.config, dict(zip(names, trace.kernels, strict=True)), target)
        begun = request.start()
        what = _hash(to_text(begun.kernel), repr(sorted(begun.constant)), repr(given))
        # One write of a line: processes of tests append to one file.
        with path.open("a", encoding="utf-8") as file:
            file.write(line(f"{target.name} {request.name} {what}", value, seconds))
        return result

    return built


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    writes = verbs.add_parser("write", help="digest the sets that ship")
    writes.add_argument("file", type=Path)
    writes.add_argument("--jobs", type=int, default=2)
    writes.add_argument("--count", type=int, help="so many cases, drawn (default: all)")
    writes.add_argument("--of-each", type=int, help="so many cases of each driver, and random ones")
    writes.add_argument("--seed", type=int, default=0)
    compares = verbs.add_parser("compare", help="say what differs between two files")
    compares.add_argument("before", type=Path)
    compares.add_argument("after", type=Path)
    chosen = parser.parse_args(words)
    if chosen.verb == "compare":
        return compare(chosen.before, chosen.after)
    tasks = cases(chosen.seed, TARGETS)
    if chosen.of_each is not None:
        tasks = of_each_driver(chosen.of_each, chosen.seed)
    tasks = islice(tasks, chosen.count)
    print(f"{write(chosen.file, tasks, chosen.jobs)} cases digested")
    return 0


if __name__ == "__main__":
    sys.exit(main())

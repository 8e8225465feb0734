"""How much of benchdnn's own files is read, and how much of that runs.

    python3 tests/benchdnn_files.py FOLDER --draw 110 --seed 1

FOLDER is oneDNN's ``tests/benchdnn/inputs``. A line for each driver: of its files, those of which
every line becomes a case, those of which some do, those of which none does; of the cases drawn, how
many passed, failed, and were refused, by reason.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from itertools import islice
from pathlib import Path

from tilewright.cli.cases import Unread, batch_lines, cases_of_line
from tilewright.cli.knobs import Knobs
from tilewright.engine import compile_kernel
from tilewright.errors import LayoutError, ProblemError, UnsupportedError
from tilewright.problems import DRIVERS, OTHER_DRIVER_NAMES
from tilewright.testing.case import Case
from tilewright.testing.verify import Status, Verdict, one_line, verify

# The most work and elements of a case that is run; the most descriptors of a file, and cases of a
# descriptor, that are looked at.
_FLOPS, _ELEMENTS = 2**28, 2**20
_LINES, _COMBINATIONS = 500, 200


@dataclass
class Count:
    """What became of a driver's files: by how much of them was read, and their cases."""

    files: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    cases: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def drivers_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """The drivers that there are here, with the folder of their files."""
    for path in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        if path.name in (*DRIVERS, *OTHER_DRIVER_NAMES):
            yield path.name, path


def count(driver: str, folder: Path, draws: int, rng: random.Random, target: str = "x86") -> Count:
    """Reads the files of a driver, and runs some of their cases."""
    result = Count()
    drawn: list[Case | Unread] = []
    for path in sorted(entry for entry in folder.iterdir() if entry.is_file()):
        drawn += _read(driver, path, result)
    rng.shuffle(drawn)
    for case in islice((candidate for candidate in drawn if not _too_large(candidate)), draws):
        verdict = _verdict(case, target)
        result.cases[verdict.status] += 1
        if verdict.status is Status.SKIPPED or isinstance(case, Unread):
            result.reasons[verdict.reason] += 1
        elif verdict.status is Status.FAILED:
            result.wrong.append(f"{verdict.reason}: {case.arguments()}")
    return result


def _read(driver: str, path: Path, result: Count) -> list[Case | Unread]:
    """A case of each descriptor of a file, or what makes none of it; of many, of some."""
    chosen: list[Case | Unread] = []
    kinds: Counter[str] = Counter()
    try:
        with redirect_stderr(StringIO()):
            lines = list(batch_lines(Knobs(driver, batch=path)))
    except ProblemError as error:
        result.files["none"] += 1
        return [Unread(driver, path.name, str(path), error)]
    rng = random.Random(path.name)
    for line in rng.sample(lines, _LINES) if len(lines) > _LINES else lines:
        unread: list[Unread] = []
        results = list(islice(cases_of_line(driver, line, unread), _COMBINATIONS))
        kinds["whole" if not unread else "in part" if results else "none"] += 1
        chosen.append(rng.choice([*results, *unread]))
    result.lines += kinds
    result.files[next(iter(kinds), "whole") if len(kinds) < 2 else "in part"] += 1
    return chosen


def _too_large(case: Case | Unread) -> bool:
    if isinstance(case, Unread):
        return False
    elements = max(math.prod(shape) for shape in case.problem.shapes.values())
    return case.problem.nominal_flops > _FLOPS or elements > _ELEMENTS


def _verdict(case: Case | Unread, target: str) -> Verdict:
    if isinstance(case, Unread):
        lacking = isinstance(case.error, UnsupportedError)
        return Verdict(Status.SKIPPED if lacking else Status.FAILED, one_line(case.error))
    try:
        op = case.op()
    except (LayoutError, ProblemError, UnsupportedError) as error:
        return Verdict(Status.SKIPPED, one_line(error))
    return verify(op, lambda each: compile_kernel(each, target))


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[key]} {key}" for key in counts)


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draw", type=int, default=0, help="run so many cases of each driver")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="x86")
    parser.add_argument("--driver", default="", help="this one alone")
    options = parser.parse_args()
    files: Counter[str] = Counter()
    cases: Counter[Status] = Counter()
    for driver, folder in drivers_in(options.folder):
        if options.driver in ("", driver):
            rng = random.Random(f"{options.seed} {driver}")
            result = count(driver, folder, options.draw, rng, options.target)
            files += result.files
            cases += result.cases
            print(
                f"{driver}: files {_words(result.files)}; descriptors {_words(result.lines)};",
                ", ".join(f"{n} {status.value}" for status, n in result.cases.items()),
                flush=True,
            )
            for reason, times in result.reasons.most_common(12):
                print(f"    {times} {reason}")
            for fault in result.wrong:
                print(f"    WRONG {fault}")
    print(f"all: files {_words(files)};", {status.value: n for status, n in cases.items()})


if __name__ == "__main__":
    main()

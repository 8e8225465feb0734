"""What of other frameworks' programs is right, suite by suite, as a table:

    python tests/graph_coverage.py [SUITE ...] [--stablehlo FOLDER] [--jobs N] [--json FILE]

Suites: StableHLO's own test data (in FOLDER), ONNX's backend cases of nodes, the ops of core ATen
beside PyTorch, PyTorch's own samples of all of its operators (`op_db`; by a name only, as they take
hours), and models of `transformers` beside PyTorch. `islands` says which ops of the samples of
`op_db` would stay with PyTorch, and compiles nothing: what is native counts as right, and a list
says how often others are met. What is not right is printed as it comes.
``--tenth`` judges a tenth, which ``--seed`` draws. Exit status: 0, or 1 if anything is wrong, ends
the process, cannot be read, or less is right than has to be.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from tilewright.cli.progress import progress
from tilewright.testing.stablehlo_files import REFUSED, RIGHT, worst_of

# The rest of what may become of a case is wrong: also what cannot be read, or broke.
STATUSES = (RIGHT, "wrong", REFUSED)
_START = "spawn"  # how processes begin
# What a process judges, about, before another takes its place.
_TASKS = 200
# How much of a row of the table has to be right.
BARS: Mapping[str, float] = {
    "StableHLO, static": 0.97,
    "StableHLO, dynamic, quantized, its interpreter's": 0.85,
    "ONNX, cases of nodes": 0.85,
    "core ATen, names": 0.75,
    "op_db, float32": 0.0,
    "op_db, bfloat16": 0.0,
    "op_db, int64": 0.0,
    "op_db, bool": 0.0,
    "op_db, gradients": 0.0,
    **{f"islands, {kind}": 0.0 for kind in ("float32", "bfloat16", "int64", "bool", "gradients")},
    "models, forward": 1.0,
    "models, bfloat16": 1.0,
    "models, gradients": 0.9,
}


@dataclass(frozen=True)
class Options:
    """What is asked for, beside the suites."""

    target: str = "x86"
    stablehlo: Path | None = None
    full: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """What became of a case, and in which row of the table it counts."""

    row: str
    case: str
    status: str
    why: str
    seconds: float


# What became of a case, and why.
Verdict = tuple[str, str]


@dataclass(frozen=True)
class Suite:
    """``cases`` are names of what `judge` judges, each of which counts in a `row` of the table;
    ``needs`` are packages. One that is ``long`` has to be named."""

    cases: Callable[[Options], Sequence[str]]
    row: Callable[[str], str]
    judge: Callable[[str, Options], Verdict]
    needs: tuple[str, ...] = ()
    long: bool = False


def stablehlo_cases(asked: Options) -> Sequence[str]:
    """The files of the folder."""
    return [] if asked.stablehlo is None else sorted(map(str, asked.stablehlo.rglob("*.mlir")))


def stablehlo_row(case: str) -> str:
    """Folders say what kind of files are in them."""
    other = {"dynamic", "quantized", "interpret"} & set(Path(case).parts[:-1])
    return "StableHLO, " + ("dynamic, quantized, its interpreter's" if other else "static")


def stablehlo_judge(case: str, asked: Options) -> Verdict:
    """The worst of what becomes of the functions of a file."""
    worst = worst_of(Path(case), asked.target)
    return worst.status, worst.why


def onnx_judge(case: str, asked: Options) -> Verdict:
    """A case beside the results that come with it."""
    cases = import_module("onnx_cases")
    result: Verdict = cases.outcome(cases.cases()[case], asked.target)
    return result


def aten_cases(asked: Options) -> Sequence[str]:
    """The names of ops, of which some have several overloads."""
    return sorted({core_op.split(".")[0] for core_op in import_module("torch_ops").core_ops()})


def aten_judge(case: str, asked: Options) -> Verdict:
    """The worst of all overloads on random inputs; an island is refused."""
    result: Verdict = import_module("torch_ops").judged(case, asked.seed, asked.target)
    return result


def op_db_judge(case: str, asked: Options) -> Verdict:
    """PyTorch's samples of an op in one kind; those with an op that PyTorch ran are refused."""
    result: Verdict = import_module("torch_op_db").judged(case, asked.seed, asked.target)
    return result


def islands_judge(case: str, asked: Options) -> Verdict:
    """Which ops of samples would stay with PyTorch: such cases are refused."""
    result: Verdict = import_module("torch_op_db").planned(case, asked.seed, asked.target)
    return result


def model_cases(asked: Options) -> Sequence[str]:
    """Each model in each way that it is run."""
    models = import_module("torch_models")
    return [f"{name}, {kind}" for name in models.MODELS for kind in models.KINDS]


def model_judge(case: str, asked: Options) -> Verdict:
    """A model beside PyTorch; one with ops that PyTorch ran is refused."""
    name, kind = case.split(", ")
    models = import_module("torch_models")
    result: Verdict = models.judged(name, kind, asked.full, asked.target)
    return result


SUITES: Mapping[str, Suite] = {
    "stablehlo": Suite(stablehlo_cases, stablehlo_row, stablehlo_judge),
    "onnx": Suite(
        lambda _: list(import_module("onnx_cases").cases()),
        lambda _: "ONNX, cases of nodes",
        onnx_judge,
        ("onnx",),
    ),
    "aten": Suite(aten_cases, lambda _: "core ATen, names", aten_judge, ("torch",)),
    "op_db": Suite(
        lambda _: list(import_module("torch_op_db").cases()),
        lambda case: f"op_db, {case.split(', ')[1]}",
        op_db_judge,
        ("torch", "expecttest"),
        long=True,
    ),
    "islands": Suite(
        lambda _: list(import_module("torch_op_db").cases()),
        lambda case: f"islands, {case.split(', ')[1]}",
        islands_judge,
        ("torch", "expecttest"),
        long=True,
    ),
    "models": Suite(
        model_cases,
        lambda case: f"models, {case.split(', ')[1]}",
        model_judge,
        ("torch", "transformers"),
    ),
}


def judged(asked: Options, task: tuple[str, str]) -> Found:
    """What becomes of a case of a suite."""
    name, case = task
    suite, start = SUITES[name], time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            status, why = suite.judge(case, asked)
        except Exception as error:  # a defect: one case must not end the run of thousands
            status, why = "broken", f"{type(error).__name__}: {error}"
    return Found(suite.row(case), case, status, why, time.perf_counter() - start)


def all_judged(tasks: Sequence[tuple[str, str]], asked: Options, jobs: int) -> Iterator[Found]:
    """What becomes of all cases, in their order; ``jobs`` processes judge them."""
    judge = partial(judged, asked)
    if jobs == 1 and not any(SUITES[name].long for name, _ in tasks):
        yield from map(judge, tasks)
        return
    # Kernels stay loaded as long as a process lives. (Python 3.11 may wait forever where a pool
    # replaces its processes itself.)
    left = list(tasks)
    while left:
        some, done = left[: _TASKS * jobs], 0
        try:
            with _processes(jobs) as pool:
                for found in pool.map(judge, some):
                    yield found
                    done += 1
        except BrokenProcessPool:  # by one of those that were begun, of which the first is judged
            yield _alone(asked, some[done])
            done += 1
        left = left[done:]


def _processes(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, get_context(_START))


def _alone(asked: Options, task: tuple[str, str]) -> Found:
    """What becomes of a case in a process of its own, which it may end."""
    start = time.perf_counter()
    try:
        with _processes(1) as pool:
            return pool.submit(judged, asked, task).result()
    except BrokenProcessPool:
        row = SUITES[task[0]].row(task[1])
        return Found(row, task[1], "died", "its process ended", time.perf_counter() - start)


def tasks_of(suites: Sequence[str], asked: Options, match: str) -> list[tuple[str, str]]:
    """The cases of suites whose names have ``match`` in them; says which suites cannot run."""
    result: list[tuple[str, str]] = []
    for name in suites:
        missing = [package for package in SUITES[name].needs if find_spec(package) is None]
        if name == "stablehlo" and asked.stablehlo is None:
            missing = ["its folder (--stablehlo)"]
        if missing:
            print(f"{name} is left out: {', '.join(missing)} is not here")
            continue
        result += [(name, case) for case in SUITES[name].cases(asked) if match in case]
    return result


def table(found: Sequence[Found]) -> list[str]:
    """A line a row, in words."""
    lines = [
        f"| suite | cases | {' | '.join(STATUSES)} | share | at least |",
        "| --- |" + " ---: |" * (len(STATUSES) + 3),
    ]
    for row, counts in _counts(found).items():
        cells = " | ".join(f"{counts[status]:,}" for status in STATUSES)
        share = counts[RIGHT] / counts.total()
        lines.append(f"| {row} | {counts.total():,} | {cells} | {share:.1%} | {BARS[row]:.0%} |")
    return lines


def islands_met(found: Sequence[Found]) -> list[str]:
    """A line for each op that stayed with PyTorch: in how many cases."""
    counts = Counter(
        island.split(": ")[0]
        for case in found
        if case.row.startswith("islands") and case.status == REFUSED
        for island in case.why.split("; ")
    )
    return [f"{count:4} {name}" for name, count in counts.most_common()]


def _counts(found: Sequence[Found]) -> dict[str, Counter[str]]:
    rows: dict[str, Counter[str]] = {row: Counter() for row in BARS}
    for case in found:
        rows[case.row][case.status if case.status in STATUSES else "wrong"] += 1
    return {row: counts for row, counts in rows.items() if counts}


def held(found: Sequence[Found]) -> bool:
    """Whether nothing is wrong, and of each row enough is right."""
    counts = _counts(found)
    enough = all(count[RIGHT] >= BARS[row] * count.total() for row, count in counts.items())
    return bool(counts) and enough and not any(count["wrong"] for count in counts.values())


def _data(found: Sequence[Found]) -> dict[str, Any]:
    rest = [vars(case) for case in found if case.status != RIGHT]
    return {
        "rows": {row: dict(counts) for row, counts in _counts(found).items()},
        "not right": rest,
    }


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--stablehlo", type=Path, help="a folder with StableHLO's .mlir files")
    parser.add_argument("--target", default="x86", help="what programs are compiled for")
    parser.add_argument("--match", default="", help="cases whose name has this in it")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth case from the Ith on")
    parser.add_argument("--tenth", action="store_true", help="every tenth case, from a drawn one")
    parser.add_argument("--full", action="store_true", help="models as large as published ones")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs of ops")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="a file for the figures and what is not right")
    args = parser.parse_args(arguments)
    unknown = [suite for suite in args.suites if suite not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}: choose of {', '.join(SUITES)}")
    asked = Options(args.target, args.stablehlo, args.full, args.seed)
    first, step = map(int, args.part.split("/"))
    if args.tenth:
        first, step = Random(args.seed).randrange(10), 10
    names = args.suites or [name for name, suite in SUITES.items() if not suite.long]
    tasks = tasks_of(names, asked, args.match)[first::step]
    result: list[Found] = []
    for case in progress(all_judged(tasks, asked, args.jobs), len(tasks), "coverage"):
        result.append(case)
        if case.status != RIGHT:
            print(f"{case.status:8} {case.case}: {case.why}", flush=True)
    print("\n".join([*islands_met(result), *table(result)]))
    if args.json:
        args.json.write_text(json.dumps(_data(result), indent=1), encoding="utf-8")
    return 0 if held(result) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``tilewright tune --fit`` and ``tilewright tune --accuracy``: what predicted times rest on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tilewright.bench.accuracy import accuracy, print_accuracy
from tilewright.bench.fitting import collect
from tilewright.bench.rates import Measured, costs_of, fitted
from tilewright.bench.timed_records import TimedRecord, read_records
from tilewright.cli import completing
from tilewright.cli.files import open_output
from tilewright.config import MAX_THREADS, settings
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.measure.stamp import stamped
from tilewright.predict.kept import costs_file, keep_costs
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target
from tilewright.targets.x86.assemble import host_cpu
from tilewright.testing.timed_cases import TimedCase, timed_cases

_SCHEMA = 1
# Which kernels: those that costs are fitted to, and those that judge them.
_FIT_SEED, _JUDGE_SEED = 0, 1
_BATCH, _MOST = 9, 1 << 20
_KINDS = " ".join


def tune_command(
    fit: Annotated[
        bool, typer.Option("--fit", help="Measure kernels, fit the costs to them, and keep these.")
    ] = False,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Measure other kernels, and judge predicted times.")
    ] = False,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.0, help="How long kernels are measured, about.")
    ] = 3.0,
    target: Annotated[
        str,
        typer.Option("--target", help="x86 or x86:avx2.", autocompletion=completing.targets),
    ] = "x86",
    threads: Annotated[
        int, typer.Option("--threads", min=1, max=MAX_THREADS, help="Of each kernel.")
    ] = 1,
    records: Annotated[
        Path | None,
        typer.Option("--records", help="Times are kept here. Default: a file beside the cache."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the tables to this file, too.")
    ] = None,
) -> None:
    """Fit the model that predicts the times of kernels to this machine, or say how well it fits.

    Random kernels of 18 kinds are timed, by their default config and others: those of another run
    are not timed again. With --fit, the costs of operations, of lines from the caches, of launches
    are fitted to these times, and kept by processor: every process that begins later predicts by
    them, and chooses configs by what it predicts. Two tables say how well times were predicted
    before and after, on problems that were left out of the fit. With --accuracy, nothing changes.

    Of each kind: the correlation of the ranks of predicted and measured times, the geometric mean
    of their ratios, how far off they are on average; how much longer than the best measured config
    the default takes, and the one that is predicted to be fastest, on average and at worst.

    Ends with 0; 2 for bad input, such as a target whose times are not predicted.

    Examples:

      tilewright tune --fit

      tilewright tune --fit --minutes 10 --threads 2

      tilewright tune --accuracy --minutes 2 --json accuracy.json
    """
    if fit and accuracy:
        raise ProblemError("--fit and --accuracy are given", where="--fit", cure="leave one out")
    where = find_target(target)
    if not where.runs_here:
        raise UnsupportedError(
            f"kernels for {where.name} do not run here",
            cure="choose a target that runs on this processor",
        )
    costs_of(where.machine)
    with ExitStack() as stack:
        output = open_output(stack, json_file, "--json")
        seed = _FIT_SEED if fit else _JUDGE_SEED
        measured = _measured(where, threads, minutes, seed, records)
        tables = _fit(where, measured) if fit else _judge(measured)
        if output is not None:
            output.write(stamped(_SCHEMA, {"target": where.name, "threads": threads, **tables}))


def _measured(
    target: Target, threads: int, minutes: float, seed: int, file: Path | None
) -> Measured:
    """Kernels timed for about so long, and those that the file has."""
    if file is None:
        folder = settings().cache_dir / "times"
        file = folder / f"{costs_file(host_cpu(), target.machine).stem}-{threads}-{seed}.jsonl"
    end = time.monotonic() + 60 * minutes

    def cases() -> Iterator[TimedCase]:
        for case in timed_cases(_MOST, seed):
            if time.monotonic() > end:
                return
            yield case

    for _ in collect(cases(), target.name, threads, file, batch=_BATCH):
        pass
    place = target.name, host_cpu(), threads
    return Measured(target.machine, [r for r in read_records(file) if _place(r) == place])


def _place(record: TimedRecord) -> tuple[str, str, int]:
    return record.target, record.processor, record.threads


def _fit(target: Target, measured: Measured) -> dict[str, object]:
    fitted_rates = fitted(measured)
    print("\nbefore:")
    print_accuracy(fitted_rates.before)
    print("\nafter:")
    print_accuracy(fitted_rates.after)
    about = {
        "processor": host_cpu(),
        "target": target.name,
        "kernels": len(measured.records),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = keep_costs(fitted_rates.costs, host_cpu(), target.machine, about)
    print(f"\nkept in {path}; remove it, and the costs that ship count again")
    return {
        "before": [asdict(row) for row in fitted_rates.before],
        "after": [asdict(row) for row in fitted_rates.after],
    }


def _judge(measured: Measured) -> dict[str, object]:
    costs = costs_of(measured.machine)
    rows = accuracy(measured.records, measured.predicted(costs))
    print()
    print_accuracy(rows)
    return {"accuracy": [asdict(row) for row in rows]}

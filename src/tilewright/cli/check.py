"""``tilewright check``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.checking import repeat, say_if_nothing_ran
from tilewright.cli.knobs import AnyCase, Knobs, with_knobs
from tilewright.cli.output import open_output
from tilewright.cli.progress import progress
from tilewright.errors import LayoutError, ProblemError, UnsupportedError
from tilewright.recipes.config import parse_config
from tilewright.targets.registry import find_target
from tilewright.testing.check import StageReport, check_kernel, check_op, table
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.verify import Status, one_line, summary


@with_knobs
def check_command(
    knobs: Knobs,
    stage: Annotated[
        str, typer.Option("--stage", help="A stage's name, or all. Default: what the target gets.")
    ] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Bank conflicts and uncoalesced accesses fail, too.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all findings and counts to this file.")
    ] = None,
    random: Annotated[
        int, typer.Option("--random", min=0, help="So many random problems, or calls.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Which random problems and data.")] = 0,
) -> None:
    """Run kernels in the checking interpreter: no device is needed.

    Finds accesses out of bounds, reads of what nothing wrote, data races, divergent barriers, uses
    of asynchronous copies before they arrive, and results other than the naive stage's. For
    machines with workgroups, a table of the statements whose accesses conflict in the banks of
    workgroup memory, or move more than twice the global memory that they need. Ends with 0: no
    finding, 1: findings, or every case was skipped, 2: bad input.

    Examples:

      tilewright check conv ic16ih14oc16kh3ph1

      tilewright check conv --stage all --strict --json findings.json ic16ih14oc16kh3ph1

      tilewright check matmul --random 200 --seed 1

      tilewright check kernel --target spirv:gpu --stage all scale.tw
    """
    cases = replace(knobs, random=random, seed=seed).cases(drawn=True)
    with ExitStack() as stack:
        output = open_output(stack, json_file, "--json")
        counts: Counter[Status] = Counter()
        found = []
        checked = _checked(knobs, cases, stage, seed)
        for case, status, reports in progress(checked, len(cases), "check"):
            slow = strict and any(report.slow for report in reports)
            if slow and status is Status.PASSED:
                status = Status.FAILED
            counts[status] += 1
            arguments = repeat(knobs, case)
            print(f"{status.value} {arguments}", flush=True)
            for line in (line for report in reports for line in _lines(report)):
                print(line, flush=True)
            stages = [report.as_json() for report in reports]
            found.append({"case": arguments, "status": status.value, "stages": stages})
        print(summary(counts))
        if output is not None:
            output.write((json.dumps(found, indent=1) + "\n").encode())
    say_if_nothing_ran(counts)
    if counts[Status.FAILED] or not counts[Status.PASSED]:
        raise typer.Exit(1)


def _checked(
    knobs: Knobs, cases: Sequence[AnyCase], stage: str, seed: int
) -> Iterator[tuple[AnyCase, Status, list[StageReport]]]:
    """The reports on each case; a case alone that cannot be asked for is bad input."""
    machine = find_target(knobs.target).machine
    config = None if knobs.config is None else parse_config(knobs.config)
    for case in cases:
        try:
            if isinstance(case, KernelCase):
                reports = check_kernel(case, machine, stage, config)
            else:
                reports = check_op(case.op(), machine, stage, config, seed)
        except (LayoutError, ProblemError, UnsupportedError) as error:
            # A stage that this kernel does not have is for another case of the same command.
            if len(cases) == 1:
                raise
            print(one_line(error))
            yield case, Status.SKIPPED, []
            continue
        wrong = any(report.issues for report in reports)
        yield case, Status.FAILED if wrong else Status.PASSED, reports


def _lines(report: StageReport) -> list[str]:
    """What to print of one stage."""
    lines: list[str] = []
    for issue in report.issues:
        times = f" ({issue.count} accesses)" if issue.count > 1 else ""
        place = f", line {issue.line}" if issue.line else ""
        lines.append(f"  stage {report.stage}{place}: {issue.kind}{times}")
        lines += [f"    {line}" for line in issue.message.splitlines()]
    if report.slow:
        lines.append(f"  stage {report.stage}: accesses that cost more than they should")
        lines += [f"    {line}" for line in table(report.slow)]
    return lines

"""``tilewright check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.cli.cases import AnyCase, Unread, cases_of
from tilewright.cli.checking import conclude, repeat, unread_verdicts
from tilewright.cli.files import open_output
from tilewright.cli.knobs import Knobs
from tilewright.cli.progress import brief, progress
from tilewright.errors import LayoutError, ProblemError, UnsupportedError
from tilewright.measure.stamp import stamped
from tilewright.recipes.given import read_config
from tilewright.targets.registry import find_target
from tilewright.testing.check import StageReport, check_kernel, check_op, table
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.trial import NOTHING_STORED
from tilewright.testing.verify import Status, Verdict, one_line


def check_cases(
    knobs: Knobs,
    stage: str,
    strict: bool,
    json_file: Path | None,
    random: int,
    seed: int,
    verbose: bool = False,
) -> None:
    """Carries out ``tilewright check``."""
    unread: list[Unread] = []
    cases = cases_of(replace(knobs, random=random, seed=seed), drawn=True, unread=unread)
    with ExitStack() as stack:
        output = open_output(stack, json_file, "--json")
        counts: Counter[Status] = Counter()
        results: list[dict[str, Any]] = []
        for bad, verdict in unread_verdicts(unread):
            print(verdict.line(bad.arguments()), flush=True)
            counts[verdict.status] += 1
            results.append({"case": bad.arguments(), "status": verdict.status.value, "stages": []})
        checked = _checked(knobs, cases, stage, seed)
        for case, status, reason, reports in progress(checked, len(cases), "check"):
            slow = strict and any(report.slow for report in reports)
            if slow and status is Status.PASSED:
                status, reason = Status.FAILED, ""
            counts[status] += 1
            arguments = repeat(knobs, case)
            if status is not Status.PASSED or not brief(len(cases), verbose):
                print(Verdict(status, reason).line(arguments), flush=True)
            for line in (line for report in reports for line in _lines(report)):
                print(line, flush=True)
            stages = [report.as_json() for report in reports]
            results.append({"case": arguments, "status": status.value, "stages": stages})
        if output is not None:
            output.write(stamped(2, {"cases": results}))
    conclude(counts)


def _checked(
    knobs: Knobs, cases: Sequence[AnyCase], stage: str, seed: int
) -> Iterator[tuple[AnyCase, Status, str, list[StageReport]]]:
    """The status of each case, why it was skipped, and the reports on it; a single case that cannot
    be made is bad input."""
    machine = find_target(knobs.target).machine
    config = None if knobs.config is None else read_config(knobs.config)
    for case in cases:
        try:
            if isinstance(case, KernelCase):
                reports = check_kernel(case, machine, stage, config)
            else:
                reports = check_op(case.op(), machine, stage, config, seed)
        except (LayoutError, ProblemError, UnsupportedError) as error:
            # The stage may exist for another case of the command.
            if len(cases) == 1:
                raise
            yield case, Status.SKIPPED, one_line(error), []
            continue
        if any(report.issues for report in reports):
            yield case, Status.FAILED, "", reports
        elif not any(report.stored for report in reports):
            yield case, Status.SKIPPED, NOTHING_STORED, reports
        else:
            yield case, Status.PASSED, "", reports


def _lines(report: StageReport) -> list[str]:
    """The printed lines of one stage."""
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

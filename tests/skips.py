"""Skipped tests: why, a line for each reason; noted for a second run that has more installed, and
counted as failures there.

``pytest --note-skipped FILE`` writes the ids of the tests that were skipped, one a line;
``pytest @FILE --only-hardware-skips`` runs them, and fails if one is skipped for another reason
than hardware that is not here: a package can be installed, a processor cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

HARDWARE = "hardware: "
# How many reasons are said.
_REASONS = 8


def lacking(what: str) -> NoReturn:
    """Skips the present test, which needs hardware that is not here: ``what`` says so."""
    pytest.skip(HARDWARE + what)


class Skips:
    """A plugin that knows which tests were skipped, and why."""

    def __init__(self, note: str | None, strict: bool) -> None:
        self._note = note
        self._strict = strict
        self._reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            assert isinstance(report.longrepr, tuple)
            self._reasons[report.nodeid] = str(report.longrepr[2]).removeprefix("Skipped: ")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._note is not None:
            text = "".join(f"{name}\n" for name in sorted(self._reasons))
            Path(self._note).write_text(text, encoding="utf-8")
        if self._strict and self._avoidable() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in reasons_in_words(self._reasons.values()):
            terminalreporter.write_line(line)
        avoidable = self._avoidable() if self._strict else {}
        for name, reason in avoidable.items():
            terminalreporter.write_line(f"SKIPPED, but not for want of hardware: {name}: {reason}")

    def _avoidable(self) -> dict[str, str]:
        return {n: why for n, why in self._reasons.items() if not why.startswith(HARDWARE)}


def reasons_in_words(reasons: Iterable[str]) -> list[str]:
    """``skipped 120: PyTorch is not installed``: the reasons with how many tests each has, the most
    frequent first; the rest together."""
    counts = Counter(reasons).most_common()
    lines = [f"skipped {count}: {reason}" for reason, count in counts[:_REASONS]]
    rest = counts[_REASONS:]
    if rest:
        others = sum(count for _, count in rest)
        lines.append(f"skipped {others}: {len(rest)} other reasons, which -rs says")
    return lines


def add_options(parser: pytest.Parser) -> None:
    """The options of this plugin."""
    parser.addoption("--note-skipped", metavar="FILE", help="write the ids of skipped tests there")
    parser.addoption(
        "--only-hardware-skips",
        action="store_true",
        help="fail where a test is skipped for another reason than hardware that is not here",
    )


def register(config: pytest.Config) -> None:
    """Adds the plugin; workers report to the process that has it."""
    note, strict = config.getoption("--note-skipped"), config.getoption("--only-hardware-skips")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(note, strict))

"""Which tests run: by default what takes about three minutes of processor time.

Left out are combinations of which tests run a part (`in_turns`), and most cases of the functions in
``long.txt``. ``pytest --sweep`` runs what is left out otherwise, and nothing else; ``--whole``
runs all. A test that stands on the command line by its id runs in any case.
"""

from __future__ import annotations

import itertools
import resource
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

LONG = Path(__file__).parent / "long.txt"
_HEAD = """\
# Test functions of which not all cases run by default, and of how many cases one does (0: none):
# those that take long. `python3 -m pytest --note-long` measures, and writes this file.
"""
# Seconds of processor time: what the cases of a function may take by default, all together, and the
# longest case, alone.
_SHARE, _LONGEST = 0.15, 0.4
# What holds of any change, and is always asked.
_ALWAYS = "tests/package/test_architecture.py"
_MEASURED = "processor seconds"
_STARTED = pytest.StashKey[float]()


def in_turns(every: int, *axes: Iterable[Any]) -> list[Any]:
    """Parameters: one of so many combinations of ``axes``; the others are for sweeps.

    Those left in differ from one another along two axes at least, so that each value of an axis
    meets one of so many values of another.
    """
    numbered = itertools.product(*(tuple(enumerate(axis)) for axis in axes))
    return [
        pytest.param(
            *(value for _, value in chosen),
            marks=() if sum(place for place, _ in chosen) % every == 0 else (pytest.mark.sweep,),
        )
        for chosen in numbered
    ]


def add_options(parser: pytest.Parser) -> None:
    """The options of this plugin."""
    parser.addoption(
        "--sweep", action="store_true", help="run the tests that are left out otherwise"
    )
    parser.addoption("--whole", action="store_true", help="run them, and all others")
    parser.addoption(
        "--note-long",
        action="store_true",
        help="run all but combinations, and note in tests/long.txt which tests take long",
    )


def register(config: pytest.Config) -> None:
    """Declares the mark, and adds what the options ask for."""
    config.addinivalue_line("markers", "sweep: a combination that `--sweep` runs")
    if config.getoption("--note-long"):
        config.pluginmanager.register(_Durations(config))
    config.pluginmanager.register(_LeftOut(config), "left out")


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves in ``items`` what is to be run."""
    sweep, whole = bool(config.getoption("--sweep")), bool(config.getoption("--whole"))
    every = {} if config.getoption("--note-long") else read_long()
    named = {arg for arg in config.args if "::" in arg}
    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        by_default = not item.get_closest_marker("sweep") and drawn(item.nodeid, every)
        chosen = item.nodeid in named or function_of(item.nodeid) in named
        parts[whole or chosen or by_default is not sweep].append(item)
    items[:] = parts[True]
    if parts[False]:
        config.hook.pytest_deselected(items=parts[False])
    if not sweep:
        config.pluginmanager.get_plugin("left out").count(len(parts[False]))


def function_of(test: str) -> str:
    """The id of a test without its parameters."""
    return test.partition("[")[0]


def drawn(test: str, every: dict[str, int]) -> bool:
    """Whether a test runs by default: its name alone decides, so that what is left out is the same
    wherever its file lies, and whatever else is installed."""
    one_of = every.get(function_of(test), 1)
    name = test.partition("::")[2]
    return one_of > 0 and zlib.crc32(name.encode()) % one_of == 0


def read_long() -> dict[str, int]:
    """Test functions that take long, and of how many cases one runs by default."""
    lines = LONG.read_text(encoding="utf-8").splitlines() if LONG.exists() else []
    words = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: int(number) for name, number in words}


def long_text(seconds: dict[str, float], known: dict[str, int]) -> str:
    """The file of what takes long, by the ``seconds`` of tests that were measured, and what is
    ``known`` of others."""
    cases: defaultdict[str, list[str]] = defaultdict(list)
    for test in seconds:
        cases[function_of(test)].append(test)
    result = {name: number for name, number in known.items() if name not in cases}
    for name, tests in cases.items():
        one_of = _one_of(tests, [seconds[test] for test in tests])
        if one_of != 1 and not name.startswith(_ALWAYS):
            result[name] = one_of
    return _HEAD + "".join(f"{name} {number}\n" for name, number in sorted(result.items()))


def _one_of(tests: Sequence[str], seconds: Sequence[float]) -> int:
    total = sum(seconds)
    if total <= _SHARE:
        return 1
    if total > _LONGEST * len(tests):
        return 0
    # The most seldom draw that leaves one.
    most = max(1, round(total / _SHARE))
    draws = (n for n in range(most, 0, -1) if any(drawn(t, {function_of(t): n}) for t in tests))
    return next(draws)


def _processor_seconds() -> float:
    """Of this process, and of those that it started and that have ended."""
    result = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in result)


class _Durations:
    """Measures every test, and notes which take long."""

    def __init__(self, config: pytest.Config) -> None:
        self._worker = hasattr(config, "workerinput")
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[_STARTED] = _processor_seconds()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown":
            taken = _processor_seconds() - item.stash[_STARTED]
            item.user_properties.append((_MEASURED, taken))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _MEASURED:
                self._seconds[report.nodeid] = float(str(value))

    def pytest_sessionfinish(self) -> None:
        if not self._worker:
            LONG.write_text(long_text(self._seconds, read_long()), encoding="utf-8")


class _LeftOut:
    """Says how many tests were left out."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._number = 0

    def count(self, number: int) -> None:
        """Takes the number, and tells the process that reports, if that is another."""
        self._number = number
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left out"] = number

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._number = getattr(node, "workeroutput", {}).get("left out", self._number)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._number:
            terminalreporter.write_line(
                f"left out, as they take long: {self._number} (--sweep runs them)"
            )

"""Golden files: `golden(name, text)` compares with ``tests/golden/<name>.txt``.

``pytest --accept`` writes what the tests produce instead; read the difference before committing it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import digests
import skips
import sweeps
import tilewright as tw
from commands import Command, Ended
from needs import QUEUES
from tilewright.cli import main
from tilewright.engine import compile

# A slow machine is no failure: no test asserts a time.
settings.register_profile("tilewright", deadline=None)
settings.load_profile("tilewright")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="write golden files instead of comparing"
    )
    parser.addoption("--stablehlo", metavar="FOLDER", help="StableHLO files that check themselves")
    parser.addoption("--benchdnn", metavar="FOLDER", help="oneDNN's tests/benchdnn/inputs")
    digests.add_options(parser)
    skips.add_options(parser)
    sweeps.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    digests.register(config)
    skips.register(config)
    sweeps.register(config)


def pytest_collection_finish() -> None:
    # Kernels are many small objects in no cycles, and going through them all again and again is a
    # tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sweeps.choose(config, items)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with a golden file."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--accept"):
            path.write_text(text + "\n", encoding="utf-8")
        assert path.is_file(), f"no golden file {path.name}; `pytest --accept` writes it"
        assert text + "\n" == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Compiles afresh, with a disk cache of the test's own: the folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder))
    compile.forget()
    yield folder
    compile.forget()


@pytest.fixture
def tilewright(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command in this process."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["tilewright", *arguments])
        code = 0
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


@pytest.fixture(params=QUEUES)
def queue(request: pytest.FixtureRequest) -> Iterator[tw.Queue]:
    """A queue of each kind."""
    with tw.Queue(request.param) as result:
        yield result

"""Settings: defaults, values, wrong values."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from checkout import ROOT
from tilewright import config
from tilewright.config import opencl_vendors, settings
from tilewright.engine import trace
from tilewright.errors import SettingError


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TILEWRIGHT_"):
            monkeypatch.delenv(name)


def test_defaults() -> None:
    result = settings()
    assert result.debug == 0
    assert result.cache_enabled
    assert result.cache_dir.name == "tilewright"
    assert result.cache_size == 512 * 2**20
    assert result.threads == len(os.sched_getaffinity(0))
    assert result.spin_us == 1000
    assert result.opencl_device == ""
    assert result.database is None


def test_is_read_at_call_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "3")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_THREADS", " 7 ")
    monkeypatch.setenv("TILEWRIGHT_SPIN_US", "0")
    result = settings()
    assert (result.debug, result.cache_enabled, result.cache_dir) == (3, False, tmp_path)
    assert (result.threads, result.spin_us) == (7, 0)
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "")
    assert settings().debug == 0
    monkeypatch.setenv("TILEWRIGHT_DB", "~/tuned.db")
    assert settings().database == Path.home() / "tuned.db"


def test_where_opencl_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    with opencl_vendors(Path("/ours")):
        assert os.environ["OCL_ICD_VENDORS"] == "/ours"
    assert "OCL_ICD_VENDORS" not in os.environ
    monkeypatch.setenv("OCL_ICD_VENDORS", "/theirs")
    with opencl_vendors(Path("/ours")):
        assert os.environ["OCL_ICD_VENDORS"] == "/theirs"
    assert os.environ["OCL_ICD_VENDORS"] == "/theirs"


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "~/kernels")
    assert settings().cache_dir == Path.home() / "kernels"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "~nouser/x")
    with pytest.raises(SettingError, match=r"'~nouser/x'[^$]*no user's home[^$]*whole path"):
        settings()


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("12", 12), ("3K", 3072), ("5m", 5 * 2**20), ("2G", 2**31)],
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", text)
    assert settings().cache_size == size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TILEWRIGHT_DEBUG", "6"),
        ("TILEWRIGHT_DEBUG", "-1"),
        ("TILEWRIGHT_DEBUG", "verbose"),
        ("TILEWRIGHT_DEBUG", "1_0"),
        ("TILEWRIGHT_DEBUG", "٣"),
        ("TILEWRIGHT_CACHE", "no"),
        ("TILEWRIGHT_CACHE_SIZE", "K"),
        ("TILEWRIGHT_CACHE_SIZE", "1.5G"),
        ("TILEWRIGHT_CACHE_SIZE", "10T"),
        ("TILEWRIGHT_THREADS", "0"),
        ("TILEWRIGHT_THREADS", "100000"),
        ("TILEWRIGHT_THREADS", "9" * 5000),
        ("TILEWRIGHT_SPIN_US", "1e3"),
    ],
)
def test_wrong_values_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(SettingError) as caught:
        settings()
    error = caught.value
    assert name in error.what
    assert repr(text) in error.what
    assert error.why
    assert error.cure
    assert "unset it" in error.cure


def _table(text: str, heading: str) -> str:
    """The table in ``text`` whose first column is called ``heading``."""
    result = re.search(rf"^\| {heading} (.*\n\|)*.*$", text, re.MULTILINE)
    assert result is not None
    return result[0]


def test_the_page_of_settings_is_true(request: pytest.FixtureRequest) -> None:
    """Its tables are those of the modules that read the settings; ``pytest --accept`` copies."""
    page = ROOT / "docs" / "settings.md"
    text = page.read_text(encoding="utf-8")
    result = text
    for source, heading in ((config.__doc__, "variable"), (trace.__doc__, "level")):
        assert source is not None
        result = result.replace(_table(result, heading), _table(source, heading))
    if request.config.getoption("--accept"):
        page.write_text(result, encoding="utf-8")
        return
    assert text == result, "`pytest --accept` writes what is made now"
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == set(config._VARIABLES)

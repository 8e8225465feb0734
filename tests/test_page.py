"""The page of a compilation: what it holds, and what it does in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, browser
from commands import Command
from tilewright.engine.page import Entry, page_text

CONV = "mb1ic16ih8oc16kh3ph1"


def data_of(page: str) -> Any:
    """What the script of a page is told."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found.group(1))


def test_texts_are_escaped_and_compared() -> None:
    before, after = "a\nb </script> & <i>\nc", "a\nB\nb2\nc"
    entries = [
        Entry("kernel <k>", "stage naive", "1.0 ms", None, before),
        Entry("kernel <k>", "pass lets", "unchanged"),
        Entry("kernel <k>", "stage tiled", "2.0 ms", before, after),
    ]
    page = page_text("a < b & c", entries)
    assert "<title>a &lt; b &amp; c</title>" in page
    assert "kernel &lt;k&gt;" in page and "kernel <k>" not in page
    assert page.count("</script") == 2
    assert "http" not in page  # it needs no network
    data = data_of(page)
    assert data["texts"] == [before.splitlines(), after.splitlines()]
    assert data["entries"][0] == {"after": 0, "label": "stage naive"}
    assert data["entries"][1] == {}
    assert data["entries"][2]["changes"] == [[1, 2, 1, 3]]


def test_show_writes_a_page(tilewright: Command, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    words = ("--target=nvidia:sm_80", "--dt=bf16", "64x64:64x64")
    ended = tilewright("show", "matmul", *words, "--page", str(path))
    assert ended.code == 0, ended.err
    assert ended.out == f"{path}: matmul {' '.join(words)}\n"
    page = path.read_text(encoding="utf-8")
    data = data_of(page)
    labels = [each["label"] for each in data["entries"] if each]
    assert labels[0] == "stage naive"
    assert {"pass hoist", "config", "cost", "LLVM IR", "assembly"} <= set(labels)
    assert any(label.startswith("tile(") for label in labels)  # a transform
    assert "matmul_fwd_d" in labels  # what the target gets
    texts = {
        each["label"]: "\n".join(data["texts"][each["after"]]) for each in data["entries"] if each
    }
    assert "# predicted, not measured" in texts["config"]
    assert "instructions: " in texts["cost"]
    assert "define " in texts["LLVM IR"] and ".visible .entry" in texts["assembly"]
    both = tilewright("show", "matmul", *words, "--stage=naive", "--page", str(path))
    assert "kernel matmul_fwd_d(" in both.out and both.lines[-1].startswith(str(path))


def test_a_page_of_the_interpreter_says_what_it_lacks(tilewright: Command, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    ended = tilewright("show", "eltwise", "--target=interpreter", "4x4", "--page", str(path))
    assert ended.code == 0, ended.err
    assert "the interpreter has no assembly" in path.read_text(encoding="utf-8")


def test_pages_that_cannot_be_written(tilewright: Command, tmp_path: Path) -> None:
    ended = tilewright("show", "conv", CONV, "--page", str(tmp_path / "none" / "page.html"))
    assert ended.code == 2 and "cannot write" in ended.err and "--page" in ended.err
    path = tmp_path / "page.html"
    ended = tilewright("show", "conv", CONV, "mb1ic8ih6oc8kh3ph1", "--page", str(path))
    assert ended.code == 2 and "2 cases are given" in ended.err
    assert not path.exists()


@pytest.fixture
def opened(tilewright: Command, tmp_path: Path) -> Iterator[Browser]:
    """A browser in which the page of a convolution is open."""
    path = tmp_path / "page.html"
    with browser(tmp_path / "profile") as page:
        ended = tilewright("show", "conv", "--target=x86:avx2", CONV, "--page", str(path))
        assert ended.code == 0, ended.err
        page.open(path)
        yield page


LABELS = "[...document.querySelectorAll('nav button')].map(b => b.title)"
ROWS = "[...document.querySelectorAll('#text tr')].map(r => [...r.cells].map(c => c.textContent))"


def texts(page: Browser) -> tuple[str, str]:
    """What stands on the left and on the right, gaps left out."""
    rows = page.value(ROWS)
    sides = ([r[at : at + 2] for r in rows if r[at]] for at in (0, 2))
    left, right = ("\n".join(line for _, line in side) for side in sides)
    return left, right


def test_clicking_through_the_stages(opened: Browser) -> None:
    labels = opened.value(LABELS)
    assert labels[0] == "stage naive" and labels[-1] == "assembly"
    assert opened.value("document.querySelector('nav [aria-current]').title") == "stage naive"
    assert opened.value(ROWS)[0][1].startswith("kernel conv_fwd_d(")
    data = json.loads(opened.value("document.getElementById('data').textContent"))
    stages = [
        n for n, each in enumerate(data["entries"]) if each.get("label", "").startswith("stage ")
    ]
    assert len(stages) > 3
    pictures = set()
    for number in stages[1:]:
        entry = data["entries"][number]
        opened.click(f"button[data-entry='{number}']")
        assert opened.value("document.querySelector('nav [aria-current]').title") == entry["label"]
        left, right = texts(opened)
        assert left.splitlines() == data["texts"][entry["before"]]
        assert right.splitlines() == data["texts"][entry["after"]]
        marked = opened.value("document.querySelectorAll('.old, .new').length")
        changes = entry["changes"]
        assert marked == sum(b - a + d - c for a, b, c, d in changes) > 0
        assert opened.value("document.getElementById('what').textContent") == (
            f"before and after {entry['label']}: {len(changes)} "
            f"{'place' if len(changes) == 1 else 'places'} changed"
        )
        pictures.add(opened.screenshot())
    assert len(pictures) == len(stages) - 1
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 10_000 for picture in pictures)
    assert opened.errors == []


def test_what_stands_beside_the_stages(opened: Browser) -> None:
    opened.click("button[title=assembly]")
    lines = [row[1] for row in opened.value(ROWS)]
    assert any("vfmadd" in line for line in lines)
    opened.press("ArrowUp")
    assert opened.value("document.querySelector('nav [aria-current]').title") == "LLVM IR"
    assert any(row[1].startswith("define ") for row in opened.value(ROWS))
    opened.press("ArrowDown")
    opened.press("ArrowDown")  # there is no more
    assert opened.value("document.querySelector('nav [aria-current]').title") == "assembly"
    assert opened.errors == []

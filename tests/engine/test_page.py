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
from tilewright.engine.hot_loop import hot_loop
from tilewright.engine.overview import Bar, Overview, duration
from tilewright.engine.page import Entry, page_text
from tilewright.targets.registry import find_target

CONV = "mb1ic16ih8oc16kh3ph1"


def data_of(page: str) -> Any:
    """What the script of a page is told."""
    result = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert result is not None
    return json.loads(result.group(1))


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
    labels = [entry["label"] for entry in data["entries"] if "label" in entry]
    assert labels[0] == "stage naive"
    assert {"pass hoist", "config", "cost", "LLVM IR", "assembly"} <= set(labels)
    assert any(label.startswith("tile(") for label in labels)  # a transform
    assert "matmul_fwd_d" in labels  # what the target gets
    texts = {
        entry["label"]: "\n".join(data["texts"][entry["after"]])
        for entry in data["entries"]
        if "label" in entry
    }
    assert "# predicted, not measured" in texts["config"]
    assert "instructions: " in texts["cost"]
    assert "define " in texts["LLVM IR"] and ".visible .entry" in texts["assembly"]
    both = tilewright("show", "matmul", *words, "--stage=naive", "--page", str(path))
    assert "kernel matmul_fwd_d(" in both.out and both.lines[-1].startswith(str(path))


def test_the_first_screen_says_why_it_is_so_fast() -> None:
    overview = Overview(
        ["50% of what <L2> allows", "3 spills"],
        [Bar("measured", 2e-3, "quiet"), Bar("predicted", None, "no model"), Bar("roof", 1e-3)],
        ["config  us", "a < b   7.0"],
        ["\tvmovups\t(%rax), %ymm0", "\tvmovups\t8(%rsp), %ymm0 # 32-byte Reload"],
    )
    page = page_text("t", [Entry("k", "stage naive", after="kernel")], overview)
    assert "<p>50% of what &lt;L2&gt; allows</p><p>3 spills</p>" in page
    assert "<b>measured</b><span>2 ms</span>" in page and "width: 100.0%" in page
    assert "<b>predicted</b><span>unknown</span>" in page and "width: 0.0%" in page
    assert "<b>roof</b><span>1 ms</span>" in page and "width: 50.0%" in page
    assert "a &lt; b   7.0" in page
    assert page.count('<span class="spill">') == 1
    # What shows it stands first.
    assert page.index('title="why this speed"') < page.index('title="stage naive"')
    assert len(data_of(page)["entries"]) == 2
    assert "why this speed" not in page_text("t", [Entry("k", "stage naive", after="kernel")])


def test_durations_have_a_unit() -> None:
    assert [duration(seconds) for seconds in (2.5, 3e-3, 4.56e-6, 7.891e-9)] == [
        *("2.5 s", "3 ms", "4.56 us", "7.89 ns"),
    ]


X86 = """
f:
	movq	%rdi, %rax
.LBB0_1:
	vaddps	%ymm0, %ymm1, %ymm1
.LBB0_2:
	vmovups	(%rax), %ymm2
	vfmadd231ps	%ymm2, %ymm3, %ymm4
	jl	.LBB0_2
.LBB0_3:
	vmovups	(%rax), %ymm2
	vmovups	(%rax), %ymm2
	vmovups	(%rax), %ymm2
	jne	.LBB0_3
	jmp	.LBB0_1
	retq
"""
PTX = "$L__BB0_1:\n\tfma.rn.f32 \t%f1, %f2, %f3, %f1;\n\t@%p1 bra \t$L__BB0_1;\n\tret;\n"


def test_the_hot_loop() -> None:
    """The innermost loop that multiplies most; of those that do not, the longest."""
    result = hot_loop(X86)
    assert result[0] == ".LBB0_2:" and result[-1] == "\tjl\t.LBB0_2" and len(result) == 4
    assert hot_loop(X86.replace("vfmadd231ps", "vmaxps"))[0] == ".LBB0_3:"
    assert hot_loop(PTX) == PTX.splitlines()[:3]
    assert hot_loop("f:\n\tretq\n") == hot_loop("") == []


def test_a_page_of_a_kernel_that_runs_has_its_times(tilewright: Command, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    ended = tilewright("show", "conv", "--target=x86:avx2", CONV, "--page", str(path))
    assert ended.code == 0, ended.err
    page = path.read_text(encoding="utf-8")
    overview = page[page.index('<section class="sheet"') : page.index("</section>")]
    for word in ("measured", "predicted", "roofline", "Candidates", "The hot loop", "vfmadd"):
        assert word in overview
    if find_target("x86:avx2").runs_here:
        assert " of what " in overview and "not measured" not in overview
    assert "Instruction: fma_f32x8 (8 products at a time)." in overview


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
    assert labels[:2] == ["why this speed", "stage naive"] and labels[-1] == "assembly"
    assert opened.value("document.querySelector('nav [aria-current]').title") == "why this speed"
    assert "of what" in opened.value("document.querySelector('.sheet').innerText")
    opened.click("button[title='stage naive']")
    assert opened.value("document.querySelector('.sheet').offsetHeight") == 0
    assert opened.value(ROWS)[0][1].startswith("kernel conv_fwd_d(")
    data = json.loads(opened.value("document.getElementById('data').textContent"))
    stages = [
        n for n, shown in enumerate(data["entries"]) if shown.get("label", "").startswith("stage ")
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


def test_places_have_anchors_and_nothing_is_off_the_edge(opened: Browser) -> None:
    opened.click(".sheet a[href='#assembly']")
    current = "document.querySelector('nav [aria-current]').title"
    assert opened.value(current) == "assembly"
    opened.click("button[title='LLVM IR']")
    assert opened.value("location.hash") == "#LLVM-IR"
    opened.value("history.back()")
    opened.value("new Promise(done => setTimeout(done, 100))")
    assert opened.value(current) == "assembly"
    edges = "[document.documentElement, document.querySelector('main')]"
    edges += ".every(e => e.scrollWidth <= e.clientWidth)"
    for number in range(opened.value("document.querySelectorAll('nav button').length")):
        opened.value(f"document.querySelectorAll('nav button')[{number}].click()")
        assert opened.value(edges), opened.value(current)
    assert opened.errors == []

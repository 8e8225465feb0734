"""The reference of the API is what the docstrings say, all of it, and its links lead somewhere."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

import api_reference
import tilewright as tw
from checkout import ROOT
from tilewright.lang.builtin import builtins

PAGES: dict[str, Callable[[], str]] = {
    "reference.md": api_reference.reference,
    "transforms.md": api_reference.transforms,
    "kernel-functions.md": api_reference.kernel_functions,
}
FUNCTIONS = [name for name in tw.__all__ if inspect.isfunction(getattr(tw, name))]


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_is_what_docstrings_say(page: str, request: pytest.FixtureRequest) -> None:
    path, result = ROOT / "docs" / page, PAGES[page]()
    if request.config.getoption("--accept"):
        path.write_text(result, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == result, "`pytest --accept` writes what is made now"


def test_every_name_is_there() -> None:
    documented = {*api_reference.NAMES, *api_reference.KERNEL_NAMES, *api_reference.TYPES}
    assert sorted(documented) == sorted(tw.__all__)
    assert sorted({*api_reference.KERNEL_NAMES, *api_reference.OF_PYTHON}) == sorted(builtins())
    assert {name for name, _ in api_reference._transforms()} >= set(tw.Schedule.__dict__) - set(
        dir(tw.Schedule)
    )


def headings(text: str) -> set[str]:
    return {
        api_reference.anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_headings(page: str) -> None:
    texts = {name: make() for name, make in PAGES.items()}
    links = re.findall(r"\]\(([\w.]*)#([\w-]+)\)", texts[page])
    assert links
    for file, heading in links:
        assert heading in headings(texts[file or page]), (file, heading)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_needs_to(name: str) -> None:
    text = inspect.getdoc(getattr(tw, name)) or ""
    assert re.search(r"\bRaises\b", text), "what it raises"
    if name in api_reference.SECTIONS["Ops"]:
        assert re.search(r"^    \S.* = ", text, re.MULTILINE), "its formula, in a block"
        assert "Source: " in text and "Arguments" in text
    if name in api_reference.SECTIONS["What follows an op"]:
        assert re.search(r"``.*result.*``|^    \S.* = ", text, re.MULTILINE), "its formula"


def test_docstrings_become_markdown() -> None:
    text = """Tiles ``x`` as `convolution` does; see `gone`.

        compute f(i in 10): ...
    ->  tile("f")
        for i_o in 3:

    - a `ParseError`
      here

    Behind.
        block
    """
    assert api_reference.markdown(inspect.cleandoc(text)) == (
        "Tiles `x` as [`convolution`](#convolution) does; see `gone`.\n\n"
        '```text\n    compute f(i in 10): ...\n->  tile("f")\n    for i_o in 3:\n```\n\n'
        "- a [`ParseError`](#errors)\n  here\n\nBehind.\n\n```text\nblock\n```"
    )

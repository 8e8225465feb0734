"""No test can pass without having looked; and the finder of those that can, on planted ones."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from checkout import TESTS
from looking import modules_of, unlooking

HELPERS = """
FEW = (1, 2)
NONE = ()

def looks(x):
    assert x

def may_look(x):
    for each in x:
        assert each

def run():
    return subprocess.run(["x"], check=True)

@pytest.fixture
def golden():
    def check(text):
        assert text
    return check
"""

UNLOOKING = {
    "nothing": "compute()",
    "what always holds": "assert True",
    "a loop over what is computed": "for x in f(): assert x",
    "a loop over nothing": "for x in NONE: assert x",
    "a loop over a part": "for x in [y for y in FEW if y > a]: assert x",
    "a loop of unknown length": "for x in range(a): assert x",
    "a loop with another that may be shorter": "for x, y in zip(FEW, f()): assert x == y",
    "a loop that may not begin": "while a: assert f()",
    "a loop that leaves before": "for x in FEW:\n    if x: continue\n    assert x",
    "one arm": "if a: assert f()",
    "one case": "match a:\n    case 1: assert f()",
    "an end before": "if a: return\nassert f()",
    "an error that is expected": "try:\n    f()\nexcept KeyError as e:\n    assert e",
    "a helper that may not": "may_look(a)",
    "a function that nothing calls": "def inner():\n    assert a\nf(inner)",
    "elements of nothing": "[looks(x) for x in f()]",
}
LOOKING = {
    "an assertion": "assert f()",
    "a refusal": "with pytest.raises(KeyError): f()",
    "a loop over a literal": "for x in [1, *f()]: assert x",
    "a loop over a name for one": "for x in FEW: assert x",
    "a loop over keys and values": "D = {1: 2}\nfor k, v in D.items(): assert v",
    "a loop of a number": "for n in range(1, 4): assert f(n)",
    "a loop with others of its length": "for x, y in zip(FEW, f(), strict=True): assert x == y",
    "what is not empty": "xs = f()\nassert xs\nfor x in xs: assert x",
    "both arms": "if a: assert f()\nelse: looks(a)",
    "all cases": "match a:\n    case 1: assert f()\n    case _: looks(a)",
    "a condition that fails": "if a != f(): pytest.fail('other')",
    "numpy": "np.testing.assert_array_equal(f(), a)",
    "a helper": "looks(a)",
    "a function inside": "def inner():\n    looks(a)\ninner()",
    "a fixture": "golden(a)",
    "a command that has to end well": "run()",
    "a skip": "if a: pytest.skip('no GPU')\nassert f()",
}


def found(folder: Path, body: str) -> list[str]:
    head = "from helpers import FEW, NONE, looks, may_look, run\n"
    text = f"def test_it(a, golden):\n{textwrap.indent(body, '    ')}\n"
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "conftest.py").write_text(HELPERS)
    (folder / "test_it.py").write_text(head + text)
    return list(unlooking(modules_of(folder)))


@pytest.mark.parametrize("body", UNLOOKING.values(), ids=UNLOOKING)
def test_what_can_pass_unlooked_is_found(body: str, tmp_path: Path) -> None:
    assert found(tmp_path, body) == ["test_it.py:2: test_it can pass unlooked"]


@pytest.mark.parametrize("body", LOOKING.values(), ids=LOOKING)
def test_what_looks_passes(body: str, tmp_path: Path) -> None:
    assert found(tmp_path, body) == []


def test_every_test_looks() -> None:
    modules = modules_of(TESTS)
    assert len(modules) > 200
    assert list(unlooking(modules)) == []

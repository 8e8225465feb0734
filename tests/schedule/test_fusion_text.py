"""Fusions as text: printed, parsed, and what is no fusion."""

from __future__ import annotations

import math

import pytest

from fusion_cases import add, chain, mirror, scale
from tilewright.errors import ParseError
from tilewright.ir.compare import difference
from tilewright.schedule.fusion.joined import joined
from tilewright.schedule.fusion.members import Fusion, Member
from tilewright.schedule.fusion.text import fusion_text, parse_fusion

WHOLE, PARTS = scale.over(1), scale.over(1, local=8)
FUSIONS = {
    "chain": chain((scale, "axt"), (add, "ty"), promote={"t": "any"}, constants={"a": -0.5}),
    "sizes": chain((scale, "axt"), (mirror, "ty"), size=128, local=64, trust=True, barriers=False),
    "members": Fusion(
        (
            Member(WHOLE, {"a": math.inf, "x": "x", "t": "for", "global_0": 9}, {"t": "local"}),
            Member(PARTS, {"a": 2.0, "x": "for", "t": "a b", "global_0": 16}, {"x": "any"}),
            Member(WHOLE, {"a": 2.0, "x": "a b", "t": "y", "global_0": 16}),
        ),
        name="three of them",
    ),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_text_parses_back(name: str) -> None:
    text = fusion_text(FUSIONS[name])
    again = parse_fusion(text)
    assert fusion_text(again) == text
    if name != "members":
        assert difference(joined(again).kernel, joined(FUSIONS[name]).kernel) is None


def test_a_fusion_in_text() -> None:
    text = fusion_text(FUSIONS["chain"])
    assert text.startswith("""\
fusion fused:
  scale(a = a, x = x, t = t, global_0 = n)
  add(t = t, y = y, global_0 = n)
  promote t any
  constant a = -0.5

kernel scale(
""")
    members = fusion_text(FUSIONS["members"])
    assert "  scale(a = inf, x = x, t = `for` local, global_0 = 9)\n" in members
    assert "  scale_2(a = 2.0, x = `for` any, t = `a b`, global_0 = 16)\n" in members


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel k():\n  pass\n", "'fusion' is missing here"),
        ("fusion f:\n  promote t any\n  fuse\n", "'fuse' is no line of a fusion"),
        ("fusion f:\n  scale(a = )\n", "a name or a number is missing here"),
        ("fusion f:\n  scale(a = 1)\n\nkernel scales(a: s64):\n  pass\n", "no kernel 'scale'"),
        ("fusion f:\n  scale(a = 1\n\nkernel scale(a: s64):\n  pass\n", "',' is missing here"),
        ("fusion f:\n  k()\n\nkernel k():\n  x[0] = 1\n", "line 5"),
    ],
)
def test_what_is_no_fusion(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_fusion(text)

"""Places: every statement that was parsed has one, and every refusal of it shows it."""

import numpy as np
import pytest

from tilewright.errors import InterpreterFault, ParseError, Span, VerificationError
from tilewright.interpret import run
from tilewright.ir import Block, parse_kernel, verify, walk_stmts

TEXT = """\
# A comment.
kernel scale(in a: f32[8], out b: f32[8]):
  for i in 8:
    x: f32 = a[i]
    if x < 0.0:
      b[i] = -x
    else:
      b[i] = x
"""


def test_lines_and_columns_count_from_1():
    span = Span("one\ntwo three\n", 8, 13)
    assert (span.line, span.column) == (2, 5)
    assert (Span("one", 0, 3).line, Span("one", 0, 3).column) == (1, 1)


def test_every_statement_has_file_line_and_column():
    kernel = parse_kernel(TEXT, file="scale.tw")
    spans = [s.span for s in walk_stmts(kernel.body) if not isinstance(s, Block)]
    assert [span.place for span in spans] == [
        "scale.tw:3:3",
        "scale.tw:4:5",
        "scale.tw:5:5",
        "scale.tw:6:7",
        "scale.tw:8:7",
    ]
    assert kernel.span.place == "scale.tw:2:1"


def test_parser_shows_file_line_and_column():
    with pytest.raises(ParseError) as caught:
        parse_kernel(TEXT.replace("-x", "-y"), file="scale.tw")
    assert str(caught.value) == (
        "unknown variable y\n"
        "  at scale.tw:6:15:\n"
        "        b[i] = -y\n"
        "                ^\n"
        "  cure: define the variable before this line"
    )


def test_tokens_without_meaning_are_shown_in_their_file():
    for text in (TEXT.replace("-x", "$"), TEXT.replace("    if", "   if")):
        with pytest.raises(ParseError, match=r"at scale\.tw:"):
            parse_kernel(text, file="scale.tw")


def test_a_text_of_no_file_has_lines():
    with pytest.raises(ParseError, match="at line 6, column 15:"):
        parse_kernel(TEXT.replace("-x", "-y"))


def test_verifier_shows_file_line_and_column():
    kernel = parse_kernel(TEXT.replace("out b", "in b"), file="scale.tw")
    with pytest.raises(VerificationError) as caught:
        verify(kernel)
    assert str(caught.value) == (
        "b is an `in` parameter, but is written\n"
        "  at scale.tw:6:7:\n"
        "        b[i] = -x\n"
        "        ^^^^^^^^^\n"
        "  where: `b[i] = -x` in `if x < 0.0:` in `for i in 8:` in kernel scale\n"
        "  cure: make the parameter `out` or `inout`"
    )


def test_what_is_wrong_with_parameters_is_shown_at_the_kernel():
    kernel = parse_kernel(TEXT.replace("f32[8], out", "f32[8] private, out"), file="scale.tw")
    with pytest.raises(VerificationError, match=r"at scale\.tw:2:1:\n  kernel scale\("):
        verify(kernel)


def test_interpreter_shows_file_line_and_column():
    kernel = parse_kernel(TEXT.replace("a[i]", "a[i + 1]"), file="scale.tw")
    arrays = {"a": np.ones(8, np.float32), "b": np.ones(8, np.float32)}
    with pytest.raises(InterpreterFault, match=r"at scale\.tw:4:5:"):
        run(kernel, arrays)

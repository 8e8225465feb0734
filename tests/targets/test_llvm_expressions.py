"""What an expression has twice is written once, and memory is read again after a store."""

from __future__ import annotations

from tilewright.ir.parser import parse_kernel
from tilewright.targets.registry import find_target


def _lines(statements: str, instruction: str) -> int:
    """The lines with ``instruction`` in the code for ``statements`` in a loop over ``i``."""
    body = "\n".join(f"    {line}" for line in statements.splitlines())
    kernel = parse_kernel(f"kernel k(in a: f32[8], inout b: f32[8]):\n  for i in 8:\n{body}\n")
    return find_target("x86:avx2").lower(kernel).text.count(instruction)


def test_a_shared_expression_that_reads_memory_is_written_once() -> None:
    statement = "b[i] = (1.0 / a[i]) * (1.0 / a[i]) + a[i]"
    assert (_lines(statement, "load float"), _lines(statement, "fdiv")) == (1, 1)


def test_a_statement_after_a_store_reads_memory_again() -> None:
    assert _lines("b[i] = 1.0 / b[i]\nb[i] = 1.0 / b[i] + b[i]", "fdiv") == 2


def test_a_condition_and_what_it_chooses_share_their_parts() -> None:
    statement = "b[i] = select(a[i] < 1.0, a[i] + 2.0, a[i] + 2.0 - b[i])"
    assert (_lines(statement, "load float"), _lines(statement, "fadd")) == (2, 1)

"""What work-items do to memory that they share, as one op of all of them."""

from __future__ import annotations

import pytest

from test_spmd import kernel, same_as_interpreted, shown
from tilewright.passes.spmd import joinable, split_at_barriers

# Elements of m, which a work-item has every sixteenth of: of whole rows, and of rows of seven.
ROWS = (
    "compute fill(r in 3, p in 2):",
    "  m[r, p * 16 + t] = f32(r) + 0.5",
    "barrier()",
    "compute twice(r in 3, p in 2):",
    "  x = m[r, p * 16 + t]",
    "  m[r, p * 16 + t] = x + x",
    "barrier()",
    "a[g * 16 + t] = m[0, t] + m[2, 31 - t]",
)
SLICES = (
    "item = 15 - (15 - t)",
    "compute fill(r in 3):",
    "  m[(r * 16 + item) // 7, (r * 16 + item) % 7 | r * 16 + item < 35] = f32(r * 16 + item)",
    "barrier()",
    "a[g * 16 + t] = m[t % 5, t % 7]",
)


@pytest.mark.parametrize(
    ("lines", "shape", "found"),
    [
        (
            ROWS,
            "3, 32",
            [
                "compute fill(row in 3, col in 32):",
                "  m[row, col] = f32(row) + 0.5",
                "compute twice(row in 3, col in 32):",
                "  x = m[row, col]",
                "  m[row, col] = x + x",
            ],
        ),
        (
            SLICES,
            "5, 7",
            [
                "compute fill(row in 5, col in 7):",
                "  m[row, col] = f32(col + row * 7)",
            ],
        ),
    ],
)
def test_each_ones_part_is_an_op_over_all(
    lines: tuple[str, ...], shape: str, found: list[str]
) -> None:
    result = kernel(*lines, shared=f"m: f32[{shape}]")
    split = split_at_barriers(result)
    assert [line for line in shown(split) if "alloc" not in line][: len(found)] == found
    same_as_interpreted(result)


@pytest.mark.parametrize(
    "lines",
    [
        # Not all come there.
        ("if n[t] < 3:", "  compute f(r in 1):", "    m[r, t] = 1.0"),
        # It is each one's own memory, or one of them has no part of it.
        ("alloc p: f32[4] private", "compute f(r in 4):", "  p[r] = 1.0", "m[0, t] = p[3]"),
        ("compute f(r in 1):", "  m[r, t // 2 * 2] = 1.0"),
        ("compute f(r in 1):", "  m[r, t * 2] = 1.0"),
        # It depends on what each has loaded.
        ("x = n[t]", "compute f(r in 1):", "  m[r, t] = f32(x)"),
    ],
)
def test_what_is_no_part_stays_with_each(lines: tuple[str, ...]) -> None:
    result = kernel(*lines, "barrier()", "a[g * 16 + t] = m[0, 15 - t]", shared="m: f32[1, 32]")
    assert joinable(result) == set()

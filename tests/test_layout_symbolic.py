"""What is proved of layouts whose sizes depend on scalar parameters."""

from __future__ import annotations

import pytest

from tilewright.ir import Kernel, parse_kernel
from tilewright.ir.buffer import Layout
from tilewright.ir.sizes import Sizes
from tilewright.layout.symbolic import (
    alignment_of,
    is_dense,
    is_distinct,
    run_along,
    same_layout,
)

SCALARS = "m: s64 in 1.., n: s64 in 1.. by 8, pad: s64 in 0.. by 4, one: s64 in 1..1"


def _kernel(layout: str, sizes: str = "m, n") -> Kernel:
    return parse_kernel(f"kernel k({SCALARS}, in a: f32[{sizes}] {layout}):\n  pass")


def _layout(layout: str, sizes: str = "m, n") -> Layout:
    return _kernel(layout, sizes).arrays[0].buffer.layout


KNOWN = Sizes(_kernel("").scalars)


@pytest.mark.parametrize(
    ("layout", "dense", "distinct", "run", "aligned"),
    [
        ("", True, True, "n", 8),
        ("{1:n:m 0:m:1}", True, True, "1", 1),
        ("{0:m:(n + pad) 1:n:1}", False, True, "n", 4),
        ("{0:m:(n * 4) 1:n:4}", False, True, "1", 32),
        ("{1:(n // 8):(m * 8) 0:m:8 1:8:1}", True, True, "8", 8),
        ("{0:m:pad 1:n:1}", False, False, "n", 4),
        ("{0:m:n 1:n:1 +pad}", True, True, "n", 4),
        ("{0:m:n 1:(n // 8):8 1:8:1}", True, True, "n", 8),
    ],
)
def test_what_is_known_of_a_layout(
    layout: str, dense: bool, distinct: bool, run: str, aligned: int
) -> None:
    found = _layout(layout)
    assert is_dense(found, KNOWN) is dense
    assert is_distinct(found, KNOWN) is distinct
    along = run_along(found, 1, KNOWN)
    assert KNOWN.equal(along, _kernel("", f"({run})").arrays[0].buffer.sizes[0])
    assert alignment_of(found, KNOWN, 1) == aligned


def test_layouts_are_compared() -> None:
    plain = _layout("")
    assert same_layout(plain, _layout("{0:m:(n * 1 + pad - pad) 1:n:1}"), KNOWN)
    assert same_layout(plain, _layout("{0:m:n 1:n:1 0:one:7}"), KNOWN)
    assert not same_layout(plain, _layout("{0:m:(n + pad) 1:n:1}"), KNOWN)
    assert not same_layout(plain, _layout("{0:m:n 1:n:1 +pad}"), KNOWN)
    assert same_layout(plain, _layout("{1:n:1 0:m:n}"), KNOWN)
    assert not same_layout(plain, _layout("{1:n:m 0:m:1}"), KNOWN)


def test_a_single_element_is_aligned_with_anything() -> None:
    assert alignment_of(_layout("{0:one:n}", "one"), KNOWN) == 0

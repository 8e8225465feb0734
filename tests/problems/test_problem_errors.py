"""Refusals of problems: each says what, where, why and the cure; the texts are golden."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.errors import ProblemError
from tilewright.problems import (
    DRIVERS,
    BinaryProblem,
    ConvProblem,
    EltwiseProblem,
    MatmulProblem,
    PoolProblem,
    Problem,
    ReduceProblem,
    parse,
)


@pytest.mark.parametrize("digits", ["9" * 5000, "٣"])
def test_numbers_that_python_would_choke_on(digits: str) -> None:
    for driver, text in (("conv", f"ic{digits}"), ("eltwise", f"2x{digits}")):
        with pytest.raises(ProblemError):
            parse(driver, text)
    assert parse("eltwise", f"2n{digits}*{digits}").count == 1


KEYS = "g, mb, ic, id, ih, iw, oc, od, oh, ow, kd, kh, kw, sd, sh, sw, pd, ph, pw, dd, dh, dw"

GOLDEN = {
    ("conv", "ic64ih56oc64kq3"): f"""\
unknown key 'kq'
  at position 12:
  ic64ih56oc64kq3
              ^^
  cure: choose one of {KEYS}""",
    ("conv", "ic64ic32"): """\
ic is given twice
  at position 4:
  ic64ic32
      ^^^^
  why: it already stands at position 0
  cure: keep one of the two""",
    ("conv", "ic64ihoc64"): """\
ih has no number
  at position 4:
  ic64ihoc64
      ^^
  cure: write a number right behind the key, such as ih1""",
    ("conv", "ic64ih-56"): """\
ih must not be negative
  at position 4:
  ic64ih-56
      ^^^
  why: sizes and padding count elements
  cure: write a number right behind the key, such as ih1""",
    ("conv", "ic99999999999999999999"): """\
ic is too large
  at position 0:
  ic99999999999999999999
  ^^^^^^^^^^^^^^^^^^^^^^
  why: offsets are 64-bit: a size is at most 2^60
  cure: split the problem""",
    ("conv", "ic64ih0oc64kh3"): """\
ih must be at least 1
  at position 4:
  ic64ih0oc64kh3
      ^^^
  why: a size or a stride of 0 leaves nothing to compute
  cure: give ih a positive number""",
    ("conv", "ic64ih5oc64oh0kh3"): """\
oh must be at least 1
  at position 11:
  ic64ih5oc64oh0kh3
             ^^^
  why: a size or a stride of 0 leaves nothing to compute
  cure: give oh a positive number, or leave it out to have it deduced""",
    ("conv", "ic64ih56kh3"): """\
oc is missing
  at position 0:
  ic64ih56kh3
  ^^^^^^^^^^^
  why: the number of channels cannot be deduced
  cure: add oc and a number, such as oc8""",
    ("conv", "g3ic64ih56oc63kh3"): """\
ic64 does not divide into g3 groups
  at position 2:
  g3ic64ih56oc63kh3
    ^^^^
  why: ic counts the channels of all groups together, the same number in each
  cure: write ic66, or a g that divides 64""",
    ("conv", "ic64oc64"): """\
there is no spatial dim
  at position 0:
  ic64oc64
  ^^^^^^^^
  why: a window needs an input and a kernel size
  cure: add ih and kh (2D, square), or iw and kw (1D), or id and kd (3D, cubic)""",
    ("conv", "ic64ih56oc64ph1"): """\
kh is missing
  at position 4:
  ic64ih56oc64ph1
      ^^^^
  why: ih gives dim h, which needs an input and a kernel size
  cure: add kh and a number, or leave out all of h""",
    ("conv", "ic64ih56oc64kh3ph1pw2"): """\
iw is missing
  at position 18:
  ic64ih56oc64kh3ph1pw2
                    ^^^
  why: pw gives dim w, which needs an input and a kernel size
  cure: add iw and a number, or leave out all of w""",
    ("conv", "ic64ih56oc64kh3ph1pw0"): """\
pw0 contradicts ph1
  at position 18:
  ic64ih56oc64kh3ph1pw0
                    ^^^
  why: iw and kw are not given, so all of w is taken from h
  cure: add iw and kw, or leave out pw""",
    ("conv", "ic4id5ih5oc4kd3kh3"): """\
a 3D problem needs both h and w or neither; w is missing
  at position 6:
  ic4id5ih5oc4kd3kh3
        ^^^
  cure: add iw and kw, or leave out all of h""",
    ("conv", "ic4ih3oc4kh5"): """\
the kernel does not fit: it spans 5 elements of h, and the padded input has 3
  at position 9:
  ic4ih3oc4kh5
           ^^^
  why: oh would be 0 or less
  cure: add padding, ph1 or more, or give oh""",
    ("conv", "ic4ih10oc4oh3kh1"): """\
oh3 leaves input unread at the end of h
  at position 10:
  ic4ih10oc4oh3kh1
            ^^^
  why: 10 outputs fit in ih10
  cure: write oh10, or leave oh out to have it deduced""",
    ("conv", 'ic4n"a'): """\
the name is not closed
  at position 4:
  ic4n"a
      ^^
  why: a name takes the rest of the descriptor
  cure: end the descriptor with n"name\"""",
    ("conv", 'ic4n"a"kh3'): """\
text follows the name
  at position 7:
  ic4n"a"kh3
         ^^^
  why: a name takes the rest of the descriptor
  cure: end the descriptor with n"name\"""",
    ("conv", "ic4n"): """\
the name is empty
  at position 3:
  ic4n
     ^
  cure: write n"name", or leave the n out""",
    ("conv", ""): """\
ic is missing
  at position 0:
  
  ^
  why: the number of channels cannot be deduced
  cure: add ic and a number, such as ic8""",
    ("pool", "ih4kh2"): """\
ic is missing
  at position 0:
  ih4kh2
  ^^^^^^
  why: the number of channels cannot be deduced
  cure: add ic and a number, such as ic8""",
    ("matmul", "3x4:5x6"): """\
src has K = 4 and the weights have K = 5
  at position 4:
  3x4:5x6
      ^
  why: the form is MxK:KxN
  cure: write 4 here, or change the last size of src""",
    ("matmul", "3x4"): """\
the shape of KxN is missing
  at position 3:
  3x4
     ^
  why: the form is MxK:KxN:MxN
  cure: write sizes between x, and tensors between :, such as 2x3:2x1""",
    ("matmul", "3:4"): """\
a matrix has at least two dims
  at position 0:
  3:4
  ^
  cure: write a vector as a matrix with one row or column, such as 1x8:8x4""",
    ("matmul", "2x3x4:3x4x5"): """\
batch dims 2 and 3 do not match
  at position 6:
  2x3x4:3x4x5
        ^
  why: batch dims are equal, or one of them is 1 and broadcast
  cure: write 2 or 1 here""",
    ("matmul", "2x3x4:4x5"): """\
the tensors have 3 and 2 dims
  at position 6:
  2x3x4:4x5
        ^^^
  cure: give each the same number of dims; a dim that is broadcast is 1""",
    ("matmul", "2x3:3x4:2x5"): """\
dst has 5 where src and weights give 4
  at position 10:
  2x3:3x4:2x5
            ^
  cure: leave dst out: it is deduced""",
    ("matmul", "2x3:3x4:2x4:1"): """\
there are too many tensors
  at position 12:
  2x3:3x4:2x4:1
              ^
  why: the form is MxK:KxN:MxN
  cure: remove the rest""",
    ("eltwise", "2xa"): """\
a size must be a whole number, not 'a'
  at position 2:
  2xa
    ^
  cure: write digits only, such as 1""",
    ("eltwise", "2xx3"): """\
a size is missing
  at position 2:
  2xx3
    ^
  cure: write sizes between x, and tensors between :, such as 2x3:2x1""",
    ("eltwise", "2x0"): """\
a size must be at least 1
  at position 2:
  2x0
    ^
  why: there is nothing to compute
  cure: leave the problem out""",
    ("reorder", f"2x{2**60 + 1}"): f"""\
a size is too large
  at position 2:
  2x{2**60 + 1}
    ^^^^^^^^^^^^^^^^^^^
  why: offsets are 64-bit: a size is at most 2^60
  cure: split the problem""",
    ("reorder", f"2x{2**60}"): f"""\
src has {2**61} elements
  where: 2x{2**60}
  why: offsets are 64-bit: a tensor holds at most 2^60 = {2**60}
  cure: split the problem""",
    ("reduce", "2x3:2x2"): """\
dst has 2 where src has 3
  at position 6:
  2x3:2x2
        ^
  why: a dim is kept whole or reduced to 1
  cure: write 3 or 1 here""",
    ("reduce", "2x3:2x3"): """\
no dim is reduced
  at position 4:
  2x3:2x3
      ^^^
  why: src and dst have the same shape
  cure: write 1 for a dim of dst, or use reorder for a copy""",
    ("binary", "2x3:4"): """\
src1 has 4 where src0 has 2
  at position 4:
  2x3:4
      ^
  why: dims are equal, or one of them is 1 and broadcast
  cure: write 2 or 1 here""",
    ("binary", "2:2x3"): """\
src1 has 2 dims and src0 only 1
  at position 2:
  2:2x3
    ^^^
  cure: give src0 as many dims; a dim that is broadcast is 1""",
    ("cnv", ""): f"""\
unknown driver 'cnv'
  at position 0:
  cnv
  ^^^
  cure: did you mean conv? choose one of {", ".join(DRIVERS)}""",
}


@pytest.mark.parametrize(("driver", "text"), GOLDEN)
def test_refusals(driver: str, text: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse(driver, text)
    assert str(caught.value) == GOLDEN[driver, text]


PLAIN = {
    "src_size": (5,),
    "kernel": (3,),
    "dst_size": (3,),
    "stride": (1,),
    "dilation": (0,),
    "pad_l": (0,),
}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ConvProblem(1, 1, 1, 1, **{**PLAIN, "kernel": (3, 3)}), "the same length"),
        (lambda: ConvProblem(1, 1, 1, 1, **{**PLAIN, "pad_l": (-1,)}), "must not be negative"),
        (lambda: ConvProblem(1, 0, 1, 1, **PLAIN), "a size of conv must be at least 1, not 0"),
        (lambda: ConvProblem(2, 1, 2, 3, **PLAIN), "oc3 does not divide into g2 groups"),
        (lambda: PoolProblem(1, 0, **PLAIN), "a size of pool must be at least 1, not 0"),
        (lambda: MatmulProblem((2,), (3,), 1, 1, 1), "do not match"),
        (lambda: MatmulProblem((), (3,), 1, 1, 1), "do not match"),
        (lambda: ReduceProblem((2,), (3,)), "does not reduce"),
        (lambda: ReduceProblem((2,), (2,)), "no dim is reduced"),
        (lambda: BinaryProblem((2,), (3,)), "do not broadcast"),
        (lambda: EltwiseProblem((0,)), "must be at least 1"),
        (lambda: EltwiseProblem(()), "src of eltwise has no dims"),
        (lambda: ConvProblem.parse("ic1ih1oc1kh1").with_mb(0), "the minibatch must be at least 1"),
        (lambda: MatmulProblem.parse("2x3:3x4").with_mb(3), "matmul has no minibatch"),
    ],
)
def test_refusals_of_problems_built_by_hand(build: Callable[[], Problem], message: str) -> None:
    with pytest.raises(ProblemError, match=message) as caught:
        build()
    assert caught.value.where is not None

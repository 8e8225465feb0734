"""Vectors wider than a register of which some lanes are off, whatever the rest of a mask says."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from sweeps import in_turns
from tilewright.dtypes import DType, bf16, boolean, dtype, f32, f64, s32, s64, u8
from tilewright.engine.program import Code
from tilewright.interpret import run
from tilewright.ir import Binary, Unary, binary, const, parse_kernel, unary, var, verify
from tilewright.problems import parse
from tilewright.targets.llvm.lane_values import both_hold, lane_values_of, none_holds, parts_on
from tilewright.targets.llvm.values import LaneValues, Value
from tilewright.targets.program import abi_of
from tilewright.targets.x86.target import X86Target, x86_target
from tilewright.testing.case import Case
from tilewright.testing.verify import Status
from tilewright.testing.verify import verify as verified

ROWS, COLUMNS = 6, 80
GUARD = 64  # elements beside the source that only what is wrong reads

# Of 9 lanes in the registers of 16, or 21 in those of 32: registers without a lane that can be on.
MASKS = [
    "1 <= o and 1 <= l and l < 3",
    "1 <= o and l // 8 == 0",
    "1 <= o and not (l < 8)",
    "o < 4 and (l < 2 or l < o)",
    "l < o",
    "1 <= o",
    "0 <= o",
]


def targets() -> list[X86Target]:
    levels = [x86_target(level) for level in ("sse42", "avx2", "avx512")]
    return [target for target in (x86_target(""), *levels) if target.runs_here]


def check(body: str, type_: DType) -> None:
    """What is compiled gives what the interpreter gives; behind the source lie NaNs."""
    kernel = parse_kernel(
        f"kernel k(in src: {type_}[{ROWS}, {COLUMNS}], inout dst: {type_}[{ROWS}, {COLUMNS}]):\n"
        + body
    )
    verify(kernel)
    size = ROWS * COLUMNS
    source = np.arange(1, size + 1).astype(type_.numpy)
    canary = np.full(size + 2 * GUARD, 0xFF, np.uint8).repeat(type_.bytes)
    around = canary.view(type_.numpy)
    around[GUARD:-GUARD] = source
    wanted = {"src": source, "dst": np.full(size, 7).astype(type_.numpy)}
    run(kernel, wanted)
    for target in targets():
        result = np.full(size, 7).astype(type_.numpy)
        module = target.lower(kernel)
        code = Code(target, target.assemble(module), abi_of(kernel, module))
        code.run([around[GUARD:-GUARD].ctypes.data, result.ctypes.data], 1)
        np.testing.assert_array_equal(result, wanted["dst"], err_msg=target.name)


@pytest.mark.parametrize(
    ("mask", "type_", "lanes"),
    in_turns(3, MASKS, [f32, f64, s32, s64, bf16, u8], [9, 16, 21]),
)
def test_lanes_that_are_off_are_zeros(mask: str, type_: DType, lanes: int) -> None:
    check(
        f"""  for o in {ROWS}:
    vector for l in {lanes}:
      dst[o, l] = src[o, l | {mask}]
""",
        type_,
    )


@pytest.mark.parametrize("lanes", [9, 16, 21])
@pytest.mark.parametrize("type_", [f32, f64], ids=str)
@pytest.mark.parametrize("mask", ["l < 3", "1 <= o", "l < o"])
@pytest.mark.parametrize("condition", ["o < l and l < 7", "not (l < 8 or l < o)"])
def test_conditions_around_masks_turn_lanes_off(
    condition: str, mask: str, type_: DType, lanes: int
) -> None:
    check(
        f"""  for o in {ROWS}:
    vector for l in {lanes}:
      if {condition}:
        dst[o, l] = src[o, l | {mask}]
      else:
        dst[o, l] = src[o, l + 3 | {mask}] + src[o, l]
""",
        type_,
    )


def test_names_of_what_differs_by_lane_are_known() -> None:
    check(
        f"""  for o in {ROWS}:
    vector for l in 16:
      i = l + 1
      first: bool = i < 6
      dst[o, l] = src[o, i | first and 1 <= o]
""",
        f32,
    )


def test_a_convolution_that_packs_padded_rows() -> None:
    """Rows of 9 elements, of which one or two are not padding."""
    case = Case(
        parse("conv", "ic33ih14iw2oc3ow3kh3kw3sh2sw3ph1pw1"),
        (dtype("tf32"),) * 3,
        direction=tw.problems.Direction.BWD_W,
        tags=("abcd", "abcd", "aBcd16b"),
    )
    verdict = verified(case.op(), lambda op: tw.compile(op, target="x86"))
    assert verdict.status is Status.PASSED, verdict


Lanes = tuple[bool | None, ...]


def value(known: Lanes | None, lanes: int = 3) -> Value:
    return Value(
        "%v", boolean, lanes, lane_values=None if known is None else LaneValues(lambda: known)
    )


def lanes_of(values: LaneValues | None) -> object:
    return None if values is None else values.lanes


def test_one_known_operand_decides() -> None:
    x, y = var("x", boolean), var("y", boolean)
    some, open_ = value((True, False, None)), value(None)
    either, both = binary("or", x, y), binary("and", x, y)
    assert isinstance(either, Binary) and isinstance(both, Binary)
    assert lanes_of(lane_values_of(both, (some, open_), 3)) == (None, False, None)
    assert lanes_of(lane_values_of(either, (open_, some), 3)) == (True, None, None)
    assert lane_values_of(both, (open_, value(None, 1)), 3) is None
    assert lanes_of(both_hold(some, value((True, True, False)))) == (True, False, False)
    assert both_hold(open_, open_) is None
    assert lanes_of(none_holds(some)) == (False, True, None)
    inverse = unary("not", x)
    assert isinstance(inverse, Unary)
    assert lanes_of(lane_values_of(inverse, (some,), 3)) == (False, True, None)


def test_numbers_are_known_where_both_are() -> None:
    lane = Value("%l", s64, 3, lane_values=LaneValues(lambda: (0, 1, 2)))
    less = var("x") < const(2)
    assert isinstance(less, Binary)
    assert lanes_of(lane_values_of(less, (lane, 2), 3)) == (True, True, False)
    assert lane_values_of(less, (lane, Value("%o", s64)), 3) is None


def test_parts_are_on_where_a_lane_may_be() -> None:
    mask = value((False, False, None, True, False, False, True, True), 8)
    assert list(parts_on(mask, 8, 8, 2)) == [False, True, False, True]
    assert list(parts_on(mask, 6, 8, 2)) == [False, True, False, False]
    assert list(parts_on(None, 3, 8, 2)) == [True, True, False, False]


@pytest.mark.parametrize("mask", ["2 <= k + i and k + i < 4", "k + i + o < 9", "k < 3"])
def test_masks_of_loads_from_registers(mask: str) -> None:
    """Where a mask is false, a load gives 0: it was left out where the memory was registers."""
    kernel = tw.parse_kernel(f"""
kernel masked(in x: s32[5, 8], out y: s32[2, 8]):
  parallel for p in 1:
    alloc s: s32[5, 8] private
    unrolled for k in 5:
      vector for o in 8:
        s[k, o] = x[k, o]
    for i in 2:
      vector for o in 8:
        y[i, o] = s32(0)
      unrolled for k in 5:
        vector for o in 8:
          y[i, o] = y[i, o] + s[k, o | {mask}]
""")
    x = np.arange(40, dtype=np.int32).reshape(5, 8)
    wanted = tw.compile(kernel, "interpreter")(x=x)
    np.testing.assert_array_equal(tw.compile(kernel, "x86")(x=x), wanted)

"""The verifier: right kernels pass, and each way of being wrong is found."""

from __future__ import annotations

import math
import shlex
from itertools import islice
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from interpreted import Interpreted, flat
from sweeps import in_turns
from tilewright.conversions import convert
from tilewright.dtypes import (
    DType,
    bf16,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    f64,
    s4,
    s8,
    s32,
    s64,
    tf32,
    u4,
    u8,
)
from tilewright.errors import ProblemError, ScheduleError, UnsupportedError
from tilewright.ops.op import Op
from tilewright.problems import DRIVERS, LIBRARY, Direction, Scale, Sum, Unary, ZeroPoint, parse
from tilewright.problems.policy import Policy
from tilewright.testing import data
from tilewright.testing.approximate import Accepted, Approximate, within
from tilewright.testing.case import Case
from tilewright.testing.expected import expected
from tilewright.testing.guarded import Guarded
from tilewright.testing.random_problems import random_cases
from tilewright.testing.second_opinion import SecondOpinion
from tilewright.testing.verify import Status, Verdict, summary, verdict_of, verify

CONV = Case(parse("conv", "mb1ic3ih4oc5kh3ph1"), tags=("nhwc", "any", "nChw8c"))


@pytest.mark.parametrize(("driver", "part"), in_turns(2, DRIVERS, range(2)))
def test_random_cases_pass(driver: str, part: int) -> None:
    cases = list(islice(random_cases(driver, 15, seed=7), part, None, 2))
    assert len(cases) > 6
    for case in cases:
        verdict = verify(case.op(), Interpreted)
        assert verdict.status is Status.PASSED, verdict.line(case.arguments())


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("types", [(f32, f32, f32), (bf16, bf16, bf16)])
def test_directions_pass(direction: Direction, types: Any) -> None:
    case = Case(parse("conv", "g2ic6ih5iw4oc4oh4kh2kw3sw2pw1"), types, direction=direction)
    assert verify(case.op(), Interpreted).status is Status.PASSED


def test_quantized_passes() -> None:
    case = Case(
        parse("conv", "mb1ic5ih4oc6kh3ph1"),
        (u8, s8, s8),
        direction=Direction.FWD_B,
        scales=(Scale("src", value=0.1), Scale("weights", Policy("per_oc")), Scale("dst", value=2)),
        zero_points=(ZeroPoint("src", value=3), ZeroPoint("dst", value=1)),
        post_ops=(Sum(0.5), Unary("relu")),
    )
    assert verify(case.op(), Interpreted).status is Status.PASSED


class Faulty(Interpreted):
    """Runs the kernel, then does ``harm`` to the result's flat memory."""

    def __init__(self, op: Op, harm: Any) -> None:
        super().__init__(op)
        self._harm = harm

    def __call__(self, *, out: Any, **arrays: Any) -> Any:
        super().__call__(out=out, **arrays)
        result = self.op.arguments[-1]
        self._harm(flat(result, out), arrays)
        return out


def _spoil(offset: int, value: float) -> Any:
    def harm(memory: Any, arrays: Any) -> None:
        # A view that may reach beyond the array, as a kernel may.
        whole = as_strided(memory, (len(memory) + 1,), memory.strides)
        whole[offset] = value

    return harm


def _before(memory: Any, arrays: Any) -> None:
    as_strided(memory[:1], (2,), (-memory.itemsize,))[1] = 1.0


def _change_input(memory: Any, arrays: Any) -> None:
    arrays["src"][0, 1, 2, 3] += 1


def _add(error: float) -> Any:
    def harm(memory: Any, arrays: Any) -> None:
        memory[9] += error

    return harm


def _not_quite(memory: Any, arrays: Any) -> None:
    """Right for integers, not for reals."""
    memory[...] = np.round(memory * 1024) / 1024


# Of CONV's result, (1, 5, 4, 4) in nChw8c: 128 elements, of which those from 5 to 7 are padding.
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_spoil(128, 0.0), "4 bytes were written outside of dst, 1 after it"),
        (_before, "written outside of dst, 1 before it"),
        (_spoil(5, 1.0), "the padding of dst is not zero at [0, 5, 0, 0]"),
        (_spoil(127, np.nan), "the padding of dst is not zero at [0, 7, 3, 3]"),
        (_change_input, "the input src was changed"),
        (_add(1.0), "dst[0, 1, 0, 1]"),
        (_add(2.0**-15), "1 wrong, max error 3.05e-05"),
        (_spoil(0, np.nan), "dst[0, 0, 0, 0] is nan"),
        (_not_quite, "on reals: dst["),
    ],
)
def test_faults_are_found(harm: Any, reason: str) -> None:
    verdict = verify(CONV.op(), lambda op: Faulty(op, harm))
    assert verdict.status is Status.FAILED
    assert reason in verdict.reason
    if "dst[" in reason:
        assert verdict.mismatch is not None
        assert verdict.mismatch.argument == "dst"
        assert verdict.mismatch.wrong >= 1


def test_lost_infinities_are_found() -> None:
    def lose(memory: Any, arrays: Any) -> None:
        memory[...] = np.nan_to_num(memory, posinf=3e38, neginf=-3e38)

    op = Case(parse("reduce", "7x9:1x9").with_alg("max")).op()
    assert verify(op, Interpreted).status is Status.PASSED
    verdict = verify(op, lambda op: Faulty(op, lose))
    assert verdict.status is Status.FAILED and "on infinities and NaN: dst[" in verdict.reason


def test_a_gap_between_strides_is_not_for_writing() -> None:
    op = CONV.op().with_layouts(dst=(100, 20, 5, 1))  # rows of 4, 5 apart
    assert verify(op, Interpreted).status is Status.PASSED
    verdict = verify(op, lambda op: Faulty(op, _spoil(4, 0.0)))
    assert "a gap between the elements of dst was written, at offset 4" in verdict.reason


def test_elements_that_strides_make_one() -> None:
    case = Case(parse("binary", "4x8:4x8"))
    op = case.op().with_layouts(src1=(0, 1))
    assert verify(op, Interpreted).status is Status.PASSED


def test_errors_of_kernels() -> None:
    def refuse(error: Exception) -> Any:
        def compile(op: Op) -> Any:
            raise error

        return compile

    skipped = verify(CONV.op(), refuse(UnsupportedError("no such\n  thing", why="it is new")))
    assert skipped == Verdict(Status.SKIPPED, "no such thing: it is new")
    failed = verify(CONV.op(), refuse(ScheduleError("no tile")))
    assert failed == Verdict(Status.FAILED, "ScheduleError: no tile")
    crashed = verify(CONV.op(), refuse(KeyError("x")))
    assert crashed == Verdict(Status.FAILED, "crashed: KeyError: 'x'")


def test_what_is_too_large_is_skipped() -> None:
    verdict = verify(Case(parse("eltwise", "65536x65536")).op(), Interpreted)
    assert verdict.status is Status.SKIPPED
    assert "too many to verify" in verdict.reason


def test_lines() -> None:
    assert Verdict(Status.PASSED).line("conv ic1") == "PASSED conv ic1"
    assert Verdict(Status.SKIPPED, "why").line("conv ic1") == "SKIPPED (why) conv ic1"
    assert summary({Status.PASSED: 3, Status.SKIPPED: 1}) == "3 passed, 0 failed, 1 skipped"


def test_arrays_have_the_least_alignment() -> None:
    assert len(CONV.op().arguments) == 3
    for argument in CONV.op().arguments:
        memory = Guarded(argument, None)
        assert memory.flat.ctypes.data % argument.dtype.bytes == 0
        assert memory.flat.ctypes.data % 64 == argument.dtype.bytes
        assert memory.fault() is None or argument.name == "dst"  # dst's padding is not written yet


def test_random_cases_depend_on_the_seed_alone() -> None:
    first = [case.arguments() for case in random_cases("conv", 20, seed=1)]
    assert first == [case.arguments() for case in random_cases("conv", 20, seed=1)]
    assert first != [case.arguments() for case in random_cases("conv", 20, seed=2)]
    assert [case.arguments() for case in random_cases("conv", 5, seed=1)] == first[:5]
    with pytest.raises(ProblemError, match="unknown driver 'cnv'"):
        next(random_cases("cnv", 1, 0))


def test_random_cases_have_all_features() -> None:
    cases = list(random_cases("conv", 300, seed=0))
    problems: list[Any] = [case.problem for case in cases]
    assert {case.direction for case in cases} == set(Direction)
    assert {p.ndims for p in problems} == {1, 2, 3}
    assert any(p.g > 1 for p in problems) and any(p.is_depthwise for p in problems)
    assert any(max(p.dilation) for p in problems) and any(max(p.stride) > 1 for p in problems)
    assert any(p.pad_l != p.pad_r for p in problems)
    assert any(p.ic % 2 for p in problems)
    assert any(case.post_ops for case in cases) and any(case.scales for case in cases)
    assert any(case.bias for case in cases) and any(case.fpmath for case in cases)
    assert any("16" in tag for case in cases for tag in case.tags)


TYPES = {f64, f32, tf32, f16, bf16, f8_e4m3, f8_e5m2, s32, s8, u8}


@pytest.mark.parametrize("driver", DRIVERS)
def test_random_cases_draw_every_type(driver: str) -> None:
    wanted = [TYPES | ({s4, u4} if role == "weights" else set()) for role in DRIVERS[driver].roles]
    if driver in LIBRARY:
        record = LIBRARY[driver]
        wanted = [
            {s32, s64} if role in record.indices else set(record.data_types)
            for role in DRIVERS[driver].roles
        ]
    drawn: list[set[DType]] = [set() for _ in wanted]
    for number, case in enumerate(random_cases(driver, 300, seed=0)):
        for types, type_ in zip(drawn, case.types, strict=True):
            types.add(type_)
        # A few more, among which would be others.
        if drawn == wanted and number > 50:
            break
    assert drawn == wanted


@pytest.mark.parametrize("driver", ["conv", "matmul"])
def test_random_cases_mix_types(driver: str) -> None:
    cases = list(random_cases(driver, 300, seed=0))
    if driver == "conv":
        for direction in Direction:
            types = [case.types for case in cases if case.direction is direction]
            assert sum(len(set(type_)) > 1 for type_ in types) > len(types) / 4, direction
            assert any(len(set(type_)) == 3 for type_ in types), direction
    points = {point.tensor for case in cases for point in case.zero_points}
    scales = {scale.tensor for case in cases for scale in case.scales}
    assert points == scales == {"src", "weights", "dst"}


@pytest.mark.parametrize("dtype", sorted(TYPES, key=repr))
def test_summands_round_heavily(dtype: DType) -> None:
    values = data.summands((64, 400), dtype, seed=3).astype(np.float64)
    np.testing.assert_array_equal(values, values.astype(dtype.numpy).astype(np.float64))
    assert values.min() < 0 or dtype.kind == "uint"
    if dtype.is_integer:
        assert values.max() - values.min() > 200
        return
    assert np.abs(values).min() >= 2.0**-8 and np.abs(values).max() <= 1
    if dtype is f64:
        assert np.any(values.astype(np.float32) != values)
    # Added up in the type itself, nearly every sum is off.
    total = np.zeros(64)
    for column in values.T:
        total = convert(total + column, f64, dtype).astype(np.float64)
    exact = np.array([math.fsum(row) for row in values])
    assert np.mean(total != exact) > 0.9


def test_arguments_ask_for_the_same_again() -> None:
    words = shlex.split(
        Case(
            parse("conv", 'ic3ih4oc5kh3n"a b"'),
            (u8, s8, s32),
            ("nhwc", "any", "any"),
            Direction.FWD_B,
            bias=f32,
            post_ops=(Unary("relu"),),
            fpmath=tf32,
        ).arguments()
    )
    assert words == [
        "conv",
        "--dir=FWD_B",
        "--dt=u8:s8:s32",
        "--stag=nhwc",
        "--bia-dt=f32",
        "--attr-post-ops=relu",
        "--attr-fpmath=tf32",
        'ic3ih4oc5kh3n"a b"',
    ]


def _accepted(result: Approximate, dst: Any) -> tuple[float, float, float]:
    accepted = Accepted.stored(result, dst)
    return float(accepted.want), float(accepted.low), float(accepted.high)


def test_exact_arithmetic_has_no_tolerance() -> None:
    three, half = Approximate.exact(3.0, f32), Approximate.constant(0.5, f32)
    value = three.add(half).multiply(half).unary(Unary("relu")).binary("max", half)
    assert _accepted(value, f32) == (1.75, 1.75, 1.75)
    assert _accepted(value, s32) == (2.0, 2.0, 2.0)
    assert _accepted(Approximate.exact(300.0, f32), u8) == (255.0, 255.0, 255.0)
    # 257 lies between two bf16, 256 and 258: to nearest even, and nothing else.
    assert _accepted(Approximate.exact(257.0, f32), bf16) == (256.0, 256.0, 256.0)


def test_results_of_tf32_are_rounded_to_it() -> None:
    assert _accepted(Approximate.exact(8235.0, f32), tf32) == (8232.0, 8232.0, 8232.0)


@pytest.mark.parametrize("types", [(f32, tf32), (f64, tf32), (tf32, f32), (tf32, bf16)], ids=str)
def test_a_reorder_from_or_to_tf32_is_rounded_once(types: tuple[DType, ...]) -> None:
    op = Case(parse("reorder", "17x40"), types).op()
    assert verify(op, Interpreted).status is Status.PASSED


def test_tf32_is_rounded_to_its_least_number() -> None:
    step = 2.0**-136  # of the numbers that are smaller than normal
    tie = Approximate(np.float64(2.5 * step), np.float64(2.0**-149), f32)
    want, low, high = _accepted(tie, tf32)
    assert want == 2 * step
    assert low <= 2 * step < 3 * step <= high < 3.01 * step


def test_inexact_arithmetic_has_a_small_tolerance() -> None:
    third = Approximate.exact(1.0, f32).divide(Approximate.exact(3.0, f32))
    want, low, high = _accepted(third, f32)
    assert low < 1 / 3 < high
    assert want == np.float32(1 / 3)
    assert high - low < 1e-6
    # A tie may go either way once the number is inexact.
    tenth = Approximate.constant(0.1, f32)
    assert _accepted(tenth.multiply(Approximate.exact(25.0, f32)), s8) == (2.0, 2.0, 3.0)


def test_a_comparison_of_what_is_close_may_go_either_way() -> None:
    third = Approximate.exact(1.0, f32).divide(Approximate.exact(3.0, f32))
    assert _accepted(third.binary("lt", third), s32) == (0.0, -1.0, 1.0)
    assert _accepted(third.binary("lt", Approximate.exact(0.5, f32)), f32) == (1.0, 1.0, 1.0)


def test_what_is_near_the_edge_of_a_domain_is_undecided() -> None:
    """Of seed 30419: gelu_erf of a large negative sum is -0 in f32, whose logarithm is no NaN."""
    sums = Approximate.exact([-20.0, 20.0], f32)
    logs = sums.unary(Unary("gelu_erf")).unary(Unary("log2"))
    accepted = Accepted.stored(logs.subtract(Approximate.exact(3.0, f32)), f8_e5m2)
    for result in (-math.inf, math.nan, -26.0):
        near, far = within(np.array([result, result]), accepted.low, accepted.high)
        assert near and not far
    nothing = logs.multiply(Approximate.exact(0.0, f32))
    assert math.isinf(nothing.error[0]) and nothing.error[1] < 1e-6
    # What is negative for sure has no logarithm.
    below = Approximate.exact([-2.0], f32).unary(Unary("log2"))
    assert np.isnan(Accepted.stored(below, f32).want).all()
    assert not within(np.array([-math.inf]), below.value, below.value).any()


@pytest.mark.parametrize(
    "function, inside, outside",
    [
        (Unary("reciprocal"), 0.5, 3.0),
        (Unary("pow", 1.0, -2.0), 0.5, 3.0),
        (Unary("tan"), 0.5 * math.pi - 0.5, 0.4),
        (Unary("tan"), -1.5 * math.pi + 0.5, math.pi),
    ],
)
def test_numbers_around_a_pole_are_undecided(
    function: Unary, inside: float, outside: float
) -> None:
    """Of seed 41001: the reciprocal of the tangent of nearly a multiple of pi has either sign,
    and results of both ends of the range are finite."""
    result = Approximate(np.array([inside, outside]), np.array([1.0, 1.0]), f32).unary(function)
    assert np.isinf(result.error).tolist() == [True, False]
    assert not np.isinf(Approximate.exact([inside, outside], f32).unary(function).error).any()


def test_more_than_half_a_wave_is_undecided() -> None:
    """Both ends may have the result of the middle, where 1 and -1 are between them."""
    waves = Approximate(np.array([0.5, 0.5]), np.array([2 * math.pi, 1.0]), f32)
    for function in ("sin", "cos"):
        assert np.isinf(waves.unary(Unary(function)).error).tolist() == [True, False]


def test_what_does_not_fit_on_the_way_is_undecided() -> None:
    """Half of sinh(90) fits in f32, sinh(90) does not."""
    sines = Approximate.exact([90.0, 80.0], f32).unary(Unary("sinh", scale=0.5))
    accepted = Accepted.stored(sines, f32)
    over, sure = within(np.array([math.inf, math.inf]), accepted.low, accepted.high)
    assert over and not sure
    # A result that does not fit is infinite.
    square = Approximate.exact([1e30], f32).multiply(Approximate.exact([1e30], f32))
    assert Accepted.stored(square, f32).low > np.finfo(np.float32).max


def test_a_zero_point_adds_to_the_bound() -> None:
    """Its products are summed apart: where it nearly cancels the source, rounding errors stay."""
    zero_points = (ZeroPoint("src", value=200),)
    op = Case(parse("matmul", "1x2:2x1"), (u8, f32, f32), zero_points=zero_points).op()
    weights = np.array([[0.7], [0.3]], np.float32)
    arrays = {"src": np.array([[201, 199]], np.uint8), "weights": weights}
    accepted = expected(op, arrays, exact=False)["dst"]
    assert accepted.high - accepted.want > 200 * weights.sum() * 2.0**-24


def test_an_error_is_one_line() -> None:
    """Why it is one may be a text of another package's, of many lines."""
    verdict = verdict_of(
        lambda: _raise(UnsupportedError("not\nthere", why="said\n\n==> elsewhere"))
    )
    assert (verdict.status, verdict.reason) == (Status.SKIPPED, "not there: said ==> elsewhere")


def _raise(error: Exception) -> Any:
    raise error


def test_a_second_opinion_of_an_infinity_is_no_number() -> None:
    exact = np.array([np.inf, -np.inf, np.nan, 1.0], np.float32)
    opinion = SecondOpinion("numpy", lambda _: {"y": exact})
    assert opinion.fault({}, {"y": exact + np.float32(1e-6)}) is None
    for place, value in ((0, 5.0), (1, np.inf), (2, 0.0), (3, np.inf)):
        result = exact.copy()
        result[place] = value
        fault = opinion.fault({}, {"y": result})
        assert fault is not None and f"({place},)" in fault

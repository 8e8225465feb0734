"""Problems: descriptors parse, print back, and refuse nonsense with the place and the cure."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ProblemError, Span
from tilewright.problems import (
    BinaryProblem,
    ConvProblem,
    EltwiseProblem,
    MatmulProblem,
    PoolProblem,
    Problem,
    ReduceProblem,
    ReorderProblem,
    parse,
)
from tilewright.problems.window import complete, window_fields

# --- parsing and deduction ---


def spatial(problem: ConvProblem | PoolProblem) -> dict[str, tuple[int, ...]]:
    return {
        "dst": problem.dst_size,
        "pad_l": problem.pad_l,
        "pad_r": problem.pad_r,
        "stride": problem.stride,
    }


def test_conv_with_everything_said() -> None:
    problem = ConvProblem.parse(
        'g2mb3_ic4id5ih6iw7_oc8od3oh6ow4_kd3kh2kw1_sd1sh1sw2_pd0ph1pw0_dd0dh1dw0_n"net:layer*3"'
    )
    assert problem == ConvProblem(
        g=2,
        mb=3,
        ic=4,
        oc=8,
        src_size=(5, 6, 7),
        kernel=(3, 2, 1),
        dst_size=(3, 6, 4),
        stride=(1, 1, 2),
        dilation=(0, 1, 0),
        pad_l=(0, 1, 0),
        name="net:layer*3",
    )
    assert problem.pad_r == (0, 1, 0)
    assert problem.src_shape == (3, 4, 5, 6, 7)
    assert problem.weights_shape == (2, 4, 2, 3, 2, 1)
    assert problem.dst_shape == (3, 8, 3, 6, 4)
    assert problem.spatial_names == ("d", "h", "w")
    assert (problem.ndims, problem.count, problem.is_depthwise) == (3, 3, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # h gives w; unsaid padding is 0, the output follows.
        ("ic1ih5oc1kh3", {"dst": (3, 3), "pad_l": (0, 0), "pad_r": (0, 0)}),
        ("ic1ih5oc1kh3ph1sh2", {"dst": (3, 3), "pad_l": (1, 1), "stride": (2, 2)}),
        # d gives h and w; w alone is one dim.
        ("ic1id5oc1kd3pd1", {"dst": (5, 5, 5), "pad_l": (1, 1, 1)}),
        ("ic1iw5oc1kw3", {"dst": (3,), "pad_l": (0,)}),
        # h and w said apart: nothing passes from one to the other.
        ("ic1ih5iw6oc1kh3kw3ph1", {"dst": (5, 4), "pad_l": (1, 0)}),
        # The output given, the padding follows, more behind than in front.
        ("ic1ih8oc1oh8kh2", {"pad_l": (0, 0), "pad_r": (1, 1)}),
        ("ic1ih56oc1oh28kh5sh2", {"pad_l": (1, 1), "pad_r": (2, 2)}),
        ("ic1ih3oc1oh1kh5", {"pad_l": (1, 1), "pad_r": (1, 1)}),
        # Input left over by the stride: negative right padding.
        ("ic1ih56oc1oh28kh1sh2", {"pad_l": (0, 0), "pad_r": (-1, -1)}),
        ("ic1ih12oc1oh2kh1sh8", {"pad_l": (0, 0), "pad_r": (-3, -3)}),
        # Both given: the right padding makes up the difference.
        ("ic1ih5oc1oh9kh3ph1", {"pad_l": (1, 1), "pad_r": (5, 5)}),
    ],
)
def test_deduction(text: str, expected: dict[str, tuple[int, ...]]) -> None:
    result = spatial(ConvProblem.parse(text))
    assert {key: result[key] for key in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        'mb1ic3ih8oc4kh3n"a:b"',
        "mb1_ic3_ih8_oc4_kh3_na:b",
        'kh3oc4ih8ic3mb1g1n"a:b"',
        ' mb1ic3ih8iw8oc4oh6ow6kh3kw3sh1sw1ph0pw0dh0dw0_n"a:b" ',
        'mb1ic3ih8oc4kh3pw0sw1dw0sd1pd0n"a:b"',
    ],
)
def test_spellings_of_one_problem(text: str) -> None:
    assert ConvProblem.parse(text).descriptor() == 'mb1ic3ih8oc4kh3n"a:b"'


def test_minibatch_is_2_unless_given_and_can_be_set() -> None:
    problem = ConvProblem.parse("ic3ih8oc4kh3")
    assert problem.mb == 2
    assert problem.with_mb(7).src_shape == (7, 3, 8, 8)
    assert parse("pool", "ic3ih8kh2sh2").with_mb(5).shapes["dst"] == (5, 3, 4, 4)
    assert parse("reduce", "2x3:1x3").with_mb(5) == ReduceProblem((5, 3), (1, 3))
    assert parse("reduce", "2x3:2x1").with_mb(5) == ReduceProblem((5, 3), (5, 1))
    assert parse("binary", "2x3:1x3").with_mb(5) == BinaryProblem((5, 3), (1, 3))
    assert parse("eltwise", "2x3").with_mb(5) == EltwiseProblem((5, 3))
    assert parse("reorder", "2x3").with_mb(5) == ReorderProblem((5, 3))


def test_problems_from_sizes() -> None:
    assert ConvProblem.from_sizes(ic=64, ih=56, oc=64, kh=3, ph=1) == ConvProblem.parse(
        "ic64ih56oc64kh3ph1"
    )
    assert ConvProblem.from_sizes("net:a", ic=3, iw=9, oc=2, kw=3).name == "net:a"
    assert PoolProblem.from_sizes(ic=64, ih=56, kh=3) == PoolProblem.parse("ic64ih56kh3")
    with pytest.raises(ProblemError, match="unknown size 'in'"):
        ConvProblem.from_sizes(**{"in": 3})
    with pytest.raises(ProblemError, match=r"ic must be a whole number, not 3\.5"):
        ConvProblem.from_sizes(ic=3.5)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="the kernel does not fit") as caught:
        ConvProblem.from_sizes(ic=3, ih=2, oc=3, kh=5)
    assert caught.value.where == Span("ic3ih2oc3kh5", 9, 12)


def test_other_drivers() -> None:
    pool = parse("pool", 'mb1ic64ih112kh3sh2ph1n"pool1"')
    assert isinstance(pool, PoolProblem)
    assert (pool.src_shape, pool.dst_shape) == ((1, 64, 112, 112), (1, 64, 56, 56))
    assert (pool.has_empty_windows, pool.spatial_names) == (False, ("h", "w"))
    assert PoolProblem.parse("ic1ih3kh1ph2").has_empty_windows

    matmul = parse("matmul", '2x1x4x5:1x3x5x6_n"x"')
    assert matmul == MatmulProblem((2, 1), (1, 3), m=4, k=5, n=6, name="x")
    assert matmul.shapes["dst"] == (2, 3, 4, 6)
    assert MatmulProblem.parse("2x3:3x4:2x4") == MatmulProblem.parse("2x3:3x4")

    reduce = parse("reduce", "2x3x4:2x1x4")
    assert isinstance(reduce, ReduceProblem)
    assert reduce.reduced_dims == (1,)

    binary = parse("binary", "8x7x6:1x7")
    assert binary == BinaryProblem((8, 7, 6), (1, 7, 1))
    assert binary.descriptor() == "8x7x6:1x7"
    assert parse("binary", "8x1:8x7").shapes["dst"] == (8, 7)
    assert parse("eltwise", "2x3x4") == EltwiseProblem((2, 3, 4))
    assert parse("reorder", "2x3x4nx") == ReorderProblem((2, 3, 4), "x")


def test_work() -> None:
    conv = ConvProblem.parse("mb1ic3ih224oc64kh7sh2ph3")
    assert conv.nominal_flops == 2 * 118_013_952
    assert conv.valid_flops < conv.nominal_flops
    assert MatmulProblem.parse("5x2x3:1x3x4").valid_flops == 2 * 5 * 2 * 3 * 4
    assert parse("pool", "mb1ic3ih4kh2sh2").valid_flops == 3 * 16
    assert parse("reduce", "2x3:1x3").valid_flops == 6
    assert parse("binary", "2x3:1x3").valid_flops == 6
    assert parse("eltwise", "2x3").valid_flops == 6
    assert parse("reorder", "2x3").valid_flops == 0


# --- properties ---


@st.composite
def conv_problems(draw: st.DrawFn) -> ConvProblem:
    """Any small convolution that is well-formed: 1D to 3D, square or not."""

    def window() -> object:
        size, kernel = draw(st.integers(1, 9)), draw(st.integers(1, 6))
        stride, dilation = draw(st.integers(1, 4)), draw(st.integers(0, 3))
        out = draw(st.none() | st.integers(1, 7))
        pad = draw(st.none() | st.integers(0, 7))
        return complete(size, kernel, stride, dilation, out, pad)

    ndims = draw(st.integers(1, 3))
    result = [window() for _ in range(1 if draw(st.booleans()) else ndims)]
    windows = (result * ndims)[:ndims]
    if any(w is None for w in windows):
        windows = [complete(5, 3, 1, 0, None, 1)] * ndims
    g = draw(st.integers(1, 4))
    return ConvProblem(
        g=g,
        mb=draw(st.integers(1, 3)),
        ic=g * draw(st.integers(1, 9)),
        oc=g * draw(st.integers(1, 9)),
        **window_fields([w for w in windows if w is not None]),
        name=draw(st.sampled_from(["", "a", "net:layer*3", "_x y"])),
    )


@given(conv_problems())
def test_conv_descriptor_parses_back(problem: ConvProblem) -> None:
    assert ConvProblem.parse(problem.descriptor()) == problem


@given(conv_problems())
def test_pool_descriptor_parses_back(conv: ConvProblem) -> None:
    pool = PoolProblem(conv.mb, conv.ic, **window_fields(conv.windows), name=conv.name)
    assert PoolProblem.parse(pool.descriptor()) == pool


@given(conv_problems())
def test_valid_flops_against_counting(problem: ConvProblem) -> None:
    taps = 0
    for o in itertools.product(*map(range, problem.dst_size)):
        for k in itertools.product(*map(range, problem.kernel)):
            place = (
                o[d] * problem.stride[d] - problem.pad_l[d] + k[d] * (problem.dilation[d] + 1)
                for d in range(problem.ndims)
            )
            taps += all(0 <= i < size for i, size in zip(place, problem.src_size, strict=True))
    per_group = problem.ic // problem.g
    assert problem.valid_flops == 2 * problem.mb * problem.oc * per_group * taps
    assert problem.valid_flops <= problem.nominal_flops


@given(conv_problems())
def test_empty_windows_against_counting(conv: ConvProblem) -> None:
    def reads_nothing(d: int, o: int) -> bool:
        step = conv.dilation[d] + 1
        first = o * conv.stride[d] - conv.pad_l[d]
        return not any(0 <= first + k * step < conv.src_size[d] for k in range(conv.kernel[d]))

    pool = PoolProblem(conv.mb, conv.ic, **window_fields(conv.windows))
    empty = (reads_nothing(d, o) for d in range(conv.ndims) for o in range(conv.dst_size[d]))
    assert pool.has_empty_windows == any(empty)


dims = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple)
names = st.sampled_from(["", "a", "net:layer*3"])


@st.composite
def shape_problems(draw: st.DrawFn) -> Problem:
    """Any small problem of the drivers that take shapes."""
    shape, name = draw(dims), draw(names)
    ones = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    other = tuple(1 if one else size for size, one in zip(shape, ones, strict=True))
    kind = draw(st.sampled_from(["eltwise", "reorder", "binary", "reduce", "matmul"]))
    match kind:
        case "eltwise":
            return EltwiseProblem(shape, name)
        case "reorder":
            return ReorderProblem(shape, name)
        case "reduce" if other != shape:
            return ReduceProblem(shape, other, name)
        case "matmul":
            m, k, n = (draw(st.integers(1, 9)) for _ in range(3))
            return MatmulProblem(shape, other, m, k, n, name)
        case _:
            sides = (shape, other) if draw(st.booleans()) else (other, shape)
            return BinaryProblem(*sides, name)


@given(shape_problems())
def test_shape_descriptors_parse_back(problem: Problem) -> None:
    assert parse(problem.driver, problem.descriptor()) == problem


@given(st.text('gmbicohwkspdn01x:_"*', max_size=12), st.sampled_from(["conv", "pool", "matmul"]))
def test_any_text_parses_or_is_refused_properly(text: str, driver: str) -> None:
    try:
        assert parse(driver, text).descriptor
    except ProblemError as error:
        assert error.cure is not None
        assert error.where is not None

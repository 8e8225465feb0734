"""Knobs: directions, types, scales, zero points, post-ops, by benchdnn's grammar."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import dtypes
from tilewright.errors import ProblemError, TilewrightError
from tilewright.problems import (
    BINARY_FUNCTIONS,
    DRIVERS,
    UNARY_ALIASES,
    UNARY_FUNCTIONS,
    Binary,
    Direction,
    Policy,
    PostOp,
    Prelu,
    Scale,
    Sum,
    Unary,
    ZeroPoint,
    describe_post_ops,
    parse,
    parse_direction,
    parse_post_ops,
    parse_scales,
    parse_types,
    parse_unary,
    parse_zero_points,
)


def test_directions() -> None:
    for direction in Direction:
        assert parse_direction(direction.name) is direction
    assert parse_direction("FWD_I") is Direction.FWD_D
    assert parse_direction("bwd_wb") is Direction.BWD_WB
    assert [d.name for d in Direction if d.is_forward] == ["FWD_D", "FWD_B"]
    assert [d.name for d in Direction if d.is_backward_weights] == ["BWD_W", "BWD_WB"]
    assert [d.name for d in Direction if d.has_bias] == ["FWD_B", "BWD_WB"]


def test_types() -> None:
    assert parse_types("bf16") == (dtypes.bf16,) * 3
    assert parse_types("u8:s8:s32") == (dtypes.u8, dtypes.s8, dtypes.s32)
    assert parse_types("f32:bf16", ("src", "dst")) == (dtypes.f32, dtypes.bf16)


def test_algorithms() -> None:
    assert parse_unary("elu:0.5") == Unary("elu", 0.5)
    kinds = [kind for kind in DRIVERS.values() if "alg" in kind.knobs]
    assert len(kinds) > 8
    for kind in kinds:
        problem = kind.drawn(random.Random(0))
        assert [problem.with_alg(a).algorithm for a in kind.algorithms] == list(kind.algorithms)
        assert problem.with_alg(problem.algorithm) == problem
        with pytest.raises(ProblemError, match="3 is no algorithm"):
            problem.changed(algorithm=3)


def test_scales_and_zero_points() -> None:
    assert parse_scales("") == ()
    assert parse_scales("src0:common:0.25+wei:per_oc+dst:common:2:bf16") == (
        Scale("src", Policy("common"), 0.25),
        Scale("weights", Policy("per_oc")),
        Scale("dst", Policy("common"), 2.0, dtypes.bf16),
    )
    assert parse_scales("wei:per_dim_01:f16") == (
        Scale("weights", Policy("per_dim_01"), None, dtypes.f16),
    )
    assert parse_zero_points("src:common:-3+dst:per_dim_1+wei:common:1:s8") == (
        ZeroPoint("src", Policy("common"), -3),
        ZeroPoint("dst", Policy("per_dim_1")),
        ZeroPoint("weights", Policy("common"), 1, dtypes.s8),
    )
    for text in ("src:common:0.25", "wei:per_oc:bf16", "dst:per_tensor"):
        assert parse_scales(text)[0].describe() == text
    for text in ("src:common:-3", "wei:per_oc:s8"):
        assert parse_zero_points(text)[0].describe() == text


def test_post_ops() -> None:
    assert parse_post_ops("") == ()
    text = "sum:0.5:1:s8+relu:0.1+add:f32:per_oc+mul:bf16:15:nhwc+prelu:per_oc+linear:2:1e+3+sum"
    assert parse_post_ops(text) == (
        Sum(0.5, 1, dtypes.s8),
        Unary("relu", 0.1),
        Binary("add", dtypes.f32, Policy("per_oc")),
        Binary("mul", dtypes.bf16, Policy("15"), "nhwc"),
        Prelu(Policy("per_oc")),
        Unary("linear", 2.0, 1000.0),
        Sum(),
    )
    assert describe_post_ops(parse_post_ops(text)) == text.replace("1e+3", "1000")
    assert parse_post_ops("clip:0:inf") == (Unary("clip", 0.0, float("inf")),)
    assert parse_post_ops("relu:0:0:0.5") == (Unary("relu", scale=0.5),)


def test_all_functions_that_onednn_has() -> None:
    assert len(UNARY_FUNCTIONS) >= 21
    for name in UNARY_FUNCTIONS:
        text = f"{name}:1" if name == "soft_relu" else name
        assert parse_post_ops(text) == (Unary(name, 1.0 if name == "soft_relu" else 0.0),)
    for name in BINARY_FUNCTIONS:
        assert parse_post_ops(f"{name}:f32") == (Binary(name, dtypes.f32),)


@st.composite
def post_ops(draw: st.DrawFn) -> PostOp:
    """Any well-formed post-op."""
    number = st.floats(-1e6, 1e6).map(lambda x: x + 0.0)
    kinds = st.sampled_from([dtypes.f32, dtypes.bf16, dtypes.s8])
    policy = st.sampled_from(["common", "per_oc", "per_tensor", "per_dim_023"]).map(Policy)
    match draw(st.integers(0, 3)):
        case 0:
            return Sum(draw(number), draw(st.integers(-9, 9)), draw(st.none() | kinds))
        case 1:
            function = UNARY_FUNCTIONS[draw(st.sampled_from(sorted(UNARY_FUNCTIONS)))]
            alpha, beta = sorted((draw(number), draw(number)))
            if function.name == "soft_relu":
                alpha = 0.5
            used = {"alpha": alpha, "beta": beta}
            scale = draw(number)
            return Unary(
                function.name, **{name: used[name] for name in function.parameters}, scale=scale
            )
        case 2:
            tag = draw(st.sampled_from(["any", "nhwc"]))
            mask = st.integers(0, 31).map(lambda bits: Policy(str(bits)))
            function_name = draw(st.sampled_from(BINARY_FUNCTIONS))
            return Binary(function_name, draw(kinds), draw(policy | mask), tag)
        case _:
            return Prelu(draw(policy))


@given(st.lists(post_ops(), max_size=4).map(tuple))
def test_post_ops_parse_back(chain: tuple[PostOp, ...]) -> None:
    assert parse_post_ops(describe_post_ops(chain)) == chain


@pytest.mark.parametrize(
    ("name", "kwargs", "dims"),
    [
        ("common", {}, ()),
        ("per_tensor", {}, (0, 1, 2, 3)),
        ("per_oc", {}, (1,)),
        ("per_oc", {"tensor": "weights"}, (0,)),
        ("per_oc", {"tensor": "weights", "grouped": True}, (0, 1)),
        ("per_oc", {"driver": "matmul"}, (3,)),
        ("per_ocic", {"tensor": "weights"}, (0, 1)),
        ("per_ocic", {"tensor": "weights", "grouped": True}, (1, 2)),
        ("per_ocic", {"tensor": "weights", "driver": "matmul"}, (2, 3)),
        ("per_dim_03", {}, (0, 3)),
        ("5", {}, (0, 2)),
    ],
)
def test_policy_dims(name: str, kwargs: dict[str, object], dims: tuple[int, ...]) -> None:
    assert Policy(name).dims(4, **kwargs) == dims  # type: ignore[arg-type]


def test_policy_refuses_a_dim_that_is_not_there() -> None:
    with pytest.raises(ProblemError, match="per_dim_3 names dim 3, and dst has 2 dims"):
        Policy("per_dim_3").dims(2)


TYPES = ", ".join(t.name for t in dtypes.ALL)

GOLDEN: dict[tuple[Callable[[str], object], str], str] = {
    (parse_direction, "FWD"): """\
unknown direction 'FWD'
  at position 0:
  FWD
  ^^^
  cure: did you mean FWD_I? choose one of FWD_D, FWD_B, BWD_D, BWD_W, BWD_WB, FWD_I""",
    (parse_types, "u8:s8"): """\
2 types are given for 3 tensors
  at position 0:
  u8:s8
  ^^^^^
  cure: write one type, or src:wei:dst""",
    (parse_types, "u8:q8:f32"): f"""\
unknown element type 'q8'
  at position 3:
  u8:q8:f32
     ^^
  cure: choose one of {TYPES}""",
    (parse("pool", "ic1ih1kh1").with_alg, "avg"): """\
unknown algorithm 'avg'
  at position 0:
  avg
  ^^^
  cure: did you mean avg_p? choose one of max, avg_np, avg_p""",
    (parse("reduce", "2:1").with_alg, "prod"): """\
unknown algorithm 'prod'
  at position 0:
  prod
  ^^^^
  cure: choose one of sum, max, min, mul, mean, norm_lp_max, norm_lp_sum, norm_lp_power_p_max, \
norm_lp_power_p_sum""",
    (parse("binary", "2:1").with_alg, "plus"): f"""\
unknown algorithm 'plus'
  at position 0:
  plus
  ^^^^
  cure: choose one of {", ".join((*BINARY_FUNCTIONS, "select"))}""",
    (parse_unary, "relu6"): f"""\
unknown unary function 'relu6'
  at position 0:
  relu6
  ^^^^^
  cure: did you mean relu? choose one of {", ".join((*UNARY_FUNCTIONS, *UNARY_ALIASES))}""",
    (parse_scales, "sr:common:1"): """\
unknown tensor 'sr'
  at position 0:
  sr:common:1
  ^^
  cure: did you mean src? choose one of src, src0, src1, wei, dst""",
    (parse_scales, "src:common:1+src:common:2"): """\
src is given twice
  at position 13:
  src:common:1+src:common:2
               ^^^^^^^^^^^^
  cure: keep one of the two""",
    (parse_scales, "src"): """\
the policy of src is missing
  at position 0:
  src
  ^^^
  cure: write src:common:1 or src:per_oc""",
    (parse_scales, "src:common"): """\
the value is missing
  at position 0:
  src:common
  ^^^^^^^^^^
  why: policy common takes one value for the whole tensor
  cure: write src:common:1""",
    (parse_scales, "src:common:0"): """\
a scale must be finite and not 0
  at position 11:
  src:common:0
             ^
  cure: write 1 for none""",
    (parse_scales, "wei:per_oc:3"): """\
policy per_oc takes no value
  at position 11:
  wei:per_oc:3
             ^
  why: its values are an array, given when the kernel is called
  cure: leave :3 out, or use policy common""",
    (parse_scales, "wei:per_oc:s8"): """\
s8 cannot be used here
  at position 11:
  wei:per_oc:s8
             ^^
  cure: choose one of f32, f16, bf16""",
    (parse_scales, "wei:per_ocic:f32:2x1:3"): """\
there is too much behind the group
  at position 21:
  wei:per_ocic:f32:2x1:3
                       ^
  cure: leave it out""",
    (parse_scales, "wei:per_ocic:f32:2"): """\
'2' is no group
  at position 17:
  wei:per_ocic:f32:2
                   ^
  why: a group is two sizes: how many neighbours along K and along N have one value
  cure: write 64x1""",
    (parse_scales, "wei:per_ocic:f32:2x3"): """\
groups of 3 along N are not available
  at position 17:
  wei:per_ocic:f32:2x3
                   ^^^
  why: a group lies along K, and each column has its own
  cure: write 2x1""",
    (parse_zero_points, "dst:per_ocic:u8:2x1"): """\
dst has no groups
  at position 16:
  dst:per_ocic:u8:2x1
                  ^^^
  why: groups of scales and zero points are those of the factors of a matmul, along K
  cure: leave the group out, or give it for src or wei""",
    (parse_zero_points, "src:per_ocic:u8:2x4"): """\
groups of 2 along M are not available
  at position 16:
  src:per_ocic:u8:2x4
                  ^^^
  why: a group lies along K, and each row has its own
  cure: write 1x4""",
    (parse_zero_points, "src:common:1.5"): """\
a zero point must be a whole number, not '1.5'
  at position 11:
  src:common:1.5
             ^^^
  cure: write digits only, such as 1""",
    (parse_post_ops, "relu:x"): """\
alpha must be a number, not 'x'
  at position 5:
  relu:x
       ^
  cure: write a decimal number, such as 0.5""",
    (parse_post_ops, "sum+relu:"): """\
a value of relu is missing
  at position 9:
  sum+relu:
           ^
  cure: write the value, or leave the : out""",
    (parse_post_ops, "relu:1:0:1:1"): """\
there are too many values
  at position 11:
  relu:1:0:1:1
             ^
  why: at most 3 may follow
  cure: leave the rest out, or join post-ops with +""",
    (parse_post_ops, "add"): """\
the type of add's operand is missing
  at position 0:
  add
  ^^^
  cure: write add:f32""",
    (parse_post_ops, "add:f32:peroc"): """\
unknown policy 'peroc'
  at position 8:
  add:f32:peroc
          ^^^^^
  cure: did you mean per_oc? choose one of common, per_oc, per_ocic, per_dim_0, per_dim_1, \
per_dim_01, per_tensor, a mask in digits""",
    (parse_post_ops, "sum+exp:1"): """\
exp takes no alpha
  at position 4:
  sum+exp:1
      ^^^^^
  cure: write 0 for it, or leave it out""",
    (parse_post_ops, "clip:2:1"): """\
clip needs a lower bound (alpha) not above the upper (beta)
  at position 0:
  clip:2:1
  ^^^^^^^^
  cure: write clip:1:2""",
    (parse_post_ops, "soft_relu"): """\
soft_relu divides by alpha, which is 0
  at position 0:
  soft_relu
  ^^^^^^^^^
  cure: write soft_relu:1""",
    (parse_post_ops, "dw:k3s1p1"): """\
post-op dw is not available
  at position 0:
  dw:k3s1p1
  ^^
  cure: run it as its own op""",
}


@pytest.mark.parametrize(("parser", "text"), GOLDEN, ids=[text for _, text in GOLDEN])
def test_refusals(parser: Callable[[str], object], text: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        parser(text)
    assert str(caught.value) == GOLDEN[parser, text]


def test_an_unknown_post_op_lists_them_all() -> None:
    with pytest.raises(ProblemError, match="did you mean relu") as caught:
        parse_post_ops("relo")
    assert all(name in str(caught.value.cure) for name in ("sum", "prelu", "gelu_erf", "add"))
    with pytest.raises(ProblemError, match="the post-op is missing"):
        parse_post_ops("sum++relu")


def test_a_unary_built_by_hand_is_checked() -> None:
    with pytest.raises(ProblemError, match="unknown unary function 'cube'"):
        Unary("cube")
    with pytest.raises(ProblemError, match="the scale must be finite"):
        Unary("relu", scale=float("inf"))

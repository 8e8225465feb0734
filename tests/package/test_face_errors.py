"""What plausible calls that are wrong are told: an error of our own, each with its check.

`test_fuzz_face` looks for more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import small
from tilewright.calls import checked_call
from tilewright.engine import compile_kernel
from tilewright.errors import (
    ArgumentError,
    KernelError,
    LayoutError,
    ParseError,
    ProblemError,
    ScheduleError,
    TilewrightError,
    UnsupportedError,
    VerificationError,
)
from tilewright.interpret import run
from tilewright.ir import parse_kernel, verify
from tilewright.ir.buffer import Layout, LayoutBlock
from tilewright.layout.tags import layout_of
from tilewright.problems import EltwiseProblem, Unary
from tilewright.problems.policy import Policy
from tilewright.recipes.config import parse_config
from tilewright.testing.verify import Status
from tilewright.testing.verify import verify as verify_op

CONV = "ic4ih5oc6kh3"
X = np.ones(4, np.float32)
IDENTITY = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  return %a : tensor<2xf32>\n}"
SCALED = "kernel scaled(n: s64 in 1..99, in x: f32[n], out y: f32[n]):\n"
SCALED += "  for i in n:\n    y[i] = x[i]\n"


@tw.kernel
def scale(x: tw.Array[tw.f32, 1]) -> None:
    i = tw.global_id(0)
    x[i] = x[i] * 2


Refused = tuple[Any, type[TilewrightError], str]

PROBLEMS: list[Refused] = [
    (lambda: tw.matmul(5), ProblemError, "5 is no problem for matmul"),  # type: ignore[arg-type]
    (lambda: tw.reduce(None), ProblemError, "None is no problem for reduce"),  # type: ignore[arg-type]
    (lambda: tw.reorder((2.5, 3)), ProblemError, r"\(2.5, 3\) is no shape"),  # type: ignore[arg-type]
    (lambda: tw.elementwise((0, 3), "relu"), ProblemError, "must be at least 1, not 0"),
    (lambda: tw.elementwise(EltwiseProblem((True,)), "relu"), ProblemError, "a whole number"),
    (lambda: tw.elementwise((2,) * 3000, "relu"), ProblemError, "has 3000 dims[^$]*at most 12"),
    (lambda: tw.reduce("x".join("2" * 13) + ":" + "x".join("1" * 13)), ProblemError, "13 dims"),
    (lambda: tw.elementwise((2**40, 2**40), "relu"), ProblemError, "elements[^$]*64-bit"),
    (lambda: tw.elementwise((10**5000,), "relu"), ProblemError, "hundreds of digits[^$]*64-bit"),
    (lambda: tw.from_stablehlo(IDENTITY, function=[1]), ArgumentError, "no name of a function"),  # type: ignore[arg-type]
    (lambda: scale.launch(10**5000, X), ArgumentError, "hundreds of digits"),
    (
        lambda: scale.launch(4, X, locl=(2,)),
        ArgumentError,
        "locl[^$]*KernelFunction.launch[^$]*local",
    ),
    (lambda: scale.launch(), ArgumentError, "missing 1 required[^$]*'range'"),
    (lambda: scale.over(10**5000), ArgumentError, "hundreds of digits"),
    (
        lambda: tw.compile(tw.parse_kernel(SCALED))(x=X, n=10**5000),
        ArgumentError,
        "hundreds of digits",
    ),
    (lambda: tw.convolution(ic=10**5000, ih=1, oc=1, kh=1), ProblemError, "ic is too large"),
    (lambda: tw.convolution(ic=1.0, ih=1, oc=1, kh=1), ProblemError, "ic must be a whole number"),  # type: ignore[arg-type]
    (lambda: tw.convolution(ic=1, name=1), ProblemError, "unknown size 'name'"),
    (lambda: tw.pool(ic=1, name=1), ProblemError, "unknown size 'name'"),
]
KNOBS: list[Refused] = [
    (lambda: tw.convolution(CONV, direction=2), ProblemError, "2 is no direction"),  # type: ignore[arg-type]
    (lambda: tw.pool(CONV, algorithm="sum"), ProblemError, "no problem|unknown key"),  # type: ignore[arg-type]
    (lambda: tw.pool("ic3ih6kh2", algorithm=3), ProblemError, "3 is no algorithm here"),  # type: ignore[arg-type]
    (
        lambda: tw.reduce("4x5:4x1", algorithm="avg_p"),
        ProblemError,
        "unknown algorithm 'avg_p'[^$]*choose one of sum, max",
    ),
    (lambda: tw.elementwise("4x5", ["relu"]), ProblemError, "unknown elementwise function"),  # type: ignore[arg-type]
    (lambda: tw.elementwise("4x5", "elu", 10**400), ProblemError, "alpha must be a number"),
    (lambda: tw.elementwise("4x5", "elu", float("nan")), ProblemError, "alpha must be a number"),
    (lambda: tw.elementwise("4x5", "elu", "1"), ProblemError, "alpha must be a number, not '1'"),  # type: ignore[arg-type]
    (lambda: tw.matmul("2x3:3x4", fpmath=tw.relu()), UnsupportedError, "unknown element type"),  # type: ignore[arg-type]
    (lambda: tw.matmul("2x3:3x4", accumulator=3), UnsupportedError, "unknown element type"),  # type: ignore[arg-type]
]
LAYOUTS: list[Refused] = [
    (lambda: tw.matmul("2x3:3x4", src=(3.0, 1)), LayoutError, r"\(3.0, 1\) is no layout"),  # type: ignore[arg-type]
    (lambda: tw.matmul("2x3:3x4", src=5), LayoutError, "5 is no layout[^$]*where: src"),  # type: ignore[arg-type]
    (lambda: tw.matmul("2x3:3x4", src=(2**62, 1)), LayoutError, "too large[^$]*64-bit"),
    (lambda: tw.matmul("2x3:3x4", dst=[2**70, 1]), LayoutError, "too large[^$]*64-bit"),
    (lambda: tw.matmul("1x3:3x4", src=(2**70, 1)), LayoutError, "too large[^$]*64-bit"),
    (lambda: tw.matmul("2x3:3x4", src="x16x16:1x1"), LayoutError, "tag 'x16x16:1x1'"),
    (lambda: tw.matmul("2x3:3x4", src="abX"), LayoutError, "'X' is no dim"),
    (lambda: tw.matmul("2x3:3x4", src="aB" + "9" * 5000 + "b"), LayoutError, "too large"),
    (lambda: tw.matmul("2x3:3x4", src="AB" + "99999999a" * 3 + "2b"), LayoutError, "too large"),
    (lambda: tw.matmul("2x3:3x4", src=Layout((LayoutBlock(9, 4, 1),))), LayoutError, "Block.dim=9"),
    (lambda: tw.matmul("2x3:3x4", src=Layout((LayoutBlock(0, 2, -3),))), LayoutError, "stride=-3"),
    (
        lambda: tw.matmul("2x3:3x4", dst=Layout((LayoutBlock(0, 2, 1), LayoutBlock(1, 4, 1)))),
        LayoutError,
        "elements of a result overlap",
    ),
]
EPILOGUES: list[Refused] = [
    (lambda: tw.matmul("2x3:3x4", epilogue=tw.relu()), ProblemError, "no epilogue[^$]*a list"),  # type: ignore[arg-type]
    (lambda: tw.matmul("2x3:3x4", epilogue=None), ProblemError, "None is no epilogue"),  # type: ignore[arg-type]
    (lambda: tw.add("x", policy="u8"), ProblemError, "unknown policy 'u8'[^$]*per_oc"),
    (lambda: Policy("1" * 5000), ProblemError, "unknown policy"),
    (lambda: tw.add(5), ProblemError, "the name of an operand is a text, not 5"),  # type: ignore[arg-type]
    (lambda: tw.prelu(("x",)), ProblemError, "the name of an operand is a text"),  # type: ignore[arg-type]
    (lambda: tw.binary(["add"], "x"), ProblemError, "unknown binary function"),  # type: ignore[arg-type]
    (lambda: tw.binary("add", "x", tag=3), ProblemError, "the tag of an operand is a text"),  # type: ignore[arg-type]
    (lambda: tw.relu(10**400), ProblemError, "alpha must be a number"),
    (lambda: tw.unary("relu", scale=float("inf")), ProblemError, "the scale must be finite"),
    (lambda: tw.sum(zero_point=2**31), ProblemError, "does not fit s32"),
    (lambda: tw.sum("1"), ProblemError, "the scale of sum must be a finite number"),  # type: ignore[arg-type]
    (lambda: tw.scale("src", 0), ProblemError, "a scale must not be 0"),
    (lambda: tw.scale("src", dtype="s8"), UnsupportedError, "s8 cannot be used here"),
    (lambda: tw.scale(["src"]), ProblemError, "a tensor is named"),  # type: ignore[arg-type]
    (lambda: tw.scale("src", 1.0, policy=np.zeros(2)), ProblemError, "unknown policy"),  # type: ignore[arg-type]
    (lambda: tw.zero_point("src", 1.5), ProblemError, "a zero point must be a whole number"),  # type: ignore[arg-type]
    (lambda: tw.zero_point("src", dtype="f32"), UnsupportedError, "f32 cannot be used here"),
]


@pytest.mark.parametrize(("call", "error", "text"), [*PROBLEMS, *KNOBS, *LAYOUTS, *EPILOGUES])
def test_refused(call: Any, error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


MISFITS: list[Refused] = [
    (lambda: tw.matmul((8, 8), (8, 8)), ArgumentError, r"2 were given[^$]*tw.matmul\('8x8:8x8'\)"),  # type: ignore
    (lambda: tw.transpose("2x3x4", [2, 0, 1]), ArgumentError, "'2x3x4:2x0x1'"),  # type: ignore
    (
        lambda: tw.one_hot((3, 4), []),
        ArgumentError,
        r"call tw.one_hot\(problem, [^$]*classes=None",
    ),  # type: ignore
    (lambda: tw.argmax((3, 5), (1,)), ArgumentError, r"call tw.argmax\(problem, /, \*, axis=-1"),  # type: ignore
    (lambda: tw.argmax("3x5", axes=1), ArgumentError, "did you mean axis?"),  # type: ignore
    (lambda: tw.softmax(), ArgumentError, "missing 1 required positional argument: 'problem'"),  # type: ignore
    (lambda: tw.relu(1, 2), ArgumentError, r"call tw.relu\(alpha=0.0\)"),  # type: ignore
    (lambda: tw.compile(), ArgumentError, r"call tw.compile\(what, target=None"),  # type: ignore
    (lambda: tw.array("f32", rank=[]), ArgumentError, r"an array of rank \[\]"),
    (lambda: tw.array("f32", 2**70), ArgumentError, "a whole number from 1 to 8"),
    (lambda: tw.array("f32", 10**9), ArgumentError, "a whole number from 1 to 8"),
    (lambda: tw.parse_kernel([]), ParseError, "a list is no text of a kernel"),  # type: ignore
    (lambda: tw.parse_kernel("kernel k():\n  pass\n", []), ArgumentError, "no name of a file"),  # type: ignore
    (lambda: tw.parse_kernel("kernel k():\n  pass\n", None, [1]), ArgumentError, "no contents"),  # type: ignore
    (lambda: tw.unregister_recipe(name=[]), ScheduleError, r"no recipe called \[\]"),  # type: ignore
    (lambda: tw.resample("mb2ic3ih4oh8", out=[1, []]), ProblemError, r"not \[\]"),  # type: ignore
    (lambda: tw.scale((10**5000, 1)), ProblemError, "a tensor is named"),  # type: ignore
]


@pytest.mark.parametrize(("call", "error", "text"), MISFITS)
def test_what_no_signature_has(call: Any, error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_errors_inside_of_functions_stay_theirs() -> None:
    """A defect of ours is not blamed on the call."""

    @checked_call
    def broken(x: int) -> int:
        return x + "1"  # type: ignore[operator,no-any-return]

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(1)


def test_kernels_in_python_are_launched() -> None:
    for call in (lambda: launched[(32,)], lambda: launched[8, 4], lambda: launched(1, 2)):
        with pytest.raises(KernelError, match=r"write launched.launch\(\(size,\), x\)"):
            call()


@tw.kernel
def launched(x: tw.array("f32", 1)) -> None:  # type: ignore[valid-type]
    """What nobody calls."""


def test_strides_are_tuples_and_lists_of_any_integers() -> None:
    wanted = tw.matmul("2x3:3x4", src=(8, 1))
    assert tw.matmul("2x3:3x4", src=[8, 1]) == wanted
    assert tw.matmul("2x3:3x4", src=(np.int64(8), np.int32(1))) == wanted
    assert repr(tw.matmul("2x3:3x4", src=(np.int64(8), 1))) == repr(wanted)
    assert tw.reorder([4, 5]) == tw.reorder((4, 5))


def test_numbers_of_numpy_are_plain_ones() -> None:
    assert Unary("elu", np.float64(0.5)) == Unary("elu", 0.5)  # type: ignore[arg-type]
    assert repr(tw.scale("src", np.float64(0.5))) == repr(tw.scale("src", 0.5))
    assert repr(tw.zero_point("src", np.int8(3))) == repr(tw.zero_point("src", 3))  # type: ignore[arg-type]


def test_layouts_of_blocks_are_taken() -> None:
    layout = layout_of("aB4b", (2, 8))
    assert tw.reorder("2x8", src=layout).argument("src").layout == layout


# Scales and zero points of sources that are summed up, or compared, without a product.


@pytest.mark.parametrize(
    "op",
    [
        lambda scale: tw.reduce("3x8:3x1", dtype="s8:f32", epilogue=[scale]),
        lambda scale: tw.reduce("3x8:3x1", algorithm="mean", epilogue=[scale]),
        lambda scale: tw.pool("ic3ih6kh2", algorithm="avg_p", epilogue=[scale]),
        lambda scale: tw.pool(
            "ic3ih6kh2", algorithm="avg_np", direction="bwd_data", epilogue=[scale]
        ),
    ],
)
def test_a_scale_of_the_source_may_be_an_argument(op: Any, own_cache: object) -> None:
    for scale in (tw.scale("src"), tw.scale("src", -0.5)):
        result = verify_op(op(scale), lambda op: compile_kernel(op, threads=1))
        assert result.status is Status.PASSED, result.reason


def test_a_policy_over_what_is_summed_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="varies along dim 1, which is summed over"):
        tw.reduce("3x8:3x1", epilogue=[tw.scale("src", policy="per_oc")])


@pytest.mark.parametrize("algorithm", ["max", "min"])
def test_the_order_of_what_is_compared_stays(algorithm: str) -> None:
    tw.reduce("3x8:3x1", algorithm=algorithm, epilogue=[tw.scale("src", 0.5)])
    for scale in (tw.scale("src", -0.5), tw.scale("src")):
        with pytest.raises(UnsupportedError, match="turns the order"):
            tw.reduce("3x8:3x1", algorithm=algorithm, epilogue=[scale])
    with pytest.raises(UnsupportedError, match="turns the order"):
        tw.pool("ic3ih6kh2", epilogue=[tw.scale("src")])


def test_a_product_has_no_scale_of_its_source() -> None:
    with pytest.raises(UnsupportedError, match="it is no factor of"):
        tw.reduce("3x8:3x1", algorithm="mul", epilogue=[tw.scale("src", 0.5)])


@pytest.mark.parametrize(
    "op",
    [
        lambda point: tw.reduce("3x8:3x1", dtype="s8:s32", epilogue=[point]),
        lambda point: tw.pool("ic3ih6kh2", dtype="s8", algorithm="avg_p", epilogue=[point]),
        lambda point: tw.elementwise("3x8:3x8", "add", dtype="s8", epilogue=[point]),
    ],
)
def test_zero_points_that_nothing_subtracts_are_refused(op: Any) -> None:
    for point in (tw.zero_point("src"), tw.zero_point("src", 3)):
        with pytest.raises(UnsupportedError, match="takes no zero point for src"):
            op(point)
    op(tw.zero_point("dst", 3))


# Compiling, calls, configs.


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"what": "ic4"}, ArgumentError, "'ic4' cannot be compiled[^$]*pass an op"),
        ({"constant": 5}, ArgumentError, "5 names no arguments"),
        ({"target": 5}, UnsupportedError, "there is no target 5"),
        ({"threads": True}, ArgumentError, "threads is True"),
        ({"threads": 10**400}, ArgumentError, "hundreds of digits[^$]*1 to 256"),
        ({"threads": 257}, ArgumentError, "threads is 257"),
        ({"config": 5}, ScheduleError, "5 is not a config"),
        ({"trace": "x"}, ArgumentError, "'x' is no trace"),
    ],
)
def test_compile_refuses(given: dict[str, Any], error: type[TilewrightError], text: str) -> None:
    with pytest.raises(error, match=text):
        tw.compile(**{"what": small(), "threads": 1} | given)


def test_kernels_refuse_names_that_are_none(own_cache: object) -> None:
    kernel = tw.compile(small(), threads=1)
    with pytest.raises(ArgumentError, match="no argument a ndarray"):
        kernel.pack(np.zeros(3), "weights")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no source a ndarray"):
        kernel.source(np.zeros(3))  # type: ignore[arg-type]


DEEP = {
    "brackets": "(" * 3000,
    "lists": "ElementwiseConfig(vector=" + "[" * 150 + "]" * 150 + ")",
    "signs": "ElementwiseConfig(vector=" + "-" * 9000 + "1)",
    "calls": "f(" * 4000,
    "long": "ElementwiseConfig(vector=1" + " " * 100_000 + ")",
    "empty": "",
    "zero": "\0",
    "digits": "ElementwiseConfig(vector=" + "9" * 5000 + ")",
}


@pytest.mark.parametrize("name", DEEP)
def test_texts_of_configs_that_nest_too_deeply(name: str) -> None:
    with pytest.raises(ScheduleError, match="config"):
        parse_config(DEEP[name])


# Texts of kernels.

EDGE = 2**63 - 1
HUGE = {
    f"in a: f32[{EDGE}]": r"the layout of a reaches over more than \d* elements",
    f"in a: f32[4] {{0:{EDGE}:1}}": "the layout of a reaches",
    f"in a: f32[4] {{0:4:{EDGE}}}": "the layout of a reaches",
    f"in a: f32[4] {{0:4:-{EDGE}}}": "the layout of a reaches",
    f"in a: f32[4] {{0:4:1 +{EDGE}}}": "the layout of a reaches",
    f"in a: f32[4] {{0:4:1 ^{EDGE}:0:{EDGE}}}": "has a swizzle of",
    "in a: f32[4] {0:4:1 ^2:70:3}": "has a swizzle of",
}


@pytest.mark.parametrize("param", HUGE)
def test_buffers_that_offsets_do_not_reach(param: str) -> None:
    with pytest.raises(VerificationError, match=HUGE[param]):
        verify(parse_kernel(f"kernel k({param}, out b: f32[4]):\n  b[0] = a[3]\n"))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"alloc t: f32[{EDGE}] private", "the layout of t reaches"),
        (f"for i in {EDGE}:\n    b[i] = 0.0", f"an extent is {EDGE}"),
        (f"grid for i in {2**62}:\n    b[i] = 0.0", f"an extent is {2**62}"),
        (f"compute c(i in {EDGE}):\n    b[i] = 0.0", f"the extent of i is {EDGE}"),
    ],
)
def test_what_counts_beyond_memory(body: str, text: str) -> None:
    with pytest.raises(VerificationError, match=text):
        verify(parse_kernel(f"kernel k(out b: f32[4]):\n  {body}\n"))


@pytest.mark.parametrize("count", [10**11, 2**60])
def test_allocations_that_the_interpreter_cannot_hold(count: int) -> None:
    kernel = parse_kernel(f"kernel k(out b: f32[4]):\n  alloc t: f32[{count}] private\n  pass\n")
    verify(kernel)
    with pytest.raises(ArgumentError, match=f"no memory for {count} elements of t"):
        run(kernel, {"b": np.zeros(4, np.float32)})

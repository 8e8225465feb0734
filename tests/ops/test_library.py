"""The library's ops: what every record has to hold, against its own answers and PyTorch's."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from checkout import ROOT
from commands import Command
from needs import DEVICES, need_device, needs_x86
from tilewright.bench import catalog
from tilewright.bench.peer import find_peers
from tilewright.bench.torch_tensors import load_torch
from tilewright.cli.cases import cases_of
from tilewright.cli.knobs import Knobs
from tilewright.dtypes import boolean, f32, f64
from tilewright.errors import LayoutError, ProblemError, TilewrightError, UnsupportedError
from tilewright.ir.printer import to_text
from tilewright.problems import LIBRARY, Direction, Record, parse
from tilewright.testing.case import Case
from tilewright.testing.expected import expected
from tilewright.testing.inputs import make_inputs
from tilewright.testing.random_problems import random_cases
from tilewright.testing.verify import Status, verify

RECORDS = sorted(LIBRARY)


def _cases(arguments: str) -> list[Case]:
    """What the command line makes of these arguments."""
    driver, *words = shlex.split(arguments)
    texts = dict(w.removeprefix("--").split("=", 1) for w in words if w.startswith("--"))
    descriptors = tuple(w for w in words if not w.startswith("--"))
    return list(cases_of(Knobs(driver, descriptors, texts)))


@pytest.mark.parametrize("driver", RECORDS)
def test_arguments_ask_for_the_case_again(driver: str) -> None:
    for case in random_cases(driver, 20, seed=1):
        assert _cases(case.arguments()) == [case], case.arguments()
    example = LIBRARY[driver].parse(LIBRARY[driver].example)
    assert LIBRARY[driver].parse(example.descriptor()) == example


def test_the_documents_have_each_driver() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    result = {row[0].strip("| `"): row[2].strip("`") for row in rows}
    assert result == {driver: record.example for driver, record in LIBRARY.items()}


@pytest.mark.parametrize("driver", RECORDS)
def test_a_set_ships(driver: str) -> None:
    chosen = catalog.load(driver)
    assert chosen.driver == driver and len(chosen.problems) >= 3
    for problem in chosen.problems:
        assert isinstance(problem, Record)
        assert problem.smallest().shapes.keys() == problem.shapes.keys()


@pytest.mark.parametrize("driver", RECORDS)
def test_compiled_kernels_are_right(driver: str) -> None:
    cases = list(random_cases(driver, 3, seed=11))
    assert len(cases) == 3
    for case in cases:
        verdict = verify(case.op(), lambda op: tw.compile(op, threads=1))
        assert verdict.status is Status.PASSED, verdict.line(case.arguments())


def test_a_maximum_and_its_place_in_one_window() -> None:
    (case,) = _cases("maxpool --dt=u8:u8:s32 --stag=ABcd2a4b --dtag=Abcd16a ic8ih5iw8kh1kw1sh2")
    verdict = verify(case.op(), lambda op: tw.compile(op, threads=1))
    assert verdict.status is Status.PASSED


@pytest.mark.parametrize("driver", RECORDS)
def test_benchmarks_find_a_peer(driver: str) -> None:
    """Of channels that are last in memory, too: the layout that images have."""
    if load_torch() is None:
        pytest.skip("PyTorch is not installed")
    problem = LIBRARY[driver].parse(LIBRARY[driver].example).smallest()
    result = 0
    for direction in problem.directions:
        try:
            peers = find_peers(Case(problem, direction=direction).op().resolved(), 1)
        except UnsupportedError:
            continue
        result += sum(call() is not None for calls in peers.values() for call in calls)
    assert result or driver in NO_PEER


@pytest.mark.parametrize("driver", RECORDS)
def test_records_refuse_what_they_do_not_take(driver: str) -> None:
    problem = LIBRARY[driver].parse(LIBRARY[driver].example)
    other = next(direction for direction in Direction if direction not in problem.directions)
    with pytest.raises(UnsupportedError, match="has no direction"):
        Case(problem, direction=other).op()
    with pytest.raises(UnsupportedError, match="takes no bias"):
        Case(problem, bias=f32).op()
    with pytest.raises(UnsupportedError, match="takes no bool"):
        Case(problem, (boolean,) * len(problem.roles)).op()
    with pytest.raises(ProblemError):
        LIBRARY[driver].parse("")


def _plain(driver: str) -> Iterator[tuple[Any, Case]]:
    """Random cases in f64, each with its direction and algorithm."""
    for case in random_cases(driver, 60, seed=3):
        problem = case.problem
        assert isinstance(problem, Record)
        if getattr(problem, "ss_dt", ""):
            problem = problem.changed(ss_dt="")
        key = case.direction, getattr(problem, "algorithm", "")
        yield key, Case(problem, problem.expanded((f64,)), direction=case.direction)


@pytest.mark.parametrize("driver", RECORDS)
def test_answers_are_those_of_torch(driver: str) -> None:
    torch = load_torch()
    if torch is None:
        pytest.skip("PyTorch is not installed")
    compared = set()
    for key, case in _plain(driver):
        if key in compared:
            continue
        op = case.op()
        problem = op.problem
        assert isinstance(problem, Record)
        inputs = make_inputs(op, exact=False, seed=5)
        values = {name: torch.from_numpy(np.array(array)) for name, array in inputs.items()}
        wanted = expected(op, inputs, exact=False)
        for name in wanted:
            argument = op.argument(name)
            values[name] = torch.zeros(
                argument.shape, dtype=getattr(torch, argument.dtype.numpy_name)
            )
        try:
            result = problem.peer(torch, values, case.direction)()
        except UnsupportedError:
            continue
        for accepted, tensor in zip(
            wanted.values(), result if isinstance(result, tuple | list) else (result,), strict=False
        ):
            np.testing.assert_allclose(
                tensor.numpy().reshape(np.shape(accepted.want)), accepted.want, rtol=1e-9, atol=1e-9
            )
        compared.add(key)
    assert compared or driver in NO_PEER, "PyTorch has none of these"


NO_PEER = ("zeropad", "scatter")


def test_sets_between_groups_have_layouts_with_blocks_of_one_element() -> None:
    """Such a block may have any stride, another block's too."""
    problem = LIBRARY["bnorm"].parse("mb2ic5iw4")
    case = Case(problem, tags=("aBc8b", "any"))
    verdict = verify(case.op(), lambda op: tw.compile(op, threads=1))
    assert verdict.status is Status.PASSED, verdict.reason


@pytest.mark.parametrize(
    "arguments",
    [
        "bnorm --flags=A --dt=f16 mb2ic3ih4",
        "bnorm --flags=CHAI --attr-post-ops=tanh mb2ic3ih4",
        "bnorm --flags=GCHA --dir=BWD_D mb2ic3ih4",
        "bnorm --flags=A --dir=BWD_W mb2ic3ih4",
        "concat --stag=axb:abx:any --dtag=aBx8b 2x3x4:2x5x4:2x1x4",
        "conv --dt=u8:s8:f32 --attr-zero-points=dst:common:3 ic4ih6oc4kh3",
        "matmul --stag=11x1 --wtag=1x9 --dtag=24x2 4x9:9x8",
    ],
)
def test_cases_in_words(arguments: str) -> None:
    (case,) = _cases(arguments)
    verdict = verify(case.op(), lambda op: tw.compile(op, threads=1))
    assert verdict.status is Status.PASSED, verdict.reason


def test_no_mask_is_computed_where_none_is_kept() -> None:
    (case,) = _cases("bnorm --flags=RI mb2ic3ih4")
    assert "u8" not in to_text(case.op().kernel())


def test_a_tag_for_all_or_each_of_several_tensors() -> None:
    (case,) = _cases("concat --stag=axb:6x1x2 2x3x2:2x3x2")
    result = {
        argument.name: [b.dim for b in argument.layout.blocks] for argument in case.op().arguments
    }
    assert result == {"src0": [0, 2, 1], "src1": [0, 2, 1], "dst": [0, 1, 2]}
    for words, number, there in (
        ("concat --stag=axb:abx:axb 2x3:2x3", 3, 2),
        ("eltwise --stag=ab:ab 2x3", 2, 1),
    ):
        with pytest.raises(LayoutError, match=f"there are {number} tags, and {there} of src"):
            _cases(words)[0].op()


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: tw.softmax("4x9", axis=2), "softmax has no dim 2"),
    (lambda: tw.softmax("4x9", algorithm="max"), "unknown algorithm 'MAX'"),
    (lambda: tw.softmax((4, 0)), "must be at least 1"),
    (lambda: tw.softmax((2**60, 4)), "elements"),
    (lambda: tw.layer_norm("7"), "is no shape for lnorm"),
    (lambda: tw.layer_norm("4x9", scale=1), "flag C is yes or no"),  # type: ignore[arg-type]
    (lambda: tw.layer_norm("4x9", eps=-1.0), "eps must not be negative"),
    (lambda: tw.group_norm((2, 6), groups=4), "4 groups do not divide 6 channels"),
    (lambda: tw.concat([(4, 0)]), "must be at least 1"),
    (lambda: tw.concat([(4, 5), (3, 5)]), "src1 is"),
    (lambda: tw.concat(3), "no problem for concat"),  # type: ignore[arg-type]
    (lambda: tw.slice("9:3:4:2"), "the slice goes from 3 to 9"),
    (lambda: tw.slice("9:3"), "size of slice is missing"),
    (lambda: tw.transpose("2x3:0x0"), "is no order of 2 dims"),
    (lambda: tw.pixels("1x1x5x4:2"), "blocks of 2 do not divide"),
    (lambda: tw.shuffle("2x5", group=2), "groups of 2 do not divide 5"),
    (lambda: tw.pad("3:-2:-1"), "dim 0 of the result has 0 elements"),
    (lambda: tw.pad("3:3:0", "reflect"), "too few to reflect"),
    (lambda: tw.pad("3:1:0", value=0.5, dtype="s8"), "s8 does not hold 0.5"),
    (lambda: tw.gather("4x5"), "indices_shape of gather is missing"),
    (lambda: tw.gather("4x5:3", dtype="f32:f32:f32", axis=7), "gather has no dim 7"),
    (lambda: tw.gather("4x5:3", dtype="f32:u8:f32"), "gather takes no u8 here"),
    (lambda: tw.scatter("4x5:3", dtype="f32:s32:s32"), "scatter combines s32 with f32"),
    (lambda: tw.topk("4x5:6"), "6 are asked for"),
    (lambda: tw.scan("4x5", "cumsum", exclusive="no"), "exclusive is yes or no"),  # type: ignore[arg-type]
    (lambda: tw.max_pool("ic1iw2kw1pw2ow6"), "has no element"),
    (lambda: tw.resample((1, 2, 3)), "a size for each"),
    (lambda: tw.parametric_relu("4x5:2x1"), "does not broadcast"),
    (lambda: tw.deconvolution("ic1oc1ih1kh1ph1"), "nothing is left of dim h"),
    (lambda: tw.argmax((32, 2**31)), "s32 does not hold 2147483648"),
    (lambda: tw.sort((2, 2**31 + 1)), "s32 does not hold 2147483648"),
    (lambda: tw.max_pool("mb1ic1ih65536iw65537kh2kw2"), "s32 does not hold 4295032831"),
    (lambda: tw.gather("4x5:2147483648", counted=True), "s32 does not hold 2147483648"),
    (lambda: tw.pad("3:1:0", value=1e39).kernel(), "f32 does not hold 1e\\+39"),
    (lambda: tw.layer_norm("4x9", eps=1e39).kernel(), "f32 does not hold 1e\\+39"),
    (
        lambda: Case(parse("eltwise", "4x9").with_alg("linear:1e39")).op().kernel(),
        "f32 does not hold 1e\\+39",
    ),
    (lambda: tw.rnn("t2sic4dhc5"), "sic is 4, dhc 5"),
    (lambda: tw.rnn("l2sic4slc5"), "slc is 5, dhc 4"),
    (lambda: tw.rnn("sic4dhc6dic5"), "VANILLA_RNN with a projection"),
    (lambda: tw.rnn("sic4", "vanilla_gru", peepholes=True), "VANILLA_GRU with peepholes"),
    (lambda: tw.rnn("sic4", order="up"), "unknown order 'up'"),
    (lambda: tw.rnn("sic4", activation="elu"), "unknown activation 'ELU'"),
    (lambda: tw.rnn("sic4", dtype="f32:bf16:f32:f32"), "rnn has src of f32, weights of bf16"),
    (lambda: LIBRARY["shuffle"].parse("4x6").with_option("group", "9" * 5000), "group must be"),
    (lambda: LIBRARY["gather"].parse("4x5:3").with_option("flags", "CC"), "'C' stands twice"),
    (lambda: LIBRARY["scatter"].parse("4x5:3").with_option("flags", "CC"), "'C' stands twice"),
    (
        lambda: LIBRARY["sdpa"].parse("1x2x8x4:1x2x8x4").with_option("flags", "LL"),
        "'L' stands twice",
    ),
    (lambda: LIBRARY["scan"].parse("4x5").with_option("flags", "Q"), "unknown flag 'Q'"),
    (lambda: tw.softmax("4x"), "a number of shape is missing"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_calls_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        call()


@pytest.mark.parametrize("target", ["x86", *DEVICES])
def test_infinities_and_nan_are_as_numpy_has_them(target: str) -> None:
    need_device(target)
    inf, nan = np.inf, np.nan
    x = np.array([[1, 2, inf], [-inf, -inf, -inf], [0, nan, 1], [-inf, 3, 3]], np.float32)

    def run(op: Any) -> Any:
        return tw.compile(op, target=target, threads=1)(src=x)

    with np.errstate(all="ignore"):
        powers = np.exp(x - x.max(1, keepdims=True))
        total = powers.sum(1, keepdims=True)
        np.testing.assert_allclose(run(tw.softmax((4, 3))), powers / total, rtol=1e-6)
    np.testing.assert_allclose(
        run(tw.logsumexp((4, 3)))[:, 0], [inf, -inf, nan, 3 + np.log(2)], rtol=1e-6
    )
    assert run(tw.argmax((4, 3)))[:, 0].tolist() == np.argmax(x, 1).tolist()
    assert run(tw.argmin((4, 3)))[:, 0].tolist() == np.argmin(x, 1).tolist()
    np.testing.assert_array_equal(run(tw.scan((4, 3), "cummax")), np.maximum.accumulate(x, axis=1))
    result = run(tw.sort((4, 3)))
    np.testing.assert_array_equal(result["dst"], np.sort(x, axis=1))
    np.testing.assert_array_equal(result["indices"], np.argsort(x, axis=1, kind="stable"))


@pytest.mark.parametrize("target", ["x86", *DEVICES, "interpreter"])
def test_indices_far_out_of_range(target: str) -> None:
    """As far as 64 bits go, and such as 32 bits would take for others."""
    need_device(target)
    table = np.arange(10, dtype=np.float32).reshape(5, 2) + 1
    places = np.array([0, 4, 5, -1, 2**31, 1 - 2**32, 2**32 + 1, 2**63 - 1, -(2**63)])
    count, inside = len(places), (places >= 0) & (places < 5)
    types = "f32:s64:f32"
    result = tw.compile(tw.gather(f"5x2:{count}", counted=True, dtype=types), target=target)(
        src=table, indices=places
    )
    np.testing.assert_array_equal(result["dst"], table[np.clip(places, 0, 4)])
    assert result["outside"].tolist() == [7]
    kernel = tw.compile(tw.gather(f"5x2:{count}", outside="zero", dtype=types), target=target)
    wanted = np.where(inside[:, None], table[np.clip(places, 0, 4)], 0)
    np.testing.assert_array_equal(kernel(src=table, indices=places), wanted)
    added, sums = np.ones((count, 2), np.float32), table.copy()
    tw.compile(tw.scatter(f"5x2:{count}", dtype=types), target=target)(
        src=added, indices=places, out=sums
    )
    np.add.at(table, places[inside], added[inside])
    np.testing.assert_array_equal(sums, table)
    kernel = tw.compile(tw.one_hot(f"{count}:5", dtype="s64:f32"), target=target)
    np.testing.assert_array_equal(kernel(src=places), places[:, None] == np.arange(5))


def test_indices_out_of_range_are_counted() -> None:
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    places = np.array([-1, 0, 4, 5, 2], np.int32)
    kernel = tw.compile(tw.gather("5x2:5", counted=True), threads=1)
    result = kernel(src=table, indices=places)
    assert result["outside"].tolist() == [2]
    np.testing.assert_array_equal(result["dst"], table[[0, 0, 4, 4, 2]])
    kernel = tw.compile(tw.gather("5x2:5", outside="zero"), threads=1)
    wanted = np.where(np.isin(places, [-1, 5])[:, None], 0, table[[0, 0, 4, 4, 2]])
    np.testing.assert_array_equal(kernel(src=table, indices=places), wanted)


def test_products_of_integers_stay_in_range(tilewright: Command) -> None:
    # Integers wrap, and a double does not: 64 factors of 2 were 0 beside 2 to the 64.
    ended = tilewright("verify", "scan", "--dt=u8,s8,s32", "--alg=cumprod", "--axis=0", "257")
    assert ended.lines[-1] == "3 passed, 0 failed, 0 skipped", ended.out + ended.err


@pytest.mark.parametrize(
    "case", ["--dir=BWD_D --dt=f64 mb1ic3ih8oh5iw8ow3", "--dt=s32:f64 mb1ic16ih8oh5iw2ow2"]
)
def test_weights_near_nothing_are_as_wrong_as_large_ones(tilewright: Command, case: str) -> None:
    """A cubic's, once met by `resampling`: where the others meet values near 0, it is these."""
    ended = tilewright("verify", "resampling", "--alg=cubic", *case.split())
    assert ended.lines[-1] == "1 passed, 0 failed, 0 skipped", ended.out + ended.err


def test_tiles_of_which_some_are_shorter(tilewright: Command) -> None:
    """The dims that are reduced are as long as the tile that is left; once met by `deconv`."""
    case = "g2mb2ic4oc16ih2oh4kh3sh2dh0ph1iw4ow6kw3sw1dw0pw0"
    ended = tilewright("verify", "deconv", "--dt=f16:f64:f16", "--stag=abcd", case)
    assert ended.lines[-1] == "1 passed, 0 failed, 0 skipped", ended.out + ended.err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tw.softmax("3x5", axis=np.zeros((0, 2))), "softmax has no dim"),  # type: ignore[arg-type]
        (lambda: tw.concat("2x3:2x3", axis=np.zeros((0, 2))), "concat has no dim"),  # type: ignore[arg-type]
        (lambda: tw.group_norm("g2mb2ic4ih3", groups=10**5000), "is no number of groups"),
    ],
)
def test_odd_settings_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        call()


@needs_x86
@pytest.mark.parametrize("target", ["x86:avx2", "x86"])
@pytest.mark.parametrize(
    "case",
    [
        # Masks end a whole tile apart from the others, behind which are rows one by one.
        "deconv --dt=f64 --stag=aBcd8b g2mb2ic16oc2ih4oh4kh3sh1ph1iw6ow20kw3sw3dw0pw0",
        "deconv --dt=f64 --stag=aBcd8b g2mb2ic16oc2ih4oh4kh3sh1ph1iw7ow23kw3sw3dw0pw0",
        # Lanes along taps add to neighbours, though other rows add to the same elements.
        "resampling --dir=BWD_D --dt=bf16:s32 --alg=linear mb1ic8ih2oh3iw5ow2",
        "resampling --dir=BWD_D --dt=f32 --dtag=ABcde16a16b --alg=linear mb1ic8id3od3ih5oh3iw5ow3",
    ],
)
def test_cases_that_random_ones_found(case: str, target: str, tilewright: Command) -> None:
    ended = tilewright("verify", *case.split(), "--target", target)
    assert ended.code == 0, ended.out


def test_places_that_phases_and_rows_have_in_digits(tilewright: Command) -> None:
    """Six phases in tiles of four: that a digit has three values, their mask says."""
    case = "g1mb1ic1oc1id4od6kd3ih4oh12kh3sh3iw4ow9kw2sw2"
    for target in ("nvidia:sm_80", "spirv:gpu"):
        values = ("--on", "interpreter", "--target", target, "--dt=f64:u8:f64")
        ended = tilewright("verify", "deconv", *values, case)
        assert ended.code == 0, ended.out


def test_epilogues_of_the_library() -> None:
    """Scales, post-ops and the conversion come behind what the record says, as in oneDNN."""
    (case,) = _cases(
        "softmax --dt=f32:u8 --axis=1 --attr-scales=src:common:4+dst:common:0.0625 "
        "--attr-post-ops=sum:2+relu+mul:f32:per_oc 2x3"
    )
    x = np.array([[0, 0, 0], [1, 3, 2]], np.float32)
    dst, factors = np.array([[1, 2, 0], [0, 0, 5]], np.uint8), np.float32([[1, 2, 0.5]])
    plain = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    wanted = np.rint(np.maximum(plain * 4 + 2.0 * dst, 0) * factors / 0.0625)
    for target in ("interpreter", "x86"):
        result = dst.copy()
        tw.compile(case.op(), target)(src=x, post_op_2=factors, dst=result)
        np.testing.assert_array_equal(result, np.clip(wanted, 0, 255))
    with pytest.raises(UnsupportedError, match="takes one scale for src"):
        _cases("softmax --attr-scales=src:per_dim_1 2x3")[0].op()
    with pytest.raises(UnsupportedError, match="takes no scales and post-ops here"):
        _cases("softmax --dir=BWD_D --attr-post-ops=relu 2x3")[0].op()


@pytest.mark.parametrize("target", ["interpreter", "x86", *DEVICES])
def test_sums_read_the_old_result_as_another_type(target: str) -> None:
    (case,) = _cases("reorder --dt=f32:s8 --attr-post-ops=sum:0.25:0:u8 3")
    result = np.array([-1, 5, -128], np.int8)
    tw.compile(case.op(), target)(src=np.ones(3, np.float32), dst=result)
    assert result.tolist() == [65, 2, 33]  # 1 + 255 / 4, rounded


def test_norms_are_reductions() -> None:
    x = np.array([[3, -4, 0], [0, 0.5, 0]], np.float32)
    for name, p, eps, wanted in (
        ("norm_lp_sum", 2, 0, [5, 0.5]),
        ("norm_lp_max", 2, 1, [5, 1]),
        ("norm_lp_power_p_sum", 2, 1, [26, 1.25]),
        ("norm_lp_power_p_max", 1, 1, [7, 1]),
        ("norm_lp_sum", 3, 0, [91 ** (1 / 3), 0.5]),
    ):
        (case,) = _cases(f"reduce --alg={name} --p={p} --eps={eps} 2x3:2x1")
        for target in ("interpreter", "x86"):
            result = tw.compile(case.op(), target)(src=x)
            np.testing.assert_allclose(result.ravel(), wanted, rtol=1e-6)
    with pytest.raises(ProblemError, match="reduce sum takes no --p"):
        _cases("reduce --alg=sum --p=2 2x3:2x1")
    with pytest.raises(ProblemError, match=r"a norm with p=0\.5"):
        _cases("reduce --alg=norm_lp_sum --p=0.5 2x3:2x1")

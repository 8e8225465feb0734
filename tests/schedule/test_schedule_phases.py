"""split_dim by phases, and what comes with it: golden texts, results, refusals, and how many
products are left of a strided convolution by data."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from schedule_cases import ROW, becomes, equal
from sweeps import in_turns
from tilewright.dtypes import dtype
from tilewright.errors import ProblemError, ScheduleError
from tilewright.ir import Compute, For, If, Kernel, LoopKind, Stmt, Var, parse_kernel
from tilewright.ir.evaluate import evaluate
from tilewright.ir.visit import nested, variables, walk_stmts
from tilewright.layout.roles import MAIN
from tilewright.machines import nvidia, spirv
from tilewright.machines.machine import Machine
from tilewright.ops.convolution import convolution_op
from tilewright.ops.op import Op
from tilewright.problems import ConvProblem, Direction, parse
from tilewright.recipes import choose
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.parts import COPY_UNIT
from tilewright.recipes.reshaping import PHASE, by_phase, taken
from tilewright.recipes.roles import extents, find_compute
from tilewright.recipes.start import Start
from tilewright.schedule import KernelSchedule
from tilewright.schedule.dims.phases import congruences
from tilewright.schedule.dims.split_dim import split_dim
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.merge_loops import merge_loops
from tilewright.schedule.loops.trim import trim
from tilewright.testing.case import Case
from tilewright.testing.interpreted import InterpretedKernel
from tilewright.testing.verify import Status, verify


def test_taps_of_a_phase_are_all_there_are() -> None:
    becomes(
        ROW,
        lambda k: split_dim(k, "i", 2, "q", "r", phases_of="main"),
        """
        kernel row(in d: f32[4], in w: f32[3], out s: f32[7]):
          alloc acc: f32[4, 2]
          compute init(q in 4, r in 2):
            acc[q, r] = 0.0
          compute main(q in 4, r in 2, k in 2):
            a = d[q + (r + 1) // 2 - k | MASK]
            b = w[k * 2 + (r + 1) % 2 | k * 2 + (r + 1) % 2 < 3]
            acc[q, r] add= a * b
          compute store(q in 4, r in 2):
            v = acc[q, r]
            s[q * 2 + r | q * 2 + r < 7] = v
        """.replace("MASK", "k <= q + (r + 1) // 2 and k * 2 + (r + 1) % 2 < 3 and q * 2 + r < 7"),
    )


def test_steps_with_a_common_divisor_leave_phases_without_taps() -> None:
    """Of stride 4 and dilated by 2, odd phases have none, and the others every other tap."""
    becomes(
        """
        kernel row(in d: f32[4], in w: f32[5], out s: f32[16]):
          alloc acc: f32[16]
          compute init(i in 16):
            acc[i] = 0.0
          compute main(i in 16, k in 5):
            a = d[(i - k * 2) // 4 | (i - k * 2) % 4 == 0 and 0 <= i - k * 2]
            b = w[k]
            acc[i] add= a * b
          compute store(i in 16):
            v = acc[i]
            s[i] = v
        """,
        lambda k: split_dim(k, "i", 4, "q", "r", phases_of="main"),
        """
        kernel row(in d: f32[4], in w: f32[5], out s: f32[16]):
          alloc acc: f32[4, 4]
          compute init(q in 4, r in 4):
            acc[q, r] = 0.0
          compute main(q in 4, r in 4, k in 3):
            a = d[q - k | MASK]
            b = w[k * 2 + r // 2 | k * 2 + r // 2 < 5]
            acc[q, r] add= a * b
          compute store(q in 4, r in 4):
            v = acc[q, r]
            s[q * 4 + r] = v
        """.replace("MASK", "r % 2 == 0 and k <= q and k * 2 + r // 2 < 5"),
    )


@pytest.mark.parametrize("factor", [1, 3, 4, 7])
def test_other_factors_give_the_same(factor: int) -> None:
    naive = parse_kernel(textwrap.dedent(ROW))
    equal(naive, split_dim(naive, "i", factor, "q", "r", phases_of="main"))


def test_one_tap_is_no_dim() -> None:
    """A kernel no longer than its stride, and a row no longer than that."""
    becomes(
        """
        kernel row(in d: f32[1], in w: f32[2], out s: f32[2]):
          alloc acc: f32[2]
          compute init(i in 2):
            acc[i] = 0.0
          compute main(i in 2, k in 2, c in 3):
            a = d[0 | (i - k) % 3 == 0]
            b = w[k]
            acc[i] add= a * b
          compute store(i in 2):
            v = acc[i]
            s[i] = v
        """,
        lambda k: drop_unit_dims(split_dim(k, "i", 2, "q", "r", phases_of="main")),
        """
        kernel row(in d: f32[1], in w: f32[2], out s: f32[2]):
          alloc acc: f32[2]
          compute init(r in 2):
            acc[r] = 0.0
          compute main(r in 2, c in 3):
            a = d[0]
            b = w[r]
            acc[r] add= a * b
          compute store(r in 2):
            v = acc[r]
            s[r] = v
        """,
    )


def _refused(text: str, transform: Callable[[Kernel], Kernel]) -> str:
    with pytest.raises(ScheduleError) as error:
        transform(parse_kernel(textwrap.dedent(text)))
    return str(error.value)


def test_refusals() -> None:
    split = lambda k: split_dim(k, "i", 2, "q", "r", phases_of="main")  # noqa: E731 - a transform
    dense = _refused(ROW.replace("(i + 1 - k) % 2 == 0 and ", ""), split)
    assert "no mask asks for phases of 'i'" in dense and "without `phases_of`" in dense
    two = ROW.replace("k in 3", "k in 3, j in 2").replace("(i + 1 - k) % 2", "(i + 1 - k - j) % 2")
    assert "no condition is (dim - step * tap + offset) % modulus == 0" in _refused(two, split)
    counts = ROW.replace("a * b", "a + 1.0")
    assert "no mask asks for phases of 'i'" in _refused(counts, split)
    other = _refused(ROW, lambda k: split_dim(k, "i", 2, "q", "r", phases_of="store"))
    assert "no mask asks for phases of 'i'" in other and "compute store" in other
    taken_name = _refused(ROW, lambda k: split_dim(k, "i", 2, "k", "r", phases_of="main"))
    assert "the name 'k' is taken" in taken_name
    assert "no compute 'sum'" in _refused(
        ROW, lambda k: split_dim(k, "i", 2, "q", "r", phases_of="sum")
    )


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, int]:
    """A strided convolution of one or two spatial dims."""
    result = {"mb": draw(st.integers(1, 2)), "ic": 2, "oc": draw(st.integers(1, 2))}
    for axis in draw(st.sampled_from(["w", "hw"])):
        result |= {
            f"i{axis}": draw(st.integers(1, 9)),
            f"k{axis}": draw(st.integers(1, 5)),
            f"s{axis}": draw(st.integers(1, 5)),
            f"d{axis}": draw(st.integers(0, 3)),
            f"p{axis}": draw(st.integers(0, 3)),
        }
    return result


# The phase along h decides the tap along w.
DECIDED = {"mb": 2, "ic": 2, "oc": 2, "ih": 2, "kh": 2, "sh": 2, "dh": 0, "ph": 0}
DECIDED |= {"iw": 2, "kw": 2, "sw": 3, "dw": 0, "pw": 1}


@example(DECIDED)
@given(sizes())
def test_the_same_sums(found: dict[str, int]) -> None:
    try:
        problem = ConvProblem.from_sizes(**found)
    except ProblemError:
        assume(False)
    naive = convolution_op(problem, Direction.BWD_D).kernel()
    plain = drop_unit_dims(naive)
    schedule = KernelSchedule(plain)
    by_phase(schedule)
    apart = schedule.kernel
    equal(naive, apart)
    if congruences(find_compute(plain, MAIN)):
        sizes = extents(find_compute(apart, MAIN))
        assert sizes[PHASE] <= found.get("sh", 1) * found["sw"]
        # What is left says which phases have taps at all.
        assert {congruence.dim for congruence in congruences(find_compute(apart, MAIN))} <= {PHASE}


def test_loops_end_with_the_taps_of_what_is_named() -> None:
    becomes(
        """
        kernel f(in d: f32[4, 4], in w: f32[3], in v: f32[3], inout acc: f32[4, 4]):
          for r in 4:
            for i in 4:
              for k in 2:
                for j in 2:
                  compute main(c in 1):
                    a = d[i, k | i < 3 and r != 1]
                    b = w[k * 2 + r % 2 | k * 2 + r % 2 < 3]
                    e = v[j * 2 + r // 2 | j * 2 + r // 2 < 3]
                    acc[r, i] add= a * b * e
        """,
        lambda k: merge_loops(trim(trim(k, "k", by=["r"]), "j", by=["r"]), ["k", "j"], "step"),
        """
        kernel f(in d: f32[4, 4], in w: f32[3], in v: f32[3], inout acc: f32[4, 4]):
          for r in 4:
            for i in 4:
              for step in (-(r // 2) // 2 + 2) * select(r != 1, -(r % 2) // 2 + 2, 0):
                compute main():
                  a = d[i, step // (-(r // 2) // 2 + 2) | i < 3]
                  b = w[r % 2 + step // (-(r // 2) // 2 + 2) * 2]
                  e = v[r // 2 + step % (-(r // 2) // 2 + 2) * 2]
                  acc[r, i] add= a * b * e
        """,
    )


def test_points_of_two_phases_are_two() -> None:
    """What makes loops over phases parallel: the digits of both are in the index."""
    kernel = parse_kernel(
        textwrap.dedent(
            """
            kernel f(out s: f32[3, 8, 7]):
              for r in 6:
                compute store(m in 36):
                  s[m // 12, m // 3 % 4 * 2 + r // 3, m % 3 * 2 + r % 3] = 1.0
            """
        )
    )
    with pytest.raises(ScheduleError, match="'r' may write the same element"):
        set_kind(kernel, "r", LoopKind.GRID)  # 2 * x + 3 phases overlap
    kernel = parse_kernel(
        textwrap.dedent(
            """
            kernel f(out s: f32[3, 8, 9]):
              for r in 6:
                compute store(m in 36):
                  s[m // 12, m // 3 % 4 * 2 + r // 3, m % 3 * 3 + r % 3] = 1.0
            """
        )
    )
    becomes_grid = set_kind(kernel, "r", LoopKind.GRID)
    equal(kernel, becomes_grid)


def _products(stmt: Stmt, values: dict[Var, int]) -> int:
    """The products that `MAIN` makes in ``stmt``, counted by the extents of loops and dims."""
    match stmt:
        case For():
            asked = {v for s in walk_stmts(stmt.body) for v in _asked(s)}
            extent = int(evaluate(stmt.extent, values))
            if stmt.var not in asked:
                return extent * _products(stmt.body, {**values, stmt.var: 0})
            return sum(_products(stmt.body, {**values, stmt.var: i}) for i in range(extent))
        case If():
            return _products(stmt.then, values) if evaluate(stmt.condition, values) else 0
        case Compute():
            points = 1
            for d in stmt.dims:
                points *= int(evaluate(d.extent, values))
            return points if stmt.name == MAIN else 0
        case _:
            return sum(_products(part, values) for part in nested(stmt))


def _asked(stmt: Stmt) -> frozenset[Var]:
    match stmt:
        case For():
            return variables(stmt.extent)
        case If():
            return variables(stmt.condition)
        case _:
            return frozenset()


def _op(descriptor: str, words: str = "f32") -> Op:
    types = (dtype(words),) * 3
    return Case(parse("conv", descriptor), types, direction=Direction.BWD_D).op()


def _scheduled(op: Op, machine: Machine) -> tuple[WorkgroupConfig, dict[str, Kernel]]:
    op = op.resolved()
    config, result = choose.choose(Start.of(op), machine)
    assert isinstance(config, WorkgroupConfig)
    return config, result.stages


@pytest.mark.parametrize("machine", [nvidia.machine("sm_80"), spirv.machine("gpu")])
@pytest.mark.parametrize(
    ("descriptor", "taps"),
    [
        ("mb2ic32ih16oc32kh3ph1sh2", 9),  # 1, 2, 2 and 4 taps of the four phases
        ("mb2ic64ih16oc64kh1sh2", 1),  # three have none
        ("mb2ic32ih16oc32kh2sh2", 4),
        ("mb2ic32ih16oc32kh5ph2sh2", 25),
    ],
)
def test_only_products_that_count_are_made(descriptor: str, taps: int, machine: Machine) -> None:
    op = _op(descriptor)
    _, stages = _scheduled(op, machine)
    main = find_compute(stages["phases"], MAIN)
    naive = extents(find_compute(stages["naive"], MAIN))
    once = naive["mb"] * naive["ic"] * naive["oc"] * naive["ih"] * naive["iw"] // 4
    kernel = stages["stepped"]
    assert _products(stages["naive"].body, {}) == once * 4 * naive["kh"] * naive["kw"]
    if any(isinstance(s, For) and s.var.name == "step" for s in walk_stmts(kernel.body)):
        assert _products(kernel.body, {}) == once * taps
    counted = 1
    for size in extents(main).values():
        counted *= size
    assert counted * taken(main) == once * taps


# Strided, dilated, with taps or pixels that some phases lack, grouped, in one and three dims.
STRIDED = (
    "mb2ic16ih9oc24kh3ph1sh2",
    "mb1ic32ih14oc32kh1sh2",
    "mb2g2ic16ih7iw10oc32kh2kw3sh3sw2pw1",
    "mb1ic16ih11oc16kh3ph2dh1sh2",
    "mb1ic16ih10oc16kh4ph3dh1sh4",
    "mb3ic16iw21oc16kw5pw2sw3",
    "mb1ic8id5oc16kd3pd1sd2",
    "mb2ic16ih2oc16kh3ph2sh3",
    "mb1g16ic16ih9oc16kh3ph1sh2",
)


@pytest.mark.parametrize(
    ("descriptor", "words", "machine"),
    in_turns(
        18,
        STRIDED,
        ("f32", "f16", "bf16"),
        (nvidia.machine("sm_80"), nvidia.machine("sm_70"), spirv.machine("gpu")),
    ),
)
def test_strided_convolutions_by_data_are_right(
    descriptor: str, words: str, machine: Machine
) -> None:
    op = _op(descriptor, words)
    config, stages = _scheduled(op, machine)
    assert "phases" in stages
    verdict = verify(op, lambda op: InterpretedKernel(op, machine, config))
    assert verdict.status is Status.PASSED, verdict


def test_boxes_of_a_phase_without_taps_are_not_copied() -> None:
    """A 1x1 convolution goes Hopper's way: three of four workgroups store zeros at once."""
    op, machine = _op("mb4ic256ih32oc512kh1sh2", "bf16"), nvidia.machine("sm_90a")
    config, _ = _scheduled(op, machine)
    assert config.staging.fill == COPY_UNIT and config.tile.group.get(PHASE, 1) == 1
    verdict = verify(op, lambda op: InterpretedKernel(op, machine, config))
    assert verdict.status is Status.PASSED, verdict

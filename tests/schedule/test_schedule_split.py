"""split_dim, guard and guard_select: golden texts, results (interpreted and compiled), refusals."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from needs import needs_x86
from schedule_cases import ROW, becomes, equal, matmul, memory, softmax
from sweeps import in_turns
from tilewright.engine.program import Code
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir import Compute, For, If, Kernel, LoopKind, parse_kernel, to_text
from tilewright.ir.visit import walk_stmts
from tilewright.machines.x86 import machine
from tilewright.ops.convolution import convolution_op
from tilewright.problems import ConvProblem, Direction
from tilewright.schedule.dims.split_dim import split_dim
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.guard import guard, guard_select
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.targets.program import abi_of
from tilewright.targets.x86.target import x86_target


def backward_data(**sizes: int) -> Kernel:
    """A naive convolution backward by data."""
    kernel = convolution_op(ConvProblem.from_sizes(**sizes), Direction.BWD_D).kernel()
    return drop_unit_dims(kernel)


def test_split_makes_the_stride_a_dim() -> None:
    becomes(
        ROW,
        lambda k: split_dim(k, "i", 2, "x", "r"),
        """
        kernel row(in d: f32[4], in w: f32[3], out s: f32[7]):
          alloc acc: f32[4, 2]
          compute init(x in 4, r in 2):
            acc[x, r] = 0.0
          compute main(x in 4, r in 2, k in 3):
            a = d[(r - k + 1) // 2 + x | MASK]
            b = w[k]
            acc[x, r] add= a * b
          compute store(x in 4, r in 2):
            v = acc[x, r]
            s[r + x * 2 | r + x * 2 < 7] = v
        """.replace("MASK", "(r - k + 1) % 2 == 0 and k < r + x * 2 + 2 and r + x * 2 < 7"),
    )


def test_split_that_divides_needs_no_masks_and_may_keep_the_name() -> None:
    becomes(
        """
        kernel copy(in x: f32[8, 3], out y: f32[3, 8]):
          alloc t: f32[3, 8] {1:8:3 0:3:1} private
          compute first(i in 8, j in 3):
            v = x[i, j]
            t[j, i] = v
          compute second(i in 8, j in 3):
            v = t[j, i]
            y[j, i] = v
        """,
        lambda k: split_dim(k, "i", 4, "i", "i_r"),
        """
        kernel copy(in x: f32[8, 3], out y: f32[3, 8]):
          alloc t: f32[3, 2, 4] {1:2:12 2:4:3 0:3:1} private
          compute first(i in 2, i_r in 4, j in 3):
            v = x[i * 4 + i_r, j]
            t[j, i, i_r] = v
          compute second(i in 2, i_r in 4, j in 3):
            v = t[j, i, i_r]
            y[j, i * 4 + i_r] = v
        """,
    )


def test_split_keeps_buffers_that_are_reached_otherwise() -> None:
    becomes(
        """
        kernel halo(in x: f32[7], out y: f32[7]):
          alloc t: f32[7]
          compute first(i in 7):
            v = x[i]
            t[i] = v
          compute second(i in 7):
            v = t[i]
            u = t[i - 1 | 0 < i]
            y[i] = v + u
        """,
        lambda k: split_dim(k, "i", 3, "x1", "r"),
        """
        kernel halo(in x: f32[7], out y: f32[7]):
          alloc t: f32[7]
          compute first(x1 in 3, r in 3):
            v = x[r + x1 * 3 | r + x1 * 3 < 7]
            t[r + x1 * 3 | r + x1 * 3 < 7] = v
          compute second(x1 in 3, r in 3):
            v = t[r + x1 * 3 | r + x1 * 3 < 7]
            u = t[r + x1 * 3 - 1 | 1 <= r + x1 * 3 and r + x1 * 3 < 7]
            y[r + x1 * 3 | r + x1 * 3 < 7] = v + u
        """,
    )


def test_split_of_a_reduced_dim() -> None:
    naive = matmul(4, 5, 7)
    kernel = split_dim(naive, "k", 3, "k", "k_r")
    equal(naive, kernel)
    assert "k in 3, k_r in 3" in to_text(kernel)
    with pytest.raises(ScheduleError, match=r"the surplus of 'c' would count[^$]*sums of products"):
        split_dim(softmax(), "c", 4, "c", "c_r")
    equal(softmax(), split_dim(softmax(), "c", 3, "c", "c_r"))


def test_split_refuses() -> None:
    naive = matmul()
    with pytest.raises(ScheduleError, match=r"no compute has the dim 'q'[^$]*before the dim is"):
        split_dim(naive, "q", 2, "x1", "r")
    with pytest.raises(ScheduleError, match="split_dim: factor is 0"):
        split_dim(naive, "m", 0, "x1", "r")
    with pytest.raises(ScheduleError, match="both dims are called 'r'"):
        split_dim(naive, "m", 2, "r", "r")
    for name in ("n", "x"):
        with pytest.raises(ScheduleError, match=f"the name '{name}' is taken"):
            split_dim(naive, "m", 2, name, "r")
    tiled = tile(naive, "mul", {"m": 4})
    with pytest.raises(ScheduleError, match=r"'m' varies in extent[^$]*before tiling"):
        split_dim(tiled, "m", 2, "x1", "r")
    whole = tensorize(
        matmul(4, 16, 2), "mul", machine("avx512").instruction("fma_f32x16"), {"n": "n"}
    )
    with pytest.raises(ScheduleError, match="'n' is an instruction's"):
        split_dim(whole, "n", 2, "x1", "r")


def _random_sizes(r: Random) -> dict[str, int]:
    sizes = {"g": r.choice([1, 1, 2]), "mb": r.choice([1, 2])}
    sizes |= {"ic": 2 * sizes["g"], "oc": r.choice([1, 3]) * sizes["g"]}
    for axis in "hw":
        stride, kernel, dilation = (
            r.choice([1, 2, 2, 3]),
            r.choice([1, 2, 3, 5]),
            r.choice([0, 0, 1]),
        )
        padding = r.randint(0, 2)
        least = max(1, (kernel - 1) * (dilation + 1) + 1 - 2 * padding)
        sizes |= {f"k{axis}": kernel, f"s{axis}": stride, f"d{axis}": dilation, f"p{axis}": padding}
        sizes[f"i{axis}"] = r.randint(least, least + 6)
    return sizes


@pytest.mark.parametrize("seed", in_turns(2, range(40)))
def test_random_backward_data(seed: int) -> None:
    r = Random(seed)
    sizes = _random_sizes(r)
    naive = backward_data(**sizes)
    kernel = naive
    dims = {d.var.name for s in walk_stmts(naive.body) if isinstance(s, Compute) for d in s.dims}
    for axis in "hw":
        if f"i{axis}" in dims and r.random() < 0.8:
            factor = r.choice([sizes[f"s{axis}"], 2, 3])
            kernel = split_dim(kernel, f"i{axis}", factor, f"i{axis}", f"r{axis}")
    equal(naive, kernel)
    dims = {d.var.name for s in walk_stmts(kernel.body) if isinstance(s, Compute) for d in s.dims}
    outer = [d for d in ("ih", "rh", "rw", "iw") if d in dims]
    taps = [d for d in ("kh", "kw") if d in dims]
    kernel = compute_at(
        kernel,
        "epilogue",
        {d: r.choice([1, 1, 2]) for d in outer},
        r.sample(outer, len(outer)),
        producers=["init", "main"],
    )
    kernel = tile(kernel, "main", {"oc": 2, **dict.fromkeys(taps, 1)} if "oc" in dims else {})
    for loop in sorted({s.var.name for s in walk_stmts(kernel.body) if isinstance(s, For)}):
        if r.random() < 0.3:
            kernel = partition(kernel, loop)
        elif r.random() < 0.3 and loop in taps:
            kernel = set_kind(kernel, loop, LoopKind.UNROLLED)
    guarded = guard(kernel, "main")
    equal(naive, guarded)
    assert guard(guarded, "main") is guarded


def test_partition_of_a_masked_output_keeps_its_dims() -> None:
    naive = parse_kernel(textwrap.dedent(ROW.replace("7", "5")))
    kernel = compute_at(split_dim(naive, "i", 2, "x", "r"), "store", {"x": 1})
    equal(naive, partition(kernel, "x"))


def test_guard_stands_inside_the_loop_that_decides() -> None:
    naive = backward_data(mb=1, ic=2, oc=4, ih=5, iw=4, kh=3, kw=3, sh=2, sw=2, ph=1, pw=1)
    kernel = tile(naive, "main", {"ih": 1, "kh": 1, "kw": 1, "oc": 2})
    kernel = guard(kernel, "main")
    equal(naive, kernel)
    assert (
        """\
  for ih in 5:
    for kh in 3:
      if (ih - kh + 1) % 2 == 0 and kh < ih + 2:
        for kw in 3:
          for oc_o in 2:
            compute main(ic in 2, iw in 4, oc in 2):
              a = dst[0, oc + oc_o * 2, (ih - kh + 1) // 2, (iw - kw + 1) // 2 | """
        "(iw - kw + 1) % 2 == 0 and kw < iw + 2 and iw < kw + 3]\n" in to_text(kernel)
    )


GUARDED = """
    kernel f(in x: f32[9, 9], inout y: f32[9], in n: s64[1]):
      for i in 9:
        for j in 9:
          {first}
          compute main(k in 4):
            a = x[i, j | {condition}]
            y[k] add= a
          {second}
"""


def _with(condition: str, first: str = "t = i", second: str = "") -> Kernel:
    text = GUARDED.format(condition=condition, first=first, second=second)
    return parse_kernel("\n".join(line[4:] for line in text.splitlines() if line.strip()))


MAIN = "compute main(q in 9):\n                b = x[q, q | i < 3]\n                y[q] add= b\n"


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        # As far out as it goes.
        (_with("i < 5"), "for i in 9:\n    if i < 5:\n      for j in 9:"),
        # Behind the let that it depends on.
        (
            _with("i < 5 and t * i < 7", "t = i * j"),
            "  if i < 5:\n      for j in 9:\n        t = i * j\n        if i * t < 7:\n",
        ),
        # One test for pieces that follow one another; something else stays outside.
        (
            _with("i < 3", MAIN, "y[j] = y[j] * 2.0"),
            "    for j in 9:\n      if i < 3:\n        compute main(q in 9):",
        ),
        (
            _with("i < 3 and j < 4", MAIN),
            "    if i < 3:\n      for j in 9:\n        compute main(q",
        ),
    ],
)
def test_guard_goes_as_far_as_it_may(kernel: Kernel, expected: str) -> None:
    guarded = guard(kernel, "main")
    equal(kernel, guarded)
    assert expected in to_text(guarded)


@pytest.mark.parametrize(
    "kernel",
    [
        _with("k < 3"),
        _with("n[0] < 3"),
        parse_kernel(
            """
            kernel f(in x: s32[9], inout y: s32[9]):
              for i in 9:
                compute main(k in 4):
                  a = x[i]
                  b = x[k]
                  y[i] add= select(bool(a), b, s32(0))
            """
        ),
        parse_kernel(
            """
            kernel f(in x: f32[9], out y: f32[9]):
              for i in 9:
                compute main():
                  a = x[i | i < 5]
                  y[i] = a
            """
        ),
        set_kind(
            parse_kernel(
                """
                kernel f(in x: f32[8], inout y: f32[8]):
                  for i in 8:
                    compute main(k in 2):
                      a = x[i | i < 5]
                      y[i] add= a
                """
            ),
            "i",
            LoopKind.VECTOR,
        ),
    ],
)
def test_guard_of_nothing_changes_nothing(kernel: Kernel) -> None:
    assert guard(kernel, "main") is kernel


def test_guard_stays_inside_parallel_loops_and_branches() -> None:
    kernel = parse_kernel(
        """
        kernel f(in x: f32[9], inout y: f32[9], in n: s64[1]):
          for p in 9:
            if p < 5:
              compute main(k in 2):
                a = x[p | 3 < p]
                y[p] add= a
            else:
              compute main(k in 3):
                a = x[p | p < 7]
                y[p] add= a
        """
    )
    guarded = guard(set_kind(kernel, "p", LoopKind.PARALLEL), "main")
    equal(kernel, guarded)
    assert to_text(guarded).count("if ") == 3
    with pytest.raises(ScheduleError, match="guard: there is no compute 'x'"):
        guard(kernel, "x")


# Compiled: the tests stand around loops of instructions whose accumulators are registers.


def _compiled(kernel: Kernel) -> Callable[..., None]:
    target = x86_target("")
    module = target.lower(kernel)
    assert "alloca" not in module.text  # accumulators are registers
    code = Code(target, target.assemble(module), abi_of(kernel, module))
    return lambda arrays, threads=1: code.run([a.ctypes.data for a in arrays], threads)


def _scheduled(naive: Kernel, sw: int, channels: int, taps_unrolled: bool) -> Kernel:
    """As a recipe does it: tiles of 2 positions of one phase by all channels."""
    here = x86_target("").machine
    vector = 16 if "avx512f" in here.features else 8 if "fma" in here.features else 4
    kernel = split_dim(naive, "iw", sw, "iw", "rw")
    kernel = compute_at(
        kernel,
        "epilogue",
        {"mb": 1, "ih": 1, "rw": 1, "iw": 2, "ic": -(-channels // vector) * vector},
        ["mb", "ih", "rw", "ic", "iw"],
        producers=["init", "main"],
        storage=("iw", "ic"),
    )
    kernel = tile(kernel, "main", {"kh": 1, "kw": 1, "oc": 4}, ["kh", "kw", "oc"])
    kernel = partition(kernel, "iw_o")
    if taps_unrolled:
        kernel = set_kind(kernel, "kw", LoopKind.UNROLLED)
    kernel = guard(kernel, "main")
    assert any(isinstance(s, If) for s in walk_stmts(kernel.body))
    kernel = tensorize(kernel, "main", here.instruction(f"fma_f32x{vector}"), {"n": "ic"})
    kernel = lower_computes(
        kernel, vector="ic", lanes=vector, order=("iw",), unroll=("iw", "ic", "oc")
    )
    return set_kind(kernel, "mb", LoopKind.PARALLEL)


@needs_x86
@pytest.mark.parametrize("taps_unrolled", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        {"ic": 32, "oc": 8, "ih": 7, "iw": 7, "kh": 3, "kw": 3, "sh": 2, "sw": 2, "ph": 1, "pw": 1},
        {"ic": 20, "oc": 6, "ih": 5, "iw": 11, "kh": 2, "kw": 4, "sh": 2, "sw": 3, "pw": 2},
        {"ic": 32, "oc": 4, "ih": 5, "iw": 9, "kh": 3, "kw": 3, "sh": 1, "sw": 2, "dw": 1, "pw": 2},
    ],
)
def test_compiled_backward_data(sizes: dict[str, int], taps_unrolled: bool) -> None:
    problem = ConvProblem.from_sizes(mb=2, **sizes)
    # Weights with the input channels innermost, as the instruction takes them.
    layouts = {"weights": "cdab", "src": "acdb"}
    op = convolution_op(problem, Direction.BWD_D, layouts=layouts)
    naive = op.kernel()
    kernel = _scheduled(naive, sizes["sw"], sizes["ic"], taps_unrolled)
    expected = memory(naive)
    actual = {name: array.copy() for name, array in expected.items()}
    run(naive, expected)
    equal(naive, kernel)
    _compiled(kernel)([actual[p.name] for p in kernel.params], threads=2)
    np.testing.assert_array_equal(actual["src"], expected["src"])


MASKED = """
kernel masked(in x: f32[24, 20], out y: f32[24, 20]):
  compute counted(i in 24, j in 20):
    y[i, j] = select(CONDITION, x[i, j], -inf)
"""


def test_a_select_is_tested_once_for_a_tile() -> None:
    naive = parse_kernel(MASKED.replace("CONDITION", "j <= i"))
    kernel = guard_select(tile(naive, "counted", {"i": 4, "j": 5}), "counted")
    equal(naive, kernel)
    assert guard_select(kernel, "counted") is kernel
    assert to_text(kernel).endswith(
        """\
  for i_o in 6:
    for j_o in 4:
      if j_o * 5 + 3 < i_o * 4:
        compute counted(i in 4, j in 5):
          y[i + i_o * 4, j + j_o * 5] = x[i + i_o * 4, j + j_o * 5]
      else:
        compute counted(i in 4, j in 5):
          y[i + i_o * 4, j + j_o * 5] = select(j + j_o * 5 <= i + i_o * 4, x[i + i_o * 4, j + j_o * 5], -inf)"""  # noqa: E501  # as it is printed
    )


def test_both_ends_of_a_window_are_tested() -> None:
    naive = parse_kernel(MASKED.replace("CONDITION", "j <= i and i < j + 9"))
    kernel = guard_select(tile(naive, "counted", {"i": 4, "j": 4}), "counted")
    equal(naive, kernel)
    (test,) = (s.condition for s in walk_stmts(kernel.body) if isinstance(s, If))
    assert str(test) == "j_o < i_o and i_o < j_o + 2"


@pytest.mark.parametrize(
    "condition",
    [
        "x[i, j] < 0.5",
        "bitcast(s32, x[i, j]) < s32(0)",
        "j * i < 9",
        "j < 12",
    ],
)
def test_selects_that_no_place_decides_stay(condition: str) -> None:
    """What memory says, what is not linear, and what is known for each tile or for none."""
    kernel = tile(parse_kernel(MASKED.replace("CONDITION", condition)), "counted", {"i": 4})
    assert guard_select(kernel, "counted") is kernel


def test_what_an_element_is_decides_for_that_one_only() -> None:
    text = MASKED.replace("    y[i, j] =", "    v = x[i, j]\n    y[i, j] =")
    text = text.replace("CONDITION, x[i, j]", "bitcast(s64, f64(v)) < 0, v")
    kernel = parse_kernel(text)
    assert guard_select(kernel, "counted") is kernel

"""Softmax, norms, sums, argmax, scans: computes that are no contraction, in nests of their own."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from chains import COLUMNS, ROWS, drawn
from needs import NVIDIA, need_device
from sweeps import in_turns
from tilewright.interpret import run as interpret
from tilewright.ir.expr import Expr
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Compute, For, Kernel, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.passes import run as run_passes
from tilewright.recipes import choose
from tilewright.recipes.config import PlainConfig, ReductionConfig
from tilewright.recipes.reducible import divided
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.registry import find_target

SOFTMAX = """
kernel softmax(in x: f32[{n}, {m}], out y: f32[{n}, {m}]):
  alloc largest: f32[{n}]
  alloc e: f32[{n}, {m}]
  alloc total: f32[{n}]
  compute start(i in {n}):
    largest[i] = -inf
  compute find(i in {n}, j in {m}):
    largest[i] max= x[i, j]
  compute exponential(r in {n}, c in {m}):
    e[r, c] = exp(x[r, c] - largest[r])
  compute zero(i in {n}):
    total[i] = 0.0
  compute sum(i in {n}, j in {m}):
    total[i] add= e[i, j]
  compute divide(i in {n}, k in {m}):
    y[i, k] = e[i, k] / total[i]
"""

# The greater value, and the first of its places.
VALUES = ", ".join(f"select(v < w or v == w and q < p, {chosen})" for chosen in ("w, v", "q, p"))


def scheduled(kernel: Kernel, target: str = "x86:avx2") -> tuple[Any, KernelSchedule]:
    return choose.choose(Start(kernel, kernel), find_target(target).machine)


def stages(kernel: Kernel) -> str:
    """All stages that changed something, as text."""
    _, result = scheduled(kernel)
    return "\n".join(f"# {name}\n{to_text(stage)}\n" for name, stage in result.stages.items())


def arrays_of(kernel: Kernel, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        array.name: rng.integers(-3, 4, array.buffer.shape).astype(array.dtype.numpy)
        for array in kernel.arrays
        if array.access != "out"
    }


def defined(kernel: Kernel, arrays: dict[str, Any]) -> dict[str, Any]:
    """What the kernel's definition gives."""
    memory = {name: array.ravel().copy() for name, array in arrays.items()}
    for param in kernel.arrays:
        if param.name not in memory:
            memory[param.name] = np.zeros(param.buffer.layout.extent, param.dtype.numpy)
    interpret(kernel, memory)
    return {p.name: memory[p.name].reshape(p.buffer.shape) for p in kernel.arrays}


def check(kernel: Kernel, target: str = "x86:avx2") -> Any:
    """Compiled code gives what the definition gives, to the bit."""
    arrays = arrays_of(kernel)
    wanted = defined(kernel, arrays)
    result = tw.compile(kernel, target, threads=2)
    value = result(**arrays)
    results = value if isinstance(value, dict) else {"y": value}
    assert results
    for name, values in results.items():
        np.testing.assert_array_equal(values, wanted[name], err_msg=name)
    return result


def test_stages_of_softmax(golden: Any) -> None:
    golden("softmax_stages", stages(tw.parse_kernel(SOFTMAX.format(n=64, m=72))))


@pytest.mark.parametrize(("n", "m"), [(7, 1000), (64, 3), (1, 40000)])
def test_softmax(n: int, m: int) -> None:
    result = tw.compile(tw.parse_kernel(SOFTMAX.format(n=n, m=m)), "x86:avx2", threads=2)
    assert isinstance(result.config, ReductionConfig)
    x = (np.random.default_rng(0).standard_normal((n, m)) * 20).astype(np.float32)
    x[0, 0] = 1e30  # An exponential that is not shifted would be infinite.
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(result(x=x), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-30)


def test_nan_and_infinity_in_softmax() -> None:
    result = tw.compile(tw.parse_kernel(SOFTMAX.format(n=4, m=40)), "x86:avx2", threads=1)
    x = np.zeros((4, 40), np.float32)
    x[0, 17], x[1, 3], x[2, 39] = np.nan, np.inf, -np.inf
    y = result(x=x)
    assert np.isnan(y[0]).all()
    assert np.isnan(y[1]).all()  # inf - inf is in the sum
    assert y[2, 39] == 0 and np.allclose(y[2, :39], 1 / 39)


ROW_SUMS = """
kernel rows(in x: f32[{n}, 1003], out y: f32[{n}]):
  compute zero(i in {n}):
    y[i] = 0.0
  compute sum(i in {n}, j in 1003):
    y[i] add= x[i, j]
"""


def test_sums_over_rows() -> None:
    result = check(tw.parse_kernel(ROW_SUMS.format(n=37)))
    assert isinstance(result.config, ReductionConfig)
    assert "parallel for i_o in 9" in to_text(result.schedule.kernel)


@pytest.mark.parametrize("seed", in_turns(8, range(64)))
def test_random_chains(seed: int) -> None:
    kernel = tw.parse_kernel(drawn(random.Random(seed)))
    assert not isinstance(check(kernel).config, PlainConfig)


@pytest.mark.parametrize("seed", in_turns(8, range(96)))
def test_random_chains_of_any_size(seed: int) -> None:
    """One kernel serves all sizes."""
    rng, symbols = random.Random(seed), ("i", "j", "ij")[seed % 3]
    kernel = tw.parse_kernel(drawn(rng, symbols))
    result = tw.compile(kernel, "x86:avx2", threads=2)
    assert isinstance(result.config, ReductionConfig)
    fixed = {p.buffer.name: p.buffer.sizes for p in kernel.arrays}["x"]
    for _ in range(4):
        n, m = (
            drawn_size if isinstance(size, Expr) else size
            for size, drawn_size in zip(fixed, (rng.choice(ROWS), rng.choice(COLUMNS)), strict=True)
        )
        values = np.random.default_rng(seed)
        x = values.integers(-3, 4, (n, m)).astype(np.float32)
        b = values.integers(-3, 4, m).astype(np.float32)
        wanted = tw.compile(kernel, "interpreter")(x=x, b=b)
        np.testing.assert_array_equal(result(x=x, b=b), wanted, err_msg=f"{n} by {m}")


def test_a_sum_of_products_that_reads_nothing_again_is_no_contraction() -> None:
    kernel = tw.parse_kernel("""
kernel variance(in x: f32[16, 64], in mean: f32[16], out y: f32[16]):
  compute zero(i in 16):
    y[i] = 0.0
  compute squares(i in 16, j in 64):
    y[i] add= (x[i, j] - mean[i]) * (x[i, j] - mean[i])
""")
    assert isinstance(check(kernel).config, ReductionConfig)


def test_memory_of_a_last_tile_that_is_shorter() -> None:
    """Both tiles allocate the same buffers: the last one's were taken for the first one's."""
    kernel = tw.parse_kernel("""
kernel columns(in x: f32[3, 261], out y: f32[3, 261]):
  alloc best: f32[261]
  compute start(j in 261):
    best[j] = -inf
  compute find(i in 3, j in 261):
    best[j] max= x[i, j]
  compute store(i in 3, j in 261):
    y[i, j] = x[i, j] - best[j]
""")
    result = check(kernel)
    assert "parallel for i in 3" in to_text(result.schedule.kernel)


@pytest.mark.parametrize(("n", "m"), [(1, 70001), (70001, 1), (30000, 3)])
def test_few_results_of_much(n: int, m: int) -> None:
    """All threads reduce, each its parts, which are combined in order."""
    result = check(
        tw.parse_kernel(f"""
kernel all(in x: f32[{n}, {m}], out s: f32[{n}], out best: f32[{m}], out place: s64[{m}]):
  compute begin(i in {n}):
    s[i] = 1.0
  compute sum(i in {n}, j in {m}):
    s[i] add= x[i, j]
  compute start(j in {m}):
    best[j] = -inf
    place[j] = {n}
  compute find(i in {n}, j in {m}):
    x = x[i, j]
    combiner first(v: f32, p; w: f32, q) from (-inf, {n}) = {VALUES}
    best[j], place[j] first= x, i
""")
    )
    assert "parallel for piece" in to_text(result.schedule.kernel)


BEST = """
kernel rows(
    in x: f32[4, {n}, {m}], out most: f32[4, {n}], out best: f32[4, {n}], out place: s64[4, {n}]
):
  compute start(a in 4, i in {n}):
    most[a, i] = -inf
    best[a, i] = -inf
    place[a, i] = {m}
  compute greatest(a in 4, i in {n}, j in {m}):
    most[a, i] max= x[a, i, j]
  compute find(a in 4, i in {n}, j in {m}):
    x = x[a, i, j]
    combiner first(v: f32, p; w: f32, q) from (-inf, {m}) = {values}
    best[a, i], place[a, i] first= x, j
"""


@pytest.mark.parametrize("target", ["x86:avx2", "x86"])
@pytest.mark.parametrize(("n", "m"), [(32, 16), (24, 40), (40, 70), (40, 65), (9, 64)])
def test_rows_are_reduced_several_at_a_time(n: int, m: int, target: str) -> None:
    """Rows that follow one another are one dim, and in registers rows and lanes change places; of
    36 rows, four."""
    result = check(tw.parse_kernel(BEST.format(n=n, m=m, values=VALUES)), target)
    assert "transpose_f32x" in to_text(result.schedule.kernel)


@pytest.mark.parametrize("target", ["x86:avx2", "x86"])
@pytest.mark.parametrize("how", ["max", "min"])
def test_extremes_of_rows_that_go_together(how: str, target: str) -> None:
    """They are found by bits, of which there are three for each row: NaN and -0.0 count."""
    lowest = {"max": "-inf", "min": "inf"}[how]
    result = tw.compile(
        tw.parse_kernel(f"""
kernel rows(in x: f32[64, 40], out y: f32[64]):
  compute start(i in 64):
    y[i] = {lowest}
  compute main(i in 64, j in 40):
    y[i] {how}= x[i, j]
"""),
        target,
        threads=1,
    )
    text = to_text(result.schedule.kernel)
    assert "main_signed" in text and "transpose_s32x" in text
    special = np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1e-40, -1e-40], np.float32)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 40)).astype(np.float32)
    for row in range(0, 64, 2):
        x[row, rng.integers(40, size=2)] = rng.choice(special, 2)
    x[1::4] = rng.choice(special[4:6], x[1::4].shape)
    x[3::8] = -np.inf
    wanted = np.maximum.reduce(x, axis=1) if how == "max" else np.minimum.reduce(x, axis=1)
    wanted[1::4] = 0.0 if how == "max" else -0.0
    values = result(x=x)
    np.testing.assert_array_equal(values, wanted)
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(values[zero]), np.signbit(wanted[zero]))


@pytest.mark.parametrize(("n", "m"), [(64, 4096), (3, 64)])
def test_rows_are_reduced_one_by_one(n: int, m: int) -> None:
    """Long ones that are read again would leave the first cache; of few, there is no square."""
    _, result = scheduled(tw.parse_kernel(SOFTMAX.format(n=n, m=m)))
    assert "transpose" not in to_text(result.kernel)


@pytest.mark.parametrize("n", [33, 34, 67])
def test_rows_behind_whole_squares_go_one_by_one(n: int) -> None:
    """The others go together: it was all or none. A single one has no dim any more."""
    result = check(tw.parse_kernel(ROW_SUMS.format(n=n)))
    text = to_text(result.schedule.kernel)
    assert "transpose_f32x" in text and "compute sum2_across" in text
    # Those of several dims are one, where fewer are left then.
    result = check(tw.parse_kernel(BEST.format(n=33, m=40, values=VALUES)))
    assert "for a_i_o in 33" in to_text(result.schedule.kernel)


@pytest.mark.parametrize("target", ["x86:avx2", "x86", "spirv:cpu"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_rows_that_share_a_result_do_not_go_together(dtype: str, target: str) -> None:
    """As lanes of a vector, they would add to one element at once."""
    if target.startswith("spirv"):
        need_device(target)
    kernel = tw.parse_kernel(f"""
kernel halves(in x: {dtype}[2, 8, 8, 8], out y: {dtype}[2, 8, 2]):
  compute zero(a in 2, b in 8, c in 2):
    y[a, b, c] = {dtype}(0.0)
  compute sum(a in 2, b in 8, i in 8, j in 8):
    v = x[a, b, i, j]
    y[a, b, i // 4] add= v
""")
    check(kernel, target)


def test_rows_from_memory_are_asked_for() -> None:
    """While a row is computed, the next one comes; none that caches hold, and none that is read
    once."""

    def asks(n: int, text: str) -> bool:
        _, result = scheduled(tw.parse_kernel(text.format(n=n, m=4096)))
        return "prefetch(&x[i + 1, " in to_text(result.kernel)

    once = """
kernel rows(in x: f32[{n}, {m}], out y: f32[{n}]):
  compute zero(i in {n}):
    y[i] = 0.0
  compute sum(i in {n}, j in {m}):
    y[i] add= x[i, j]
"""
    assert asks(1 << 16, SOFTMAX)
    last = find_target("x86:avx2").machine.caches[-1]
    assert asks(last // 4096 // 4, SOFTMAX)  # What fills a cache to the last byte does not stay.
    assert not asks(8, SOFTMAX)
    assert not asks(1 << 16, once)


def test_chains_of_elementwise_computes_need_no_memory() -> None:
    kernel = tw.parse_kernel("""
kernel chain(in x: f32[8, 40], in b: f32[40], out y: f32[8, 40]):
  alloc t: f32[8, 40]
  alloc u: f32[8, 40]
  compute first(i in 8, j in 40):
    t[i, j] = x[i, j] * 2.0
  compute second(i in 8, j in 40):
    u[i, j] = max(t[i, j] + b[j], 0.0)
  compute third(i in 8, j in 40):
    y[i, j] = u[i, j] - x[i, j]
""")
    result = check(kernel)
    assert "alloc" not in to_text(result.schedule.kernel)


@pytest.mark.parametrize("seed", in_turns(8, range(64)))
@pytest.mark.parametrize("target", ["spirv:gpu", "nvidia:sm_80"])
def test_random_chains_in_workgroups(seed: int, target: str) -> None:
    """What the target gets runs in the interpreter, which finds races."""
    kernel = tw.parse_kernel(drawn(random.Random(seed)))
    config, result = scheduled(kernel, target)
    assert not isinstance(config, PlainConfig)
    arrays = arrays_of(kernel)
    wanted, values = defined(kernel, arrays), defined(run_passes(result.kernel), arrays)
    np.testing.assert_array_equal(values["y"], wanted["y"])


@pytest.mark.parametrize("target", ["spirv:cpu", "spirv:gpu", NVIDIA])
def test_chains_run_on_opencl(target: str) -> None:
    need_device(target)
    for seed in range(100, 103):
        check(tw.parse_kernel(drawn(random.Random(seed))), target)


SUM = """
kernel all(in x: f32[{n}, {m}], out y: f32[1]):
  compute zero():
    y[0] = 0.0
  compute sum(i in {n}, j in {m}):
    y[0] add= x[i, j]
"""


def test_a_whole_sum_fills_the_grid() -> None:
    """Workgroups for parts of the rows, all of whose work-items reduce."""
    kernel = tw.parse_kernel(SUM.format(n=1000, m=1000))
    _, result = scheduled(kernel, "nvidia:sm_80")
    loops = [s for s in walk_stmts(result.kernel.body) if isinstance(s, For)]
    groups = [str(s.extent) for s in loops if s.kind is LoopKind.GRID]
    items = {str(s.extent) for s in loops if s.kind is LoopKind.WORKGROUP}
    assert max(map(int, groups)) >= 300 and items == {"128"}


def test_stages_of_rows_in_workgroups(golden: Any) -> None:
    _, result = scheduled(tw.parse_kernel(SOFTMAX.format(n=6, m=300)), "spirv:gpu")
    golden("softmax_workgroups", to_text(result.kernel))


def test_a_sum_of_differences_compiles_for_devices() -> None:
    """It was taken for a product of a matrix and a vector, which nothing could pad."""
    kernel = tw.parse_kernel("""
kernel differences(in x: f32[37, 50], in b: f32[50], out y: f32[37]):
  compute zero(i in 37):
    y[i] = 0.0
  compute sum(i in 37, j in 50):
    y[i] add= x[i, j] - b[j]
""")
    config, result = scheduled(kernel, "spirv:gpu")
    arrays = arrays_of(kernel)
    values = defined(result.kernel, arrays)["y"]
    assert isinstance(config, ReductionConfig)
    np.testing.assert_array_equal(values, defined(kernel, arrays)["y"])


def test_only_the_last_vector_is_masked() -> None:
    """Of every tile, whether its length is one of whole vectors or not."""
    kernel = tw.parse_kernel("""
kernel rows(in x: f32[64, 1003], in b: f32[1003], out y: f32[64, 1003]):
  compute f(i in 64, j in 1003):
    y[i, j] = x[i, j] + b[j]
""")
    text = to_text(check(kernel).schedule.kernel)
    assert "if " not in text and "vector for j in 8" in text and "vector for j in 3" in text


def test_windows_with_strides_are_reduced_in_vectors_of_results() -> None:
    result = check(
        tw.parse_kernel(
            """
kernel pooled(in x: f32[6, 40, 70], inout y: f32[6, 20, 35]):
  compute start(c in 6, h in 20, w in 35):
    y[c, h, w] = -inf
  compute most(c in 6, h in 20, w in 35, i in 3, j in 3):
    y[c, h, w] max= select(1 <= h*2 + i and 1 <= w*2 + j and w*2 + j < 71, \
x[c, h*2 + i - 1, w*2 + j - 1 | 1 <= h*2 + i and 1 <= w*2 + j and w*2 + j < 71], -inf)
""".replace("\\\n", "")
        )
    )
    assert isinstance(result.config, ReductionConfig)
    assert "vector for w in 8" in to_text(result.schedule.kernel)


def test_transposes_go_through_registers() -> None:
    result = check(
        tw.parse_kernel("""
kernel turn(in x: f32[67, 130], out y: f32[130, 67]):
  compute f(i in 130, j in 67):
    y[i, j] = x[j, i] + 1.0
""")
    )
    assert "<transpose" in to_text(result.schedule.kernel)


@pytest.mark.parametrize(("body", "lanes"), [("erf(x)", 24), ("exp(x)", 24), ("x * 2.0", 24)])
def test_what_combines_nothing_goes_on_several_registers_at_a_time(body: str, lanes: int) -> None:
    text = f"""
kernel each(in x: f32[4, 128], out y: f32[4, 128]):
  compute each(i in 4, j in 100):
    x = x[i, j]
    y[i, j] = {body}
"""
    kernel = tw.parse_kernel(text.replace("100", "96"))
    result = tw.compile(kernel, "x86:avx2", threads=1)
    assert f"vector for j in {lanes}" in to_text(result.schedule.kernel)
    x = np.random.default_rng(0).standard_normal((4, 128)).astype(np.float32)
    results, wanted = result(x=x), tw.compile(kernel, "interpreter")(x=x)
    np.testing.assert_allclose(results[:, :96], wanted[:, :96], rtol=1e-6)
    # What is behind whole vectors of several registers goes apart.
    odd = tw.compile(tw.parse_kernel(text), "x86:avx2", threads=1)
    vectors = re.findall(r"vector for j in (\d+)", to_text(odd.schedule.kernel))
    assert set(vectors) == {"32", "4"}
    results, wanted = odd(x=x), tw.compile(tw.parse_kernel(text), "interpreter")(x=x)
    np.testing.assert_allclose(results[:, :100], wanted[:, :100], rtol=1e-6)


def test_rows_without_gaps_are_one() -> None:
    """A rest of a vector in each row is one of all; a factor of each row keeps them apart."""
    text = """
kernel each(in x: f32[40, 100], in f: f32[40], out y: f32[40, 100]):
  compute each(i in 40, j in 100):
    y[i, j] = BODY
"""
    rng = np.random.default_rng(0)
    x, f = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((40, 100), 40))
    for body, loop in (("x[i, j] * 2.0", "for i_j in"), ("x[i, j] * f[i]", "vector for j in 4:")):
        result = tw.compile(tw.parse_kernel(text.replace("BODY", body)), "x86:avx2", threads=1)
        assert loop in to_text(result.schedule.kernel)
        factor = f[:, None] if "f[i]" in body else np.float32(2)
        np.testing.assert_array_equal(result(x=x, f=f), x * factor)


def test_results_that_are_a_part_of_an_array_are_made_row_by_row() -> None:
    """As those of a concatenation: they were made in strips of few neighbours of all rows."""
    text = """
kernel part(in x: f32[500, 1000], inout y: f32[1000, 2000]):
  compute part(i in 500, j in 1000):
    y[i + 500, j] = x[i, j]
"""
    result = tw.compile(tw.parse_kernel(text), "x86:avx2", threads=2)
    assert "parallel for i in 500:" in to_text(result.schedule.kernel)
    x, y = np.random.default_rng(0).random((500, 1000), np.float32), np.zeros((1000, 2000), "f")
    result(x=x, y=y)
    wanted = np.zeros_like(y)
    wanted[500:, :1000] = x
    np.testing.assert_array_equal(y, wanted)


def test_groups_of_few_neighbours_fill_a_device() -> None:
    """Sums over a few channels of all pixels: too few neighbours for a workgroup's work-items,
    which had a whole group each."""
    op = tw.group_norm("g32mb2ic320ih64iw64", src="axb", dst="axb")
    launches = tw.compile(op, "spirv:gpu").module.launches
    large = [launch for launch in launches if int(launch.groups) * launch.items >= 512]
    assert len(large) >= 3  # two sums, and the result


def reduced_by(threads: int, problem: str, **asked: Any) -> str:
    """What x86 makes of a reduction on so many threads."""
    op = tw.reduce(problem, **asked).resolved()
    machine = replace(find_target("x86:avx2").machine, cores=threads)
    return to_text(choose.choose(Start.of(op), machine)[1].kernel)


@pytest.mark.parametrize("problem", ("1000000:1", "4096x4096:1x1", "4096x4096:1x4096"))
def test_threads_share_few_results_in_pieces(problem: str) -> None:
    assert "parallel for piece" in reduced_by(2, problem)
    assert "piece" not in reduced_by(1, problem)


def test_rows_are_read_one_behind_the_other() -> None:
    result = reduced_by(1, "8x56x56x64:1x1x1x64")
    loops = [line.split()[1] for line in result.splitlines() if line.strip().startswith("for ")]
    assert loops == ["d0", "d1", "d2_o", "d3_o"]


def test_greatest_elements_are_not_rounded_at_each_step() -> None:
    result = reduced_by(1, "64x64:64x1", algorithm="max", dtype="bf16")
    assert result.count("bf16(") == 1


@pytest.mark.parametrize("given", ("i in 64, j in 768", "j in 768, i in 64"))
@pytest.mark.parametrize("place", ("i", "clamp"))
def test_what_is_moved_only_fills_registers(given: str, place: str) -> None:
    """Vectors of four registers, also of rows at loaded places; what is computed takes those of
    f32."""
    if place == "clamp":
        place, declared = "max(min(s64(p[i]), 63), 0)", "in p: s32[64], "
    else:
        declared = ""
    text = f"""
kernel move(in x: bf16[64, 768], {declared}out y: bf16[64, 768]):
  compute move({given}):
    y[i, j] = VALUE
"""
    result = to_text(scheduled(tw.parse_kernel(text.replace("VALUE", f"x[{place}, j]")))[1].kernel)
    assert re.search("vector for (i_)?j in 64", result)
    value = f"x[{place}, j] * bf16(2.0)"
    result = to_text(scheduled(tw.parse_kernel(text.replace("VALUE", value)))[1].kernel)
    assert re.search("vector for (i_)?j in 32", result)


def test_loops_around_are_no_dims_of_a_reduction() -> None:
    """Results that a loop around places have no step along it."""
    kernel = tw.parse_kernel("""
kernel sums(in x: f32[2, 4, 16], out y: f32[2, 4]):
  for b in 2:
    compute start(i in 4):
      y[b, i] = 0.0
    compute total(i in 4, j in 16):
      y[b, i] add= x[b, i, j]
""")
    s = KernelSchedule(kernel)
    s.name_operands()
    (total,) = (c for c in walk_stmts(s.kernel.body) if isinstance(c, Compute) and c.combiner)
    divided(s, total, ReductionConfig(8))
    assert to_text(s.kernel).count("compute") == 2

"""Products that are chained through a normalization: attention as one kernel."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from graph_texts import transformer
from schedule_replays import fault_of
from tilewright.dtypes import bf16
from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Allocate, Compute, For
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes import chained as recipe
from tilewright.recipes import choose
from tilewright.recipes.config import ChainedConfig, GroupsConfig
from tilewright.recipes.start import Start
from tilewright.schedule.queries import chained as queries
from tilewright.schedule.queries import crossed
from tilewright.schedule.queries.access import buffers_allocated, buffers_written
from tilewright.schedule.queries.chained import chained
from tilewright.schedule.queries.flow import flow
from tilewright.schedule.queries.place import sequence
from tilewright.targets.registry import find_target
from tilewright.testing.verify import Status, verify

# Large enough that what one product hands to the other is worth a group.
LARGE = "1x3x130x16:1x3x140x16"


def machine(name: str = "x86:avx2") -> Machine:
    return find_target(name).machine


def compiled(op: tw.Op, config: ChainedConfig | None = None) -> tw.CompiledKernel:
    return tw.compile(op, target="x86:avx2", threads=2, config=config)


def test_processors_take_them_as_one() -> None:
    op = tw.attention(LARGE)
    assert isinstance(compiled(op).config, ChainedConfig)
    config, _ = choose.choose(Start.of(op), machine("nvidia:sm_80"))
    assert isinstance(config, GroupsConfig) and len(config.groups) > 2


def test_twice_the_network_is_looked_at_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other rows of it go on with behind a product is no part of its chain, and what goes
    along with a residual is found once, not for each product."""
    looked = 0
    before = crossed.same_dims

    def counted(computes: Sequence[Compute]) -> object:
        nonlocal looked
        looked += len(computes)
        return before(computes)

    monkeypatch.setattr(queries, "_SMALL", 0)
    for module in (queries, crossed):
        monkeypatch.setattr(module, "same_dims", counted)
    counts: list[int] = []
    for layers in (4, 8):
        looked = 0
        allocated, items = flow(tw.parse_kernel(transformer(layers)))
        assert len(chained(items, frozenset(allocated))) >= layers
        counts.append(looked)
    assert counts[1] < 2.5 * counts[0]


def test_small_ones_stay_apart() -> None:
    assert isinstance(compiled(tw.attention("1x3x20x16:1x3x20x16")).config, GroupsConfig)


@pytest.mark.parametrize("heads,whole", [(1, False), (2, True), (3, False), (7, True)])
def test_few_rows_of_few_heads_are_split_over_keys(heads: int, whole: bool) -> None:
    """Two workers: one head would leave one of them nothing, three would leave it a third."""
    op = tw.attention(f"1x{4 * heads}x1x64:1x{heads}x16384x64")
    cut = choose.cut_for(Start.of(op), replace(machine(), cores=2))
    assert (len(cut.groups) == 1) == whole


def test_one_head_against_many_keys() -> None:
    op = tw.attention("1x4x1x16:1x1x9000x16", dtype="bf16")
    verdict = verify(op, compiled)
    assert verdict.status is Status.PASSED, verdict.reason


@pytest.mark.parametrize("algorithm", ["full", "causal", "lower_right", "mask", "bias"])
@pytest.mark.parametrize("rows,keys", [(64, 0), (48, 64), (7, 33), (1, 16)])
def test_any_tile_is_right(algorithm: str, rows: int, keys: int) -> None:
    """With rests of rows and keys, and parts that masks leave out."""
    op = tw.attention(LARGE, algorithm, logarithms=rows == 48)
    verdict = verify(op, lambda op: compiled(op, ChainedConfig(rows, keys)))
    assert verdict.status is Status.PASSED, verdict.reason


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64", "f32:bf16"])
def test_types(dtype: str) -> None:
    op = tw.attention("2x4x70x24:2x2x130x24:20", "causal", dtype=dtype, window=50)
    verdict = verify(op, compiled)
    assert verdict.status is Status.PASSED, verdict.reason


@pytest.mark.parametrize("heads", [1, 3])
def test_rests_of_rows_and_keys_go_in_parts_too(heads: int) -> None:
    """Whole rows of scores would not fit a thread's stack; of one head, the rest of the rows stands
    in no loop."""
    op = tw.attention(f"1x{heads}x1500x16:1x{heads}x1500x16")
    verdict = verify(op, compiled)
    assert verdict.status is Status.PASSED, verdict.reason
    config, schedule = choose.choose(Start.of(op), machine("x86:avx2"))
    assert isinstance(config, ChainedConfig)
    scores = [
        stmt.buffer.bytes
        for stmt in walk_stmts(schedule.kernel.body)
        if isinstance(stmt, Allocate) and stmt.buffer.name == "scores"
    ]
    assert scores and max(scores) <= 4 * config.rows * config.keys


def test_heads_that_share_keys_go_apart() -> None:
    """The dims of heads are digits of one dim of the result."""
    kernel = tw.attention("1x8x64x16:1x2x128x16").kernel()
    allocated, items = flow(kernel)
    (chain,) = chained(items, frozenset(allocated))
    assert len(chain.items) == len(items)
    assert [level[0] for level in chain.levels] == ["b", "h", "g", "m"]


PROJECTED = """
kernel projected(in x: f32[96, 64, 32], in w: f32[32, 32], in k: f32[96, 64, 32],
    in v: f32[96, 64, 32], out y: f32[96, 64, 32]):
  alloc q: f32[96, 64, 32]
  compute nothing(b in 96, i in 64, d in 32):
    q[b, i, d] = 0.0
  compute projection(b in 96, i in 64, d in 32, c in 32):
    f = x[b, i, c]
    g = w[c, d]
    q[b, i, d] add= f * g
  alloc s: f32[96, 64, 64]
  compute clear(b in 96, i in 64, j in 64):
    s[b, i, j] = 0.0
  compute scores(b in 96, i in 64, j in 64, d in 32):
    f = q[b, i, d]
    g = k[b, j, d]
    s[b, i, j] add= f * g
  alloc most: f32[96, 64]
  compute least(b in 96, i in 64):
    most[b, i] = -inf
  compute greatest(b in 96, i in 64, j in 64):
    f = s[b, i, j]
    most[b, i] max= f
  alloc e: f32[96, 64, 64]
  compute powers(b in 96, i in 64, j in 64):
    f = s[b, i, j]
    m = most[b, i]
    e[b, i, j] = exp(f - m)
  compute start(b in 96, i in 64, d in 32):
    y[b, i, d] = 0.0
  compute result(b in 96, i in 64, d in 32, j in 64):
    f = e[b, i, j]
    g = v[b, j, d]
    y[b, i, d] add= f * g
"""


def test_keys_and_values_are_packed_once_for_a_head() -> None:
    """Ahead of the loops over tiles of queries, whose heads share them: in types that products read
    side by side, keys and values."""
    op = tw.attention("1x4x256x64:1x2x256x64", "causal", dtype=bf16)
    kernel = tw.compile(op, target="x86:avx512_bf16", threads=2)
    body = kernel.stages["packed once"].body
    ahead = [s for s in sequence(body) if isinstance(s, For)][:-1]
    packed = {stmt.buffer for stmt in sequence(body) if isinstance(stmt, Allocate)}
    assert len(ahead) == len(packed) == 2
    assert all(held.shape[:2] == (2, 4) for held in packed)
    assert not packed & buffers_written(sequence(body)[-1])


@pytest.mark.parametrize(
    ("sizes", "algorithm", "window", "keys"),
    [
        ("1x4x128x32:1x4x128x32", "causal", 0, 64),
        ("1x2x1024x32:1x2x1024x32", "causal", 0, 128),
        ("1x1x4096x32:1x1x4096x32", "causal", 0, 256),
        ("1x2x1024x32:1x2x1024x32", "causal", 100, 64),
        ("1x4x1x32:1x4x1024x32", "lower_right", 0, 256),
        ("1x2x1024x32:1x2x1024x32", "full", 0, 256),
    ],
)
def test_masked_keys_go_in_parts_that_leave_the_least(
    sizes: str, algorithm: str, window: int, keys: int
) -> None:
    kernel = tw.attention(sizes, algorithm, window=window).kernel()
    assert recipe._parts(kernel)[0] == keys


def test_tiles_before_the_diagonal_have_no_mask() -> None:
    op = tw.attention("1x4x256x32:1x4x256x32", "causal")
    text = str(compiled(op).stages["tiles"])
    assert len(re.findall(r"if .*l_o", text)) > 1
    assert "else:" in text


def test_what_would_take_much_memory_is_packed_in_its_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call takes no more memory for more heads and keys than so much: here, keys fit alone."""
    monkeypatch.setattr(recipe, "_ONCE", 2 * 2 * 256 * 64 * 2 - 1)
    op = tw.attention("1x4x256x64:1x2x256x64", "causal", dtype=bf16)
    _, schedule = choose.choose(Start.of(op), machine("x86:avx512_bf16"))
    body = schedule.stages["packed once"].body
    (keys,) = [stmt.buffer for stmt in sequence(body) if isinstance(stmt, Allocate)]
    assert keys.bytes <= recipe._ONCE < 2 * keys.bytes


def test_a_chain_begins_with_the_product_that_is_normalized() -> None:
    """What makes its factor is a product of its own: of a tile of rows only, it would be slow."""
    allocated, items = flow(tw.parse_kernel(PROJECTED))
    (chain,) = chained(items, frozenset(allocated))
    names = [compute.name for n in chain.items if (compute := items[n].simple) is not None]
    assert names[0] == "clear" and "projection" not in names and names[-1] == "result"


def test_a_softmax_that_is_divided_first_goes_in_parts_too() -> None:
    """As decompositions write it: each weight divided by the sum, before the second product."""
    shape = "tensor<3x140x600xf32>"
    rows, heads = "tensor<3x140xf32>", "tensor<3x140x16xf32>"
    keys = "tensor<3x600x16xf32>"
    graph = tw.from_stablehlo(f"""
func.func @attention(%q: {heads}, %k: {keys}, %v: {keys}) -> {heads} {{
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : ({heads}, {keys}) -> {shape}
  %1 = stablehlo.reduce(%0 init: %least) applies stablehlo.maximum across dimensions = [2]
    : ({shape}, tensor<f32>) -> {rows}
  %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : ({rows}) -> {shape}
  %3 = stablehlo.subtract %0, %2 : {shape}
  %4 = stablehlo.exponential %3 : {shape}
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [2]
    : ({shape}, tensor<f32>) -> {rows}
  %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : ({rows}) -> {shape}
  %7 = stablehlo.divide %4, %6 : {shape}
  %8 = stablehlo.dot_general %7, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : ({shape}, {keys}) -> {heads}
  return %8 : {heads}
}}
""")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((3, n, 16)).astype(np.float32) for n in (140, 600, 600))
    powers = np.exp(np.float64(q) @ k.swapaxes(1, 2))
    run = tw.compile(graph.kernel, "x86:avx2", threads=2)
    np.testing.assert_allclose(
        run(q, k, v), powers @ v / powers.sum(axis=2, keepdims=True), rtol=1e-4, atol=1e-5
    )
    assert isinstance(run.config, ChainedConfig) and run.config.keys
    steps = run.source("schedule")
    assert ".divide_late(" in steps and ".online(" in steps


def test_a_row_without_keys_is_zero() -> None:
    op = tw.attention("1x3x150x8:1x3x140x8", "mask")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 3, n, 8)).astype(np.float32) for n in (150, 140, 140))
    mask = rng.random((1, 1, 150, 140)) < 0.5
    mask[0, 0, 17] = False
    result = compiled(op, ChainedConfig(32, 48))(queries=q, keys=k, values=v, mask=mask)
    assert (result[:, :, 17] == 0).all() and np.isfinite(result).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("greatest[b, h, m] max= s", "greatest[b, h, m] min= s"),
        ("sums[b, h, m, e] add= p * v", "sums[b, h, m, e] max= p * v"),
    ],
)
def test_other_products_are_no_attention(old: str, new: str) -> None:
    """What does not fit is cut as before, and right."""
    text = str(tw.attention(LARGE).kernel())
    kernel = tw.parse_kernel(text.replace(old, new))
    assert old in text
    allocated, items = flow(kernel)
    result = chained(items, frozenset(allocated))
    assert not result or new.startswith("greatest")
    rng = np.random.default_rng(0)
    shapes = {p.name: p.buffer.shape for p in kernel.arrays if p.access == "in"}
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    found_here = tw.compile(kernel, "x86:avx2")(**arrays)
    wanted = tw.compile(kernel, "interpreter")(**arrays)
    np.testing.assert_allclose(found_here, wanted, rtol=1e-4, atol=1e-5)


def test_the_record_replays() -> None:
    start = Start.of(tw.attention(LARGE, "causal"))
    _, schedule = choose.choose(start, machine())
    assert fault_of(schedule, start, find_target("x86:avx2")) is None


def test_points_of_the_space_compile_or_are_refused() -> None:
    op = tw.attention(LARGE, "causal")
    space = choose.space_of(Start.of(op), machine())
    rng = random.Random(0)
    for _ in range(3):
        config = space.drawn(rng)
        verdict = verify(op, lambda op, config=config: tw.compile(op, "x86:avx2", config=config))
        assert verdict.status is Status.PASSED, (config, verdict.reason)


def test_configs_for_something_else_are_refused() -> None:
    with pytest.raises(ScheduleError, match="ChainedConfig"):
        tw.compile(tw.softmax("64x64"), target="x86:avx2", config=ChainedConfig(16))


def test_factors_that_no_stack_holds_are_not_packed_for_a_tile() -> None:
    """Of rows that are divided before the second product, all keys are there at once."""
    text = str(tw.attention("1x2x40x64:1x2x9000x64").kernel())
    old = "sums[b, h, m, e] add= p * v"
    assert old in text and "dst[b, h, m, e] = select(t == 0.0, 0.0, s / t)" in text
    # What the second product takes is no exponential any more, so nothing is done in parts.
    kernel = tw.parse_kernel(
        text.replace("powers[b, h, m, l] = exp(s - most)", "powers[b, h, m, l] = s - most")
    )
    run = tw.compile(kernel, "x86:avx2", threads=2)
    assert isinstance(run.config, GroupsConfig)
    rng = np.random.default_rng(0)
    shapes = {p.name: p.buffer.shape for p in kernel.arrays if p.access == "in"}
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    q, k, v = (arrays[name].astype(np.float64) for name in ("queries", "keys", "values"))
    scores = q @ k.swapaxes(2, 3) / 8
    weights = scores - scores.max(axis=3, keepdims=True)
    wanted = weights @ v / weights.sum(axis=3, keepdims=True)
    np.testing.assert_allclose(run(**arrays), wanted, rtol=1e-3, atol=1e-4)


GRADIENTS = "1x4x150x16:1x2x260x16:20"


@pytest.mark.parametrize("algorithm", ["full", "causal", "lower_right", "mask", "bias"])
def test_gradients_go_by_tiles(algorithm: str) -> None:
    """Of heads that share keys, with rests of rows and keys, and a tile that a mask leaves out."""
    op = tw.attention(GRADIENTS, algorithm, cap=5.0 * (algorithm == "full"), direction="bwd_data")
    run = compiled(op)
    assert isinstance(run.config, GroupsConfig)
    assert any(isinstance(group, ChainedConfig) for group in run.config.groups)
    verdict = verify(op, lambda op: run)
    assert verdict.status is Status.PASSED, verdict.reason
    crossed = next(str(s) for name, s in run.stages.items() if name.endswith(": crossed"))
    # The first queries do not see the last keys.
    assert crossed.count("compute scores(") == (3 if algorithm == "causal" else 4)


def test_memory_of_gradients_is_linear_in_the_length() -> None:
    """No array has a place for each pair of a query and a key."""
    for length in (200, 400):
        op = tw.attention(f"1x2x{length}x16:1x2x{length}x16", direction="bwd_data")
        text = next(s for n, s in compiled(op).stages.items() if n.endswith(": crossed"))
        sizes = [np.prod(buffer.shape) for buffer in buffers_allocated(text.body)]
        assert max(sizes) <= max(2 * length * 16, 128 * 128)


@pytest.mark.parametrize("dtype", ["bf16", "f64"])
def test_types_of_gradients(dtype: str) -> None:
    op = tw.attention(GRADIENTS, "causal", dtype=dtype, window=50, direction="bwd_data")
    verdict = verify(op, compiled)
    assert verdict.status is Status.PASSED, verdict.reason


def test_a_result_whose_blocks_have_several_batches() -> None:
    """Where its elements lie is said by the loop over batches, too."""
    op = tw.attention("2x2x70x4:2x2x70x4:4:1x2x70x70", "mask", dtype="f64:f32", dst="Abcd16a")
    verdict = verify(op, compiled)
    assert verdict.status is Status.PASSED, verdict.reason

"""Products whose tiles make tiles for one another: blocks of an image network, perceptrons."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from schedule_replays import fault_of
from tilewright.errors import ScheduleError
from tilewright.graph.boundaries import boundaries
from tilewright.graph.cutting import cut_graph, groups_in
from tilewright.graph.listing import listed
from tilewright.interpret import run
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes import choose
from tilewright.recipes.config import GroupsConfig, TiledConfig
from tilewright.recipes.start import Start
from tilewright.recipes.tiled import Tiled, handed_on, in_tiles
from tilewright.runtime.steps import launches
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.registry import find_target

WEIGHTS = ("w1", "b1", "w2", "b2", "w3", "b3")
MACHINE = find_target("x86:avx2").machine


def block(
    n: int, size: int, c: int, e: int, o: int, *, step: int = 1, taps: int = 3, rest: bool = False
) -> Kernel:
    """1x1 into depthwise into 1x1, on ``n`` images of ``size`` squared; ``rest``: the input is
    added to the result."""
    pad = taps // 2
    out = (size - 1) // step + 1
    at = [f"{d}*{step} + {t} - {pad}" for d, t in (("y", "r"), ("x", "s"))]
    inside = " and ".join(f"0 <= {index} and {index} < {size}" for index in at)
    last = f"n in {n}, y in {out}, x in {out}"
    text = f"""
kernel block(in x0: f32[{n}, {size}, {size}, {c}], in w1: f32[{c}, {e}], in b1: f32[{e}],
    in w2: f32[{taps}, {taps}, {e}], in b2: f32[{e}], in w3: f32[{e}, {o}], in b3: f32[{o}],
    out z: f32[{n}, {out}, {out}, {o}]):
  alloc h: f32[{n}, {size}, {size}, {e}]
  alloc d: f32[{n}, {out}, {out}, {e}]
  compute start1(n in {n}, y in {size}, x in {size}, e in {e}):
    h[n, y, x, e] = b1[e]
  compute expand(n in {n}, y in {size}, x in {size}, e in {e}, c in {c}):
    h[n, y, x, e] add= x0[n, y, x, c] * w1[c, e]
  compute clip1(n in {n}, y in {size}, x in {size}, e in {e}):
    h[n, y, x, e] = min(max(h[n, y, x, e], 0.0), 6.0)
  compute start2({last}, e in {e}):
    d[n, y, x, e] = b2[e]
  compute depth({last}, e in {e}, r in {taps}, s in {taps}):
    d[n, y, x, e] add= h[n, {at[0]}, {at[1]}, e | {inside}] * w2[r, s, e]
  compute clip2({last}, e in {e}):
    d[n, y, x, e] = min(max(d[n, y, x, e], 0.0), 6.0)
  compute start3({last}, c in {o}):
    z[n, y, x, c] = b3[c]
  compute project({last}, c in {o}, e in {e}):
    z[n, y, x, c] add= d[n, y, x, e] * w3[e, c]
"""
    if rest:
        text += f"""  compute residual({last}, c in {o}):
    z[n, y, x, c] = z[n, y, x, c] + x0[n, y, x, c]
"""
    return tw.parse_kernel(text)


def arrays(kernel: Kernel, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        p.name: rng.normal(0, 0.5, p.buffer.shape).astype(np.float32)
        for p in kernel.arrays
        if p.access == "in"
    }


def wanted(kernel: Kernel, given: dict[str, Any], rest: bool) -> Any:
    """The block's result by NumPy, in f64."""
    a = {name: value.astype(np.float64) for name, value in given.items()}
    taps, out = a["w2"].shape[0], kernel.arrays[-1].buffer.shape[1]
    step = -(-a["x0"].shape[1] // out) if out > 1 else a["x0"].shape[1]
    around = (taps // 2, taps // 2)
    h = np.pad(np.clip(a["x0"] @ a["w1"] + a["b1"], 0, 6), ((0, 0), around, around, (0, 0)))
    d = a["b2"] + sum(
        h[:, r : r + (out - 1) * step + 1 : step, s : s + (out - 1) * step + 1 : step]
        * a["w2"][r, s]
        for r in range(taps)
        for s in range(taps)
    )
    return np.clip(d, 0, 6) @ a["w3"] + a["b3"] + (a["x0"] if rest else 0)


def interpreted(kernel: Kernel, given: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """What the interpreter leaves in ``z``, which finds reads outside of arrays, too."""
    flat = {name: value.ravel() for name, value in given.items()}
    flat["z"] = np.zeros(math.prod(shape), np.float32)
    run(kernel, flat)
    return flat["z"].reshape(shape)


def compiled(kernel: Kernel, tile: dict[str, int], **keywords: Any) -> tw.CompiledKernel:
    sizes = dict(zip("nyxc", kernel.arrays[-1].buffer.shape, strict=False))
    config = TiledConfig({name: n for name, n in tile.items() if sizes.get(name) != 1})
    return tw.compile(kernel, "x86:avx2", threads=2, config=config, **keywords)


def test_a_tile_of_the_result_takes_tiles_of_all_before() -> None:
    """Two rows of the result take four of what the taps read, which may begin before the image."""
    s = tw.Schedule(block(1, 6, 4, 8, 4, rest=True), "x86:avx2")
    s.name_operands()
    s.compute_at(
        "residual",
        {"y": 2},
        producers=[
            *("start1", "expand", "clip1", "start2", "depth", "clip2", "start3", "project"),
        ],
    )
    lines = to_text(s.kernel).split("\n")
    body = "\n".join(line.strip() for line in lines[lines.index("  for y_o in 3:") :])
    assert "alloc h: f32[1, 4, 6, 8] private\nalloc d: f32[1, 2, 6, 8] private" in body
    assert (
        "compute expand(y in 4, x in 6, e in 8, c in 4):\n"
        "x0 = x0[0, y + y_o * 2 - 1, x, c | 1 <= y + y_o * 2 and y + y_o * 2 < 7]" in body
    )
    assert "h = h[0, r + y, s + x - 1, e | 1 <= r + y + y_o * 2 and" in body
    values = arrays(block(1, 6, 4, 8, 4, rest=True))
    right = wanted(s.kernel, values, True)
    np.testing.assert_allclose(interpreted(s.kernel, values, right.shape), right, atol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_random_blocks(seed: int) -> None:
    """Against f64, compiled and in the interpreter; rests of rows, strides, windows that are wider
    than a tile."""
    draw = random.Random(seed)
    step, rest = draw.choice([1, 1, 2]), draw.random() < 0.5
    n, size, c = draw.choice([1, 2]), draw.randint(5, 11), draw.choice([4, 8, 11])
    same = rest and step == 1
    kernel = block(
        n, size, c, draw.choice([8, 20, 32]), c if same else 24,
        step=step, taps=draw.choice([1, 3, 5]), rest=same,
    )  # fmt: skip
    tile = {"n": 1, "y": draw.randint(1, 4), "x": draw.choice([2, 100])}
    values = arrays(kernel, seed)
    right = wanted(kernel, values, same)
    result = compiled(kernel, tile)
    np.testing.assert_allclose(result(**values), right, atol=2e-5)
    if seed < 3:
        results = interpreted(result.schedule.kernel, values, right.shape)
        np.testing.assert_allclose(results, right, atol=2e-5)


def test_weights_are_packed_once_for_all_tiles() -> None:
    kernel = block(2, 8, 8, 16, 8)
    result = compiled(kernel, {"n": 1, "y": 2}, constant=WEIGHTS)
    packed = {"w1", "w2", "w3"}
    assert set(result.schedule.packs) == packed
    values = arrays(kernel)
    ready = {n: result.pack(n, v) if n in packed else v for n, v in values.items()}
    np.testing.assert_allclose(result(**ready), wanted(kernel, values, False), atol=2e-5)
    start = Start(kernel, kernel, constant=WEIGHTS)
    recipe = choose.recipe_of(result.config, MACHINE)
    scheduled = recipe.carried_out(start, MACHINE, result.config)
    assert fault_of(scheduled, start, find_target("x86:avx2")) is None


def test_what_others_read_is_not_packed_for_all_tiles() -> None:
    kernel = tw.parse_kernel("""
kernel f(in x: f32[32, 16], in w: f32[16, 16], out y: f32[32, 16], out z: f32[16, 16]):
  compute zero(m in 32, n in 16):
    y[m, n] = 0.0
  compute product(m in 32, n in 16, k in 16):
    y[m, n] add= x[m, k] * w[k, n]
  compute copy(k in 16, n in 16):
    z[k, n] = w[k, n]
""")
    s = tw.Schedule(kernel, "x86:avx2")
    s.name_operands()
    s.compute_at("product", {"m": 8}, producers=["zero"])
    with pytest.raises(ScheduleError, match="'w' cannot be packed for all tiles"):
        s.on_tiles(
            "product",
            lambda part: choose.choose(Start(part, part, constant=("w",)), MACHINE)[1],
        )


@pytest.mark.parametrize(
    "sizes,reads,refusal",
    [
        ({"e": 4}, "d[m, e]", "would be filled again for each tile of 'e'"),
        ({"m": 4}, "d[m*m % 16, e]", "reaches 'd' at"),
    ],
)
def test_no_tile_for_a_tile(sizes: dict[str, int], reads: str, refusal: str) -> None:
    kernel = tw.parse_kernel(f"""
kernel f(in x: f32[16, 8], in w: f32[8, 8], out y: f32[16, 8]):
  alloc d: f32[16, 8]
  compute first(m in 16, e in 8):
    d[m, e] = x[m, e] * 2.0
  compute zero(m in 16, n in 8):
    y[m, n] = 0.0
  compute product(m in 16, n in 8, e in 8):
    y[m, n] add= {reads} * w[e, n]
""")
    s = tw.Schedule(kernel, "x86:avx2")
    s.name_operands()
    with pytest.raises(ScheduleError, match=refusal):
        s.compute_at("product", sizes, producers=["first", "zero"])


def test_no_window_of_what_is_gathered() -> None:
    """The array of places would be read before it begins and behind its end."""
    kernel = tw.parse_kernel("""
kernel f(in x: f32[16, 8], in places: s32[16], out y: f32[16, 8]):
  alloc d: f32[16, 8]
  compute first(m in 16, e in 8):
    d[m, e] = x[s64(places[m]), e] * 2.0
  compute zero(m in 16, e in 8):
    y[m, e] = 0.0
  compute taps(m in 16, e in 8, t in 3):
    y[m, e] add= d[m + t - 1, e | 0 <= m + t - 1 and m + t - 1 < 16]
""")
    s = tw.Schedule(kernel, "x86:avx2")
    s.name_operands()
    with pytest.raises(ScheduleError, match="'first' loads what no operand is"):
        s.compute_at("taps", {"m": 4}, producers=["first", "zero"])


def test_what_several_need_is_in_no_tile() -> None:
    """A result that the caller gets too is made whole, so that the kernel is in groups."""
    both = "in x0: f32[64, 8], in w: f32[8, 32], in v: f32[32, 8], out z: f32[64, 8]"
    text = """
  {place}
  compute zero(m in 64, e in 32):
    h[m, e] = 0.0
  compute first(m in 64, e in 32, c in 8):
    h[m, e] add= x0[m, c] * w[c, e]
  compute zero2(m in 64, c in 8):
    z[m, c] = 0.0
  compute second(m in 64, c in 8, e in 32):
    z[m, c] add= h[m, e] * v[e, c]
"""
    inner = tw.parse_kernel(f"kernel f({both}):" + text.format(place="alloc h: f32[64, 32]"))
    kernel = tw.parse_kernel(f"kernel f({both}, out h: f32[64, 32]):" + text.format(place=""))
    assert in_tiles(inner) and handed_on(inner) == 64 * 32 * 4
    assert not in_tiles(kernel)
    with pytest.raises(ScheduleError, match="not made for its tiles alone"):
        compiled(kernel, {"m": 8})


def test_predicted_times_decide() -> None:
    """Of one small image, all stays in a cache; of several larger ones, it does not."""
    small, large = block(1, 14, 96, 576, 96), block(8, 56, 24, 144, 24, rest=True)
    wide = replace(find_target("x86:avx512_bf16").machine, caches=(32 << 10, 1 << 20, 32 << 20))
    assert isinstance(choose.choose(Start(small, small), wide)[0], GroupsConfig)
    config, _ = choose.choose(Start(large, large, constant=WEIGHTS), wide)
    assert isinstance(config, TiledConfig) and config.tile["n"] == 1


def test_graphs_ask_for_what_leaves_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduled: list[object] = []
    before = Tiled.schedule

    def noted(self: Tiled, s: KernelSchedule, machine: Machine, config: TiledConfig) -> None:
        scheduled.append(config)
        before(self, s, machine, config)

    monkeypatch.setattr(Tiled, "schedule", noted)
    large, small = block(8, 56, 24, 144, 24, rest=True), block(1, 14, 8, 48, 8)
    cut = cut_graph(large)
    assert len(list(launches(cut.steps))) == 1
    machine = find_target("x86:avx512_bf16").machine
    text = str(listed(cut, groups_in(large), machine, None))
    assert "one by one" in text and "TiledConfig(tile={" in text
    assert len(scheduled) == len(set(map(repr, scheduled))) > 0
    groups = groups_in(small)
    assert len(groups) == 3
    assert "stays in a cache" in next(boundaries(small, groups)).why


def test_products_of_what_they_make_themselves_are_cut() -> None:
    """They come from no array, so that what is between them is compared with results alone."""
    kernel = tw.parse_kernel("""
kernel f(in v: f32[32, 8], out z: f32[64, 8]):
  alloc g: f32[64, 8]
  alloc w: f32[8, 32]
  alloc h: f32[64, 32]
  compute g1(m in 64, c in 8):
    g[m, c] = f32(m - c)
  compute w1(c in 8, e in 32):
    w[c, e] = f32(c + e)
  compute zero(m in 64, e in 32):
    h[m, e] = 0.0
  compute first(m in 64, e in 32, c in 8):
    h[m, e] add= g[m, c] * w[c, e]
  compute zero2(m in 64, c in 8):
    z[m, c] = 0.0
  compute second(m in 64, c in 8, e in 32):
    z[m, c] add= h[m, e] * v[e, c]
""")
    assert sum(len(group.stmts) for group in groups_in(kernel)) == 6

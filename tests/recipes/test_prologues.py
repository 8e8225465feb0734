"""Prologues of contractions: found by data flow, computed where factors are copied."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import NVIDIA, need_device
from renaming import renamed, with_names
from sweeps import in_turns
from test_groups import arrays_of, check, interpreted, parsed
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.passes import run as run_passes
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig, GroupsConfig, WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.schedule.groups import as_contraction, cut
from tilewright.targets.registry import find_target

HEAD = """
kernel k(in x: f32[40, 48], in q: s8[48, 36], in s: f32[36], in z: s8[36], out y: f32[40, 36]):
  alloc t: f32[48, 36]
  alloc u: s8[48, 36] private
  alloc v: f32[40, 48]
"""
CLEAR = "  compute clear(m in 40, n in 36): y[m, n] = 0.0\n"
PRODUCT = CLEAR + "  compute product(m in 40, n in 36, k in 48): y[m, n] add= x[m, k] * t[k, n]\n"
SCALED = "  compute scaled(c in 48, d in 36): t[c, d] = f32(q[c, d]) * s[d]\n"
SHIFTED = "  compute shifted(i in 48, j in 36): u[i, j] = q[i, j] - z[j]\n"
RELU = "  compute relu(i in 40, j in 48): v[i, j] = max(x[i, j], 0.0) + 1.0\n"
# Bodies whose prologues belong to the contraction, and how many there are.
BODIES = {
    "of B": (SCALED + PRODUCT, 1),
    "in two steps": (SHIFTED + SCALED.replace("q[c", "u[c") + PRODUCT, 2),
    "of A": (RELU + SCALED.replace("* s", "- s") + PRODUCT.replace("x[m", "v[m"), 2),
    "turned": (SCALED.replace("c in 48, d in 36", "d in 36, c in 48") + PRODUCT, 1),
    "in windows": (
        RELU
        + SCALED
        + PRODUCT.replace("k in 48", "k in 48, r in 3").replace(
            "x[m, k]", "v[m + r - 1, k | 0 <= m + r - 1 and m + r - 1 < 40]"
        ),
        2,
    ),
    "of bits": (
        "  compute bits(c in 48, d in 36):\n"
        "    t[c, d] = f32((s32(q[c // 2, d]) >> s32(c % 2 * 4)) % s32(16)) - f32(z[d])\n"
        + PRODUCT,
        1,
    ),
    "of nothing": ("  compute ones(c in 48, d in 36): t[c, d] = f32(c - d)\n" + PRODUCT, 1),
    "what is read changes": (
        "  compute save(c in 40, d in 36): y[c, d] = s[d]\n"
        "  compute early(c in 48, d in 36): t[c, d] = y[c % 40, d]\n" + PRODUCT,
        1,
    ),
    "in front of a start": (
        SCALED + CLEAR.replace("0.0", "s[n]") + PRODUCT.removeprefix(CLEAR),
        1,
    ),
}
# Bodies that have computes in front which are no prologues.
OTHERS = {
    "read by others": SCALED
    + PRODUCT
    + "  compute end(m in 40, n in 36): y[m, n] = y[m, n] + t[m, n]\n",
    "a reduction": "  compute none(c in 48, d in 36): t[c, d] = 0.0\n"
    "  compute sums(c in 48, d in 36, r in 2): t[c, d] add= f32(q[c, (d + r) % 36])\n" + PRODUCT,
    "both factors": "  compute square(a in 40, b in 48): v[a, b] = x[a, b] - 1.0\n"
    "  compute none(m in 40, n in 36): y[m, n] = 0.0\n"
    "  compute product(m in 40, n in 36, k in 48): y[m, n] add= v[m, k] * v[n, k]\n",
    "filled in parts": "  compute low(c in 24, d in 36): t[c, d] = s[d]\n"
    "  compute high(c in 24, d in 36): t[c + 24, d] = s[d] - 1.0\n" + PRODUCT,
}
every_target = pytest.mark.parametrize("target", ["x86:avx2", "spirv:cpu", "spirv:gpu", NVIDIA])


def kernel_of(body: str) -> Kernel:
    return parsed(HEAD.lstrip("\n") + body)


def contraction_of(kernel: Kernel) -> Kernel:
    return next(group.kernel for group in cut(kernel).groups if group.contracts)


def prologues_of(kernel: Kernel) -> list[str]:
    result = [s.name for s in walk_stmts(contraction_of(kernel).body) if isinstance(s, Compute)]
    return [name for name in result if "prologue" in name]


@pytest.mark.parametrize("name", BODIES)
def test_prologues_are_found(name: str) -> None:
    body, count = BODIES[name]
    kernel = kernel_of(body)
    assert len(prologues_of(kernel)) == count
    assert len(cut(kernel).groups) == 1 + (name == "what is read changes")


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not(name: str) -> None:
    kernel = kernel_of(OTHERS[name])
    assert len(cut(kernel).groups) > 1 and not prologues_of(kernel)


def test_the_form_of_prologues() -> None:
    kernel = kernel_of(SHIFTED + SCALED.replace("q[c", "u[c") + PRODUCT)
    assert (
        to_text(as_contraction(kernel)).splitlines()[1:11]
        == """\
  alloc u: s8[48, 36]
  compute b_prologue2(k in 48, n in 36):
    q = q[k, n]
    z = z[n]
    u[k, n] = q - z
  alloc t: f32[48, 36]
  compute b_prologue(k in 48, n in 36):
    u = u[k, n]
    s = s[n]
    t[k, n] = f32(u) * s""".splitlines()
    )


def test_what_a_contraction_may_have_behind_it_is_no_prologue() -> None:
    kernel = parsed(
        """
        kernel two(in x: f32[20, 24], in w: f32[24, 40], in v: f32[40, 90], out y: f32[20, 90]):
          alloc h: f32[20, 40]
          alloc r: f32[20, 40]
          compute clear(m in 20, n in 40): h[m, n] = 0.0
          compute first(m in 20, n in 40, k in 24): h[m, n] add= x[m, k] * w[k, n]
          compute relu(m in 20, n in 40): r[m, n] = max(h[m, n], 0.0)
          compute clear2(m in 20, n in 90): y[m, n] = 0.0
          compute second(m in 20, n in 90, k in 40): y[m, n] add= r[m, k] * v[k, n]
        """
    )
    first, second = cut(kernel).groups
    assert "max(acc, 0.0)" in to_text(first.kernel)
    assert "prologue" not in to_text(second.kernel)


@every_target
@pytest.mark.parametrize("name", in_turns(3, [*BODIES, *OTHERS]))
def test_results_are_those_of_the_interpreter(name: str, target: str) -> None:
    need_device(target)
    check(kernel_of(BODIES[name][0] if name in BODIES else OTHERS[name]), target)


@pytest.mark.parametrize(
    ("name", "target"), [("of A", "nvidia:sm_80"), ("in two steps", "nvidia:sm_90a")]
)
def test_for_nvidia(name: str, target: str) -> None:
    """What the target gets runs in the interpreter."""
    kernel = kernel_of(BODIES[name][0])
    _, scheduled = choose.choose(Start(kernel, kernel), find_target(target).machine)
    arrays = arrays_of(kernel)
    wanted = interpreted(kernel, arrays)
    np.testing.assert_array_equal(
        interpreted(run_passes(scheduled.kernel), arrays)["y"], wanted["y"]
    )
    # The copies of tiles compute what goes into them.
    assert not re.search("alloc [tuv]:", to_text(scheduled.kernel))


def test_copies_of_tiles_compute() -> None:
    """What is zero in a tile beyond its tensor stays zero, and tiles come ahead by registers, as no
    unit computes."""
    kernel = kernel_of(BODIES["in windows"][0])
    config, scheduled = choose.choose(Start(kernel, kernel), find_target("nvidia:sm_80").machine)
    assert isinstance(config, WorkgroupConfig) and config.staging.fill == "registers"
    text = to_text(scheduled.stages["computed"])
    assert "max(x, 0.0) + 1.0, 0.0)" in text and "f32(q) * s" in text


def test_a_packed_factor_is_computed_where_it_is_packed() -> None:
    kernel = kernel_of(SHIFTED + SCALED.replace("q[c", "u[c") + PRODUCT)
    result = tw.compile(kernel, "x86:avx2")
    assert isinstance(result.config, ContractionConfig) and result.config.pack_b
    text = to_text(result.schedule.stages["packed"])
    assert "t_packed[n, k] = f32(q - z) * s" in text and "alloc t:" not in text


def test_weights_with_a_prologue_of_their_own_are_packed_before() -> None:
    """Where another argument goes into them, the kernel packs them."""
    kernel = kernel_of(SCALED.replace("* s[d]", "* 0.5") + PRODUCT)
    result = tw.compile(kernel, "x86:avx2", constant=("s", "q"))
    assert result.packed == ("q",)
    arrays = arrays_of(kernel)
    values: dict[str, Any] = {n: result.pack(n, a) for n, a in arrays.items()}
    np.testing.assert_array_equal(result(**values), interpreted(kernel, arrays)["y"])
    assert tw.compile(kernel_of(SCALED + PRODUCT), "x86:avx2", constant=("s", "q")).packed == ()


def test_configs_that_do_not_copy() -> None:
    """The factor is in memory then."""
    kernel = kernel_of(BODIES["of A"][0])
    config = check(kernel)
    assert not isinstance(config, GroupsConfig)
    arrays = arrays_of(kernel)
    assert isinstance(config, ContractionConfig) and config.pack_b and not config.pack_a
    for changed in ("pack_b=False", "pack_a=True"):
        result = tw.compile(kernel, "x86:avx2", config=changed)
        np.testing.assert_array_equal(result(**arrays), interpreted(kernel, arrays)["y"])


@pytest.mark.parametrize("target", ["x86:avx2", "spirv:gpu"])
def test_names_do_not_matter(target: str) -> None:
    machine = find_target(target)
    for number, name in enumerate(("in two steps", "of A")):
        kernel = kernel_of(BODIES[name][0])
        other, old = renamed(kernel, random.Random(number))
        config, scheduled = choose.choose(Start(kernel, kernel), machine.machine)
        again, same = choose.choose(Start(other, other), machine.machine)
        assert repr(again) == repr(config)
        texts = [machine.lower(run_passes(schedule.kernel)).text for schedule in (scheduled, same)]
        assert texts[0] == with_names(texts[1], old)

"""The passes over graphs, before and after."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest

from graphs import expected_softmax, graph, numbers, run, softmax
from tilewright.graph.passes.channels_last import channels_last
from tilewright.graph.passes.drop_dead import drop_dead
from tilewright.graph.passes.fold_constants import fold_constants
from tilewright.graph.passes.fold_scales import fold_scales
from tilewright.graph.passes.forward_views import forward_views
from tilewright.graph.passes.keep_precision import keep_precision
from tilewright.graph.passes.pipeline import PASSES, optimized
from tilewright.graph.passes.rewrite_values import rewrite_values
from tilewright.graph.passes.share_values import share_values
from tilewright.graph.passes.tidy import tidy
from tilewright.ir import (
    Allocate,
    Compute,
    Kernel,
    difference,
    parse_kernel,
    unary,
    verify,
    walk_stmts,
)
from tilewright.ir.constants import digest_of
from tilewright.tensor import views
from tilewright.tensor.contractions import dot_general
from tilewright.tensor.convolution import convolution
from tilewright.tensor.elementwise import bitcast, elementwise
from tilewright.tensor.tensor import Tensor

PARAMS = "in x: f32[8, 4], in w: f32[8, 4], out y: f32[8, 4]"


def kernel(body: str, params: str = PARAMS, **constants: Any) -> Kernel:
    """A kernel of these statements; `{name}` in the parameters is a constant's digest."""
    digests = {name: digest_of(value) for name, value in constants.items()}
    text = f"kernel k({params.format(**digests)}):\n{indent(dedent(body), '  ')}"
    contents = {digests[name]: value for name, value in constants.items()}
    result = parse_kernel(text, constants=contents)
    verify(result)
    return result


def becomes(change: Callable[[Kernel], Kernel], before: Kernel, after: Kernel) -> None:
    """``change`` makes ``after`` of ``before``, and leaves that alone."""
    result = change(before)
    verify(result)
    assert difference(result, after) is None, str(result)
    assert change(result) is result


def computes(found: Kernel) -> list[Compute]:
    return [s for s in walk_stmts(found.body) if isinstance(s, Compute)]


def test_tidy() -> None:
    before = kernel("""
        compute y(b in 1, i in 8, j in 4):
          p = x[b + i, j]
          q = x[i, j]
          unused = w[i, j]
          y[i, j] = p * q + -0.0
        """)
    after = kernel("""
        compute y(i in 8, j in 4):
          x = x[i, j]
          y[i, j] = x * x
        """)
    becomes(tidy, before, after)


def test_algebra() -> None:
    before = kernel("""
        alloc one: f32[8, 4]
        compute one(i in 8, j in 4):
          x = x[i, j]
          one[i, j] = pow(x, 2.0) + pow(x, -1.0)
        alloc sum: f32[8, 4]
        compute clear(i in 8, j in 4):
          sum[i, j] = 1.0
        compute sum(j in 4, i in 8):
          one = one[i, j]
          w = w[i, j]
          sum[i, j] mul= one * w
        compute y(i in 8, j in 4):
          sum = sum[i, j]
          y[i, j] = sum - pow(sum, 3.0)
        """)
    after = kernel("""
        alloc one: f32[8, 4]
        compute one(i in 8, j in 4):
          x = x[i, j]
          one[i, j] = x * x + 1.0 / x
        alloc sum: f32[8, 4]
        compute sum(j in 4, i in 8):
          one = one[i, j]
          w = w[i, j]
          sum[i, j] = one * w
        compute y(i in 8, j in 4):
          sum = sum[i, j]
          y[i, j] = sum - sum * sum * sum
        """)
    becomes(rewrite_values, before, after)


def test_reductions_that_reduce_or_that_others_begin_stay() -> None:
    result = kernel("""
        alloc some: f32[8]
        compute clear(i in 8):
          some[i] = 0.0
        compute some(i in 8, j in 4):
          x = x[i, j]
          some[i] add= x
        alloc half: f32[8]
        compute whole(i in 8):
          half[i] = 0.0
        compute half(i in 4):
          x = x[i, 0]
          half[i] add= x
        compute y(i in 8, j in 4):
          some = some[i]
          half = half[i]
          y[i, j] = some + half
        """)
    assert rewrite_values(result) is result


TWICE = """
    alloc a: f32[8, 4]
    compute a(i in 8, j in 4):
      x = x[i, j]
      a[i, j] = exp(x)
    alloc b: f32[8, 4]
    compute b(m in 8, n in 4):
      other = x[m, n]
      b[m, n] = exp(other)
    compute y(i in 8, j in 4):
      a = a[i, j]
      {}
"""


def test_shared_values() -> None:
    before = kernel(TWICE.format("b = b[i, j]\n      y[i, j] = a + b"))
    after = kernel(TWICE.format("y[i, j] = a + a"))
    becomes(share_values, before, after)
    assert [c.name for c in computes(drop_dead(after))] == ["a", "y"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("exp(other)", "exp(-other)"),
        ("other", "w[m, n]"),
    ],
)
def test_what_is_not_the_same_is_not_shared(a: str, b: str) -> None:
    text = TWICE.format("b = b[i, j]\n      y[i, j] = a + b")
    result = kernel(text.replace("b[m, n] = exp(other)", f"b[m, n] = {b}"))
    assert share_values(result) is result


def test_what_changes_between_is_not_shared() -> None:
    result = kernel("""
        alloc t: f32[8, 4]
        compute first(i in 8, j in 4):
          x = x[i, j]
          t[i, j] = x
        alloc a: f32[8, 4]
        compute a(i in 8, j in 4):
          t = t[i, j]
          a[i, j] = exp(t)
        compute again(i in 8, j in 4):
          w = w[i, j]
          t[i, j] = w
        alloc b: f32[8, 4]
        compute b(i in 8, j in 4):
          t = t[i, j]
          b[i, j] = exp(t)
        compute y(i in 8, j in 4):
          a = a[i, j]
          b = b[i, j]
          y[i, j] = a + b
        """)
    for pass_ in (share_values, forward_views, fold_constants, fold_scales, drop_dead):
        assert pass_(result) is result


def test_views_are_read_through() -> None:
    text = """
        alloc t: f32[4, 8]
        compute t(j in 4, i in 8):
          x = x[i, j]
          t[j, i] = x
        alloc one: f32[8]
        compute one(i in 8):
          one[i] = 1.0
        compute y(i in 8, j in 4):
          {}
        """
    before = kernel(text.format("t = t[j, i]\n          one = one[i]\n          y[i, j] = t + one"))
    after = kernel(text.format("x = x[i, j]\n          y[i, j] = x + 1.0"))
    becomes(forward_views, before, after)
    assert [c.name for c in computes(drop_dead(after))] == ["y"]


def test_products_read_through_what_they_take_as_it_is_only() -> None:
    def build(x: Tensor, w: Tensor) -> list[Tensor]:
        builder = x.builder
        result = []
        for view in (
            views.transpose(x, (1, 0)),
            views.reshape(views.transpose(x, (1, 0)), (8, 4)),
            views.pad(x, builder.splat(1.0, "f32"), (0, 0), (0, 4)),
        ):
            copy = builder.materialize(view, "copy")
            contracted = (0,) if copy.shape[0] == 8 else (1,)
            result.append(dot_general(copy, w, contracting=(contracted, (0,))))
        return result

    values = {"x": numbers(8, 4), "w": numbers(8, 3)}
    before = tidy(graph(build, **values))
    after = drop_dead(forward_views(before))
    assert [c.name for c in computes(after) if "copy" in c.name] == ["copy_2", "copy_3"]
    for got, want in zip(run(after, **values), run(before, **values), strict=True):
        np.testing.assert_array_equal(got, want)


TABLE = "in x: f32[8, 4], out y: f32[8, 4], constant t: f32[4] = {t}"


def test_constants_are_folded() -> None:
    table = np.arange(4, dtype=np.float32)
    before = kernel(
        """
        alloc scaled: f32[4]
        compute scaled(j in 4):
          t = t[j]
          scaled[j] = t * 0.5
        compute y(i in 8, j in 4):
          x = x[i, j]
          scaled = scaled[j]
          y[i, j] = x * scaled
        """,
        "in x: f32[8, 4], constant t: f32[4] = {t}, out y: f32[8, 4]",
        t=table,
    )
    after = kernel(
        """
        compute y(i in 8, j in 4):
          x = x[i, j]
          scaled = scaled[j]
          y[i, j] = x * scaled
        """,
        "in x: f32[8, 4], constant scaled: f32[4] = {t}, out y: f32[8, 4]",
        t=table * 0.5,
    )
    becomes(lambda k: drop_dead(fold_constants(k)), before, after)


def test_equal_bytes_of_two_types_are_no_constant_twice() -> None:
    def build(x: Tensor) -> list[Tensor]:
        builder = x.builder
        bits = builder.constant(np.arange(4, dtype=np.int32))
        floats = builder.materialize(bitcast(bits, "f32"), "floats")
        more = elementwise(lambda a: a + 0, builder.materialize(views.reverse(bits, (0,)), "m"))
        back = elementwise(lambda a: a + 0, builder.materialize(views.reverse(more, (0,)), "n"))
        return [elementwise(lambda a, b: a + b, x, floats), back]

    x = numbers(4)
    before = graph(build, x=x)
    after = optimized(before, check=True)
    for got, want in zip(run(after, x=x), run(before, x=x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_is_one_number_becomes_one() -> None:
    table = np.array([3.0, 1.0, 3.0, 1.0], np.float32)

    def build(x: Tensor) -> Tensor:
        t = views.broadcast_in_dim(x.builder.constant(table), (8, 4), (1,))
        whole = elementwise(lambda a, b: a + b, t, views.reverse(t, (1,)))
        return elementwise(lambda a, b: a * b, x, whole)

    x = numbers(8, 4)
    result = optimized(graph(build, x=x), check=True)
    assert "* 4.0" in str(result) and not result.constants
    np.testing.assert_array_equal(run(result, x=x)[0], x * 4)


def test_what_would_take_much_more_memory_is_not_folded() -> None:
    def build(x: Tensor) -> Tensor:
        t = x.builder.constant(np.arange(1024, dtype=np.float32))
        wide = views.broadcast_in_dim(t, (1024, 1024), (0,))
        wide = elementwise(lambda a, b: unary("exp", a * b), wide, views.transpose(wide, (1, 0)))
        return elementwise(lambda a, b: a + b, x, wide)

    builder_kernel = graph(build, x=numbers(1024, 1024))
    assert fold_constants(builder_kernel) is builder_kernel


def test_dead_statements_memory_and_constants_go() -> None:
    before = kernel(
        """
        alloc used: f32[8]
        alloc dead: f32[4]
        compute dead(j in 4):
          t = t[j]
          dead[j] = t
        compute used(i in 8):
          used[i] = 0.0
        if x[0, 0] < 1.0:
          alloc inner: f32[4]
          compute dead_arm(j in 4):
            inner[j] = 1.0
          compute arm(i in 8):
            used[i] = 1.0
        compute y(i in 8, j in 4):
          used = used[i]
          y[i, j] = used
        """,
        TABLE,
        t=np.arange(4, dtype=np.float32),
    )
    after = kernel(
        """
        alloc used: f32[8]
        compute used(i in 8):
          used[i] = 0.0
        if x[0, 0] < 1.0:
          compute arm(i in 8):
            used[i] = 1.0
        compute y(i in 8, j in 4):
          used = used[i]
          y[i, j] = used
        """,
        "in x: f32[8, 4], out y: f32[8, 4]",
    )
    becomes(drop_dead, before, after)


LOOP = """
    alloc turned: f32[4, 8]
    compute turned(j in 4, i in 8):
      x = x[i, j]
      turned[j, i] = x
    alloc count: s32[1]
    compute start(i in 8, j in 4):
      y[i, j] = 0.0
    compute count(i in 1):
      count[i] = s32(3)
    while s32(0) < count[0]:
      alloc a: f32[4, 8]
      compute a(j in 4, i in 8):
        {turned}
        a[j, i] = exp({element})
      alloc b: f32[4, 8]
      compute b(j in 4, i in 8):
        {turned}
        b[j, i] = exp({element})
      alloc new: f32[8, 4]
      compute new(i in 8, j in 4):
        y = y[i, j]
        a = a[j, i]
        {second}
        new[i, j] = y + a + {b}
      compute y(i in 8, j in 4):
        new = new[i, j]
        y[i, j] = new
      compute less(i in 1):
        count = count[i]
        count[i] = count - s32(1)
"""


def test_in_loops_what_is_outside_is_known_and_what_they_carry_is_not() -> None:
    text = {"turned": "turned = turned[j, i]", "element": "turned"}
    before = kernel(LOOP.format(**text, second="b = b[j, i]", b="b"))
    text = {"turned": "x = x[i, j]", "element": "x"}
    viewed = kernel(LOOP.format(**text, second="b = b[j, i]", b="b"))
    becomes(forward_views, before, viewed)
    after = kernel(LOOP.format(**text, second="", b="a"))
    becomes(share_values, viewed, after)
    names = [c.name for c in computes(drop_dead(after))]
    assert names == ["start", "count", "a", "new", "y", "less"]
    x = numbers(8, 4)
    result = run(optimized(before, check=True), x=x, w=x)[0]
    np.testing.assert_array_equal(result, run(before, x=x, w=x)[0])


def test_one_dead_result_of_several_goes_unless_they_are_made_as_one() -> None:
    text = """
        alloc best: f32[8]
        alloc place: s64[8]
        compute start(i in 8):
          best[i] = -inf
          place[i] = 4
        compute both(i in 8, j in 4):
          x = x[i, j]
          {}
        compute y(i in 8, j in 4):
          best = best[i]
          y[i, j] = best
        """
    apart = kernel(text.format("best[i] max= x\n          place[i] min= j"))
    after = drop_dead(apart)
    assert [len(c.results) for c in computes(after)] == [1, 1, 1] and "place" not in str(after)
    how = (
        "combiner first(v: f32, p; w: f32, q) from (-inf, 4) = "
        "select(v < w, w, v), select(v < w, q, p)\n          best[i], place[i] first= x, j"
    )
    together = kernel(text.format(how))
    assert drop_dead(together) is together


def test_passes_leave_symbolic_sizes() -> None:
    result = kernel(
        """
        alloc t: f32[n]
        compute t(i in n):
          x = x[i]
          t[i] = x
        alloc dead: f32[n]
        compute dead(i in n):
          x = x[i]
          dead[i] = x
        compute clear(j in 4):
          y[j] = 0.0
        compute y(i in n, j in 4):
          t = t[i]
          w = w[j, i]
          y[j] add= t * w
        """,
        "n: s64 in 1..9, in x: f32[n], in w: f32[4, n], out y: f32[4]",
    )
    after = optimized(result, check=True)
    assert "dead" not in str(after)
    values = {"n": 5, "x": numbers(5), "w": numbers(4, 5)}
    np.testing.assert_array_equal(run(after, **values)[0], run(result, **values)[0])


def test_what_decides_how_often_a_loop_runs_is_alive() -> None:
    result = kernel("""
        alloc count: s32[1]
        compute count(i in 1):
          count[i] = s32(3)
        compute start(i in 8, j in 4):
          y[i, j] = 0.0
        while s32(0) < count[0]:
          compute less(i in 1):
            count = count[i]
            count[i] = count - s32(1)
          compute more(i in 8, j in 4):
            y = y[i, j]
            y[i, j] = y + 1.0
        """)
    assert drop_dead(result) is result


def _normalized(y: Tensor, channel: int, at_once: bool) -> Tensor:
    builder, size = y.builder, y.shape[channel]
    parts = [builder.constant(numbers(size, seed=n)) for n in range(3)]
    mean, scale, shift = (views.broadcast_in_dim(p, y.shape, (channel,)) for p in parts)
    if at_once:
        return elementwise(lambda a, m, s, t: (a - m) / s + t, y, mean, scale, shift)
    y = elementwise(lambda a, m: a - m, y, mean)
    y = elementwise(lambda a, s: s * a, y, scale)
    return elementwise(lambda a, t: -(t + a), y, shift)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("groups", [1, 4])
def test_batch_norm_goes_into_weights(groups: int, at_once: bool) -> None:
    def build(x: Tensor) -> Tensor:
        weight = x.builder.constant(numbers(4, 4 // groups, 3))
        y = convolution(x, weight, padding=[(1, 1)], feature_groups=groups)
        y = _normalized(y, 1, at_once)
        return elementwise(lambda a, b: a * 2.0 + b, y, x)

    x = numbers(2, 4, 6)
    before = graph(build, x=x)
    after = optimized(before, check=True)
    np.testing.assert_allclose(run(after, x=x)[0], run(before, x=x)[0], 1e-5, 1e-5)
    text = str(after)
    behind = text[text.index(" add= ") :].split("compute", 1)[1]
    assert "* " not in behind and "/" not in behind
    # What is left: the weights, and what is added.
    assert len(after.constants) == (2 if at_once else 3)


def test_scales_that_others_see_or_that_weights_do_not_have_stay() -> None:
    def others(x: Tensor) -> list[Tensor]:
        y = dot_general(x, x.builder.constant(numbers(4, 3)), contracting=((1,), (0,)))
        return [y, _normalized(y, 1, True)]

    def rows(x: Tensor) -> Tensor:
        y = dot_general(x, x.builder.constant(numbers(4, 3)), contracting=((1,), (0,)))
        return _normalized(y, 0, True)

    def both(x: Tensor) -> Tensor:
        y = dot_general(x, x.builder.constant(numbers(4, 3)), contracting=((1,), (0,)))
        return elementwise(lambda a: a * a, y)

    def shared(x: Tensor) -> list[Tensor]:
        weight = x.builder.constant(numbers(4, 3))
        y, z = (dot_general(factor, weight, contracting=((1,), (0,))) for factor in (x, x))
        return [z, elementwise(lambda a: a * 0.5, y)]

    for build in (others, rows, both, shared):
        before = tidy(graph(build, x=numbers(8, 4)))
        assert fold_scales(before) is before


def test_softmax_of_a_linear_layer_through_all_stages() -> None:
    values = {"x": numbers(6, 8), "w": numbers(8, 5), "b": numbers(5)}
    wanted = expected_softmax(*values.values())
    result = graph(softmax, **values)
    for pass_ in PASSES:
        result = pass_.function(result)
        verify(result)
        np.testing.assert_allclose(run(result, **values)[0], wanted, 1e-5, 1e-6)
    assert optimized(result, check=True) is result


IMAGES = (
    "in x: f32[2, 3, 9, 9], in a: f32[16, 3, 3, 3], in b: f32[5, {count}], out y: f32[2, 5, 7, 7]"
)
BLOCK = """
    alloc v: f32[2, {count}, 7, 7]{first}
    alloc r: f32[2, {count}, 7, 7]{second}
    compute v(n in 2, o in {count}, h in 7, w in 7, c in 3, i in 3, j in 3):
      p = x[n, c, h + i, w + j]
      q = a[o, c, i, j]
      v[n, o, h, w] add= p * q
    compute r(n in 2, o in {count}, h in 7, w in 7):
      e = v[n, o, h, w]
      r[n, o, h, w] = max(e, 0.0)
    compute y(n in 2, o in 5, h in 7, w in 7, c in {count}):
      e = r[n, c, h, w]
      f = b[o, c]
      y[n, o, h, w] add= e * f
    """


def _block(count: int, first: str = "", second: str = "") -> Kernel:
    return kernel(BLOCK.format(count=count, first=first, second=second), IMAGES.format(count=count))


def test_channels_lie_last() -> None:
    """Of what lies between a window and what follows; batches and arguments stay."""
    last = " {0:2:784 2:7:112 3:7:16 1:16:1}"
    becomes(channels_last, _block(16), _block(16, last, last))


def test_channels_of_groups_lie_last() -> None:
    """Weights have a group and its channels, too, so that no window slides along them."""
    before = kernel(
        """
        alloc v: f32[64, 9, 9]
        compute v(c in 64, h in 9, w in 9):
          e = x[c, h, w]
          v[c, h, w] = e * 2.0
        alloc s: f32[4, 16, 7, 7]
        compute zero(g in 4, o in 16, h in 7, w in 7):
          s[g, o, h, w] = 0.0
        compute s(g in 4, o in 16, h in 7, w in 7, c in 16, i in 3, j in 3):
          p = v[g*16 + c, h + i, w + j]
          q = k[g*16 + o, c, i, j]
          s[g, o, h, w] add= p * q
        compute y(g in 4, o in 16, h in 7, w in 7):
          e = s[g, o, h, w]
          y[g*16 + o, h, w] = max(e, 0.0)
        """,
        "in x: f32[64, 9, 9], in k: f32[64, 16, 3, 3], out y: f32[64, 7, 7]",
    )
    after = str(channels_last(before))
    assert "alloc v: f32[64, 9, 9] {1:9:576 2:9:64 0:64:1}\n" in after
    assert "alloc s: f32[4, 16, 7, 7] {2:7:448 3:7:64 0:4:16 1:16:1}\n" in after


def test_few_channels_stay() -> None:
    before = _block(15)
    assert channels_last(before) is before


def test_what_is_loaded_in_expressions_stays() -> None:
    before = _block(16)
    text = (
        str(before).replace("      e = v[n, o, h, w]\n", "").replace("max(e,", "max(v[n, o, h, w],")
    )
    before = parse_kernel(text)
    last = " {0:2:784 2:7:112 3:7:16 1:16:1}"
    assert "alloc v: f32[2, 16, 7, 7]\n" in str(channels_last(before))
    assert f"alloc r: f32[2, 16, 7, 7]{last}" in str(channels_last(before))


def test_gradients_of_weights_are_no_images() -> None:
    """Their sums go over the batch, which is no channel for that."""
    before = kernel(
        """
        alloc g: f32[16, 32, 3, 3]
        alloc d: f32[2, 16, 7, 7]
        compute d(n in 2, o in 16, h in 7, w in 7):
          e = y[n, o, h, w]
          d[n, o, h, w] = e * 2.0
        compute g(o in 16, c in 32, i in 3, j in 3, n in 2, h in 7, w in 7):
          p = x[n, c, h + i, w + j]
          q = d[n, o, h, w]
          g[o, c, i, j] add= p * q
        compute z(o in 16, c in 32, i in 3, j in 3):
          e = g[o, c, i, j]
          z[o, c, i, j] = e + 1.0
        """,
        "in x: f32[2, 32, 9, 9], in y: f32[2, 16, 7, 7], out z: f32[16, 32, 3, 3]",
    )
    after = str(channels_last(before))
    assert "alloc g: f32[16, 32, 3, 3]\n" in after
    assert "alloc d: f32[2, 16, 7, 7] {0:2:784 2:7:112 3:7:16 1:16:1}\n" in after


NARROW = "in x: bf16[4, 8], in w: bf16[8], out y: bf16[4, 8], out z: bf16[4, 8]"


def test_keep_precision() -> None:
    """What one elementwise compute reads is not rounded; what two read is."""
    becomes(
        keep_precision,
        kernel(
            """
            alloc s: bf16[4, 8]
            compute s(i in 4, j in 8):
              a = x[i, j]
              b = w[j]
              s[i, j] = bf16(f32(a) * f32(b))
            alloc t: bf16[4, 8]
            compute t(i in 4, j in 8):
              a = s[i, j]
              t[i, j] = bf16(exp(f32(a)))
            compute y(i in 4, j in 8):
              a = t[i, j]
              y[i, j] = bf16(f32(a) + 1.0)
            compute z(i in 4, j in 8):
              a = t[i, j]
              z[i, j] = bf16(f32(a) * 3.0)
            """,
            NARROW,
        ),
        kernel(
            """
            alloc s: f32[4, 8]
            compute s(i in 4, j in 8):
              x = x[i, j]
              w = w[j]
              s[i, j] = f32(x) * f32(w)
            alloc t: bf16[4, 8]
            compute t(i in 4, j in 8):
              s = s[i, j]
              t[i, j] = bf16(exp(s))
            compute y(i in 4, j in 8):
              a = t[i, j]
              y[i, j] = bf16(f32(a) + 1.0)
            compute z(i in 4, j in 8):
              a = t[i, j]
              z[i, j] = bf16(f32(a) * 3.0)
            """,
            NARROW,
        ),
    )


@pytest.mark.parametrize(
    "reader",
    [
        "compute y(i in 4, j in 8, k in 8):\n  a = s[i, k]\n  b = v[j, k]\n"
        "  y[i, j] add= f32(a) * f32(b)",
        "compute y(i in 4, j in 8):\n  a = s[i, j]\n  y[i, j] = f32(a) + f32(abs(a))",
        "compute y(i in 4, j in 8):\n  a = s[i, 0]\n  y[i, j] = f32(a)",
    ],
    ids=["a product", "without f32", "again and again"],
)
def test_what_does_not_go_on_elementwise_in_f32_is_rounded(reader: str) -> None:
    before = kernel(
        "alloc s: bf16[4, 8]\ncompute s(i in 4, j in 8):\n  a = x[i, j]\n"
        "  s[i, j] = bf16(a + 1.0)\n" + reader,
        "in x: f32[4, 8], in v: bf16[8, 8], out y: f32[4, 8]",
    )
    assert keep_precision(before) is before


def test_roundings_that_are_asked_for_stay() -> None:
    text = """
        alloc s: bf16[4, 8]
        compute s(i in 4, j in 8):
          a = x[i, j]
          s[i, j] = {}
        compute y(i in 4, j in 8):
          a = s[i, j]
          y[i, j] = f32(a) * 2.0
        """
    params = "in x: f32[4, 8], out y: f32[4, 8]"
    asked = kernel(text.format("bf16(a)"), params)
    assert keep_precision(asked) is asked
    implied = kernel(text.format("bf16(exp(a))"), params)
    (s,) = (stmt.buffer for stmt in walk_stmts(implied.body) if isinstance(stmt, Allocate))
    assert keep_precision(implied) is not implied and keep_precision(implied, {s}) is implied


def test_sums_of_groups_are_not_rounded_before_what_reads_them() -> None:
    """They are copied to the dims of the result before they are rounded."""
    text = """
        alloc sums: f32[2, 2, 8]
        compute clear(g in 2, o in 2, j in 8):
          sums[g, o, j] = 0.0
        compute sums(g in 2, o in 2, j in 8, k in 3):
          a = x[g, k, j]
          sums[g, o, j] add= f32(a)
        alloc c: f32[4, 8]
        compute c(g in 2, o in 2, j in 8):
          a = sums[g, o, j]
          c[g * 2 + o, j] = {copied}
        alloc s: bf16[4, 8]
        compute s(i in 4, j in 8):
          a = c[i, j]
          s[i, j] = bf16(a)
        compute y(i in 4, j in 8):
          a = s[i, j]
          y[i, j] = f32(a) * 2.0
        """
    params = "in x: bf16[2, 3, 8], out y: f32[4, 8]"
    assert "bf16(" not in str(keep_precision(kernel(text.format(copied="a"), params)))
    other = kernel(text.format(copied="exp(a)"), params)
    assert keep_precision(other) is other

"""Joint matrices: types, sizes, layouts, slices, and what they refuse; each target and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, needs_opencl
from sweeps import in_turns
from tilewright.dtypes import dtype
from tilewright.errors import KernelError

TARGETS = ["interpreter", "x86", *DEVICES]
TYPES = [(str(c.a), str(c.b), str(c.accumulator)) for c in tw.matrix_combinations("interpreter")]


def numbers(g: np.random.Generator, type_: str, *shape: int) -> Any:
    """Small whole numbers, whose products every type adds up exactly."""
    low = 0 if type_[0] == "u" else -3
    return g.integers(low, 4, shape).astype(dtype(type_).numpy)


def wide(array: Any) -> Any:
    return array.astype(np.float64)


@tw.kernel(subgroup=8)
def product(
    a: tw.array("A", 2),
    b: tw.array("B", 2),
    c: tw.array("C", 2),
    m: tw.constant,
    n: tw.constant,
    k: tw.constant,
    types: tw.constant,
    layouts: tw.constant,
) -> None:
    tile_a = tw.joint_matrix("a", m, k, types[0], layout=layouts[0])
    tile_b = tw.joint_matrix("b", k, n, types[1], layout=layouts[1])
    total = tw.joint_matrix("accumulator", m, n, types[2])
    total.fill(1)
    for start in range(0, a.shape[1] if layouts[0] == "row" else a.shape[0], k):
        tile_a.load(a, (0, start), checked=True)
        tile_b.load(b, (start, 0), checked=True)
        total.mad(tile_a, tile_b)
    total.store(c, (0, 0), layout=layouts[2], checked=True)


def run_product(
    types: tuple[str, str, str],
    sizes: tuple[int, int, int, int],
    target: str,
    layouts: tuple[str, str, str] = ("row", "row", "row"),
    result: str | None = None,
) -> None:
    m, n, k, depth = sizes
    g = np.random.default_rng(m * n + k)
    a, b = numbers(g, types[0], m, depth), numbers(g, types[1], depth, n)
    c = np.zeros((m, n), dtype(result or types[2]).numpy)
    wanted = 1 + wide(a) @ wide(b)
    given_a = np.ascontiguousarray(a.T) if layouts[0] == "col" else a
    given_b = np.ascontiguousarray(b.T) if layouts[1] == "col" else b
    if layouts[1] == "packed":
        together = 32 // dtype(types[1]).bits
        parts = b.reshape(depth // together, together, n)
        given_b = np.ascontiguousarray(parts.transpose(0, 2, 1)).reshape(depth // together, -1)
    given_c = np.ascontiguousarray(c.T) if layouts[2] == "col" else c
    arguments = (given_a, given_b, given_c, m, n, k, types, layouts)
    product.launch((1, 8), *arguments, local=(1, 8), target=target)
    got = given_c.T if layouts[2] == "col" else given_c
    np.testing.assert_array_equal(wide(got), wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_types(types: tuple[str, str, str], target: str) -> None:
    run_product(types, (4, 8, 16, 21), target)


@pytest.mark.parametrize(
    ("m", "n", "k"), in_turns(8, (1, 2, 7, 16, 17), (1, 3, 8, 16, 17), (1, 5, 32, 65))
)
def test_sizes(m: int, n: int, k: int) -> None:
    run_product(("f32", "f32", "f32"), (m, n, k, k + 1), "interpreter")


@needs_opencl
@pytest.mark.parametrize("sizes", [(1, 17, 5, 5), (17, 3, 65, 65), (16, 16, 1, 2)])
def test_sizes_on_a_device(sizes: tuple[int, int, int, int]) -> None:
    run_product(("bf16", "bf16", "f32"), sizes, "spirv")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("types", "layouts"),
    [
        (("bf16", "bf16", "f32"), ("col", "row", "row")),
        (("f32", "f32", "f32"), ("row", "col", "col")),
        (("bf16", "bf16", "f32"), ("row", "packed", "row")),
        (("u8", "s8", "s32"), ("col", "packed", "col")),
    ],
)
def test_layouts(types: tuple[str, str, str], layouts: tuple[str, str, str], target: str) -> None:
    run_product(types, (8, 5, 8, 16), target, layouts)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("types", "result"),
    [
        (("bf16", "bf16", "f32"), "bf16"),
        (("s8", "s8", "s32"), "f32"),
        (("tf32",) * 2 + ("f32",), "f16"),
    ],
)
def test_results_of_another_type(types: tuple[str, str, str], result: str, target: str) -> None:
    run_product(types, (4, 8, 8, 8), target, result=result)


@tw.kernel(subgroup=4)
def elementwise(
    x: tw.array("f32", 2), out: tw.array("f32", (4, None, None)), use: tw.constant
) -> None:
    rows, cols = 5, 7
    first = tw.joint_matrix(use, rows, cols, "f32")
    second = tw.joint_matrix(use, rows, cols, "f32")
    first.load(x, (0, 0))
    second.fill(2.0)
    first.prefetch(x, (0, 0))
    second.apply(lambda value, other, i, j: value * other + tw.f32(i * 10 + j), first)
    first.apply(scaled)
    for i in range(first.length):
        row, col = second.coordinates(i)
        value = second.get(i)
        if row < rows:
            out[0, row, col] = value
            out[1, row, col] = first.get(i)
        second.set(i, value + 1.0)
    first.copy(second)
    for i in range(first.length):
        row, col = first.coordinates(i)
        if row < rows:
            out[2, row, col] = first.get(i)
            out[3, row, col] = tw.f32(tw.lane_id())


@tw.function
def scaled(value):
    return max(value, 0.0) * 0.5


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("use", ["a", "b", "accumulator"])
def test_elements(use: str, target: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    out = np.full((4, 5, 7), -9, np.float32)
    elementwise.launch((1, 4), x, out, use, local=(1, 4), target=target)
    i, j = np.indices((5, 7))
    second = (2 * x + (i * 10 + j)).astype(np.float32)
    np.testing.assert_allclose(out[0], second, 1e-6)
    np.testing.assert_array_equal(out[1], np.maximum(x, 0) * np.float32(0.5))
    np.testing.assert_allclose(out[2], second + 1, 1e-6)
    np.testing.assert_array_equal(out[3].ravel(), np.arange(35) % 4)


@tw.kernel
def mapping(out: tw.array("s32", (None, None, 3))) -> None:
    matrix = tw.joint_matrix("a", 4, 5, "f32", group="workgroup")
    matrix.fill(0.0)
    for i in range(matrix.length):
        row, col = matrix.coordinates(i)
        item = tw.local_id(0)
        out[item, i, 0], out[item, i, 1], out[item, i, 2] = row, col, matrix.length


@pytest.mark.parametrize("lanes", [3, 4])
def test_slices_are_dealt_in_row_major_order(lanes: int) -> None:
    length = -(-20 // lanes)
    out = np.zeros((lanes, length, 3), np.int32)
    mapping.launch(lanes, out, local=lanes, target="interpreter")
    assert (out[..., 2] == length).all()
    for lane in range(lanes):
        for i in range(length):
            assert tuple(out[lane, i, :2]) == divmod(i * lanes + lane, 5)
    if lanes == 4:
        assert out[0, :, :2].tolist() == [[0, 0], [0, 4], [1, 3], [2, 2], [3, 1]]
        assert out[:, 1, :2].tolist() == [[0, 4], [1, 0], [1, 1], [1, 2]]


@tw.kernel
def large(a: tw.array("f32", 2), b: tw.array("f32", 2), c: tw.array("f32", 2)) -> None:
    tile_a = tw.joint_matrix("a", 20, 12, "f32", group="workgroup")
    tile_b = tw.joint_matrix("b", 12, 24, "f32", group="workgroup")
    total = tw.joint_matrix("accumulator", 20, 24, "f32", group="workgroup")
    tile_a.load(a, (0, 0))
    tile_b.load(b, (0, 0))
    total.fill(0.0)
    total.mad(tile_a, tile_b)
    total.store(c, (0, 0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("local", [(2, 12), (3, 5)])
def test_workgroups_hold_matrices(local: tuple[int, int], target: str) -> None:
    g = np.random.default_rng(0)
    a, b = numbers(g, "f32", 20, 12), numbers(g, "f32", 12, 24)
    c = np.zeros((20, 24), np.float32)
    large.launch(local, a, b, c, local=local, target=target)
    np.testing.assert_array_equal(c, a @ b)


def test_ptx() -> None:
    g = np.random.default_rng(0)
    a, b = numbers(g, "bf16", 8, 8), numbers(g, "bf16", 8, 8)
    types, layouts = ("bf16", "bf16", "f32"), ("row", "row", "row")
    arguments = (a, b, np.zeros((8, 8), np.float32), 8, 8, 8, types, layouts)
    kernel = product.specialized((1, 8), *arguments, local=(1, 8))
    assert ".entry product" in tw.compile(kernel, "nvidia:sm_80").source("asm")


@tw.kernel(subgroup=8)
def wrong(which: tw.constant, x: tw.array("f32", 2), y: tw.array("s8", 1)) -> None:
    a = tw.joint_matrix("a", 4, 6, "bf16")
    b = tw.joint_matrix("b", 6, 8, "bf16")
    total = tw.joint_matrix("accumulator", 4, 8, "f32")
    if which == "use":
        tw.joint_matrix("c", 4, 4, "f32")
    elif which == "size":
        tw.joint_matrix("a", 4, x.shape[0], "f32")
    elif which == "large":
        tw.joint_matrix("a", 1024, 1024, "f32")
    elif which == "type":
        tw.joint_matrix("accumulator", 4, 4, "bf16")
    elif which == "checked":
        total.load(x, (0, 0), checked=x)
    elif which == "combination":
        total.mad(tw.joint_matrix("a", 4, 6, "f16"), b)
    elif which == "shape":
        total.mad(a, tw.joint_matrix("b", 4, 8, "bf16"))
    elif which == "swapped":
        total.mad(b, a)
    elif which == "packed":
        a.load(x, (0, 0), layout="packed")
    elif which == "rank":
        a.load(y, (0, 0))
    elif which == "element":
        tw.joint_matrix("a", 4, 6, "u8").load(x, (0, 0))
    elif which == "method":
        a.transpose()
    elif which == "arguments":
        a.fill()
    elif which == "function":
        a.apply(lambda: 0.0)
    elif which == "other":
        a.copy(b)


@pytest.mark.parametrize(
    ("which", "what"),
    [
        ("use", "the use of tw.joint_matrix is 'c'"),
        ("size", "the cols of tw.joint_matrix is"),
        ("large", "a joint matrix of 1024 by 1024"),
        ("type", "a joint matrix 'accumulator' of bf16"),
        ("combination", "mad of f16 by bf16 into f32"),
        ("checked", "checked= of tw.joint_matrix.load is"),
        ("shape", "mad of 4 by 6 and 4 by 8 into 4 by 8"),
        ("swapped", "mad of a matrix 'b' and one 'a' into one 'accumulator'"),
        ("packed", "a packed matrix 'a' of bf16"),
        ("rank", "an array with 1 dims"),
        ("element", "a load of f32 into a joint matrix of u8"),
        ("method", "a joint matrix has no transpose"),
        ("arguments", "fill: arguments that do not fit"),
        ("function", "apply with a function of 0 values"),
        ("other", "no matrix of the same size"),
    ],
)
def test_refusals_have_a_place(which: str, what: str) -> None:
    with pytest.raises(KernelError, match="matrix") as caught:
        wrong.over(local=(1, 8), which=which)
    assert what in caught.value.what
    assert caught.value.span is not None and caught.value.span.line > 200
    assert caught.value.cure


def test_refused_combinations_list_the_supported() -> None:
    with pytest.raises(KernelError) as caught:
        wrong.over(local=(1, 8), which="combination")
    assert "bf16 by bf16 into f32; f16 by f16 into f32" in str(caught.value)


def test_combinations_name_the_instructions_of_a_machine() -> None:
    result = {str(c): c.instructions for c in tw.matrix_combinations("x86:amx")}
    assert "tdpbf16ps" in result["bf16 by bf16 into f32"]
    assert result["f16 by f16 into f16"] == ()

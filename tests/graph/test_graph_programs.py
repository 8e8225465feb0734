"""Programs of graphs: cut into kernels, each compiled once, run in one arena."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from graph_texts import CONTROL, transformer
from needs import DEVICES, need_device, needs_x86
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError
from tilewright.graph.compiling import compile_graph
from tilewright.graph.cutting import cut_graph
from tilewright.graph.graph import Graph
from tilewright.graph.memory import Live, plan
from tilewright.graph.program import GraphProgram
from tilewright.interpret import run as interpret
from tilewright.ir.constants import contents_of, digest_of
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.runtime.steps import launches

Arrays = Mapping[str, Any]


def drawn(kernel: Kernel, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        array.name: (rng.standard_normal(array.buffer.shape) * 0.3).astype(array.dtype.numpy)
        for array in kernel.arrays
        if array.access != "out" and array.digest is None
    }


def interpreted(kernel: Kernel, arrays: Arrays) -> dict[str, Any]:
    """The results by the definition of ``kernel``."""
    flat = {
        array.name: arrays[array.name].reshape(-1).copy()
        if array.name in arrays
        else np.zeros(array.buffer.layout.extent, array.dtype.numpy)
        for array in kernel.arrays
        if array.digest is None
    }
    interpret(kernel, flat)
    results = [array for array in kernel.arrays if array.access != "in"]
    return {result.name: flat[result.name].reshape(result.buffer.shape) for result in results}


def assert_right(kernel: Kernel, program: CompiledKernel, arrays: Arrays) -> None:
    result = program(**{name: array.copy() for name, array in arrays.items()})
    results = result if isinstance(result, dict) else {program.signature.results[0]: result}
    for name, wanted in interpreted(kernel, arrays).items():
        np.testing.assert_allclose(results[name], wanted, rtol=2e-4, atol=2e-5, err_msg=name)


@cache
def network() -> Kernel:
    return tw.parse_kernel(transformer())


@cache
def compiled(target: str) -> GraphProgram:
    result = tw.compile(network(), target, threads=2)
    assert isinstance(result, GraphProgram)
    return result


@pytest.mark.parametrize("target", ["x86", *DEVICES])
def test_a_transformer_is_right(target: str) -> None:
    need_device(target)
    assert_right(network(), compiled(target), drawn(network()))


@pytest.mark.parametrize("target", ["x86", *DEVICES])
def test_control_that_depends_on_data(target: str) -> None:
    need_device(target)
    kernel = tw.parse_kernel(CONTROL)
    result = compile_graph(kernel, target, threads=2)
    for seed, limit in ((0, 50.0), (1, -1000.0), (2, 0.5)):
        arrays = drawn(kernel, seed) | {"limit": np.array([limit], np.float32)}
        arrays["a"] = arrays["a"] + np.eye(8, dtype=np.float32) * (0.9 - 2 * (seed == 2))
        assert_right(kernel, result, arrays)


def test_equal_layers_are_compiled_once() -> None:
    cut = cut_graph(network())
    first, second = (
        [(step.kernel, cut.kernels[step.kernel].name) for step in steps]
        for steps in np.array_split(list(launches(cut.steps)), 2)
    )
    # One that adds to its input does so in place, where that is none of the graph's; the last one
    # has a copy behind it.
    assert [
        n for n, (one, other) in enumerate(zip(first, second, strict=True)) if one != other
    ] == [
        7,
        10,
    ]
    assert [name for _, name in first] == ["reduction"] + ["contraction"] * 4 + ["reduction"] + [
        "contraction"
    ] * 2 + ["reduction"] + ["contraction"] * 2
    assert first[1] == first[2] == first[3]
    assert first[0] == first[8]
    for kernel in cut.kernels:
        verify(kernel)
        assert to_text(tw.parse_kernel(to_text(kernel))) == to_text(kernel)


@needs_x86
def test_what_follows_a_sum_stays_behind_it() -> None:
    """It reads what a chain in front of the sum made, too, and was put there."""
    kernel = tw.parse_kernel(
        """
kernel k(in x: f32[16, 16], out y: f32[16, 16]):
  alloc s: f32[16, 16]
  alloc t: f32[16, 16]
  compute first(i in 16, j in 16):
    v = x[j, i]
    s[i, j] = v * 3.0
  compute zero(i in 16, j in 16):
    t[i, j] = 0.0
  compute product(i in 16, j in 16, k in 16):
    v = x[i, k]
    w = x[k, j]
    t[i, j] add= v * w
  compute both(i in 16, j in 16):
    v = t[i, j]
    w = s[i, j]
    y[i, j] = v + w
"""
    )
    names = [launch.computes for launch in launches(cut_graph(kernel).steps)]
    assert names == [("first",), ("zero", "product", "both")]
    assert_right(kernel, compile_graph(kernel, "x86", threads=2), drawn(kernel))


def test_what_names_read_is_read() -> None:
    kernel = tw.parse_kernel(
        """
kernel counted(inout count: s64[1], in x: f32[8], out y: f32[8]):
  n = count[0]
  count[0] = n + 1
  compute scaled(i in 8):
    v = x[i]
    y[i] = v * f32(n)
"""
    )
    (group,) = cut_graph(kernel).kernels
    assert [array.access for array in group.arrays] == ["inout", "in", "out"]


@needs_x86
def test_calls_are_those_of_any_kernel() -> None:
    program, arrays = compiled("x86"), drawn(network())
    wanted = program(**arrays)
    out = np.empty_like(wanted)
    assert program(*arrays.values(), out=out) is out
    np.testing.assert_array_equal(out, wanted)
    out[...] = 0
    bound = program.bind(**arrays, out=out)
    bound()
    np.testing.assert_array_equal(out, wanted)
    with pytest.raises(ArgumentError, match="there is no argument 'z'"):
        program(**arrays, z=out)
    with pytest.raises(ArgumentError, match="shares memory"):
        square = program.signature.argument("x").buffer.shape
        program(**arrays | {"x": wanted}, out=wanted.reshape(square))


@needs_x86
def test_weights_are_packed_once() -> None:
    kernel, arrays = network(), drawn(network())
    weights = tuple(name for name in arrays if name.endswith("_w"))
    program = compile_graph(kernel, "x86", threads=2, constant=weights)
    assert set(program.packed) == set(weights)
    packed = {name: program.pack(name, arrays[name]) for name in weights}
    np.testing.assert_allclose(
        program(**arrays | packed), compiled("x86")(**arrays), rtol=1e-5, atol=1e-5
    )
    with pytest.raises(ArgumentError, match="is not packed"):
        program(**arrays)


@needs_x86
def test_constants_lie_beside_the_program() -> None:
    arrays = drawn(network())
    text = to_text(network())
    contents = {}
    for array in network().arrays:
        if array.name.endswith(("_w", "_b", "_g")):
            digest = digest_of(arrays[array.name])
            contents[digest] = contents_of(array.buffer, arrays[array.name])
            text = text.replace(f"in {array.buffer!r},", f"constant {array.buffer!r} = {digest},")
    program = tw.compile(tw.parse_kernel(text, constants=contents), "x86", threads=2)
    assert program.signature.names == ("x", "y")
    np.testing.assert_allclose(
        program(arrays["x"]), compiled("x86")(**arrays), rtol=1e-5, atol=1e-5
    )


@needs_x86
def test_an_arena_of_the_callers() -> None:
    program, arrays = compiled("x86"), drawn(network())
    wanted = program(**arrays)
    own = np.full(program.arena_room, 255, np.uint8)
    there = program.in_arena(own)
    np.testing.assert_array_equal(there(**arrays), wanted)
    assert (own != 255).any()
    with pytest.raises(ArgumentError, match="are needed"):
        program.in_arena(np.empty(64, np.uint8))
    with pytest.raises(ArgumentError, match="no contiguous array"):
        program.in_arena(np.empty((2, program.arena_room), np.uint8)[:, ::2])


def test_memory_is_planned_well() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 7, 40, 200):
        things = []
        for n in range(count):
            first = int(rng.integers(0, count))
            last = first + int(rng.integers(0, 6))
            things.append(Live(n, int(rng.integers(1, 10_000)), first, last))
        arena = plan(things)
        assert arena.live <= arena.bytes <= arena.live * 1.05
        for number, one in enumerate(things):
            for other in things[:number]:
                if one.first <= other.last and other.first <= one.last:
                    start, second = arena.offsets[one.what], arena.offsets[other.what]
                    assert start + one.size <= second or second + other.size <= start


def test_a_program_of_a_transformer_is_planned_well() -> None:
    arena = compiled("x86").arena
    assert arena.live <= arena.bytes <= arena.live * 1.05


def test_times_of_launches() -> None:
    program = compiled("x86")
    result = program.timed(**drawn(network()))
    assert [launch.launch for launch in result] == list(range(22))
    assert len(program.launches) == 22
    ends = [launch.start + launch.seconds for launch in result]
    assert ends == sorted(ends) and all(launch.seconds > 0 for launch in result)


def test_which_kernels_become_programs() -> None:
    assert not isinstance(tw.compile(tw.parse_kernel(CONTROL), threads=1), GraphProgram)
    assert not isinstance(tw.compile(network(), "interpreter"), GraphProgram)
    result = tw.compile(Graph(tw.parse_kernel(CONTROL)), threads=1)
    assert isinstance(result, GraphProgram)


@needs_x86
def test_shared_memory_is_found_among_many_arguments() -> None:
    count = 24
    arrays = [f"in x{n}: f32[4]" for n in range(count)] + [
        f"out y{n}: f32[4]" for n in range(count)
    ]
    lines = [f"  compute c{n}(i in 4):\n    y{n}[i] = x{n}[i]" for n in range(count)]
    kernel = tw.parse_kernel(f"kernel k({', '.join(arrays)}):\n" + "\n".join(lines) + "\n")
    program = tw.compile(kernel, "x86", threads=1)
    memory = np.arange(8 * count, dtype=np.float32).reshape(2 * count, 4)
    values = dict(zip(program.signature.names, memory, strict=True))
    results = program(**values)
    assert all((results[f"y{n}"] == memory[n]).all() for n in range(count))
    same = values | {"x3": values["x5"]}
    assert (program(**same)["y3"] == memory[5]).all()
    for wrong in ({"y7": values["x2"]}, {"y7": values["y9"]}, {"x2": memory.reshape(-1)[131:135]}):
        with pytest.raises(ArgumentError, match="shares memory with"):
            program(**values | wrong)


@needs_x86
def test_several_threads_call_one_program() -> None:
    """Each call has memory of its own; in an arena of the caller's, one at a time runs."""
    program, arrays = compiled("x86"), drawn(network())
    scaled = [arrays | {"x": arrays["x"] * np.float32(n + 1)} for n in range(4)]
    wanted = [program(**scaled_arrays) for scaled_arrays in scaled]

    def calls(number: int) -> bool:
        result = (program(**scaled[number]) for _ in range(20))
        return all((array == wanted[number]).all() for array in result)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(calls, range(4)))
    own = program.in_arena(np.empty(program.arena_room, np.uint8))
    bound = own.bind(**arrays, out=np.empty_like(wanted[0]))
    with pytest.raises(ArgumentError, match="the arena is in use"):
        own(**arrays)
    del bound


@needs_x86
def test_what_joins_others_reads_nothing_that_comes_later() -> None:
    """``sum`` went behind ``twice``, which hands it something, and ``product`` stayed in front of
    the contraction: ``sum`` read what nobody had written."""
    kernel = tw.parse_kernel(
        """
        kernel k(in x: f32[12, 16], in a: f32[12, 16], in b: f32[12, 16], in v: f32[16, 20],
                 out w: f32[12, 16], out y: f32[12, 20]):
          alloc t: f32[12, 16]
          alloc s: f32[12, 16]
          compute product(i in 12, j in 16):
            t[i, j] = a[i, j] * b[i, j]
          compute twice(i in 12, j in 16):
            w[i, j] = x[i, j] * 2.0
          compute sum(i in 12, j in 16):
            s[i, j] = w[i, j] + t[i, j]
          compute clear(i in 12, j in 20):
            y[i, j] = 0.0
          compute main(i in 12, j in 20, k in 16):
            y[i, j] add= s[i, k] * v[k, j]
        """
    )
    assert_right(kernel, compile_graph(kernel, "x86", threads=1), drawn(kernel))

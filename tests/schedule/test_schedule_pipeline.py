"""pipeline: golden texts, results for each way of filling, refusals."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from schedule_cases import becomes, equal, matmul, shared
from tilewright.dtypes import f32
from tilewright.errors import ScheduleError
from tilewright.ir import Kernel, LoopKind, parse_kernel, to_text
from tilewright.schedule import Fill, Threads
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.pipelines.pipeline import pipeline

SHARED = """
    kernel f(in src: f32[8, 16], inout dst: f32[8]):
      alloc src_packed: f32[4, 2, 2] workgroup
      workgroup for t in 4:
        for k in 8:
          compute x_pack(part in 2, element in 2):
            x = src[part + t * 2, element + k * 2]
            src_packed[t, part, element] = x
          barrier()
          compute f(i in 2, e in 2):
            x = src_packed[3 - t, i, e]
            dst[i + 6 - t * 2] add= x
          barrier()
"""


def _parse(text: str) -> Kernel:
    return parse_kernel(textwrap.dedent(text))


def test_pipeline_by_copies() -> None:
    becomes(
        SHARED,
        lambda k: pipeline(k, "k"),
        """
        kernel f(in src: f32[8, 16], inout dst: f32[8]):
          alloc src_packed: f32[2, 4, 2, 2] workgroup
          workgroup for t in 4:
            compute x_pack(part in 2, element in 2):
              x = src[part + t * 2, element]
              src_packed[0, t, part, element] = x
            for k in 8:
              barrier()
              if k < 7:
                compute x_pack(part in 2, element in 2):
                  x = src[part + t * 2, element + k * 2 + 2]
                  src_packed[(k + 1) % 2, t, part, element] = x
              compute f(i in 2, e in 2):
                x = src_packed[k % 2, 3 - t, i, e]
                dst[i - t * 2 + 6] add= x
            barrier()
        """,
    )


def test_pipeline_through_registers() -> None:
    becomes(
        SHARED,
        lambda k: pipeline(k, "k", 2, Fill.REGISTERS),
        """
        kernel f(in src: f32[8, 16], inout dst: f32[8]):
          alloc src_packed: f32[2, 4, 2, 2] workgroup
          workgroup for t in 4:
            alloc src_packed_next: f32[2, 2] private
            compute x_pack(part in 2, element in 2):
              x = src[part + t * 2, element]
              src_packed[0, t, part, element] = x
            for k in 8:
              barrier()
              compute x_pack_load(part in 2, element in 2):
                x = src[part + t * 2, element + k * 2 + 2 | k < 7]
                src_packed_next[part, element] = x
              compute f(i in 2, e in 2):
                x = src_packed[k % 2, 3 - t, i, e]
                dst[i - t * 2 + 6] add= x
              if k < 7:
                compute x_pack_store(part in 2, element in 2):
                  x = src_packed_next[part, element]
                  src_packed[(k + 1) % 2, t, part, element] = x
            barrier()
        """,
    )


def test_pipeline_by_asynchronous_copies() -> None:
    becomes(
        SHARED,
        lambda k: pipeline(k, "k", 3, Fill.ASYNC),
        """
        kernel f(in src: f32[8, 16], inout dst: f32[8]):
          alloc src_packed: f32[3, 4, 2, 2] workgroup
          workgroup for t in 4:
            unrolled for part in 2:
              vector for element in 2:
                copy_async(&src_packed[0, t, part, element], &src[part + t * 2, element])
            commit_copies()
            unrolled for part in 2:
              vector for element in 2:
                copy_async(&src_packed[1, t, part, element], &src[part + t * 2, element + 2])
            commit_copies()
            for k in 8:
              wait_copies(1)
              barrier()
              if k < 6:
                unrolled for part in 2:
                  vector for element in 2:
                    copy_async(&src_packed[(k + 2) % 3, t, part, element], ASYNC)
              commit_copies()
              compute f(i in 2, e in 2):
                x = src_packed[k % 3, 3 - t, i, e]
                dst[i - t * 2 + 6] add= x
            wait_copies(0)
            barrier()
        """.replace("ASYNC", "&src[part + t * 2, element + k * 2 + 4]"),
    )


WAYS = [(2, Fill.COPY), (2, Fill.REGISTERS), (2, Fill.ASYNC), (3, Fill.ASYNC), (9, Fill.ASYNC)]


@pytest.mark.parametrize(("stages", "fill"), WAYS)
@pytest.mark.parametrize("k", [2, 4, 12])
@pytest.mark.parametrize("vector", [1, 4])
def test_pipelined_matmuls(stages: int, fill: Fill, k: int, vector: int) -> None:
    naive = matmul(8, 12, k)
    levels = [(LoopKind.GRID, {"m": 4, "n": 12}), (LoopKind.WORKGROUP, {"m": 2, "n": 4})]
    kernel = compute_at(naive, "mul", levels, producers=[])
    kernel = tile(kernel, "mul", {"k": 1})
    kernel = shared(kernel, "mul", ["x", "y"], at="k", by=Threads(vector))
    piped = pipeline(kernel, "k", stages, fill)
    equal(naive, piped)
    assert f"a_packed: f32[{stages}, 2, 2] {{0:{stages}:16 1:2:2 2:2:1}} workgroup" in to_text(
        piped
    )


@pytest.mark.parametrize("fill", [Fill.COPY, Fill.REGISTERS])
def test_pipeline_converts_and_unrolls(fill: Fill) -> None:
    naive = matmul(4, 8, 6, dtype="bf16")
    kernel = compute_at(naive, "mul", [(LoopKind.WORKGROUP, {"m": 2, "n": 4})], producers=[])
    kernel = shared(tile(kernel, "mul", {"k": 2}), "mul", ["x", "y"], at="k_o", cast={"y": f32})
    kernel = pipeline(set_kind(kernel, "k_o", LoopKind.UNROLLED), "k_o", 2, fill)
    equal(naive, kernel)
    assert "b_packed: f32[2, " in to_text(kernel)
    assert "a_packed: bf16[2, " in to_text(kernel)


@pytest.mark.parametrize(("stages", "fill"), WAYS)
def test_pipeline_of_a_loop_whose_extent_varies_and_may_be_zero(stages: int, fill: Fill) -> None:
    naive = _parse(
        """
        kernel f(in src: f32[8, 16], inout dst: f32[8]):
          alloc src_packed: f32[4, 2] workgroup
          workgroup for t in 4:
            for j in 3:
              for k in j * 4:
                compute x_pack(e in 2):
                  x = src[t + j, e + k * 2]
                  src_packed[t, e] = x
                barrier()
                compute f(e in 2):
                  x = src_packed[3 - t, e]
                  dst[t] add= x
                barrier()
        """
    )
    equal(naive, pipeline(naive, "k", stages, fill))


def test_pipeline_in_two_pieces() -> None:
    text = textwrap.dedent(SHARED).strip()
    piece = text.split("\n", 3)[3]
    head = "\n".join(text.split("\n")[:3])
    other = piece.replace("src_packed", "other").replace("in 8:", "in 3:")
    alloc = "  alloc other: f32[4, 2, 2] workgroup"
    lines = head.split("\n")
    naive = parse_kernel("\n".join([*lines[:2], alloc, lines[2], piece, other]))
    kernel = pipeline(naive, "k")
    equal(naive, kernel)
    assert "alloc other: f32[2, 4, 2, 2] workgroup" in to_text(kernel)


CASES: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "one stage": ({}, {"stages": 1}, "pipeline: 1 stages"),
    "three stages": ({}, {"stages": 3}, "pipeline: 3 stages[^$]*2 and more with Fill.ASYNC"),
    "three in registers": ({}, {"stages": 3, "fill": Fill.REGISTERS}, "pipeline: 3 stages"),
    "another loop": ({}, {"loop": "q"}, "there is no loop 'q'"),
    "work-items": ({}, {"loop": "t"}, "its iterations do not run in order[^$]*a serial loop"),
    "no barrier": (
        {"      barrier()\n      compute f": "      compute f"},
        {},
        "its body is not copies, a barrier[^$]*stage operands at this loop first",
    ),
    "more than copies": (
        {"      compute x_pack": "      q = k + 1\n      compute x_pack"},
        {},
        "more than copies stands before the barrier",
    ),
    "no shared memory": (
        {"] workgroup\n": "] \n"},
        {},
        "'x_pack' is no copy to shared memory",
    ),
    "a sum": (
        {"src_packed[t, part, element] = x": "src_packed[t, part, element] add= x"},
        {},
        "'x_pack' is no copy to shared memory",
    ),
    "a conversion": (
        {"element] = x": "element] = x * 2.0"},
        {"fill": Fill.ASYNC},
        "'x_pack' computes on the way, which asynchronous copies do not",
    ),
    "another type": (
        {"in src: f32": "in src: s8", "element] = x": "element] = f32(x)"},
        {"fill": Fill.ASYNC},
        "'x_pack' computes on the way, which asynchronous copies do not",
    ),
    "two operands": (
        {"] = x": "] = x + y", "        src_packed": "        y = src[0, 0]\n        src_packed"},
        {"fill": Fill.ASYNC},
        "'x_pack' computes on the way, which asynchronous copies do not",
    ),
    "a varying extent": (
        {"part in 2,": "part in k % 2 + 1,"},
        {"fill": Fill.ASYNC},
        "an extent is not constant",
    ),
    "a source that changes": (
        {"in src": "inout src", "dst[i + 6 - t * 2]": "src[i + 6 - t * 2, e + k * 2]"},
        {},
        "the loop writes what 'x_pack' copies",
    ),
    "another reader": (
        {"    for k": "    src_packed[t, 0, 0] = 1.0\n    for k"},
        {},
        r"'src_packed' is also used by `src_packed\[t, 0, 0\] = 1.0`",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_pipeline_refuses(case: str) -> None:
    changes, options, text = CASES[case]
    source = textwrap.dedent(SHARED)
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    kernel = parse_kernel(source)
    with pytest.raises(ScheduleError, match=text):
        pipeline(kernel, **({"loop": "k"} | options))


def test_pipeline_of_copies_with_two_operands() -> None:
    source = textwrap.dedent(SHARED)
    for old, new in CASES["two operands"][0].items():
        source = source.replace(old, new)
    naive = parse_kernel(source)
    equal(naive, pipeline(naive, "k"))
    equal(naive, pipeline(naive, "k", 2, Fill.REGISTERS))

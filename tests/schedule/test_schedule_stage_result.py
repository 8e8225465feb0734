"""stage_result for workgroups: golden text, random tiles and layouts, races, refusals."""

from __future__ import annotations

import textwrap
from random import Random

import pytest

from schedule_cases import becomes, convolution, equal, memory
from tilewright.errors import ScheduleError
from tilewright.interpret import Findings, run
from tilewright.ir import Allocate, For, Kernel, LoopKind, Space, parse_kernel, to_text
from tilewright.ir.visit import walk_stmts
from tilewright.schedule import Threads
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.staging.stage_result import stage_result

GRID, WORKGROUP = LoopKind.GRID, LoopKind.WORKGROUP

ROWS = """
    kernel f(in src: f32[8], out dst: f32[8]):
      workgroup for t in 4:
        alloc acc: f32[2] private
        compute fill(i in 2):
          x = src[i + t * 2]
          acc[i] = x * 2.0
        compute store(i in 2):
          acc = acc[i]
          dst[i + t * 2] = acc + 1.0
"""


def test_stage_result() -> None:
    becomes(
        ROWS,
        lambda k: stage_result(k, "store", by=Threads()),
        """
        kernel f(in src: f32[8], out dst: f32[8]):
          alloc acc_shared: f32[4, 2] workgroup
          workgroup for t in 4:
            alloc acc: f32[2] private
            compute fill(i in 2):
              x = src[i + t * 2]
              acc[i] = x * 2.0
            compute acc_share(i in 2):
              acc = acc[i]
              acc_shared[t, i] = acc
            barrier()
            compute store(part in 2):
              acc = acc_shared[part * 2 + t // 2, t % 2]
              dst[part * 4 + t] = acc + 1.0
            barrier()
        """,
    )


COLUMNS = """
    kernel f(in src: f32[4, 8], inout dst: f32[4, 8]):
      grid for g in 2:
        workgroup for t in 4:
          alloc acc: f32[4] private
          compute fill(i in 4):
            x = src[i, g * 4 + t]
            acc[i] = x * 2.0
          compute store(i in 4):
            acc = acc[i]
            d = dst[i, g * 4 + t]
            dst[i, g * 4 + t | g * 4 + t < 6] = acc + d
"""


def test_all_that_the_compute_reads_is_read_in_the_new_order() -> None:
    becomes(
        COLUMNS,
        lambda k: stage_result(k, "store", by=Threads(2), row_padding={"i": 1}),
        """
        kernel f(in src: f32[4, 8], inout dst: f32[4, 8]):
          grid for g in 2:
            alloc acc_shared: f32[4, 4] {1:4:5 0:4:1} workgroup
            workgroup for t in 4:
              alloc acc: f32[4] private
              compute fill(i in 4):
                x = src[i, g * 4 + t]
                acc[i] = x * 2.0
              compute acc_share(i in 4):
                acc = acc[i]
                acc_shared[t, i] = acc
              barrier()
              compute store(part in 2, element in 2):
                acc = acc_shared[element + t % 2 * 2, part * 2 + t // 2]
                d = dst[part * 2 + t // 2, element + g * 4 + t % 2 * 2]
                dst[part * 2 + t // 2, element + g * 4 + t % 2 * 2 | g * 2 + t % 2 < 3] = acc + d
              barrier()
        """,
    )


def _parse(text: str) -> Kernel:
    return parse_kernel(textwrap.dedent(text))


@pytest.mark.parametrize("limit", [5, 7])
def test_a_mask_that_cuts_runs_leaves_single_elements(limit: int) -> None:
    naive = _parse(COLUMNS.replace("t < 6", f"t < {limit}"))
    kernel = stage_result(naive, "store", by=Threads(2))
    equal(naive, kernel)
    assert "element" not in to_text(kernel)


def test_runs_that_begin_anywhere_are_single_elements() -> None:
    naive = _parse(COLUMNS.replace("f32[4, 8]", "f32[4, 9]"))
    kernel = stage_result(naive, "store", by=Threads(2))
    equal(naive, kernel)
    assert "element" not in to_text(kernel)


def test_rows_of_neighbours_that_are_digits_of_one_number() -> None:
    """In nchw, what two dims made one counts is contiguous over the ends of rows."""
    kernel = _convolved(channels_last=False, item={"oh_ow": 4, "oc": 2})
    shared = stage_result(kernel, "epilogue", by=Threads(4))
    equal(kernel, shared)
    assert "compute epilogue(part in 2, element in 4)" in to_text(shared)


def test_runs_of_pixels_where_the_batch_is_a_digit_too() -> None:
    """In nchw, they are as long as divide a row."""
    naive = convolution(mb=2, ih=6, iw=4, oc=4, kh=1, kw=1, pad=(0, 0), channels_last=False)
    kernel = fuse_dims(naive, ["mb", "oh", "ow"], "mb_oh_ow", digits=True)
    group, item = {"mb_oh_ow": 24, "oc": 4}, {"mb_oh_ow": 4, "oc": 2}
    kernel = compute_at(
        kernel, "epilogue", [(GRID, group), (WORKGROUP, item)], producers=["zero", "conv"]
    )
    for vector, longest in ((2, 2), (4, 4), (8, 4)):
        shared = stage_result(kernel, "epilogue", by=Threads(vector))
        equal(kernel, shared)
        assert f"element in {longest})" in to_text(shared)


def _convolved(channels_last: bool, item: dict[str, int], **options: int) -> Kernel:
    naive = convolution(ih=6, iw=6, oc=6, channels_last=channels_last, **options)  # type: ignore[arg-type]
    kernel = fuse_dims(naive, ["oh", "ow"], "oh_ow", digits=True)
    kernel = pad(kernel, "epilogue", {"oh_ow": 40, "oc": 8})
    group = {"oh_ow": 20, "oc": 8}
    return compute_at(
        kernel, "epilogue", [(GRID, group), (WORKGROUP, item)], producers=["zero", "conv"]
    )


@pytest.mark.parametrize("seed", range(24))
def test_random_tiles(seed: int) -> None:
    r = Random(seed)
    item = {"oh_ow": r.choice([1, 2, 4, 5, 10]), "oc": r.choice([1, 2, 4, 8])}
    kernel = _convolved(r.random() < 0.5, item, ic=r.choice([1, 3]), mb=r.choice([1, 2]))
    pieces = {d: r.choice([p for p in (1, 2, 5) if n % p == 0]) for d, n in item.items() if n > 1}
    shared = tile(kernel, "epilogue", pieces) if r.random() < 0.5 else kernel
    loops = [s.var.name for s in walk_stmts(shared.body) if isinstance(s, For)]
    padding = {loops[1]: r.choice([1, 4])} if r.random() < 0.5 else {}
    shared = stage_result(shared, "epilogue", row_padding=padding, by=Threads(r.choice([1, 2, 4])))
    equal(kernel, shared)


def test_pieces_take_less_memory() -> None:
    kernel = _convolved(channels_last=False, item={"oh_ow": 4, "oc": 4})
    whole = stage_result(kernel, "epilogue", by=Threads())
    pieces = stage_result(
        set_kind(tile(kernel, "epilogue", {"oc": 1}), "oc", LoopKind.UNROLLED),
        "epilogue",
        by=Threads(),
    )
    equal(kernel, pieces)
    assert [_bytes(whole), _bytes(pieces)] == [20 * 8 * 4, 20 * 2 * 4]


def _bytes(kernel: Kernel) -> int:
    allocated = [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]
    return sum(b.bytes for b in allocated if b.space is Space.WORKGROUP)


@pytest.mark.parametrize("which", [1, 2])
def test_both_barriers_are_needed(which: int) -> None:
    """What is handed on has arrived before it is read, and has been read before the next piece."""
    kernel = _convolved(channels_last=False, item={"oh_ow": 4, "oc": 4})
    kernel = stage_result(tile(kernel, "epilogue", {"oc": 2}), "epilogue", by=Threads())
    head, *rest = to_text(kernel).split("barrier()")
    assert len(rest) == 2
    parts = [head, *rest]
    left = "barrier()".join(parts[:which]) + "q = 0" + "barrier()".join(parts[which:])

    def races(kernel: Kernel) -> list[str]:
        findings = Findings()
        run(kernel, memory(kernel), findings=findings)
        return [finding.kind.value for finding in findings]

    assert races(kernel) == []
    assert "race" in races(parse_kernel(left))[0]


ILLEGAL = """
    kernel f(in src: f32[8], inout dst: f32[8], in n: s64[1]):
      alloc all: f32[8] workgroup
      workgroup for t in 4:
        alloc acc: f32[2] private
        alloc own: f32[2] private
        {before}
        compute fill(i in 2):
          x = src[i + t * 2]
          acc[i] = x * 2.0
        {around}compute store(i in {extent}):
        {indent}  acc = {read}
        {indent}  {write}
        {after}
"""


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"read": "src[t * 2 + i]"}, "'store' reads nothing that its work-item holds"),
        ({"extent": "n[0]"}, "not all tiles of 'store' are equally large"),
        (
            {"around": "if t < 2:\n          ", "indent": "  "},
            "some work-items may not get to the barrier[^$]*t < 2",
        ),
        ({"before": "q = t * 2", "write": "dst[q + i] = acc"}, "'store' depends on a let of the"),
        ({"write": "own[i] = acc"}, "'own' is the work-item's own[^$]*that all can reach"),
        (
            {"before": "dst[t * 2] = 0.0"},
            "'dst' is also touched otherwise[^$]*let the compute alone",
        ),
        ({"after": "own[0] = dst[t * 2]"}, "'dst' is also touched otherwise"),
        (
            {
                "extent": "2",
                "write": "old = dst[t * 2 + 1 - i]\n          dst[t * 2 + i] = acc + old",
            },
            r"'dst' is also touched otherwise[^$]*dst\[t \* 2 \+ 1 - i\] would be reached",
        ),
    ],
)
def test_stage_result_refuses(changes: dict[str, str], text: str) -> None:
    legal = {
        "before": "p = 0",
        "around": "",
        "indent": "",
        "extent": "2",
        "read": "acc[i]",
        "write": "dst[t * 2 + i] = acc",
        "after": "r = 0",
    }
    stage_result(_parse(ILLEGAL.format(**legal)), "store", by=Threads())
    with pytest.raises(ScheduleError, match=f"stage_result: {text}"):
        stage_result(_parse(ILLEGAL.format(**legal | changes)), "store", by=Threads())


def test_stage_result_refuses_what_is_not_there() -> None:
    kernel = _parse(ROWS)
    with pytest.raises(ScheduleError, match="stage_result: there is no compute 'q'"):
        stage_result(kernel, "q", by=Threads())
    with pytest.raises(ScheduleError, match="stage_result: 0 elements at a time"):
        stage_result(kernel, "store", by=Threads(0))
    with pytest.raises(ScheduleError, match="the new buffer has no dim 'q'"):
        stage_result(kernel, "store", by=Threads(), layout=["q"])
    serial = _parse(ROWS.replace("workgroup for", "for"))
    with pytest.raises(ScheduleError, match="stage_result: no work-items are around 'store'"):
        stage_result(serial, "store", by=Threads())

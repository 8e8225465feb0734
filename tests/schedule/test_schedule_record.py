"""Schedules as values: handles, the record, its text, and replays of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from schedule_cases import convolution, equal
from tilewright.dtypes import DType
from tilewright.errors import ParseError, ScheduleError
from tilewright.ir.buffer import Space, Swizzle
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, LoopKind
from tilewright.machines.instruction import Instruction
from tilewright.machines.tile_unit import TileCopy
from tilewright.machines.x86 import machine
from tilewright.schedule import TRANSFORMS, KernelSchedule
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.records.handles import Handle, Results
from tilewright.schedule.records.reading import parse_schedule
from tilewright.schedule.records.record import VALUES, call_text, source
from tilewright.schedule.records.replaying import repeat
from tilewright.schedule.staging.copiers import CopyUnit, Threads

AVX512 = machine("avx512")
NAIVE = """
kernel k(in a: f32[64, 32], out y: f32[64, 32]):
  compute twice(i in 64, j in 32):
    v = a[i, j]
    y[i, j] = v + v
"""


def _schedule() -> KernelSchedule:
    return KernelSchedule(parse_kernel(NAIVE), AVX512, check=True)


def _recorded(naive: Kernel) -> KernelSchedule:
    schedule = KernelSchedule(naive, AVX512, check=True)
    schedule.stage("conv", "w", shape="dims", layout=["oc", "kh", "kw", "ic", ("oc", 16)])
    pack = schedule.hoist_pack("weights_packed")
    schedule.compute_at(
        "epilogue", {"oc": 16, "oh": 1, "ow": 3}, storage=["ow", "oc"], space=Space.PRIVATE
    )
    schedule.drop_unit_dims()
    kh, kw = schedule.tile("conv", {"kh": 1, "kw": 1})
    schedule.trim(kh)
    schedule.partition("ow_o")
    schedule.tensorize("conv", schedule.instruction("fma_f32x16"), {"n": "oc"})
    schedule.lower_computes(vector="oc", lanes=16)
    schedule.set_kind(kw, LoopKind.UNROLLED)
    schedule.set_kind("oc_o", LoopKind.PARALLEL)
    pack.lower_computes()
    return schedule


def _packs(schedule: KernelSchedule) -> list[Kernel]:
    return [pack.kernel for pack in schedule.packs.values()]


def test_a_schedule_replays_from_its_text() -> None:
    naive = convolution(ic=4, oc=32, iw=10)
    first = _recorded(naive)
    equal(naive, first.kernel, *_packs(first))
    text = str(first)
    lines = text.splitlines()
    header = r"# Tilewright schedule, format 2; machine x86-avx512; kernel conv [0-9a-f]{16}"
    assert re.fullmatch(header, lines[0])
    assert lines[1:5] == [
        'schedule.stage("conv", "w", shape="dims", layout=["oc", "kh", "kw", "ic", ("oc", 16)])',
        'pack = schedule.hoist_pack("weights_packed")',
        "pack.lower_computes()",
        'schedule.compute_at("epilogue", {"oc": 16, "oh": 1, "ow": 3}, storage=["ow", "oc"])',
    ]
    assert 'schedule.set_kind("kw", LoopKind.UNROLLED)' in lines
    again = KernelSchedule(naive, AVX512)
    repeat(again, parse_schedule(text))
    assert to_text(again.kernel) == to_text(first.kernel)
    assert list(map(to_text, _packs(again))) == list(map(to_text, _packs(first)))
    assert again.text() == text == str(parse_schedule(text))
    assert list(again.packs) == ["weights"]


def test_what_changes_nothing_is_no_step() -> None:
    schedule = _schedule()
    assert schedule.drop_unit_dims() == ()
    assert schedule.done == []
    assert schedule.kernel is schedule.start


def test_stages_are_marks_in_a_schedule() -> None:
    schedule = _schedule()
    schedule.mark("naive")
    schedule.drop_unit_dims()
    schedule.mark("no unit dims")
    schedule.tile("twice", {"i": 8})
    schedule.mark("tiled")
    assert list(schedule.stages) == ["naive", "tiled"]
    assert [entry.changed for entry in schedule.log.entries] == [True, False, True]
    assert schedule.stages["tiled"] is schedule.kernel
    (taken,) = schedule.log.entries[-1].steps
    assert str(taken) == 'tile("twice", {"i": 8})'
    assert (taken.before, taken.kernel) == (schedule.start, schedule.kernel)


def test_an_attempt_that_is_refused_leaves_the_schedule_as_it_was() -> None:
    schedule = _schedule()
    schedule.tile("twice", {"i": 8})
    before = schedule.kernel

    def steps() -> None:
        schedule.set_kind("i_o", LoopKind.UNROLLED)
        schedule.mark("unrolled")
        schedule.log.notes.append("unrolled")
        schedule.set_kind("no such loop", LoopKind.PARALLEL)

    def unworthy() -> bool:
        schedule.set_kind("i_o", LoopKind.UNROLLED)
        return False

    for refused in (steps, unworthy):
        assert not schedule.attempt(refused)
        assert schedule.kernel is before and len(schedule.done) == 1
        assert list(schedule.stages) == schedule.log.notes == []
    refused = partial(schedule.set_kind, "no such loop", LoopKind.UNROLLED)
    assert not schedule.attempt(refused, note="twice: rolled")
    assert schedule.log.notes == ["twice: rolled (set_kind: there is no loop 'no such loop')"]
    assert schedule.attempt(lambda: schedule.set_kind("i_o", LoopKind.UNROLLED))
    schedule.mark("unrolled")
    assert [len(entry.steps) for entry in schedule.log.entries] == [2]


def test_a_fork_goes_its_own_way() -> None:
    schedule = _schedule()
    schedule.tile("twice", {"i": 8})
    fork = schedule.fork()
    fork.set_kind("i_o", LoopKind.UNROLLED)
    assert [str(done) for done in fork.done] == [
        'tile("twice", {"i": 8})',
        'set_kind("i_o", LoopKind.UNROLLED)',
    ]
    assert len(schedule.done) == 1


def test_handles_of_steps_that_were_taken_back_are_refused() -> None:
    schedule = _schedule()
    handles: list[Handle] = []

    def steps() -> bool:
        handles.extend(schedule.tile("twice", {"i": 8}))
        return False

    assert not schedule.attempt(steps)
    schedule.tile("twice", {"i": 4})
    with pytest.raises(ScheduleError, match="is of another schedule"):
        schedule.set_kind(handles[0], LoopKind.UNROLLED)
    later = schedule.fork()
    later.set_kind(later.tile("twice", {"j": 4})["j"], LoopKind.UNROLLED)


# Handles.


def test_a_step_gives_handles_of_what_is_new() -> None:
    schedule = _schedule()
    loops = schedule.tile("twice", {"i": 8, "j": 32})
    outer = loops["i"]
    assert isinstance(outer, Handle)
    assert loops == (outer,) and "i" in loops and "j" not in loops
    assert (outer, outer.kind, outer.step) == ("i_o", "loop", 1)
    assert repr(outer) == "<loop 'i_o' of step 1>"
    copy, buffer = schedule.stage("twice", "v", outer, space=Space.PRIVATE)
    assert (copy, copy.kind) == ("v_pack", "compute")
    assert (buffer, buffer.kind) == ("a_packed", "buffer")
    assert schedule.set_kind(outer, LoopKind.PARALLEL) == ()
    schedule.lower_computes([copy])
    assert 'schedule.lower_computes(computes=["v_pack"])' in schedule.text()


def test_transforms_name_what_they_give() -> None:
    schedule = _schedule()
    loops = schedule.tile("twice", {"i": 12, "j": 8})
    parts = schedule.partition(loops["i"])
    assert list(parts.parts) == []  # One tile alone is no loop.
    assert schedule.has(loops["i"])
    schedule.merge_loops([loops["i"], loops["j"]], "both")
    assert not schedule.has(loops["i"])


SUMS = """
kernel sums(in a: f32[8, 16], out c: f32[8]):
  alloc acc: f32[8]
  compute init(i in 8):
    acc[i] = 0.0
  compute main(i in 8, k in 16):
    x = a[i, k]
    acc[i] add= x
  compute result(i in 8):
    x = acc[i]
    c[i] = x
"""


@pytest.mark.parametrize(
    ("step", "parts"),
    [
        (
            lambda s: s.rfactor("main", "k", 4, "part", private=True),
            {"store": "part_store", "begin": "part_init", "combine": "part_sum"},
        ),
        (
            lambda s: s.rfactor("main", "k", 4, "part", private=True, atomic=True),
            {"store": "part_store", "begin": "part_zero"},
        ),
        (
            lambda s: s.stage_result("result", "result"),
            {"finish": "result_finish", "buffer": "c_made"},
        ),
        (
            lambda s: s.stage_result("main", "main"),
            {"load": "main_load", "store": "main_store", "buffer": "acc_tile"},
        ),
        (
            lambda s: s.lay_out("acc", space=Space.PRIVATE, since="result"),
            {"copy": "acc_copy", "buffer": "acc_late"},
        ),
        (lambda s: s.stage("main", "x"), {"copy": "x_pack", "buffer": "a_packed"}),
        (
            lambda s: s.compute_at("result", {"i": 2}, producers={"init": ["i"], "main": ["i"]}),
            {"i": "i_o"},
        ),
    ],
)
def test_what_transforms_make_has_names(
    step: Callable[[KernelSchedule], Results], parts: Mapping[str, str]
) -> None:
    schedule = KernelSchedule(parse_kernel(SUMS), check=True)
    result = step(schedule)
    assert result.parts == parts
    assert all(map(schedule.has, result.parts.values()))


def test_a_handle_is_not_unpacked() -> None:
    with pytest.raises(ScheduleError, match="loop 'i_o' is one handle, which has no parts"):
        _, _ = _schedule().tile("twice", {"i": 8})["i"]


def test_a_handle_of_what_is_gone_says_since_when() -> None:
    schedule = _schedule()
    i_o, j_o = schedule.tile("twice", {"i": 8, "j": 8})
    schedule.merge_loops([i_o, j_o], "both")
    before = schedule.kernel
    expected = (
        "set_kind: loop 'i_o' is gone since step 2: merge_loops(['i_o', 'j_o'], 'both')"
        "\n  where: step 3\n  why: the handle is of step 1"
        "\n  cure: choose what is there now: both"
    ).replace("'i_o', 'j_o'], 'both'", '"i_o", "j_o"], "both"')
    with pytest.raises(ScheduleError, match=re.escape(expected)):
        schedule.set_kind(i_o, LoopKind.UNROLLED)
    # Another thing of that name is not what the handle stands for.
    assert schedule.tile("twice", {"i": 4}) == ("i_o",)
    with pytest.raises(ScheduleError, match="gone since step 2"):
        schedule.set_kind(i_o, LoopKind.UNROLLED)
    assert len(schedule.done) == 3 and schedule.done[1].kernel is before


def test_a_handle_of_another_schedule_is_refused() -> None:
    (outer,) = _schedule().tile("twice", {"i": 8})
    other = _schedule()
    other.tile("twice", {"i": 8})
    assert isinstance(outer, Handle)
    with pytest.raises(ScheduleError, match="set_kind: loop 'i_o' is of another schedule"):
        other.set_kind(outer, LoopKind.UNROLLED)
    with pytest.raises(ScheduleError, match="'i_o' is of another schedule"):
        other.reorder([outer, "j"])


# Refusals.


def test_a_schedule_refuses_and_stays() -> None:
    schedule = _schedule()
    schedule.tile("twice", {"i": 8})
    kernel, text = schedule.kernel, schedule.text()
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: schedule.tile("x", {"i": 4}), "no compute 'x'"),
        (lambda: schedule.tile("twice", {"i": 0}), "tile"),
        (lambda: schedule.apply("twist"), r"no transform 'twist'[^$]*tile"),
        (lambda: schedule.apply("tile", "twice"), "tile: missing a required argument: 'sizes'"),
        (lambda: schedule.apply("tile", "twice", 4), "tile: sizes=4 is of another type"),
        (lambda: schedule.apply("tile", "twice", {"i": True}), "to a whole number"),
        (lambda: schedule.apply("reorder", "ab"), r"loops takes a list of a name"),
        (lambda: schedule.apply("set_kind", "i_o", "parallel"), "kind takes LoopKind"),
        (lambda: schedule.apply("stage", "twice", "v", shape="row"), "shape takes 'box' or 'dims'"),
        (lambda: schedule.hoist_pack("a"), "no buffer 'a' is allocated"),
        (lambda: schedule.lower_computes(lanes=0), "lower_computes: lanes is 0"),
        (
            lambda: schedule.apply("set_kind", "i_o", "j", "k"),
            r"call it as set_kind\(loops, kind, ",
        ),
    ]
    for call, message in refusals:
        with pytest.raises(ScheduleError, match=message):
            call()
    assert schedule.kernel is kernel and schedule.text() == text
    with pytest.raises(ScheduleError, match="no machine to look 'fma_f32x16' up in"):
        KernelSchedule(parse_kernel(NAIVE)).instruction("fma_f32x16")
    with pytest.raises(AttributeError, match="twist"):
        schedule.twist()  # type: ignore[attr-defined]


def test_a_replay_that_does_not_fit_says_which_step() -> None:
    record = parse_schedule(
        'schedule.tile("twice", {"i": 8})\nschedule.tile("twice", {"j": 4})\n'
        'schedule.set_kind("k", LoopKind.UNROLLED)\n'
    )
    schedule = _schedule()
    with pytest.raises(ScheduleError) as caught:
        repeat(schedule, record)
    assert str(caught.value).startswith(
        "step 3 does not fit: set_kind: there is no loop 'k'\n  at line 3, column 1:\n"
        '  schedule.set_kind("k", LoopKind.UNROLLED)'
    )
    assert schedule.done == [] and schedule.kernel is schedule.start
    record = parse_schedule('schedule.tensorize("twice", schedule.instruction("tdp"), {"n": "i"})')
    with pytest.raises(ScheduleError, match="step 1 does not fit: x86-avx512 has no instruction"):
        repeat(schedule, record)
    record = parse_schedule('a, b = schedule.tile("twice", {"i": 8})')
    with pytest.raises(ScheduleError, match="tile makes 1 things, and 2 are named"):
        repeat(schedule, record)
    assert schedule.done == []


# Texts.


def test_texts_may_name_what_steps_give() -> None:
    schedule = _schedule()
    repeat(
        schedule,
        parse_schedule("""
i, j = schedule.tile(
    "twice", {"i": 8, "j": 8}
)
schedule.reorder([j, i])  # as lists, too
schedule.set_kind(j, LoopKind.PARALLEL)
"""),
    )
    assert [str(done) for done in schedule.done] == [
        'tile("twice", {"i": 8, "j": 8})',
        'reorder(["j_o", "i_o"])',
        'set_kind("j_o", LoopKind.PARALLEL)',
    ]


REFUSED = {
    "import os": ("this is no step", 1),
    "schedule": ("this is no step", 1),
    "x = 1": ("this is no step", 1),
    "schedule.tile.__class__()": ("this is no step", 1),
    "print(1)": ("this is no step", 1),
    "other.inline('k')": ("'other' stands for no kernel", 1),
    "schedule.unrol('k')": ("there is no transform 'unrol'", 1),
    "schedule.kernel()": ("there is no transform 'kernel'", 1),
    "schedule.inline(k)": ("this is no argument of a step", 17),
    "schedule.inline('k' + 'o')": ("this is no argument of a step", 17),
    "schedule.inline(*['k'])": ("this is no argument of a step", 17),
    "schedule.inline(**{'loop': 'k'})": ("this is no argument", 19),
    "schedule.inline(open('k'))": ("this is no call that an argument may be", 17),
    "schedule.inline(b'k')": ("this is no argument of a step", 17),
    "schedule.set_kind('k', LoopKind.FAST)": ("LoopKind has no member 'FAST'", 24),
    "schedule.set_kind('k', LoopKind.__class__)": ("LoopKind has no member '__class__'", 24),
    "schedule.stage('c', 'w', cast=dtype('f33'))": ("unknown element type 'f33'", 31),
    "schedule.stage('c', 'w', by=Threads(1, 2, True, 4))": ("this is no Threads", 29),
    "schedule.stage('c', 'w', by=CopyUnit(box={}))": ("this is no CopyUnit", 29),
    "schedule.stage('c', 'w', by=open('x'))": ("this is no call that an argument may be", 29),
    "schedule.tile('c', {**{}})": ("this is no name of something", 20),
    "schedule.tile('c', {1: 2})": ("this is no name of something", 21),
    "schedule.x = schedule.inline('k')": ("this is no name", 1),
    "schedule = schedule.inline('k')": ("'schedule' already stands for a kernel", 1),
    "a, b = schedule.hoist_pack('w')": ("hoist_pack gives one kernel", 1),
    "schedule.inline('k'": ("this is no text of a schedule", 16),
    "schedule.inline('ä', ö)": ("this is no argument of a step", 22),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_step_is_refused(text: str) -> None:
    what, column = REFUSED[text]
    with pytest.raises(ParseError) as caught:
        parse_schedule(f"# mine\nschedule.drop_unit_dims()\n{text}\n")
    assert caught.value.what == what
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.column) == (3, column)


@pytest.mark.parametrize(
    "text", ["-" * 100_000 + "1", "(" * 5000, "a" + ".b" * 50_000, "\0", "x" * 300_000, "\ud800"]
)
def test_texts_that_python_cannot_read(text: str) -> None:
    with pytest.raises(ParseError, match=r"no text of a schedule|too long for a schedule"):
        parse_schedule(text)


def test_a_text_of_another_format_is_refused() -> None:
    text = f"# Tilewright schedule, format 3; machine m; kernel k {'0' * 16}\n"
    with pytest.raises(ParseError, match="the schedule is of format 3"):
        parse_schedule(text)
    with pytest.raises(ParseError, match="3 is no text of a schedule"):
        parse_schedule(3)  # type: ignore[arg-type]


def test_arguments_print_as_python() -> None:
    swizzled = {"layout": ("m", ("k", 8)), "swizzle": Swizzle(3, 3, 3), "cast": None, "at": 'a"b'}
    text = call_text("stage", ("main", "a"), swizzled)
    assert text == (
        'stage("main", "a", at="a\\"b", layout=("m", ("k", 8)), swizzle=Swizzle(3, 3, 3))'
    )
    line = parse_schedule(f"schedule.{text}").lines[0]
    assert str(line) == f"schedule.{text}"
    for by in (Threads(4, 32), Threads(4, 32, True), CopyUnit({"m": 64}), CopyUnit()):
        text = f"schedule.{call_text('stage', ('main', 'a'), {'by': by})}"
        line = parse_schedule(text).lines[0]
        assert str(line) == text and line.kwargs["by"] == by
    assert parse_schedule('schedule.stage("c", "a", by=Threads(lanes=8))').lines[0].kwargs == {
        "by": Threads(1, 8)
    }
    with pytest.raises(
        ScheduleError, match="by=Threads\\(vector='4', lanes=0, across=False\\) is of another type"
    ):
        _schedule().stage("twice", "v", "i", by=Threads("4"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Kernel is no data"):
        source(convolution())


def test_every_transform_is_a_method_that_helps() -> None:
    for name, function in TRANSFORMS.items():
        method = getattr(KernelSchedule, name)
        assert inspect.getdoc(method) == inspect.getdoc(function)
        _, *parameters = inspect.signature(method).parameters.values()
        _, *wanted = inspect.signature(function).parameters.values()
        assert parameters == wanted
        assert "Handle" in inspect.signature(method).return_annotation
    assert set(vars(KernelSchedule)) >= set(TRANSFORMS)
    assert inspect.getdoc(KernelSchedule.tile) == inspect.getdoc(tile)


_DATA = (str, int, float, bool, NoneType, DType, Instruction, TileCopy, *VALUES.values())


def _leaves(wanted: Any) -> Iterator[Any]:
    """The types that an annotation is made of; of a literal, its values' types."""
    if get_origin(wanted) is Literal:
        yield from map(type, get_args(wanted))
    elif get_args(wanted):
        for arg in get_args(wanted):
            yield from _leaves(arg)
    else:
        yield wanted


def test_transforms_take_data() -> None:
    """Nothing that a record could not hold: no variables, buffers or kernels."""
    assert len(TRANSFORMS) > 20
    for name, function in TRANSFORMS.items():
        hints = get_type_hints(inspect.unwrap(function))
        _, *parameters = inspect.signature(function).parameters
        for parameter in parameters:
            for leaf in _leaves(hints[parameter]):
                data = leaf in _DATA or issubclass(leaf, Enum)
                assert data, f"{name}({parameter}) takes {leaf}"


def test_numbers_that_python_does_not_write() -> None:
    for values in (10**5000, {"i": 2.0, "j": 10**5000}):
        with pytest.raises(ScheduleError, match="sizes=an integer of thousands of digits"):
            _schedule().tile("twice", values)

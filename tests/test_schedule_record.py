"""Schedules as values: handles, the record, its text, and replays of it."""

from __future__ import annotations

import inspect
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import schedule_replays
import tilewright as tw
from kernel_examples import EXAMPLES
from schedule_cases import convolution, equal
from tilewright.dtypes import DType
from tilewright.errors import ParseError, ScheduleError, TilewrightError
from tilewright.ir.buffer import Space, Swizzle
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, LoopKind
from tilewright.ir.verify import verify
from tilewright.machines.instruction import Instruction
from tilewright.machines.x86 import machine
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule import TRANSFORMS, KernelSchedule, tile
from tilewright.schedule.handles import Handle
from tilewright.schedule.reading import parse_schedule
from tilewright.schedule.record import call_text, source
from tilewright.schedule.replaying import repeat
from tilewright.targets.registry import find_target

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
    schedule.promote("conv", "w", by="dims", layout=["oc", "kh", "kw", "ic", ("oc", 16)])
    pack = schedule.hoist_pack("weights_packed")
    schedule.tile_and_fuse(
        "epilogue", {"oc": 16, "oh": 1, "ow": 3}, storage=["ow", "oc"], space=Space.PRIVATE
    )
    schedule.drop_unit_dims()
    kh, kw = schedule.tile("conv", {"kh": 1, "kw": 1})
    schedule.trim(kh)
    schedule.partition("ow_o")
    schedule.tensorize("conv", schedule.instruction("fma_f32x16"), {"n": "oc"})
    schedule.lower_computes(vector="oc", lanes=16)
    schedule.unroll(kw)
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
    header = r"# Tilewright schedule, format 1; machine x86-avx512; kernel conv [0-9a-f]{16}"
    assert re.fullmatch(header, lines[0])
    assert lines[1:5] == [
        'schedule.promote("conv", "w", by="dims", layout=["oc", "kh", "kw", "ic", ("oc", 16)])',
        'pack = schedule.hoist_pack("weights_packed")',
        "pack.lower_computes()",
        'schedule.tile_and_fuse("epilogue", {"oc": 16, "oh": 1, "ow": 3}, storage=["ow", "oc"])',
    ]
    assert 'schedule.unroll("kw")' in lines
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


# Handles.


def test_a_step_gives_handles_of_what_is_new() -> None:
    schedule = _schedule()
    outer = schedule.tile("twice", {"i": 8})
    assert isinstance(outer, Handle)
    assert (outer, outer.kind, outer.step) == ("i_o", "loop", 1)
    assert repr(outer) == "<loop 'i_o' of step 1>"
    copy, buffer = schedule.promote("twice", "v", outer, space=Space.PRIVATE)
    assert (copy, copy.kind) == ("v_pack", "compute")
    assert (buffer, buffer.kind) == ("a_packed", "buffer")
    assert schedule.set_kind(outer, LoopKind.PARALLEL) == ()
    schedule.lower_computes([copy])
    assert 'schedule.lower_computes(computes=["v_pack"])' in schedule.text()


def test_a_handle_is_not_unpacked() -> None:
    with pytest.raises(ScheduleError, match="loop 'i_o' is one handle, which has no parts"):
        _, _ = _schedule().tile("twice", {"i": 8})


def test_a_handle_of_what_is_gone_says_since_when() -> None:
    schedule = _schedule()
    i_o, j_o = schedule.tile("twice", {"i": 8, "j": 8})
    schedule.merge_loops([i_o, j_o], "both")
    before = schedule.kernel
    expected = (
        "unroll: loop 'i_o' is gone since step 2: merge_loops(['i_o', 'j_o'], 'both')"
        "\n  where: step 3\n  why: the handle is of step 1"
        "\n  cure: choose what is there now: both"
    ).replace("'i_o', 'j_o'], 'both'", '"i_o", "j_o"], "both"')
    with pytest.raises(ScheduleError, match=re.escape(expected)):
        schedule.unroll(i_o)
    # Another thing of that name is not what the handle stands for.
    assert schedule.tile("twice", {"i": 4}) == "i_o"
    with pytest.raises(ScheduleError, match="gone since step 2"):
        schedule.unroll(i_o)
    assert len(schedule.done) == 3 and schedule.done[1].kernel is before


def test_a_handle_of_another_schedule_is_refused() -> None:
    outer = _schedule().tile("twice", {"i": 8})
    other = _schedule()
    other.tile("twice", {"i": 8})
    assert isinstance(outer, Handle)
    with pytest.raises(ScheduleError, match="unroll: loop 'i_o' is of another schedule"):
        other.unroll(outer)
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
        (lambda: schedule.apply("promote", "twice", "v", by="row"), "by takes 'tensor' or 'dims'"),
        (lambda: schedule.hoist_pack("a"), "no buffer 'a' is allocated"),
        (lambda: schedule.lower_computes(lanes=0), "lower_computes: vectors of 0 lanes"),
        (lambda: schedule.apply("unroll", "i_o", "j"), r"call it as unroll\(loop\)"),
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
        'schedule.tile("twice", {"i": 8})\nschedule.tile("twice", {"j": 4})\nschedule.unroll("k")\n'
    )
    schedule = _schedule()
    with pytest.raises(ScheduleError) as caught:
        repeat(schedule, record)
    assert str(caught.value).startswith(
        "step 3 does not fit: unroll: there is no loop 'k'\n  at line 3, column 1:\n"
        '  schedule.unroll("k")'
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
    "other.unroll('k')": ("'other' stands for no kernel", 1),
    "schedule.unrol('k')": ("there is no transform 'unrol'", 1),
    "schedule.kernel()": ("there is no transform 'kernel'", 1),
    "schedule.unroll(k)": ("this is no argument of a step", 17),
    "schedule.unroll('k' + 'o')": ("this is no argument of a step", 17),
    "schedule.unroll(*['k'])": ("this is no argument of a step", 17),
    "schedule.unroll(**{'loop': 'k'})": ("this is no argument", 19),
    "schedule.unroll(open('k'))": ("this is no call that an argument may be", 17),
    "schedule.unroll(b'k')": ("this is no argument of a step", 17),
    "schedule.set_kind('k', LoopKind.FAST)": ("LoopKind has no member 'FAST'", 24),
    "schedule.set_kind('k', LoopKind.__class__)": ("LoopKind has no member '__class__'", 24),
    "schedule.promote('c', 'w', cast=dtype('f33'))": ("unknown element type 'f33'", 33),
    "schedule.tile('c', {**{}})": ("this is no name of something", 20),
    "schedule.tile('c', {1: 2})": ("this is no name of something", 21),
    "schedule.x = schedule.unroll('k')": ("this is no name", 1),
    "schedule = schedule.unroll('k')": ("'schedule' already stands for a kernel", 1),
    "a, b = schedule.hoist_pack('w')": ("hoist_pack gives one kernel", 1),
    "schedule.unroll('k'": ("this is no text of a schedule", 16),
    "schedule.unroll('ä', ö)": ("this is no argument of a step", 22),
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
    text = f"# Tilewright schedule, format 2; machine m; kernel k {'0' * 16}\n"
    with pytest.raises(ParseError, match="the schedule is of format 2"):
        parse_schedule(text)
    with pytest.raises(ParseError, match="3 is no text of a schedule"):
        parse_schedule(3)  # type: ignore[arg-type]


def test_arguments_print_as_python() -> None:
    swizzled = {"layout": ("m", ("k", 8)), "swizzle": Swizzle(3, 3, 3), "cast": None, "at": 'a"b'}
    text = call_text("promote", ("main", "a"), swizzled)
    assert text == (
        'promote("main", "a", at="a\\"b", layout=("m", ("k", 8)), swizzle=Swizzle(3, 3, 3))'
    )
    line = parse_schedule(f"schedule.{text}").lines[0]
    assert str(line) == f"schedule.{text}"
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


_DATA = (str, int, float, bool, NoneType, DType, Instruction, Swizzle)


def _leaves(wanted: Any) -> Iterator[Any]:
    """The types that an annotation is made of; of a literal, its values' types."""
    if get_origin(wanted) is Literal:
        yield from map(type, get_args(wanted))
    elif get_args(wanted):
        for each in get_args(wanted):
            yield from _leaves(each)
    else:
        yield wanted


def test_transforms_take_data() -> None:
    """Nothing that a record could not hold: no variables, buffers or kernels."""
    for name, function in TRANSFORMS.items():
        hints = get_type_hints(inspect.unwrap(function))
        _, *parameters = inspect.signature(function).parameters
        for parameter in parameters:
            for leaf in _leaves(hints[parameter]):
                data = leaf in _DATA or issubclass(leaf, Enum)
                assert data, f"{name}({parameter}) takes {leaf}"


# What recipes record.


def test_recipes_record_all_that_they_do() -> None:
    seed = random.randrange(2**32)
    for target, case in islice(schedule_replays.cases(seed), 6):
        found = schedule_replays.fault(target, case)
        assert found is None, f"seed {seed}: {target} {case.driver} {case.arguments()}: {found}"


@pytest.mark.parametrize("target", schedule_replays.TARGETS)
def test_kernels_of_any_kind_are_recorded(target: str) -> None:
    where = find_target(target)
    for name, example in EXAMPLES.items():
        kernel = parse_kernel(textwrap.dedent(example.text).strip("\n"))
        inputs = tuple(each.name for each in kernel.arrays if each.access == "in")
        start = Start(kernel, kernel, constant=inputs)
        _, scheduled = choose.choose(start, where.machine)
        assert schedule_replays.fault_of(scheduled, start, where) is None, name


PERCEPTRON = """
kernel perceptron(in x: f32[8, 16], in w1: f32[16, 24], in w2: f32[24, 8], out y: f32[8, 8]):
  alloc hidden: f32[8, 24]
  compute clear(i in 8, j in 24):
    hidden[i, j] = 0.0
  compute first(i in 8, j in 24, k in 16):
    hidden[i, j] add= x[i, k] * w1[k, j]
  compute relu(i in 8, j in 24):
    hidden[i, j] = max(hidden[i, j], 0.0)
  compute clear2(i in 8, j in 8):
    y[i, j] = 0.0
  compute second(i in 8, j in 8, k in 24):
    y[i, j] add= hidden[i, k] * w2[k, j]
"""


def test_parts_of_a_kernel_have_schedules() -> None:
    kernel = parse_kernel(PERCEPTRON)
    schedule = KernelSchedule(kernel, AVX512, check=True)
    first, second = schedule.cut()
    assert [part.kernel.name for part in (first, second)] == ["perceptron_1", "perceptron_2"]
    first.promote("main", "b", by="dims", space=Space.GLOBAL, layout=["n", "k"], name="packed")
    pack = first.hoist_pack("packed")
    pack.lower_computes()
    i_o = first.tile("main", {"m": 4})
    first.unroll(i_o)
    for part in (first, second):
        part.lower_computes()
    schedule.put_together()
    assert schedule.text().splitlines()[1:] == [
        "group, group_2 = schedule.cut()",
        'group.promote("main", "b", by="dims", space=Space.GLOBAL, layout=["n", "k"], '
        'name="packed")',
        'pack = group.hoist_pack("packed")',
        "pack.lower_computes()",
        'group.tile("main", {"m": 4})',
        'group.unroll("m_o")',
        "group.lower_computes()",
        "group_2.lower_computes()",
        "schedule.put_together()",
    ]
    assert list(schedule.packs) == ["w1"]
    again = KernelSchedule(kernel, AVX512)
    repeat(again, parse_schedule(schedule.text()))
    assert to_text(again.kernel) == to_text(schedule.kernel)
    assert again.text() == schedule.text()


def _mutated(rng: random.Random, text: str) -> str:
    """``text`` with steps gone, twice, or elsewhere, and with other names and numbers."""
    lines = text.splitlines()
    names = re.findall(r'"\w+"', text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        pattern, others = (r'"\w+"', names) if rng.random() < 0.5 else (r"\b\d+\b", _NUMBERS)
        found = list(re.finditer(pattern, lines[at]))
        match rng.randrange(5):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case _ if found:
                place = rng.choice(found)
                new = rng.choice(others)
                lines[at] = lines[at][: place.start()] + new + lines[at][place.end() :]
    return "\n".join(lines) + "\n"


_NUMBERS = ("0", "1", "2", "3", "4", "7", "8", "16", "32", "64", "1000")


@pytest.mark.parametrize("target", ["x86:avx2", "spirv:gpu", "nvidia:sm_80", "nvidia:sm_90a"])
def test_records_that_were_edited_fit_or_are_refused(target: str) -> None:
    """By errors of the project, whatever is written there."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    where = find_target(target)
    start = Start.of(tw.matmul("40x32:32x48", dtype="bf16").resolved())
    _, scheduled = choose.choose(start, where.machine)
    packs = tuple(scheduled.packs.values())
    recorded = KernelSchedule.of(scheduled.kernel, where.machine, packs)
    text = recorded.text().partition("\n")[2]
    for _ in range(10):
        edited = _mutated(rng, text)
        schedule = KernelSchedule(recorded.start, where.machine)
        try:
            repeat(schedule, parse_schedule(edited))
            verify(schedule.kernel)
        except TilewrightError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} of\n{edited}") from error


def test_cuts_that_are_none_are_refused() -> None:
    schedule = _schedule()
    with pytest.raises(ScheduleError, match="cut: k is one group"):
        schedule.cut()
    with pytest.raises(ScheduleError, match="put_together: there are no groups"):
        schedule.put_together()
    schedule = KernelSchedule(parse_kernel(PERCEPTRON), AVX512)
    schedule.cut()
    schedule.put_together()
    with pytest.raises(ScheduleError, match="put_together: there are no groups"):
        schedule.put_together()
    record = parse_schedule("a, b, c = schedule.cut()")
    with pytest.raises(ScheduleError, match="cut makes 2 things, and 3 are named"):
        repeat(KernelSchedule(parse_kernel(PERCEPTRON), AVX512), record)


def test_the_sweep_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert schedule_replays.main(["--count", "1", "--seed", "3"]) == 0
    assert capsys.readouterr().out == "1 schedules recorded and replayed (seed 3): 0 differ\n"

"""What recipes record, and records of kernels in groups: replayed, edited, counted."""

from __future__ import annotations

import random
import re
import textwrap
from itertools import islice

import pytest

import schedule_replays
import tilewright as tw
from kernel_examples import EXAMPLES
from schedule_cases import convolution
from sweeps import in_turns
from tilewright.errors import ScheduleError, TilewrightError
from tilewright.ir.buffer import Space
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import LoopKind
from tilewright.ir.verify import verify
from tilewright.machines.x86 import machine
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule import KernelSchedule
from tilewright.schedule.records.reading import parse_schedule
from tilewright.schedule.records.replaying import repeat
from tilewright.targets.registry import find_target

AVX512 = machine("avx512")


def test_recipes_record_all_that_they_do() -> None:
    seed = random.randrange(2**32)
    drawn = list(islice(schedule_replays.cases(seed), 6))
    assert len(drawn) == 6
    for target, case in drawn:
        result = schedule_replays.fault(target, case)
        assert result is None, f"seed {seed}: {target} {case.driver} {case.arguments()}: {result}"


@pytest.mark.parametrize("target", in_turns(3, schedule_replays.TARGETS))
def test_kernels_of_any_kind_are_recorded(target: str) -> None:
    where = find_target(target)
    for name, example in EXAMPLES.items():
        kernel = parse_kernel(textwrap.dedent(example.text).strip("\n"))
        inputs = tuple(array.name for array in kernel.arrays if array.access == "in")
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
    first.stage("main", "b", shape="dims", space=Space.GLOBAL, layout=["n", "k"], name="packed")
    pack = first.hoist_pack("packed")
    pack.lower_computes()
    first.set_kind(first.tile("main", {"m": 4})["m"], LoopKind.UNROLLED)
    for part in (first, second):
        part.lower_computes()
    schedule.put_together()
    assert schedule.text().splitlines()[1:] == [
        "group, group_2 = schedule.cut()",
        'group.stage("main", "b", shape="dims", space=Space.GLOBAL, layout=["n", "k"], '
        'name="packed")',
        'pack = group.hoist_pack("packed")',
        "pack.lower_computes()",
        'group.tile("main", {"m": 4})',
        'group.set_kind("m_o", LoopKind.UNROLLED)',
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
        result = list(re.finditer(pattern, lines[at]))
        match rng.randrange(5):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case _ if result:
                place = rng.choice(result)
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
    text = scheduled.text().partition("\n")[2]
    assert text
    for _ in range(10):
        edited = _mutated(rng, text)
        schedule = KernelSchedule(scheduled.start, where.machine)
        try:
            repeat(schedule, parse_schedule(edited))
            verify(schedule.kernel)
        except TilewrightError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} of\n{edited}") from error


def test_cuts_that_are_none_are_refused() -> None:
    schedule = KernelSchedule(convolution(), AVX512)
    with pytest.raises(ScheduleError, match="is one group"):
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

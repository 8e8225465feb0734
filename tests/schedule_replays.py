"""Whether what recipes record is all that they do: printed, read and replayed, it gives the same
code. Over the sets of problems that ship, on every target.

As a program, ``python tests/schedule_replays.py --count 2000 --seed 7``: it prints each case that
differs.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from tilewright.bench import catalog
from tilewright.dtypes import bf16, f32, s8, s32, u8
from tilewright.errors import TilewrightError
from tilewright.facts import Facts, starting_from
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.passes import run
from tilewright.problems import DRIVERS, Direction
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule import KernelSchedule
from tilewright.schedule.records.reading import parse_schedule
from tilewright.schedule.records.replaying import repeat
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target
from tilewright.testing.case import Case

TARGETS = (
    "x86:avx2",
    "x86:avx512_bf16",
    "x86:amx",
    "spirv:cpu",
    "spirv:gpu",
    "nvidia:sm_70",
    "nvidia:sm_80",
    "nvidia:sm_90a",
)
_TYPES = ((f32, f32, f32), (bf16, bf16, bf16), (u8, s8, s32))
_TAGS = {3: "nwc", 4: "nhwc", 5: "ndhwc"}


def cases(seed: int, targets: Sequence[str] = TARGETS) -> Iterator[tuple[str, Case]]:
    """Problems of all sets in directions, types and layouts, each on a target, in an order that
    ``seed`` says."""
    result: list[tuple[str, Case]] = []
    for name in catalog.names():
        chosen = catalog.load(name)
        products = chosen.driver in ("conv", "matmul")
        directions = list(Direction)[:4] if chosen.driver == "conv" else [Direction.FWD_D]
        for problem in chosen.problems:
            for direction in directions:
                types = [_TYPES[0][: len(DRIVERS[chosen.driver].roles)]]
                if products:
                    types = list(_TYPES if direction is Direction.FWD_D else _TYPES[:2])
                for type_ in types:
                    case = Case(problem, type_, direction=direction)
                    result += [(target, case) for target in targets]
                    if chosen.driver == "conv":
                        tag = _TAGS[len(problem.shapes["src"])]
                        placed = Case(problem, type_, (tag, "any", tag), direction)
                        result += [(target, placed) for target in targets]
    random.Random(seed).shuffle(result)
    return iter(result)


def fault(name: str, case: Case) -> str | None:
    """What is wrong with the record of the default schedule on a target; None if nothing is."""
    target = find_target(name)
    start = Start.of(case.op().resolved())
    with starting_from(Facts.empty()):
        _, scheduled = choose.choose(start, target.machine)
    return fault_of(scheduled, start, target)


def fault_of(scheduled: KernelSchedule, start: Start, target: Target) -> str | None:
    """What is wrong with the record of ``scheduled``; None if nothing is."""
    if scheduled.start not in (start.kernel, start.exact):
        return "the record has a gap: it does not begin with the kernel"
    text = scheduled.text()
    record = parse_schedule(text)
    if str(record) != text:
        return f"read and printed again, the record is another:\n{text}\n{record}"
    again = KernelSchedule(scheduled.start, target.machine)
    try:
        with starting_from(Facts.empty()):
            repeat(again, record)
    except TilewrightError as error:
        return f"the record does not replay: {error}\n{text}"
    if again.text() != text:
        return f"replayed, it records something else:\n{text}\n{again}"
    if again.packs.keys() != scheduled.packs.keys():
        return f"it packs {list(again.packs)} instead of {list(scheduled.packs)}"
    before = {"": scheduled.kernel, **scheduled.packed}
    after = {"": again.kernel, **again.packed}
    for part, kernel in before.items():
        if to_text(kernel) != to_text(after[part]) or _code(kernel, target) != _code(
            after[part], target
        ):
            return f"{part or 'the kernel'} is another:\n{text}"
    return None


def _code(kernel: Kernel, target: Target) -> str:
    return target.lower(run(kernel)).text


def main(words: list[str] | None = None) -> int:
    """The sweep; 1 where a case differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(words)
    wrong = 0
    picked = list(islice(cases(chosen.seed), chosen.count))
    for target, case in picked:
        result = fault(target, case)
        if result is not None:
            wrong += 1
            print(f"{target} {case.driver} {case.arguments()}: {result}", flush=True)
    print(f"{len(picked)} schedules recorded and replayed (seed {chosen.seed}): {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

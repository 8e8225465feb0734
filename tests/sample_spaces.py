"""Draws points of the spaces of all recipes, for all targets: each is compiled, or refused with a
reason, and what is compiled is right in the interpreter.

    python tests/sample_spaces.py --count 10000 --seed 1
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tilewright.engine.request import request_of
from tilewright.errors import ScheduleError, TilewrightError, UnsupportedError
from tilewright.passes import run as run_passes
from tilewright.recipes.choose import schedule, space_of
from tilewright.recipes.config import Config
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case
from tilewright.testing.interpreted import InterpretedKernel
from tilewright.testing.random_problems import random_cases
from tilewright.testing.verify import Status, op_trials, verify_on

TARGETS = ("x86:avx2", "x86:avx512_vnni", "x86:amx", "spirv", "spirv:gpu", "nvidia:sm_80")
DRIVERS = ("conv", "matmul", "softmax", "pool", "reduce", "eltwise", "lnorm", "binary")


@dataclass(frozen=True)
class Drawn:
    """A point, what it is of, and what came of it: "right", "refused", or what is wrong."""

    target: str
    case: Case
    point: Config | None
    outcome: str
    why: str = ""

    def __str__(self) -> str:
        words = f"--target {self.target} --config {str(self.point)!r} {self.case.arguments()}"
        return f"{self.outcome}: {self.why}\n  {words}"


def drawn(target: str, driver: str, seed: int, compiles: bool = True) -> Drawn:
    """A random point of a random problem, built and run in the interpreter; for the processor that
    this is, it is compiled and run there, too, if it ``compiles``."""
    (case,) = random_cases(driver, 1, seed)
    where = find_target(target)
    point: Config | None = None
    try:
        op = case.op().resolved()
        space = space_of(request_of(op).start(), where.machine)
        point = space.drawn(Random(seed))
        kernel = InterpretedKernel(op, where.machine, point)
    except (ScheduleError, UnsupportedError) as error:
        said = bool(error.why or error.cure)
        return Drawn(target, case, point, "refused" if said else "no reason", str(error))
    except Exception as error:
        return Drawn(target, case, point, type(error).__name__, str(error))
    verdict = verify_on(lambda: kernel, op_trials(op, seed, ("integers",)))
    if verdict.status is Status.FAILED:
        return Drawn(target, case, point, "wrong", verdict.reason)
    if compiles:
        try:
            where.lower(run_passes(schedule(request_of(op).start(), where.machine, point).kernel))
        except UnsupportedError as error:
            return Drawn(target, case, point, "refused", str(error))
        except TilewrightError as error:
            return Drawn(target, case, point, type(error).__name__, str(error))
    return Drawn(target, case, point, "right", verdict.reason)


def points(
    count: int, seed: int, targets: Sequence[str] = TARGETS, drivers: Sequence[str] = DRIVERS
) -> Iterator[Drawn]:
    """So many of them, target by target and driver by driver in turns."""
    for number in range(count):
        target = targets[number % len(targets)]
        driver = drivers[number // len(targets) % len(drivers)]
        yield drawn(target, driver, seed + number)


def main() -> None:
    """What the module says. Ends with 1 where a point is neither right nor refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for point in points(asked.count, asked.seed):
        counts[point.outcome] += 1
        if point.outcome not in ("right", "refused"):
            print(point, flush=True)
    print(f"{dict(counts)} in {time.monotonic() - start:.0f} s")
    if set(counts) - {"right", "refused"}:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""The passes in their order, and what is recorded of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.facts import Facts, starting_from
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.passes.hoist import hoist
from tilewright.passes.lanes import with_own_memory
from tilewright.passes.lets import reduce_lets
from tilewright.passes.steps import in_steps


@dataclass(frozen=True)
class Pass:
    """A named function from kernels to kernels. What changes nothing returns the same object."""

    name: str
    function: Callable[[Kernel], Kernel]


@dataclass(frozen=True)
class Record:
    """What one pass did: the kernel behind it, and the seconds it took."""

    name: str
    kernel: Kernel
    changed: bool
    seconds: float


Observer = Callable[[Record], None]

PASSES = (
    Pass("lanes", with_own_memory),
    Pass("steps", in_steps),
    Pass("hoist", hoist),
    Pass("lets", reduce_lets),
)


def run(
    kernel: Kernel,
    passes: Sequence[Pass] = PASSES,
    observer: Observer | None = None,
    check: bool = False,
) -> Kernel:
    """``kernel`` behind all passes. ``observer`` sees each; ``check`` verifies what each makes."""
    known = Facts.of(kernel)
    for each in passes:
        start = time.perf_counter()
        with starting_from(known):
            result = each.function(kernel)
        seconds = time.perf_counter() - start
        if check and result is not kernel:
            verify(result)
        if observer is not None:
            observer(Record(each.name, result, result is not kernel, seconds))
        kernel = result
    return kernel

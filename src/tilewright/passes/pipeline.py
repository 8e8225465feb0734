"""The passes in order, and their records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.facts import Facts, starting_from
from tilewright.ir.stages import Stage
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.passes.hoist import hoist
from tilewright.passes.lanes import expand_private_memory
from tilewright.passes.lets import reduce_lets
from tilewright.passes.steps import coarsen_conditions


@dataclass(frozen=True)
class Pass:
    """A named function from kernels to kernels; without a change, it returns the same object."""

    name: str
    function: Callable[[Kernel], Kernel]


Observer = Callable[[Stage], None]

PASSES = (
    Pass("lanes", expand_private_memory),
    Pass("steps", coarsen_conditions),
    Pass("hoist", hoist),
    Pass("lets", reduce_lets),
)


def run(
    kernel: Kernel,
    passes: Sequence[Pass] = PASSES,
    observer: Observer | None = None,
    check: bool = False,
) -> Kernel:
    """``kernel`` after all passes. ``observer`` sees each; ``check`` verifies each result."""
    facts = Facts.of(kernel)
    for pass_ in passes:
        start = time.perf_counter()
        with starting_from(facts):
            result = pass_.function(kernel)
        seconds = time.perf_counter() - start
        if check and result is not kernel:
            verify(result)
        if observer is not None:
            observer(Stage(pass_.name, result, result is not kernel, seconds))
        kernel = result
    return kernel

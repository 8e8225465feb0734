"""What shares the iterations of loops, as machines say it to recipes that ask no kind."""

import pytest

from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Space
from tilewright.ir.stmt import LoopKind
from tilewright.machines import nvidia, spirv, x86
from tilewright.machines.machine import Machine, Workers


@pytest.mark.parametrize(
    ("machine", "workers"),
    [
        (x86.machine("avx2", 4), Workers(LoopKind.PARALLEL, 32, 0, 4096, Space.PRIVATE)),
        (spirv.machine("cpu"), Workers(LoopKind.GRID, 8, 0, 64, Space.GLOBAL)),
        (
            spirv.reported("gpu", cores=2, workgroup=64, shared=1 << 14),
            Workers(LoopKind.GRID, 2 * 64 * 64, 64, 64, Space.GLOBAL),
        ),
        (
            nvidia.reported("sm_80", cores=10, shared=1 << 14),
            Workers(LoopKind.GRID, 10 * 1024 * 64, 128, 64, Space.GLOBAL),
        ),
    ],
    ids=lambda each: each.name if isinstance(each, Machine) else "",
)
def test_of_threads_workgroups_and_work_items(machine: Machine, workers: Workers) -> None:
    """As many pieces as the device reports cores for, not as its kind usually has."""
    assert machine.workers == workers


def test_rates_that_are_not_known_are_refused() -> None:
    assert nvidia.machine("sm_80").peak_rates.clock > 1e9
    with pytest.raises(UnsupportedError, match="no model predicts times on spirv-gpu") as refused:
        _ = spirv.machine("gpu").peak_rates
    assert "choose a target whose machine has rates" in str(refused.value)

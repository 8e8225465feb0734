"""The least time that a compiled kernel can take, by the roofline of its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.engine import CompiledKernel
from tilewright.engine.cost import Cost
from tilewright.engine.operations import operations_of
from tilewright.errors import UnsupportedError
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.machines.rates import Rates
from tilewright.measure.peaks import Peaks, Roof, measure_peaks, measure_roof
from tilewright.ops.op import Op
from tilewright.targets.target import Target


@dataclass(frozen=True)
class Floor:
    """At least ``seconds``, by arithmetic or the memory ``level``; ``source`` says whose peaks are
    used."""

    seconds: float
    level: str
    source: str

    def __str__(self) -> str:
        limit = self.level or "arithmetic"
        return f"{1e3 * self.seconds:.4g} ms, by {limit} ({self.source})"


def floor_of(kernel: CompiledKernel, cost: Cost) -> Floor:
    """The floor of a call: its flops and bytes at the peaks in its machine's data, or of this
    processor, measured now, if it runs there.

    Raises `UnsupportedError` with the reason if it is unknown.
    """
    if cost.bytes is None:
        raise UnsupportedError("bytes and flops depend on the numbers of a call")
    flops, element = _work(kernel, cost)
    machine = kernel.target.machine
    if machine.rates is not None:
        roof = rated_roof(machine, machine.rates, flops, cost.bytes, element)
        return Floor(roof.seconds, roof.level, f"peak figures of {machine.name}")
    if not kernel.target.on_processor:
        raise UnsupportedError(f"peaks of {machine.name} are not known")
    roof = measure_roof(flops, cost.bytes, element, kernel.threads)
    threads = f"{kernel.threads} thread{'s' if kernel.threads > 1 else ''}"
    return Floor(roof.seconds, roof.level, f"peaks of this processor, {threads}, measured now")


def _work(kernel: CompiledKernel, cost: Cost) -> tuple[int, DType | None]:
    """Flops, and the type of the multiplied numbers."""
    what = kernel.what
    if isinstance(what, Kernel):
        flops, element = operations_of(what)
        return flops or 0, element
    if isinstance(what, Op) and what.attributes.fpmath is not None:
        return cost.flops or 0, what.attributes.fpmath
    source = next((a for a in kernel.signature.arguments if a.access == "in"), None)
    return cost.flops or 0, None if source is None else source.dtype


def peaks_of(target: Target, threads: int) -> Peaks | None:
    """The peaks for kernels of ``target``: those in its machine's data, or of this processor,
    measured now, if they run there; None if unknown."""
    machine = target.machine
    if machine.rates is not None:
        return rated_peaks(machine, machine.rates, {})
    return measure_peaks(threads) if target.on_processor else None


def rated_peaks(machine: Machine, rates: Rates, device: Mapping[str, str]) -> Peaks:
    """A machine's peak figures, with the description of the ``device``."""
    cycles = 2e-9 * machine.cores * rates.clock
    kinds = {kind.name: cycles * rates.peak(kind) for kind, _, _ in rates.products}
    return Peaks(1, kinds, {"DRAM": 1e-9 * rates.memory}, {}, device=device)


def rated_roof(
    machine: Machine, rates: Rates, flops: int, moved: int, element: DType | None
) -> Roof:
    """The roof by a machine's peak figures: products of ``element``, and its memory."""
    by_memory = moved / rates.memory
    types = {kind for kind, _, _ in rates.products}
    # A type without a figure counts as the fastest one.
    products = rates.peak(*({element} & types or types)) if element is not None else 0
    by_compute = flops / (2 * products * machine.cores * rates.clock) if products else 0.0
    return Roof(by_memory, "DRAM") if by_memory >= by_compute else Roof(by_compute, "")

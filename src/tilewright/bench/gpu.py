"""Benchmarks on an NVIDIA GPU, whose arrays lie in its memory, beside PyTorch (cuBLAS, cuDNN).

Each kernel is checked on the device first. What is timed are CUDA graphs of several calls, each on
arrays of its own, so that neither the host's part of a call nor what the last one left in L2
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tilewright.bench.benchmark import Compile, Row, compared, compile_times
from tilewright.bench.floor import rated_peaks, rated_roof
from tilewright.bench.torch_tensors import Call, load_torch
from tilewright.bench.torch_work import make_tensors, peers, reference
from tilewright.engine import CompiledKernel
from tilewright.errors import CompilationError, DeviceError, UnsupportedError
from tilewright.measure.host import Unwatched
from tilewright.measure.peaks import Peaks
from tilewright.measure.rounds import Measured, fastest, measure
from tilewright.ops.convolution import Convolution
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op
from tilewright.ops.reorder import Reorder
from tilewright.targets.registry import find_target

# Calls in a graph, and the bytes of all their arrays: beyond L2, but not the device's memory.
_MOST_COPIES, _MOST_BYTES = 8, 8 << 30
_L2_BYTES = 64 << 20
# Ops whose results are exact on integers; and how far others may be off, in units of rounding.
_EXACT, _SLACK = (Convolution, Matmul, Reorder), 64.0


class Bench(Protocol):
    """Where kernels are checked and timed."""

    def describe(self) -> dict[str, str]:
        """The device and the libraries, by kind."""

    def fault(self, kernel: CompiledKernel) -> str | None:
        """What is wrong with what ``kernel`` computes. Raises `UnsupportedError` where there is
        nothing to compare with."""

    def times(self, kernel: CompiledKernel, seconds: float) -> Measured:
        """Of ``kernel``, as ``"ours"``, and of its peers; each side in about ``seconds``."""


def gpu_row(
    op: Op, case: str, label: str, compile: Compile, bench: Bench, seconds: float = 0.5
) -> Row:
    """Checks ``op``, where ``bench`` can, and times it. Raises what ``compile`` does, and
    `CompilationError` for a kernel that computes something else."""
    kernel, cold, cached = compile_times(op, compile)
    unchecked = None
    try:
        fault = bench.fault(kernel)
    except UnsupportedError as error:
        fault, unchecked = None, error.what
    if fault is not None:
        raise CompilationError(
            "the kernel is wrong on the device",
            where=case,
            why=fault,
            cure=f"see where: tilewright verify --target {kernel.target.name} {case}",
        )
    flops, moved = op.problem.valid_flops, _bytes(kernel)
    row = compared(bench.times(kernel, seconds), case, label, flops, moved)
    if unchecked is not None:
        noise = (*row.noise, "its result was not checked on the device")
        row = replace(row, no_peer=unchecked, noise=noise)
    machine = kernel.target.machine
    if machine.rates is not None:
        roof = rated_roof(machine, machine.rates, flops, moved, next(iter(op.types))[1])
        floor = 1e3 * roof.seconds
        row = replace(row, peak_percent=100 * floor / row.ms, level=roof.level, floor_ms=floor)
    return replace(row, compile_cold_ms=cold, compile_cached_ms=cached, config=repr(kernel.config))


def _bytes(kernel: CompiledKernel) -> int:
    """Of all arguments."""
    return sum(each.buffer.bytes for each in kernel.signature.arguments)


@dataclass(frozen=True)
class Device:
    """A GPU, and the peak figures of its machine's data."""

    bench: Bench
    peaks: Peaks


def open_device(target: str, peers: bool = True) -> Device | None:
    """The GPU that kernels for ``target`` run on with arrays in its own memory; None for what runs
    on this processor's. Raises `DeviceError` where it is not there, or no PyTorch for it."""
    machine = find_target(target).machine
    if machine.rates is None:
        return None
    torch = load_torch()
    if torch is None:
        raise DeviceError(
            "PyTorch is not installed",
            where=f"bench on {machine.name}",
            why="it has the arrays in the GPU's memory, and is what kernels run beside",
            cure="pip install torch",
        )
    bench = TorchBench(torch, peers=peers)
    return Device(bench, rated_peaks(machine, machine.rates, bench.describe()))


class TorchBench:
    """A `Bench` on the GPU that PyTorch sees. With ``on_host`` there is but `fault`."""

    def __init__(self, torch: Any, *, peers: bool = True, on_host: bool = False) -> None:
        """Without ``peers``, kernels are timed alone. Raises `DeviceError` for a PyTorch without
        CUDA."""
        self._torch, self._peers = torch, peers
        self._device = "cpu" if on_host else "cuda"
        if not on_host and not torch.cuda.is_available():
            raise DeviceError(
                "PyTorch does not see a GPU",
                why=f"it is {torch.__version__}, for CUDA {torch.version.cuda or '(none)'}",
                cure="install a PyTorch for CUDA, one that fits the driver",
            )
        # Its best: all of cuDNN's algorithms are tried.
        torch.backends.cudnn.benchmark = True

    def describe(self) -> dict[str, str]:
        torch = self._torch
        return {
            "gpu": torch.cuda.get_device_name(0),
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
        }

    def fault(self, kernel: CompiledKernel) -> str | None:
        """On integers, whose sums are exact: of products and copies, each element is that of
        float64, rounded; of other ops near to it."""
        torch, op = self._torch, kernel.what
        tensors = make_tensors(torch, op, self._device, exact=True, seed=1)
        wanted = reference(torch, op, tensors)
        for argument in op.arguments:
            if argument.access == "out":
                tensors[argument.name].fill_(float("nan") if argument.dtype.is_float else 1)
        kernel(**_packed(kernel, tensors))
        slack = 0.0 if isinstance(op, _EXACT) else _SLACK
        for name, want in wanted.items():
            fault = _difference(torch, tensors[name], want.to(tensors[name].dtype), slack)
            if fault is not None:
                return f"{name}: {fault}"
        return None

    def times(self, kernel: CompiledKernel, seconds: float) -> Measured:
        torch, op = self._torch, kernel.what
        size = _bytes(kernel)
        copies = max(1, min(_MOST_COPIES, 2 * _L2_BYTES // size + 1, _MOST_BYTES // size))
        stream = torch.cuda.Stream()
        # What the host does besides is nothing to the device.
        batch, host = _batch(torch, stream, copies), Unwatched()
        with torch.cuda.stream(stream):
            sets = [
                make_tensors(torch, op, self._device, exact=False, seed=seed)
                for seed in range(copies)
            ]
            ours = [kernel.bind(stream=stream, **_packed(kernel, tensors)) for tensors in sets]
            sides = {"ours": _graph(torch, ours, stream)}
            for name, ways in (_ways(torch, op, sets) if self._peers else {}).items():
                graphs = _working(torch, ways, stream)
                if graphs:
                    sides[name] = fastest(graphs, batch, host)
            return measure(sides, seconds=seconds, batch=batch, host=host)


def _difference(torch: Any, got: Any, want: Any, slack: float) -> str | None:
    """How ``got`` differs from ``want``, by more than ``slack`` units of rounding of the greater of
    each element and 1; numbers that are none are alike."""
    wrong = (got != want) & ~((got != got) & (want != want))
    if slack and got.is_floating_point():
        size = slack * torch.finfo(got.dtype).eps * want.double().abs().clamp(min=1)
        near = (got.double() - want.double()).abs() <= size
        wrong &= ~near
    count = int(wrong.sum())
    if not count:
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{count} of {wrong.numel()} elements differ from float64, the first at {index}: "
        f"{got[index].item():g}, expected {want[index].item():g}"
    )


def _packed(kernel: CompiledKernel, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {**tensors, **{name: kernel.pack(name, tensors[name]) for name in kernel.packed}}


def _ways(torch: Any, op: Op, sets: Sequence[Mapping[str, Any]]) -> dict[str, list[list[Call]]]:
    """By peer: each way, as its calls on all sets of arrays."""
    try:
        found = [peers(torch, op, tensors) for tensors in sets]
    except UnsupportedError:
        return {}
    return {
        name: [list(calls) for calls in zip(*(each[name] for each in found), strict=True)]
        for name in found[0]
    }


def _working(torch: Any, ways: Sequence[list[Call]], stream: Any) -> list[Call]:
    """Graphs of those ways that PyTorch has: it raises RuntimeError for the others."""
    graphs = []
    for calls in ways:
        try:
            graphs.append(_graph(torch, calls, stream))
        except RuntimeError:
            torch.cuda.synchronize()
    return graphs


def _graph(torch: Any, calls: Sequence[Call], stream: Any) -> Callable[[], object]:
    """A CUDA graph of the calls in a row."""
    # Libraries choose algorithms and allocate at first.
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()

    def replay(_keep: Any = calls) -> None:
        graph.replay()

    return replay


def _batch(torch: Any, stream: Any, copies: int) -> Callable[[Call, int], float]:
    """Times ``count`` replays of a graph of so many calls: seconds for one call."""

    def batch(replay: Call, count: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(stream)
        for _ in range(count):
            replay()
        end.record(stream)
        end.synchronize()
        return 1e-3 * float(start.elapsed_time(end)) / (count * copies)

    return batch

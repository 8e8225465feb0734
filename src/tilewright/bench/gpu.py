"""Benchmarks on an NVIDIA GPU, with arrays in its memory, beside PyTorch (cuBLAS, cuDNN).

Each kernel is checked on the device first. CUDA graphs of several calls are timed, each call on its
own arrays, so that neither the host's part of a call nor data of an earlier call in L2 counts.
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
from tilewright.ops.op import Op
from tilewright.targets.registry import find_target

# Calls in a graph, and the bytes of all their arrays: more than L2, less than the device's memory.
_MOST_COPIES, _MOST_BYTES = 8, 8 << 30
_L2_BYTES = 64 << 20
# Ops with exact results on integers; and the tolerance of others, in units of rounding.
_EXACT, _SLACK = ("conv", "matmul", "reorder"), 64.0


class Bench(Protocol):
    """A place where kernels are checked and timed."""

    def describe(self) -> dict[str, str]:
        """The device and the libraries, by kind."""

    def fault(self, kernel: CompiledKernel) -> str | None:
        """The fault in the results of ``kernel``, None if there is none. Raises `UnsupportedError`
        without a reference."""

    def times(self, kernel: CompiledKernel, seconds: float) -> Measured:
        """The times of ``kernel``, ``"ours"``, and of its peers; about ``seconds`` for each."""


def gpu_row(
    op: Op, case: str, label: str, compile: Compile, bench: Bench, seconds: float = 0.5
) -> Row:
    """Checks ``op``, if ``bench`` can, and times it. Raises the errors of ``compile``, and
    `CompilationError` for a wrong kernel."""
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
    """The bytes of all arguments."""
    return sum(param.buffer.bytes for param in kernel.signature.arguments)


@dataclass(frozen=True)
class Device:
    """A GPU, and the peak figures of its machine's data."""

    bench: Bench
    peaks: Peaks


def open_device(target: str, peers: bool = True) -> Device | None:
    """The GPU of kernels for ``target``, with arrays in its own memory; None for a target on this
    processor's memory. Raises `DeviceError` if it is missing, or there is no PyTorch for it."""
    machine = find_target(target).machine
    if machine.rates is None:
        return None
    torch = load_torch()
    if torch is None:
        raise DeviceError(
            "PyTorch is not installed",
            where=f"bench on {machine.name}",
            why="it makes the arrays in the GPU's memory, and is the peer of kernels",
            cure="pip install torch",
        )
    bench = TorchBench(torch, peers=peers)
    return Device(bench, rated_peaks(machine, machine.rates, bench.describe()))


class TorchBench:
    """A `Bench` on PyTorch's GPU. With ``on_host``, only `fault` works, on the CPU."""

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
        # PyTorch at its best: it tries all of cuDNN's algorithms.
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
        """Compares on integers, whose sums are exact: products and copies have to equal the rounded
        float64 results, other ops within a tolerance."""
        torch, op = self._torch, kernel.what
        tensors = make_tensors(torch, op, self._device, exact=True, seed=1)
        expected = reference(torch, op, tensors)
        for argument in op.arguments:
            if argument.access == "out":
                tensors[argument.name].fill_(float("nan") if argument.dtype.is_float else 1)
        kernel(**_packed(kernel, tensors))
        slack = 0.0 if op.kind in _EXACT else _SLACK
        for name, want in expected.items():
            fault = _difference(torch, tensors[name], want.to(tensors[name].dtype), slack)
            if fault is not None:
                return f"{name}: {fault}"
        return None

    def times(self, kernel: CompiledKernel, seconds: float) -> Measured:
        torch, op = self._torch, kernel.what
        size = _bytes(kernel)
        copies = max(1, min(_MOST_COPIES, 2 * _L2_BYTES // size + 1, _MOST_BYTES // size))
        stream = torch.cuda.Stream()
        # The host's load does not disturb the device.
        batch, host = _batch(torch, stream, copies), Unwatched()
        with torch.cuda.stream(stream):
            sets = [
                make_tensors(torch, op, self._device, exact=False, seed=seed)
                for seed in range(copies)
            ]
            ours = [kernel.bind(stream=stream, **_packed(kernel, tensors)) for tensors in sets]
            sides = {"ours": _graph(torch, ours, stream)}
            for name, candidates in (_candidates(torch, op, sets) if self._peers else {}).items():
                graphs = _working(torch, candidates, stream)
                if graphs:
                    sides[name] = fastest(graphs, batch, host)
            return measure(sides, seconds=seconds, batch=batch, host=host)


def _difference(torch: Any, got: Any, want: Any, slack: float) -> str | None:
    """The first difference of ``got`` from ``want`` by more than ``slack`` units of rounding of the
    greater of the element and 1, None if there is none; NaN equals NaN."""
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


def _candidates(
    torch: Any, op: Op, sets: Sequence[Mapping[str, Any]]
) -> dict[str, list[list[Call]]]:
    """By peer: the candidate calls, each as a list of calls on all sets of arrays."""
    try:
        per_set = [peers(torch, op, tensors) for tensors in sets]
    except UnsupportedError:
        return {}
    return {
        name: [list(calls) for calls in zip(*(calls_of[name] for calls_of in per_set), strict=True)]
        for name in per_set[0]
    }


def _working(torch: Any, candidates: Sequence[list[Call]], stream: Any) -> list[Call]:
    """Graphs of the candidates that work: PyTorch raises RuntimeError for the others."""
    graphs = []
    for calls in candidates:
        try:
            graphs.append(_graph(torch, calls, stream))
        except RuntimeError:
            torch.cuda.synchronize()
    return graphs


def _graph(torch: Any, calls: Sequence[Call], stream: Any) -> Callable[[], object]:
    """A CUDA graph of the calls, one after the other."""
    # In their first calls, libraries choose algorithms and allocate.
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
    """Times ``count`` replays of a graph of ``copies`` calls: seconds for one call."""

    def batch(replay: Call, count: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(stream)
        for _ in range(count):
            replay()
        end.record(stream)
        end.synchronize()
        return 1e-3 * float(start.elapsed_time(end)) / (count * copies)

    return batch

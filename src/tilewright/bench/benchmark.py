"""One benchmark: an op, timed beside its peers, with the times of its compilation and of a call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from tilewright.bench.peer import find_peers
from tilewright.bench.torch_tensors import Peers, places_for
from tilewright.dtypes import DType
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.compile import forget
from tilewright.engine.operations import operations_of
from tilewright.engine.program import Code
from tilewright.engine.signature import ArrayForm
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel, Param
from tilewright.ir.symbols import bind_scalars
from tilewright.measure.host import Host
from tilewright.measure.peaks import Peaks
from tilewright.measure.rounds import Call, Measured, call_overhead, fastest, measure
from tilewright.measure.verdict import Conditions
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.targets.program import abi_of

Compile = Callable[[Op], CompiledKernel]
CompileKernel = Callable[[Kernel], CompiledKernel]
# The arguments of a call, by name.
Arguments = Callable[[CompiledKernel], Mapping[str, Any]]
# From an op with decided layouts, and a number of threads.
FindPeers = Callable[[Op, int], Peers]
T = TypeVar("T")
_ALIGNMENT = 64
# Percent of a peak above which the peak must be wrong.
_MOST_PERCENT = 105.0
# The least part of a time that has to remain without the cost of a call.
_LEAST_WORK = 0.2
# Cores that others may use while memory is measured that they share with us.
_BUSY = 0.25


@dataclass(frozen=True)
class Row:
    """A line of the table. Times are medians; those that could not be measured are None.

    ``ratio`` is the peer's time over ours: above 1, we are faster; ``best_ratio`` is that of the
    best times, and ``net_ratio`` that of the times without the cost of a call (``peer_call_us`` and
    ``bound_call_us``, measured on a tiny problem), unless most of a time is that cost. ``noise``
    are the reasons why the times may not be repeatable, and ``conditions`` the state of the machine
    meanwhile. ``no_peer`` says why there is no peer.

    ``gflops`` counts valid work only (no padding taps). ``floor_ms`` is the roofline's: the least
    time that the machine's peaks allow for these flops and bytes; ``peak_percent`` is its part of
    our time, and ``level`` the memory whose bandwidth bounds it, or "" for arithmetic; None if no
    peak is known.

    ``instruction`` is the multiplying instruction, and why no better one is used: "" if the config
    has none.
    """

    case: str
    name: str
    ms: float
    best_ms: float
    gflops: float
    gbytes_per_second: float
    peak_percent: float | None
    level: str
    peer: str | None
    peer_ms: float | None
    ratio: float | None
    other_peers: dict[str, float] = field(default_factory=dict)
    peer_best_ms: float | None = None
    best_ratio: float | None = None
    net_ratio: float | None = None
    no_peer: str | None = None
    spread: float = 0.0
    peer_spread: float | None = None
    noise: tuple[str, ...] = ()
    conditions: Conditions | None = None
    rounds: int = 0
    attempts: int = 1
    compile_cold_ms: float | None = None
    compile_cached_ms: float | None = None
    call_us: float | None = None
    bound_call_us: float | None = None
    peer_call_us: float | None = None
    flops: int = 0
    bytes: int = 0
    floor_ms: float | None = None
    config: str = ""
    instruction: str = ""

    def as_json(self) -> dict[str, Any]:
        """The row as JSON."""
        return {**asdict(self), "noisy": bool(self.noise)}


def benchmark(
    op: Op,
    case: str,
    compile: Compile,
    peaks: Peaks,
    *,
    label: str = "",
    seconds: float = 1.0,
    peers: FindPeers = find_peers,
    host: Host | None = None,
) -> Row:
    """Times ``op``, compiled by ``compile`` for ``peaks.threads`` threads, beside its peers.

    ``case`` are the arguments that reproduce it, and ``label`` its name in the table. ``peers``
    gives what to compare with; the first of them is the row's peer. Raises the errors of
    ``compile``.
    """
    kernel, cold, cached = compile_times(op, compile)
    sides, why = fastest_peers(peers, op.resolved(), peaks.threads)
    ours = kernel.bind(**make_arrays(kernel))
    measured = measure({"ours": ours, **sides}, seconds=seconds, threads=peaks.threads, host=host)
    moved = sum(math.prod(a.buffer.shape) * a.dtype.bytes for a in kernel.signature.arguments)
    work = _Work(op.problem.valid_flops, moved, next(iter(op.types))[1])
    row = _row(measured, work, peaks, case, label or op.problem.name or op.problem.descriptor())
    call, bound = _call_seconds(op, compile)
    theirs = None if row.peer is None else _peer_call_seconds(op, peers, peaks.threads, row.peer)
    return replace(
        row,
        no_peer=why,
        compile_cold_ms=cold,
        compile_cached_ms=cached,
        call_us=None if call is None else 1e6 * call,
        bound_call_us=None if bound is None else 1e6 * bound,
        peer_call_us=None if theirs is None else 1e6 * theirs,
        net_ratio=net_ratio(row, bound, theirs),
        config=repr(kernel.config),
        instruction=kernel.instruction,
    )


def benchmark_kernel(
    what: Kernel,
    numbers: Mapping[str, Scalar],
    case: str,
    compile: CompileKernel,
    peaks: Peaks,
    arguments: Arguments,
    *,
    label: str = "",
    seconds: float = 1.0,
    peer: CompileKernel | None = None,
) -> Row:
    """Times calls of a kernel that is no op, with ``numbers``, beside the kernel of ``peer``.

    ``arguments`` are those of a call. Flops are the arithmetic operations on floats, 0 if they are
    unknown before the kernel runs. Raises the errors of ``compile``.
    """
    kernel, cold, cached = compile_times(what, compile)
    sides: dict[str, Call] = {"ours": kernel.bind(**arguments(kernel))}
    why = "PyTorch has no kernels from files" if peer is None else None
    if peer is not None:
        try:
            other = peer(what)
            sides[other.target.name] = other.bind(**arguments(other))
        except UnsupportedError as error:
            why = error.what
    measured = measure(sides, seconds=seconds, threads=peaks.threads)
    moved = sum(param.buffer.bytes for param in kernel.signature.at(numbers))
    flops, element = operations_of(bind_scalars(what, numbers))
    row = _row(measured, _Work(flops or 0, moved, element), peaks, case, label or what.name)
    return replace(
        row,
        no_peer=why,
        compile_cold_ms=cold,
        compile_cached_ms=cached,
        config=repr(kernel.config),
        instruction=kernel.instruction,
    )


@dataclass(frozen=True)
class _Work:
    """The work of a call: arithmetic on ``element``, and bytes that it moves."""

    flops: int
    bytes: int
    element: DType | None


def _row(measured: Measured, work: _Work, peaks: Peaks, case: str, name: str) -> Row:
    """The figures of "ours", and of its peers."""
    row = compared(measured, case, name, work.flops, work.bytes)
    roof = peaks.roof(work.flops, work.bytes, work.element)
    percent = 1e5 * roof.seconds / row.ms
    noise = (*row.noise, *_shared_memory(roof.level, measured.conditions))
    if percent > _MOST_PERCENT:
        noise += (f"{percent:.0f}% of a peak: the peak was measured too low",)
    return replace(
        row,
        noise=noise,
        peak_percent=percent,
        level=roof.level,
        floor_ms=1e3 * roof.seconds,
    )


def compared(measured: Measured, case: str, name: str, flops: int, moved: int) -> Row:
    """The times of "ours" beside those of the first peer, as a row without a roofline."""
    mine = measured.times["ours"]
    sides = [side for side in measured.times if side != "ours"]
    first = next(iter(sides), None)
    theirs = None if first is None else measured.times[first]
    return Row(
        case=case,
        name=name,
        ms=1e3 * mine.median,
        best_ms=1e3 * mine.best,
        gflops=1e-9 * flops / mine.median,
        gbytes_per_second=1e-9 * moved / mine.median,
        peak_percent=None,
        level="",
        peer=first,
        peer_ms=None if theirs is None else 1e3 * theirs.median,
        ratio=None if theirs is None else theirs.median / mine.median,
        other_peers={side: 1e3 * measured.times[side].median for side in sides if side != first},
        peer_best_ms=None if theirs is None else 1e3 * theirs.best,
        best_ratio=None if theirs is None else theirs.best / mine.best,
        spread=mine.spread,
        peer_spread=None if theirs is None else theirs.spread,
        noise=measured.noise,
        conditions=measured.conditions,
        rounds=mine.rounds,
        attempts=measured.attempts,
        flops=flops,
        bytes=moved,
    )


def net_ratio(row: Row, bound: float | None, theirs: float | None) -> float | None:
    """``row``'s ratio without the seconds of a call on either side; None if these are unknown, or
    most of the time: then it would be the ratio of two small differences."""
    if row.peer_ms is None or bound is None or theirs is None:
        return None
    mine, peer = row.ms - 1e3 * bound, row.peer_ms - 1e3 * theirs
    if mine < _LEAST_WORK * row.ms or peer < _LEAST_WORK * row.peer_ms:
        return None
    return peer / mine


def _shared_memory(level: str, conditions: Conditions) -> tuple[str, ...]:
    """The reason to doubt a time that is bounded by a memory which others use as well."""
    others = conditions.others
    if level not in ("L3", "DRAM") or others is None or others < _BUSY:
        return ()
    return (f"others used {others:.1f} of {conditions.cores} cores, and {level} with them",)


def compile_times(
    what: T, compile: Callable[[T], CompiledKernel]
) -> tuple[CompiledKernel, float, float | None]:
    """A kernel, and the milliseconds of compiling it: cold, and from the disk cache (None: there is
    none)."""
    kernel = compile(what)
    cold = kernel.compile_seconds if not kernel.from_cache else _build_seconds(kernel)
    forget()
    again = compile(what)
    return kernel, 1e3 * cold, 1e3 * again.compile_seconds if again.from_cache else None


def fastest_peers(peers: FindPeers, op: Op, threads: int) -> tuple[dict[str, Call], str | None]:
    """The fastest call of each peer, among those that work; and why there is none."""
    try:
        peer_calls = peers(op, threads)
    except UnsupportedError as error:
        return {}, error.what
    except RuntimeError as error:
        # PyTorch's error for work that it has no kernel for.
        return {}, f"PyTorch says: {_first_line(error)}"
    fastest_calls: dict[str, Call] = {}
    faults: list[str] = []
    for name, calls in peer_calls.items():
        working = [call for call in calls if _works(call, faults)]
        if working:
            fastest_calls[name] = fastest(working)
    return fastest_calls, None if fastest_calls or not faults else f"PyTorch says: {faults[0]}"


def _works(call: Call, faults: list[str]) -> bool:
    try:
        call()
    except RuntimeError as error:
        faults.append(_first_line(error))
        return False
    return True


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def make_arrays(kernel: CompiledKernel, seed: int = 0) -> dict[str, Any]:
    """Random arrays for all arguments, packed where needed."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for argument in kernel.signature.arguments:
        array = _array(argument, kernel.signature.forms[argument.name], rng)
        places = places_for(kernel.what, argument.name)
        if places is not None:
            array[...] = places
        arrays[argument.name] = (
            kernel.pack(argument.name, array) if argument.name in kernel.packed else array
        )
    return arrays


def compiled_peers(target: str) -> FindPeers:
    """Another target as the peer: our kernel for it, which may refuse it, on its own arrays."""

    def find(op: Op, threads: int) -> Peers:
        kernel = compile_kernel(op, target, threads)
        return {kernel.target.name: [kernel.bind(**make_arrays(kernel))]}

    return find


def _array(argument: Param, form: ArrayForm, rng: np.random.Generator) -> Any:
    """An array of the argument's form, aligned as by a library."""
    size = argument.dtype.bytes
    raw = np.zeros(form.extent * size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    flat = raw[start : start + form.extent * size].view(argument.dtype.numpy)
    if argument.access != "out":
        # Below 4, so that small integers differ, too.
        flat[...] = (4 * rng.random(form.extent, np.float32)).astype(argument.dtype.numpy)
    return form.view(flat)


def _build_seconds(kernel: CompiledKernel) -> float:
    """Seconds of compiling without a cache: the steps of `engine.compile`, once more."""
    start = time.perf_counter()
    target = kernel.target
    _, scheduled = choose.choose(kernel.start, target.machine)
    for part in (scheduled.kernel, *scheduled.packed.values()):
        module = target.lower(part)
        Code(target, target.assemble(module), abi_of(part, module))
    return time.perf_counter() - start


def _call_seconds(op: Op, compile: Compile) -> tuple[float | None, float | None]:
    """Seconds of a call with checks, and bound, measured on a tiny problem."""
    try:
        kernel = compile(_smallest(op))
        arrays = make_arrays(kernel)
    except TilewrightError:
        # The op's attributes do not fit the tiny problem's dims.
        return None, None
    return call_overhead(lambda: kernel(**arrays)), call_overhead(kernel.bind(**arrays))


def _peer_call_seconds(op: Op, peers: FindPeers, threads: int, name: str) -> float | None:
    """Seconds of a call of the peer ``name``, measured on a tiny problem."""
    try:
        sides, _ = fastest_peers(peers, _smallest(op).resolved(), threads)
    except TilewrightError:
        return None
    return call_overhead(sides[name]) if name in sides else None


def _smallest(op: Op) -> Op:
    """The op on a tiny problem of the same rank."""
    return replace(op, problem=op.problem.smallest(), layouts=())

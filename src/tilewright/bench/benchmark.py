"""One benchmark: an op, timed beside its peers, with what its compilation and a call cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from tilewright.bench.peer import find_peers
from tilewright.bench.places import places_for
from tilewright.bench.torch_tensors import Peers
from tilewright.dtypes import DType
from tilewright.engine import CompiledKernel
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
from tilewright.problems import (
    BinaryProblem,
    ConvProblem,
    EltwiseProblem,
    MatmulProblem,
    PoolProblem,
    Record,
    ReduceProblem,
    ReorderProblem,
    conv_from_sizes,
    pool_from_sizes,
)
from tilewright.recipes import choose
from tilewright.targets.program import abi_of

Compile = Callable[[Op], CompiledKernel]
CompileKernel = Callable[[Kernel], CompiledKernel]
# What a compiled kernel is called with, by name.
Arguments = Callable[[CompiledKernel], Mapping[str, Any]]
# From an op, its layouts decided, and a number of threads.
FindPeers = Callable[[Op, int], Peers]
T = TypeVar("T")
_ALIGNMENT = 64
# Above this, a time is below what the peaks allow: they are wrong.
_MOST_PERCENT = 105.0
# The part of a time that has to be left without the call, to be compared.
_LEAST_WORK = 0.2
# Cores that others may have while memory is measured that they share with us.
_BUSY = 0.25


@dataclass(frozen=True)
class Row:
    """A line of the table. Times are medians; those that could not be measured are None.

    ``ratio`` is the peer's time over ours: above 1, we are faster; ``best_ratio`` is that of the
    best times, and ``net_ratio`` that of what is left without the cost of a call (``peer_call_us``
    and ``bound_call_us``, measured on next to nothing), where that is not next to nothing itself.
    ``noise`` are the reasons why the times may not be repeatable, and ``conditions`` what the
    machine did meanwhile. ``no_peer`` says why there is no peer.

    ``gflops`` counts valid work only (no padding taps). ``floor_ms`` is the roofline's: the least
    time that the machine's peaks allow for so many flops and bytes; ``peak_percent`` is the part of
    it in our time, and ``level`` the memory whose bandwidth says so, or "" for arithmetic; None
    where no peak is known.

    ``instruction`` is what multiplies, and why nothing better does: "" where the config has none.
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
        """The row as JSON holds it."""
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

    ``case`` is what reproduces it, and ``label`` what the table calls it. ``peers`` says what to
    compare with; the first of them is the row's peer.
    Raises what ``compile`` raises.
    """
    kernel, cold, cached = compile_times(op, compile)
    sides, why = _fastest(peers, op.resolved(), peaks.threads)
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
    """Times calls of a kernel that is no op, with ``numbers``, beside what ``peer`` compiles.

    ``arguments`` are those of a call. What is counted are the arithmetic operations on floats,
    where that is known before it runs; otherwise, flops are 0. Raises what ``compile`` raises.
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
    moved = sum(each.buffer.bytes for each in kernel.signature.at(numbers))
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
    """What a call does: arithmetic on ``element``, and bytes that it moves."""

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
    """What the times of "ours" and its peers say, the first of which is the row's."""
    mine = measured.times["ours"]
    sides = [each for each in measured.times if each != "ours"]
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
        other_peers={each: 1e3 * measured.times[each].median for each in sides if each != first},
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
    """``row``'s ratio without the seconds that a call costs on either side; None where that is not
    known, or most of the time: then the rest is the difference of two like numbers."""
    if row.peer_ms is None or bound is None or theirs is None:
        return None
    mine, peer = row.ms - 1e3 * bound, row.peer_ms - 1e3 * theirs
    if mine < _LEAST_WORK * row.ms or peer < _LEAST_WORK * row.peer_ms:
        return None
    return peer / mine


def _shared_memory(level: str, found: Conditions) -> tuple[str, ...]:
    """What speaks against a time that a memory limits which others use as well."""
    if level not in ("L3", "DRAM") or found.others is None or found.others < _BUSY:
        return ()
    return (f"others used {found.others:.1f} of {found.cores} cores, and {level} with them",)


def compile_times(
    what: T, compile: Callable[[T], CompiledKernel]
) -> tuple[CompiledKernel, float, float | None]:
    """A kernel, and what compiling it takes: cold, and from the disk cache (None: there is none),
    in milliseconds."""
    kernel = compile(what)
    cold = kernel.compile_seconds if not kernel.from_cache else _build_seconds(kernel)
    forget()
    again = compile(what)
    return kernel, 1e3 * cold, 1e3 * again.compile_seconds if again.from_cache else None


def _fastest(peers: FindPeers, op: Op, threads: int) -> tuple[dict[str, Call], str | None]:
    """The fastest way of each peer, of those that work; and why there is none."""
    try:
        ways = peers(op, threads)
    except UnsupportedError as error:
        return {}, error.what
    except RuntimeError as error:
        # PyTorch's error for what it has no kernel for.
        return {}, f"PyTorch says: {_first_line(error)}"
    found: dict[str, Call] = {}
    faults: list[str] = []
    for name, calls in ways.items():
        working = [call for call in calls if _works(call, faults)]
        if working:
            found[name] = fastest(working)
    return found, None if found or not faults else f"PyTorch says: {faults[0]}"


def _works(call: Call, faults: list[str]) -> bool:
    try:
        call()
    except RuntimeError as error:
        faults.append(_first_line(error))
        return False
    return True


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def make_arrays(kernel: CompiledKernel) -> dict[str, Any]:
    """Random arrays for all arguments, packed where the kernel asks for it."""
    rng = np.random.default_rng(0)
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


def _array(argument: Param, form: ArrayForm, rng: np.random.Generator) -> Any:
    """An array of the argument's form, at an address as a library would give it."""
    size = argument.dtype.bytes
    raw = np.zeros(form.extent * size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    flat = raw[start : start + form.extent * size].view(argument.dtype.numpy)
    if argument.access != "out":
        # Below 4, so that integers differ too.
        flat[...] = (4 * rng.random(form.extent, np.float32)).astype(argument.dtype.numpy)
    return form.view(flat)


def _build_seconds(kernel: CompiledKernel) -> float:
    """What compiling takes without a cache: the way of `engine.compile`, once more."""
    start = time.perf_counter()
    target = kernel.target
    _, scheduled = choose.choose(kernel.start, target.machine)
    for part in (scheduled.kernel, *scheduled.packs.values()):
        module = target.lower(part)
        Code(target, target.assemble(module), abi_of(part, module))
    return time.perf_counter() - start


def _call_seconds(op: Op, compile: Compile) -> tuple[float | None, float | None]:
    """What a call costs: that of the same op on a few elements, checked, and bound."""
    try:
        kernel = compile(_smallest(op))
        arrays = make_arrays(kernel)
    except TilewrightError:
        # The op's attributes ask for dims that these do not have.
        return None, None
    return call_overhead(lambda: kernel(**arrays)), call_overhead(kernel.bind(**arrays))


def _peer_call_seconds(op: Op, peers: FindPeers, threads: int, name: str) -> float | None:
    """What a call of the peer ``name`` costs: that of the same op on a few elements."""
    try:
        sides, _ = _fastest(peers, _smallest(op).resolved(), threads)
    except TilewrightError:
        return None
    return call_overhead(sides[name]) if name in sides else None


def _smallest(op: Op) -> Op:
    """The op on next to nothing, of the same rank."""
    problem: Any = op.problem
    match problem:
        case ConvProblem():
            axis = {1: "w", 2: "h", 3: "d"}[problem.ndims]
            sizes = {"mb": 1, "ic": 16, "oc": 16, f"i{axis}": 1, f"k{axis}": 1}
            small: Any = conv_from_sizes("", **sizes)
        case PoolProblem():
            axis = {1: "w", 2: "h", 3: "d"}[problem.ndims]
            small = pool_from_sizes("", **{"mb": 1, "ic": 1, f"i{axis}": 1, f"k{axis}": 1})
        case MatmulProblem():
            batch = (1,) * len(problem.batch)
            small = MatmulProblem(batch, batch, 1, 16, 16)
        case ReduceProblem():
            # Something has to be reduced.
            first = problem.reduced_dims[0]
            ones = (1,) * len(problem.src_shape)
            small = ReduceProblem(tuple(2 if i == first else 1 for i in range(len(ones))), ones)
        case BinaryProblem():
            ones = (1,) * len(problem.src0_shape)
            small = BinaryProblem(ones, ones)
        case EltwiseProblem():
            small = EltwiseProblem((1,) * len(problem.shape))
        case Record():
            small = problem.smallest()
        case _:
            assert isinstance(problem, ReorderProblem)
            small = ReorderProblem((1,) * len(problem.shape))
    return replace(op, problem=small, layouts=())

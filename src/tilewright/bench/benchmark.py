"""One benchmark: an op, timed beside its peers, with what its compilation and a call cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from tilewright.bench.measure import Call, Timing, call_overhead, fastest, measure
from tilewright.bench.operations import operations_of
from tilewright.bench.peaks import Peaks
from tilewright.bench.peer import find_peers
from tilewright.bench.torch_tensors import Peers
from tilewright.dtypes import DType
from tilewright.engine import CompiledKernel
from tilewright.engine.compile import forget
from tilewright.engine.program import Code
from tilewright.engine.signature import Form
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel, Param
from tilewright.ir.symbols import bind_scalars
from tilewright.ops.op import Op
from tilewright.problems import (
    BinaryProblem,
    ConvProblem,
    EltwiseProblem,
    MatmulProblem,
    PoolProblem,
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


@dataclass(frozen=True)
class Row:
    """A line of the table. Times are medians; those that could not be measured are None.

    ``ratio`` is the peer's time over ours: above 1, we are faster. ``gflops`` counts valid work
    only (no padding taps); ``peak_percent`` is of the multiply-adds that the machine can do, or,
    for ops that only move data, of the bandwidth of ``level``, the least memory that holds it all;
    None where no peak was measured.
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
    compile_cold_ms: float | None = None
    compile_cached_ms: float | None = None
    call_us: float | None = None
    bound_call_us: float | None = None
    flops: int = 0
    bytes: int = 0
    config: str = ""

    def as_json(self) -> dict[str, Any]:
        """The row as JSON holds it."""
        return asdict(self)


def benchmark(
    op: Op,
    case: str,
    compile: Compile,
    peaks: Peaks,
    *,
    label: str = "",
    seconds: float = 1.0,
    peers: FindPeers = find_peers,
) -> Row:
    """Times ``op``, compiled by ``compile`` for ``peaks.threads`` threads, beside its peers.

    ``case`` is what reproduces it, and ``label`` what the table calls it. ``peers`` says what to
    compare with; the first of them is the row's peer.
    Raises what ``compile`` raises.
    """
    kernel, cold, cached = compile_times(op, compile)
    sides = _fastest(peers, op.resolved(), peaks.threads)
    ours = kernel.bind(**make_arrays(kernel))
    times = measure({"ours": ours, **sides}, seconds=seconds, pause=peaks.threads > 1)
    call, bound = _call_seconds(op, compile)
    moved = sum(math.prod(a.buffer.shape) * a.dtype.bytes for a in kernel.signature.arguments)
    work = _Work(op.problem.valid_flops, moved, _level(op, moved, peaks), next(iter(op.types))[1])
    row = _row(times, work, peaks, case, label or op.problem.name or op.problem.descriptor())
    return replace(
        row,
        compile_cold_ms=cold,
        compile_cached_ms=cached,
        call_us=None if call is None else 1e6 * call,
        bound_call_us=None if bound is None else 1e6 * bound,
        config=repr(kernel.config),
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
    with suppress(UnsupportedError):  # the peer has no such kernel
        other = None if peer is None else peer(what)
        if other is not None:
            sides[other.target.name] = other.bind(**arguments(other))
    times = measure(sides, seconds=seconds, pause=peaks.threads > 1)
    moved = sum(each.buffer.bytes for each in kernel.signature.at(numbers))
    flops, element = operations_of(bind_scalars(what, numbers))
    level = _memory_of(moved, peaks)
    if element is not None and flops / peaks.of(element) > moved / peaks.bandwidth[level]:
        level = ""
    row = _row(times, _Work(flops, moved, level, element), peaks, case, label or what.name)
    return replace(row, compile_cold_ms=cold, compile_cached_ms=cached, config=repr(kernel.config))


@dataclass(frozen=True)
class _Work:
    """What a call does: ``level`` is the memory that limits it, "" where arithmetic on ``element``
    does."""

    flops: int
    bytes: int
    level: str
    element: DType | None


def _row(times: Mapping[str, Timing], work: _Work, peaks: Peaks, case: str, name: str) -> Row:
    """The figures of "ours", and of its peers."""
    mine = times["ours"].median
    sides = [each for each in times if each != "ours"]
    first = next(iter(sides), None)
    if work.level:
        limit = peaks.bandwidth[work.level]
    else:
        assert work.element is not None
        limit = peaks.of(work.element)
    reached = 1e-9 * (work.bytes if work.level else work.flops) / mine
    return Row(
        case=case,
        name=name,
        ms=1e3 * mine,
        best_ms=1e3 * times["ours"].best,
        gflops=1e-9 * work.flops / mine,
        gbytes_per_second=1e-9 * work.bytes / mine,
        peak_percent=100 * reached / limit,
        level=work.level,
        peer=first,
        peer_ms=1e3 * times[first].median if first else None,
        ratio=times[first].median / mine if first else None,
        other_peers={each: 1e3 * times[each].median for each in sides if each != first},
        flops=work.flops,
        bytes=work.bytes,
    )


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


def _fastest(peers: FindPeers, op: Op, threads: int) -> dict[str, Call]:
    """The fastest way of each peer, of those that work."""
    try:
        ways = peers(op, threads)
    except RuntimeError:
        # PyTorch's error for what it has no kernel for.
        return {}
    working = {name: [call for call in calls if _works(call)] for name, calls in ways.items()}
    return {name: fastest(calls) for name, calls in working.items() if calls}


def _works(call: Call) -> bool:
    try:
        call()
    except RuntimeError:
        return False
    return True


def make_arrays(kernel: CompiledKernel) -> dict[str, Any]:
    """Random arrays for all arguments, packed where the kernel asks for it."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for argument in kernel.signature.arguments:
        array = _array(argument, kernel.signature.forms[argument.name], rng)
        arrays[argument.name] = (
            kernel.pack(argument.name, array) if argument.name in kernel.packed else array
        )
    return arrays


def _array(argument: Param, form: Form, rng: np.random.Generator) -> Any:
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
        case _:
            assert isinstance(problem, ReorderProblem)
            small = ReorderProblem((1,) * len(problem.shape))
    return replace(op, problem=small, layouts=())


def _level(op: Op, moved: int, peaks: Peaks) -> str:
    """The memory whose bandwidth limits ``op``; "" for one that computes."""
    if isinstance(op.problem, ConvProblem | MatmulProblem):
        return ""
    return _memory_of(moved, peaks)


def _memory_of(moved: int, peaks: Peaks) -> str:
    """The least memory that holds so many bytes."""
    for level, size in peaks.sizes.items():
        if moved <= size * peaks.threads and level in peaks.bandwidth:
            return level
    return "DRAM"

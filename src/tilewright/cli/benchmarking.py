"""``tilewright bench``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilewright.bench.benchmark import (
    FindPeers,
    Row,
    benchmark,
    benchmark_kernel,
    compiled_peers,
    make_arrays,
)
from tilewright.bench.gpu import Bench, gpu_row, open_device
from tilewright.bench.peer import find_peers, no_peers
from tilewright.bench.report import RowLines, json_text, print_table
from tilewright.bench.roofline import plot, plot_format
from tilewright.bench.torch_tensors import Peers, load_torch
from tilewright.cli.cases import AnyCase, Unread, cases_of
from tilewright.cli.checking import check_symbolic, compile_case, repeat, unread_verdicts
from tilewright.cli.completing import GRAPH
from tilewright.cli.files import OutputFile, open_output
from tilewright.cli.graph_timing import bench_graphs
from tilewright.cli.kernels import draws
from tilewright.cli.knobs import Knobs, with_knobs
from tilewright.cli.progress import progress
from tilewright.config import settings
from tilewright.engine import CompiledKernel
from tilewright.errors import LayoutError, ProblemError, TilewrightError, UnsupportedError
from tilewright.ir.printer import to_text
from tilewright.measure.host import Host
from tilewright.measure.peaks import Peaks, contradictions, measure_peaks
from tilewright.measure.verdict import measured_conditions
from tilewright.ops.op import Op
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.symbolic_case import SymbolicCase
from tilewright.testing.verify import Status, one_line

# Seconds for measuring the load, and cores that others may use without a warning.
_LOOK_SECONDS, _BUSY = 0.2, 0.25
_PEERS: dict[str, FindPeers] = {"auto": find_peers, "none": no_peers}


@with_knobs
def bench_command(
    knobs: Knobs,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw a roofline: .png, .svg or .pdf.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="For each side of each case, at most.")
    ] = 1.0,
    peer: Annotated[
        str, typer.Option("--peer", help="auto: PyTorch; none; or another target, such as x86.")
    ] = "auto",
    symbolic: Annotated[
        str, typer.Option("--symbolic", help="Sizes, as M,N: beside one kernel for any of them.")
    ] = "",
) -> None:
    """Time kernels beside PyTorch (oneDNN), where it is installed, or beside another target.

    A table: medians with their spread, the ratio (above 1: we are faster; net: without the cost of
    a call on either side), valid GFLOP/s, percent of what the roofline allows by peaks measured in
    the same run, times of compiling (cold, and from the disk cache) and of a call.

    A case that other processes disturb is measured up to three times, and then marked as noisy,
    with the reasons. A narrow terminal gets fewer columns; --json has all.

    On a GPU of NVIDIA, arrays lie in its memory, each kernel is checked there first (a wrong one
    fails), times are those of CUDA graphs, the peer is PyTorch (cuBLAS, cuDNN), and peaks are the
    published ones.

    Of a graph: its time (beside another target's, where --peer names one), how many kernels it has
    and how often they are launched, the memory between them, and how long it takes to compile, with
    an empty cache and from disk; --json has the time of each kernel, too.

    With --symbolic, the peer is a kernel to which each call passes the named sizes (as in verify):
    the ratio is its time over that of the kernel for these sizes only.

    Of a kernel from a file, its sizes have to be set; PyTorch is no peer of it. Its operations on
    floats count as work, and each array once as bytes.

    Examples:

      tilewright bench conv --set resnet_50 --threads 1

      tilewright bench conv --dir BWD_D,BWD_W --dt f32 ic64ih56oc64kh3ph1 --json out.json

      tilewright bench matmul 1024x1024:1024x1024

      tilewright bench conv --target spirv --peer x86 --set resnet_50

      tilewright bench softmax --target nvidia --dt f32,bf16 4096x4096

      tilewright bench softmax --symbolic D0,D1 --threads 1 64x64 512x768

      tilewright bench kernel --set n=4096 scale.tw

      tilewright bench graph --json out.json model.tw
    """
    if knobs.driver == GRAPH:
        bench_graphs(knobs, json, seconds, peer, (("plot", plot_file), ("symbolic", symbolic)))
    else:
        if symbolic:
            check_symbolic(knobs, ("--peer", peer != "auto", "one peer is enough"))
        _bench_cases(knobs, json, plot_file, seconds, peer, symbolic)


def _bench_cases(
    knobs: Knobs,
    json: Path | None,
    plot_file: Path | None,
    seconds: float,
    peer: str,
    symbolic: str,
) -> None:
    unread: list[Unread] = []
    cases = [_called(case) for case in cases_of(knobs, unread=unread)]
    bad = list(unread_verdicts(unread))
    for words, verdict in bad:
        print(verdict.line(words.arguments()), file=sys.stderr)
    with ExitStack() as stack:
        files = _open(stack, json, plot_file)
        if peer not in _PEERS:
            find_target(peer)
        # The report names PyTorch's release. PyTorch does not survive an interrupt while loading.
        load_torch()
        machine = _open_machine(knobs, seconds, peer, symbolic)
        peaks = machine.peaks
        rows: list[Row] = []
        labels = _labels(cases)
        doubts = contradictions(peaks)
        lines = None if sys.stdout.isatty() else RowLines(labels, peaks)
        try:
            failed = _measure(knobs, cases, labels, machine, rows, files, lines)
            # Measured again: a disturbance may have ended, or begun.
            doubts = contradictions(peaks, machine.measured_again() if rows else None)
        except KeyboardInterrupt:
            # Measuring takes minutes: the rows so far are written.
            files.write(rows, peaks, doubts, complete=False)
            print(f"interrupted, with {len(rows)} of {len(cases)} cases", file=sys.stderr)
            raise
        finally:
            if lines is not None:
                lines.end(doubts)
            elif rows:
                print_table(rows, peaks, doubts=doubts)
        files.write(rows, peaks, doubts, complete=True)
    if failed or any(verdict.status is Status.FAILED for _, verdict in bad):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Machine:
    """What cases run on: its peaks, the function that makes a case's row (with a label), and one
    that measures the peaks again, if they are measured."""

    peaks: Peaks
    row: Callable[[AnyCase, str], Row]
    measured_again: Callable[[], Peaks | None]


def _open_machine(knobs: Knobs, seconds: float, peer: str, symbolic: str) -> _Machine:
    device = open_device(knobs.target, peers=peer != "none" and not symbolic)
    if device is None:
        threads = settings().threads if knobs.threads is None else knobs.threads
        _warn_of_load(Host(), threads)
        peaks = measure_peaks(threads)
        row = partial(_row, knobs, peaks, seconds, peer)
        if symbolic:
            row = partial(_symbolic_row, knobs, peaks, seconds, tuple(symbolic.split(",")))
        return _Machine(peaks, row, partial(measure_peaks, threads))
    if symbolic:
        raise UnsupportedError(
            "kernels whose sizes a call passes are not timed on a GPU",
            where="--symbolic",
            cure="time them on x86",
        )
    if peer not in _PEERS:
        raise UnsupportedError(
            f"{peer} is no peer of a GPU's kernels",
            where="--peer",
            cure="take auto, which is PyTorch, or none",
        )
    row = partial(_device_row, knobs, device.bench, seconds)
    return _Machine(device.peaks, row, lambda: None)


@dataclass(frozen=True)
class _Files:
    """The output files of a run; ``kind`` is the plot's format."""

    json: OutputFile | None
    plot: OutputFile | None
    kind: str

    def keep(self, rows: Sequence[Row], peaks: Peaks) -> None:
        """Writes the rows so far, in case the run is cut off."""
        if self.json is not None and self.json.replaceable:
            self.json.write(json_text(rows, peaks, complete=False))

    def write(
        self, rows: Sequence[Row], peaks: Peaks, doubts: Sequence[str], complete: bool
    ) -> None:
        """Writes all rows, and the reasons to doubt the peaks."""
        if self.json is not None:
            self.json.write(json_text(rows, peaks, complete, doubts))
        if self.plot is not None:
            self.plot.write(plot(rows, peaks, self.kind))


def _warn_of_load(host: Host, threads: int) -> None:
    """Warns before minutes of measuring if other processes use the cores that it needs."""
    before, start = host.usage(), host.now()
    host.sleep(_LOOK_SECONDS)
    after = host.usage()
    others = measured_conditions(
        host.cores, threads, host.now() - start, before, after, (), None
    ).others
    if others is not None and others > _BUSY:
        print(
            f"others use {others:.1f} of {host.cores} cores: what that makes doubtful is marked "
            "noisy, after up to three attempts",
            file=sys.stderr,
        )


def _open(stack: ExitStack, json: Path | None, drawing: Path | None) -> _Files:
    """The output files, opened for writing."""
    kind = "" if drawing is None else plot_format(drawing)
    figures = open_output(stack, json, "--json")
    return _Files(figures, open_output(stack, drawing, "--plot"), kind)


def _measure(
    knobs: Knobs,
    cases: Sequence[AnyCase],
    labels: Sequence[str],
    machine: _Machine,
    rows: list[Row],
    files: _Files,
    lines: RowLines | None,
) -> bool:
    """Adds a row for each case, with its label; whether a case failed."""
    failed = False
    for label, case in progress(zip(labels, cases, strict=True), len(cases), "bench"):
        try:
            row = machine.row(case, label)
        except (UnsupportedError, LayoutError, ProblemError) as error:
            if len(cases) == 1:
                raise
            print(f"SKIPPED ({one_line(error)}) {repeat(knobs, case)}", file=sys.stderr)
        except TilewrightError as error:
            if knobs.config is not None:
                raise
            failed = True
            reason = f"{type(error).__name__}: {one_line(error)}"
            print(f"FAILED ({reason}) {repeat(knobs, case)}", file=sys.stderr)
        else:
            rows.append(row)
            files.keep(rows, machine.peaks)
            if lines is not None:
                lines.add(row)
    return failed


def _device_row(knobs: Knobs, bench: Bench, seconds: float, case: AnyCase, label: str) -> Row:
    words = repeat(knobs, case)
    if isinstance(case, KernelCase):
        raise UnsupportedError(
            "kernels from files are not timed on a GPU",
            where=words,
            cure="time it on x86 or spirv; or call it in Python on arrays in the GPU's memory",
        )
    return gpu_row(case.op(), words, label, partial(compile_case, knobs), bench, seconds)


def _row(knobs: Knobs, peaks: Peaks, seconds: float, peer: str, case: AnyCase, label: str) -> Row:
    words = repeat(knobs, case)
    if isinstance(case, KernelCase):
        return benchmark_kernel(
            case.kernel,
            case.numbers,
            words,
            partial(compile_case, knobs),
            peaks,
            case.call,
            label=label,
            seconds=seconds,
            peer=None if peer in _PEERS else partial(compile_case, replace(knobs, target=peer)),
        )

    def compile(op: Op) -> CompiledKernel:
        return compile_case(knobs, op)

    peers = _PEERS.get(peer) or compiled_peers(peer)
    return benchmark(case.op(), words, compile, peaks, label=label, seconds=seconds, peers=peers)


def _symbolic_row(
    knobs: Knobs, peaks: Peaks, seconds: float, names: tuple[str, ...], case: AnyCase, label: str
) -> Row:
    """The row of a case whose peer is its kernel for any ``names``, on the same arrays."""
    assert isinstance(case, Case)
    sized = SymbolicCase(case, names)
    kernel = sized.kernel()
    # What is packed for the kernel of any size, is packed for that of one size, too.
    knobs = replace(knobs, constant=sized.constant(kernel))
    for_any = compile_case(knobs, kernel)

    def compile(op: Op) -> CompiledKernel:
        return compile_case(knobs, op.resolved().kernel())

    def peers(op: Op, threads: int) -> Peers:
        return {"any size": [for_any.bind(**make_arrays(compile(op)))]}

    words = f"{repeat(replace(knobs, constant=()), case)} --symbolic={','.join(names)}"
    return benchmark(case.op(), words, compile, peaks, label=label, seconds=seconds, peers=peers)


def _called(case: AnyCase) -> AnyCase:
    """``case`` with all scalars of a call. Raises `ProblemError` for integers that are not set,
    because the time of a call depends on them."""
    if not isinstance(case, KernelCase):
        return case
    for param in case.kernel.scalars:
        if param.name not in case.numbers and not param.dtype.is_float:
            raise ProblemError(
                f"{param.name} is not set",
                where=f"kernel {case.source}",
                why=f"the time of a call depends on `{to_text(param)}`",
                cure=f"set it: --set {param.name}=NUMBER",
            )
    return next(draws(case, 1, 0))


def _labels(cases: Sequence[AnyCase]) -> list[str]:
    """Names that distinguish the cases."""
    problems = [case for case in cases if isinstance(case, Case)]
    knobs = {(replace(c, problem=problems[0].problem), c.problem.algorithm) for c in problems}
    return [_label(case, len(knobs) > 1) for case in cases]


def _label(case: AnyCase, knobs_differ: bool) -> str:
    """The name of a case in a table."""
    if isinstance(case, KernelCase):
        return case.kernel.name
    name = case.problem.name or case.problem.descriptor()
    if not knobs_differ:
        return name
    knobs = [word for word in case.arguments().split()[1:] if word.startswith("--")]
    return " ".join([name, *(word.partition("=")[2] for word in knobs)])

#!/usr/bin/env python3
"""Checks kernels on an NVIDIA GPU, then times them beside cuBLAS and cuDNN (through PyTorch).

Every kernel is compared with float64 on the device before it is timed. PyTorch gets channels-last
images where we do, all of cuDNN's algorithms to choose from, and fused calls where it has them.
Times are medians of CUDA graphs, both sides in turn, on random data in rotating arrays. The ratio
is the peer's time over ours: above 1, we are faster.

Exit status: 0, 1 if a case failed (the others are still run), 2 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewright.bench import catalog
from tilewright.bench.benchmark import Row
from tilewright.bench.gpu import Bench, gpu_row, open_device
from tilewright.bench.report import print_rows, summary
from tilewright.dtypes import bf16
from tilewright.engine import compile_kernel
from tilewright.errors import TilewrightError
from tilewright.problems import Direction, Unary, parse
from tilewright.testing.case import Case

EXAMPLES = """examples:
  python benchmarks/nvidia.py
  python benchmarks/nvidia.py --only matmul,forward --json h200.json
  python benchmarks/nvidia.py --only res5a_branch2b --seconds 60
"""
TARGET, SIDE_SECONDS = "nvidia", 0.4
# Channels last, and first; the gradient by weights has a layout too.
LAST, FIRST = ("axb", "any", "axb"), ("abx", "any", "abx")
WEIGHTS = ("axb", "axb", "axb")


@dataclass(frozen=True)
class Work:
    """A case, the group that it is of, and what the table calls it."""

    group: str
    case: Case

    @property
    def label(self) -> str:
        problem = self.case.problem
        return f"{self.group} {problem.name or problem.descriptor()}"


def works() -> Iterator[Work]:
    """All that is measured, in bf16; what matters most first."""
    base = Case(parse("matmul", "4096x4096:4096x4096"), (bf16,) * 3)
    yield Work("matmul", base)
    yield Work("matmul", replace(base, problem=parse("matmul", "8192x8192:8192x8192")))
    relu = {"direction": Direction.FWD_B, "bias": bf16, "post_ops": (Unary("relu"),)}
    for group, tags, knobs in (
        ("forward", LAST, {}),
        ("nchw_bias_relu", FIRST, relu),
        ("by_data", LAST, {"direction": Direction.BWD_D}),
        ("by_weights", WEIGHTS, {"direction": Direction.BWD_W}),
    ):
        yield from _convolutions(group, "resnet_50", "", 64, tags, **knobs)
    yield from _convolutions("depthwise", "mobilenet_v2", "depthwise", 64, LAST)
    grouped = parse("conv", 'g32mb64ic128ih56oc128kh3ph1n"resnext_50:conv2"')
    yield Work("grouped", Case(grouped, (bf16,) * 3, LAST))
    yield from _convolutions("conv3d", "c3d", "", 8, LAST)


def _convolutions(
    group: str, name: str, part: str, mb: int, tags: tuple[str, ...], **knobs: Any
) -> Iterator[Work]:
    for problem in catalog.load(name).problems:
        if part in problem.name:
            yield Work(group, Case(problem.with_mb(mb), (bf16,) * 3, tags, **knobs))


def open_bench() -> Bench:
    """The GPU that is here. Raises `DeviceError` where there is none, or no PyTorch for it."""
    device = open_device(TARGET)
    assert device is not None
    return device.bench


def main(arguments: Sequence[str], bench: Callable[[], Bench] = open_bench) -> int:
    options = _options(arguments)
    wanted = [work for work in works() if _is_wanted(work, options.only)]
    if not wanted:
        print(f"nothing is called {options.only!r}", file=sys.stderr)
        return 1
    try:
        device = bench()
    except TilewrightError as error:
        print(f"no benchmark: {error}", file=sys.stderr)
        return 2
    about = device.describe()
    print(", ".join(f"{kind} {value}" for kind, value in about.items()), flush=True)
    rows, failed, late = _run(wanted, device, options.seconds)
    if rows:
        print_rows(rows, "times in ms, medians; peaks are those of the machine's data")
    for group in dict.fromkeys(work.group for work in wanted):
        _print_summary(group, [row for row in rows if row.name.startswith(f"{group} ")])
    for kind, cases in (("FAILED", failed), ("OUT OF TIME", dict.fromkeys(late, "not run"))):
        for case, reason in cases.items():
            print(f"{kind} {case}\n  {reason}", file=sys.stderr)
    if options.json:
        report = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": about,
            "rows": [row.as_json() for row in rows],
            "failed": failed,
            "out_of_time": late,
            "summary": summary(rows),
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _run(
    wanted: Sequence[Work], bench: Bench, seconds: float
) -> tuple[list[Row], dict[str, str], list[str]]:
    """Rows; failed cases, and why; and those that there was no time for."""
    rows: list[Row] = []
    failed: dict[str, str] = {}
    late: list[str] = []
    start = time.monotonic()
    for number, work in enumerate(wanted, start=1):
        words = work.case.arguments()
        passed = time.monotonic() - start
        if passed > seconds:
            late.append(words)
            continue
        print(f"[{number}/{len(wanted)}, {passed:.0f} s] {work.label}", end=": ", flush=True)
        try:
            row = gpu_row(
                work.case.op(),
                words,
                work.label,
                lambda op: compile_kernel(op, TARGET),
                bench,
                SIDE_SECONDS,
            )
        except Exception as error:  # one case must not end the run
            failed[words] = f"{type(error).__name__}: {error}"
            print("FAILED", flush=True)
            continue
        rows.append(row)
        ratio = "" if row.ratio is None else f", {row.ratio:.2f} x {row.peer}"
        print(f"{row.ms:.3f} ms, {1e-3 * row.gflops:.0f} TFLOP/s{ratio}", flush=True)
    return rows, failed, late


def _print_summary(group: str, rows: Sequence[Row]) -> None:
    result = summary(rows)
    if result["compared"]:
        mean, worst = result["geometric_mean"], result["worst"]
        print(f"{group}: geometric mean {mean:.3f}, worst {worst:.3f}, of {result['compared']}")


def _is_wanted(work: Work, only: str) -> bool:
    parts = [part for part in only.split(",") if part]
    return not parts or any(part in work.label for part in parts)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups = ", ".join(dict.fromkeys(work.group for work in works()))
    parser.add_argument(
        "--only", default="", help=f"parts of names, with commas between ({groups}; layers)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument(
        "--seconds",
        type=float,
        default=420.0,
        help="no case starts later than this (default: %(default)s, so that all ends in 8 minutes)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""PyTorch's ops by torch.compile(backend="tilewright") beside eager PyTorch, on larger samples.

    python benchmarks/torch_ops.py --minutes 20 --json torch_ops.json
    python benchmarks/torch_ops.py --match topk,sort

The samples are those of PyTorch's own database of operators (`op_db`, which needs the package
expecttest), in f32. Its sizes are raised until the largest sample of an op has 500,000 elements
(50,000 at least, 4 million at most). Eager PyTorch has to take 0.1 ms for it. The sides take turns
in batches with pauses between them, as threads of either spin for a while after a call
(`tilewright.measure.rounds`); times are medians. The third side is `torch.compile` with PyTorch's
own backend "aot_eager", which calls the same ops: what a compiled call costs there. Islands, ops
that draw random numbers and those without such a sample have no row, but a reason.

Ops are measured in a process of their own, one after the other; one that takes longer than
``--limit`` seconds is ended and counted as too slow. The order is random, and always the same.
After ``--minutes``, or an interruption, the same command goes on where it was: ``--json`` has a row
for each op that was done. On a busy machine the ratios say little.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

# What S is, with M and L, in turn: of samples of four dims and more, of three, of two, of one.
SIZES = (32, 100, 1000, 1_000_000)
ENOUGH, LARGEST, FIRST = 500_000, 1 << 22, 60
FEW = 50_000
LEAST, MOST, SECONDS = 1e-4, 1.0, 0.5
THREADS = 2
MEMORY = 12 << 30

Row = dict[str, Any]


class _UnmeasuredError(Exception):
    """Why there is no time."""


# In the process that measures.


def database() -> dict[str, Any]:
    """The ops that take f32 on processors, by name."""
    from torch.testing._internal import common_methods_invocations as invocations

    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {
        ".".join(filter(None, (op.name, op.variant_test_name))): op
        for op in invocations.op_db
        if _takes_f32(op)
    }


def _takes_f32(op: Any) -> bool:
    import torch

    return bool(op.supports_dtype(torch.float32, "cpu"))


def larger_samples(op: Any) -> list[Any]:
    """The two samples of ``op`` with the most elements, at the first sizes at which there are
    enough of these; at the last ones that it takes, if there never are."""
    import torch

    result: list[Any] = []
    most = 0
    for size in SIZES:
        _set_sizes(size)
        torch.manual_seed(0)
        counted = []
        try:
            for number, each in enumerate(islice(op.sample_inputs("cpu", torch.float32), FIRST)):
                if (count := _elements(torch, each)) <= LARGEST:
                    counted.append((count, number, each))
        # Some samples are made of what does not fit together at other sizes than the usual.
        except Exception:
            if not counted:
                continue
        counted.sort(key=lambda each: each[:2], reverse=True)
        if counted and counted[0][0] > most:
            most = counted[0][0]
            result = [each for count, _, each in counted[:2] if count >= FEW]
        if most >= ENOUGH:
            break
    return result


def _set_sizes(size: int) -> None:
    """S, M and L in all modules that make samples."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal"):
            for letter in ("S", "M", "L"):
                if isinstance(getattr(module, letter, None), int):
                    setattr(module, letter, size)


def _elements(torch: Any, sample: Any) -> int:
    leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return max((leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor)), default=0)


def seconds(call: Callable[[], object]) -> float:
    """What a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measured(op: Any) -> Row:
    """What a sample of ``op`` takes, natively and in PyTorch. Raises `_UnmeasuredError`."""
    import torch

    samples = larger_samples(op)
    if not samples:
        raise _UnmeasuredError("no larger sample")
    why = ""
    for sample in samples:
        try:
            return _of_sample(torch, op, sample)
        except _UnmeasuredError as reason:
            why = why or str(reason)
    raise _UnmeasuredError(why)


def call_of(torch: Any, function: Any, sample: Any) -> tuple[Callable[..., Any], list[Any]]:
    """``function`` of a sample, as a function of its tensors that is written out, and these:
    `torch.compile` looks at everything else that a function uses in each call."""
    tensors: list[Any] = []
    names: dict[str, Any] = {"function": function}

    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return f"t{len(tensors) - 1}"
        if type(value) is list:
            return "[" + "".join(f"{text(part)}, " for part in value) + "]"
        if type(value) is tuple:
            return "(" + "".join(f"{text(part)}, " for part in value) + ")"
        if value is None or type(value) in (int, bool, str):
            return repr(value)
        names[f"c{len(names)}"] = value
        return f"c{len(names) - 1}"

    arguments = [text(value) for value in (sample.input, *sample.args)]
    arguments += [f"{name}={text(value)}" for name, value in sample.kwargs.items()]
    parameters = ", ".join(f"t{n}" for n in range(len(tensors)))
    exec(f"def run({parameters}): return function({', '.join(arguments)})", names)
    return names["run"], tensors


def _of_sample(torch: Any, op: Any, sample: Any) -> Row:
    from tilewright.frontends.torch import report
    from tilewright.measure.rounds import measure

    run, tensors = call_of(torch, op.op, sample)

    def eager() -> Any:
        return run(*tensors)

    eager()
    least = min(seconds(eager) for _ in range(5))
    if not LEAST <= least <= MOST:
        raise _UnmeasuredError(f"eager takes {1e3 * least:.3f} ms")
    report(clear=True)
    torch._dynamo.reset()
    options = {"threads": THREADS}
    compiled = torch.compile(
        run, backend="tilewright", options=options, dynamic=False, fullgraph=True
    )
    first = seconds(lambda: compiled(*tensors))
    if islands := report().islands:
        raise _UnmeasuredError(f"islands: {', '.join(map(str, islands))}"[:200])
    called = torch.compile(run, backend="aot_eager", dynamic=False, fullgraph=True)
    sides = {
        "ours": lambda: compiled(*tensors),
        "eager": eager,
        "called": lambda: called(*tensors),
    }
    result = measure(sides, seconds=SECONDS, threads=THREADS)
    shapes = " ".join("x".join(map(str, tensor.shape)) for tensor in tensors[:3])
    times = {name: result.times[name].median for name in sides}
    return {"sample": shapes, **times, "first": first, "noise": list(result.noise)}


def work() -> int:
    """Measures the ops whose names come in, a line each, and writes a row for each."""
    import torch

    torch.set_num_threads(THREADS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    ops = database()
    # What ops print goes elsewhere.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps(sorted(ops)), file=answers, flush=True)
    for line in sys.stdin:
        name = line.strip()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            try:
                row = measured(ops[name])
            except _UnmeasuredError as reason:
                row = {"why": str(reason)}
            # What PyTorch or its samples do not take at these sizes is no matter here.
            except Exception as error:
                row = {"why": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps({"op": name, **row}), file=answers, flush=True)
    return 0


# In the process that asks.


class _Worker:
    """A process that measures; another one where it was ended."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.names: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        if self.process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            command = [sys.executable, __file__, "--work"]
            self.process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
            first = self._line(max(self.limit, 120))
            if first is None:
                raise SystemExit("PyTorch's op_db cannot be loaded: is expecttest installed?")
            self.names = json.loads(first)
        return self.process

    def measure(self, name: str) -> Row:
        process = self.start()
        assert process.stdin is not None
        process.stdin.write(name + "\n")
        process.stdin.flush()
        line = self._line(self.limit)
        if line is None:
            died = process.poll()
            self.end()
            why = f"more than {self.limit:g} s" if died is None else f"died: {died}"
            return {"op": name, "why": why}
        row: Row = json.loads(line)
        return row

    def _line(self, limit: float) -> str | None:
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        return (self.process.stdout.readline() or None) if ready else None

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def rows_of(values: argparse.Namespace, done: Sequence[Row]) -> Iterator[Row]:
    """A row for each op that is not ``done``, until the time is up."""
    end = time.monotonic() + 60 * values.minutes
    worker = _Worker(values.limit)
    try:
        worker.start()
        words = values.match.split(",")
        names = [name for name in worker.names if any(word in name for word in words)]
        random.Random(0).shuffle(names)
        known = {row["op"] for row in done}
        left = [name for name in names if name not in known]
        for number, name in enumerate(left):
            if time.monotonic() > end:
                print(f"time is up: {len(left) - number} ops are left", flush=True)
                return
            yield worker.measure(name)
    finally:
        worker.end()


def table(rows: Iterable[Row], worst: int) -> list[str]:
    """The worst ratios, in words."""
    rows = list(rows)
    result = sorted(
        (row for row in rows if "ours" in row), key=lambda row: row["eager"] / row["ours"]
    )
    lines = [f"{len(rows)} ops, {len(result)} of them measured"]
    if not result:
        return lines
    ratios = [row["ours"] / row["eager"] for row in result]
    lines += [
        f"slower than eager by more than 1.3: {sum(r > 1.3 for r in ratios)}; "
        f"median of ours over eager: {statistics.median(ratios):.2f}; "
        f"noisy: {sum(bool(row.get('noise')) for row in result)}",
        "",
        "| op | arguments | ours, ms | eager, ms | ours / eager | ours / aot_eager |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row, ratio in list(zip(result, ratios, strict=True))[:worst]:
        times = f"{1e3 * row['ours']:.2f} | {1e3 * row['eager']:.2f}"
        called = f"{row['ours'] / row['called']:.2f}" if "called" in row else ""
        lines.append(f"| `{row['op']}` | {row['sample']} | {times} | {ratio:.2f} | {called} |")
    return lines


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="when to stop")
    parser.add_argument("--limit", type=float, default=60, help="seconds that an op may take")
    parser.add_argument("--match", default="", help="ops whose names have one of these in them")
    parser.add_argument("--json", type=Path, help="a file of rows, to begin with and to add to")
    parser.add_argument("--worst", type=int, default=20, help="how many are listed")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        return work()
    rows: list[Row] = []
    if args.json and args.json.exists():
        rows = json.loads(args.json.read_text("utf-8"))
    for row in rows_of(args, rows):
        rows.append(row)
        said = f"{row['ours'] / row['eager']:6.2f}" if "ours" in row else "     -"
        print(f"{said} {row['op']} {row.get('why', '')}", flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print("\n".join(table(rows, args.worst)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

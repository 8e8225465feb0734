"""PyTorch's ops by torch.compile(backend="tilewright") beside eager PyTorch, on larger samples.

    python benchmarks/torch_ops.py [--part I/N] [--match TEXT] [--json FILE] [--worst 20]

The samples are those of PyTorch's own database of operators (`op_db`, which needs the package
expecttest), with its sizes S, M and L set to 32, 48 and 64: of each op in f32 the one with the most
elements that PyTorch takes 0.2 ms for at least. The two take turns; times are medians of 15. What
stays with PyTorch, draws random numbers, or has no sample that large is not listed.
``--part 0/4`` measures every fourth op; files that ``--json`` wrote are put together by
``--join FILE ...``. On a busy machine the ratios say little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

SIZES = {"S": 32, "M": 48, "L": 64}
FIRST, LARGEST = 60, 1 << 24
LEAST, MOST, TURNS, SECONDS = 2e-4, 1.0, 15, 3.0


def larger_samples(torch: Any, op: Any) -> list[Any]:
    """The first samples of an op, those with the most elements in front."""

    def elements(sample: Any) -> int:
        leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        return sum(each.numel() for each in leaves if isinstance(each, torch.Tensor))

    torch.manual_seed(0)
    samples = [
        (elements(each), number, each)
        for number, each in enumerate(islice(op.sample_inputs("cpu", torch.float32), FIRST))
    ]
    return [each for count, _, each in sorted(samples, reverse=True) if count <= LARGEST]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measured(torch: Any, name: str, op: Any) -> dict[str, Any] | None:
    """What an op takes, natively and in PyTorch; None where there is nothing to measure."""
    from tilewright.frontends.torch import report

    for sample in larger_samples(torch, op)[:2]:
        leaves, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]

        def run(*given: Any, leaves: Any = leaves, spec: Any = spec) -> Any:
            left = iter(given)
            filled = [next(left) if isinstance(each, torch.Tensor) else each for each in leaves]
            first, args, kwargs = torch.utils._pytree.tree_unflatten(filled, spec)
            return op.op(first, *args, **kwargs)

        def eager(run: Any = run, tensors: Any = tensors) -> Any:
            return run(*tensors)

        eager()
        least = min(seconds(eager) for _ in range(3))
        if not LEAST <= least <= MOST:
            continue
        report(clear=True)
        torch._dynamo.reset()
        compiled = torch.compile(
            run, backend="tilewright", options={"threads": 2}, dynamic=False, fullgraph=True
        )
        first = seconds(lambda: compiled(*tensors))  # noqa: B023
        if report().islands:
            return None
        turns = max(5, min(TURNS, int(SECONDS / least)))
        times = [(seconds(lambda: compiled(*tensors)), seconds(eager)) for _ in range(turns)]  # noqa: B023
        ours, theirs = (statistics.median(side) for side in zip(*times, strict=True))
        shapes = " ".join("x".join(map(str, each.shape)) for each in tensors[:3])
        return {"op": name, "sample": shapes, "ours": ours, "eager": theirs, "first": first}
    return None


def all_measured(part: str, match: str) -> Iterable[dict[str, Any]]:
    """Each op that can be measured, as it comes."""
    import torch
    from torch.testing._internal import common_methods_invocations as invocations

    torch.set_num_threads(2)
    for name, size in SIZES.items():
        setattr(invocations, name, size)
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    ops = {
        ".".join(filter(None, (op.name, op.variant_test_name))): op
        for op in invocations.op_db
        if op.supports_dtype(torch.float32, "cpu")
    }
    index, step = map(int, part.split("/"))
    for name in sorted(each for each in ops if match in each)[index::step]:
        # What PyTorch or its samples do not take at these sizes is no matter here.
        with warnings.catch_warnings(), suppress(Exception), torch.no_grad():
            warnings.simplefilter("ignore")
            row = measured(torch, name, ops[name])
            if row is not None:
                print(f"{row['ours'] / row['eager']:6.2f} {name}", flush=True)
                yield row


def table(rows: Iterable[dict[str, Any]], worst: int) -> list[str]:
    """The worst ratios, in words."""
    found = sorted(rows, key=lambda row: row["eager"] / row["ours"])
    ratios = [row["ours"] / row["eager"] for row in found]
    lines = [
        f"{len(found)} ops; slower than eager by more than 1.3: {sum(r > 1.3 for r in ratios)}; "
        f"median of ours over eager: {statistics.median(ratios):.2f}",
        "",
        "| op | arguments | ours, ms | eager, ms | ours / eager |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row, ratio in list(zip(found, ratios, strict=True))[:worst]:
        times = f"{1e3 * row['ours']:.2f} | {1e3 * row['eager']:.2f}"
        lines.append(f"| `{row['op']}` | {row['sample']} | {times} | {ratio:.2f} |")
    return lines


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default="0/1", help="I/N: every Nth op from the Ith on")
    parser.add_argument("--match", default="", help="ops whose name has this in it")
    parser.add_argument("--json", type=Path, help="a file for all times")
    parser.add_argument("--join", type=Path, nargs="+", help="measures nothing: files to join")
    parser.add_argument("--worst", type=int, default=20, help="how many are listed")
    given = parser.parse_args()
    if given.join:
        rows = [row for file in given.join for row in json.loads(file.read_text("utf-8"))]
    else:
        rows = list(all_measured(given.part, given.match))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if rows:
        print("\n".join(table(rows, given.worst)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

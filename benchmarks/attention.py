"""Attention of `tw.attention` beside PyTorch's and OpenVINO's `scaled_dot_product_attention`.

    python benchmarks/attention.py [--threads 2] [--seconds 2] [--match TEXT] [--gradients]

Each case runs in turns, in f32 and in bf16, in batches with pauses between them, as threads of all
sides spin for a while after a call (`tilewright.measure.rounds`): what the last caches hold stays
there. Times are medians, with the least ones in parentheses, and ratios (above 1: we are faster)
those of medians; GB/s are those of keys and values. OpenVINO computes in the type that is asked
for; where heads share keys, it gets these repeated, which is not in its time. ``--gradients``
measures the backward pass, beside PyTorch's alone. On a busy machine the ratios say little.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.measure.rounds import measure

Call = Callable[[], object]
# Heads of queries and of keys, queries, keys, size; which keys count.
CASES = (
    (12, 12, 128, 128, 64, "full"),
    (12, 12, 128, 128, 64, "causal"),
    (12, 12, 1024, 1024, 64, "full"),
    (12, 12, 1024, 1024, 64, "causal"),
    (8, 8, 4096, 4096, 64, "full"),
    (8, 8, 4096, 4096, 64, "causal"),
    (32, 8, 2048, 2048, 128, "full"),
    (32, 8, 2048, 2048, 128, "causal"),
    (12, 12, 1, 2048, 64, "full"),
    (32, 8, 1, 4096, 128, "full"),
)


def ours(
    torch: Any, case: tuple[Any, ...], tensors: Mapping[str, Any], threads: int, backward: bool
) -> Call:
    heads, shared, rows, keys, size, algorithm = case
    kind = tw.bf16 if tensors["queries"].dtype is torch.bfloat16 else tw.f32
    text = f"1x{heads}x{rows}x{size}:1x{shared}x{keys}x{size}"
    direction = "bwd_data" if backward else "fwd"
    op = tw.attention(text, algorithm, dtype=kind, direction=direction)
    run = tw.compile(op, threads=threads)
    if not backward:
        return lambda: run(**tensors)
    result = torch.randn(tensors["queries"].shape).to(tensors["queries"].dtype)
    logarithms = torch.full(result.shape[:3], 5.0)
    return lambda: run(**tensors, dst=result, diff_dst=result, logarithms=logarithms)


def pytorch(
    torch: Any, case: tuple[Any, ...], tensors: Mapping[str, Any], threads: int, backward: bool
) -> Call:
    heads, shared, *_, algorithm = case
    torch.set_num_threads(threads)
    factors = [tensor.clone().requires_grad_(backward) for tensor in tensors.values()]

    def run() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            *factors, is_causal=algorithm == "causal", enable_gqa=heads != shared
        )

    if not backward:
        return run
    result = run()
    back = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, factors, back, retain_graph=True)


def openvino(
    torch: Any, case: tuple[Any, ...], tensors: Mapping[str, Any], threads: int, backward: bool
) -> Call:
    import openvino as ov
    from openvino import opset13

    heads, shared, *_, algorithm = case
    values: list[Any] = []
    narrow = tensors["queries"].dtype is torch.bfloat16
    kind = ov.Type.bf16 if narrow else ov.Type.f32
    for name, tensor in tensors.items():
        whole = tensor if name == "queries" else tensor.repeat_interleave(heads // shared, dim=1)
        array = whole.view(torch.uint16).numpy() if narrow else whole.numpy()
        array = np.ascontiguousarray(array)
        values.append(ov.Tensor(array, ov.Shape(array.shape), kind) if narrow else ov.Tensor(array))
    places = [opset13.parameter(each.shape, kind) for each in values]
    node = opset13.scaled_dot_product_attention(*places, causal=algorithm == "causal")
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if narrow else "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = ov.Model([node], places, "attention")
    request = ov.Core().compile_model(model, "CPU", config).create_infer_request()
    return lambda: request.infer(values, share_inputs=True, share_outputs=True)


def row(torch: Any, case: tuple[Any, ...], kind: str, values: argparse.Namespace) -> str:
    """A row of the table."""
    heads, shared, rows, keys, size, algorithm = case
    type = torch.bfloat16 if kind == "bf16" else torch.float32
    shapes = {"queries": (heads, rows), "keys": (shared, keys), "values": (shared, keys)}
    tensors = {name: torch.randn(1, *shape, size).to(type) for name, shape in shapes.items()}
    sides = {"tilewright": ours, "PyTorch": pytorch}
    if not values.gradients:
        sides["OpenVINO"] = openvino
    calls: dict[str, Call] = {}
    for name, side in sides.items():
        try:
            calls[name] = side(torch, case, tensors, values.threads, values.gradients)
        except (ImportError, RuntimeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
    times = measure(calls, seconds=values.seconds, threads=values.threads).times
    middle = {name: time.median for name, time in times.items()}
    columns = [
        f"{1e3 * middle[name]:.3f} ({1e3 * times[name].best:.3f})" if name in times else ""
        for name in sides
    ]
    columns += [
        f"{middle[name] / middle['tilewright']:.2f}" if name in times else ""
        for name in list(sides)[1:]
    ]
    moved = sum(tensors[name].nbytes for name in ("keys", "values"))
    columns.append(f"{moved / middle['tilewright'] / 1e9:.0f}")
    named = f"{heads}/{shared}" if shared != heads else f"{heads}"
    text = f"{named}x{rows}x{keys}x{size}, {algorithm}, {kind}"
    return "| " + " | ".join((text, *columns)) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--match", default="")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--gradients", action="store_true")
    args = parser.parse_args()
    import torch

    peers = ["PyTorch"] if args.gradients else ["PyTorch", "OpenVINO"]
    columns = [f"{name}, ms" for name in peers] + [f"to {name}" for name in peers]
    titles = ["case", "tilewright, ms", *columns, "GB/s"]
    print("| " + " | ".join(titles) + " |")
    print("| --- |" + " ---: |" * (len(titles) - 1))
    for case in CASES:
        for kind in args.types.split(","):
            text = "x".join(map(str, case))
            if args.match in text and not (args.gradients and case[2] == 1):
                print(row(torch, case, kind, args), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Times whole models by `torch.compile(model, backend="tilewright")` beside PyTorch itself.

Networks of `transformers`, and DenseNet, with random weights that are frozen, f32 or bf16, a batch
of one: a picture of 224x224, 128 tokens, a token (of Llama), 30 s of sound. Of each: how far off
f64 it is, how long the first call takes (with an empty cache, and again in a new process), steady
times of all sides, what lies between the steps of the program beside what must, which ops stay with
PyTorch, and how the process grows over many calls. ``--training`` measures a step instead, forward
and backward, in f32; its error is that of all gradients, wrong if it is twice that of PyTorch's
own.

One thread is timed by its processor time, several, and one beside peers that start threads of their
own, by the clock on the wall. The ratio is the fastest peer's time over ours: above 1, we are
faster. Peers beside PyTorch come with the extra `peers`.

Exit status: 0, 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from model_peers import PEERS

from tilewright.bench.torch_tensors import load_torch
from tilewright.measure.rounds import measure

EXAMPLES = """examples:
  python benchmarks/models.py --threads 1 --json models.json
  python benchmarks/models.py ResNet-50 --threads 1 --threads 2 --calls 1000
  python benchmarks/models.py MobileNetV2 --threads 2 --bf16 --peer openvino --peer onnxruntime
  python benchmarks/models.py ResNet-18 BERT-small --threads 2 --training --peer inductor
"""
# Name: configuration, model, what differs from the configuration's defaults.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ResNet-50": ("ResNetConfig", "ResNetForImageClassification", {}),
    "ResNet-18": (
        "ResNetConfig",
        "ResNetForImageClassification",
        {"depths": [2, 2, 2, 2], "layer_type": "basic", "hidden_sizes": [64, 128, 256, 512]},
    ),
    "MobileNetV2": ("MobileNetV2Config", "MobileNetV2ForImageClassification", {}),
    "ViT-base": ("ViTConfig", "ViTForImageClassification", {}),
    "BERT-base": ("BertConfig", "BertModel", {}),
    "BERT-small": (
        "BertConfig",
        "BertModel",
        {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
        | {"intermediate_size": 2048, "hidden_dropout_prob": 0.0}
        | {"attention_probs_dropout_prob": 0.0},
    ),
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", {}),
    "Llama-12x768": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
        | {"num_key_value_heads": 12, "intermediate_size": 2048},
    ),
    "ConvNeXt-tiny": ("ConvNextConfig", "ConvNextForImageClassification", {}),
    "Swin-tiny": ("SwinConfig", "SwinForImageClassification", {}),
    "EfficientNet-B0": (
        "EfficientNetConfig",
        "EfficientNetForImageClassification",
        {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}
        | {"initializer_range": 0.2},
    ),
    "DenseNet-121": ("", "", {}),
    "RegNet-Y-4GF": ("RegNetConfig", "RegNetForImageClassification", {}),
    "T5-small": ("T5Config", "T5EncoderModel", {}),
    "Whisper-tiny": ("WhisperConfig", "WhisperEncoder", {}),
    "CLIP-ViT-B/32": ("CLIPVisionConfig", "CLIPVisionModel", {}),
    "SegFormer-B0": ("SegformerConfig", "SegformerForSemanticSegmentation", {}),
    "Qwen2-12x896": (
        "Qwen2Config",
        "Qwen2Model",
        {"hidden_size": 896, "num_hidden_layers": 12, "num_attention_heads": 14}
        | {"num_key_value_heads": 2, "intermediate_size": 4864},
    ),
}
TOLERANCE = 1e-4
# Of bf16, in which PyTorch itself is off by a few percent.
TOLERANCE_BF16 = 0.1


def model_of(torch: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """A published configuration with random weights, and inputs."""
    import transformers

    torch.manual_seed(0)
    if name == "DenseNet-121":
        from densenet import DenseNet121

        return DenseNet121().eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}
    config_name, class_name, changes = MODELS[name]
    config = getattr(transformers, config_name)(**changes)
    config.use_cache = False
    if class_name == "WhisperEncoder":
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        return WhisperEncoder(config).eval(), {"input_features": torch.randn(1, 80, 3000)}
    model = getattr(transformers, class_name)(config).eval()
    if model.main_input_name == "pixel_values":
        return model, {"pixel_values": torch.randn(1, 3, 224, 224)}
    tokens = 1 if name.startswith("Llama") else 128
    return model, {"input_ids": torch.randint(3, config.vocab_size, (1, tokens))}


def resident() -> int | None:
    """Bytes of memory that this process holds; None where the system does not say so."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_time(call: Callable[[], object], count: int) -> float:
    """Seconds of this thread for a call."""
    start = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - start) / count


def measured(name: str, values: argparse.Namespace) -> dict[str, Any]:
    """One model in this process, with the cache as it is."""
    torch = load_torch()
    threads = values.threads[0]
    torch.set_num_threads(threads)
    model, inputs = model_of(torch, name)
    results: dict[str, Any] = {"model": name, "threads": threads}
    with torch.no_grad():
        wanted = model.double()(**{n: _as(torch.float64, v) for n, v in inputs.items()})[0]
        kind = torch.bfloat16 if values.bf16 else torch.float32
        model, inputs = model.to(kind), {n: _as(kind, v) for n, v in inputs.items()}
        options = {"threads": threads, "freeze": not values.open}
        start = (time.perf_counter(), time.process_time())
        if values.exported:
            run, program = exported(torch, model, inputs, threads)
        else:
            run = torch.compile(model, backend="tilewright", options=options)
        result = run(**inputs)[0]
        results["first_seconds"] = time.perf_counter() - start[0]
        results["first_processor_seconds"] = time.process_time() - start[1]
        results["error"] = off(result, wanted)
        results["right"] = results["error"] <= (TOLERANCE_BF16 if values.bf16 else TOLERANCE)
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda: run(**inputs),
            "torch": lambda: model(**inputs),
        }
        results["refused"] = {}
        for peer in values.peer or ():
            other = model_of(torch, name)[0].to(kind)
            try:
                call = PEERS[peer](other, inputs, threads, values.bf16)
                call()
                sides[peer] = call
            except Exception as error:  # whatever a peer raises
                results["refused"][peer] = f"{type(error).__name__}: {error}"
        results |= steady(sides, values, by_processor=threads == 1 and not values.peer)
        if values.calls:
            results["calls"] = values.calls
            results["resident_bytes"] = grown(sides["ours"], values.calls)
    if values.exported:
        memory = {"arena_bytes": program.arena.bytes, "live_bytes": program.arena.live}
        return results | reported() | memory
    return results | reported()


def steady(
    sides: dict[str, Callable[[], object]], values: argparse.Namespace, by_processor: bool = False
) -> dict[str, Any]:
    """The medians of all sides in turns, and what speaks against them; nothing for no seconds."""
    if not values.seconds:
        return {}
    batch = processor_time if by_processor else None
    times = measure(sides, seconds=values.seconds, threads=values.threads[0], batch=batch)
    seconds = {side: value.median for side, value in times.times.items()}
    return {"seconds": seconds, "noise": list(times.noise)}


def off(result: Any, wanted: Any) -> float:
    """The greatest error, as a part of the greatest value."""
    return float((result - wanted).abs().max() / wanted.abs().max())


def trained(name: str, values: argparse.Namespace) -> dict[str, Any]:
    """A step of training in this process: forward, a loss, backward."""
    torch = load_torch()
    threads = values.threads[0]
    torch.set_num_threads(threads)
    model, inputs = model_of(torch, name)
    model.train()
    weights = torch.randn(model(**inputs)[0].shape)

    def step(run: Callable[..., Any], weights: Any, inputs: dict[str, Any]) -> Any:
        loss = (run(**inputs)[0] * weights).sum()
        used = [value for value in model.parameters() if value.requires_grad]
        return torch.autograd.grad(loss, used, allow_unused=True)

    def joined(gradients: Any) -> Any:
        """Gradients, end to end, as one vector; 0 of what the result does not depend on, which
        some leave out."""
        parameters = (value for value in model.parameters() if value.requires_grad)
        pairs = zip(gradients, parameters, strict=True)
        return torch.cat(
            [(torch.zeros_like(p) if value is None else value).flatten() for value, p in pairs]
        )

    double = {key: _as(torch.float64, value) for key, value in inputs.items()}
    wanted = joined(step(model.double(), weights.double(), double))
    model.float()
    eager = off(joined(step(model, weights, inputs)), wanted)
    start = (time.perf_counter(), time.process_time())
    run = torch.compile(model, backend="tilewright", options={"threads": threads})
    result = joined(step(run, weights, inputs))
    results: dict[str, Any] = {
        "model": name,
        "threads": threads,
        "first_seconds": time.perf_counter() - start[0],
        "first_processor_seconds": time.process_time() - start[1],
        "error": off(result, wanted),
        "refused": {},
    }
    # Of one picture, norms of a batch magnify what rounding does.
    results["right"] = results["error"] <= max(TOLERANCE, 2 * eager)
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: step(run, weights, inputs),
        "torch": lambda: step(model, weights, inputs),
    }
    results |= reported()
    if values.peer:
        inductor = torch.compile(model)
        sides["inductor"] = lambda: step(inductor, weights, inputs)
    return results | steady(sides, values)


def exported(
    torch: Any, model: Any, inputs: dict[str, Any], threads: int
) -> tuple[Callable[..., Any], Any]:
    """The model as an exported program, without PyTorch around a call; and that program."""
    import tilewright as tw

    graph = tw.from_torch(torch.export.export(model, (), inputs))
    program = tw.compile(graph, target="x86", threads=threads)

    def run(**arrays: Any) -> list[Any]:
        results = program(**arrays)
        return list(results.values()) if isinstance(results, dict) else [results]

    return run, program


def _as(kind: Any, value: Any) -> Any:
    return value.to(kind) if value.is_floating_point() else value


def grown(call: Callable[[], object], calls: int) -> list[int | None]:
    """What the process holds behind a tenth of the calls, and behind all of them."""
    sizes = []
    for count in (calls // 10, calls - calls // 10):
        for _ in range(count):
            call()
        sizes.append(resident())
    return sizes


def reported() -> dict[str, Any]:
    """What the back end says of the graphs that it compiled."""
    from tilewright.frontends.torch import report

    said = report()
    return {
        "native_ops": sum(graph.native for graph in said.graphs),
        "programs": sum(graph.programs for graph in said.graphs),
        "islands": {f"{island.op}: {island.why}": island.count for island in said.islands},
        "arena_bytes": sum(graph.arena for graph in said.graphs),
        "live_bytes": sum(graph.live for graph in said.graphs),
    }


def in_processes(name: str, threads: int, values: argparse.Namespace) -> dict[str, Any]:
    """One model: in a process without a cache, then in another one that finds it."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TILEWRIGHT_CACHE_DIR": cache}

        def child(*arguments: str) -> dict[str, Any]:
            command = [sys.executable, __file__, name, "--one", f"--threads={threads}", *arguments]
            command += ["--open"] if values.open else []
            command += ["--bf16"] if values.bf16 else []
            command += ["--exported"] if values.exported else []
            command += ["--training"] if values.training else []
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            return dict(json.loads(done.stdout.splitlines()[-1]))

        cold = child("--seconds=0", "--calls=0")
        also = [f"--peer={peer}" for peer in values.peer or ()]
        warm = child(f"--seconds={values.seconds}", f"--calls={values.calls}", *also)
    both = ("first_seconds", "first_processor_seconds")
    return warm | {f"cold_{key}": cold[key] for key in both}


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    times = {side: seconds * 1e3 for side, seconds in found["seconds"].items()}
    ours = times.pop("ours")
    peers = ", ".join(f"{time:.1f} {side}" for side, time in times.items())
    peers += "".join(f", {peer} refuses" for peer in found["refused"])
    first = f"{found['cold_first_seconds']:.1f} / {found['first_seconds']:.1f} s"
    spent = (
        f"{found['cold_first_processor_seconds']:.1f} / {found['first_processor_seconds']:.1f} s"
    )
    memory = f"{found['arena_bytes'] / 1e6:.1f} / {found['live_bytes'] / 1e6:.1f} MB"
    marks = ", noisy" if found["noise"] else ""
    wrong = "" if found["right"] else ", WRONG"
    ratio = min(times.values()) / ours
    return (
        f"| {found['model']} | {found['threads']} | {ours:.1f} | {peers} | {ratio:.2f}"
        f"{marks} | {first} | {spent} | {memory} | {found['error']:.1e}{wrong} "
        f"| {sum(found['islands'].values())} |"
    )


COLUMNS = (
    *("threads", "ours, ms", "peers, ms", "ratio", "first call, cold / warm"),
    *("its processor time", "arena / live", "error", "islands"),
)
HEAD = f"| model | {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * len(COLUMNS)}"


def main() -> int:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--threads", type=int, action="append", help="may be repeated")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each side")
    parser.add_argument("--calls", type=int, default=0, help="and see whether the process grows")
    parser.add_argument("--open", action="store_true", help="parameters are not frozen")
    parser.add_argument("--exported", action="store_true", help="ours by torch.export")
    parser.add_argument("--training", action="store_true", help="a step, forward and backward")
    parser.add_argument("--bf16", action="store_true", help="weights and inputs in bf16")
    parser.add_argument("--peer", action="append", choices=PEERS, help="may be repeated")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.threads = args.threads or [1, 2]
    if args.training and (args.exported or args.bf16 or set(args.peer or ()) - {"inductor"}):
        parser.error("--training is there for torch.compile in f32, beside --peer inductor")
    unknown = [name for name in args.names if name not in MODELS]
    if unknown:
        parser.error(f"there is no model {unknown[0]!r}: choose of {', '.join(MODELS)}")
    if args.one:
        print(json.dumps((trained if args.training else measured)(args.names[0], args)))
        return 0
    rows = []
    print(HEAD)
    for name in args.names or MODELS:
        for threads in args.threads:
            rows.append(in_processes(name, threads, args))
            print(line(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

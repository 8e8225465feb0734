"""Small whole models, from PyTorch's export to what each target runs: a network of convolutions,
two layers of an encoder, two of a decoder."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from assembly import assembled
from commands import Command
from needs import DEVICES, need_device
from tilewright.graph.graph import Graph
from tilewright.graph.program import GraphProgram
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.registry import find_target
from tilewright.testing.interpreted_graph import InterpretedGraph

torch = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
# Of PyTorch itself, while it exports.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

_TEXT = {"vocab_size": 13, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "ResNet": {
        "num_channels": 3, "embedding_size": 4, "hidden_sizes": [8, 8], "depths": [1, 1],
        "num_labels": 3,
    },
    "BERT": {**_TEXT, "max_position_embeddings": 8, "intermediate_size": 16},
    "GPT-2": {
        "vocab_size": 13, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2,
        "bos_token_id": 1, "eos_token_id": 2,
    },
}  # fmt: skip
every_model = pytest.mark.parametrize("name", MODELS)


@cache
def exported(name: str) -> tuple[Graph, Any, Any]:
    """The graph of a model, its input, and what PyTorch makes of that."""

    class Logits(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model(x).logits

    torch.manual_seed(0)
    config_name, class_name, _ = import_module("torch_models").MODELS[name]
    config = getattr(transformers, config_name)(**MODELS[name])
    config.use_cache = False
    model = getattr(transformers, class_name)(config).eval()
    x = torch.randn(1, 3, 16, 16) if name == "ResNet" else torch.randint(0, 13, (1, 4))
    with torch.no_grad():
        wanted = model(x).logits.numpy()
    return tw.from_torch(torch.export.export(Logits(model), (x,))), x.numpy(), wanted


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@every_model
@pytest.mark.parametrize("target", ["x86", *DEVICES])
def test_a_model_runs(name: str, target: str) -> None:
    need_device(target)
    graph, x, wanted = exported(name)
    program = tw.compile(graph, target, threads=2)
    assert isinstance(program, GraphProgram) and len(program.launches) > 10
    for _ in range(2):
        close(program(x), wanted)


@every_model
def test_what_a_gpu_would_run(name: str) -> None:
    """What it gets, in the interpreter; and assembled, where ptxas is there."""
    graph, x, wanted = exported(name)
    target = find_target("nvidia:sm_80")
    result = InterpretedGraph(graph, target.machine)
    results = np.zeros_like(wanted)
    result(**{graph.inputs[0]: x}, out=results)
    close(results, wanted)
    for kernel in result._kernels:
        assembled(to_ptx(target.lower(kernel._kernel).text, "sm_80"), "sm_80")


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("dtype", "place"),
    [("float32", "device"), ("bfloat16", "device"), ("float32", "interpreter")],
)
@pytest.mark.parametrize("name", import_module("torch_models").MODELS)
def test_a_fused_network_is_the_unfused_one(
    name: str, dtype: str, place: str, tmp_path: Path, tilewright: Command
) -> None:
    """The program of a graph beside the graph as it stands, in float64; in the interpreter, which
    finds accesses outside, uninitialized elements and races, its kernels as they are scheduled."""
    model, inputs = import_module("torch_models").model_of(name)
    kind = getattr(torch, dtype)
    arguments = {n: v.to(kind) if v.is_floating_point() else v for n, v in inputs.items()}
    path = tmp_path / "network.pt2"
    torch.export.save(torch.export.export(First(model.to(kind)), (), arguments), path)
    ended = tilewright("verify", "graph", "--on", place, str(path))
    assert ended.code == 0, ended.out + ended.err


class First(torch.nn.Module):
    """The first result of a model."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        return self.model(**inputs)[0]

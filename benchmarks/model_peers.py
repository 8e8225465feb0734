"""What else runs whole models on a processor: each makes a call of a model of PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Call = Callable[[], object]


def inductor(model: Any, inputs: Mapping[str, Any], threads: int, bf16: bool) -> Call:
    """PyTorch's own compiler, with frozen parameters."""
    import torch

    torch._inductor.config.freezing = True
    run = torch.compile(model)
    return lambda: run(**inputs)


def openvino(model: Any, inputs: Mapping[str, Any], threads: int, bf16: bool) -> Call:
    """OpenVINO, as exact as it is asked for: by itself, it computes in bf16 where it can."""
    import openvino as ov

    converted = ov.convert_model(model.float(), example_input=_single(inputs))
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = ov.Core().compile_model(converted, "CPU", config).create_infer_request()
    arrays = {name: value.numpy() for name, value in _single(inputs).items()}
    return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)


def onnxruntime(model: Any, inputs: Mapping[str, Any], threads: int, bf16: bool) -> Call:
    """onnxruntime, which has no bf16 on processors: its f32."""
    import onnxruntime as ort
    import torch

    single = _single(inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        torch.onnx.export(model.float(), (), path, kwargs=single, dynamo=True, verbose=False)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays = {name: value.numpy() for name, value in single.items()}
    return lambda: session.run(None, arrays)


PEERS = {each.__name__: each for each in (inductor, openvino, onnxruntime)}


def _single(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v.float() if v.is_floating_point() else v for n, v in inputs.items()}

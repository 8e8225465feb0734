"""Models of `transformers` with random weights against PyTorch, which `graph_coverage` counts:
small configurations, or those of the published models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from tilewright.frontends.torch import backend, report

_TEXT = {"vocab_size": 211, "max_position_embeddings": 64}
_BERT = {**_TEXT, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_LLAMA = {**_BERT, "intermediate_size": 48, "num_key_value_heads": 1}
_IMAGE = {"num_channels": 3}

# Name: configuration, model, settings of a small one.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ResNet": ("ResNetConfig", "ResNetForImageClassification", {
        **_IMAGE, "embedding_size": 8, "hidden_sizes": [16, 24], "depths": [1, 2], "num_labels": 7,
    }),
    "MobileNetV2": ("MobileNetV2Config", "MobileNetV2ForImageClassification", {
        "image_size": 64, "depth_multiplier": 0.35, "num_labels": 7,
    }),
    "ConvNeXt": ("ConvNextConfig", "ConvNextForImageClassification", {
        "num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 2], "num_labels": 7,
    }),
    "ViT": ("ViTConfig", "ViTForImageClassification", {
        "image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 48, "num_labels": 7,
    }),
    "BERT": ("BertConfig", "BertForMaskedLM", {**_BERT, "intermediate_size": 48}),
    "DistilBERT": ("DistilBertConfig", "DistilBertForMaskedLM", {
        **_TEXT, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48,
    }),
    "T5": ("T5Config", "T5ForConditionalGeneration", {
        "vocab_size": 211, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2,
    }),
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", {
        "vocab_size": 211, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2,
    }),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", _LLAMA),
    "Qwen": ("Qwen2Config", "Qwen2ForCausalLM", _LLAMA),
    "Whisper": ("WhisperConfig", "WhisperForConditionalGeneration", {
        "vocab_size": 211, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48, "max_source_positions": 20, "max_target_positions": 32,
        "num_mel_bins": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None,
    }),
    "Swin": ("SwinConfig", "SwinForImageClassification", {
        "image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [1, 2],
        "window_size": 4, "num_labels": 7,
    }),
    "EfficientNet": ("EfficientNetConfig", "EfficientNetForImageClassification", {
        "image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320,
        "initializer_range": 0.2, "num_labels": 7,
    }),
    "RegNet": ("RegNetConfig", "RegNetForImageClassification", {
        **_IMAGE, "embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2],
        "groups_width": 8, "num_labels": 7,
    }),
    "CLIP": ("CLIPVisionConfig", "CLIPVisionModel", {
        "image_size": 32, "patch_size": 8, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 2,
    }),
    "SegFormer": ("SegformerConfig", "SegformerForSemanticSegmentation", {
        "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32],
        "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2],
        "mlp_ratios": [2, 2], "decoder_hidden_size": 16, "num_labels": 7,
    }),
}  # fmt: skip
KINDS = ("forward", "bfloat16", "gradients")


def model_of(name: str, full: bool = False) -> tuple[Any, dict[str, Any]]:
    """A model with random weights, and its inputs."""
    torch.manual_seed(0)
    config_name, class_name, small = MODELS[name]
    config = getattr(transformers, config_name)(**({} if full else small))
    config.use_cache = False
    model = getattr(transformers, class_name)(config).eval()
    return model, _inputs(name, config, full)


def _inputs(name: str, config: Any, full: bool) -> dict[str, Any]:
    if hasattr(config, "num_channels") and name != "Whisper":
        size = (224 if full else getattr(config, "image_size", 32)) if name != "ResNet" else 0
        size = size if isinstance(size, int) and size else (224 if full else 32)
        return {"pixel_values": torch.randn(1, 3, size, size)}
    length = 128 if full else 12
    ids = torch.randint(3, config.vocab_size, (1, length))
    if name == "Whisper":
        frames = 2 * config.max_source_positions
        sound = torch.randn(1, config.num_mel_bins, frames)
        return {"input_features": sound, "decoder_input_ids": ids[:, :8]}
    if name == "T5":
        return {"input_ids": ids, "decoder_input_ids": ids[:, :8]}
    return {"input_ids": ids}


def checked(name: str, kind: str, full: bool = False, target: str = "x86") -> str:
    """``""``, or what is wrong."""
    torch._dynamo.reset()
    model, inputs = model_of(name, full)
    if kind == "bfloat16":
        model = model.to(torch.bfloat16)
        inputs = {
            key: x.to(torch.bfloat16) if x.is_floating_point() else x for key, x in inputs.items()
        }
    run = torch.compile(model, backend=backend, options={"target": target})
    if kind == "gradients":
        return _gradients(model, run, inputs)
    with torch.no_grad():
        expected = model(**inputs)[0]
        result = run(**inputs)[0]
        again = run(**inputs)[0]
    tolerance = 0.06 if kind == "bfloat16" else 1e-3
    for results in (result, again):
        error = (results.float() - expected.float()).abs().max().item()
        scale = expected.float().abs().max().item()
        if not error <= tolerance * scale:
            return f"off by {error:.2g} of {scale:.2g}"
    return ""


def _gradients(model: Any, run: Callable[..., Any], inputs: dict[str, Any]) -> str:
    weights = {n: p for n, p in model.named_parameters() if p.requires_grad}
    expected = torch.autograd.grad(
        model(**inputs)[0].square().sum(), list(weights.values()), allow_unused=True
    )
    result = torch.autograd.grad(
        run(**inputs)[0].square().sum(), list(weights.values()), allow_unused=True
    )
    for name, a, b in zip(weights, result, expected, strict=True):
        # What leads to other results than the first has zeros where it is compiled, by any backend.
        if b is None and (a is None or not a.any()):
            continue
        if a is None or b is None:
            return f"{name}: there is {'no' if a is None else 'a'} gradient"
        error, scale = (a - b).abs().max().item(), b.abs().max().item()
        if not error <= 1e-3 * scale + 1e-5:
            return f"{name}: off by {error:.2g} of {scale:.2g}"
    return ""


def judged(name: str, kind: str, full: bool = False, target: str = "x86") -> tuple[str, str]:
    """``right`` or ``wrong``, and why; ops that PyTorch ran count as ``refused``."""
    report(clear=True)
    wrong = checked(name, kind, full, target)
    if wrong:
        return "wrong", wrong
    islands = {f"{island.op} ({island.why})": island.count for island in report().islands}
    return ("refused", f"by PyTorch: {islands}") if islands else ("right", "")

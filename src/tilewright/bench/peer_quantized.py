"""Products of int8 in PyTorch, which calls oneDNN, with scales and zero points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.bench.peer_chain import ChainStep, chained, fused_unary, steps_of
from tilewright.bench.torch_tensors import Peers, image, random_tensor
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op

# A product of oneDNN, followed by PyTorch's calls.
CHAIN = "oneDNN + torch"
# Arbitrary values of scales and zero points that our kernel takes as arguments.
_SCALE, _POINT = 0.5, 3
# Types of PyTorch's product with groups of scales.
_GROUPED = ("f32", "bf16", "f16")
_GROUPS, _COLUMNS = (32, 64, 128, 256), 16


@dataclass(frozen=True)
class _Quantization:
    """PyTorch's numbers for the data and for the result."""

    scale: float
    point: int
    out_scale: float
    out_point: int


def check_no_quantization(op: Op) -> None:
    """Raises `UnsupportedError` for scales and zero points."""
    if op.attributes.scales or op.attributes.zero_points:
        raise UnsupportedError(f"PyTorch's side has no {op.kind} of such types with scales")


def quantized_convolution(torch: Any, op: Convolution, window: Mapping[str, list[int]]) -> Peers:
    """Of u8 by s8, forward, with prepacked weights."""
    if op.dtype_of("src").name != "u8" or op.dtype_of("weights").name != "s8":
        raise UnsupportedError("PyTorch's int8 convolution is of u8 by s8")
    if not op.direction.is_forward:
        raise UnsupportedError("PyTorch has no gradient of int8")
    p = op.problem
    if p.ndims == 3:
        raise UnsupportedError("PyTorch has no int8 convolution in 3D")
    numbers, factors, zeros = _numbers(op), _factors(torch, op, p.oc), _zeros(torch, p.oc)
    kernel = p.kernel if p.ndims > 1 else (1, *p.kernel)
    src = image(torch, op.argument("src"))
    weights = random_tensor(torch, (p.oc, p.ic // p.g, *kernel), op.dtype_of("weights"))
    bias = None if op.attributes.bias is None else torch.rand(p.oc)
    around = (window["stride"], window["padding"], window["dilation"], p.g)
    packed = torch.ops.onednn.qconv_prepack(
        weights, factors, numbers.scale, numbers.point, *around, list(src.shape)
    )
    run = torch.ops.onednn.qconv2d_pointwise
    front = (src, numbers.scale, numbers.point, packed, factors, zeros, bias, *around)
    return _ways(
        torch, op, numbers, lambda *end: run(*front, *end), image(torch, op.argument("dst"))
    )


def quantized_linear(torch: Any, op: Matmul, src: Any, weights: Any) -> Peers:
    """Of u8 by s8, with prepacked weights."""
    n = weights.shape[1]
    numbers, factors, zeros = _numbers(op), _factors(torch, op, n), _zeros(torch, n)
    bias = None if op.attributes.bias is None else torch.rand(n)
    packed = torch.ops.onednn.qlinear_prepack(weights.t().contiguous(), list(src.shape))
    run = torch.ops.onednn.qlinear_pointwise
    front = (src, numbers.scale, numbers.point, packed, factors, zeros, bias)
    dst = random_tensor(torch, op.problem.dst_shape, op.dtype_of("dst"))
    return _ways(torch, op, numbers, lambda *end: run(*front, *end), dst)


def grouped_linear(torch: Any, op: Matmul, src: Any) -> Peers:
    """By prepacked 4-bit weights with a scale and a zero point for each group of K."""
    p, types = op.problem, tuple(op.dtype_of(name).name for name in ("src", "weights", "dst"))
    attributes = op.attributes
    scale, point = attributes.scale("weights"), attributes.zero_point("weights")
    groups = (e.group for e in (scale, point) if e is not None and e.group is not None)
    group = next(groups, None)
    scaled = {factor.tensor for factor in attributes.scales}
    others = scaled | {factor.tensor for factor in attributes.zero_points} != {"weights"}
    if types[1] not in ("u4", "s4") or types[0] != types[2] or types[0] not in _GROUPED:
        raise UnsupportedError(
            f"PyTorch multiplies no {types[0]} by {types[1]} with groups to {types[2]}"
        )
    if p.batch or others or attributes.bias is not None or attributes.post_ops:
        raise UnsupportedError("PyTorch's product with groups has no batch and no epilogue")
    if group not in _GROUPS or p.n % _COLUMNS:
        raise UnsupportedError(
            f"PyTorch's groups have {' or '.join(map(str, _GROUPS))} elements, of columns in whole "
            f"blocks of {_COLUMNS}"
        )
    weights = torch.randint(0, 16, (p.n, p.k), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(weights, 1)
    # Pairs of a scale and a number that is added to the product.
    factors = torch.rand((p.k // group, p.n, 2)).to(src.dtype)
    run = torch.ops.aten._weight_int4pack_mm_for_cpu
    return {"torch int4": [lambda: run(src, packed, group, factors)]}


def _numbers(op: Op) -> _Quantization:
    """The numbers of the op, or arbitrary ones for those that a call passes."""
    attributes = op.attributes
    for scale in attributes.scales:
        if scale.tensor != "weights" and scale.policy.name != "common":
            raise UnsupportedError(f"PyTorch has one scale for all of {scale.tensor}")
    if attributes.zero_point("weights") is not None:
        raise UnsupportedError("PyTorch's int8 weights have no zero point")
    if attributes.zero_point("dst") is not None and op.dtype_of("dst").is_float:
        raise UnsupportedError("PyTorch has no zero point of floats")
    data, out = _scale(op, "src"), _scale(op, "dst")
    return _Quantization(data, _point(op, "src"), out, _point(op, "dst"))


def _scale(op: Op, tensor: str) -> float:
    scale = op.attributes.scale(tensor)
    return 1.0 if scale is None else scale.value or _SCALE


def _point(op: Op, tensor: str) -> int:
    point = op.attributes.zero_point(tensor)
    if point is None:
        return 0
    if point.policy.name != "common":
        raise UnsupportedError(f"PyTorch has one zero point for all of {tensor}")
    return _POINT if point.value is None else point.value


def _factors(torch: Any, op: Op, channels: int) -> Any:
    """The scales of the weights, one for each channel of the result."""
    scale = op.attributes.scale("weights")
    if scale is None:
        return torch.ones(channels)
    if scale.policy.name not in ("common", "per_oc"):
        raise UnsupportedError("PyTorch has a scale of the weights for each channel of the result")
    return torch.full((channels,), scale.value or _SCALE)


def _zeros(torch: Any, channels: int) -> Any:
    return torch.zeros(channels, dtype=torch.int64)


def _ways(
    torch: Any, op: Op, numbers: _Quantization, product: Callable[..., Any], dst: Any
) -> Peers:
    """oneDNN's product in one call, and a product in f32 followed by a chain of calls."""
    post_ops, type_ = op.attributes.post_ops, op.dtype_of("dst")
    if type_.name not in ("f32", "bf16", "u8", "s8"):
        raise UnsupportedError(f"PyTorch's int8 products have no results of {type_}")
    fused = fused_unary(post_ops)
    calls = []
    if fused is not None and (type_.is_integer or numbers.out_scale == 1):
        end = (numbers.out_scale, numbers.out_point, dst.dtype, *fused)
        calls.append(lambda: product(*end))
    if not post_ops and calls:
        return {"oneDNN": calls}
    try:
        steps = [*steps_of(torch, op, dst), *_stored(torch, numbers, dst.dtype)]
    except UnsupportedError:
        if not calls:
            raise
        return {"oneDNN": calls}
    wide = chained(lambda: product(1.0, 0, torch.float32, "none", [], ""), steps)
    return {"oneDNN": [*calls, wide]} if calls else {CHAIN: [wide]}


def _stored(torch: Any, numbers: _Quantization, dtype: Any) -> list[ChainStep]:
    """The conversion from f32 to the result's type."""
    steps: list[ChainStep] = []
    if numbers.out_scale != 1:
        steps.append(lambda x: x.div_(numbers.out_scale))
    if not dtype.is_floating_point:
        # Numbers out of the type's range would wrap.
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        steps.append(lambda x: x.round_().add_(numbers.out_point).clamp_(low, high))
    if dtype != torch.float32:
        steps.append(lambda x: x.to(dtype))
    return steps

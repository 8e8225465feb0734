"""Convolutions and matmuls in PyTorch, which leaves them to oneDNN, and matmuls to MKL as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.bench.torch_tensors import (
    Call,
    Peers,
    flat_shape,
    image,
    is_plain,
    random_tensor,
    strided,
    window_of,
)
from tilewright.ops.convolution import Convolution
from tilewright.ops.matmul import Matmul
from tilewright.problems import Direction, Unary


def convolution_peers(torch: Any, op: Convolution) -> Peers:
    window = window_of(op.problem)
    supported = {"f32", "bf16"} | (
        {"f16"} if torch.ops.mkldnn._is_mkldnn_fp16_supported() else set()
    )
    types = {op.dtype_of(name).name for name in ("src", "weights")}
    if window is None:
        return {}
    if types <= {"u8", "s8"}:
        return _quantized_convolution(torch, op, window)
    post_ops = op.attributes.post_ops
    relu = post_ops == (Unary("relu"),)
    if not (types <= supported) or (post_ops and not relu):
        return {}
    if op.direction.is_forward:
        return {"oneDNN": _forward(torch, op, window, relu)}
    return {"oneDNN": _backward(torch, op, window)} if not op.attributes.tensors else {}


def _weights(torch: Any, op: Convolution) -> Any:
    p = op.problem
    kernel = p.kernel if p.ndims > 1 else flat_shape(p.kernel)
    return random_tensor(torch, (p.oc, p.ic // p.g, *kernel), op.dtype_of("weights"))


def _forward(
    torch: Any, op: Convolution, window: Mapping[str, list[int]], relu: bool
) -> list[Call]:
    src, weights, groups = image(torch, op.argument("src")), _weights(torch, op), op.problem.g
    stride, padding, dilation = window["stride"], window["padding"], window["dilation"]
    bias = None
    if op.attributes.bias is not None:
        bias = random_tensor(torch, (op.problem.oc,), op.dtype_of("src"))
    reorder = (
        torch._C._nn.mkldnn_reorder_conv3d_weight
        if op.problem.ndims == 3
        else torch._C._nn.mkldnn_reorder_conv2d_weight
    )
    size = list(src.shape)
    packed = reorder(weights.to_mkldnn(), padding, stride, dilation, groups, size)
    run = torch.ops.mkldnn._convolution_pointwise
    after = "relu" if relu else "none"
    plain = is_plain(op.argument("dst"))

    def prepacked() -> Any:
        made = run(src, packed, bias, padding, stride, dilation, groups, after, [], "")
        # With packed weights it always gives channels-last results.
        return made.contiguous() if plain else made

    def unpacked() -> Any:
        made = torch.convolution(
            src, weights, bias, stride, padding, dilation, False, [0] * len(stride), groups
        )
        return torch.relu_(made) if relu else made

    return [prepacked, unpacked] if plain else [prepacked]


def _backward(torch: Any, op: Convolution, window: Mapping[str, list[int]]) -> list[Call]:
    src, dst = image(torch, op.argument("src")), image(torch, op.argument("dst"))
    weights, groups = _weights(torch, op), op.problem.g
    stride, padding, dilation = window["stride"], window["padding"], window["dilation"]
    by_data = op.direction is Direction.BWD_D
    wanted = [by_data, not by_data, op.direction is Direction.BWD_WB]
    bias = [op.problem.oc] if wanted[2] else None
    zero = [0] * len(stride)
    run = torch.ops.aten.convolution_backward

    def gradient(weights: Any) -> Call:
        return lambda: run(
            dst, src, weights, bias, stride, padding, dilation, False, zero, groups, wanted
        )

    calls = [gradient(weights)]
    if len(stride) == 2:
        calls.append(gradient(weights.to(memory_format=torch.channels_last)))
    if by_data and len(stride) == 2:
        calls += _transposed(torch, op, dst, weights, window)
    return calls


def _transposed(
    torch: Any, op: Convolution, dst: Any, weights: Any, window: Mapping[str, list[int]]
) -> list[Call]:
    """The gradient by data as a transposed convolution, whose weights can be packed."""
    stride, padding, dilation = window["stride"], window["padding"], window["dilation"]
    p = op.problem
    windows = p.windows if p.ndims > 1 else (None, *p.windows)
    rest = [0 if w is None else w.pad_l - w.pad_r for w in windows]
    if any(not 0 <= r < s for r, s in zip(rest, stride, strict=True)):
        return []
    if p.g > 1:
        return []
    prepare = torch.ops.mkldnn._reorder_convolution_transpose_weight
    packed = prepare(weights, padding, rest, stride, dilation, p.g, list(dst.shape))
    run = torch.ops.mkldnn._convolution_transpose_pointwise
    plain = is_plain(op.argument("src"))

    def transposed() -> Any:
        made = run(dst, packed, None, padding, rest, stride, dilation, p.g, "none", [], "")
        return made.contiguous() if plain else made

    return [transposed]


def _quantized_convolution(torch: Any, op: Convolution, window: Mapping[str, list[int]]) -> Peers:
    result = op.dtype_of("dst").name
    if (
        op.dtype_of("src").name != "u8"
        or not op.direction.is_forward
        or op.problem.ndims == 3
        or op.attributes.post_ops
        or result not in ("f32", "bf16", "u8", "s8")
    ):
        return {}
    stride, padding, dilation = window["stride"], window["padding"], window["dilation"]
    p = op.problem
    src, weights = image(torch, op.argument("src")), _weights(torch, op)
    bias = None
    if op.attributes.bias is not None:
        bias = torch.rand(p.oc)
    ones, zeros = torch.ones(p.oc), torch.zeros(p.oc, dtype=torch.int64)
    packed = torch.ops.onednn.qconv_prepack(
        weights, ones, 1.0, 0, stride, padding, dilation, p.g, list(src.shape)
    )
    run = torch.ops.onednn.qconv2d_pointwise
    type_ = getattr(torch, op.dtype_of("dst").numpy_name)
    none: list[Any] = []
    around = (stride, padding, dilation, p.g, 1.0, 0, type_, "none", none, "")
    return {"oneDNN": [lambda: run(src, 1.0, 0, packed, ones, zeros, bias, *around)]}


def matmul_peers(torch: Any, op: Matmul) -> Peers:
    p = op.problem
    types = {op.dtype_of(name) for name in ("src", "weights", "dst")}
    if op.attributes.post_ops or op.attributes.bias is not None:
        return {}
    src = strided(torch, op.argument("src"))
    weights = strided(torch, op.argument("weights"))
    if src is None or weights is None:
        return {}
    names = tuple(op.dtype_of(name).name for name in ("src", "weights", "dst"))
    if names == ("u8", "s8", "f32") and not p.batch:
        return {"oneDNN": [_quantized_linear(torch, src, weights)]}
    if len(types) != 1 or names[0] not in ("f32", "f64", "bf16", "f16"):
        return {}
    out = torch.empty(p.dst_shape, dtype=src.dtype)
    if p.batch:
        return {"torch.matmul": [lambda: torch.matmul(src, weights, out=out)]}
    found: dict[str, Sequence[Call]] = {"torch.mm": [lambda: torch.mm(src, weights, out=out)]}
    if names[0] in ("f32", "bf16"):
        prepare = torch.ops.mkldnn._reorder_linear_weight
        packed = prepare(weights.t().contiguous(), p.m)
        run = torch.ops.mkldnn._linear_pointwise
        found = {"oneDNN": [lambda: run(src, packed, None, "none", [], "")]} | found
    return found


def _quantized_linear(torch: Any, src: Any, weights: Any) -> Call:
    n = weights.shape[1]
    ones, zeros = torch.ones(n), torch.zeros(n, dtype=torch.int64)
    packed = torch.ops.onednn.qlinear_prepack(weights.t().contiguous(), list(src.shape))
    run = torch.ops.onednn.qlinear_pointwise
    none: list[Any] = []
    around = (1.0, 0, torch.float32, "none", none, "")
    return lambda: run(src, 1.0, 0, packed, ones, zeros, None, *around)

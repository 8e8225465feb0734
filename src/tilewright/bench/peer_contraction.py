"""Convolutions and matmuls in PyTorch, which calls oneDNN for them, and MKL for matmuls.

Epilogues that oneDNN does not fuse are chains of calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.bench.peer_chain import ChainStep, chained, fused_unary, steps_of
from tilewright.bench.peer_quantized import (
    CHAIN,
    check_no_quantization,
    grouped_linear,
    quantized_convolution,
    quantized_linear,
)
from tilewright.bench.torch_tensors import (
    Call,
    Peers,
    channels_last,
    flat_shape,
    image,
    is_plain,
    random_tensor,
    strided,
    window_of,
)
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.group_factors import with_groups
from tilewright.ops.matmul import Matmul
from tilewright.problems import Direction, PostOp, Sum, Unary


def convolution_peers(torch: Any, op: Convolution) -> Peers:
    """oneDNN's convolutions through PyTorch; see `peer.find_peers`."""
    window = window_of(op.problem)
    supported = {"f32", "bf16"} | (
        {"f16"} if torch.ops.mkldnn._is_mkldnn_fp16_supported() else set()
    )
    types = {op.dtype_of(name).name for name in ("src", "weights")}
    if window is None:
        raise UnsupportedError("PyTorch pads both sides of a dim alike")
    if types <= {"u8", "s8"}:
        return quantized_convolution(torch, op, window)
    if not types <= supported:
        raise UnsupportedError(f"PyTorch leaves no convolution of {_listed(types)} to oneDNN here")
    check_no_quantization(op)
    if op.direction.is_forward:
        return _forward(torch, op, window)
    if op.attributes.tensors or op.attributes.post_ops:
        raise UnsupportedError("PyTorch's side has no gradient with an epilogue")
    return {"oneDNN": _backward(torch, op, window)}


def _listed(types: set[str]) -> str:
    return " and ".join(sorted(types))


def weights_of(torch: Any, op: Convolution) -> Any:
    """Weights in PyTorch's shape, with groups in the first dim."""
    p = op.problem
    kernel = p.kernel if p.ndims > 1 else flat_shape(p.kernel)
    return random_tensor(torch, (p.oc, p.ic // p.g, *kernel), op.dtype_of("weights"))


def _forward(torch: Any, op: Convolution, window: Mapping[str, list[int]]) -> Peers:
    """With packed weights and a fused epilogue, or followed by a chain of calls."""
    src, weights, groups = image(torch, op.argument("src")), weights_of(torch, op), op.problem.g
    stride, padding, dilation = window["stride"], window["padding"], window["dilation"]
    bias = None
    if op.attributes.bias is not None:
        bias = random_tensor(torch, (op.problem.oc,), op.dtype_of("src"))
    reorder = (
        torch._C._nn.mkldnn_reorder_conv3d_weight
        if op.problem.ndims == 3
        else torch._C._nn.mkldnn_reorder_conv2d_weight
    )
    packed = reorder(weights.to_mkldnn(), padding, stride, dilation, groups, list(src.shape))
    around = (padding, stride, dilation, groups)
    dst = image(torch, op.argument("dst"))
    plain = is_plain(op.argument("dst"))
    # With packed weights the results are always channels-last.
    conversions: list[ChainStep] = [lambda result: result.contiguous()] if plain else []
    if dst.dtype != src.dtype:
        conversions.append(lambda result: result.to(dst.dtype))
    run = torch.ops.mkldnn._convolution_pointwise

    def prepacked(epilogue: str, numbers: list[float], algorithm: str) -> Call:
        return lambda: run(src, packed, bias, *around, epilogue, numbers, algorithm)

    def unpacked() -> Any:
        return torch.convolution(
            src, weights, bias, stride, padding, dilation, False, [0] * len(stride), groups
        )

    post_ops = op.attributes.post_ops
    fused = fused_unary(post_ops)
    calls: list[Call] = []
    if fused is not None:
        calls.append(chained(prepacked(*fused), conversions))
    elif (fused_sum := _fused_sum(post_ops)) is not None and dst.dtype == src.dtype:
        (epilogue,) = fused_sum
        add = torch.ops.mkldnn._convolution_pointwise_.binary
        old = dst.clone(memory_format=channels_last(torch, dst.dim()))
        calls.append(
            chained(
                lambda: add(old, src, packed, bias, *around, "add", 1.0, epilogue, [], ""),
                conversions,
            )
        )
    try:
        steps = steps_of(torch, op, dst)
    except UnsupportedError:
        if not calls:
            raise
        return {"oneDNN": calls}
    chains = [chained(prepacked("none", [], ""), [*conversions, *steps])] if post_ops else []
    if plain:
        chains.append(chained(unpacked, [*conversions, *steps]))
    if calls:
        return {"oneDNN": [*calls, *chains]}
    return {CHAIN: chains}


def _fused_sum(post_ops: Sequence[PostOp]) -> tuple[str | None] | None:
    """The epilogue after a sum with the old result ("relu", or None for none), in a tuple; None if
    it is not a sum that oneDNN's operator in PyTorch has."""
    match post_ops:
        case (Sum(scale=1.0, zero_point=0),):
            return (None,)
        case (Sum(scale=1.0, zero_point=0), Unary("relu", 0.0, 0.0, 1.0)):
            return ("relu",)
    return None


def _backward(torch: Any, op: Convolution, window: Mapping[str, list[int]]) -> list[Call]:
    src, dst = image(torch, op.argument("src")), image(torch, op.argument("dst"))
    weights, groups = weights_of(torch, op), op.problem.g
    stride, padding, dilation = window["stride"], window["padding"], window["dilation"]
    by_data = op.direction is Direction.BWD_D
    requested = [by_data, not by_data, op.direction is Direction.BWD_WB]
    bias = [op.problem.oc] if requested[2] else None
    zero = [0] * len(stride)
    run = torch.ops.aten.convolution_backward

    def gradient(weights: Any) -> Call:
        return lambda: run(
            dst, src, weights, bias, stride, padding, dilation, False, zero, groups, requested
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
    output_padding = [0 if w is None else w.pad_l - w.pad_r for w in windows]
    if any(not 0 <= r < s for r, s in zip(output_padding, stride, strict=True)):
        return []
    if p.g > 1:
        return []
    prepare = torch.ops.mkldnn._reorder_convolution_transpose_weight
    packed = prepare(weights, padding, output_padding, stride, dilation, p.g, list(dst.shape))
    run = torch.ops.mkldnn._convolution_transpose_pointwise
    plain = is_plain(op.argument("src"))

    def transposed() -> Any:
        result = run(
            dst, packed, None, padding, output_padding, stride, dilation, p.g, "none", [], ""
        )
        return result.contiguous() if plain else result

    return [transposed]


def matmul_peers(torch: Any, op: Matmul) -> Peers:
    """oneDNN's and MKL's matmuls through PyTorch; see `peer.find_peers`."""
    p = op.problem
    src = strided(torch, op.argument("src"))
    weights = strided(torch, op.argument("weights"))
    dst = strided(torch, op.argument("dst"))
    if src is None or weights is None or dst is None:
        raise UnsupportedError("PyTorch has no blocked layouts")
    if with_groups(op.attributes):
        return grouped_linear(torch, op, src)
    names = tuple(op.dtype_of(name).name for name in ("src", "weights", "dst"))
    if names[:2] == ("u8", "s8"):
        if p.batch:
            raise UnsupportedError("PyTorch has no batches of int8 matrices")
        return quantized_linear(torch, op, src, weights)
    if len(set(names)) != 1 or names[0] not in ("f32", "f64", "bf16", "f16"):
        raise UnsupportedError(f"PyTorch multiplies no {names[0]} by {names[1]} to {names[2]}")
    check_no_quantization(op)
    bias = None
    if op.attributes.bias is not None:
        bias = random_tensor(torch, (p.n,), op.dtype_of("dst"))
    out = torch.empty(p.dst_shape, dtype=src.dtype)
    steps = steps_of(torch, op, dst)
    if bias is not None:
        steps = [lambda x: x.add_(bias), *steps]
    tail = " + torch" if steps else ""
    if p.batch:
        call = chained(lambda: torch.matmul(src, weights, out=out), steps)
        return {f"torch.matmul{tail}": [call]}
    calls: dict[str, Sequence[Call]] = {
        f"torch.mm{tail}": [chained(lambda: torch.mm(src, weights, out=out), steps)]
    }
    if names[0] in ("f32", "bf16"):
        calls = _packed_linear(torch, op, src, weights, bias, dst) | calls
    return calls


def _packed_linear(
    torch: Any, op: Matmul, src: Any, weights: Any, bias: Any, dst: Any
) -> dict[str, Sequence[Call]]:
    """With prepacked weights, and a fused epilogue if oneDNN has it."""
    prepare = torch.ops.mkldnn._reorder_linear_weight
    packed = prepare(weights.t().contiguous(), op.problem.m)
    run = torch.ops.mkldnn._linear_pointwise
    fused = fused_unary(op.attributes.post_ops)
    if fused is not None:
        return {"oneDNN": [lambda: run(src, packed, bias, *fused)]}
    steps = steps_of(torch, op, dst)
    return {CHAIN: [chained(lambda: run(src, packed, bias, "none", [], ""), steps)]}

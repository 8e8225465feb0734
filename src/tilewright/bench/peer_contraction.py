"""Convolutions and matmuls in PyTorch, which leaves them to oneDNN, and matmuls to MKL as well.

What oneDNN does not fuse follows as a chain of calls.
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
from tilewright.ops.group_factors import has_groups
from tilewright.ops.matmul import Matmul
from tilewright.problems import Direction, PostOp, Sum, Unary


def convolution_peers(torch: Any, op: Convolution) -> Peers:
    """oneDNN's ways through PyTorch; see `peer.find_peers`."""
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
    """Weights as PyTorch has them, groups in the first dim."""
    p = op.problem
    kernel = p.kernel if p.ndims > 1 else flat_shape(p.kernel)
    return random_tensor(torch, (p.oc, p.ic // p.g, *kernel), op.dtype_of("weights"))


def _forward(torch: Any, op: Convolution, window: Mapping[str, list[int]]) -> Peers:
    """With packed weights and what oneDNN fuses, or followed by a chain of calls."""
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
    # With packed weights it always gives channels-last results.
    behind: list[ChainStep] = [lambda made: made.contiguous()] if plain else []
    if dst.dtype != src.dtype:
        behind.append(lambda made: made.to(dst.dtype))
    run = torch.ops.mkldnn._convolution_pointwise

    def prepacked(after: str, numbers: list[float], how: str) -> Call:
        return lambda: run(src, packed, bias, *around, after, numbers, how)

    def unpacked() -> Any:
        return torch.convolution(
            src, weights, bias, stride, padding, dilation, False, [0] * len(stride), groups
        )

    post_ops = op.attributes.post_ops
    fused = fused_unary(post_ops)
    ways: list[Call] = []
    if fused is not None:
        ways.append(chained(prepacked(*fused), behind))
    elif (added := _fused_sum(post_ops)) is not None and dst.dtype == src.dtype:
        (after,) = added
        add = torch.ops.mkldnn._convolution_pointwise_.binary
        old = dst.clone(memory_format=channels_last(torch, dst.dim()))
        ways.append(
            chained(lambda: add(old, src, packed, bias, *around, "add", 1.0, after, [], ""), behind)
        )
    try:
        steps = steps_of(torch, op, dst)
    except UnsupportedError:
        if not ways:
            raise
        return {"oneDNN": ways}
    chains = [chained(prepacked("none", [], ""), [*behind, *steps])] if post_ops else []
    if plain:
        chains.append(chained(unpacked, [*behind, *steps]))
    if ways:
        return {"oneDNN": [*ways, *chains]}
    return {CHAIN: chains}


def _fused_sum(post_ops: Sequence[PostOp]) -> tuple[str | None] | None:
    """What follows a sum with the old result ("relu", or None for nothing); None where it is not a
    sum that oneDNN's operator in PyTorch has."""
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


def matmul_peers(torch: Any, op: Matmul) -> Peers:
    """oneDNN's and MKL's ways through PyTorch; see `peer.find_peers`."""
    p = op.problem
    src = strided(torch, op.argument("src"))
    weights = strided(torch, op.argument("weights"))
    dst = strided(torch, op.argument("dst"))
    if src is None or weights is None or dst is None:
        raise UnsupportedError("PyTorch has no blocked layouts")
    if has_groups(op.attributes):
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
    found: dict[str, Sequence[Call]] = {
        f"torch.mm{tail}": [chained(lambda: torch.mm(src, weights, out=out), steps)]
    }
    if names[0] in ("f32", "bf16"):
        found = _packed_linear(torch, op, src, weights, bias, dst) | found
    return found


def _packed_linear(
    torch: Any, op: Matmul, src: Any, weights: Any, bias: Any, dst: Any
) -> dict[str, Sequence[Call]]:
    """With weights packed before, and what oneDNN fuses."""
    prepare = torch.ops.mkldnn._reorder_linear_weight
    packed = prepare(weights.t().contiguous(), op.problem.m)
    run = torch.ops.mkldnn._linear_pointwise
    fused = fused_unary(op.attributes.post_ops)
    if fused is not None:
        return {"oneDNN": [lambda: run(src, packed, bias, *fused)]}
    steps = steps_of(torch, op, dst)
    return {CHAIN: [chained(lambda: run(src, packed, bias, "none", [], ""), steps)]}

"""The epilogue of a product in PyTorch: a chain of calls, as users write it without fusion.

A call overwrites its argument if PyTorch allows it, as careful users would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.bench.torch_tensors import flat_shape, random_tensor
from tilewright.errors import UnsupportedError
from tilewright.ops.op import Op
from tilewright.problems import (
    BINARY_RECORDS,
    Binary,
    PostOp,
    Prelu,
    Sum,
    Unary,
)

# From a tensor to a tensor, perhaps the same.
ChainStep = Callable[[Any], Any]


def chained(call: Callable[[], Any], steps: Sequence[ChainStep]) -> Callable[[], Any]:
    """``call`` and then the steps; ``call`` itself if there are none."""
    if not steps:
        return call

    def run() -> Any:
        value = call()
        for step in steps:
            value = step(value)
        return value

    return run


def steps_of(torch: Any, op: Op, dst: Any) -> list[ChainStep]:
    """The post-ops of ``op`` on a result like ``dst``, which has the old values for ``sum``.

    Raises `UnsupportedError` for post-ops that PyTorch lacks.
    """
    attributes = op.attributes
    return [
        step
        for position, post_op in enumerate(attributes.post_ops)
        for step in _steps(torch, op, post_op, position, dst)
    ]


def _steps(torch: Any, op: Op, post_op: PostOp, position: int, dst: Any) -> list[ChainStep]:
    match post_op:
        case Unary():
            function = post_op.peer(torch)
            if function is None:
                raise UnsupportedError(f"PyTorch has no {post_op.describe()}")
            return [lambda x: function(x, x)]
        case Sum():
            if post_op.zero_point:
                raise UnsupportedError("PyTorch has no sum with a zero point")
            return [lambda x: x.add_(dst, alpha=post_op.scale)]
        case Binary():
            operand = _operand(torch, op, position, dst)
            record = BINARY_RECORDS[post_op.function]
            run = getattr(torch, record.peer)
            if record.compares:
                return [lambda x: run(x, operand).to(x.dtype)]
            return [lambda x: run(x, operand, out=x)]
        case Prelu():
            weights = _operand(torch, op, position, dst)
            return [lambda x: torch.where(x > 0, x, x * weights)]
    raise UnsupportedError(f"PyTorch's side has no {post_op.describe()}")


def _operand(torch: Any, op: Op, position: int, dst: Any) -> Any:
    """The tensor of a post-op, with one more dim if ``dst`` has it."""
    argument = op.argument(op.attributes.name_of(position))
    shape = argument.shape if len(argument.shape) == dst.dim() else flat_shape(argument.shape)
    tensor = random_tensor(torch, shape, argument.dtype)
    if tensor.shape != dst.shape:
        return tensor
    # In the result's memory format.
    return torch.empty_like(dst, dtype=tensor.dtype).copy_(tensor)


def _hard(function: Unary) -> bool:
    """Whether it is PyTorch's function: x / 6 + 1 / 2, clipped."""
    return abs(6 * function.alpha - 1) < 1e-6 and function.beta == 0.5


def fused_unary(post_ops: Sequence[PostOp]) -> tuple[str, list[float], str] | None:
    """The name, numbers and algorithm of the only post-op in oneDNN's operators in PyTorch; None if
    they lack it. (Without a post-op, its name is "none".)"""
    if not post_ops:
        return "none", [], ""
    if len(post_ops) > 1 or not isinstance(post_ops[0], Unary) or post_ops[0].scale != 1:
        return None
    alpha, beta = post_ops[0].alpha, post_ops[0].beta
    match post_ops[0].function:
        case "relu":
            return ("leaky_relu", [alpha], "") if alpha else ("relu", [], "")
        case "clip" | "clip_v2":
            return "hardtanh", [alpha, beta], ""
        case "gelu_erf":
            return "gelu", [], "none"
        case "gelu_tanh":
            return "gelu", [], "tanh"
        case "logistic":
            return "sigmoid", [], ""
        case "tanh":
            return "tanh", [], ""
        case "swish" if alpha == 1:
            return "swish", [], ""
        case "hardsigmoid" | "hardswish" as name if _hard(post_ops[0]):
            return name, [], ""
    return None

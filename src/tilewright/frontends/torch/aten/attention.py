"""Attention, and its gradients."""

from __future__ import annotations

import math
from math import prod

from tilewright.dtypes import boolean
from tilewright.errors import ProblemError
from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.graph.library import library
from tilewright.ir.expr import Expr, StandIn, cast, const, select
from tilewright.problems import Direction
from tilewright.problems.library import AttentionProblem
from tilewright.tensor.contractions import accumulator_for, dot_general
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nn import norms
from tilewright.tensor.places import axis
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to, reshape


@aten("scaled_dot_product_attention.default")
def attention(
    at: Place,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    results = _attention(at, (query, key, value), attn_mask, dropout_p, is_causal, scale)
    return results[0]


@aten("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    at: Place,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    return _attention(at, (query, key, value), attn_mask, dropout_p, is_causal, scale)


def _attention(
    at: Place,
    factors: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor | None]:
    """The result, and, where something asks for it, the logarithms of sums."""
    if dropout:
        refuse("attention that drops weights at random is PyTorch's")
    q, k, v = map(_of_heads, factors)
    if any(isinstance(size, StandIn) for x in (q, k, v) for size in x.shape):
        return reshape(_by_products(at, (q, k, v), mask, is_causal, scale), at.shape), None
    tensors = {"queries": q, "keys": k, "values": v}
    problem = _problem(tensors, mask, is_causal, scale, "L" if 1 in at.used else "")
    results = library(at.builder, problem, types={"dst": at.dtype}, tensors=tensors)
    return reshape(results["dst"], at.shape), results.get("logarithms")


def _by_products(
    at: Place,
    factors: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """Attention where calls pass sizes, as two products and a softmax."""
    q, k, v = factors
    if 1 in at.used or q.shape[1] != k.shape[1]:
        refuse("gradients of attention, and shared heads, need sizes that are numbers")
    sums = accumulator_for(q.dtype)
    scores = dot_general(q, k, ((0, 1), (0, 1)), ((3,), (3,)), dtype=sums)
    factor = scale if scale is not None else 1 / math.sqrt(q.shape[3])
    added = [] if mask is None else [broadcast_to(mask, scores.shape)]

    def scaled(score: Expr, *more: Expr) -> Expr:
        score = score * const(factor, sums)
        lowest = const(-math.inf, sums)
        if is_causal:
            score = select(axis(3) <= axis(2), score, lowest)
        for expr in more:
            if expr.type is boolean:
                score = select(expr, score, lowest)
            else:
                score = score + cast(sums, expr)
        return score

    if mask is not None and mask.dtype is boolean:
        # A query without keys gives 0.
        refuse("attention with a mask of bools needs sizes that are numbers")
    weights = norms.softmax(elementwise(scaled, scores, *added, name="scores"), 3, q.dtype)
    return dot_general(weights, v, ((0, 1), (0, 1)), ((3,), (2,)), dtype=at.dtype)


def _problem(
    tensors: dict[str, Tensor],
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    flags: str,
) -> AttentionProblem:
    """What is asked for; a mask becomes one of the tensors that are ``tensors``."""
    algorithm, shape = "causal" if is_causal else "full", tuple[int, ...]()
    q, k, v = (tensors[name] for name in ("queries", "keys", "values"))
    if mask is not None:
        shape = (1,) * (4 - mask.rank) + mask.shape
        algorithm = "mask" if mask.dtype is boolean else "bias"
        if mask.dtype is not boolean:
            mask = convert(mask, accumulator_for(q.dtype))
        tensors[algorithm] = reshape(mask, shape)
    try:
        return AttentionProblem(
            q.shape, k.shape, v.shape[3:], shape, algorithm, scale=scale or 0.0, flags=flags
        )
    except ProblemError as error:
        refuse(f"attention of these shapes is PyTorch's: {error.what}")


@aten("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_gradients(
    at: Place,
    back: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logarithms: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    if dropout_p:
        refuse("attention that drops weights at random is PyTorch's")
    q, k, v, o, g = map(_of_heads, (query, key, value, out, back))
    tensors = {"queries": q, "keys": k, "values": v}
    problem = _problem(tensors, attn_mask, is_causal, scale, "")
    tensors |= {"dst": o, "diff_dst": g, "logarithms": reshape(logarithms, o.shape[:3])}
    results = library(at.builder, problem, Direction.BWD_D, tensors=tensors)
    q, k, v = (results[f"diff_{name}"] for name in ("queries", "keys", "values"))
    return reshape(q, query.shape), reshape(k, key.shape), reshape(v, value.shape)


def _of_heads(x: Tensor) -> Tensor:
    """``x`` (.., heads, length, size) with one dim in front."""
    if x.rank < 3:
        refuse(f"attention of {x.rank} dims is PyTorch's")
    return reshape(x, (prod(x.shape[:-3]), *x.shape[-3:]))

"""What users call for attention."""

from __future__ import annotations

from tilewright.calls import checked_call
from tilewright.dtypes import f32
from tilewright.ops.library import LibraryOp, Types, asked, op_of, switch
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Direction
from tilewright.problems.library import AttentionProblem


@checked_call
def attention(
    problem: str | AttentionProblem,
    algorithm: str = "full",
    /,
    *,
    scale: float | None = None,
    cap: float | None = None,
    window: int | None = None,
    logarithms: bool = False,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Scaled dot-product attention, ``attention("1x12x128x64:1x12x128x64", "causal")``: of queries
    (batch, heads, length, size), and of keys, with their own heads and length.

        scores = scale * queries @ keys^T
        dst = softmax(scores) @ values

    Heads of keys and values may be fewer: as many neighbours among those of the queries share one.
    Two more lists may follow, the size of values and the shape of the mask: ``":64:1x1x128x128"``.
    ``algorithm`` says which keys count: ``full``: all; ``causal``: those up to the query's place;
    ``lower_right``: the same, counted from the end of both, as with keys from a cache; ``mask``:
    where the argument ``mask`` (bool) is true; ``bias``: all, with the argument ``bias`` added to
    the scores, in f32, -inf for those that do not count. With ``window``, of these only the last
    so many do. ``scale`` is one over the root of the size by default. With ``cap``, scores are
    ``cap * tanh(score / cap)`` before they are masked. A query without keys gives 0. With
    ``logarithms``, a further result has those of the sums of exponentials of scores, in f32: what
    gradients are made of: ``bwd_data`` takes them with ``dst`` and ``diff_dst``, and gives
    ``diff_queries``, ``diff_keys``, ``diff_values``.

    Scores are computed in f32 (f64, if types are), their exponentials rounded to the type of the
    values. On processors, the scores of some rows are there at a time. Arguments: ``queries``,
    ``keys``, ``values``, ``mask`` or ``bias``, ``dst``.

    Raises `ProblemError` or `UnsupportedError`. Sources: Vaswani et al., "Attention Is All You
    Need", 2017; PyTorch's documentation, `scaled_dot_product_attention`.
    """
    flags = "L" if switch(logarithms, "logarithms") else ""
    attention_problem = asked(
        problem,
        AttentionProblem,
        algorithm=algorithm,
        scale=scale,
        cap=cap,
        window=window,
        flags=flags,
    )
    return op_of(attention_problem, direction, dtype, src=src, dst=dst)

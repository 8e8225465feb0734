"""What users call for normalizations."""

from __future__ import annotations

from tilewright.calls import checked_call
from tilewright.dtypes import f32
from tilewright.ops.library import LibraryOp, Types, asked, op_of, switch
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Direction, Shape
from tilewright.problems.library import BatchNormProblem, GroupNormProblem, LayerNormProblem


@checked_call
def layer_norm(
    problem: str | Shape | LayerNormProblem,
    /,
    *,
    scale: bool = True,
    shift: bool = True,
    given: bool = False,
    statistics: bool = False,
    eps: float = 1e-5,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Layer normalization of the last dim, ``layer_norm("32x128x768")``.

        dst = (src - mean) / sqrt(variance + eps) * scale + shift

    with the mean and the variance (the mean of squared differences) of each row. ``given``: they
    are arguments, of the shape without the last dim; ``statistics``: they are results. ``bwd_data``
    takes ``src``, ``mean``, ``variance``, ``diff_dst`` and ``scale``, and gives ``diff_src``;
    ``bwd_weights`` takes the first four, and gives ``diff_scale`` and ``diff_shift``. All but
    ``src`` and ``dst`` are f32, or f64 where one of these is, and so is what is computed.

    Arguments forward: ``src``, ``mean`` and ``variance`` if given, ``scale``, ``shift``, ``dst``,
    ``mean`` and ``variance`` if they are results.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Layer Normalization".
    """
    flags = _flags(G=given, C=scale, H=shift, I=_hidden(statistics))
    layer_norm_problem = asked(problem, LayerNormProblem, flags=flags, eps=eps)
    return op_of(layer_norm_problem, direction, dtype, src=src, dst=dst)


@checked_call
def rms_norm(
    problem: str | Shape | LayerNormProblem,
    /,
    *,
    scale: bool = True,
    eps: float = 1e-5,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Normalization by the root mean square of the last dim, ``rms_norm("2048x4096")``.

        dst = src / sqrt(variance + eps) * scale

    where ``variance`` is the mean of the squares of a row. Gradients are those of `layer_norm`,
    without the mean. Arguments: ``src``, ``scale``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: Zhang and Sennrich, "Root
    Mean Square Layer Normalization", 2019.
    """
    layer_norm_problem = asked(
        problem, LayerNormProblem, flags=_flags(C=scale, M=True, I=True), eps=eps
    )
    return op_of(layer_norm_problem, direction, dtype, src=src, dst=dst)


@checked_call
def batch_norm(
    problem: str | Shape | BatchNormProblem,
    /,
    *,
    scale: bool = True,
    shift: bool = True,
    given: bool = False,
    statistics: bool = False,
    relu: bool = False,
    added: bool = False,
    eps: float = 1e-5,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Batch normalization of each channel, ``batch_norm("mb8ic64ih56")`` or of a shape (N, C,
    spatial), by default channels last in memory.

    What `layer_norm` does, with the statistics of each channel over the batch and all positions:
    ``mean``, ``variance``, ``scale`` and ``shift`` are (C). ``given`` is what one uses to infer.
    With ``relu`` results are 0 at least; with ``statistics``, so is ``workspace`` (u8, of the shape
    of ``dst``) one, 1 where the relu passes: gradients take it. With ``added``, the relu is of the
    sum with ``src1``, of the shape and type of ``src``, whose gradient is ``diff_src1``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Batch Normalization".
    """
    flags = _flags(G=given, C=scale, H=shift, I=_hidden(statistics), R=relu, A=added)
    batch_norm_problem = asked(problem, BatchNormProblem, flags=flags, eps=eps)
    return op_of(batch_norm_problem, direction, dtype, src=src, dst=dst)


@checked_call
def group_norm(
    problem: str | Shape | GroupNormProblem,
    /,
    *,
    groups: int | None = None,
    scale: bool = True,
    shift: bool = True,
    given: bool = False,
    statistics: bool = False,
    eps: float = 1e-5,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Group normalization, ``group_norm("g32mb2ic320ih64")``, or a shape and ``groups``.

    What `layer_norm` does, with the statistics of each image's channels in groups: ``mean`` and
    ``variance`` are (N, groups), ``scale`` and ``shift`` (C). As many groups as channels are
    instance normalization.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Group Normalization".
    """
    flags = _flags(G=given, C=scale, H=shift, I=_hidden(statistics))
    more = {} if groups is None else {"groups": groups}
    group_norm_problem = asked(problem, GroupNormProblem, flags=flags, eps=eps, **more)
    return op_of(group_norm_problem, direction, dtype, src=src, dst=dst)


def _flags(**flags: object) -> str:
    return "".join(letter for letter, said in flags.items() if switch(said, f"flag {letter}"))


def _hidden(statistics: object) -> bool:
    return not switch(statistics, "statistics")

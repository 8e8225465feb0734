"""Reductions of sliding windows, of any rank."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.tensor.convolution import Windowed, windows_of
from tilewright.tensor.reductions import Combine, check_tuples, reduce
from tilewright.tensor.tensor import Tensor, builder_of, described


def reduce_window(
    tensors: Sequence[Tensor],
    initials: Sequence[Tensor],
    combiner: str | Combine,
    window: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    padding: Sequence[Sequence[int]] | None = None,
    base_dilations: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    in_order: bool = False,
) -> tuple[Tensor, ...]:
    """`reduce` of each window of ``tensors``; all arguments have a number for each dim. What lies
    in the padding, or between dilated elements, counts as ``initials``."""
    builder = builder_of(tensors, "windows")
    check_tuples(builder, tensors, initials)
    if len(window) != tensors[0].rank:
        cure = "give a number for each dim"
        raise builder.refuse(f"windows {list(window)} of {described(tensors[0])}", cure)
    sizes, rank = tensors[0].shape, len(window)
    windows = windows_of(builder, window, strides, padding, base_dilations, dilations)
    windowed = Windowed.of(sizes, windows)
    seen = []
    for tensor, first in zip(tensors, initials, strict=True):
        value = first.value
        if 0 not in sizes:
            value = windowed.guarded(tensor.at(*windowed.index), value)
        seen.append(builder.tensor(windowed.shape, value))
    with builder.at(builder.named("reduce_window")):
        return reduce(seen, initials, range(rank, 2 * rank), combiner, in_order=in_order)

"""What is known of whole numbers before a call passes them: arrays, in which sizes may be open."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType, s64
from tilewright.ir import whole_numbers
from tilewright.ir.expr import Expr, binary, cast, const, select
from tilewright.tensor.places import axes, linear_index
from tilewright.tensor.tensor import Builder, Tensor


def sizes_array(sizes: Any) -> NDArray[Any]:
    """Whole numbers as an array: of objects, where some are sizes that calls pass."""
    array = np.array(sizes, object)
    return array if is_open(array) else array.astype(np.int64)


def is_open(array: NDArray[Any] | None) -> bool:
    """Whether some elements of what is known are open."""
    return (
        array is not None
        and array.dtype == object
        and any(map(whole_numbers.is_open, array.reshape(-1)))
    )


def tensor_of_known(builder: Builder, array: NDArray[Any], dtype: DType = s64) -> Tensor:
    """What is known, as a tensor of ``dtype``."""

    def expr(number: Any) -> Expr:
        return cast(dtype, number.expr if whole_numbers.is_open(number) else const(int(number)))

    *first, last = array.reshape(-1)
    place, value = linear_index(axes(array.ndim), array.shape), expr(last)
    for number, size in reversed([*enumerate(first)]):
        value = select(binary("eq", place, const(number)), expr(size), value)
    return builder.tensor(array.shape, value)

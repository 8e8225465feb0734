"""Tables: arrays and tuples from outside of a kernel, which work-items index. Their contents lie
beside the kernel, as they are when it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType, dtype, f32, s32, s64
from tilewright.errors import TilewrightError
from tilewright.ir.buffer import buffer
from tilewright.ir.constants import contents_of, digest_of_contents
from tilewright.ir.stmt import Param
from tilewright.lang.values import Array

# How a part of a kernel is refused: what, why, and the cure.
Refuse = Callable[[str, str | None, str], Exception]


class Tables:
    """The tables of one kernel; ``fresh`` makes names."""

    def __init__(self, fresh: Callable[[str], str]) -> None:
        self._fresh = fresh
        self._arrays: dict[tuple[str, DType, tuple[int, ...]], Array] = {}
        self.params: list[Param] = []
        self.contents: dict[str, NDArray[Any]] = {}

    def of_array(self, refuse: Refuse, name: str, values: NDArray[Any]) -> Array:
        """The table with the contents of an array that is called ``name`` outside."""
        try:
            element = dtype(values.dtype)
        except TilewrightError as error:
            raise refuse(f"{name} is an array of {values.dtype}", None, error.cure or "") from None
        if not values.size:
            raise refuse(f"{name} is an array without elements", None, "give it some")
        return self._table(name.rpartition(".")[2], element, values)

    def of_numbers(self, refuse: Refuse, numbers: tuple[Any, ...]) -> Array:
        """The table of a tuple of numbers: f32 where one is a float, else s32, or s64."""
        if any(isinstance(number, float) for number in numbers):
            return self._table("table", f32, np.array(numbers, np.float32))
        if all(s32.lowest <= number <= s32.highest for number in numbers):
            return self._table("table", s32, np.array(numbers, np.int32))
        try:
            return self._table("table", s64, np.array(numbers, np.int64))
        except OverflowError:
            what = "a table of numbers that s64 does not hold"
            raise refuse(what, None, "pass an array of unsigned integers") from None

    def has(self, array: Array) -> bool:
        """Whether ``array`` is one of them."""
        return any(other.buffer is array.buffer for other in self._arrays.values())

    def _table(self, name: str, element: DType, values: NDArray[Any]) -> Array:
        shape = values.shape
        contents = contents_of(buffer("table", element, shape), values)
        digest = digest_of_contents(contents)
        if self.contents.get(digest, contents).dtype != contents.dtype:
            # The bytes of another table of another type: a digest has one, so it is made longer.
            longer = np.concatenate([values, values[-1:]])
            return Array(self._table(name, element, longer).buffer, shape, parameter=False)
        array = self._arrays.get((digest, element, shape))
        if array is None:
            memory = buffer(self._fresh(name), element, shape)
            array = self._arrays[digest, element, shape] = Array(memory, shape, parameter=False)
            self.params.append(Param(memory, "in", digest))
            self.contents[digest] = contents
        return array

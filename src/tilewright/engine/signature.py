"""What a caller passes for each argument of a kernel.

A plain layout is a strided array of the logical shape (``nhwc`` is the shape (N, C, H, W) with
channels last in memory, as PyTorch's ``channels_last``). A blocked layout is an array with one dim
per block, outermost first: ``nChw16c`` is (N, C/16, H, W, 16). A layout that is swizzled, or whose
first element does not lie at the address, is an array of one dim: the memory as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType
from tilewright.errors import ArgumentError, one_of, short
from tilewright.ir.arguments import Scalar
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.expr import Var, const
from tilewright.ir.stmt import Param, ScalarParam
from tilewright.ir.symbols import substitute_buffer
from tilewright.ops.op import Argument
from tilewright.runtime.arrays import ArraySpec


@dataclass(frozen=True)
class ArrayForm:
    """Shape, strides and extent (in elements) of the array that stands for a tensor in memory.

    An array's address is that of its first element, and the kernel's offsets count from there.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    extent: int

    def spec(self, name: str, writable: bool, cure: str | None = None) -> ArraySpec:
        """What checks an array of this form."""
        return ArraySpec(name, self.dtype, self.shape, self.strides, writable, cure)

    def empty(self) -> NDArray[Any]:
        """A new array of numpy's, uninitialized but for what lies between its elements."""
        dense = math.prod(self.shape) == self.extent
        return self.view((np.empty if dense else np.zeros)(self.extent, self.dtype.numpy))

    def view(self, flat: NDArray[Any]) -> NDArray[Any]:
        """The array in memory of so many elements: ``flat``, contiguous, from element 0 on."""
        # Not as_strided: it writes the element type as text, and numpy has none for f8_e5m2.
        steps = tuple(stride * self.dtype.bytes for stride in self.strides)
        return np.ndarray(self.shape, flat.dtype, flat, strides=steps)

    def flat(self, array: NDArray[Any]) -> NDArray[Any]:
        """The memory behind an array of this form; the way back from `view`."""
        # As plain bits, for the same reason; such an array need not be contiguous.
        bits = array.view(f"u{self.dtype.bytes}")
        whole = np.lib.stride_tricks.as_strided(bits, (self.extent,), (self.dtype.bytes,))
        return whole.view(array.dtype)


def form_of(shape: tuple[int, ...], dtype: DType, layout: Layout) -> ArrayForm:
    """The array form of a tensor with this layout."""
    if layout.offset or layout.swizzle is not None:
        # No shape and strides say which element lies where: all of its memory, in order.
        return ArrayForm(dtype, (layout.extent,), (1,), layout.extent)
    blocks = {block.dim: block for block in layout.blocks}
    plain = len(blocks) == len(layout.blocks) == len(shape)
    if plain and layout.padded_shape(len(shape)) == shape:
        strides = tuple(blocks[dim].stride for dim in range(len(shape)))
        return ArrayForm(dtype, shape, strides, layout.extent)
    return ArrayForm(
        dtype,
        tuple(block.size for block in layout.blocks),
        tuple(block.stride for block in layout.blocks),
        layout.extent,
    )


def is_plain(buffer: Buffer) -> bool:
    """Whether an array of the buffer's logical shape stands for it: each dim is one block, and
    whole, from the address on."""
    layout = buffer.layout
    if layout.swizzle is not None or not (isinstance(layout.start, int) and layout.start == 0):
        return False
    parts = {part.dim: part for part in buffer.layout.parts}
    if not len(parts) == len(buffer.layout.parts) == len(buffer.sizes):
        return False
    return all(
        parts[dim].size is size or parts[dim].size == size for dim, size in enumerate(buffer.sizes)
    )


def argument_form(argument: Argument) -> ArrayForm:
    """The array form of an op's argument."""
    return form_of(argument.shape, argument.dtype, argument.layout)


@dataclass(frozen=True)
class Signature:
    """What a kernel is called with, in the order of its ABI: arrays, constants and numbers."""

    params: tuple[Param | ScalarParam, ...]

    @cached_property
    def arguments(self) -> tuple[Param, ...]:
        """The arrays that a call passes."""
        return tuple(
            param for param in self.params if isinstance(param, Param) and param.digest is None
        )

    @cached_property
    def constants(self) -> tuple[Param, ...]:
        """The arrays that lie beside the kernel."""
        return tuple(
            param for param in self.params if isinstance(param, Param) and param.digest is not None
        )

    @cached_property
    def arrays(self) -> tuple[Param, ...]:
        """All that is memory, constants too."""
        return tuple(param for param in self.params if isinstance(param, Param))

    @cached_property
    def scalars(self) -> tuple[ScalarParam, ...]:
        """The numbers."""
        return tuple(param for param in self.params if isinstance(param, ScalarParam))

    @cached_property
    def sizes(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        """The numbers that the shapes of arrays tell, each with the arrays and dims that are so
        long."""
        places_of: dict[str, list[tuple[str, int]]] = {}
        names = {scalar.var: scalar.name for scalar in self.scalars}
        for argument in self.arguments if names else ():
            if is_plain(argument.buffer):
                for dim, size in enumerate(argument.buffer.sizes):
                    if isinstance(size, Var) and size in names:
                        places_of.setdefault(names[size], []).append((argument.name, dim))
        return {name: tuple(places) for name, places in places_of.items()}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What a call passes, in order. Sizes that the shapes of arrays tell are left out of it:
        they are given by name, if at all."""
        left_out = {*self.sizes, *(constant.name for constant in self.constants)}
        return tuple(param.name for param in self.params if param.name not in left_out)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The arrays that the kernel writes."""
        return tuple(argument.name for argument in self.arguments if argument.access != "in")

    def at(self, numbers: Mapping[str, Scalar]) -> tuple[Param, ...]:
        """The arrays that a call with these ``numbers`` passes: `arguments` of known shapes."""
        values = {scalar.var: const(numbers[scalar.name], scalar.dtype) for scalar in self.scalars}
        return tuple(
            replace(argument, buffer=substitute_buffer(argument.buffer, values))
            for argument in self.arguments
        )

    @cached_property
    def forms(self) -> Mapping[str, ArrayForm]:
        """The form of each array, by its name. `UnsupportedError` where it depends on numbers that
        a call passes."""
        return {
            argument.name: form_of(argument.buffer.shape, argument.dtype, argument.buffer.layout)
            for argument in self.arguments
        }

    def form(self, name: str) -> ArrayForm:
        """The form of the array called ``name``. `UnsupportedError` as of `forms`."""
        held = self.argument(name).buffer
        return form_of(held.shape, held.dtype, held.layout)

    def argument(self, name: str) -> Param:
        """The argument called ``name``. Raises `ArgumentError` when there is none."""
        for param in self.arguments:
            if param.name == name:
                return param
        raise self.unknown(name)

    def unknown(self, name: object) -> ArgumentError:
        """The error for an argument that the kernel does not have."""
        return ArgumentError(f"there is no argument {short(name)}", cure=one_of(name, self.names))

    def misnamed(self, arguments: Mapping[str, Any], missing: str = "") -> ArgumentError:
        """The error for arguments that the kernel does not have, or else for a missing one."""
        extra = ", ".join(repr(name) for name in sorted(set(arguments) - set(self.names)))
        if extra:
            return ArgumentError(
                f"there is no argument {extra}",
                cure=one_of(sorted(set(arguments) - set(self.names))[0], self.names),
            )
        return ArgumentError(
            f"the argument {missing!r} is missing",
            cure="pass " + ", ".join(f"{name}=..." for name in self.names),
        )

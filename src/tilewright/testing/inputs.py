"""Inputs to verify an op on: arrays of logical shape for all that its kernel reads."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from tilewright.conversions import convert
from tilewright.dtypes import DType, f64
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.foundation import FoundationOp
from tilewright.ops.group_factors import with_groups
from tilewright.ops.library import LibraryOp
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Argument, Op
from tilewright.problems import Binary, Direction, EltwiseProblem, ReduceProblem
from tilewright.problems.draws import with_nonfinite
from tilewright.testing.data import (
    exact_limit,
    exact_terms,
    integer_range,
    integers,
    reals,
    summands,
)

# Larger tensors would take too long, and too much memory.
MAX_ELEMENTS = 2**28
# Functions that are real for positive arguments only.
_POSITIVE = ("log", "sqrt", "pow")
_PRODUCT_FACTORS = 6
# The greatest weight less its zero point, times the ratio of scales of a group.
_GROUPED = 32 * 8


def make_inputs(op: Op, *, exact: bool, seed: int) -> dict[str, Any]:
    """An array for each argument that the kernel reads, ``inout`` ones included.

    ``exact``: integers, few and small enough that every sum in ``op`` is exact; otherwise reals.

    Raises `UnsupportedError` when the tensors are too large to verify.
    """
    total = sum(math.prod(argument.shape) for argument in op.arguments)
    if total > MAX_ELEMENTS:
        raise UnsupportedError(
            f"{total} elements are too many to verify",
            why=f"the limit is {MAX_ELEMENTS}",
            cure="verify a smaller problem of the same kind",
        )
    read = [argument for argument in op.arguments if argument.access != "out"]
    return {argument.name: _values(op, argument, exact, seed) for argument in read}


def make_nonfinite_inputs(op: Op, *, seed: int) -> dict[str, Any] | None:
    """Reals with infinities and NaN among them; None for an op without floats, or whose results for
    them IEEE 754 leaves open, such as products with taps in the padding.

    Raises `UnsupportedError` when the tensors are too large to verify.
    """
    if not (isinstance(op, FoundationOp) and op.direction.is_forward):
        return None
    spoiled = [t.name for t in op.tensors if t.access == "in" and op.dtype_of(t.name).is_float]
    if not spoiled:
        return None
    inputs = make_inputs(op, exact=False, seed=seed)
    rng = np.random.default_rng(seed)
    return inputs | {name: with_nonfinite(inputs[name], rng) for name in spoiled}


def _values(op: Op, argument: Argument, exact: bool, seed: int) -> Any:
    # By name, so that an argument's data do not depend on the other arguments.
    seed += zlib.crc32(argument.name.encode())
    shape, dtype = argument.shape, argument.dtype
    if argument.role == "scale":
        exponents = np.random.default_rng(seed).integers(-2, 1, shape, endpoint=True)
        return np.exp2(exponents).astype(dtype.numpy)
    if argument.role == "zero_point" and not dtype.is_nibble:
        return np.random.default_rng(seed).integers(0, 4, shape).astype(dtype.numpy)
    if argument.role == "zero_point":
        return integers(shape, dtype, seed=seed)
    if argument.role == "weights" and argument.dtype is not op.dtype_of("weights"):
        # Any two 4-bit numbers to a byte.
        return np.random.default_rng(seed).integers(0, 255, shape, dtype.numpy, endpoint=True)
    if argument.role == "post_op":
        return _operand(op, argument, exact, seed)
    if isinstance(op, LibraryOp):
        return _record_inputs(op, argument, exact, seed)
    if argument.access == "inout" or argument.role == "bias":
        # Not summed: any small number will do.
        return integers(shape, dtype, seed=seed) if exact else reals(shape, dtype, seed=seed)
    problem = op.problem
    if isinstance(problem, ReduceProblem):
        return _reduced(op, problem, dtype, exact, seed)
    if isinstance(problem, EltwiseProblem) and problem.function.function in _POSITIVE:
        return _positive(shape, dtype, exact, seed)
    if op.kind == "binary" and problem.algorithm == "div" and argument.name == "src1":
        return _positive(shape, dtype, exact, seed)
    if not exact and op.kind in ("conv", "matmul", "pool"):
        return summands(shape, dtype, seed=seed)
    if not exact:
        low, high = (-4.0, 4.0) if op.kind == "eltwise" else (-1.0, 1.0)
        return reals(shape, dtype, seed=seed, low=low, high=high)
    axes, terms = _thinning(op, argument.name)
    return integers(shape, dtype, seed=seed, axes=axes, terms=terms)


def _record_inputs(op: LibraryOp, argument: Argument, exact: bool, seed: int) -> Any:
    """The data that the record draws; otherwise small numbers."""
    shape, dtype = argument.shape, argument.dtype
    rng = np.random.default_rng(seed)
    values = op.problem.data(argument.name, shape, dtype, rng, op.direction)
    if values is not None:
        return convert(values, f64, dtype) if dtype.is_float else values.astype(dtype.numpy)
    return integers(shape, dtype, seed=seed) if exact else reals(shape, dtype, seed=seed)


def _operand(op: Op, argument: Argument, exact: bool, seed: int) -> Any:
    """The operand of a binary post-op: a divisor is not 0."""
    tensors = op.attributes.tensors
    named = {op.attributes.name_of(position): post_op for position, post_op in tensors}
    post_op = named[argument.name]
    if isinstance(post_op, Binary) and post_op.function == "div":
        return _positive(argument.shape, argument.dtype, exact, seed)
    make = integers if exact else reals
    return make(argument.shape, argument.dtype, seed=seed)


def _positive(shape: tuple[int, ...], dtype: DType, exact: bool, seed: int) -> Any:
    if exact or not dtype.is_float:
        high = integer_range(dtype)[1]
        values = np.random.default_rng(seed).integers(1, high, shape, endpoint=True)
        return values.astype(dtype.numpy)
    return reals(shape, dtype, seed=seed, low=0.25, high=4.0)


def _thinning(op: Op, name: str) -> tuple[tuple[int, ...], int | None]:
    """The axes of an input along which to limit non-zero numbers, and their number, so that sums
    stay exact."""
    if isinstance(op, Convolution):
        a, b, c = (tensor.name for tensor in op.tensors[:3])
        if name != b:
            return (), None
        terms = exact_terms(op.dtype_of(a), op.dtype_of(b), op.accumulator, op.dtype_of(c))
        problem = op.problem
        if op.direction.is_backward_weights:
            return (0, *range(2, 2 + problem.ndims)), terms
        first = 1 if problem.g > 1 else 0
        channel = first if op.direction is Direction.BWD_D else first + 1
        return (channel, *range(first + 2, first + 2 + problem.ndims)), terms
    if isinstance(op, Matmul) and (grouped := with_groups(op.attributes)):
        # What is less a zero point has several digits, and so have its scales.
        greatest = _GROUPED if "src" in grouped else integer_range(op.dtype_of("src"))[1]
        limit = max(1, exact_limit(op.accumulator) // (_GROUPED * greatest))
        return ((len(op.problem.src_shape) - 1,), limit) if name == "src" else ((), None)
    if isinstance(op, Matmul) and name == "weights":
        src, weights, dst = (op.dtype_of(tensor) for tensor in ("src", "weights", "dst"))
        terms = exact_terms(src, weights, op.accumulator, dst)
        return (len(op.problem.weights_shape) - 2,), terms
    if op.kind == "pool" and op.problem.algorithm != "max":
        source = op.tensors[0]
        largest = integer_range(op.dtype_of(source.name))[1]
        # Windows may overlap: as few as may be summed from all of an image.
        terms = max(1, exact_limit(op.accumulator) // largest)
        return tuple(range(2, len(source.shape))), terms
    return (), None


def _reduced(op: Op, problem: ReduceProblem, dtype: DType, exact: bool, seed: int) -> Any:
    shape, axes = problem.src_shape, problem.reduced_dims
    if problem.algorithm == "mul":
        # 1, except for a few factors of -1 and 2 along the reduced dims.
        places = integers(shape, dtype, seed=seed, axes=axes, terms=_PRODUCT_FACTORS)
        magnitudes = np.where(places.astype(np.float64) == 0, 1.0, 2.0)
        signs = np.where(places.astype(np.float64) < 0, -1.0, 1.0)
        values = magnitudes * signs
        if not exact and dtype.is_float:
            values = values * reals(shape, dtype, seed=seed, low=0.9, high=1.1).astype(np.float64)
        return values.astype(dtype.numpy)
    if not exact:
        return summands(shape, dtype, seed=seed)
    largest = integer_range(dtype)[1]
    result = op.dtype_of("dst")
    limit = exact_limit(op.accumulator)
    if result.is_float:
        limit = min(limit, exact_limit(result))
    return integers(shape, dtype, seed=seed, axes=axes, terms=max(1, limit // largest))

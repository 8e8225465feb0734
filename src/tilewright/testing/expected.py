"""The results of a correct kernel: for each, the reference in float64 and the accepted values.

The reference is `testing.reference`; the bound on sums is `testing.bounds`; from the sum to the
stored value, `testing.approximate` follows the epilogue's order (see `ops.epilogue`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import starmap
from typing import Any

import numpy as np

from tilewright.conversions import reinterpret
from tilewright.dtypes import DType, f32, f64
from tilewright.ops.attributes import Attributes, scale_name, zero_point_name
from tilewright.ops.convolution import Convolution
from tilewright.ops.group_factors import with_groups
from tilewright.ops.library import LibraryOp
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op
from tilewright.problems import (
    Answer,
    Binary,
    BinaryProblem,
    ConvProblem,
    Direction,
    EltwiseProblem,
    PoolProblem,
    Prelu,
    Problem,
    ReduceProblem,
    ReorderProblem,
    Sum,
    Unary,
)
from tilewright.problems.elementwise import SELECT
from tilewright.problems.slopes import SLOPES
from tilewright.testing import reference
from tilewright.testing.approximate import Accepted, Approximate
from tilewright.testing.bounds import dot_bound, gamma
from tilewright.testing.group_weights import dequantized

# What derivatives are off, in roundings.
_SLOPE_UNITS = 32


def expected(op: Op, arrays: Mapping[str, Any], *, exact: bool) -> dict[str, Accepted]:
    """The accepted values of each result of ``op``, given the arrays that its kernel reads.

    ``exact``: sums of the arrays' values have no rounding error (see `testing.inputs`).
    """
    # Infinities and NaN are results here: a maximum of nothing, a logarithm of 0.
    with np.errstate(all="ignore"):
        if isinstance(op, LibraryOp):
            return _record_results(op, arrays)
        return _Expected(op, arrays, exact).results()


def _record_results(op: LibraryOp, arrays: Mapping[str, Any]) -> dict[str, Accepted]:
    """The record's reference, with its bounds."""
    types = dict(op.types)
    wide_arrays = {
        name: np.asarray(array).astype(np.float64 if types[name].is_float else np.int64)
        for name, array in arrays.items()
        if name in types
    }
    accepted = {}
    for name, answer in op.problem.answers(wide_arrays, op.direction).items():
        wide = _approximate(answer, op, op.accumulator, exact=False)
        if name == "dst" and op.attributes != Attributes():
            wide = _Expected(op, arrays, exact=False)._epilogue(wide)
        accepted[name] = Accepted.stored(wide, types[name])
    return accepted


def _approximate(answer: Answer, op: Op, arithmetic: DType, *, exact: bool) -> Approximate:
    """An answer with its error; ``exact``: on data for which sums are."""
    value = np.asarray(answer.value)
    # The reference rounds as well, and may be no wider than the kernel.
    twice = 2 if op.accumulator is f64 and value.itemsize <= 8 else 1
    value = value.astype(np.float64)
    error: Any = np.zeros(value.shape)
    if answer.roundings and not (exact and answer.summed):
        error = error + twice * gamma(answer.roundings, op.accumulator) * np.abs(answer.magnitude)
    if answer.between:
        error = error + gamma(1, op.dtype_of(answer.between)) * np.abs(answer.magnitude)
    if answer.last:
        error = error + gamma(answer.last, arithmetic) * (np.abs(value) + error)
    return Approximate(value, error.astype(np.float64), arithmetic)


class _Expected:
    def __init__(self, op: Op, arrays: Mapping[str, Any], exact: bool) -> None:
        self.op = op
        self._raw = arrays
        self.arrays = {name: np.asarray(a).astype(np.float64) for name, a in arrays.items()}
        self.exact = exact
        self.result = next(t.name for t in op.tensors if t.access != "in")
        wide = f64 in (op.accumulator, op.dtype_of(self.result))
        self.arithmetic: DType = f64 if wide else f32

    def results(self) -> dict[str, Accepted]:
        op = self.op
        match op:
            case Convolution():
                value = self._convolution(op)
            case Matmul():
                value = self._matmul(op)
            case _:
                value = self._formula(op.problem)
        accepted = {self.result: Accepted.stored(self._epilogue(value), op.dtype_of(self.result))}
        if op.direction is Direction.BWD_WB:
            accepted["bias"] = self._bias_gradient()
        return accepted

    def _formula(self, problem: Problem) -> Approximate:
        """What an op of the foundation has before its epilogue."""
        match problem:
            case PoolProblem() | ReduceProblem():
                answer = problem.answers(self.arrays, self.op.direction)[self.result]
                if problem.algorithm == "max":
                    # The maximum of nothing is the least number of the type.
                    least = float(self.op.accumulator.lowest)
                    answer = replace(answer, value=np.maximum(answer.value, least))
                return _approximate(answer, self.op, self.arithmetic, exact=self.exact)
            case EltwiseProblem() if not self.op.direction.is_forward:
                return self._gradient(problem)
            case EltwiseProblem():
                return self._loaded("src").unary(problem.function)
            case BinaryProblem() if problem.algorithm == SELECT:
                return self._scaled("src0", "src").where(
                    self.arrays["src2"] != 0, self._scaled("src1")
                )
            case BinaryProblem():
                return self._scaled("src0", "src").binary(problem.algorithm, self._scaled("src1"))
            case ReorderProblem():
                return Approximate.exact(self._shifted("src"), self.arithmetic)
        raise AssertionError(f"no reference for {problem!r}")

    def _gradient(self, problem: EltwiseProblem) -> Approximate:
        """A derivative times what comes back; off relative to both, and to the greatest slopes."""
        f, x, back = problem.function, self.arrays["src"], self.arrays["diff_dst"]
        slope = SLOPES[f.function].reference(x, f.alpha, f.beta)
        size = np.abs(f.scale * back) * (1 + np.abs(slope)) * (1 + np.abs(x))
        answer = Answer(f.scale * back * slope, size * (1 + abs(f.alpha)), _SLOPE_UNITS)
        return _approximate(answer, self.op, self.arithmetic, exact=False)

    def _loaded(self, name: str) -> Approximate:
        return Approximate.exact(self.arrays[name], self.arithmetic)

    def _scaled(self, name: str, scale: str | None = None) -> Approximate:
        """A source of a binary op, with its scale, which comes before the function."""
        value = self._loaded(name)
        factor = self._scale(scale or name, value.value.shape)
        return value if factor is None else value.multiply(factor)

    def _shifted(self, name: str) -> Any:
        """An input minus its zero points."""
        return self.arrays[name] - self._zero_point(name, name)

    def _zero_point(self, role: str, name: str) -> Any:
        """Of the input ``name``, which attributes call by its ``role``."""
        point = self.op.attributes.zero_point(role)
        if point is None:
            return 0.0
        if point.value is not None:
            return point.value
        flat = self.arrays[zero_point_name(role)]
        return self._spread(flat, point.policy, role, self.arrays[name].shape)

    def _magnitude(self, role: str, name: str) -> Any:
        """Of an input and its zero points, whose products may be summed apart."""
        return np.abs(self.arrays[name]) + np.abs(self._zero_point(role, name))

    def _product(
        self, multiply: Callable[[Any, Any], Any], first: str, second: str, terms: int
    ) -> Approximate:
        """A contraction of two inputs, with the scales of both.

        Scales are applied to the result: in exact arithmetic that is the same as to the operands,
        and in float64 almost.
        """
        called = {"src" if first == "dst" else first: first, second: second}
        a, b = (self.arrays[name] - self._zero_point(role, name) for role, name in called.items())
        plain = np.asarray(multiply(a, b))
        error = np.zeros(plain.shape)
        if not self.exact:
            magnitudes = multiply(*starmap(self._magnitude, called.items()))
            # Besides the sum: products with zero points are summed apart and subtracted.
            shifts = sum(self.op.attributes.zero_point(role) is not None for role in called)
            error = self._sum_error(magnitudes, plain, terms + 2 * shifts)
        value = Approximate(plain, error, self.arithmetic)
        for role, name in called.items():
            scale = self.op.attributes.scale(role)
            if scale is None or role == "dst":
                continue
            array = self.arrays[name]
            if scale.value is not None:
                value = value.multiply(Approximate.constant(scale.value, self.arithmetic))
                continue
            # One factor for each element of the sum: the product with factors and ones.
            flat = self.arrays[scale_name(role)]
            factors = np.broadcast_to(
                self._spread(flat, scale.policy, role, array.shape), array.shape
            )
            value = value.multiply(self._per_result(multiply, first, second, name, factors))
        return value

    def _per_result(
        self,
        multiply: Callable[[Any, Any], Any],
        first: str,
        second: str,
        name: str,
        factors: Any,
    ) -> Approximate:
        """Factors of an input as factors of the result; they do not vary along summed dims."""
        ones = {tensor: np.ones(self.arrays[tensor].shape) for tensor in (first, second)}
        count = np.asarray(multiply(ones[first], ones[second]))
        ones[name] = factors
        total = np.asarray(multiply(ones[first], ones[second]))
        mean = np.divide(total, count, out=np.ones(total.shape), where=count > 0)
        # Scales are f32 at most: rounding removes the division's error.
        return Approximate.exact(mean.astype(np.float32), self.arithmetic)

    def _matmul(self, op: Matmul) -> Approximate:
        grouped = with_groups(op.attributes)
        if not grouped:
            return self._product(
                lambda a, b: reference.matmul(a, b), "src", "weights", op.problem.k
            )
        values, sizes = {}, {}
        for name in ("src", "weights"):
            values[name], sizes[name] = dequantized(op, name, self._raw)
        plain = reference.matmul(values["src"], values["weights"])
        error = np.zeros(plain.shape)
        if not self.exact:
            # Besides the sum: a zero point is subtracted, a scale multiplied, groups are summed.
            terms = op.problem.k + 4 * len(values)
            magnitudes = reference.matmul(sizes["src"], sizes["weights"])
            error = self._sum_error(magnitudes, plain, terms)
        value = Approximate(plain, error, self.arithmetic)
        for name in ("src", "weights"):
            scale = op.attributes.scale(name)
            if scale is not None and scale.group is None:
                factor = self._scale(name, self._logical(name))
                assert factor is not None
                value = value.multiply(factor)
        return value

    def _logical(self, name: str) -> tuple[int, ...]:
        return tuple(dict(self.op.problem.shapes)[name])

    def _sum_error(self, magnitudes: Any, plain: Any, terms: int) -> Any:
        types = tuple(t for t in dict(self.op.types).values() if t.name == "tf32")
        if self.op.attributes.fpmath is not None:
            types = (self.op.attributes.fpmath,) * 2
        acc = self.op.accumulator
        error = dot_bound(
            magnitudes, plain, terms=terms, accumulator=acc, dst=acc, operands=types[:2]
        )
        # The reference is float64 as well, with as large an error as the kernel.
        return 2 * error if acc is f64 else error

    def _convolution(self, op: Convolution) -> Approximate:
        p = op.problem
        common: dict[str, Any] = {
            "stride": p.stride,
            "dilation": p.dilation,
            "left": p.pad_l,
            "groups": p.g,
        }
        taps = math.prod(p.kernel)
        if op.direction.is_forward:
            return self._product(
                lambda a, b: reference.convolution_forward(a, b, right=p.pad_r, **common),
                "src",
                "weights",
                p.ic // p.g * taps,
            )
        if op.direction is Direction.BWD_D:
            return self._product(
                lambda a, b: reference.convolution_backward_data(
                    a, b, src_shape=p.src_shape, **common
                ),
                "dst",
                "weights",
                p.oc // p.g * taps,
            )
        return self._product(
            lambda a, b: reference.convolution_backward_weights(
                a, b, weights_shape=p.weights_shape, **common
            ),
            "src",
            "dst",
            p.mb * math.prod(p.dst_size),
        )

    def _bias_gradient(self) -> Accepted:
        problem = self.op.problem
        assert isinstance(problem, ConvProblem)
        diff = self.arrays["dst"]
        plain = reference.convolution_backward_bias(diff)
        error = np.zeros(plain.shape)
        if not self.exact:
            magnitudes = reference.convolution_backward_bias(np.abs(diff))
            error = self._sum_error(magnitudes, plain, problem.mb * math.prod(problem.dst_size))
        value = Approximate(plain, error, self.arithmetic)
        return Accepted.stored(value, self.op.dtype_of("bias"))

    def _epilogue(self, value: Approximate) -> Approximate:
        """Scales of sources (if not applied yet), bias, post-ops, dst's attributes."""
        op, attributes = self.op, self.op.attributes
        point = attributes.zero_point("dst")
        if attributes.bias or attributes.scales or attributes.post_ops or point is not None:
            value = value.convert()
        if op.kind in ("reorder", "pool", "reduce") or isinstance(op, LibraryOp):
            factor = self._scale("src", value.value.shape)
            value = value if factor is None else value.multiply(factor)
        rank = value.value.ndim
        if attributes.bias is not None:
            channel = rank - 1 if isinstance(op, Matmul) else 1
            shape = [-1 if dim == channel else 1 for dim in range(rank)]
            bias = self.arrays["bias"].reshape(shape)
            value = value.add(Approximate.exact(bias, self.arithmetic))
        for position, post_op in enumerate(attributes.post_ops):
            match post_op:
                case Unary():
                    value = value.unary(post_op)
                case Sum():
                    value = value.add(self._old(post_op))
                case Prelu():
                    value = value.binary("prelu", self._loaded(attributes.name_of(position)))
                case Binary():
                    other = self._loaded(attributes.name_of(position))
                    value = value.binary(post_op.function, other)
        factor = self._scale("dst", value.value.shape)
        value = value if factor is None else value.divide(factor)
        if point is None:
            return value
        shift: Any = point.value
        if shift is None:
            flat = self.arrays[zero_point_name("dst")]
            shift = self._spread(flat, point.policy, "dst", value.value.shape)
        return value.add(Approximate.exact(shift, self.arithmetic))

    def _old(self, post_op: Sum) -> Approximate:
        before = self.arrays[self.result]
        if post_op.dtype is not None:
            kind = self.op.dtype_of(self.result)
            before = reinterpret(self._raw[self.result], kind, post_op.dtype).astype(np.float64)
        old = Approximate.exact(before - post_op.zero_point, self.arithmetic)
        if post_op.scale == 1:
            return old
        return old.multiply(Approximate.constant(post_op.scale, self.arithmetic))

    def _scale(self, tensor: str, shape: tuple[int, ...]) -> Approximate | None:
        scale = self.op.attributes.scale(tensor)
        if scale is None:
            return None
        if scale.value is not None:
            return Approximate.constant(scale.value, self.arithmetic)
        flat = self.arrays[scale_name(tensor)]
        spread = self._spread(flat, scale.policy, tensor, shape)
        return Approximate.exact(spread, self.arithmetic)

    def _spread(self, flat: Any, policy: Any, tensor: str, shape: tuple[int, ...]) -> Any:
        """An array of values along the dims of ``policy``, with size 1 for other dims."""
        grouped = tensor == "weights" and isinstance(self.op, Convolution) and self.op.problem.g > 1
        kind = self.op.kind
        dims = policy.dims(len(shape), tensor=tensor, driver=kind, grouped=grouped)
        return np.reshape(flat, [n if i in dims else 1 for i, n in enumerate(shape)])

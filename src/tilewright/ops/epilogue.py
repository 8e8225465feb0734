"""The epilogue: from an accumulator to the stored result, in oneDNN's order.

    zero-point compensation -> scales of src and weights -> bias -> post-ops in list order
    -> scale of dst -> zero point of dst -> conversion (rounded to nearest even, saturated)

Source: oneDNN's developer guide, "Quantization" and "Post-ops". The arithmetic is f32 (f64 where
the accumulator is f64). When nothing is asked for, only the conversion is left, and integers then
never pass through a float.

Compensation. With a source zero point z the sum is over ``(s - z) * w`` for the taps that exist;
padding contributes nothing. That is ``sum(s * w) - z * sum(w)``, the second sum again over the taps
that exist, so ``main`` stays the plain product that dot-product instructions carry out, and
`ops.contraction` has the second sum, which is made of the weights alone, and can be made when they
are packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.dtypes import DType, f32, f64
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, bitcast, cast, const, maximum, minimum, select, unary
from tilewright.ir.stmt import Compute, Dim, Operand, View
from tilewright.ir.visit import variables
from tilewright.ops.attributes import Attributes, scale_name, zero_point_name
from tilewright.ops.domain import operand
from tilewright.ops.elementwise_functions import apply_binary, apply_unary
from tilewright.problems import Binary, Policy, PostOp, Prelu, Scale, Sum, Unary, ZeroPoint
from tilewright.problems.activations import scaled
from tilewright.problems.functions import number
from tilewright.problems.numbers import held


@dataclass(frozen=True)
class Result:
    """A result about to be finished: one element of it for each point of ``dims``.

    ``index`` says which element of ``out`` that is; ``inputs`` how the op reads its inputs, for
    scales that vary with them; ``channel`` which dim of ``out`` a bias varies along; ``grouped``
    which tensors have a dim of groups in front.
    """

    dims: tuple[Dim, ...]
    out: Buffer
    index: tuple[Expr, ...]
    driver: str
    channel: int = 1
    inputs: Mapping[str, View] = field(default_factory=dict)
    grouped: tuple[str, ...] = ()


@dataclass
class _Body:
    """The body under construction: its operands and the value so far."""

    operands: list[Operand]
    value: Expr

    def load(
        self,
        name: str,
        source: Buffer,
        index: Sequence[Expr],
        type: DType,
        kind: DType | None = None,
    ) -> Expr:
        """The element of ``source``, whose bits are of ``kind``, as ``type``: a new operand."""
        added = operand(name, source, index)
        self.operands.append(added)
        return cast(type, bitcast(kind or added.var.type, added.var))


def epilogue(
    name: str,
    operands: Sequence[Operand],
    value: Expr,
    result: Result,
    attributes: Attributes,
    buffers: Mapping[str, Buffer],
) -> Compute:
    """The compute that takes ``value``, over ``operands``, to ``result``.

    ``buffers`` holds the arguments that ``attributes`` add, by name. The source's zero point is no
    matter of the epilogue: ``value`` is compensated already.
    """
    body = _Body(list(operands), value)
    out = result.out
    if _needs_float(attributes):
        body.value = cast(float_type(value.type, out.dtype), value)
        _finish(body, result, attributes, buffers)
    value = convert(body.value, out.dtype)
    return Compute.single(name, result.dims, View(out, result.index), tuple(body.operands), value)


def float_type(*types: DType) -> DType:
    """The type that epilogues compute in: f64 when one of ``types`` is, else f32."""
    return f64 if f64 in types else f32


def convert(value: Expr, type: DType) -> Expr:
    """``value`` as ``type``: to integers rounded to nearest even, and saturated."""
    if value.type is type or not type.is_integer:
        return cast(type, value)
    if value.type.is_float:
        # A cast of a float saturates by itself.
        return cast(type, unary("round", value))
    if value.type.lowest < type.lowest:
        value = maximum(value, const(type.lowest, value.type))
    if value.type.highest > type.highest:
        value = minimum(value, const(type.highest, value.type))
    return cast(type, value)


def _needs_float(attributes: Attributes) -> bool:
    """Whether more is asked for than conversion."""
    return bool(
        attributes.bias is not None
        or attributes.scales
        or attributes.post_ops
        or attributes.zero_point("dst")
    )


def _finish(
    body: _Body, result: Result, attributes: Attributes, buffers: Mapping[str, Buffer]
) -> None:
    """Everything between compensation and conversion."""
    for tensor in ("src", "weights"):
        scale = attributes.scale(tensor)
        if scale is not None:
            body.value = body.value * _factor(body, scale, result, buffers)
    if attributes.bias is not None:
        index = (result.index[result.channel],)
        body.value = body.value + body.load("bias", buffers["bias"], index, body.value.type)
    for position, post_op in enumerate(attributes.post_ops):
        body.value = _post_op(body, position, post_op, result, attributes, buffers)
    scale = attributes.scale("dst")
    if scale is not None:
        body.value = body.value / _factor(body, scale, result, buffers)
    point = attributes.zero_point("dst")
    if point is not None:
        body.value = body.value + _factor(body, point, result, buffers)


def _post_op(
    body: _Body,
    position: int,
    post_op: PostOp,
    result: Result,
    attributes: Attributes,
    buffers: Mapping[str, Buffer],
) -> Expr:
    """The value after the post-op at ``position``."""
    value = body.value
    match post_op:
        case Unary():
            return apply_unary(post_op, value)
        case Sum():
            kind = post_op.dtype or result.out.dtype
            old = body.load(f"old_{position}", result.out, result.index, value.type, kind)
            if post_op.zero_point:
                old = old - number(post_op.zero_point, value)
            return value + scaled(old, post_op.scale)
        case Binary() | Prelu():
            name = attributes.name_of(position)
            source = buffers[name]
            index = tuple(
                const(0) if size == 1 else i
                for size, i in zip(source.shape, result.index, strict=True)
            )
            other = body.load(f"operand_{position}", source, index, value.type)
            if isinstance(post_op, Binary):
                return apply_binary(post_op.function, value, other)
            return select(value > 0.0, value, value * other)


def _factor(
    body: _Body, factor: Scale | ZeroPoint, result: Result, buffers: Mapping[str, Buffer]
) -> Expr:
    """A scale or zero point in the type of the value so far."""
    added, value = factor_at(factor, body.value.type, result, buffers)
    body.operands.extend(added)
    return value


def factor_at(
    factor: Scale | ZeroPoint, type: DType, result: Result, buffers: Mapping[str, Buffer]
) -> tuple[tuple[Operand, ...], Expr]:
    """A scale or zero point as ``type``, and the operand that loads it unless it is a constant.

    Raises `UnsupportedError` when it varies along a dim that is summed over.
    """
    if factor.value is not None:
        return (), const(held(factor.value, type), type)
    is_scale = isinstance(factor, Scale)
    name = scale_name(factor.tensor) if is_scale else zero_point_name(factor.tensor)
    index = _varying(factor.policy, factor.tensor, result)
    added = operand(name, buffers[name], (index,))
    return (added,), cast(type, added.var)


def _varying(policy: Policy, tensor: str, result: Result) -> Expr:
    """Where the argument that varies as ``policy`` says is read. Raises `UnsupportedError`."""
    view = View(result.out, result.index) if tensor == "dst" else result.inputs[tensor]
    shape = view.buffer.shape
    chosen = policy.dims(
        len(shape), tensor=tensor, driver=result.driver, grouped=tensor in result.grouped
    )
    kept = {dim.var for dim in result.dims}
    flat: Expr = const(0)
    for axis in chosen:
        if not variables(view.index[axis]) <= kept:
            raise UnsupportedError(
                f"policy {policy.name} of {tensor} varies along dim {axis}, which is summed over",
                why="it is applied to the sum",
                cure="choose a policy over the dims that the result keeps",
            )
        flat = view.index[axis] if axis == chosen[0] else flat * shape[axis] + view.index[axis]
    return flat

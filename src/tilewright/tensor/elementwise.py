"""Elementwise ops: a function of the elements of tensors of one shape."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from tilewright.dtypes import DType, boolean, u8, u16, u32, u64
from tilewright.dtypes import dtype as type_of
from tilewright.ir import expr as ir
from tilewright.ir.expr import Binary, Expr, Unary
from tilewright.ir.load import Load
from tilewright.ir.operators import SOFTWARE
from tilewright.ir.visit import walk
from tilewright.tensor.places import axis
from tilewright.tensor.sharing import share
from tilewright.tensor.tensor import Tensor, builder_of, described

# An expression of places alone is computed again where it is used, up to this many parts.
_CHEAP = 12
_COSTLY = frozenset({"sqrt", "rsqrt", *SOFTWARE})
_UNSIGNED = {8: u8, 16: u16, 32: u32, 64: u64}


def elementwise(
    function: Callable[..., Expr],
    *tensors: Tensor,
    dtype: object = None,
    name: str = "map",
) -> Tensor:
    """``function`` of the elements of tensors of one shape, as ``dtype`` (its own type without).

    ``function`` takes expressions of the tensors' types, and gives one. What depends on places and
    numbers only stays an expression, if it is a small one.
    """
    builder = builder_of(tensors, name)
    builder.check_tensors(*tensors)
    shape = tensors[0].shape
    for other in tensors[1:]:
        if other.shape != shape:
            raise builder.refuse(
                f"{name} of {described(tensors[0])} and {described(other)}",
                "broadcast them to one shape first",
            )
    try:
        value = function(*(tensor.value for tensor in tensors))
    except TypeError as error:
        types = ", ".join(map(described, tensors))
        raise builder.refuse(
            f"{name} is not defined on {types}", "convert the operands first", str(error)
        ) from None
    if dtype is not None:
        value = ir.cast(type_of(dtype), value)
    (result,) = share([builder.tensor(shape, value)], builder.named(name))
    if result.is_computed and is_cheap(result.value):
        return result
    return builder.materialize(result, builder.named(name)) if result.buffer is None else result


def expression(function: Callable[..., Expr], *tensors: Tensor) -> Tensor:
    """`elementwise` without memory: computed by whatever reads the result."""
    return tensors[0].builder.tensor(tensors[0].shape, function(*(t.value for t in tensors)))


def convert(tensor: Tensor, to: object) -> Tensor:
    """Elements as another type (see the IR's conversions). What loses nothing is done where the
    result is used."""
    new = type_of(to)
    if new is tensor.dtype:
        return tensor
    value = ir.cast(new, tensor.value)
    if isinstance(tensor.value, Load) and is_exact(tensor.dtype, new):
        return Tensor(tensor.builder, tensor.shape, value)
    return elementwise(lambda x: ir.cast(new, x), tensor, name="convert")


def bitcast(tensor: Tensor, to: object) -> Tensor:
    """The bits of elements as another type. Narrower ones get a last dim of their number, the
    lowest bits first; for wider ones the last dim has to be so long, and goes."""
    new, old, builder = type_of(to), tensor.dtype, tensor.builder
    if new is old:
        return tensor
    if new.bits == old.bits:
        return elementwise(lambda x: ir.bitcast(new, x), tensor, name="bitcast")
    if not {new.bits, old.bits} <= _UNSIGNED.keys():
        raise builder.refuse(f"the bits of {old} as {new}", "convert it, or use types of 8 bits on")
    if new.bits < old.bits:
        return _split_bits(tensor, new)
    count = new.bits // old.bits
    if not tensor.shape or tensor.shape[-1] != count:
        raise builder.refuse(
            f"the bits of {described(tensor)} as {new}", f"make the last dim {count} long"
        )
    narrow, wide = _UNSIGNED[old.bits], _UNSIGNED[new.bits]
    outer = [axis(n) for n in range(tensor.rank - 1)]
    value: Expr | None = None
    for part in range(count):
        bits = ir.cast(wide, ir.bitcast(narrow, tensor.at(*outer, part))) << part * old.bits
        value = bits if value is None else value | bits
    assert value is not None
    result = builder.tensor(tensor.shape[:-1], ir.bitcast(new, value))
    return builder.materialize(result, builder.named("bitcast"))


def _split_bits(tensor: Tensor, new: DType) -> Tensor:
    old, builder = tensor.dtype, tensor.builder
    wide, narrow = _UNSIGNED[old.bits], _UNSIGNED[new.bits]
    place = ir.cast(wide, axis(tensor.rank)) * new.bits
    value = ir.cast(narrow, ir.bitcast(wide, tensor.value) >> place)
    shape = (*tensor.shape, old.bits // new.bits)
    result = builder.tensor(shape, ir.bitcast(new, value))
    return builder.materialize(result, builder.named("bitcast"))


def select(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``a`` where ``condition`` (bool) holds, else ``b``; one shape."""
    if condition.dtype is not boolean:
        cure = "compare it with 0 first"
        raise condition.builder.refuse(f"the condition is {condition.dtype}, not bool", cure)
    return elementwise(ir.select, condition, a, b, name="select")


def plus(
    product: Tensor, addend: Tensor | None, dtype: DType, alpha: float = 1, beta: float = 1
) -> Tensor:
    """``alpha * product + beta * addend`` in the type of ``product``, rounded to ``dtype`` once. An
    addend that counts nothing is not read: it may hold NaN."""
    type_ = product.dtype

    def scaled(x: Expr, factor: float) -> Expr:
        if factor == 1:
            return x
        return x * ir.const(factor if type_.is_float else int(factor), type_)

    def value(x: Expr, *rest: Expr) -> Expr:
        expr = scaled(x, alpha)
        return expr + scaled(ir.cast(type_, rest[0]), beta) if rest else expr

    addends = [] if addend is None or beta == 0 else [addend]
    if not addends and alpha == 1:
        return convert(product, dtype)
    return elementwise(value, product, *addends, dtype=dtype)


def is_cheap(value: Expr) -> bool:
    """Whether an expression that loads nothing may be computed again where it is used."""
    nodes = list(islice(walk(value), _CHEAP + 1))
    return len(nodes) <= _CHEAP and not any(
        isinstance(n, Unary | Binary) and n.op in _COSTLY for n in nodes
    )


def is_exact(old: DType, new: DType) -> bool:
    """Whether each value of ``old`` is one of ``new``."""
    if old.kind == "bool":
        return True
    if old.is_integer:
        if new.is_integer:
            return new.bits > old.bits and (new.kind == "int" or old.kind == "uint")
        return new.is_float and new.epsilon * 2 ** (old.bits - 1) < 1 and new.bits >= 32
    return new.is_float and new.bits > old.bits

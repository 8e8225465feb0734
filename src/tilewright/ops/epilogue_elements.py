"""The elements of an epilogue as users write them: ``[bias(), add("residual"), relu()]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.calls import checked_call
from tilewright.dtypes import DType, f32, s32
from tilewright.dtypes import dtype as dtype_of
from tilewright.errors import ProblemError, one_of, short
from tilewright.ops.attributes import Attributes
from tilewright.problems import (
    BINARY_FUNCTIONS,
    Binary,
    Policy,
    PostOp,
    Prelu,
    Scale,
    Sum,
    Unary,
    ZeroPoint,
)


@dataclass(frozen=True, slots=True)
class Bias:
    """A vector along the channels (the columns of a matmul), as the argument ``bias``."""

    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class BinaryOperand:
    """``function(result, tensor)`` with a tensor of its own, the argument ``name``."""

    function: str
    name: str
    dtype: DType | None
    policy: Policy
    tag: str


@dataclass(frozen=True, slots=True)
class PreluWeights:
    """``result if result > 0 else weight * result``; the weights are the f32 argument ``name``."""

    name: str
    policy: Policy


Element = Bias | BinaryOperand | PreluWeights | Unary | Sum | Scale | ZeroPoint


@checked_call
def bias(dtype: str | DType | None = None) -> Bias:
    """``result[n, o, p] + bias[o]``: the argument ``bias`` is a vector along the channels, the
    columns of a matmul; of f32 (f64 in an op of f64) unless given. Raises `UnsupportedError`."""
    return Bias(None if dtype is None else dtype_of(dtype))


@checked_call
def binary(
    function: str,
    name: str,
    *,
    dtype: str | DType | None = None,
    policy: str = "per_tensor",
    tag: str = "any",
) -> BinaryOperand:
    """``function(result, name)``: ``"add"``, ``"max"``, ... of the result and a kernel argument.

    Its shape is the result's where ``policy`` says (everywhere; ``per_oc``: along channels), else
    1; its type and layout are the result's unless given. Raises `ProblemError`.
    """
    if not isinstance(function, str) or function not in BINARY_FUNCTIONS:
        raise ProblemError(
            f"unknown binary function {short(function)}",
            where=f"binary({short(function)}, {short(name)})",
            cure=one_of(function, BINARY_FUNCTIONS),
        )
    type_ = None if dtype is None else dtype_of(dtype)
    _check_text("the tag of an operand", tag)
    return BinaryOperand(function, _named(name), type_, Policy(policy), tag)


@checked_call
def add(
    name: str, *, dtype: str | DType | None = None, policy: str = "per_tensor"
) -> BinaryOperand:
    """``result + name``, a kernel argument; see `binary`. Raises `ProblemError`."""
    return binary("add", name, dtype=dtype, policy=policy)


@checked_call
def sub(
    name: str, *, dtype: str | DType | None = None, policy: str = "per_tensor"
) -> BinaryOperand:
    """``result - name``, a kernel argument; see `binary`. Raises `ProblemError`."""
    return binary("sub", name, dtype=dtype, policy=policy)


@checked_call
def mul(
    name: str, *, dtype: str | DType | None = None, policy: str = "per_tensor"
) -> BinaryOperand:
    """``result * name``, a kernel argument; see `binary`. Raises `ProblemError`."""
    return binary("mul", name, dtype=dtype, policy=policy)


@checked_call
def div(
    name: str, *, dtype: str | DType | None = None, policy: str = "per_tensor"
) -> BinaryOperand:
    """``result / name``, a kernel argument; see `binary`. Raises `ProblemError`."""
    return binary("div", name, dtype=dtype, policy=policy)


@checked_call
def unary(function: str, alpha: float = 0.0, beta: float = 0.0, scale: float = 1.0) -> Unary:
    """``scale * function(result)``: a function of one argument, and the numbers of its formula.

    Raises `ProblemError` for an unknown one, and for a number that it does not take or cannot work
    with.
    """
    return Unary(function, alpha, beta, scale)


@checked_call
def relu(alpha: float = 0.0) -> Unary:
    """``result if result > 0 else alpha * result``; NaN stays NaN. Raises `ProblemError`."""
    return Unary("relu", alpha)


@checked_call
def prelu(name: str, policy: str = "per_oc") -> PreluWeights:
    """``result if result > 0 else name * result``: the weights are a kernel argument of f32, one
    for each channel unless ``policy`` says otherwise; see `binary`. Raises `ProblemError`."""
    return PreluWeights(_named(name), Policy(policy))


@checked_call
def sum(scale: float = 1.0, zero_point: int = 0, dtype: str | DType | None = None) -> Sum:
    """``result + scale * (old dst - zero_point)``: the old one is read before it is written,
    as an array of ``dtype``, if that is given. Raises `ProblemError`."""
    return Sum(scale, zero_point, None if dtype is None else dtype_of(dtype))


@checked_call
def scale(
    tensor: str,
    value: float | None = None,
    *,
    policy: str = "common",
    dtype: str | DType = f32,
    group: int | None = None,
) -> Scale:
    """A factor of ``src`` or ``weights``, a divisor of ``dst``.

        dst = (src_scale * weights_scale * sum + bias, post-ops) / dst_scale

    Without a value it is the kernel argument ``TENSOR_scale``, of one element or as ``policy``
    says. A value is finite and not 0. ``scale("weights", policy="per_ocic", group=64)``: one for
    64 neighbours along K of each column of a matmul, an array of (K / 64, N); see `matmul`. Of
    ``"src"``, of 8 bits, it is (M, K / 64). Raises `ProblemError`. Source: oneDNN's developer
    guide, "Quantization".
    """
    chosen = Policy(policy)
    _check_policy("scale", tensor, value, policy)
    return Scale(tensor, chosen, value, dtype_of(dtype), group)


@checked_call
def zero_point(
    tensor: str,
    value: int | None = None,
    *,
    policy: str = "common",
    dtype: str | DType = s32,
    group: int | None = None,
) -> ZeroPoint:
    """What is subtracted from ``src`` or ``weights``, and added to ``dst``.

        sum = sum of (src - src_zero_point) * (weights - weights_zero_point), of taps that exist

    Without a value, a whole number, it is the kernel argument ``TENSOR_zero_point``; see `scale`,
    also for ``group``. Zero points of weights may have 4 bits, each in a byte.
    Raises `ProblemError`. Source: oneDNN's developer guide, "Quantization".
    """
    chosen = Policy(policy)
    _check_policy("zero_point", tensor, value, policy)
    return ZeroPoint(tensor, chosen, value, dtype_of(dtype), group)


def attributes_of(elements: Sequence[Element], *, bias: DType, result: DType) -> Attributes:
    """The attributes that ``elements`` say, for a result of type ``result``.

    ``bias`` is the type of a bias that names none. Raises `ProblemError` for elements in an order
    other than that of their effects, and for two of what there can be one of.
    """
    if isinstance(elements, Element) or not isinstance(elements, Sequence):
        raise ProblemError(
            f"{short(elements)} is no epilogue",
            where="epilogue",
            cure="give a list of elements, such as [bias(), relu()]",
        )
    last = 0
    for element in elements:
        if not isinstance(element, Element):
            raise ProblemError(
                f"{short(element)} is no element of an epilogue",
                where="epilogue",
                cure="use bias(), add(name), relu(), unary(function), sum(), scale(tensor), ...",
            )
        if _stage(element) < last:
            raise ProblemError(
                f"{describe(element)} stands behind what has its effect later",
                where="epilogue",
                why="the order is: zero points and scales of inputs, bias, post-ops, scale and "
                "zero point of dst",
                cure="write the epilogue in this order; a later bias is add(name, policy='per_oc')",
            )
        last = _stage(element)
    biases = [element for element in elements if isinstance(element, Bias)]
    _check_single(elements)
    post_ops: list[PostOp] = []
    names: list[str] = []
    for element in elements:
        match element:
            case BinaryOperand():
                type_ = element.dtype or result
                post_ops.append(Binary(element.function, type_, element.policy, element.tag))
                names.append(element.name)
            case PreluWeights():
                post_ops.append(Prelu(element.policy))
                names.append(element.name)
            case Unary() | Sum():
                post_ops.append(element)
                names.append("")
    return Attributes(
        bias=(biases[0].dtype or bias) if biases else None,
        scales=tuple(element for element in elements if isinstance(element, Scale)),
        zero_points=tuple(element for element in elements if isinstance(element, ZeroPoint)),
        post_ops=tuple(post_ops),
        names=tuple(names),
    )


def describe(element: Element) -> str:
    """How an element is named in errors."""
    match element:
        case Bias():
            return "the bias"
        case BinaryOperand():
            return f"{element.function}({element.name!r})"
        case PreluWeights():
            return f"prelu({element.name!r})"
        case Scale() | ZeroPoint():
            kind = "scale" if isinstance(element, Scale) else "zero point"
            return f"the {kind} of {element.tensor}"
        case _:
            return element.describe()


def _stage(element: Element) -> int:
    """When an element has its effect."""
    match element:
        case ZeroPoint():
            return 5 if element.tensor == "dst" else 0
        case Scale():
            return 4 if element.tensor == "dst" else 1
        case Bias():
            return 2
        case _:
            return 3


def _check_single(elements: Sequence[Element]) -> None:
    seen: set[str] = set()
    for element in elements:
        if isinstance(element, Bias | Scale | ZeroPoint):
            text = describe(element)
            if text in seen:
                raise ProblemError(
                    f"{text} is given twice", where="epilogue", cure="keep one of the two"
                )
            seen.add(text)


def _named(name: object) -> str:
    _check_text("the name of an operand", name)
    return str(name)


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise ProblemError(f"{what} is a text, not {short(value)}", cure="write it in quotes")


def _check_policy(what: str, tensor: str, value: float | None, policy: str) -> None:
    if value is not None and policy != "common":
        raise ProblemError(
            f"policy {short(policy)} takes no value",
            where=f"{what}({short(tensor)}, {short(value)}, policy={short(policy)})",
            why="its values are an array, given when the kernel is called",
            cure="leave the value out, or the policy",
        )

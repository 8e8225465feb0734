"""Functions of one argument, each in one record: what it is, as an expression, in float64, how far
off it may be, and what PyTorch calls it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.dtypes import DType, boolean, f32, f64
from tilewright.ir.expr import Expr, unary
from tilewright.problems import activations, functions

Array = np.ndarray[Any, np.dtype[np.float64]]
# What computes it in PyTorch: of the first argument, into the second.
PeerStep = Callable[[Any, Any], Any]
Build = Callable[[Expr, float, float], Expr]

# Library functions are within a few units in the last place, and formulas call several.
_UNITS = 16


@dataclass(frozen=True, slots=True)
class UnaryFunction:
    """A function of one argument ``s``. ``build``, ``reference`` and ``peer`` take alpha and beta
    behind what else they take; ``parameters`` are those of the two that the function uses.

    ``build`` gives the expression, of the type of its argument (a float, or what ``keeps`` takes);
    ``reference`` the numbers in float64, which are finite within ``domain``. ``units`` bounds the
    error of the former, in roundings of the result; 0: it is made of additions, multiplications,
    comparisons and rounding, and exact where the result is. ``peer`` gives what computes it in the
    module ``torch``, or None where that has no such numbers.

    ``breaks`` says, of the ends of ranges of arguments and of beta, in which ranges a pole lies, or
    more of a wave than the results at both ends bound; without it, they bound all between.

    ``aten``, ``onnx`` and ``stablehlo`` are the names by which front ends call it without alpha and
    beta, or none. Of integers it gives floats, unless it ``keeps`` their type. StableHLO's floats
    that are narrower than ``least`` are computed in that, where errors of many steps are not seen.
    """

    name: str
    formula: str
    build: Build
    reference: Callable[[Array, float, float], Any]
    peer: Callable[[Any, float, float], PeerStep | None]
    parameters: tuple[str, ...] = ()
    units: int = _UNITS
    domain: tuple[float, float] = (-math.inf, math.inf)
    breaks: Callable[[Array, Array, float], Any] | None = None
    aten: str = ""
    onnx: str = ""
    stablehlo: str = ""
    keeps: bool = False
    least: DType | None = None

    def of(self, s: Expr) -> Expr:
        """The expression without alpha and beta."""
        return self.build(s, 0.0, 0.0)


# Numbers in float64.


def _erf64(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.ravel()), np.float64, x.size).reshape(x.shape)


def _logistic64(x: Array) -> Any:
    # exp of a positive number overflows: use the half of the formula that does not.
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + tail), tail / (1.0 + tail))


def _soft_plus64(x: Array) -> Any:
    return np.logaddexp(0.0, x)


def _gelu_tanh64(x: Array) -> Any:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _clip64(x: Array, alpha: float, beta: float) -> Any:
    return np.minimum(np.maximum(x, alpha), beta)


def _relu64(x: Array, alpha: float, beta: float) -> Any:
    # Of minus infinity, 0 times x is NaN.
    return np.maximum(x, 0.0) if alpha == 0 else np.where(x > 0, x, alpha * x)


def _hardsigmoid64(x: Array, alpha: float, beta: float) -> Any:
    return np.clip(alpha * x + beta, 0.0, 1.0)


# In PyTorch.


def _torch(name: str) -> Callable[[Any, float, float], PeerStep]:
    """The function of that name, which has no numbers."""
    return lambda torch, alpha, beta: lambda x, out: getattr(torch, name)(x, out=out)


def _torch_nn(
    name: str, *numbers: float, **options: Any
) -> Callable[[Any, float, float], PeerStep | None]:
    """That of torch's layers, whose alpha and beta are ``numbers``."""

    def peer(torch: Any, alpha: float, beta: float) -> PeerStep | None:
        # A number of a descriptor has few digits.
        if any(
            abs(number - usual) > 1e-6
            for number, usual in zip(numbers, (alpha, beta), strict=False)
        ):
            return None
        run = getattr(torch._C._nn, name)
        return lambda x, out: run(x, out=out, **options)

    return peer


def _torch_relu(torch: Any, alpha: float, beta: float) -> PeerStep:
    if alpha == 0:
        return lambda x, out: torch.clamp_min(x, 0, out=out)
    return lambda x, out: torch._C._nn.leaky_relu(x, alpha, out=out)


def _torch_clip(torch: Any, alpha: float, beta: float) -> PeerStep:
    return lambda x, out: torch.clamp(x, alpha, beta, out=out)


def _torch_elu(torch: Any, alpha: float, beta: float) -> PeerStep:
    return lambda x, out: torch._C._nn.elu(x, alpha, out=out)


def _torch_linear(torch: Any, alpha: float, beta: float) -> PeerStep:
    return lambda x, out: torch.mul(x, alpha, out=out).add_(beta)


def _torch_pow(torch: Any, alpha: float, beta: float) -> PeerStep:
    if alpha == 1:
        return lambda x, out: torch.pow(x, beta, out=out)
    return lambda x, out: torch.pow(x, beta, out=out).mul_(alpha)


def _torch_soft_relu(torch: Any, alpha: float, beta: float) -> PeerStep:
    # Above the threshold it is taken for s, as by default there: the difference is below 2.1e-9.
    return lambda x, out: torch._C._nn.softplus(x, alpha, 20, out=out)


def _torch_cbrt(torch: Any, alpha: float, beta: float) -> PeerStep:
    return lambda x, out: torch.copysign(x.abs().pow(1 / 3), x, out=out)


def _torch_softsign(torch: Any, alpha: float, beta: float) -> PeerStep:
    return lambda x, out: torch.div(x, x.abs() + 1, out=out)


_A, _AB = ("alpha",), ("alpha", "beta")
_SIXTH = (1 / 6, 1 / 2)
_POSITIVE = (0.0, math.inf)


def _function(
    name: str,
    formula: str,
    reference: Callable[[Array], Any],
    build: Callable[[Expr], Expr] | None = None,
    **rest: Any,
) -> UnaryFunction:
    """A function that takes no numbers: the IR's operator of this name without ``build``."""
    of = partial(unary, name) if build is None else build
    rest.setdefault("peer", _torch(name))
    return UnaryFunction(name, formula, lambda s, a, b: of(s), lambda x, a, b: reference(x), **rest)


def _rounding(
    name: str,
    formula: str,
    reference: Callable[[Array], Any],
    build: Callable[[Expr], Expr] | None = None,
    **rest: Any,
) -> UnaryFunction:
    """The same, where whole numbers stay what they are."""
    of = partial(unary, name) if build is None else build

    def rounded(s: Expr) -> Expr:
        return of(s) if s.type.is_float else s

    return _function(name, formula, reference, rounded, units=0, keeps=True, aten=name, **rest)


def _common(
    name: str,
    reference: Callable[[Array], Any],
    build: Callable[[Expr], Expr] | None = None,
    stablehlo: str = "",
    **rest: Any,
) -> UnaryFunction:
    """A function that PyTorch and ONNX call by its name, and StableHLO, unless otherwise said."""
    names = {"aten": name, "onnx": name.capitalize(), "stablehlo": stablehlo or name}
    return _function(name, f"{name}(s)", reference, build, **names, **rest)


_WAVE: Any = {"breaks": lambda low, high, _: high - low > math.pi}
_POLES: Any = {"breaks": lambda low, high, _: np.rint(low / math.pi) != np.rint(high / math.pi)}

# Those of oneDNN.
_PRIMITIVES = (
    _function(
        "abs",
        "|s|",
        np.abs,
        lambda s: s if s.type is boolean else unary("abs", s),
        units=0,
        aten="abs",
        onnx="Abs",
        stablehlo="abs",
        keeps=True,
    ),
    UnaryFunction(
        "clip", "min(max(s, alpha), beta)", activations.clip, _clip64, _torch_clip, _AB, units=0
    ),
    UnaryFunction(
        "clip_v2", "min(max(s, alpha), beta)", activations.clip, _clip64, _torch_clip, _AB, units=0
    ),
    UnaryFunction(
        "elu",
        "s if s > 0 else alpha * (exp(s) - 1)",
        activations.elu,
        lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0.0))),
        _torch_elu,
        _A,
    ),
    _common("exp", np.exp, stablehlo="exponential", domain=(-math.inf, 88.0)),
    UnaryFunction(
        "gelu_erf",
        "0.5 * s * (1 + erf(s / sqrt(2)))",
        activations.gelu_erf,
        lambda x, a, b: 0.5 * x * (1.0 + _erf64(x / math.sqrt(2.0))),
        _torch_nn("gelu"),
    ),
    UnaryFunction(
        "gelu_tanh",
        "0.5 * s * (1 + tanh(sqrt(2 / pi) * (s + 0.044715 * s^3)))",
        activations.gelu_tanh,
        lambda x, a, b: _gelu_tanh64(x),
        _torch_nn("gelu", approximate="tanh"),
    ),
    UnaryFunction(
        "hardsigmoid",
        "max(0, min(1, alpha * s + beta))",
        activations.hardsigmoid,
        _hardsigmoid64,
        _torch_nn("hardsigmoid", *_SIXTH),
        _AB,
        units=0,
    ),
    UnaryFunction(
        "hardswish",
        "s * max(0, min(1, alpha * s + beta))",
        lambda s, alpha, beta: s * activations.hardsigmoid(s, alpha, beta),
        lambda x, a, b: x * _hardsigmoid64(x, a, b),
        _torch_nn("hardswish", *_SIXTH),
        _AB,
        units=0,
    ),
    UnaryFunction(
        "linear",
        "alpha * s + beta",
        activations.linear,
        lambda x, a, b: a * x + b,
        _torch_linear,
        _AB,
        0,
    ),
    _common("log", np.log, domain=_POSITIVE),
    _function(
        "logistic",
        "1 / (1 + exp(-s))",
        _logistic64,
        activations.logistic,
        peer=_torch("sigmoid"),
        aten="sigmoid",
        onnx="Sigmoid",
        stablehlo="logistic",
        least=f32,
    ),
    UnaryFunction(
        "mish",
        "s * tanh(log(1 + exp(s)))",
        activations.mish,
        lambda x, a, b: x * np.tanh(_soft_plus64(x)),
        _torch_nn("mish"),
        aten="mish",
        onnx="Mish",
    ),
    UnaryFunction(
        "pow",
        "alpha * s^beta",
        activations.pow,
        lambda x, a, b: a * np.power(x, b),
        _torch_pow,
        _AB,
        domain=_POSITIVE,
        breaks=lambda low, high, beta: (low <= 0) & (high >= 0) & (beta < 0),
    ),
    UnaryFunction(
        "relu", "s if s > 0 else alpha * s", activations.relu, _relu64, _torch_relu, _A, units=0
    ),
    _rounding(
        "round",
        "s rounded to the nearest whole number, ties to even",
        np.rint,
        onnx="Round",
        stablehlo="round_nearest_even",
    ),
    UnaryFunction(
        "soft_relu",
        "log(1 + exp(alpha * s)) / alpha",
        activations.soft_relu,
        lambda x, a, b: _soft_plus64(a * x) / a,
        _torch_soft_relu,
        _A,
    ),
    _common("sqrt", np.sqrt, domain=_POSITIVE),
    UnaryFunction(
        "square",
        "s^2",
        lambda s, alpha, beta: s * s,
        lambda x, a, b: x * x,
        _torch("square"),
        units=0,
        stablehlo="square",
    ),
    UnaryFunction(
        "swish",
        "s / (1 + exp(-alpha * s))",
        activations.swish,
        lambda x, a, b: x * _logistic64(a * x),
        _torch_nn("silu", 1.0),
        _A,
    ),
    _common("tanh", np.tanh),
)


_UNIT = (-1.0, 1.0)
# What front ends have beside these.
_OTHERS = (
    _common("acos", np.arccos, functions.acos, least=f64, domain=_UNIT),
    _common("acosh", np.arccosh, functions.acosh, least=f64, domain=(1.0, math.inf)),
    _common("asin", np.arcsin, functions.asin, least=f64, domain=_UNIT),
    _common("asinh", np.arcsinh, functions.asinh, least=f64),
    _common("atan", np.arctan, functions.atan, least=f64),
    _common("atanh", np.arctanh, functions.atanh, least=f64, domain=_UNIT),
    _function(
        "cbrt",
        "the real cube root of s",
        np.cbrt,
        functions.cbrt,
        peer=_torch_cbrt,
        stablehlo="cbrt",
        least=f64,
    ),
    _rounding("ceil", "s rounded up to a whole number", np.ceil, onnx="Ceil", stablehlo="ceil"),
    _common("cos", np.cos, stablehlo="cosine", **_WAVE),
    _common("cosh", np.cosh, functions.cosh, least=f32, domain=(-89.0, 89.0)),
    _common("erf", _erf64),
    _function("exp2", "2^s", np.exp2, domain=(-math.inf, 127.0), aten="exp2"),
    _function(
        "expm1",
        "exp(s) - 1",
        np.expm1,
        functions.expm1,
        domain=(-math.inf, 88.0),
        aten="expm1",
        stablehlo="exponential_minus_one",
        least=f64,
    ),
    _rounding(
        "floor", "s rounded down to a whole number", np.floor, onnx="Floor", stablehlo="floor"
    ),
    _function(
        "log10", "log(s) / log(10)", np.log10, functions.log10, domain=_POSITIVE, aten="log10"
    ),
    _function(
        "log1p",
        "log(1 + s)",
        np.log1p,
        domain=(-1.0, math.inf),
        aten="log1p",
        stablehlo="log_plus_one",
    ),
    _function("log2", "log(s) / log(2)", np.log2, functions.log2, domain=_POSITIVE, aten="log2"),
    _function(
        "reciprocal",
        "1 / s",
        np.reciprocal,
        functions.reciprocal,
        domain=_POSITIVE,
        breaks=lambda low, high, beta: (low <= 0) & (high >= 0),
        aten="reciprocal",
        onnx="Reciprocal",
    ),
    _function(
        "rsqrt",
        "1 / sqrt(s)",
        lambda x: 1 / np.sqrt(x),
        domain=_POSITIVE,
        aten="rsqrt",
        stablehlo="rsqrt",
    ),
    _function(
        "sign",
        "-1, 0 or 1 by the sign of s",
        np.sign,
        functions.sign,
        units=0,
        onnx="Sign",
        stablehlo="sign",
        keeps=True,
    ),
    _common("sin", np.sin, stablehlo="sine", **_WAVE),
    _common("sinh", np.sinh, functions.sinh, least=f32, domain=(-89.0, 89.0)),
    _function(
        "softsign",
        "s / (1 + |s|)",
        lambda x: x / (1 + np.abs(x)),
        activations.softsign,
        peer=_torch_softsign,
        onnx="Softsign",
    ),
    _common("tan", np.tan, functions.tan, least=f64, **_POLES),
    _rounding("trunc", "s rounded towards zero", np.trunc, functions.trunc),
)
UNARY_FUNCTIONS = {function.name: function for function in (*_PRIMITIVES, *_OTHERS)}

# Names that PyTorch and JAX have for some of them, and the alpha that these mean.
UNARY_ALIASES = {
    "gelu": ("gelu_erf", 0.0),
    "sigmoid": ("logistic", 0.0),
    "silu": ("swish", 1.0),
    "softplus": ("soft_relu", 1.0),
}

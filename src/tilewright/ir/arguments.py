"""The arguments of scalar parameters: checked against the parameter's type and promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.conversions import represented
from tilewright.errors import ArgumentError, short
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, ScalarParam

Scalar = bool | int | float


def scalar_argument(param: ScalarParam, value: Any, where: str) -> Scalar:
    """``value`` as the Python number that ``param`` holds (a float is rounded to its type).

    `ArgumentError`, naming ``where`` (the call), for a value that is no such number, does not fit
    the type, or breaks a promise.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    type_ = param.dtype
    problem = None
    if type_.kind == "bool":
        if isinstance(value, bool | np.bool_):
            return bool(value)
        problem = "it must be True or False"
    elif type_.is_float:
        real = isinstance(value, int | float | np.integer | np.floating) or (
            isinstance(value, np.generic) and value.dtype.kind in "fV"  # ml_dtypes' are V
        )
        if real and not isinstance(value, bool):
            number = represented(float(value), type_)
            if math.isfinite(float(value)) and not math.isfinite(number):
                problem = f"{type_} holds nothing so great"
            else:
                return float(number)
        else:
            problem = "it must be a number"
    elif isinstance(value, bool) or not isinstance(value, int | np.integer):
        problem = "it must be an integer"
    else:
        problem = _broken_promise(param, int(value))
        if problem is None:
            return int(value)
    raise ArgumentError(
        f"the argument {param.name} is {short(value)}, but {problem}",
        where=where,
        why=f"the kernel declares it as `{to_text(param)}`",
        cure="pass a number that keeps what the parameter promises",
    )


def _broken_promise(param: ScalarParam, value: int) -> str | None:
    """Which promise the integer ``value`` breaks."""
    type_ = param.dtype
    if not type_.lowest <= value <= type_.highest:
        return f"{type_} holds {type_.lowest} to {type_.highest}"
    if param.low is not None and value < param.low:
        return f"it must be at least {param.low}"
    if param.high is not None and value > param.high:
        return f"it must be at most {param.high}"
    if value % param.divisor:
        return f"it must be a multiple of {param.divisor}"
    return None


def scalar_arguments(kernel: Kernel, arguments: Mapping[str, Any]) -> dict[str, Scalar]:
    """The value of each scalar parameter of ``kernel``, by name, from ``arguments``.

    `ArgumentError` for one that is missing, and as `scalar_argument` raises it.
    """
    where = f"call of kernel {kernel.name}"
    values: dict[str, Scalar] = {}
    for param in kernel.scalars:
        if param.name not in arguments:
            raise ArgumentError(
                f"the argument {param.name} is missing",
                where=where,
                why=f"the kernel declares it as `{to_text(param)}`",
                cure=f"pass a number: `{param.name}=...`",
            )
        values[param.name] = scalar_argument(param, arguments[param.name], where)
    return values

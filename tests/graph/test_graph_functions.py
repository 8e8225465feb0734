"""Scalar functions made of the IR's, against numpy, in f32 and f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import DType, f32, f64, s32
from tilewright.ir.buffer import Buffer, row_major
from tilewright.ir.expr import Expr, const, var
from tilewright.ir.stmt import Compute, Dim, Kernel, Operand, Param, View
from tilewright.ir.visit import block
from tilewright.problems import UNARY_FUNCTIONS, functions

_EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-6, -1e-6, 3.0, -3.0, 30.0, -30.0, 80.0, -80.0]
_ODD = [np.inf, -np.inf, np.nan]

# Of those that take numbers, and of small results of `gelu`, other tests say how far they are off.
UNARY = {
    unary_function.name: unary_function
    for unary_function in UNARY_FUNCTIONS.values()
    if not unary_function.parameters and not unary_function.name.startswith("gelu")
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "truncated_division": lambda a, b: np.trunc(a / b),
    "floored_division": np.floor_divide,
}


def _whole(rows: Any) -> Any:
    """``rows`` without the last few: whole vectors, and half the code, as there is no rest."""
    return rows[: len(rows) // 16 * 16]


def computed(
    functions_of: dict[str, Callable[..., Expr]], type_: DType, *columns: Any
) -> dict[str, Any]:
    """What one kernel computes with all of the functions, at each row of ``columns``."""
    count = len(columns[0])
    i = var("i")
    inputs = [Buffer(f"x{k}", type_, (count,), row_major((count,))) for k, _ in enumerate(columns)]
    names = [var(f"a{k}", type_) for k, _ in enumerate(columns)]
    operands = tuple(
        Operand(name, View(input_, (i,))) for name, input_ in zip(names, inputs, strict=True)
    )
    body, outputs = [], []
    for name, function in functions_of.items():
        value = function(*names)
        out = Buffer(name, value.type, (count,), row_major((count,)))
        outputs.append(out)
        body.append(
            Compute.single(f"{name}_", (Dim(i, const(count)),), View(out, (i,)), operands, value)
        )
    params = [Param(input_, "in") for input_ in inputs] + [
        Param(output, "out") for output in outputs
    ]
    kernel = Kernel("functions", tuple(params), block(*body))
    results = tw.compile(kernel, threads=1)(*columns)
    return results if isinstance(results, dict) else {outputs[0].name: results}


@pytest.mark.parametrize("type_", [f32, f64], ids=str)
def test_functions_are_numpys(type_: DType) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([_EDGES, _ODD, rng.normal(size=200) * 3, rng.uniform(-1, 1, 119)])
    x = _whole(x).astype(type_.numpy)
    result = computed({name: value.of for name, value in UNARY.items()}, type_, x)
    with np.errstate(all="ignore"):
        for name, function in UNARY.items():
            wanted = function.reference(x.astype(np.float64), 0.0, 0.0).astype(x.dtype)
            np.testing.assert_allclose(
                result[name], wanted, rtol=64 * type_.epsilon, atol=0, err_msg=name
            )
    finite = computed({"finite": functions.is_finite}, type_, x)["finite"]
    assert np.array_equal(finite, np.isfinite(x))


@pytest.mark.parametrize("type_", [f32, f64], ids=str)
def test_functions_of_two_are_numpys(type_: DType) -> None:
    rng = np.random.default_rng(1)
    # In f64, the quotient of 30 by 1e-6 leaves too few bits of the rest.
    edges = [x for x in (*_EDGES, *_ODD) if type_ is f32 or abs(x) != 1e-6]
    pairs = np.array([(a, b) for a in edges for b in edges])
    pairs = np.concatenate([pairs, rng.normal(size=(319, 2)) * (5, 2)])
    pairs = _whole(pairs).astype(type_.numpy)
    a, b = np.ascontiguousarray(pairs.T)
    result = computed({name: getattr(functions, name) for name in BINARY}, type_, a, b)
    with np.errstate(all="ignore"):
        for name, reference in BINARY.items():
            np.testing.assert_allclose(
                result[name],
                reference(a, b),
                rtol=64 * type_.epsilon,
                atol=1e-30 if type_ is f32 else 1e-14,
                err_msg=name,
            )
    known = ~np.isnan(a) & ~np.isnan(b)
    signs = np.signbit(result["atan2"]), np.signbit(np.arctan2(a, b))
    assert np.array_equal(signs[0][known], signs[1][known])


@pytest.mark.parametrize("name", ["atan", "asin", "acos"])
def test_arcs_of_single_precision(name: str) -> None:
    """Within 2.5 units of the last place of float64's, next to 0 and to the ends, too."""
    rng = np.random.default_rng(2)
    small, ends = np.exp(rng.uniform(-30, 0, 512)), 1 - np.exp(rng.uniform(-16, 0, 512))
    sizes = np.concatenate([small, ends, np.linspace(0, 1, 1024)])
    if name == "atan":
        sizes = np.concatenate([sizes, np.exp(rng.uniform(0, 80, 512)), np.linspace(1, 4, 512)])
    x = np.concatenate([sizes, -sizes]).astype(np.float32)
    result = computed({name: getattr(functions, name)}, f32, x)[name].astype(np.float64)
    wanted = getattr(np, f"arc{name[1:]}")(x.astype(np.float64))
    units = np.abs(result - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert units.max() < 2.5
    assert np.array_equal(np.signbit(result), np.signbit(wanted))


def test_functions_of_integers() -> None:
    a, b = (x.ravel().astype(np.int32) for x in np.meshgrid(np.arange(-9, 10), [-4, -3, 1, 2, 5]))
    named = ("fmod", "remainder", "truncated_division", "floored_division")
    built: dict[str, Callable[..., Expr]] = {name: getattr(functions, name) for name in named}
    built["sign"] = lambda a, b: functions.sign(a)
    built["power"] = lambda a, b: functions.integer_power(a, 5)
    result = computed(built, s32, a, b)
    assert np.array_equal(result["fmod"], np.fmod(a, b))
    assert np.array_equal(result["remainder"], np.remainder(a, b))
    assert np.array_equal(result["truncated_division"], np.trunc(a / b))
    assert np.array_equal(result["floored_division"], a // b)
    assert np.array_equal(result["sign"], np.sign(a))
    assert np.array_equal(result["power"], a**5)

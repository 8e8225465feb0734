"""Images of another size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.dtypes import DType, boolean, f32, f64
from tilewright.frontends.onnx.table import Place, op, refuse
from tilewright.ir.expr import StandIn, cast, const, select, unary
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.nn.resampling import Tap, cubic_weights, looked_up, weighted
from tilewright.tensor.tensor import Tensor

Numbers = np.ndarray[Any, Any]


@op("Resize", "Upsample")
def resize(at: Place, x: Tensor, *inputs: Tensor | None) -> Tensor:
    """By tables of places and weights for each dim, which are made here."""
    scales, shape, dims = _resized(at, x)
    coordinate = at.attribute("coordinate_transformation_mode", "half_pixel")
    if at.op == "Upsample" or at.version < 11:
        coordinate = "asymmetric"
    crops = coordinate == "tf_crop_and_resize"
    corners = at.values(1).reshape(2, -1).T if crops else np.tile([0.0, 1.0], (len(dims), 1))
    if any(
        isinstance(length, StandIn)
        for n, size in zip(dims, shape, strict=True)
        if size != x.shape[n]
        for length in (size, x.shape[n])
    ):
        refuse("an image is resized along a size that calls pass")
    steps = [
        (n, size, scale, part)
        for n, size, scale, part in zip(dims, shape, scales, corners, strict=True)
        if (size, scale, list(part)) != (x.shape[n], 1, [0, 1])
    ]
    resized = x
    for number, (n, size, scale, part) in enumerate(steps, 1):
        if crops:
            places = _cropped(part[0], part[1], x.shape[n], size)
        else:
            places = _coordinates(coordinate, x.shape[n], size, scale)
        # Results are rounded once, after the last dim.
        type_ = x.dtype if number == len(steps) else _between(at, x.dtype)
        resized = _along(at, resized, n, places, scale, crops, type_)
    return resized


def _between(at: Place, type_: DType) -> DType:
    """In what type elements are weighted: of nearest ones, their own."""
    if at.attribute("mode", "nearest") == "nearest":
        return type_
    if type_ is boolean:
        refuse("resizing of booleans but by nearest")
    if type_.is_float:
        return accumulator_for(type_)
    return f32 if type_.bits < 32 else f64


def _resized(at: Place, x: Tensor) -> tuple[list[float], list[int], list[int]]:
    """Scales, sizes and numbers of the dims that change."""
    dims = [n % x.rank for n in at.attribute("axes", range(x.rank))]
    number = 1 if at.op == "Upsample" or at.version < 11 else 2
    if "scales" in at.attributes or (
        at.has(number) and at.known[number] is not None and at.values(number).size
    ):
        raw = at.attributes.get("scales")
        scales = [float(factor) for factor in (at.values(number) if raw is None else raw)]
        sizes = [
            x.shape[n] if s == 1 else int(x.shape[n] * s) for n, s in zip(dims, scales, strict=True)
        ]
        return scales, sizes, dims
    sizes = at.integers(3 if at.has(3) else number)
    scales = [size / x.shape[n] for n, size in zip(dims, sizes, strict=True)]
    policy = at.attribute("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        scale = (min if policy == "not_larger" else max)(scales)
        scales = [scale] * len(dims)
        sizes = [int(x.shape[n] * scale + 0.5) for n in dims]
    return scales, sizes, dims


def _cropped(start: float, stop: float, size: int, result: int) -> Numbers:
    """Where places of the result lie, from one part of the source to another."""
    if result == 1:
        return np.full(1, (start + stop) * (size - 1) / 2)
    return (start + np.arange(result) * (stop - start) / (result - 1)) * (size - 1)


def _coordinates(mode: str, size: int, result: int, scale: float) -> Numbers:
    """Where each place of the result lies in the source."""
    places = np.arange(result, dtype=np.float64)
    # The size that was asked for, which the result's is the whole part of.
    asked = scale * size
    if mode == "asymmetric":
        return places / scale
    if mode == "align_corners":
        return places * (size - 1) / (asked - 1) if asked != 1 else np.zeros(result)
    if mode == "pytorch_half_pixel" and result == 1:
        return np.full(1, -0.5)
    if mode == "half_pixel_symmetric":
        adjustment = result / asked
        center = size / 2
        return center * (1 - adjustment) + (places + 0.5) / scale - 0.5
    return (places + 0.5) / scale - 0.5


# How far an element counts, and how much by its distance.
Weight = Callable[[Numbers, float], Numbers]


def _linear(distance: Numbers, _: float) -> Numbers:
    weight: Numbers = np.maximum(1 - distance, 0)
    return weight


_WEIGHTS: dict[str, tuple[int, Weight]] = {"linear": (1, _linear), "cubic": (2, cubic_weights)}


def _taps(at: Place, places: Numbers, size: int, mode: str, scale: float) -> list[Tap]:
    """Places in the source and their weights, for each neighbour that counts: for ``antialias``,
    as many more as the result is smaller."""
    if mode not in _WEIGHTS:
        refuse(f"resizing by {mode}")
    reach, weight = _WEIGHTS[mode]
    scale = min(scale, 1.0) if at.attribute("antialias", 0) else 1.0
    low = np.floor(places)
    first = int(np.floor(-reach / scale)) + 1
    tables = []
    for step in range(first, 2 - first):
        distance = np.abs(low + step - places) * scale
        tables.append((low + step, weight(distance, at.attribute("cubic_coeff_a", -0.75))))
    if at.attribute("exclude_outside", 0):
        tables = [(p, w * ((p >= 0) & (p < size))) for p, w in tables]
    total = sum(w for _, w in tables)
    return [(p, w / total) for p, w in tables]


_NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _along(
    at: Place, x: Tensor, n: int, places: Numbers, scale: float, crops: bool, to: DType
) -> Tensor:
    """Resized along one dim, as elements of type ``to``: integers take the nearest, the even one of
    two, and the last that there is."""
    size, mode = x.shape[n], at.attribute("mode", "nearest")
    shape = (*x.shape[:n], len(places), *x.shape[n + 1 :])
    type_ = _between(at, x.dtype)
    if mode == "nearest":
        usual = "floor" if at.op == "Upsample" or at.version < 11 else "round_prefer_floor"
        nearest = np.asarray(_NEAREST[at.attribute("nearest_mode", usual)](places))
        taps: list[Tap] = [(nearest, None)]
    else:
        taps = _taps(at, places, size, mode, scale)
    value = weighted(x, n, taps, type_)
    if crops:
        outside = looked_up(at.builder, (places < 0) | (places > size - 1), n)
        value = select(outside, const(at.attribute("extrapolation_value", 0.0), type_), value)
    if type_.is_float and to.is_integer:
        value = unary("round", value)
    return at.builder.materialize(
        at.builder.tensor(shape, cast(to, value)), at.builder.named("resize")
    )

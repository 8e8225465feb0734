"""Kernels that are fused in tests, and fusions of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.lang.kernel import KernelFunction
from tilewright.schedule.fusion.members import Fusion, Member

GROUP = 64


@tw.kernel
def scale(a: tw.f32, x: tw.array("f32", 1), t: tw.array("f32", 1)):
    i = tw.global_id(0)
    t[i] = a * x[i]


@tw.kernel
def add(t: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = t[i] + y[i]


@tw.kernel
def scale_and_add(a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    t = a * x[i]
    y[i] = t + y[i]


@tw.kernel
def halve_positive(t: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < t.shape[0]:
        if t[i] > 0.0:
            y[i] = t[i] * 0.5
        else:
            y[i] = t[i]


@tw.kernel
def mirror(t: tw.array("f32", 1), y: tw.array("f32", 1)):
    """Each workgroup turns its part around."""
    y[tw.global_id(0)] = t[tw.group_id(0) * 64 + 63 - tw.local_id(0)]


@tw.kernel
def twos(t: tw.array("f32", 1), y: tw.array("f32", 1)):
    """Each work-item exchanges two elements."""
    i = tw.global_id(0)
    for k in range(2):
        y[2 * i + k] = t[2 * i + 1 - k]


@tw.kernel
def shift(t: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = t[max(i - 1, 0)]


def numpy_of(function: KernelFunction, values: Sequence[Any]) -> None:
    """Does on numpy's arrays what a kernel does, in the order of its parameters."""
    *inputs, out = values
    x = inputs[-1]
    if function is scale:
        out[:] = inputs[0] * x
    elif function is add:
        out[:] = x + out
    elif function is halve_positive:
        out[:] = np.where(x > 0, x * np.float32(0.5), x)
    elif function is mirror:
        out[:] = x.reshape(-1, GROUP)[:, ::-1].ravel()
    elif function is twos:
        out[:] = x.reshape(-1, 2)[:, ::-1].ravel()
    else:
        assert function is shift
        out[:] = np.concatenate([x[:1], x[:-1]])


def member(
    function: KernelFunction,
    names: Sequence[str],
    size: int | None = None,
    local: int | None = None,
    promote: dict[str, str] | None = None,
) -> Member:
    """A launch of ``function`` over as many work-items as the arrays have elements, which ``size``
    says, or a call; `twos` takes half as many."""
    arguments: dict[str, Any] = dict(zip(function.parameters, names, strict=True))
    kernel = function.over(1, local=local)
    half = function is twos
    if size is None:
        arguments["global_0"] = "half" if half else "n"
    else:
        arguments["global_0"] = size // 2 if half else size
        arguments |= {p.name: size for p in kernel.scalars if p.name[:-2] in arguments}
    return Member(kernel, arguments, promote or {})


def chain(*steps: tuple[KernelFunction, Sequence[str]], **settings: Any) -> Fusion:
    """A fusion of `member`s; ``size`` and ``local`` are theirs, other settings its own."""
    size, local = settings.pop("size", None), settings.pop("local", None)
    members = tuple(member(function, names, size, local) for function, names in steps)
    return Fusion(members, **settings)


@tw.kernel
def count(x: tw.array("f32", 1), t: tw.array("s32", 1)):
    tw.atomic_add(t, tw.global_id(0), tw.s32(x[tw.global_id(0)]))


@tw.kernel
def whole(t: tw.array("s32", 1), y: tw.array("f32", 1)):
    y[tw.global_id(0)] = tw.f32(t[tw.global_id(0)])


@tw.kernel
def ids_1(out: tw.array("s32", 2)):
    i = tw.global_id(0)
    out[i, 0] = i
    out[i, 1] = tw.global_size(0)


@tw.kernel
def ids_2(out: tw.array("s32", 2)):
    at = tw.global_id(0) * tw.global_size(1) + tw.global_id(1)
    out[at, 0] = tw.global_id(0)
    out[at, 1] = tw.global_id(1)


@tw.kernel
def ids_3(out: tw.array("s32", 2)):
    i, j, k = tw.global_id(0), tw.global_id(1), tw.global_id(2)
    at = (i * tw.global_size(1) + j) * tw.global_size(2) + k
    out[at, 0] = i * 100 + j
    out[at, 1] = k


@tw.kernel
def add_bias(x: tw.array("f32", 2), b: tw.array("f32", 1), y: tw.array("f32", 2)):
    i, j = tw.global_id(0), tw.global_id(1)
    if i < x.shape[0] and j < x.shape[1]:
        y[i, j] = x[i, j] + b[j]


@tw.kernel
def relu_in_place(x: tw.array("f32", 2)):
    i, j = tw.global_id(0), tw.global_id(1)
    v = x[i, j]
    x[i, j] = max(v, 0.0)

"""Kernels in Python as functions of JAX's arrays: callbacks, eagerly and under ``jax.jit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tilewright.dtypes import dtype
from tilewright.frontends.kernel_calls import KernelCall
from tilewright.lang.annotations import ArrayType
from tilewright.lang.kernel import KernelFunction

# The constructor has no types.
_FORM: Any = jax.ShapeDtypeStruct


def callback(
    kernel: KernelFunction,
    range: Callable[..., int | Sequence[int]],
    *,
    results: Mapping[str, Callable[..., Sequence[int]]] | None = None,
    updates: Sequence[str] = (),
    constants: Mapping[str, Any] | None = None,
    local: int | Sequence[int] | None = None,
    target: str = "x86",
    threads: int | None = None,
) -> Callable[..., Any]:
    """A function of JAX's arrays and numbers that launches ``kernel`` on the host
    (``jax.pure_callback``).

    It takes the kernel's parameters in their order, but for ``results``, arrays that it makes, each
    of the shape that a function of the arguments gives, and ``constants``. Of the ``updates``,
    arrays that the kernel stores to, it takes what they begin with; they are results, too: JAX's
    arrays do not change. ``range`` is a function of the arguments. Gives the results in the order
    of the kernel's parameters, one by itself. Under ``jax.vmap`` it runs once for each.
    """
    call = KernelCall(
        kernel, range, results or {}, tuple(updates), constants or {}, local, target, threads
    )
    inputs = call.inputs
    given_back = [name for name in kernel.parameters if name in {*call.results, *call.changes}]

    def run(*leaves: Any) -> tuple[Any, ...]:
        arguments = [_host(*pair) for pair in zip(inputs.values(), leaves, strict=True)]
        held = dict(zip(inputs, arguments, strict=True))
        held |= {name: held[name].copy() for name in call.changes}
        held |= {
            n: np.empty(value.shape, value.dtype) for n, value in _made(call, arguments).items()
        }
        call.launch(held, arguments)
        return tuple(held[name] for name in given_back)

    def function(*arguments: Any) -> Any:
        shaped = {**dict(zip(inputs, arguments, strict=True)), **_made(call, arguments)}
        forms = tuple(
            _FORM(np.shape(shaped[n]), jax.numpy.result_type(shaped[n])) for n in given_back
        )
        outputs = jax.pure_callback(run, forms, *arguments, vmap_method="sequential")
        return outputs[0] if len(outputs) == 1 else outputs

    return function


def _host(annotation: Any, leaf: Any) -> Any:
    """An argument as a launch takes it: numpy's array, or a number."""
    array = np.asarray(leaf)
    return np.ascontiguousarray(array) if isinstance(annotation, ArrayType) else array.item()


def _made(call: KernelCall, arguments: Sequence[Any]) -> dict[str, Any]:
    """The shapes and types of what the kernel makes."""
    pairs = zip(call.inputs.items(), arguments, strict=True)
    types = {
        name: dtype(jax.numpy.result_type(annotated).name)
        for (name, annotation), annotated in pairs
        if isinstance(annotation, ArrayType)
    }
    return {
        name: _FORM(shape, call.dtype_of(name, types).numpy)
        for name, shape in call.shapes(arguments).items()
    }

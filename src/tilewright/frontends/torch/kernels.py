"""Kernels in Python as custom ops of PyTorch, in eager mode and under any compiler."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tilewright.dtypes import DType, dtype
from tilewright.errors import ArgumentError
from tilewright.frontends.kernel_calls import KernelCall
from tilewright.lang.annotations import ArrayType, ScalarType
from tilewright.lang.kernel import KernelFunction
from tilewright.problems.numbers import short


def custom_op(
    name: str,
    kernel: KernelFunction,
    range: Callable[..., int | Sequence[int]],
    *,
    results: Mapping[str, Callable[..., Sequence[int]]] | None = None,
    mutates: Sequence[str] = (),
    constants: Mapping[str, Any] | None = None,
    local: int | Sequence[int] | None = None,
    target: str = "x86",
    threads: int | None = None,
) -> Any:
    """An op of PyTorch called ``name`` (``"library::op"``) whose body is a launch of ``kernel``.

    It takes the kernel's parameters in their order, but for ``results``, tensors that it makes and
    returns, each of the shape that a function of the op's arguments gives, and ``constants``.
    ``range`` is a function of the op's arguments, too. ``mutates`` are the tensors that the kernel
    stores to in place. ``local``, ``target`` and ``threads`` are those of a launch.

    Gives what ``torch.library.custom_op`` gives: call it, or ``register_autograd`` on it. Compilers
    take it as it is, `torch.compile` with our backend as an island. Raises `ArgumentError`.
    """
    if not isinstance(name, str) or re.fullmatch(r"\w+::\w+", name) is None:
        raise ArgumentError(f"{short(name)} is no name of an op", cure='write "library::op"')
    call = KernelCall(
        kernel, range, results or {}, tuple(mutates), constants or {}, local, target, threads
    )
    inputs = call.inputs

    def run(*arguments: Any) -> Any:
        given = dict(zip(inputs, arguments, strict=True))
        held = {key: _rows(value) for key, value in given.items()}
        made = _made(call, given, arguments)
        call.launch({**held, **made}, arguments)
        for key in call.changes:
            if held[key] is not given[key]:
                given[key].copy_(held[key])
        return _returned(made)

    def like(*arguments: Any) -> Any:
        return _returned(_made(call, dict(zip(inputs, arguments, strict=True)), arguments))

    op = torch.library.custom_op(name, mutates_args=list(mutates), schema=_schema(call))(run)
    op.register_fake(like)
    return op


def _schema(call: KernelCall) -> str:
    parameters: list[str] = []
    for name, annotation in call.inputs.items():
        if isinstance(annotation, ArrayType):
            place = len(parameters)
            kind = f"Tensor(a{place}!)" if name in call.changes else "Tensor"
        elif isinstance(annotation, ScalarType):
            kind = "Scalar"
        elif isinstance(annotation, DType) and annotation.is_float:
            kind = "float"
        else:
            kind = "SymInt"
        parameters.append(f"{kind} {name}")
    given = ", ".join(["Tensor"] * len(call.results))
    return f"({', '.join(parameters)}) -> ({given})"


def _rows(value: Any) -> Any:
    """A tensor in rows, as kernels take them."""
    return value.detach().contiguous() if isinstance(value, torch.Tensor) else value


def _made(call: KernelCall, given: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, Any]:
    tensors = {name: each for name, each in given.items() if isinstance(each, torch.Tensor)}
    types = {name: dtype(str(each.dtype).removeprefix("torch.")) for name, each in tensors.items()}
    device = next((each.device for each in tensors.values()), torch.device("cpu"))
    return {
        name: torch.empty(
            shape, dtype=getattr(torch, call.dtype_of(name, types).numpy_name), device=device
        )
        for name, shape in call.shapes(arguments).items()
    }


def _returned(made: Mapping[str, Any]) -> Any:
    values = tuple(made.values())
    return values[0] if len(values) == 1 else values or None

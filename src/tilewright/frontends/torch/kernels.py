"""Kernels in Python as custom ops of PyTorch, in eager mode and under any compiler."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from tilewright.dtypes import DType, dtype
from tilewright.errors import ArgumentError, short
from tilewright.frontends.kernel_calls import KernelCall
from tilewright.frontends.torch.aten.promotion import torch_type
from tilewright.frontends.torch.table import TABLE, Place, aten, name_of, refuse
from tilewright.lang.annotations import ArrayType, ScalarType
from tilewright.lang.kernel import KernelFunction
from tilewright.tensor.kernels import launched
from tilewright.tensor.tensor import Tensor


def custom_op(
    name: str,
    kernel: KernelFunction,
    range: Callable[..., int | Sequence[int]],
    *,
    results: Mapping[str, Callable[..., Sequence[int]]] | None = None,
    mutates: Sequence[str] = (),
    constants: Mapping[str, Any] | None = None,
    local: int | Sequence[int] | None = None,
    target: str | None = None,
    threads: int | None = None,
) -> Any:
    """An op of PyTorch called ``name`` (``"library::op"``) whose body is a launch of ``kernel``.

    It takes the kernel's parameters in their order, but for ``results``, tensors that it makes and
    returns, each of the shape that a function of the op's arguments gives, and ``constants``.
    ``range`` is a function of the op's arguments, too. ``mutates`` are the tensors that the kernel
    stores to in place. ``local``, ``target`` and ``threads`` are those of a launch; None: x86.

    Gives what ``torch.library.custom_op`` gives: call it, or ``register_autograd`` on it. Other
    compilers take it as it is; with our backend of `torch.compile`, the kernel becomes a step of
    the program, for the target and the threads of that, unless it has a target of its own. Raises
    `ArgumentError`.
    """
    if not isinstance(name, str) or re.fullmatch(r"\w+::\w+", name) is None:
        raise ArgumentError(f"{short(name)} is no name of an op", cure='write "library::op"')
    call = KernelCall(
        kernel, range, results or {}, tuple(mutates), constants or {}, local, target, threads
    )
    inputs = call.inputs

    def run(*arguments: Any) -> Any:
        values = dict(zip(inputs, arguments, strict=True))
        held = {key: _rows(value) for key, value in values.items()}
        result = _made(call, values, arguments)
        call.launch({**held, **result}, arguments)
        for key in call.changes:
            if held[key] is not values[key]:
                values[key].copy_(held[key])
        return _returned(result)

    def like(*arguments: Any) -> Any:
        return _returned(_made(call, dict(zip(inputs, arguments, strict=True)), arguments))

    op = torch.library.custom_op(name, mutates_args=list(mutates), schema=_schema(call))(run)
    op.register_fake(like)
    op_name = f"{name.replace('::', '.')}.default"
    _CALLS[op_name] = call
    TABLE[op_name] = partial(_kernel_op, call)
    return op


# By the names that the table has them by.
_CALLS: dict[str, KernelCall] = {}


def _kernel_step(call: KernelCall, at: Place, *arguments: Any) -> dict[str, Tensor]:
    """The launch of an op's kernel as a step of the graph: what it makes and changes, by name."""
    if call.target is not None:
        refuse(f"it is launched on {call.target}")
    values = dict(zip(call.inputs, arguments, strict=True))
    tensors = {name: tensor for name, tensor in values.items() if isinstance(tensor, Tensor)}
    forms = {
        name: torch.empty(tensor.shape, dtype=torch_type(tensor.dtype), device="meta")
        for name, tensor in tensors.items()
    }
    seen = [forms.get(name, value) for name, value in values.items()]
    shapes_of = call.shapes(seen)
    if any(
        0 in shape
        for shape in (*shapes_of.values(), *(tensor.shape for tensor in tensors.values()))
    ):
        refuse("it has tensors without elements")
    types = {name: tensor.dtype for name, tensor in tensors.items()}
    held = {name: np.empty((), tensor.dtype.numpy) for name, tensor in tensors.items()}
    held |= {name: np.empty((), call.dtype_of(name, types).numpy) for name in shapes_of}
    shapes = {**{name: tensor.shape for name, tensor in tensors.items()}, **shapes_of}
    arrays = {name: np.broadcast_to(value, shapes[name]) for name, value in held.items()}
    kernel, numbers = call.specialized({**values, **arrays}, seen)
    if any(array.digest is not None for array in kernel.arrays):
        refuse("it has a table from outside of it")
    if {array.name for array in kernel.arrays} != shapes.keys():
        refuse("it says something (tw.printf, assert) when it runs")
    return launched(at.builder, kernel, tensors, numbers, shapes_of)


def _kernel_op(call: KernelCall, at: Place, *arguments: Any) -> Any:
    """What the op returns."""
    outputs = _kernel_step(call, at, *arguments)
    results = tuple(outputs[name] for name in call.results)
    return results[0] if len(results) == 1 else results


@aten("auto_functionalized_v2")
def changed_in_place(at: Place, op: Any, *, _all_bases: Sequence[Tensor], **values: Any) -> Any:
    """An op of ours that changes tensors, as AOT autograd has it: what it returns, and then what
    becomes of those tensors."""
    call = _CALLS.get(name_of(op))
    if call is None:
        refuse("there is no such op in the table")
    bases = {name: values.pop(f"_{name}_base_index", None) for name in call.changes}
    if any(base is None for base in bases.values()) or set(values) - set(call.inputs):
        refuse("it changes a view of a tensor")
    arguments = {**values, **{name: _all_bases[number] for name, number in bases.items()}}
    outputs = _kernel_step(call, at, *(arguments[name] for name in call.inputs))
    after = list(_all_bases)
    for name, number in bases.items():
        after[number] = outputs.get(name, after[number])
    returned = tuple(outputs[name] for name in call.results)
    return (*(returned or (None,)), *after)


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
    returns = ", ".join(["Tensor"] * len(call.results))
    return f"({', '.join(parameters)}) -> ({returns})"


def _rows(value: Any) -> Any:
    """A tensor in rows, as kernels take them."""
    return value.detach().contiguous() if isinstance(value, torch.Tensor) else value


def _made(call: KernelCall, values: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, Any]:
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    types = {
        name: dtype(str(tensor.dtype).removeprefix("torch.")) for name, tensor in tensors.items()
    }
    device = next((tensor.device for tensor in tensors.values()), torch.device("cpu"))
    return {
        name: torch.empty(
            shape, dtype=getattr(torch, call.dtype_of(name, types).numpy_name), device=device
        )
        for name, shape in call.shapes(arguments).items()
    }


def _returned(results: Mapping[str, Any]) -> Any:
    values = tuple(results.values())
    return values[0] if len(values) == 1 else values or None

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
    known = f"{name.replace('::', '.')}.default"
    _CALLS[known] = call
    TABLE[known] = partial(_kernel_op, call)
    return op


# By the names that the table has them by.
_CALLS: dict[str, KernelCall] = {}


def _kernel_step(call: KernelCall, at: Place, *arguments: Any) -> dict[str, Tensor]:
    """The launch of an op's kernel as a step of the graph: what it makes and changes, by name."""
    if call.target is not None:
        refuse(f"it is launched on {call.target}")
    given = dict(zip(call.inputs, arguments, strict=True))
    tensors = {name: each for name, each in given.items() if isinstance(each, Tensor)}
    forms = {
        name: torch.empty(each.shape, dtype=torch_type(each.dtype), device="meta")
        for name, each in tensors.items()
    }
    seen = [forms.get(name, each) for name, each in given.items()]
    made = call.shapes(seen)
    if any(0 in shape for shape in (*made.values(), *(each.shape for each in tensors.values()))):
        refuse("it has tensors without elements")
    types = {name: each.dtype for name, each in tensors.items()}
    held = {name: np.empty((), each.dtype.numpy) for name, each in tensors.items()}
    held |= {name: np.empty((), call.dtype_of(name, types).numpy) for name in made}
    shapes = {**{name: each.shape for name, each in tensors.items()}, **made}
    arrays = {name: np.broadcast_to(each, shapes[name]) for name, each in held.items()}
    kernel, numbers = call.specialized({**given, **arrays}, seen)
    if any(each.digest is not None for each in kernel.arrays):
        refuse("it has a table from outside of it")
    if {each.name for each in kernel.arrays} != shapes.keys():
        refuse("it says something (tw.printf, assert) when it runs")
    return launched(at.builder, kernel, tensors, numbers, made)


def _kernel_op(call: KernelCall, at: Place, *arguments: Any) -> Any:
    """What the op returns."""
    found = _kernel_step(call, at, *arguments)
    results = tuple(found[name] for name in call.results)
    return results[0] if len(results) == 1 else results


@aten("auto_functionalized_v2")
def changed_in_place(at: Place, op: Any, *, _all_bases: Sequence[Tensor], **given: Any) -> Any:
    """An op of ours that changes tensors, as AOT autograd has it: what it returns, and then what
    becomes of those tensors."""
    call = _CALLS.get(name_of(op))
    if call is None:
        refuse("there is no such op in the table")
    bases = {name: given.pop(f"_{name}_base_index", None) for name in call.changes}
    if any(each is None for each in bases.values()) or set(given) - set(call.inputs):
        refuse("it changes a view of a tensor")
    arguments = {**given, **{name: _all_bases[number] for name, number in bases.items()}}
    found = _kernel_step(call, at, *(arguments[name] for name in call.inputs))
    after = list(_all_bases)
    for name, number in bases.items():
        after[number] = found.get(name, after[number])
    returned = tuple(found[name] for name in call.results)
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

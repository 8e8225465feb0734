"""The work of an op in PyTorch, on the same arrays as our kernel, on any device.

It is used as the peer, in the op's types, and as the reference, in float64.
"""

from __future__ import annotations

from typing import Any

from tilewright.bench.torch_contraction import Tensors, contraction_of, fused
from tilewright.bench.torch_tensors import Call, Peers, put_places
from tilewright.engine.signature import argument_form
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.library import LibraryOp
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op

# PyTorch's libraries for these on a GPU.
_LIBRARIES: dict[type[Op], str] = {Convolution: "cuDNN", Matmul: "cuBLAS"}


def make_tensors(torch: Any, op: Op, device: str, *, exact: bool, seed: int) -> dict[str, Any]:
    """A tensor for each argument of ``op``, which has decided layouts without padding.

    With ``exact`` they are small integers, so that all sums are exact, else reals between -1 and 1.
    (A GPU is faster on zeros than on other data, as it saves power.)
    """
    random = torch.Generator(device=device).manual_seed(seed)
    tensors = {}
    for argument in op.arguments:
        form = argument_form(argument)
        if form.shape != argument.shape:
            raise UnsupportedError(
                f"{argument.name} has blocks", cure="give it a plain tag, such as axb"
            )
        count = form.extent
        if exact:
            flat = torch.randint(-2, 3, (count,), generator=random, device=device)
        else:
            flat = 2 * torch.rand((count,), generator=random, device=device) - 1
        flat = flat.to(getattr(torch, argument.dtype.numpy_name))
        tensors[argument.name] = flat.as_strided(form.shape, form.strides)
    put_places(torch, op, tensors)
    return tensors


def results_of(op: Op) -> tuple[str, ...]:
    """The names of the op's results."""
    return tuple(argument.name for argument in op.arguments if argument.access != "in")


def check_types(op: Op) -> None:
    """Raises `UnsupportedError` for an op on tensors of several types, which PyTorch supports only
    for copies of floats. (Statistics of norms and the like have their own types.)"""
    roles = [role for role, _ in op.types]
    if isinstance(op, LibraryOp):
        roles = [role for role in op.problem.roles if role not in op.problem.indices]
    types = {op.dtype_of(role) for role in roles}
    if len(types) > 1 and not (op.kind == "reorder" and all(type_.is_float for type_ in types)):
        raise UnsupportedError(f"PyTorch's {op.kind} has tensors of one type")


def reference(torch: Any, op: Op, tensors: Tensors) -> dict[str, Any]:
    """The results by name, in float64; integers stay integers, except in products. Raises
    `UnsupportedError`."""
    multiplied = isinstance(op, Convolution | Matmul)
    wide = {
        name: tensor.to(
            torch.float64 if multiplied or tensor.is_floating_point() else tensor.dtype,
            copy=True,
            memory_format=torch.contiguous_format,
        )
        for name, tensor in tensors.items()
    }
    made = work_of(torch, op, wide)()
    results, names = made if isinstance(made, tuple | list) else (made,), results_of(op)
    if len(results) < len(names):
        raise UnsupportedError(f"PyTorch has {len(results)} of the {len(names)} results")
    return dict(zip(names, results, strict=False))


def peers(torch: Any, op: Op, tensors: Tensors) -> Peers:
    """PyTorch's calls on these tensors. Raises `UnsupportedError` if it has none."""
    check_types(op)
    calls = [work_of(torch, op, tensors)]
    if isinstance(op, Convolution) and op.direction.is_forward:
        calls += fused(torch, op, tensors)
    return {_LIBRARIES.get(type(op), "torch"): calls}


def work_of(torch: Any, op: Op, tensors: Tensors) -> Call:
    """The call that computes ``op``, with a tensor or a tuple of tensors as its result. Raises
    `UnsupportedError`."""
    if isinstance(op, LibraryOp):
        return op.problem.peer(torch, tensors, op.direction)
    attributes = op.attributes
    if attributes.scales or attributes.zero_points or attributes.fpmath is not None:
        raise UnsupportedError("PyTorch's side has no scales, zero points or fpmath")
    if isinstance(op, Convolution | Matmul):
        return contraction_of(torch, op, tensors)
    if attributes.post_ops:
        raise UnsupportedError(f"PyTorch's side has no {op.kind} with post-ops")
    first, dst = next(iter(tensors.values())), tensors["dst"]
    if op.kind == "reorder" or first.dtype is dst.dtype:
        return op.problem.peer(torch, tensors, op.direction)
    given = {**tensors, "dst": torch.empty_like(dst, dtype=first.dtype)}
    call = op.problem.peer(torch, given, op.direction)
    return lambda: call().to(dst.dtype)

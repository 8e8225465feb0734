"""torch tensors as memory; torch is never imported from here.

Not every tensor has memory: those of torch.export and FakeTensorMode have none, those in vmap and
grad are wrapped, and a storage may have been resized to 0. torch, or the tensor's class, then
raises errors of any kind.
"""

from __future__ import annotations

import sys
from typing import Any

from tilewright.dtypes import dtype
from tilewright.errors import ArgumentError, TilewrightError, UnsupportedError
from tilewright.runtime.array_info import ArrayInfo, describe_error, no_memory, unknown_elements

_OUTSIDE = "call the kernel on tensors that have data, outside of torch.export, vmap and the like"


def is_torch(array: Any) -> bool:
    """Whether it is a torch tensor."""
    return is_torch_type(type(array))


def is_torch_type(kind: type) -> bool:
    """Whether its instances are torch tensors."""
    return any(c.__name__ == "Tensor" and c.__module__ == "torch" for c in kind.__mro__)


def grad_is_recorded() -> bool:
    """Whether torch records gradients; asked only after a tensor was met, so torch is imported."""
    return bool(sys.modules["torch"].is_grad_enabled())


def describe_tensor(tensor: Any, name: str, kind: str) -> ArrayInfo:
    """A torch tensor on a device of ``kind`` (``"cpu"`` or ``"cuda"``) as memory.

    Raises `ArgumentError`, which calls it ``name``, for a tensor without such memory.
    """
    try:
        _refuse_others(tensor, name, kind)
        return _read(tensor, name)
    except TilewrightError:
        raise
    except Exception as error:
        raise no_memory(name, f"torch says: {describe_error(error)}", _OUTSIDE) from error


def _refuse_others(tensor: Any, name: str, kind: str) -> None:
    """Refuses tensors that a pointer, shape and strides do not describe completely."""
    if tensor.device.type == "meta":
        raise no_memory(name, "it is a torch tensor on device meta", _OUTSIDE)
    for refused, what, cure in (
        (tensor.device.type != kind, f"on device {tensor.device}", f"pass {name}.to({kind!r})"),
        (tensor.is_nested, "a nested one", "pass its tensors one by one, or padded"),
        (str(tensor.layout) != "torch.strided", f"{tensor.layout}", f"pass {name}.to_dense()"),
        (
            tensor.requires_grad and grad_is_recorded(),
            "one that requires grad",
            f"pass {name}.detach(), or call it in torch.no_grad()",
        ),
        (tensor.is_neg(), "a lazily negated view", f"pass {name}.resolve_neg()"),
    ):
        if refused:
            raise ArgumentError(f"{name} is a torch tensor, {what}", where=name, cure=cure)


def _read(tensor: Any, name: str) -> ArrayInfo:
    try:
        element = dtype(str(tensor.dtype).removeprefix("torch."))
    except UnsupportedError as error:
        raise unknown_elements(name, str(tensor.dtype)) from error
    pointer = int(tensor.data_ptr())
    if not pointer and tensor.numel():
        why = "its torch tensor is a fake one, or its storage was resized to 0"
        raise no_memory(name, why, _OUTSIDE)
    return ArrayInfo(
        pointer=pointer,
        dtype=element,
        shape=tuple(map(int, tensor.shape)),
        strides=tuple(map(int, tensor.stride())),
        writable=True,
        owner=tensor,
    ).checked(name)

"""PyTorch, if installed, and its tensors for an op's arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType
from tilewright.engine.signature import argument_form
from tilewright.errors import UnsupportedError
from tilewright.layout.strides import strides_of
from tilewright.ops.library import LibraryOp
from tilewright.ops.op import Argument, Op
from tilewright.problems import ConvProblem

Call = Callable[[], Any]
# By the name of the library: calls that compute the same.
Peers = Mapping[str, Sequence[Call]]
# Of the numbers that places are drawn with.
_SEED = 5


@cache
def load_torch() -> Any:
    """The module ``torch``, or None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch


def require_torch() -> Any:
    """The module ``torch``. Raises `UnsupportedError` if it is not installed."""
    torch = load_torch()
    if torch is None:
        raise UnsupportedError("PyTorch is not installed", cure="pip install torch")
    return torch


def random_tensor(torch: Any, shape: Sequence[int], dtype: DType) -> Any:
    """Random data, row-major."""
    type_ = getattr(torch, dtype.numpy_name)
    if dtype.is_integer:
        low = 0 if dtype.kind == "uint" else -4
        return torch.randint(low, 5, tuple(shape), dtype=type_)
    return torch.rand(tuple(shape), dtype=torch.float32).to(type_)


def is_plain(argument: Argument) -> bool:
    """Whether channels are not contiguous, as in nchw."""
    strides = strides_of(argument.layout, len(argument.shape))
    return strides is not None and argument.shape[1] > 1 and strides[1] != 1


def image(torch: Any, argument: Argument) -> Any:
    """Activations of ``argument``'s shape and type, in 2D if they have one spatial dim."""
    shape = argument.shape if len(argument.shape) > 3 else flat_shape(argument.shape)
    tensor = random_tensor(torch, shape, argument.dtype)
    if is_plain(argument):
        return tensor
    return tensor.to(memory_format=channels_last(torch, len(shape)))


def channels_last(torch: Any, rank: int) -> Any:
    """The memory format of tensors of that rank (4 or 5) with contiguous channels."""
    return {4: torch.channels_last, 5: torch.channels_last_3d}[rank]


def flat_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape of one spatial dim as one of two dims."""
    return (*shape[:-1], 1, shape[-1])


def window_of(problem: ConvProblem) -> dict[str, list[int]] | None:
    """Stride, padding and dilation for PyTorch; None for padding that it lacks."""
    padding = []
    for window in problem.windows:
        room = window.size + 2 * window.pad_l - window.reach
        if room < 0 or room // window.stride + 1 != window.out:
            return None
        padding.append(window.pad_l)
    parameters = {
        "stride": list(problem.stride),
        "padding": padding,
        "dilation": [dilation + 1 for dilation in problem.dilation],
    }
    if problem.ndims == 1:
        defaults = {"stride": 1, "padding": 0, "dilation": 1}
        parameters = {key: [defaults[key], *value] for key, value in parameters.items()}
    return parameters


def places_for(what: object, name: str) -> NDArray[Any] | None:
    """Indices for an op that reads or writes places, such as the rows of a gather: the contents of
    the argument ``name`` of ``what``, always the same, in its logical shape; None if it holds no
    places. They are drawn from the whole range, because a few would always be in a cache."""
    if not isinstance(what, LibraryOp):
        return None
    argument = what.argument(name)
    slot = next(s for s in what.problem.slots(what.direction) if s.name == name)
    if argument.access != "in" or slot.role not in what.problem.indices:
        return None
    rng = np.random.default_rng(_SEED)
    return rng.integers(what.problem.places, size=argument.shape, dtype=argument.dtype.numpy)


def put_places(torch: Any, op: Op, tensors: Mapping[str, Any]) -> None:
    """Fills the tensors that hold places."""
    for name, tensor in tensors.items():
        places = places_for(op, name)
        if places is not None:
            tensor.copy_(torch.from_numpy(places))


def strided(torch: Any, argument: Argument) -> Any | None:
    """A tensor with ``argument``'s strides; None if it has blocks."""
    form = argument_form(argument)
    if form.shape != argument.shape:
        return None
    flat = random_tensor(torch, (form.extent,), argument.dtype)
    return flat.as_strided(form.shape, form.strides)

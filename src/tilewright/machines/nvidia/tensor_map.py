"""Tensor maps: what the copy unit of NVIDIA GPUs (TMA, from sm_90 on) is told of a tensor.

A kernel that copies by it takes such a map for each tensor: it holds the address, so the driver
makes it when the kernel is called. Here is the rest, which is known when the kernel is compiled:
data that lowering, the driver and whatever simulates the unit share, and the unit's limits.

All dims are in CUDA's order, innermost first: for channels-last images C, W, H, D, N.

Source: NVIDIA, CUDA Driver API, "Tensor Map Object Management"; PTX ISA, "Tensor copy restrictions"
(im2col mode).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.dtypes import (
    DType,
    bf16,
    boolean,
    dtype,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    f64,
    s8,
    s16,
    s32,
    s64,
    tf32,
    u8,
    u16,
    u32,
    u64,
)
from tilewright.errors import UnsupportedError
from tilewright.machines.nvidia.boxes import MOST_BOX, MOST_DIMS
from tilewright.machines.nvidia.im2col import CORNERS, MOST_PIXELS

# Bytes of a map as a kernel's parameter, and what its address is a multiple of.
MAP_BYTES, MAP_ALIGNMENT = 128, 64
# What strides and addresses are multiples of.
UNIT = 16

_BYTES = (u8, s8, boolean, f8_e4m3, f8_e5m2)
ELEMENTS = (*_BYTES, u16, s16, u32, s32, u64, s64, f16, bf16, f32, tf32, f64)
_MOST_STEP = 8
_MOST_EXTENT, _STRIDE_END = 1 << 32, 1 << 40
_SWIZZLES, _INTERLEAVES, _PROMOTIONS = (0, 32, 64, 128), (0, 16, 32), (0, 64, 128, 256)


@dataclass(frozen=True)
class Tile:
    """What one copy moves is a box of the tensor: its sizes in elements, one for each dim.

    With a step of s, a size of n moves ceil(n / s) elements of that dim.
    """

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Columns:
    """What one copy moves is ``pixels`` pixels (in the order W, H, D, N, each `steps` apart) of
    ``channels`` each, for one tap of a convolution, whose offset the instruction says (im2col).

    The pixels' first taps lie in a box of the spatial dims: from ``lower``, relative to the first
    element, to ``upper``, relative to the last. For a convolution, ``lower`` is minus the padding,
    and ``upper`` the padding after it less the reach of the kernel, (size - 1) * dilation.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory, and how copies go through it.

    ``argument`` is the position of the pointer that it starts at among a launch's pointers (the
    kernel's parameters, then its workspaces), ``offset`` bytes after it. ``shape`` is in elements.
    ``strides`` are in bytes, without that of the first dim, whose elements lie side by side.
    ``box`` is what one copy moves, ``steps`` how many elements apart (one for each dim; empty: all
    side by side). ``swizzle`` permutes 16-byte pieces in shared memory in rows of so many bytes
    (0: not), ``interleave`` is for tensors whose channels lie in slices of so many bytes (0: they
    do not), ``promotion`` what L2 fetches at least (bytes; 0: as it comes). Elements outside are
    zero, or NaN with ``nan``.
    """

    argument: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: Tile | Columns
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    interleave: int = 0
    promotion: int = 128
    nan: bool = False
    offset: int = 0

    def __post_init__(self) -> None:
        if not self.steps:
            object.__setattr__(self, "steps", (1,) * len(self.shape))

    @property
    def bytes(self) -> int:
        """From the tensor's first byte to the end of its last."""
        steps = zip(self.shape, (self.dtype.bytes, *self.strides), strict=True)
        return sum((n - 1) * stride for n, stride in steps) + self.dtype.bytes

    @property
    def row(self) -> int:
        """Bytes that a copy moves of the innermost dim: a row in shared memory."""
        box = self.box
        return (box.sizes[0] if isinstance(box, Tile) else box.channels) * self.dtype.bytes

    def __str__(self) -> str:
        kind = "tile" if isinstance(self.box, Tile) else "im2col"
        return f"{kind} map of {self.dtype}{list(self.shape)} at argument {self.argument}"

    def as_json(self) -> dict[str, Any]:
        """The map as JSON holds it."""
        return {**asdict(self), "dtype": self.dtype.name}

    @property
    def text(self) -> str:
        """The map as JSON."""
        return json.dumps(self.as_json())

    @staticmethod
    def from_text(text: str) -> TensorMap:
        """What `text` gave. Raises `ValueError`, or as `from_json` does."""
        return TensorMap.from_json(json.loads(text))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TensorMap:
        """What `as_json` made. Raises `KeyError`, `TypeError` or an error of this project."""
        box = {key: _tuple(value) for key, value in data["box"].items()}
        fields = {key: _tuple(value) for key, value in data.items()}
        fields["dtype"] = dtype(data["dtype"])
        fields["box"] = Tile(**box) if "sizes" in box else Columns(**box)
        return TensorMap(**fields)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def check_tensor_map(tensor: TensorMap, size: int | None = None) -> None:
    """Whether the unit takes such a map. Raises `UnsupportedError`, which names the limit.

    ``size``: the bytes that the argument has, where that is known; the tensor has to end in them.
    """
    for fault, cure in _faults(tensor, size):
        raise UnsupportedError(
            f"the tensor map has {fault}",
            where=str(tensor),
            why="the copy unit (TMA) does not take that",
            cure=cure,
        )


_Faults = Iterator[tuple[str, str]]


def _faults(tensor: TensorMap, size: int | None) -> _Faults:
    """What is wrong with a map, and what would be right; each looks at what passed before."""
    yield from _tensor_faults(tensor)
    if isinstance(tensor.box, Tile):
        yield from _tile_faults(tensor, tensor.box)
    else:
        yield from _columns_faults(tensor, tensor.box)
    yield from _row_faults(tensor)
    if size is not None and tensor.offset + tensor.bytes > size:
        yield (
            f"{tensor.offset + tensor.bytes} bytes from its argument on, which has {size}",
            "describe what the argument holds",
        )


def _tensor_faults(tensor: TensorMap) -> _Faults:
    rank, unit = len(tensor.shape), 32 if tensor.interleave == 32 else UNIT
    if tensor.dtype not in ELEMENTS:
        yield f"elements of {tensor.dtype}", "choose one of " + ", ".join(map(str, ELEMENTS))
    for name, value, allowed in (
        ("a swizzle", tensor.swizzle, _SWIZZLES),
        ("an interleave", tensor.interleave, _INTERLEAVES),
        ("an L2 promotion", tensor.promotion, _PROMOTIONS),
    ):
        if value not in allowed:
            yield f"{name} of {value} bytes", "choose one of " + ", ".join(map(str, allowed))
    least = 3 if tensor.interleave or isinstance(tensor.box, Columns) else 1
    if not least <= rank <= MOST_DIMS:
        yield f"{rank} dims", f"choose {least} to {MOST_DIMS}: collapse some, or add dims of 1"
    if len(tensor.strides) != rank - 1 or len(tensor.steps) != rank:
        yield (
            f"{len(tensor.strides)} strides and {len(tensor.steps)} steps for {rank} dims",
            "give the strides of all dims but the first, and the steps of all",
        )
    for dim, extent in enumerate(tensor.shape):
        if not 1 <= extent <= _MOST_EXTENT:
            yield f"{extent} elements in dim {dim}", "choose 1 to 2**32"
    for dim, stride in enumerate(tensor.strides, start=1):
        if stride % unit or not 0 < stride < _STRIDE_END:
            yield (
                f"a stride of {stride} bytes in dim {dim}",
                f"choose a multiple of {unit} below 2**40: pad the dims inside of it",
            )
    for dim, step in enumerate(tensor.steps):
        if not 1 <= step <= _MOST_STEP or (not dim and step > 1 and not tensor.interleave):
            yield f"a step of {step} in dim {dim}", "choose 1 to 8, and 1 in the innermost dim"
    if tensor.offset % unit or tensor.offset < 0:
        yield f"an offset of {tensor.offset} bytes", f"choose a multiple of {unit}"
    if tensor.nan and not (tensor.dtype.is_float and tensor.dtype.bits >= 16):
        yield f"NaN outside of {tensor.dtype} elements", "fill with zeros"


def _tile_faults(tensor: TensorMap, box: Tile) -> _Faults:
    if len(box.sizes) != len(tensor.shape):
        yield f"a box of {len(box.sizes)} sizes for {len(tensor.shape)} dims", "give one for each"
    for dim, size in enumerate(box.sizes):
        if not 1 <= size <= MOST_BOX:
            yield f"a box of {size} elements in dim {dim}", "choose 1 to 256: copy it in parts"


def _columns_faults(tensor: TensorMap, box: Columns) -> _Faults:
    least, most = CORNERS[len(tensor.shape)]
    spatial = tensor.shape[1:-1]
    if len(box.lower) != len(spatial) or len(box.upper) != len(spatial):
        yield (
            f"corners of {len(box.lower)} and {len(box.upper)} offsets",
            f"give {len(spatial)}: one for each dim between the channels and the images",
        )
        return
    for dim, (extent, low, high) in enumerate(
        zip(spatial, box.lower, box.upper, strict=True), start=1
    ):
        if not (least <= low <= most and least <= high <= most):
            yield (
                f"corners at {low} and {high} in dim {dim}",
                f"choose {least} to {most}: the padding and the kernel's reach are too large",
            )
        if extent + high - low < 1:
            yield f"no pixel between its corners in dim {dim}", "the kernel is too large"
    if not 1 <= box.channels <= MOST_BOX:
        yield f"{box.channels} channels per pixel", "choose 1 to 256"
    if not 1 <= box.pixels <= MOST_PIXELS:
        yield f"{box.pixels} pixels per column", "choose 1 to 1024"


def _row_faults(tensor: TensorMap) -> _Faults:
    if tensor.interleave == 32 and tensor.swizzle != 32:
        yield "an interleave of 32 bytes without a swizzle of 32", "choose that swizzle"
    if tensor.interleave:
        return
    if tensor.row % UNIT:
        yield f"rows of {tensor.row} bytes", "choose a box whose rows are a multiple of 16 bytes"
    if tensor.swizzle and tensor.row > tensor.swizzle:
        yield (
            f"rows of {tensor.row} bytes, but a swizzle of {tensor.swizzle}",
            "choose a wider swizzle, or copy rows in parts",
        )

"""Values of the knobs that modify a problem: direction, types, algorithms, scales, zero points.

The names are benchdnn's. Each ``parse_...`` takes the text behind the ``=`` of a command-line
option and raises `ProblemError` (types: `UnsupportedError`) with the place in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.dtypes import DType, bf16, dtype, f16, f32, s4, s8, s32, u4, u8
from tilewright.errors import ProblemError, UnsupportedError, one_of, short
from tilewright.problems.numbers import real_number, whole_number
from tilewright.problems.pieces import Piece, unknown
from tilewright.problems.policy import COMMON, Policy, parse_policy

# benchdnn's words for tensors, and ours.
_TENSORS = {"src": "src", "src0": "src", "src1": "src1", "wei": "weights", "dst": "dst"}
_SCALE_TYPES = (f32, f16, bf16)
_FPMATH = ("tf32", "bf16")
_ZERO_POINT_TYPES = (s32, s8, u8, s4, u4)
_GROUP = re.compile(r"([0-9]{1,12})x([0-9]{1,12})")


class Direction(Enum):
    """What is computed: forward, backward by data or by weights; with or without bias."""

    FWD_D = "FWD_D"
    FWD_B = "FWD_B"
    BWD_D = "BWD_D"
    BWD_W = "BWD_W"
    BWD_WB = "BWD_WB"

    @property
    def is_forward(self) -> bool:
        """Whether ``dst`` is the result."""
        return self in (Direction.FWD_D, Direction.FWD_B)

    @property
    def is_backward_weights(self) -> bool:
        """Whether the gradient of the weights is the result."""
        return self in (Direction.BWD_W, Direction.BWD_WB)

    @property
    def has_bias(self) -> bool:
        """Whether a bias is added (forward) or its gradient computed (backward)."""
        return self in (Direction.FWD_B, Direction.BWD_WB)


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors of a tensor (``src``, ``src1``, ``weights`` or ``dst``).

    ``value`` is given for policy ``common`` only; other factors are an argument of the kernel.
    ``group``: so many neighbours along K have one factor, of a factor of a matmul.
    """

    tensor: str
    policy: Policy = COMMON
    value: float | None = None
    dtype: DType = f32
    group: int | None = None

    def __post_init__(self) -> None:
        where = f"the scale of {short(self.tensor)}"
        _check_tensor(self.tensor, where)
        if self.dtype not in _SCALE_TYPES:
            raise _wrong_type(self.dtype, where, _SCALE_TYPES)
        if self.value is not None:
            number = real_number(self.value, "a scale", where, finite=True)
            if number == 0:
                raise ProblemError("a scale must not be 0", where=where, cure="write 1 for none")
            object.__setattr__(self, "value", number)
        _check_group(self, where)

    def describe(self) -> str:
        """The text that parses to this scale, ``src:common:0.25``."""
        return _describe(self, [] if self.value is None else [shortest(self.value)], f32)


@dataclass(frozen=True, slots=True)
class ZeroPoint:
    """What is subtracted from a tensor's elements (added to those of ``dst``).

    ``value`` is given for policy ``common`` only; other values are an argument of the kernel.
    ``group`` is as of `Scale`.
    """

    tensor: str
    policy: Policy = COMMON
    value: int | None = None
    dtype: DType = s32
    group: int | None = None

    def __post_init__(self) -> None:
        where = f"the zero point of {short(self.tensor)}"
        _check_tensor(self.tensor, where)
        if self.dtype not in _ZERO_POINT_TYPES:
            raise _wrong_type(self.dtype, where, _ZERO_POINT_TYPES)
        if self.value is not None:
            object.__setattr__(self, "value", whole_number(self.value, "a zero point", where))
        _check_group(self, where)

    def describe(self) -> str:
        """The text that parses to this zero point, ``src:common:3``."""
        return _describe(self, [] if self.value is None else [str(self.value)], s32)


def parse_direction(text: str) -> Direction:
    """``FWD_D``, ``FWD_B``, ``BWD_D``, ``BWD_W`` or ``BWD_WB``, in any case.

    ``FWD_I`` (inference) is the same as ``FWD_D``: we keep no workspace for the backward pass.
    """
    piece = Piece.whole(text)
    word = piece.word.upper()
    if word == "FWD_I":
        return Direction.FWD_D
    if word not in Direction.__members__:
        raise unknown("direction", piece, (*Direction.__members__, "FWD_I"))
    return Direction(word)


def parse_types(text: str, roles: Sequence[str] = ("src", "wei", "dst")) -> tuple[DType, ...]:
    """One type for all tensors, ``f32``, or one for each role, ``u8:s8:s32``."""
    whole = Piece.whole(text)
    types = [parse_type(piece) for piece in whole.split(":")]
    if len(types) == 1:
        return tuple(types * len(roles))
    if len(types) != len(roles):
        raise ProblemError(
            f"{len(types)} types are given for {len(roles)} tensors",
            where=whole.span,
            cure=f"write one type, or {':'.join(roles)}",
        )
    return tuple(types)


def parse_type(piece: Piece, allowed: Sequence[DType] = ()) -> DType:
    """The type that ``piece`` names, one of ``allowed`` unless that is empty.

    Raises `UnsupportedError`.
    """
    try:
        type_ = dtype(piece.word)
    except UnsupportedError as error:
        cure = "choose one of " + ", ".join(t.name for t in allowed) if allowed else error.cure
        raise UnsupportedError(error.what, where=piece.span, cure=cure) from None
    if allowed and type_ not in allowed:
        raise UnsupportedError(
            f"{type_.name} cannot be used here",
            where=piece.span,
            cure="choose one of " + ", ".join(t.name for t in allowed),
        )
    return type_


def parse_scales(text: str) -> tuple[Scale, ...]:
    """``--attr-scales``: ``TENSOR:POLICY[:VALUE][:TYPE[:GROUP]]``, joined by ``+``; empty for
    none."""
    scales = []
    for tensor, policy, value, last, group in _entries(text):
        number = None
        if value is not None:
            number = value.number("a scale")
            if number == 0 or not math.isfinite(number):
                raise ProblemError(
                    "a scale must be finite and not 0", where=value.span, cure="write 1 for none"
                )
        kind = f32 if last is None else parse_type(last, _SCALE_TYPES)
        scales.append(Scale(tensor, policy, number, kind, group))
    return tuple(scales)


def parse_zero_points(text: str) -> tuple[ZeroPoint, ...]:
    """``--attr-zero-points``: ``TENSOR:POLICY[:VALUE][:TYPE[:GROUP]]``, joined by ``+``; empty:
    none."""
    points = []
    for tensor, policy, value, last, group in _entries(text):
        number = None if value is None else value.integer("a zero point")
        kind = s32 if last is None else parse_type(last, _ZERO_POINT_TYPES)
        points.append(ZeroPoint(tensor, policy, number, kind, group))
    return tuple(points)


def _check_tensor(tensor: object, where: str) -> None:
    if not isinstance(tensor, str):
        raise ProblemError(
            f"a tensor is named, not {short(tensor)}",
            where=where,
            cure=one_of(tensor, dict.fromkeys(_TENSORS.values())),
        )


def _wrong_type(values: DType, where: str, allowed: Sequence[DType]) -> UnsupportedError:
    return UnsupportedError(
        f"{values} cannot be used here",
        where=where,
        cure="choose one of " + ", ".join(type_.name for type_ in allowed),
    )


def shortest(value: float) -> str:
    """The shortest text that reads back as ``value``: ``2``, ``0.25``, ``1e-05``."""
    return repr(value).removesuffix(".0")


def parse_fpmath(text: str) -> DType | None:
    """``--attr-fpmath``: what f32 may be rounded to before it is multiplied; None for ``strict``,
    or nothing."""
    if text in ("", "strict"):
        return None
    if text not in _FPMATH:
        raise ProblemError(
            f"unknown fpmath {text!r}", where="--attr-fpmath", cure="write tf32, bf16 or strict"
        )
    return dtype(text)


# Tensor, policy, value, type and group; the value where the policy has one.
_Entry = tuple[str, Policy, Piece | None, Piece | None, int | None]


def _entries(text: str) -> list[_Entry]:
    """What each entry says."""
    whole = Piece.whole(text)
    entries: dict[str, _Entry] = {}
    for entry in whole.split("+") if whole.word else ():
        tensor_piece, *rest = entry.split(":")
        if tensor_piece.word not in _TENSORS:
            raise unknown("tensor", tensor_piece, _TENSORS)
        tensor = _TENSORS[tensor_piece.word]
        if tensor in entries:
            raise ProblemError(
                f"{tensor_piece.word} is given twice", where=entry.span, cure="keep one of the two"
            )
        if not rest:
            raise ProblemError(
                f"the policy of {tensor_piece.word} is missing",
                where=entry.span,
                cure=f"write {tensor_piece.word}:common:1 or {tensor_piece.word}:per_oc",
            )
        policy = parse_policy(rest[0])
        wanted = 1 if policy.name == "common" else 0
        _check_values(entry, policy, rest[1:], wanted)
        value = rest[1] if wanted else None
        last, group = (*rest[1 + wanted :], None, None)[:2]
        entries[tensor] = (tensor, policy, value, last, _group(tensor, policy, group))
    return list(entries.values())


def _group(tensor: str, policy: Policy, piece: Piece | None) -> int | None:
    """How many neighbours along K a group has: ``64x1`` of weights, ``1x64`` of src."""
    if piece is None:
        return None
    sizes = _GROUP.fullmatch(piece.word)
    if sizes is None:
        raise ProblemError(
            f"{piece.word!r} is no group",
            where=piece.span,
            why="a group is two sizes: how many neighbours along K and along N have one value",
            cure="write 64x1",
        )
    along, across = (sizes[2], sizes[1]) if tensor == "src" else (sizes[1], sizes[2])
    if int(across) != 1:
        side, line = ("M", "row") if tensor == "src" else ("N", "column")
        raise UnsupportedError(
            f"groups of {across} along {side} are not available",
            where=piece.span,
            why=f"a group lies along K, and each {line} has its own",
            cure=f"write {_group_text(tensor, int(along))}",
        )
    try:
        return _checked_group(int(along), tensor, policy, "")
    except ProblemError as error:
        raise type(error)(error.what, where=piece.span, why=error.why, cure=error.cure) from None


def _group_text(tensor: str, group: int) -> str:
    return f"1x{group}" if tensor == "src" else f"{group}x1"


def _check_group(factor: Scale | ZeroPoint, where: str) -> None:
    if factor.group is not None:
        checked = _checked_group(factor.group, factor.tensor, factor.policy, where)
        object.__setattr__(factor, "group", checked)


def _checked_group(group: object, tensor: str, policy: Policy, where: str) -> int:
    size = whole_number(group, "the size of a group", where)
    if size < 1:
        raise ProblemError(
            "a group has one element at least", where=where, cure="write 32, 64 or 128"
        )
    if tensor not in ("src", "weights"):
        raise ProblemError(
            f"{tensor} has no groups",
            where=where,
            why="groups of scales and zero points are those of the factors of a matmul, along K",
            cure="leave the group out, or give it for src or wei",
        )
    if policy.name in ("common", "per_oc"):
        raise ProblemError(
            f"policy {policy.name} has no groups",
            where=where,
            why="it does not vary along K",
            cure="use policy per_ocic",
        )
    return size


def _check_values(entry: Piece, policy: Policy, values: list[Piece], wanted: int) -> None:
    if len(values) < wanted:
        raise ProblemError(
            "the value is missing",
            where=entry.span,
            why="policy common takes one value for the whole tensor",
            cure=f"write {entry.word.rstrip(':')}:1",
        )
    if not wanted and values and values[0].word[:1] in set("+-.0123456789"):
        raise ProblemError(
            f"policy {policy.name} takes no value",
            where=values[0].span,
            why="its values are an array, given when the kernel is called",
            cure=f"leave :{values[0].word} out, or use policy common",
        )
    if len(values) > wanted + 2:
        raise ProblemError(
            "there is too much behind the group",
            where=values[wanted + 2].span,
            cure="leave it out",
        )


def _describe(factor: Scale | ZeroPoint, value: list[str], usual: DType) -> str:
    word = next(word for word, name in _TENSORS.items() if name == factor.tensor)
    last = [] if factor.dtype is usual and factor.group is None else [factor.dtype.name]
    group = [] if factor.group is None else [_group_text(factor.tensor, factor.group)]
    return ":".join([word, factor.policy.name, *value, *last, *group])
